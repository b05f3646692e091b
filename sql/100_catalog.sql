-- SPDX-License-Identifier: Apache-2.0
-- Names to rows: queues, partitions and consumer groups, found and created,
-- and the look-ups of positions that the other files share.
--
-- queue_resolve_v1, queue_scan_v1, partitions_ensure_v1, partitions_find_v1,
-- partitions_names_v1, group_register_v1, groups_find_v1, clock_v1;
-- inside: offset_bisect, offset_before, group_start.
--
-- Writes queues, partitions, partition_heads, groups.  Lock order: a queue row
-- (for share, only while something is created in it, so that a delete of the
-- queue and its purge see what was created), then new rows sorted by key.
-- READ COMMITTED is assumed: each statement sees what committed before it.
--
-- Look-ups are lateral with a limit, and a row sought by its id is sought by that
-- alone, what else it must be is asked after: no generic plan made on small
-- tables may walk a whole index.

-- Resolves names to live queues, creates the missing ones when asked (option
-- defaults, labels from the dotted name).  No row for a name that is not there.
-- Waits at most for the commit of another creator of the same name.
create or replace function queen.queue_resolve_v1(p_tenant uuid, p_name text[],
	p_create boolean, p_now timestamptz default null)
returns table (ord int, id bigint, created boolean, namespace text, task text,
	lease_time_s int, delayed_processing_s int, window_buffer_s int,
	min_pop_wait_ms int, dedup_window_s int, encryption_enabled boolean,
	changed_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	n_missing int := 0;
	l_new bigint[];
begin
	if p_create then
		select count(*) into n_missing
		from unnest(p_name) i(name)
		left join lateral (select true there from queen.queues q
			where q.tenant = p_tenant and q.name = i.name collate "C"
				and q.deleted_at is null limit 1) q on true
		where q.there is null;
	end if;
	if n_missing > 0 then
		with fresh as (
			insert into queen.queues (tenant, name, namespace, task,
				created_at, changed_at)
			select p_tenant, i.name, split_part(i.name, '.', 1),
				split_part(i.name, '.', 2), t, t
			from (select distinct name collate "C" as name
				from unnest(p_name) u(name)) i
			order by i.name collate "C"
			on conflict (tenant, name) where deleted_at is null do nothing
			returning id
		)
		select array_agg(f.id) into l_new from fresh f;
	end if;
	return query
	select i.ord::int, q.id, q.id = any (coalesce(l_new, '{}')), q.namespace,
		q.task, q.lease_time_s, q.delayed_processing_s, q.window_buffer_s,
		q.min_pop_wait_ms, q.dedup_window_s, q.encryption_enabled,
		q.changed_at
	from unnest(p_name) with ordinality i(name, ord)
	cross join lateral (select q.* from queen.queues q
		where q.tenant = p_tenant and q.name = i.name collate "C"
			and q.deleted_at is null limit 1) q
	order by i.ord;
end $$;

-- The catalogue of all tenants, deleted queues too, in order of change: rows
-- after (p_since, p_after), at most p_limit.  No locks.
create or replace function queen.queue_scan_v1(p_since timestamptz,
	p_after bigint, p_limit int)
returns table (id bigint, tenant uuid, name text, namespace text, task text,
	lease_time_s int, delayed_processing_s int, window_buffer_s int,
	min_pop_wait_ms int, dedup_window_s int, encryption_enabled boolean,
	changed_at timestamptz, deleted boolean)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	return query
	select q.id, q.tenant, q.name, q.namespace, q.task, q.lease_time_s,
		q.delayed_processing_s, q.window_buffer_s, q.min_pop_wait_ms,
		q.dedup_window_s, q.encryption_enabled, q.changed_at,
		q.deleted_at is not null
	from queen.queues q
	where (q.changed_at, q.id) > (p_since, p_after)
	order by q.changed_at, q.id limit p_limit;
end $$;

-- Partitions by name, created when missing, in the caller's own commit.
-- Verdicts: 0 there, 1 created, 2 busy (another session creates it, or the call
-- has created its 1000: call again), 3 gone (no such live queue).
-- Waits for no other creator: the names are guarded by try-locks.
create or replace function queen.partitions_ensure_v1(p_tenant uuid,
	p_queue bigint[], p_name text[], p_now timestamptz default null)
returns table (ord int, verdict int, id bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_live boolean[]; l_id bigint[]; l_queue bigint[];
	f_id bigint[]; f_queue bigint[]; f_name text[];
begin
	if (cardinality(p_queue) = cardinality(p_name)) is not true then
		raise exception 'queen.partitions_ensure_v1: arrays differ in length'
			using errcode = '22023';
	end if;
	select array_agg(coalesce(q.live, false) order by i.ord),
		array_agg(p.id order by i.ord),
		array_agg(distinct i.queue) filter (where q.live and p.id is null)
	into l_live, l_id, l_queue
	from unnest(p_queue, p_name) with ordinality i(queue, name, ord)
	left join lateral (select q.tenant = p_tenant
			and q.deleted_at is null live
		from queen.queues q where q.id = i.queue limit 1) q on true
	left join lateral (select p.id from queen.partitions p
		where p.queue_id = i.queue and p.name = i.name collate "C"
		limit 1) p on true;
	if l_queue is not null then
		-- a queue that is being deleted is waited for and then not there
		select array_agg(x.id) filter (where x.deleted_at is null)
		into l_queue
		from (select q.id, q.deleted_at from queen.queues q
			where q.id = any (l_queue) order by q.id for share) x;
		with mine as materialized (
			select m.queue, m.name
			from (select distinct i.queue, i.name collate "C" as name
				from unnest(p_queue, p_name, l_id) i(queue, name, id)
				where i.id is null and i.queue = any (l_queue)
				order by 1, 2 limit 1000) m
			where pg_try_advisory_xact_lock(
				hashtextextended(m.name, m.queue))
		), fresh as (
			-- the try-lock came first: a conflict is with a committed row
			insert into queen.partitions (queue_id, name, created_at)
			select m.queue, m.name, t from mine m
			order by m.queue, m.name collate "C"
			on conflict do nothing
			returning id, queue_id, name
		), heads as (
			insert into queen.partition_heads (id, queue_id, last_write_at)
			select f.id, f.queue_id, '-infinity' from fresh f
		)
		select array_agg(f.id), array_agg(f.queue_id), array_agg(f.name)
		into f_id, f_queue, f_name from fresh f;
	end if;
	return query
	select i.ord::int,
		case when not i.live
				or i.id is null and (i.queue = any (l_queue)) is not true then 3
			when i.id is not null then 0
			when f.id is not null then 1 else 2 end,
		case when i.live then coalesce(i.id, f.id) end
	from unnest(p_queue, p_name, l_live, l_id)
		with ordinality i(queue, name, live, id, ord)
	left join unnest(f_id, f_queue, f_name) f(id, queue, name)
		on f.queue = i.queue and f.name = i.name collate "C"
	order by i.ord;
end $$;

-- Partitions of live queues by name; no row = not there.  No locks.
create or replace function queen.partitions_find_v1(p_tenant uuid,
	p_queue bigint[], p_name text[])
returns table (ord int, id bigint)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	return query
	select i.ord::int, p.id
	from unnest(p_queue, p_name) with ordinality i(queue, name, ord)
	cross join lateral (select q.tenant = p_tenant
			and q.deleted_at is null live
		from queen.queues q where q.id = i.queue limit 1) q
	cross join lateral (select p.id from queen.partitions p
		where p.queue_id = i.queue and p.name = i.name collate "C"
		limit 1) p
	where q.live
	order by i.ord;
end $$;

-- Partitions of live queues by id; no row = not there, or another tenant's.
create or replace function queen.partitions_names_v1(p_tenant uuid,
	p_id bigint[])
returns table (ord int, id bigint, queue_id bigint, queue text, name text)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	return query
	select i.ord::int, p.id, p.queue_id, q.name, p.name
	from unnest(p_id) with ordinality i(id, ord)
	cross join lateral (select p.* from queen.partitions p
		where p.id = i.id limit 1) p
	cross join lateral (select q.name, q.tenant = p_tenant
			and q.deleted_at is null live
		from queen.queues q where q.id = p.queue_id limit 1) q
	where q.live
	order by i.ord;
end $$;

-- Registers groups on queues, insert-if-absent: the first subscription stays.
-- p_mode: new = from now, timestamp = from p_from (null: from now), anything else
-- = everything retained; the group-less group always takes everything.
-- Verdicts: 0 there, 1 created, 3 gone (no such live queue).
-- Waits at most for the commit of another creator of the same group.
create or replace function queen.group_register_v1(p_tenant uuid,
	p_queue bigint[], p_name text[], p_mode text[], p_from timestamptz[],
	p_conflated boolean[], p_now timestamptz default null)
returns table (ord int, verdict int, id bigint, conflated boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	n int := cardinality(p_queue);
	l_new bigint[]; l_queue bigint[];
begin
	if (n = cardinality(p_name) and n = cardinality(p_mode)
			and n = cardinality(p_from)
			and n = cardinality(p_conflated)) is not true then
		raise exception 'queen.group_register_v1: arrays differ in length'
			using errcode = '22023';
	end if;
	select array_agg(distinct i.queue) into l_queue
	from unnest(p_queue, p_name) i(queue, name)
	cross join lateral (select q.tenant = p_tenant
			and q.deleted_at is null live
		from queen.queues q where q.id = i.queue limit 1) q
	left join lateral (select true there from queen.groups g
		where g.queue_id = i.queue and g.name = i.name collate "C"
			and g.deleted_at is null limit 1) g on true
	where q.live and g.there is null;
	if l_queue is not null then
		select array_agg(x.id) filter (where x.deleted_at is null)
		into l_queue
		from (select q.id, q.deleted_at from queen.queues q
			where q.id = any (l_queue) order by q.id for share) x;
		with fresh as (
			insert into queen.groups (queue_id, name, mode, subscribed_at,
				start_at, conflated, created_at)
			select i.queue, i.name, i.mode, coalesce(i.start, 'epoch'),
				i.start, i.conflated, t
			from (select distinct on (u.queue, u.name collate "C") u.queue,
					u.name, m.mode, coalesce(u.conflated, false) conflated,
					case m.mode when 'new' then t
						when 'timestamp' then u.start end start
				from unnest(p_queue, p_name, p_mode, p_from, p_conflated)
					with ordinality u(queue, name, mode, start, conflated, ord)
				cross join lateral (select case
					when u.name = '__QUEUE_MODE__' then 'all'
					when u.mode = 'timestamp' and u.start is not null
						then 'timestamp'
					when u.mode in ('new', 'timestamp') then 'new'
					else 'all' end as mode) m
				where u.queue = any (l_queue)
				order by u.queue, u.name collate "C", u.ord) i
			order by i.queue, i.name collate "C"
			on conflict (queue_id, name) where deleted_at is null do nothing
			returning id
		)
		select array_agg(f.id) into l_new from fresh f;
	end if;
	return query
	select i.ord::int, case when q.live is not true or g.id is null then 3
			when g.id = any (l_new) then 1 else 0 end,
		case when q.live then g.id end, case when q.live then g.conflated end
	from unnest(p_queue, p_name) with ordinality i(queue, name, ord)
	left join lateral (select q.tenant = p_tenant
			and q.deleted_at is null live
		from queen.queues q where q.id = i.queue limit 1) q on true
	left join lateral (select g.id, g.conflated from queen.groups g
		where g.queue_id = i.queue and g.name = i.name collate "C"
			and g.deleted_at is null limit 1) g on true
	order by i.ord;
end $$;

-- Registered groups of live queues; no row = not registered.  No locks.
create or replace function queen.groups_find_v1(p_tenant uuid,
	p_queue bigint[], p_name text[])
returns table (ord int, id bigint, conflated boolean)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	return query
	select i.ord::int, g.id, g.conflated
	from unnest(p_queue, p_name) with ordinality i(queue, name, ord)
	cross join lateral (select q.tenant = p_tenant
			and q.deleted_at is null live
		from queen.queues q where q.id = i.queue limit 1) q
	cross join lateral (select g.id, g.conflated from queen.groups g
		where g.queue_id = i.queue and g.name = i.name collate "C"
			and g.deleted_at is null limit 1) g
	where q.live
	order by i.ord;
end $$;

-- The clock that decides.
create or replace function queen.clock_v1()
returns timestamptz
language sql volatile as $$ select clock_timestamp() $$;

-- Inside: the last offset of p_lo - 1 .. p_hi in a segment stamped before p_at,
-- by bisection on the segment key (stamps do not decrease with the offset).
create or replace function queen.offset_bisect(p_part bigint, p_lo bigint,
	p_hi bigint, p_at timestamptz)
returns bigint
language plpgsql volatile as $$
declare
	lo bigint := p_lo; hi bigint := p_hi + 1; mid bigint;
	l_base bigint; l_end bigint; l_at timestamptz;
begin
	while lo < hi loop
		mid := lo + (hi - lo) / 2;
		select s.base_offset, s.end_offset, s.created_at
		into l_base, l_end, l_at
		from queen.segments s
		where s.partition_id = p_part and s.base_offset <= mid
		order by s.base_offset desc limit 1;
		if l_base is null or l_end < mid then
			-- retention removed it meanwhile: it is older than all there is
			lo := mid + 1;
		elsif l_at < p_at then
			lo := l_end + 1;
		else
			hi := greatest(l_base, lo);
		end if;
	end loop;
	return least(lo - 1, p_hi);
end $$;

-- Inside: the last offset of a partition stamped before p_at: log_start - 1
-- when all that is retained is younger, the newest when nothing is.
-- Null: no such partition in this queue.
create or replace function queen.offset_before(p_part bigint, p_queue bigint,
	p_at timestamptz)
returns bigint
language plpgsql volatile as $$
declare
	l_lo bigint; l_hi bigint; l_at timestamptz;
begin
	select h.log_start into l_lo from queen.partition_heads h
	where h.id = p_part and h.queue_id = p_queue;
	if not found then
		return null;
	end if;
	select s.end_offset, s.created_at into l_hi, l_at from queen.segments s
	where s.partition_id = p_part order by s.base_offset desc limit 1;
	if l_hi is null then
		return l_lo - 1;
	elsif l_at < p_at then
		return l_hi;
	end if;
	return queen.offset_bisect(p_part, l_lo, l_hi, p_at);
end $$;

-- Inside: where a group begins in a partition that has no row of it yet.
-- Null: no such partition in this queue.
create or replace function queen.group_start(p_part bigint, p_queue bigint,
	p_start timestamptz)
returns bigint
language plpgsql volatile as $$
begin
	if p_start is not null then
		return queen.offset_before(p_part, p_queue, p_start);
	end if;
	return (select h.log_start - 1 from queen.partition_heads h
		where h.id = p_part and h.queue_id = p_queue);
end $$;
