-- SPDX-License-Identifier: Apache-2.0
-- Which partitions of a queue changed, and up to when time is settled.
--
-- partitions_changed_v1, changed_parts_v1, safe_time_v1.
--
-- Writes nothing.  A reader that pairs the two calls safe_time_v1 first, in a
-- statement of its own at READ COMMITTED: what it reads afterwards, in a later
-- snapshot, then holds every record stamped before that time.

-- Pages of partitions, one queue per entry; arrays aligned.  p_since null: all,
-- by name after p_cursor_name; else those written since, by (last_write_at,
-- name) after the cursor pair.  Rows by entry in page order; verdict 0 row, 1
-- unknown queue, 2 empty page.  A partition never written shows its birth.
-- p_limit is clamped to 1..1000.
create or replace function queen.partitions_changed_v1(p_tenant uuid,
	p_queue text[], p_since timestamptz[], p_cursor_at timestamptz[],
	p_cursor_name text[], p_limit int[])
returns table (ord int, verdict int, name text, last_offset bigint,
	log_start bigint, last_write_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	e record; l_queue bigint; l_n int;
begin
	for e in
		select i.* from unnest(p_queue, p_since, p_cursor_at, p_cursor_name,
			p_limit) with ordinality i(queue, since, at, name, n, ord)
		order by i.ord
	loop
		l_n := greatest(least(coalesce(e.n, 1000), 1000), 1);
		select q.id into l_queue from queen.queues q
		where q.tenant = p_tenant and q.name = e.queue collate "C"
			and q.deleted_at is null;
		if not found then
			return query select e.ord::int, 1, null::text, null::bigint,
				null::bigint, null::timestamptz;
			continue;
		end if;
		if e.since is null then
			return query select e.ord::int, 0, x.*
			from queen.changed_by_name(l_queue, e.name, l_n) x;
		else
			return query select e.ord::int, 0, x.*
			from queen.changed_by_time(l_queue, e.since, e.at, e.name,
				l_n) x;
		end if;
		if not found then
			return query select e.ord::int, 2, null::text, null::bigint,
				null::bigint, null::timestamptz;
		end if;
	end loop;
end $$;

-- Inside: a page of a queue's partitions by name.
create or replace function queen.changed_by_name(p_queue bigint,
	p_after text, p_limit int)
returns table (name text, last_offset bigint, log_start bigint,
	last_write_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	return query
	select p.name, coalesce(s.end_offset, h.log_start - 1), h.log_start,
		case when isfinite(h.last_write_at) then h.last_write_at
			else p.created_at end
	from (select p.id, p.queue_id, p.name, p.created_at
		from queen.partitions p
		where p.queue_id = any (array[p_queue])	-- see 300_find.sql
			and p.name > coalesce(p_after, '')
		order by p.queue_id, p.name limit p_limit) p
	cross join lateral (select h.* from queen.partition_heads h
		where h.id = p.id limit 1) h
	left join lateral (select s.end_offset from queen.segments s
		where s.partition_id = p.id
		order by s.base_offset desc limit 1) s on true
	order by p.name;
end $$;

-- Inside: a page of a queue's partitions written since, by (time, name).  Small
-- queues are read whole; for others the index on time is walked over all
-- that the cell wrote since then, there is none per queue (a push would pay).
-- The walk goes in the order of the index as far as the page needs, then
-- those that share a time are put in the order of their names.  Stable: a row
-- that moves between the two steps would end the page early or skip others.
create or replace function queen.changed_by_time(p_queue bigint,
	p_since timestamptz, p_after_at timestamptz, p_after text, p_limit int)
returns table (name text, last_offset bigint, log_start bigint,
	last_write_at timestamptz)
language plpgsql stable as $$
#variable_conflict use_column
declare
	l_from timestamptz := greatest(p_since, p_after_at);
	l_to timestamptz := 'infinity';
	l_part bigint[];
begin
	select array_agg(x.id) into l_part
	from (select p.id from queen.partitions p
		where p.queue_id = any (array[p_queue])
		order by p.queue_id, p.id limit 1001) x;
	if cardinality(l_part) > 1000 then
		select coalesce(max(x.last_write_at), 'infinity') into l_to
		from (select h.last_write_at from queen.partition_heads h
			where h.last_write_at >= l_from and h.queue_id = p_queue
				and (p_after_at is null or h.last_write_at > p_after_at)
			order by h.last_write_at, h.id
			offset p_limit - 1 limit 1) x;
		select array_agg(h.id) into l_part from queen.partition_heads h
		where h.last_write_at >= l_from and h.last_write_at <= l_to
			and h.queue_id = p_queue;
	end if;
	return query
	select p.name, coalesce(s.end_offset, h.log_start - 1), h.log_start,
		h.last_write_at
	from unnest(l_part) i(id)
	cross join lateral (select h.* from queen.partition_heads h
		where h.id = i.id limit 1) h
	cross join lateral (select p.name from queen.partitions p
		where p.id = i.id limit 1) p
	left join lateral (select s.end_offset from queen.segments s
		where s.partition_id = i.id
		order by s.base_offset desc limit 1) s on true
	where h.last_write_at >= l_from and (p_after_at is null
		or (h.last_write_at, p.name) > (p_after_at, p_after collate "C"))
	order by h.last_write_at, p.name limit p_limit;
end $$;

-- A page of one queue's partitions for a reader that knows them by their ids.
-- p_since null: all, in the order of ids after p_after_part; else those written
-- since, by (last_write_at, id) after the pair.  verdict 0 row, or one row with
-- 1: unknown queue; no row: nothing there.  A partition never written has
-- last_offset -1 and shows its birth.  p_limit is clamped to 1..1000.  Stable:
-- its steps see one snapshot.
create or replace function queen.changed_parts_v1(p_tenant uuid, p_queue text,
	p_since timestamptz, p_after_at timestamptz, p_after_part bigint,
	p_limit int)
returns table (verdict int, part bigint, name text, last_offset bigint,
	log_start bigint, last_write_at timestamptz)
language plpgsql stable as $$
#variable_conflict use_column
declare
	l_n int := greatest(least(coalesce(p_limit, 1000), 1000), 1);
	l_queue bigint; l_part bigint[];
begin
	select q.id into l_queue from queen.queues q
	where q.tenant = p_tenant and q.name = p_queue collate "C"
		and q.deleted_at is null;
	if not found then
		return query select 1, null::bigint, null::text, null::bigint,
			null::bigint, null::timestamptz;
		return;
	end if;
	if p_since is null then
		l_part := array(select p.id from queen.partitions p
			where p.queue_id = any (array[l_queue])	-- see 300_find.sql
				and p.id > coalesce(p_after_part, 0)
			order by p.queue_id, p.id limit l_n);
	else
		l_part := queen.changed_ids(l_queue, greatest(p_since, p_after_at),
			case when p_after_at >= p_since then p_after_part
				else -1 end, l_n);
	end if;
	return query
	select 0, p.id, p.name, coalesce(s.end_offset, h.log_start - 1),
		h.log_start, case when isfinite(h.last_write_at)
			then h.last_write_at else p.created_at end
	from unnest(l_part) with ordinality i(id, ord)
	cross join lateral (select h.* from queen.partition_heads h
		where h.id = i.id limit 1) h
	cross join lateral (select p.* from queen.partitions p
		where p.id = i.id limit 1) p
	left join lateral (select s.end_offset from queen.segments s
		where s.partition_id = i.id
		order by s.base_offset desc limit 1) s on true
	order by i.ord;
end $$;

-- Inside: a queue's partitions written after (p_at, p_part), by (time, id).  The
-- index on time is that of the whole cell.  Where little was written since, or
-- the queue has many partitions, it is walked; else those of the queue are read.
create or replace function queen.changed_ids(p_queue bigint, p_at timestamptz,
	p_part bigint, p_limit int)
returns bigint[]
language plpgsql stable as $$
declare
	l_part bigint[];
begin
	perform from queen.partition_heads h
	where (h.last_write_at, h.id) > (p_at, p_part)
	order by h.last_write_at, h.id offset 1000 limit 1;
	if found then
		l_part := array(select p.id from queen.partitions p
			where p.queue_id = any (array[p_queue])
			order by p.queue_id, p.id limit 1001);
		if cardinality(l_part) <= 1000 then
			return array(select h.id from unnest(l_part) i(id)
				cross join lateral (select h.id, h.last_write_at
					from queen.partition_heads h
					where h.id = i.id limit 1) h
				where (h.last_write_at, h.id) > (p_at, p_part)
				order by h.last_write_at, h.id limit p_limit);
		end if;
	end if;
	return array(select h.id from queen.partition_heads h
		where (h.last_write_at, h.id) > (p_at, p_part)
			and h.queue_id = p_queue
		order by h.last_write_at, h.id limit p_limit);
end $$;

-- No record stamped before safe_time can still become visible: the clock less
-- p_guard_ms, or the start of the oldest transaction of this database that
-- holds a transaction id (one without has locked no partition yet, so its
-- stamps are to come).  A session that hides its start (another role, without
-- pg_read_all_stats): degraded, p_floor_ms behind (whole seconds).  A
-- prepared transaction on our segments: null and degraded.
create or replace function queen.safe_time_v1(p_guard_ms int, p_floor_ms int)
returns table (safe_time timestamptz, degraded boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	-- before activity is read: who begins to write later stamps later
	t timestamptz := clock_timestamp();
	l_min timestamptz; l_masked boolean;
begin
	-- activity comes before any table, and not from a copy that an earlier
	-- statement of this transaction left
	perform pg_stat_clear_snapshot();
	select min(a.xact_start),
		-- an own session without a start began after it was looked at
		coalesce(bool_or(a.xact_start is null
			and a.query = '<insufficient privilege>'), false)
	into l_min, l_masked
	from pg_stat_get_activity(null) a
	where a.backend_xid is not null
		and a.datid = (select d.oid from pg_database d
			where d.datname = current_database())
		and a.backend_type is distinct from 'autovacuum worker';
	if current_setting('max_prepared_transactions')::int > 0 then
		perform from pg_locks l
		where l.pid is null and l.locktype = 'relation'
			and l.relation = 'queen.segments'::regclass
			and l.database = (select d.oid from pg_database d
				where d.datname = current_database());
		if found then
			return query select null::timestamptz, true;
			return;
		end if;
	end if;
	return query
	select least(t - make_interval(secs => p_guard_ms / 1000.0), l_min,
			case when l_masked then t - make_interval(
				secs => ceil(p_floor_ms / 1000.0)::float8) end),
		l_masked;
end $$;
