-- SPDX-License-Identifier: Apache-2.0
-- Pop: leases what partitions hold for groups, or takes it (autoAck).
--
-- pop_v2, pop_v1; inside: pop_create.
--
-- Writes consumers, lease_sets.  Waits for nobody: consumer rows are locked
-- with skip locked, missing ones are made under try-locks; every creator of
-- a consumer row takes that lock and looks again, for the generation in the key
-- keeps the index from refusing a second row.
--
-- READ COMMITTED is assumed.  Claim, look and lease are one statement: a row that
-- changed after its snapshot is locked in its new version, whose values
-- decide, but the update by ctid does not see that version: it answers locked.

-- Requests r_*: lease number, lease seconds (<= 0: the queue's), budget in
-- messages, width in partitions (<= 0: no cap), autoAck.  Candidates c_*: request
-- (1-based), partition, group, in the order wanted; a (group, partition) at
-- most once per call.  p_keys: the key ids the caller can open; p_opens: it does so
-- before it commits, else autoAck takes nothing sealed.
-- Verdicts: 0 took (a row per segment slice; the first of a candidate has span),
-- 1 leased (until), 2 hidden (until), 3 locked, 4 blocked (base and key_id of what
-- does), 5 empty, 6 gone.  No row: budget, width or 16 MiB did not reach it.
create or replace function queen.pop_v2(p_tenant uuid, r_no bigint[],
	r_secs int[], r_budget int[], r_width int[], r_auto boolean[],
	c_req int[], c_part bigint[], c_group bigint[], p_keys smallint[],
	p_opens boolean, p_now timestamptz default null)
returns table (req int, cand int, verdict int, until timestamptz,
	lease_at bigint, lease_group bigint, base bigint, skip int, take int,
	at timestamptz, last bigint, attempt int, span bigint,
	expires_at timestamptz, raw_bytes int, key_id smallint, blob bytea)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	n int := cardinality(c_part); n_req int := cardinality(r_no);
	t timestamptz := coalesce(p_now, clock_timestamp());
	n_there int;
begin
	if (n = cardinality(c_req) and n = cardinality(c_group)
			and n_req = cardinality(r_secs) and n_req = cardinality(r_budget)
			and n_req = cardinality(r_width)
			and n_req = cardinality(r_auto)) is not true then
		raise exception 'queen.pop_v2: arrays differ in length'
			using errcode = '22023';
	end if;
	select count(*) into n_there
	from unnest(c_part, c_group) k(part, grp)
	-- backwards, from the newest generation: forwards a held snapshot would
	-- make it walk every version there ever was
	cross join lateral (select from queen.consumers c
		where c.group_id = k.grp and c.partition_id = k.part
		order by c.gen desc limit 1) c;
	if n_there < n then
		perform queen.pop_create(p_tenant, c_part, c_group);
	end if;

	return query
	with g as materialized (
		select u.grp, g.queue_id, g.conflated conf, q.*
		from (select distinct x.grp from unnest(c_group) x(grp)) u
		cross join lateral (select g.queue_id, g.conflated, g.deleted_at gone
			from queen.groups g where g.id = u.grp limit 1) g
		cross join lateral (select q.delayed_processing_s delay,
				q.window_buffer_s buf, q.lease_time_s secs,
				q.deleted_at is null and q.tenant = p_tenant ok
			from queen.queues q where q.id = g.queue_id limit 1) q
		where g.gone is null and q.ok
	), w as materialized (	-- claims, without waiting; looks what each has
		select y.*, r_budget[y.req] budget, r_width[y.req] width,
			(sum(y.has) over o)::bigint - y.has before,
			count(*) filter (where y.has > 0) over o nth
		from (select k.ord::int, k.req, k.part, k.grp, g.queue_id, g.conf,
				g.delay, g.buf, g.secs, c.row, c.done, s.tail, s.last,
				p.frm, p.start, p.old_at, v.vis, v.open,
				case when (v.open and v.vis >= p.frm) is not true then 0
					when g.conf then 1 else v.vis - p.frm + 1 end has
			from unnest(c_req, c_part, c_group) with ordinality
				k(req, part, grp, ord)
			left join g on g.grp = k.grp
			left join lateral (select c.ctid as row, c.committed done
				from queen.consumers c
				where c.group_id = g.grp and c.partition_id = k.part
					and (c.expires_at is null or c.expires_at <= t)
				order by c.gen desc limit 1
				for no key update skip locked) c on true
			left join lateral (select s.base_offset tail, s.end_offset last,
					s.created_at as at
				from queen.segments s where s.partition_id = k.part
					and c.row is not null
				order by s.base_offset desc limit 1) s on s.last > c.done
			left join lateral (select f.base_offset base, f.end_offset til,
					f.created_at as at
				from queen.segments f where f.partition_id = k.part
					and f.base_offset <= c.done + 1 and s.tail > c.done + 1
				order by f.base_offset desc limit 1) f on f.til > c.done
			left join lateral (select n.base_offset base, n.created_at as at
				from queen.segments n where n.partition_id = k.part
					and n.base_offset > c.done and s.tail > c.done + 1
					and f.til is null
				order by n.base_offset limit 1) n on true
			cross join lateral (select	-- the first pending, its segment
				coalesce(n.base, c.done + 1) frm,
				coalesce(n.base, f.base, s.tail) start,
				coalesce(n.at, f.at, s.at) old_at) p
			cross join lateral (select	-- the window's gate, the newest visible
				g.buf = 0 or s.last - p.frm >= 99
					or p.old_at <= t - make_interval(secs => g.buf) as open,
				case when g.delay = 0 then s.last
					else queen.pop_visible(k.part, p.frm, s.last, p.old_at,
						s.at, t - make_interval(secs => g.delay)) end vis) v
			) y
		window o as (partition by y.req order by y.ord)
	), s as materialized (	-- exactly the segments of that range
		select y.*, not y.shut
			and (y.raw <= 16777216 or y.raw = y.raw_bytes) fits
		from (select w.req, w.ord, w.part, w.grp, w.row, w.done, w.last, w.frm,
			w.secs, w.conf, w.lo, greatest(s.base_offset, w.lo) slo,
			least(s.end_offset, w.til) hi, s.base_offset, s.created_at,
			s.raw_bytes, s.key_id, s.blob,	-- a large blob is a pointer here
			sum(s.raw_bytes) over (partition by w.req
				order by w.ord, s.base_offset) raw,
			bool_or(s.key_id is not null and (s.key_id = any (p_keys)
					and (p_opens or not r_auto[w.req])) is not true)
				over (partition by w.req, w.ord
				order by s.base_offset) shut
		from (select w.*, case when w.conf then w.vis else w.frm end lo,
				case when w.conf then w.vis
					else least(w.vis, w.frm - 1 + w.budget - w.before) end til,
				case when not w.conf then w.start
					when w.vis >= w.tail then w.tail
					else (select b.base_offset from queen.segments b
						where b.partition_id = w.part
							and b.base_offset <= w.vis
						order by b.base_offset desc limit 1) end sfrm
			from w where w.has > 0 and w.before < w.budget
				and (w.nth <= w.width or w.width <= 0)) w
		cross join lateral (select s.* from queen.segments s
			where s.partition_id = w.part and s.base_offset >= w.sfrm
				and s.base_offset <= w.til and s.end_offset >= w.lo) s) y
	), f as materialized (
		select y.*, first_value(y.part) over o first,
			first_value(y.grp) over o first_grp,
			r_auto[y.req] auto, t + make_interval(secs => case
				when r_secs[y.req] > 0 then r_secs[y.req] else y.secs end) til
		from (select distinct on (s.req, s.ord) s.req, s.ord, s.part, s.grp,
				s.row, s.lo, s.frm, s.secs, s.conf, s.hi
			from s where s.fits order by s.req, s.ord, s.hi desc) y
		window o as (partition by y.req order by y.ord)
	), u as (
		update queen.consumers c set
			gen = c.gen + ((c.turn & 31) = 31)::int, turn = c.turn + 1,
			committed = case when f.auto then f.hi else c.committed end,
			consumed = c.consumed
				+ case when f.auto then f.hi - f.frm + 1 else 0 end,
			batch_end = case when not f.auto then f.hi end,
			lease_at = case when not f.auto then f.first end,
			lease_group = case when not f.auto then f.first_grp end,
			lease_no = case when not f.auto then r_no[f.req] end,
			last_lease_at = coalesce(c.lease_at, c.last_lease_at),
			last_lease_no = coalesce(c.lease_no, c.last_lease_no),
			expires_at = case when not f.auto then f.til end,
			acquired_at = t, conflated = f.conf and not f.auto,
			attempts = case when f.auto then 0
				when c.attempt_offset = f.frm then c.attempts + 1 else 1 end,
			attempt_offset = case when not f.auto then f.frm end
		from f where c.ctid = f.row
		returning f.ord, f.hi, f.auto, c.lease_at, c.lease_group, c.expires_at,
			c.attempts
	), p as (		-- the partitions of a lease that has several
		insert into queen.lease_sets (lease_at, lease_group, lease_no, parts,
			groups, expires_at)
		select f.first, f.first_grp, r_no[f.req],
			array_agg(f.part order by f.part, f.grp),
			array_agg(f.grp order by f.part, f.grp), max(f.til)
		from f where not f.auto and cardinality(c_part) > n_req
		group by f.req, f.first, f.first_grp having count(*) > 1
		on conflict (lease_at, lease_group, lease_no) do update set
			parts = excluded.parts, groups = excluded.groups,
			expires_at = excluded.expires_at
	)
	select s.req, s.ord, case when s.shut then 4 when u.ord is null then 3
			else 0 end, null::timestamptz, u.lease_at, u.lease_group,
		case when u.ord is not null or s.shut then s.base_offset end,
		case when u.ord is not null then (s.slo - s.base_offset)::int end,
		case when u.ord is not null then (s.hi - s.slo + 1)::int end,
		case when u.ord is not null then s.created_at end, s.last,
		case when u.auto then 1 else u.attempts end,
		case when s.slo = s.lo then u.hi - s.done end, u.expires_at,
		case when u.ord is not null then s.raw_bytes end,
		case when u.ord is not null or s.shut then s.key_id end,
		case when u.ord is not null then s.blob end
	from s full join u on u.ord = s.ord	-- full: never a loop over both
	where s.fits and u.ord is not null
		or s.slo = s.lo and (s.shut or s.fits)
	union all		-- what gave nothing, and why
	select w.req, w.ord, case when w.last is not null then 2
			when w.row is not null then 5
			when w.grp is null or h.there is null then 6
			when c.expires_at > t then 1 else 3 end,
		case when w.last is not null then greatest(
				case when not w.open
					then w.old_at + make_interval(secs => w.buf) end,
				case when w.vis < w.frm
					then w.old_at + make_interval(secs => w.delay) end)
			when w.row is null and h.there and c.expires_at > t
				then c.expires_at end,
		null, null, null, null, null, null, w.last,
		null, null, null, null, null, null
	from w
	left join lateral (select true there from queen.partition_heads h
		where h.id = w.part and h.queue_id = w.queue_id and w.row is null
		limit 1) h on true
	left join lateral (select c.expires_at from queen.consumers c
		where c.group_id = w.grp and c.partition_id = w.part
			and w.row is null
		order by c.gen desc limit 1) c on true
	where w.has = 0
	order by 1, 2, 7;
end $$;

-- The same of a caller that says nothing about when it opens: autoAck takes what is
-- sealed too.
create or replace function queen.pop_v1(p_tenant uuid, r_no bigint[],
	r_secs int[], r_budget int[], r_width int[], r_auto boolean[],
	c_req int[], c_part bigint[], c_group bigint[], p_keys smallint[],
	p_now timestamptz default null)
returns table (req int, cand int, verdict int, until timestamptz,
	lease_at bigint, lease_group bigint, base bigint, skip int, take int,
	at timestamptz, last bigint, attempt int, span bigint,
	expires_at timestamptz, raw_bytes int, key_id smallint, blob bytea)
language sql volatile as $$
	select * from queen.pop_v2(p_tenant, r_no, r_secs, r_budget, r_width,
		r_auto, c_req, c_part, c_group, p_keys, true, p_now);
$$;

-- Inside pop_v2: the newest offset of p_lo .. p_hi stamped p_cut or before, p_lo - 1
-- when there is none; p_old and p_new are the stamps of both ends.
create or replace function queen.pop_visible(p_part bigint, p_lo bigint,
	p_hi bigint, p_old timestamptz, p_new timestamptz, p_cut timestamptz)
returns bigint
language plpgsql volatile as $$
begin
	return case when p_new <= p_cut then p_hi
		when p_old > p_cut then p_lo - 1
		else queen.offset_bisect(p_part, p_lo, p_hi,
			p_cut + interval '1 us') end;
end $$;

-- Inside pop_v2: makes the consumer rows that are missing, at the group's start, at
-- most 1000.  Where another session is at it, nothing happens.
create or replace function queen.pop_create(p_tenant uuid, c_part bigint[],
	c_group bigint[])
returns void
language plpgsql volatile as $$
#variable_conflict use_column
declare
	n_part bigint[]; n_grp bigint[]; n_queue bigint[]; n_start timestamptz[];
begin
	select array_agg(x.part), array_agg(x.grp), array_agg(x.queue_id),
		array_agg(x.start_at)
	into n_part, n_grp, n_queue, n_start
	from (with m as materialized (
			select k.part, k.grp, g.queue_id, g.start_at
			from unnest(c_part, c_group) k(part, grp)
			left join lateral (select true there from queen.consumers c
				where c.group_id = k.grp and c.partition_id = k.part
				order by c.gen desc limit 1) c on true
			cross join lateral (select g.queue_id, g.start_at, g.deleted_at
				from queen.groups g where g.id = k.grp limit 1) g
			cross join lateral (select q.tenant, q.deleted_at
				from queen.queues q where q.id = g.queue_id limit 1) q
			where c.there is null and g.deleted_at is null
				and q.deleted_at is null and q.tenant = p_tenant
			limit 1000	-- each takes a slot of the lock table
		)
		select m.* from m where pg_try_advisory_xact_lock(
			hashint8extended(m.part, m.grp))) x;
	-- the lock came first, so this statement sees every row there is
	insert into queen.consumers (group_id, partition_id, committed)
	select m.grp, m.part, m.done
	from (select m.grp, m.part,
			queen.group_start(m.part, m.queue, m.start) done
		from unnest(n_part, n_grp, n_queue, n_start)
			m(part, grp, queue, start)
		left join lateral (select true there from queen.consumers c
			where c.group_id = m.grp and c.partition_id = m.part
			order by c.gen desc limit 1) c on true
		where c.there is null) m
	where m.done is not null
	order by m.part, m.grp;
end $$;
