-- SPDX-License-Identifier: Apache-2.0
-- Pop: leases what partitions hold for groups, or takes it (autoAck).
--
-- pop_v1; inside: pop_claim_new, pop_refused.
--
-- Writes consumers, lease_sets.  Waits for nobody: consumer rows are locked
-- with skip locked, missing ones are made under try-locks; every creator of
-- a consumer row takes that lock and looks again, for the generation in the key
-- keeps the index from refusing a second row.  READ COMMITTED is assumed: what
-- is read and leased is decided in a statement that began after the claim.

-- Requests r_*: lease number, lease seconds (<= 0: the queue's), budget in
-- messages, width in partitions (<= 0: no cap), autoAck.  Candidates c_*: request
-- (1-based), partition, group, in the order wanted; a (group, partition) at
-- most once per call.  p_keys: the key ids the caller can open.
-- Verdicts: 0 took (a row per segment slice; the first of a candidate has span),
-- 1 leased (until), 2 hidden (until), 3 locked, 4 blocked, 5 empty, 6 gone.  No row:
-- budget, width or the 16 MiB of a request did not reach it.
create or replace function queen.pop_v1(p_tenant uuid, r_no bigint[],
	r_secs int[], r_budget int[], r_width int[], r_auto boolean[],
	c_req int[], c_part bigint[], c_group bigint[], p_keys smallint[],
	p_now timestamptz default null)
returns table (req int, cand int, verdict int, until timestamptz,
	lease_at bigint, lease_group bigint, base bigint, skip int, take int,
	at timestamptz, last bigint, attempt int, span bigint,
	expires_at timestamptz, raw_bytes int, key_id smallint, blob bytea)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	n int := cardinality(c_part); n_req int := cardinality(r_no);
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_ord int[]; l_row tid[]; l_done bigint[];
	l_delay int[]; l_buf int[]; l_secs int[]; l_conf boolean[];
	x record;
begin
	if (n = cardinality(c_req) and n = cardinality(c_group)
			and n_req = cardinality(r_secs) and n_req = cardinality(r_budget)
			and n_req = cardinality(r_width)
			and n_req = cardinality(r_auto)) is not true then
		raise exception 'queen.pop_v1: arrays differ in length'
			using errcode = '22023';
	end if;

	-- claim, never waiting
	select array_agg(x.ord), array_agg(x.row), array_agg(x.committed),
		array_agg(x.delay), array_agg(x.buf), array_agg(x.secs),
		array_agg(x.conflated)
	into l_ord, l_row, l_done, l_delay, l_buf, l_secs, l_conf
	from (select k.ord::int, c.row, c.committed, q.delay, q.buf, q.secs,
			g.conflated
		from unnest(c_part, c_group) with ordinality k(part, grp, ord)
		cross join lateral (select g.queue_id, g.conflated, g.deleted_at
			from queen.groups g where g.id = k.grp limit 1) g
		cross join lateral (select q.tenant, q.deleted_at,
				q.delayed_processing_s as delay, q.window_buffer_s as buf,
				q.lease_time_s as secs
			from queen.queues q where q.id = g.queue_id limit 1) q
		cross join lateral (select c.ctid as row, c.committed, c.expires_at
			from queen.consumers c
			where c.group_id = k.grp and c.partition_id = k.part
				and g.deleted_at is null and q.deleted_at is null
				and q.tenant = p_tenant
			order by c.gen desc limit 1
			for no key update skip locked) c
		where c.expires_at is null or c.expires_at <= t
		) x;

	if coalesce(cardinality(l_ord), 0) < n then
		select * into x from queen.pop_claim_new(p_tenant, c_part, c_group,
			coalesce(l_ord, '{}'));
		l_ord := l_ord || x.ord; l_row := l_row || x.at;
		l_done := l_done || x.done; l_delay := l_delay || x.delay;
		l_buf := l_buf || x.buf; l_secs := l_secs || x.secs;
		l_conf := l_conf || x.conf;
		return query
		select c_req[r.cand], r.cand, r.verdict, r.until, null::bigint,
			null::bigint, null::bigint, null::int, null::int,
			null::timestamptz, null::bigint, null::int, null::bigint,
			null::timestamptz, null::int, null::smallint, null::bytea
		from queen.pop_refused(p_tenant, c_part, c_group,
			coalesce(l_ord, '{}'), t) r;
		if l_ord is null then
			return;
		end if;
	end if;

	-- read and lease, in one statement that began after the claim
	return query
	with k as materialized (	-- what each has: first pending, newest visible
		select k.*, s.base_offset tail, s.end_offset last,
			case when s.base_offset <= k.done + 1 then k.done + 1
				when f.end_offset > k.done then k.done + 1
				else g.base_offset end frm,
			case when s.base_offset <= k.done + 1 then s.base_offset
				when f.end_offset > k.done then f.base_offset
				else g.base_offset end start,
			case when s.base_offset <= k.done + 1 then s.created_at
				when f.end_offset > k.done then f.created_at
				else g.created_at end old_at,
			s.created_at last_at
		from (select l.*, c_req[l.ord] req, c_part[l.ord] part,
				c_group[l.ord] grp,
				t - make_interval(secs => l.delay) cut
			from unnest(l_ord, l_row, l_done, l_delay, l_buf, l_secs, l_conf)
				l(ord, row, done, delay, buf, secs, conf)) k
		left join lateral (select s.base_offset, s.end_offset, s.created_at
			from queen.segments s where s.partition_id = k.part
			order by s.base_offset desc limit 1) s on s.end_offset > k.done
		left join lateral (select f.base_offset, f.end_offset, f.created_at
			from queen.segments f where f.partition_id = k.part
				and f.base_offset <= k.done + 1
				and s.base_offset > k.done + 1
			order by f.base_offset desc limit 1) f on true
		left join lateral (select g.base_offset, g.created_at
			from queen.segments g where g.partition_id = k.part
				and g.base_offset > k.done + 1
				and s.base_offset > k.done + 1
				and (f.end_offset > k.done) is not true
			order by g.base_offset limit 1) g on true
	), h as materialized (	-- how much of it may go out now
		select k.*, case when not v.open then 0
				when k.conf then (v.vis >= k.frm)::int
				else greatest(v.vis - k.frm + 1, 0) end has,
			v.vis, r_budget[k.req] budget, r_width[k.req] width, v.open
		from k
		cross join lateral (select
			k.buf = 0 or k.last - k.frm >= 99
				or k.old_at <= t - make_interval(secs => k.buf) as open,
			case when k.delay = 0 or k.last_at <= k.cut then k.last
				when k.old_at > k.cut then k.frm - 1
				else queen.offset_bisect(k.part, k.frm, k.last,
					k.cut + interval '1 us') end vis
			) v
		where k.last is not null
	), w as (
		select h.*, (sum(h.has) over o)::bigint - h.has before,
			count(*) filter (where h.has > 0) over o nth
		from h window o as (partition by h.req order by h.ord)
	), s as materialized (	-- exactly the segments of that range; a large blob
		select w.*, s.base_offset, s.end_offset, s.created_at, s.raw_bytes,
			s.key_id, s.blob,	-- is only a pointer here
			greatest(s.base_offset, w.lo) slo, least(s.end_offset, w.til) hi,
			sum(s.raw_bytes) over (partition by w.req
				order by w.ord, s.base_offset) raw,
			bool_or(s.key_id is not null
					and (s.key_id = any (p_keys)) is not true)
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
				and s.base_offset <= w.til and s.end_offset >= w.lo) s
	), f as materialized (
		select y.*, first_value(y.part) over o first,
			first_value(y.grp) over o first_grp
		from (select s.req, s.ord, s.part, s.grp, s.row, s.lo, s.frm, s.secs,
				s.conf, max(s.hi) hi
			from s where not s.shut
				and (s.raw <= 16777216 or s.raw = s.raw_bytes)
			group by s.req, s.ord, s.part, s.grp, s.row, s.lo, s.frm, s.secs,
				s.conf) y
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
			expires_at = case when not f.auto then f.expires end,
			acquired_at = t, conflated = f.conf,
			attempts = case when f.auto then 0
				when c.attempt_offset = f.lo then c.attempts + 1 else 1 end,
			attempt_offset = case when not f.auto then f.lo end
		from (select f.*, r_auto[f.req] auto, t + make_interval(secs =>
				case when r_secs[f.req] > 0 then r_secs[f.req]
					else f.secs end) expires from f) f
		where c.ctid = f.row
		returning f.ord, f.first, f.first_grp, f.hi, f.auto, c.expires_at,
			c.attempts
	), p as (		-- the partitions of a lease that has several
		insert into queen.lease_sets (lease_at, lease_group, lease_no, parts,
			groups, expires_at)
		select f.first, f.first_grp, r_no[f.req],
			array_agg(f.part order by f.part, f.grp),
			array_agg(f.grp order by f.part, f.grp), max(u.expires_at)
		from f join u on u.ord = f.ord
		where not u.auto
		group by f.req, f.first, f.first_grp having count(*) > 1
		on conflict (lease_at, lease_group, lease_no) do update set
			parts = excluded.parts, groups = excluded.groups,
			expires_at = excluded.expires_at
	)
	select s.req, s.ord, 0, null::timestamptz, u.first, u.first_grp,
		s.base_offset, (s.slo - s.base_offset)::int, (s.hi - s.slo + 1)::int,
		s.created_at, s.last, case when u.auto then 1 else u.attempts end,
		case when s.slo = s.lo then u.hi - s.done end, u.expires_at,
		s.raw_bytes, s.key_id, s.blob
	from s join u on u.ord = s.ord
	where not s.shut and (s.raw <= 16777216 or s.raw = s.raw_bytes)
	union all
	select k.req, k.ord, 5, null, null, null, null, null, null, null, k.last,
		null, null, null, null, null, null
	from k where k.last is null
	union all
	select h.req, h.ord, 2, greatest(
			case when not h.open then h.old_at + make_interval(secs => h.buf) end,
			case when h.vis < h.frm
				then h.old_at + make_interval(secs => h.delay) end),
		null, null, null, null, null, null, h.last,
		null, null, null, null, null, null
	from h where h.has = 0
	union all
	select s.req, s.ord, 4, null, null, null, null, null, null, null, s.last,
		null, null, null, null, null, null
	from s where s.shut and s.slo = s.lo
	order by 1, 2, 7;
end $$;

-- Inside pop_v1: makes the consumer rows that are missing, at the group's start, for
-- candidates not among p_had; returns them in the claim's terms.
create or replace function queen.pop_claim_new(p_tenant uuid,
	c_part bigint[], c_group bigint[], p_had int[])
returns table (ord int[], at tid[], done bigint[], delay int[], buf int[],
	secs int[], conf boolean[])
language plpgsql volatile as $$
#variable_conflict use_column
declare
	n_ord int[]; n_part bigint[]; n_grp bigint[]; n_queue bigint[];
	n_start timestamptz[];
begin
	select array_agg(x.ord), array_agg(x.part), array_agg(x.grp),
		array_agg(x.queue_id), array_agg(x.start_at)
	into n_ord, n_part, n_grp, n_queue, n_start
	from (with m as materialized (
			select k.ord::int, k.part, k.grp, g.queue_id, g.start_at
			from unnest(c_part, c_group) with ordinality k(part, grp, ord)
			left join lateral (select true there from queen.consumers c
				where c.group_id = k.grp and c.partition_id = k.part
				limit 1) c on true
			cross join lateral (select g.queue_id, g.start_at, g.deleted_at
				from queen.groups g where g.id = k.grp limit 1) g
			cross join lateral (select q.tenant, q.deleted_at
				from queen.queues q where q.id = g.queue_id limit 1) q
			where k.ord <> all (p_had) and c.there is null
				and g.deleted_at is null and q.deleted_at is null
				and q.tenant = p_tenant
		)
		select m.* from m where pg_try_advisory_xact_lock(
			hashint8extended(m.part, m.grp))) x;
	if n_ord is null then
		return;
	end if;
	-- the lock came first, so this statement sees every row there is
	return query
	with i as (
		insert into queen.consumers (group_id, partition_id, committed)
		select m.grp, m.part, m.done
		from (select m.grp, m.part,
				queen.group_start(m.part, m.queue, m.start) done
			from unnest(n_grp, n_part, n_queue, n_start)
				m(grp, part, queue, start)
			left join lateral (select true there from queen.consumers c
				where c.group_id = m.grp and c.partition_id = m.part
				limit 1) c on true
			where c.there is null) m
		where m.done is not null
		order by m.part, m.grp
		returning ctid as row, group_id, partition_id, committed
	)
	select array_agg(k.ord), array_agg(i.row), array_agg(i.committed),
		array_agg(q.delayed_processing_s), array_agg(q.window_buffer_s),
		array_agg(q.lease_time_s), array_agg(g.conflated)
	from i
	join unnest(n_ord, n_part, n_grp, n_queue) k(ord, part, grp, queue)
		on k.part = i.partition_id and k.grp = i.group_id
	cross join lateral (select g.conflated from queen.groups g
		where g.id = k.grp limit 1) g
	cross join lateral (select q.* from queen.queues q
		where q.id = k.queue limit 1) q;
end $$;

-- Inside pop_v1: why candidates not among p_had were not claimed.
create or replace function queen.pop_refused(p_tenant uuid,
	c_part bigint[], c_group bigint[], p_had int[], t timestamptz)
returns table (cand int, verdict int, until timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	return query
	select k.ord::int, case when q.live is null or h.there is null then 6
			when c.expires_at > t then 1 else 3 end,
		case when q.live and h.there and c.expires_at > t then c.expires_at end
	from unnest(c_part, c_group) with ordinality k(part, grp, ord)
	left join lateral (select g.queue_id from queen.groups g
		where g.id = k.grp and g.deleted_at is null limit 1) g on true
	left join lateral (select true live from queen.queues q
		where q.id = g.queue_id and q.tenant = p_tenant
			and q.deleted_at is null limit 1) q on true
	left join lateral (select true there from queen.partition_heads h
		where h.id = k.part and h.queue_id = g.queue_id limit 1) h on true
	left join lateral (select c.expires_at from queen.consumers c
		where c.group_id = k.grp and c.partition_id = k.part
		order by c.gen desc limit 1) c on true
	where k.ord <> all (p_had);
end $$;
