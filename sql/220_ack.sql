-- SPDX-License-Identifier: Apache-2.0
-- Ack: moves cursors, ends leases, files dead letters.
--
-- ack_v1; inside: ack_full, ack_resolve, ack_stale.
--
-- Writes consumers, dead_letters.  Locks consumer rows only, ascending by
-- (partition, group), all in the first statement; what was not there then is
-- not looked for again, so the order holds.  READ COMMITTED is assumed.  An ack
-- never makes a consumer row.

-- One input per (partition, group, lease), ascending by partition and group.
-- a_at, a_group_at, a_no: the lease named, null = lease-less.  a_ids: 16 bytes per
-- item in the order sent; a_status: a byte per item (0 completed, 1 failed,
-- 2 retry, 3 dlq), null = all completed.  e_*: error texts by ack (1-based) and
-- item (0-based).  f_*: frames that earlier needs_frame answers asked for; d_id: an
-- unused UUIDv7 per ack.
-- Verdicts: 0 lease released, 1 lease kept or none, 2 consumer not found, 3 stale
-- lease, 4 needs_frame (off, base, blob; nothing changed), 5 gone.  items: null
-- = all success, else a byte each: 0 success, 1 noop, 2 already committed,
-- 3 unresolvable, 4 stale lease.  more: the release left messages to deliver.
create or replace function queen.ack_v1(p_tenant uuid, a_group bigint[],
	a_part bigint[], a_at bigint[], a_group_at bigint[], a_no bigint[],
	a_ids bytea[], a_status bytea[], e_ack int[], e_item int[], e_text text[],
	f_ack int[], f_off bigint[], f_frame bytea[], f_at timestamptz[],
	d_id uuid[], p_now timestamptz default null)
returns table (ord int, verdict int, committed bigint, dead bigint,
	dropped bigint, conflated bigint, more boolean, off bigint, base bigint,
	blob bytea, items bytea)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	n int := cardinality(a_part);
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_ord int[]; d_ord int[]; d_til bigint[]; d_kept boolean[];
	d_conf bigint[]; d_more boolean[]; i int;
begin
	if (n = cardinality(a_group) and n = cardinality(a_at)
			and n = cardinality(a_group_at) and n = cardinality(a_no)
			and n = cardinality(a_ids) and n = cardinality(a_status)
			and n = cardinality(d_id)
			and cardinality(e_ack) = cardinality(e_item)
			and cardinality(e_ack) = cardinality(e_text)
			and cardinality(f_ack) = cardinality(f_off)
			and cardinality(f_ack) = cardinality(f_frame)
			and cardinality(f_ack) = cardinality(f_at)) is not true then
		raise exception 'queen.ack_v1: arrays differ in length'
			using errcode = '22023';
	end if;

	-- The positional advance, in one statement: lock in order, compare what was
	-- sent with the ids after the cursor, move.  A row that changed while this
	-- waited for its lock is locked in its new version, but that is not
	-- visible to this snapshot: the update misses it and it goes the long way.
	with g as materialized (
		select u.grp
		from (select distinct x.grp from unnest(a_group) x(grp)) u
		cross join lateral (select g.queue_id, g.deleted_at gone
			from queen.groups g where g.id = u.grp limit 1) g
		cross join lateral (select q.deleted_at is null
				and q.tenant = p_tenant ok
			from queen.queues q where q.id = g.queue_id limit 1) q
		where g.gone is null and q.ok
	), k as materialized (	-- sorted and set aside: the order of the locks
		select k.*
		from unnest(a_group, a_part, a_at, a_group_at, a_no, a_ids, a_status)
			with ordinality
			k(grp, part, at, grp_at, no, ids, status, ord)
		join g on g.grp = k.grp
		order by k.part, k.grp
	), l as materialized (
		select k.ord, k.part, k.ids, c.row, c.committed done, c.batch_end bend,
			v.conf, v.n,
			case when v.conf then c.batch_end else c.committed + 1 end lo,
			case when v.conf then c.batch_end else c.committed + v.n end til,
			k.status is null and v.n > 0 and (not v.conf or v.n = 1)
				and (k.no is null or k.no = c.lease_no
					and k.at = c.lease_at and k.grp_at = c.lease_group
					and c.expires_at > t) as fit
		from k
		cross join lateral (select c.ctid as row, c.*
			from queen.consumers c
			where c.group_id = k.grp and c.partition_id = k.part
			order by c.gen desc limit 1 for no key update) c
		cross join lateral (select octet_length(k.ids) / 16 n,
			c.conflated and c.batch_end is not null conf) v
	), v as materialized (
		select l.*, l.til >= l.bend ends from l
		cross join lateral (
			select string_agg(substr(s.ids,
					(greatest(l.lo - s.base_offset, 0) * 16 + 1)::int,
					((least(s.end_offset, l.til)
						- greatest(s.base_offset, l.lo) + 1) * 16)::int),
				''::bytea order by s.base_offset) have
			from queen.segment_ids s
			where s.partition_id = l.part and s.base_offset <= l.til
				and s.base_offset >= coalesce((select b.base_offset
					from queen.segment_ids b where b.partition_id = l.part
						and b.base_offset <= l.lo
					order by b.base_offset desc limit 1), l.lo)
				and s.end_offset >= l.lo) h
		where l.fit and (l.til <= l.bend or l.bend is null)
			and h.have = l.ids
	), u as (
		update queen.consumers c set
			gen = c.gen + ((c.turn & 31) = 31)::int, turn = c.turn + 1,
			committed = v.til, consumed = c.consumed + v.til - v.done,
			batch_end = case when not v.ends then c.batch_end end,
			lease_at = case when not v.ends then c.lease_at end,
			lease_group = case when not v.ends then c.lease_group end,
			lease_no = case when not v.ends then c.lease_no end,
			last_lease_at = case when v.ends and c.lease_no is not null
				then c.lease_at else c.last_lease_at end,
			last_lease_no = case when v.ends and c.lease_no is not null
				then c.lease_no else c.last_lease_no end,
			expires_at = case when not v.ends then c.expires_at end,
			conflated = c.conflated and v.ends is false,
			retries = case when v.ends then 0 else c.retries end,
			attempts = case when v.ends then 0 else c.attempts end,
			attempt_offset = case when not v.ends then v.til + 1
				when v.ends then null else c.attempt_offset end
		from v where c.ctid = v.row
		returning v.ord, v.part, v.til, v.done, v.conf, v.ends
	)
	select array_agg(l.ord::int), array_agg(l.ord::int) filter (where u.ord > 0),
		array_agg(u.til) filter (where u.ord > 0),
		array_agg(coalesce(not u.ends, true)) filter (where u.ord > 0),
		array_agg(case when u.conf then u.til - u.done - 1 end)
			filter (where u.ord > 0),
		array_agg(u.ends and exists (select 1 from (select s.end_offset
				from queen.segments s where s.partition_id = u.part
				order by s.base_offset desc limit 1) s
				where s.end_offset > u.til)) filter (where u.ord > 0)
	into l_ord, d_ord, d_til, d_kept, d_conf, d_more
	from l full join u on u.ord = l.ord;	-- full: never a loop over both
	return query
	select d.ord, d.kept::int, d.til, null::bigint, null::bigint, d.conf,
		d.more is true, null::bigint, null::bigint, null::bytea, null::bytea
	from unnest(d_ord, d_til, d_kept, d_conf, d_more)
		d(ord, til, kept, conf, more);
	if cardinality(d_ord) = n then
		return;
	end if;

	-- the rest by the full rules, one at a time; the rows are locked
	for i in select g.i from generate_series(1, n) g(i)
		left join unnest(d_ord) d(ord) on d.ord = g.i
		where d.ord is null order by g.i
	loop
		return query
		select i, x.* from queen.ack_full(p_tenant, t, a_group[i], a_part[i],
			exists (select 1 from unnest(l_ord) l(ord)
				where a_part[l.ord] = a_part[i]
					and a_group[l.ord] = a_group[i]),
			a_at[i], a_group_at[i], a_no[i], a_ids[i],
			a_status[i], d_id[i],
			(select array_agg(e.item order by e.ord)
				from unnest(e_ack, e_item) with ordinality e(ack, item, ord)
				where e.ack = i),
			(select array_agg(e.msg order by e.ord)
				from unnest(e_ack, e_text) with ordinality e(ack, msg, ord)
				where e.ack = i),
			(select array_agg(f.off order by f.ord)
				from unnest(f_ack, f_off) with ordinality f(ack, off, ord)
				where f.ack = i),
			(select array_agg(f.frame order by f.ord)
				from unnest(f_ack, f_frame) with ordinality f(ack, frame, ord)
				where f.ack = i),
			(select array_agg(f.at order by f.ord)
				from unnest(f_ack, f_at) with ordinality f(ack, at, ord)
				where f.ack = i)) x;
	end loop;
end $$;

-- Inside: every id of an ack to an offset.  eff: the k-th occurrence of an id takes its
-- k-th match in p_lo .. p_hi, the last one when there are fewer; an open end
-- (p_hi null) is searched 1 048 576 positions ahead.  below: without eff, a match
-- within the 65 536 positions up to p_done.
create or replace function queen.ack_resolve(p_part bigint, p_done bigint,
	p_lo bigint, p_hi bigint, p_ids bytea)
returns table (eff bigint[], below boolean[])
language plpgsql volatile as $$
#variable_conflict use_column
declare
	l_id bytea[]; l_nth int[]; l_eff bigint[]; l_below boolean[];
	h_id bytea[] := '{}'; h_off bigint[] := '{}'; more_id bytea[];
	l_lo bigint := p_lo; l_end bigint := p_hi; l_to bigint;
begin
	select array_agg(y.id order by y.p), array_agg(y.nth order by y.p)
	into l_id, l_nth
	from (select x.p, x.id,
			row_number() over (partition by x.id order by x.p)::int nth
		from (select p, substr(p_ids, p * 16 + 1, 16) id
			from generate_series(0, octet_length(p_ids) / 16 - 1) p) x) y;
	more_id := l_id;
	if l_end is null then
		select s.end_offset into l_end from queen.segment_ids s
		where s.partition_id = p_part order by s.base_offset desc limit 1;
		l_end := least(l_end, p_lo + 1048575);
	end if;
	while l_lo <= l_end and more_id is not null loop
		l_to := least(l_lo + 65535, l_end);
		select h_id || coalesce(array_agg(s.id order by s.off), '{}'),
			h_off || coalesce(array_agg(s.off order by s.off), '{}')
		into h_id, h_off
		from queen.ids_slots(p_part, l_lo, l_to, null) s
		join (select distinct u.id from unnest(more_id) u(id)) w
			on w.id = s.id;
		-- more is needed for an id that was sent more often than found
		select array_agg(w.id) into more_id
		from (select u.id, count(*) n from unnest(l_id) u(id) group by u.id) w
		left join (select u.id, count(*) n from unnest(h_id) u(id)
			group by u.id) h on h.id = w.id
		where w.n > coalesce(h.n, 0);
		l_lo := l_to + 1;
	end loop;
	select array_agg(h.off order by i.ord) into l_eff
	from unnest(l_id, l_nth) with ordinality i(id, nth, ord)
	left join (select u.id, u.off,
			row_number() over (partition by u.id order by u.off) nth,
			count(*) over (partition by u.id) n
		from unnest(h_id, h_off) u(id, off)) h
		on h.id = i.id and h.nth = least(i.nth, h.n);

	-- those without: recent ones first, a repeated ack is the usual case
	h_id := '{}';
	l_to := p_done; l_lo := p_done - 4095;
	for r in 1 .. 2 loop
		select array_agg(distinct u.id) into more_id
		from unnest(l_id, l_eff) u(id, eff)
		where u.eff is null and u.id <> all (h_id);
		exit when more_id is null or l_to < 0;
		select h_id || coalesce(array_agg(distinct s.id), '{}') into h_id
		from queen.ids_slots(p_part, greatest(l_lo, 0), l_to, null) s
		join unnest(more_id) w(id) on w.id = s.id;
		l_to := l_lo - 1; l_lo := p_done - 65535;
	end loop;
	select array_agg(u.id = any (h_id) order by u.ord) into l_below
	from unnest(l_id) with ordinality u(id, ord);
	return query select l_eff, l_below;
end $$;

-- Inside: the answer to an ack under a lease that is not live: completed items
-- at or below the cursor are noops when it is the lease before.
create or replace function queen.ack_stale(p_part bigint, p_done bigint,
	p_ids bytea, p_status bytea, p_last boolean)
returns bytea
language plpgsql volatile as $$
#variable_conflict use_column
begin
	if not p_last then
		return decode(repeat('04', octet_length(p_ids) / 16), 'hex');
	end if;
	return (select string_agg(case when u.below
			and coalesce(get_byte(p_status, u.ord::int - 1), 0) = 0
			then '\x01'::bytea else '\x04'::bytea end, ''::bytea order by u.ord)
		from queen.ack_resolve(p_part, p_done, 0, -1, p_ids) r
		cross join lateral unnest(r.below) with ordinality u(below, ord));
end $$;

-- Inside: the full algorithm for one consumer row that ack_v1 has locked (p_there
-- false: it was not there).  Columns as ack_v1's.
create or replace function queen.ack_full(p_tenant uuid, t timestamptz,
	p_group bigint, p_part bigint, p_there boolean, p_at bigint,
	p_group_at bigint, p_no bigint, p_ids bytea, p_status bytea, p_dead uuid,
	e_item int[], e_text text[], f_off bigint[], f_frame bytea[],
	f_at timestamptz[])
returns table (verdict int, committed bigint, dead bigint, dropped bigint,
	conflated bigint, more boolean, off bigint, base bigint, blob bytea,
	items bytea)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	g record; c record; s record; r record; x record;
	l_items bytea; l_to bigint; l_poison boolean := false;
	l_dead bigint; l_dropped bigint; l_conf bigint; l_more boolean := false;
	release boolean := false; reset boolean := false; charge int := 0;
begin
	if (octet_length(p_status) = octet_length(p_ids) / 16) is false
			or octet_length(p_ids) % 16 <> 0 then
		raise exception 'queen.ack_v1: ids and status bytes do not match'
			using errcode = '22023';
	end if;
	select q.queue_id, q.retry_limit, g.name, q.dlq
	into g from (select g.name, g.queue_id, g.deleted_at
		from queen.groups g where g.id = p_group limit 1) g
	cross join lateral (select q.id as queue_id, q.retry_limit,
			q.dead_letter_queue or q.dlq_after_max_retries as dlq,
			q.tenant = p_tenant and q.deleted_at is null as ok
		from queen.queues q where q.id = g.queue_id limit 1) q
	where g.deleted_at is null and q.ok;
	if not found then
		return query select 5, null::bigint, null::bigint, null::bigint,
			null::bigint, false, null::bigint, null::bigint, null::bytea,
			null::bytea;
		return;
	end if;
	if p_there is true then
		select y.ctid as row, y.*, y.batch_end is not null as has into c
		from queen.consumers y
		where y.group_id = p_group and y.partition_id = p_part
		order by y.gen desc limit 1 for no key update;
	end if;
	if p_there is not true or not found then
		return query select 2, null::bigint, null::bigint, null::bigint,
			null::bigint, false, null::bigint, null::bigint, null::bytea,
			null::bytea;
		return;
	end if;
	if p_no is not null and (c.lease_no = p_no and c.lease_at = p_at
			and c.lease_group = p_group_at and c.expires_at > t) is not true then
		return query select 3, c.committed, null::bigint, null::bigint,
			null::bigint, false, null::bigint, null::bigint, null::bytea,
			queen.ack_stale(p_part, c.committed, p_ids, p_status,
				(c.last_lease_no = p_no and c.last_lease_at = p_at) is true);
		return;
	end if;

	select y.* into r from queen.ack_resolve(p_part, c.committed,
		case when c.has and c.conflated then c.batch_end
			else c.committed + 1 end, c.batch_end, p_ids) y;
	-- the lowest failed, retry or dlq decides; at one offset dlq, failed, retry
	select y.eff, y.kind into s
	from (select u.eff, get_byte(p_status, u.ord::int - 1) kind
		from unnest(r.eff) with ordinality u(eff, ord)
		where u.eff is not null) y
	where y.kind <> 0
	order by y.eff, case y.kind when 3 then 0 when 1 then 1 else 2 end limit 1;
	select coalesce(max(u.eff), c.committed) top, count(*) > 0 some into x
	from unnest(r.eff) with ordinality u(eff, ord)
	where coalesce(get_byte(p_status, u.ord::int - 1), 0) = 0
		and u.eff is not null and (s.eff is null or u.eff < s.eff);
	l_to := x.top;
	select string_agg(case when u.eff is not null then '\x00'::bytea
			when not u.below then '\x03'::bytea
			when coalesce(get_byte(p_status, u.ord::int - 1), 0) = 0
			then '\x01'::bytea else '\x02'::bytea end, ''::bytea
		order by u.ord)
	into l_items
	from unnest(r.eff, r.below) with ordinality u(eff, below, ord);

	if not c.has then
		null;
	elsif s.kind = 3 or s.kind = 1 and c.retries >= g.retry_limit then
		release := true; reset := true; l_to := s.eff;
		if s.kind = 3 or g.dlq then
			select y.* into x from queen.ack_bury(p_part, g.queue_id, g.name,
				s.eff, c.retries, p_dead, t, r.eff, p_ids, e_item, e_text,
				f_off, f_frame, f_at) y;
			if x.blob is not null then
				return query select 4, c.committed, null::bigint, null::bigint,
					null::bigint, false, s.eff, x.base, x.blob, null::bytea;
				return;
			end if;
			l_dead := s.eff;
		else
			l_dropped := s.eff;
		end if;
	elsif s.eff is not null then
		release := true; charge := (s.kind = 1)::int;
	elsif c.conflated and x.some then
		l_to := c.batch_end; release := true; reset := true;
		l_conf := c.batch_end - c.committed - 1;
	elsif l_to >= c.batch_end then
		release := true; reset := true;
	end if;

	if release or l_to > c.committed then
		update queen.consumers y set
			gen = y.gen + ((y.turn & 31) = 31)::int, turn = y.turn + 1,
			committed = l_to, consumed = y.consumed + l_to - y.committed,
			batch_end = case when not release then y.batch_end end,
			lease_at = case when not release then y.lease_at end,
			lease_group = case when not release then y.lease_group end,
			lease_no = case when not release then y.lease_no end,
			last_lease_at = case when release and y.lease_no is not null
				then y.lease_at else y.last_lease_at end,
			last_lease_no = case when release and y.lease_no is not null
				then y.lease_no else y.last_lease_no end,
			expires_at = case when not release then y.expires_at end,
			conflated = y.conflated and not release,
			retries = case when reset then 0 else y.retries + charge end,
			attempts = case when reset then 0 else y.attempts end,
			attempt_offset = case when reset then null
				when c.has and l_to > c.committed then l_to + 1
				else y.attempt_offset end
		where y.ctid = c.row;
	end if;
	if release then
		l_more := exists (select 1 from (select z.end_offset
			from queen.segments z where z.partition_id = p_part
			order by z.base_offset desc limit 1) z where z.end_offset > l_to);
	end if;
	return query select (not release)::int, l_to, l_dead, l_dropped, l_conf,
		l_more, null::bigint, null::bigint, null::bytea, l_items;
end $$;

-- Inside ack_full: files a dead letter, with its frame, or as null data when
-- retention has removed the message; returns base and blob of the covering
-- segment instead when the caller must bring the frame.
create or replace function queen.ack_bury(p_part bigint, p_queue bigint,
	p_name text, p_off bigint, p_retries int, p_dead uuid, t timestamptz,
	p_eff bigint[], p_ids bytea, e_item int[], e_text text[], f_off bigint[],
	f_frame bytea[], f_at timestamptz[])
returns table (base bigint, blob bytea)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	f record; i int := array_position(p_eff, p_off);
begin
	select u.frame, u.at, true there into f
	from unnest(f_off, f_frame, f_at) u(off, frame, at)
	where u.off = p_off limit 1;
	if f.there is null then
		return query
		select s.base_offset, s.blob
		from (select s.base_offset, s.end_offset, s.blob
			from queen.segments s
			where s.partition_id = p_part and s.base_offset <= p_off
			order by s.base_offset desc limit 1) s
		where s.end_offset >= p_off;
		if found then
			return;
		end if;
	end if;
	insert into queen.dead_letters (id, queue_id, partition_id, group_name,
		message_offset, id_hash, frame, error, retries, created_at, failed_at)
	select p_dead, p_queue, p_part, p_name, p_off,
		substr(p_ids, i * 16 - 15, 16), f.frame,
		coalesce((select u.msg from unnest(e_item, e_text)
				with ordinality u(item, msg, ord)
			where p_eff[u.item + 1] = p_off and u.msg <> ''
			order by u.ord limit 1),
			(select u.msg from unnest(e_text) with ordinality u(msg, ord)
			where u.msg <> '' order by u.ord limit 1), 'Retries exhausted'),
		p_retries,
		coalesce(f.at, (select s.created_at from queen.segment_ids s
			where s.partition_id = p_part and s.base_offset <= p_off
			order by s.base_offset desc limit 1)), t;
end $$;
