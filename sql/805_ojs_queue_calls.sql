-- SPDX-License-Identifier: Apache-2.0
-- The catalogue of queen-ojs: queues found, made, listed, configured, paused,
-- counted and dropped.
--
-- Who puts rows into a queue holds the shared advisory lock (66341, key) of it,
-- taken by ojs_queue_ensure.  A drop takes none: it only marks the row.  What
-- is left of a dropped queue goes under the exclusive lock, and both sides only
-- ever try: nobody waits, so nothing can deadlock here.
-- READ COMMITTED is assumed: each statement sees what committed before it.

-- Names to live queues, missing ones made; one row per distinct name, by id.
-- Until the transaction ends none of them is purged, whatever becomes of it: a
-- row that is put now is found by the purge.  Waits at most for the commit of
-- another maker of the same name.  55P03 when a name is dropped again and again.
create or replace function queen.ojs_queue_ensure(p_tenant uuid, p_names text[],
	p_now timestamptz default null)
returns table (name text, queue_id bigint, created boolean, paused boolean,
	max_jobs bigint, visibility_timeout_ms bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_names text[]; l_ids bigint[]; l_new bigint[] := '{}'; l_more bigint[];
	n int;
begin
	select array_agg(distinct u.name collate "C") into l_names
	from unnest(p_names) u(name) where u.name is not null;
	if l_names is null then
		return;
	end if;
	for n_try in 1..10 loop
		select array_agg(q.id order by q.id) into l_ids
		from unnest(l_names) i(name)
		cross join lateral (select q.id from queen.ojs_queues q
			where q.tenant = p_tenant and q.name = i.name collate "C"
				and q.deleted_at is null limit 1) q;
		if coalesce(cardinality(l_ids), 0) < cardinality(l_names) then
			with fresh as (
				insert into queen.ojs_queues (tenant, name,
					created_at, changed_at)
				select p_tenant, i.name, t, t
				from unnest(l_names) i(name)
				where not exists (select from queen.ojs_queues q
					where q.tenant = p_tenant
						and q.name = i.name collate "C"
						and q.deleted_at is null)
				order by i.name collate "C"
				on conflict (tenant, name)
					where deleted_at is null do nothing
				returning id)
			select array_agg(f.id) into l_more from fresh f;
			l_new := l_new || coalesce(l_more, '{}');
			continue;
		end if;
		with want as materialized (
			select u.id from unnest(l_ids) u(id) order by u.id)
		select array_agg(w.id order by w.id) into l_ids from want w
		where pg_try_advisory_xact_lock_shared(66341, queen.stream_key(w.id));
		-- with the locks held, in a new statement: are they still there?
		return query
		select q.name::text, q.id, q.id = any (l_new),
			q.paused_at is not null, q.max_jobs, q.visibility_timeout_ms
		from unnest(l_ids) i(id)
		cross join lateral (select q.* from queen.ojs_queues q
			where q.id = i.id limit 1) q
		where (select count(*) from unnest(l_ids) c(id)
			cross join lateral (select from queen.ojs_queues x
				where x.id = c.id and x.deleted_at is null limit 1) x)
			= cardinality(l_names)
		order by q.id;
		get diagnostics n = row_count;
		if n > 0 then
			return;
		end if;
	end loop;
	raise exception 'queen.ojs_queue_ensure: a queue is being dropped'
		using errcode = '55P03';
end $$;

-- ---- made and configured ----

-- What is set, null for what is not; the stream's part is never null.  No row: no such
-- queue.  No locks.
create or replace function queen.ojs_queue_get_v1(p_tenant uuid, p_name text,
	p_now timestamptz default null)
returns table (queue_id bigint, created boolean, created_at timestamptz,
	paused boolean, visibility_timeout_ms bigint, job_retention_ms bigint,
	dead_letter_retention_ms bigint, dead_letter_max bigint, max_jobs bigint,
	max_events bigint, max_retries bigint, retention_ms bigint)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	return query
	select q.id, false, q.created_at, q.paused_at is not null,
		q.visibility_timeout_ms, q.job_retention_ms,
		q.dead_letter_retention_ms, q.dead_letter_max, q.max_jobs,
		q.max_events, s.max_retries::bigint, s.retention_ms
	from queen.ojs_queues q
	cross join lateral queen.stream_config_get(q.id) s
	where q.tenant = p_tenant and q.name = p_name collate "C"
		and q.deleted_at is null;
end $$;

-- Inside: keeps a queue from being dropped until the transaction ends.  40001 when it
-- was dropped since it was found: to be called again, for a new one.
create or replace function queen.ojs_queue_keep(p_queue bigint)
returns void
language plpgsql volatile as $$
begin
	perform from queen.ojs_queues q where q.id = p_queue and q.deleted_at is null
	for no key update;
	if not found then
		raise exception 'queen.ojs_queue_keep: the queue was dropped'
			using errcode = '40001';
	end if;
end $$;

-- Makes the queue when it is missing, and sets what p_keys names to p_values
-- (null = back to the default); the rest stays.  One row, as ojs_queue_get_v1.
-- Waits for another call of the same queue; 40001 when that dropped it.  Keys: the
-- columns from visibility_timeout_ms on, without the _ms of the three retentions.
create or replace function queen.ojs_queue_put_v1(p_tenant uuid, p_name text,
	p_keys text[], p_values bigint[], p_now timestamptz default null)
returns table (queue_id bigint, created boolean, created_at timestamptz,
	paused boolean, visibility_timeout_ms bigint, job_retention_ms bigint,
	dead_letter_retention_ms bigint, dead_letter_max bigint, max_jobs bigint,
	max_events bigint, max_retries bigint, retention_ms bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_id bigint; l_new boolean; l_set jsonb;
begin
	select e.queue_id, e.created into l_id, l_new
	from queen.ojs_queue_ensure(p_tenant, array[p_name], t) e;
	select coalesce(jsonb_object_agg(u.k, u.v), '{}') into l_set
	from unnest(p_keys, p_values) u(k, v);
	-- the stream's row comes before the queue's, as in a drop
	perform queen.stream_config_set(l_id, case when l_set ? 'max_retries'
			then coalesce((l_set->>'max_retries')::int, 5) end,
		case when l_set ? 'retention'
			then coalesce((l_set->>'retention')::bigint, 604800000) end, t);
	perform queen.ojs_queue_keep(l_id);
	if l_set - array['max_retries', 'retention'] <> '{}' then
		update queen.ojs_queues q set
			changed_at = greatest(t, q.changed_at),
			visibility_timeout_ms = case when l_set ? 'visibility_timeout_ms'
				then (l_set->>'visibility_timeout_ms')::bigint
				else q.visibility_timeout_ms end,
			job_retention_ms = case when l_set ? 'job_retention'
				then (l_set->>'job_retention')::bigint
				else q.job_retention_ms end,
			dead_letter_retention_ms = case
				when l_set ? 'dead_letter_retention'
				then (l_set->>'dead_letter_retention')::bigint
				else q.dead_letter_retention_ms end,
			dead_letter_max = case when l_set ? 'dead_letter_max'
				then (l_set->>'dead_letter_max')::bigint
				else q.dead_letter_max end,
			max_jobs = case when l_set ? 'max_jobs'
				then (l_set->>'max_jobs')::bigint else q.max_jobs end,
			max_events = case when l_set ? 'max_events'
				then (l_set->>'max_events')::bigint
				else q.max_events end
		where q.id = l_id;
	end if;
	return query
	select g.queue_id, l_new, g.created_at, g.paused, g.visibility_timeout_ms,
		g.job_retention_ms, g.dead_letter_retention_ms, g.dead_letter_max,
		g.max_jobs, g.max_events, g.max_retries, g.retention_ms
	from queen.ojs_queue_get_v1(p_tenant, p_name, t) g;
end $$;

-- Stops or starts the delivery of jobs; makes the queue when it is missing.
-- One row; who is paused already keeps the moment it was.  Locks the row; 40001 when
-- it was dropped meanwhile.
create or replace function queen.ojs_queue_pause_v1(p_tenant uuid, p_name text,
	p_paused boolean, p_now timestamptz default null)
returns table (queue_id bigint, paused_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_id bigint;
begin
	select e.queue_id into l_id
	from queen.ojs_queue_ensure(p_tenant, array[p_name], t) e;
	perform queen.ojs_queue_keep(l_id);
	update queen.ojs_queues q set changed_at = greatest(t, q.changed_at),
		paused_at = case when p_paused then t end
	where q.id = l_id and (q.paused_at is not null) <> p_paused;
	return query
	select q.id, q.paused_at from queen.ojs_queues q where q.id = l_id;
end $$;

-- ---- counted ----

-- Inside: jobs of a queue that may be fetched at t, and those being worked on, each
-- counted up to p_most; null = all.
create or replace function queen.ojs_queue_ready(p_queue bigint, t timestamptz,
	p_most bigint, out available bigint, out active bigint)
language plpgsql stable as $$
begin
	select count(*) into available from (
		select from queen.jobs j where j.queue_id = p_queue
			and j.state = 0 and j.rate_key is null
		union all
		select from queen.jobs j where j.queue_id = p_queue
			and j.state = 0 and j.rate_key is not null
		union all
		select from queen.jobs j where j.queue_id = p_queue
			and j.state in (2, 3) and j.due_at <= t
		limit p_most) x;
	select count(*) into active from (
		-- as a range of the queue's own index: no plan takes that of all leases
		select from queen.jobs j where j.queue_id = p_queue and j.state in (1, 4)
			and j.state < 4
		limit p_most) x;
end $$;

-- Inside: what ended of a queue's jobs, and within the hour before t.
create or replace function queen.ojs_queue_ended(p_queue bigint, t timestamptz,
	out completed bigint, out cancelled bigint, out discarded bigint,
	out dead bigint, out completed_hour bigint, out failed_hour bigint,
	out duration_ms bigint, out wait_ms bigint)
language plpgsql stable as $$
begin
	select count(*) filter (where j.state = 5), count(*) filter (where j.state = 6),
		count(*) filter (where j.state = 7)
	into completed, cancelled, discarded
	from queen.jobs j
	where j.queue_id = p_queue and j.state in (5, 6, 7) and not j.dead;
	-- in the order of the queue's own index: no plan takes that of all queues
	select count(*), count(*) filter (where d.ended_at > t - interval '1 hour')
	into dead, failed_hour
	from (select j.ended_at from queen.jobs j
		where j.queue_id = p_queue and j.state = 7 and j.dead
		order by j.ended_at, j.seq) d;
	discarded := discarded + dead;
	select count(*) filter (where j.state = 5),
		failed_hour + count(*) filter (where j.state = 7 and j.ran),
		coalesce(avg(extract(epoch from j.ended_at - j.started_at) * 1000)
			filter (where j.state = 5), 0),
		coalesce(avg(extract(epoch from j.started_at - j.enqueued_at) * 1000)
			filter (where j.state = 5), 0)
	into completed_hour, failed_hour, duration_ms, wait_ms
	from queen.jobs j
	where j.queue_id = p_queue and j.state in (5, 6, 7) and not j.dead
		and j.ended_at > t - interval '1 hour';
end $$;

-- The queues of a tenant by name, after p_after or from p_offset on: first a
-- row with their overall number alone, then up to p_limit of them.  Counts end at 10000,
-- but of events; those of a stream are null while it is dropped or rotated.  No locks.
create or replace function queen.ojs_queue_list_v1(p_tenant uuid, p_after text,
	p_offset bigint, p_limit int, p_now timestamptz default null)
returns table (total bigint, name text, paused boolean, created_at timestamptz,
	available bigint, active bigint, events bigint, consumers bigint,
	dead_letters bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
begin
	return query
	select count(*), null, null::boolean, null::timestamptz, null::bigint,
		null::bigint, null::bigint, null::bigint, null::bigint
	from queen.ojs_queues q
	where q.tenant = p_tenant and q.deleted_at is null;
	return query
	select null::bigint, q.name::text, q.paused_at is not null, q.created_at,
		j.available, j.active, s.events, s.consumers, s.dead_letters
	from (select x.* from queen.ojs_queues x
		where x.tenant = p_tenant and x.deleted_at is null
			and x.name > coalesce(p_after, '') collate "C"
		order by x.name offset p_offset limit p_limit) q
	cross join lateral queen.ojs_queue_ready(q.id, t, 10000) j
	cross join lateral (select 0::bigint as events, 0::bigint as consumers,
			0::bigint as dead_letters where q.stream_at is null
		union all
		select c.* from queen.stream_counts_some(q.id, 10000) c
		where q.stream_at is not null) s
	order by q.name;
end $$;

-- What a queue holds, exactly; zeros for one that does not exist.  No locks.
create or replace function queen.ojs_queue_stats_v1(p_tenant uuid, p_name text,
	p_now timestamptz default null)
returns table (paused boolean, computed_at timestamptz, scheduled bigint,
	available bigint, pending bigint, active bigint, retryable bigint,
	completed bigint, cancelled bigint, discarded bigint, dead_letter bigint,
	depth bigint, completed_last_hour bigint, failed_last_hour bigint,
	avg_duration_ms bigint, avg_wait_ms bigint, stream_events bigint,
	stream_consumers bigint, stream_dead_letters bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_id bigint; l_paused boolean; l_stream boolean;
begin
	select q.id, q.paused_at is not null, q.stream_at is not null
	into l_id, l_paused, l_stream
	from queen.ojs_queues q
	where q.tenant = p_tenant and q.name = p_name collate "C"
		and q.deleted_at is null;
	return query
	select coalesce(l_paused, false), t, w.scheduled, r.available, b.pending,
		r.active, w.retryable, e.completed, e.cancelled, e.discarded, e.dead,
		r.available + w.scheduled + w.retryable, e.completed_hour,
		e.failed_hour, e.duration_ms, e.wait_ms, coalesce(s.events, 0),
		coalesce(s.consumers, 0), coalesce(s.dead_letters, 0)
	from queen.ojs_queue_ready(l_id, t, null) r
	cross join queen.ojs_queue_ended(l_id, t) e
	cross join lateral (select count(*) filter (where j.state = 2) scheduled,
			count(*) filter (where j.state = 3) retryable
		from queen.jobs j where j.queue_id = l_id and j.state in (2, 3)
			and j.due_at > t) w
	cross join lateral (select count(*) filter (where j.state = 4) pending
		from queen.jobs j where j.queue_id = l_id and j.state in (1, 4)) b
	left join lateral queen.stream_counts(l_id) s on l_stream;
end $$;

-- ---- dropped ----

-- Inside: marks a queue as dropped, with its stream and the crons that nobody
-- is firing.  False: it was dropped already.  Waits for the streams' lock, then for
-- the row.
create or replace function queen.ojs_queue_end(p_queue bigint, t timestamptz)
returns boolean
language plpgsql volatile as $$
declare
	l_tenant uuid; l_name text;
begin
	perform queen.stream_drop(p_queue);
	update queen.ojs_queues q set deleted_at = t,
		changed_at = greatest(t, q.changed_at)
	where q.id = p_queue and q.deleted_at is null
	returning q.tenant, q.name into l_tenant, l_name;
	if not found then
		return false;
	end if;
	delete from queen.ojs_crons c where c.ctid = any (array(
		select x.ctid from queen.ojs_crons x
		where x.tenant = l_tenant and x.queue = l_name collate "C"
		for update skip locked));
	return true;
end $$;

-- Drops a queue: its name is free at once, its stream is gone, of its jobs none is
-- found any more; ojs_purge_v1 removes their rows.  No row: no such queue.  55P03
-- when the stream is in use for longer than a second: nothing was done then.
create or replace function queen.ojs_queue_drop_v1(p_tenant uuid, p_name text,
	p_now timestamptz default null)
returns table (queue_id bigint)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	select q.id into queue_id from queen.ojs_queues q
	where q.tenant = p_tenant and q.name = p_name collate "C"
		and q.deleted_at is null;
	if found and queen.ojs_queue_end(queue_id, coalesce(p_now,
			clock_timestamp())) then
		return next;
	end if;
end $$;

-- Inside: one step of what is left of a dropped queue, whose lock the caller holds:
-- workflows learn that their jobs are gone, then up to p_limit rows go.  How many;
-- 0 = nothing is left, or others hold the rest.  Passes over what others hold.
create or replace function queen.ojs_queue_purge(p_queue bigint, p_limit int,
	t timestamptz)
returns bigint
language plpgsql volatile as $$
declare
	q queen.ojs_queues; l_rows tid[]; l_n bigint; n bigint;
begin
	select x.* into q from queen.ojs_queues x where x.id = p_queue;
	-- a part of the table per index
	select array_agg(u.row) into l_rows from (
		(select j.ctid as row from queen.jobs j where j.queue_id = p_queue
			and j.state = 0 and j.rate_key is null limit p_limit)
		union all
		(select j.ctid from queen.jobs j where j.queue_id = p_queue
			and j.state = 0 and j.rate_key is not null limit p_limit)
		union all
		(select j.ctid from queen.jobs j where j.queue_id = p_queue
			and j.state in (1, 4) limit p_limit)
		union all
		(select j.ctid from queen.jobs j where j.queue_id = p_queue
			and j.state in (2, 3) limit p_limit)
		union all
		(select j.ctid from queen.jobs j where j.queue_id = p_queue
			and j.state in (5, 6, 7) and not j.dead limit p_limit)
		union all
		(select j.ctid from queen.jobs j where j.queue_id = p_queue
			and j.state = 7 and j.dead
			order by j.ended_at, j.seq limit p_limit)
		union all
		(select j.ctid from queen.jobs j where j.queue_id = p_queue
			and j.state = 8 limit p_limit)
		limit p_limit) u;
	l_n := queen.workflow_jobs_gone(l_rows, t);
	delete from queen.jobs d where d.ctid = any (array(
		select j.ctid from queen.jobs j where j.ctid = any (l_rows)
			and j.queue_id = p_queue and not exists (
				select from queen.ojs_workflow_jobs m
				where m.job_id = j.id and (m.tenant = j.tenant) is true
					and (m.workflow_id = j.workflow_id) is true
					and m.ended is null)
		for update skip locked));
	get diagnostics n = row_count;
	l_n := l_n + n;
	delete from queen.ojs_crons c where c.ctid = any (array(
		select x.ctid from queen.ojs_crons x
		where x.tenant = q.tenant and x.queue = q.name
			and x.changed_at <= q.deleted_at
		limit p_limit for update skip locked));
	get diagnostics n = row_count;
	return l_n + n;
end $$;

-- Is there a job of this queue, whatever its state?
create or replace function queen.ojs_queue_has_jobs(p_queue bigint)
returns boolean
language plpgsql stable as $$
begin
	return exists (select from queen.jobs j where j.queue_id = p_queue
			and j.state = 0 and j.rate_key is null)
		or exists (select from queen.jobs j where j.queue_id = p_queue
			and j.state = 0 and j.rate_key is not null)
		or exists (select from queen.jobs j where j.queue_id = p_queue
			and j.state in (1, 4))
		or exists (select from queen.jobs j where j.queue_id = p_queue
			and j.state in (2, 3))
		or exists (select from queen.jobs j where j.queue_id = p_queue
			and j.state in (5, 6, 7) and not j.dead)
		or (select true from queen.jobs j where j.queue_id = p_queue
			and j.state = 7 and j.dead order by j.ended_at, j.seq limit 1)
			is not null
		or exists (select from queen.jobs j where j.queue_id = p_queue
			and j.state = 8);
end $$;

-- Inside: one step of a dropped queue, and its row when nothing is left.  How many
-- rows went; 0 also when somebody still puts something into it.
create or replace function queen.ojs_queue_purge_step(p_queue bigint, p_limit int,
	t timestamptz)
returns bigint
language plpgsql volatile as $$
declare
	l_n bigint;
begin
	if not pg_try_advisory_xact_lock(66341, queen.stream_key(p_queue)) then
		return 0;
	end if;
	l_n := queen.ojs_queue_purge(p_queue, p_limit, t);
	if queen.ojs_queue_has_jobs(p_queue) then
		return l_n;
	end if;
	-- what was set or made while it was dropped
	perform queen.stream_drop(p_queue);
	delete from queen.ojs_rates r where r.queue_id = p_queue;
	delete from queen.ojs_job_counts c where c.queue_id = p_queue;
	delete from queen.ojs_queues q where q.id = p_queue;
	return l_n + 1;
end $$;

-- One step of what dropped queues left, and of workflows that ended more than seven
-- days ago: up to about p_limit rows.  How many went.  Passes over what others hold.
create or replace function queen.ojs_purge_v1(p_limit int,
	p_now timestamptz default null)
returns bigint
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_at timestamptz := '-infinity'; l_id bigint := 0; l_n bigint := 0;
begin
	loop
		select q.deleted_at, q.id into l_at, l_id from queen.ojs_queues q
		where q.deleted_at is not null and (q.deleted_at, q.id) > (l_at, l_id)
		order by q.deleted_at, q.id limit 1;
		exit when not found or l_n >= p_limit;
		l_n := l_n + queen.ojs_queue_purge_step(l_id, p_limit - l_n::int, t);
	end loop;
	if l_n < p_limit then
		l_n := l_n + queen.workflow_prune(p_limit - l_n::int, t);
	end if;
	return l_n;
end $$;
