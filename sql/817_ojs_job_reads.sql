-- SPDX-License-Identifier: Apache-2.0
-- Jobs of queen-ojs, read: one, dead letters, events, which queues have something.
--
-- jobs_get_v1, jobs_dead_v1, jobs_dead_count_v1, jobs_dead_get_v1, jobs_dead_retry_v1,
-- jobs_dead_delete_v1, jobs_events_v1, jobs_ready_v1; inside: job_failed_attempt;
-- for tests: jobs_reset_v1.

-- One job in the state it is in, swept or not: verdict 0, or 1.  No locks.
create or replace function queen.jobs_get_v1(p_tenant uuid, p_id uuid,
	p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp()); j queen.jobs;
begin
	select x.* into j from queen.jobs x
	where x.tenant = p_tenant and x.id = p_id and x.state + 0 <> 8
		and (select q.deleted_at is null from queen.ojs_queues q
			where q.id = x.queue_id);
	if j.id is null then
		j.id := p_id;
		return query select f.* from queen.job_show(1, 1, j, null) f;
	else
		j := queen.job_at(j, t);
		return query select f.*
		from queen.job_show(0, 1, j, j.previous_state) f;
	end if;
end $$;

-- Inside: the live queue of a name; null = none.
create or replace function queen.ojs_queue_id(p_tenant uuid, p_name text)
returns bigint
language sql stable as $$
	select q.id from queen.ojs_queues q where q.tenant = p_tenant
		and q.name = p_name collate "C" and q.deleted_at is null
$$;

-- A page of the dead-letter set, newest first, of a queue or of all, of a type or of all:
-- behind (p_after_at, p_after_seq) = (discarded_at, seq) of the last row of the page
-- before, and p_offset on.  No locks.
create or replace function queen.jobs_dead_v1(p_tenant uuid, p_queue text, p_type text,
	p_limit int, p_offset bigint, p_after_at timestamptz, p_after_seq bigint,
	p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	l_at timestamptz := coalesce(p_after_at, 'infinity');
	l_seq bigint := coalesce(p_after_seq, 9223372036854775807);
	l_queue bigint := queen.ojs_queue_id(p_tenant, p_queue);
begin
	if p_queue is null then
		return query select f.*
		from (select j from queen.jobs j
			where j.tenant = p_tenant and j.state = 7 and j.dead
				and (j.ended_at, j.seq) < (l_at, l_seq)
				and (p_type is null or j.type = p_type)
				and (select q.deleted_at is null from queen.ojs_queues q
					where q.id = j.queue_id)
			order by j.ended_at desc, j.seq desc
			offset p_offset limit p_limit) x(j)
		cross join lateral queen.job_show(0, 1, x.j, null) f;
	else
		return query select f.*
		from (select j from queen.jobs j
			where j.queue_id = l_queue and j.state = 7 and j.dead
				and (j.ended_at, j.seq) < (l_at, l_seq)
				and (p_type is null or j.type = p_type)
			order by j.ended_at desc, j.seq desc
			offset p_offset limit p_limit) x(j)
		cross join lateral queen.job_show(0, 1, x.j, null) f;
	end if;
end $$;

-- How many dead letters jobs_dead_v1 has in all.
create or replace function queen.jobs_dead_count_v1(p_tenant uuid, p_queue text,
	p_type text, p_now timestamptz default null)
returns bigint
language plpgsql volatile as $$
declare
	l_queue bigint := queen.ojs_queue_id(p_tenant, p_queue);
begin
	if p_queue is null then
		return (select count(*) from queen.jobs j
			where j.tenant = p_tenant and j.state = 7 and j.dead
				and (p_type is null or j.type = p_type)
				and (select q.deleted_at is null from queen.ojs_queues q
					where q.id = j.queue_id));
	end if;
	return (select count(*) from queen.jobs j
		where j.queue_id = l_queue and j.state = 7 and j.dead
			and (p_type is null or j.type = p_type));
end $$;

-- One dead letter: verdict 0, or 1.  No locks.
create or replace function queen.jobs_dead_get_v1(p_tenant uuid, p_id uuid,
	p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	j queen.jobs; l_there boolean;
begin
	select x.* into j from queen.jobs x
	where x.tenant = p_tenant and x.id = p_id and x.state + 0 = 7 and x.dead
		and (select q.deleted_at is null from queen.ojs_queues q
			where q.id = x.queue_id);
	l_there := j.id is not null;
	j.id := p_id;
	return query select f.*
	from queen.job_show((not l_there)::int, 1, j, null) f;
end $$;

-- Back to available, as if it had never run, but for the history of its errors, of which
-- events tell no more; it does not expire any more, and its workflow, which was told, is
-- not its any more.  One row: verdict 0, or 1 = not in the set.
create or replace function queen.jobs_dead_retry_v1(p_tenant uuid, p_id uuid,
	p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp()); j queen.jobs;
	l_there boolean;
begin
	update queen.jobs x set state = 0, attempt = 0, enqueued_at = t,
		started_at = null, ended_at = null, due_at = null, expires_at = null,
		failed_at = null, retry_delay_ms = null, worker = null, ran = false, dead = false,
		has_error = false, workflow_id = null
	where x.tenant = p_tenant and x.id = p_id and x.state + 0 = 7 and x.dead
		and (select q.deleted_at is null from queen.ojs_queues q
			where q.id = x.queue_id)
	returning x.* into j;
	l_there := j.id is not null;
	j.id := p_id;
	return query select f.*
	from queen.job_show((not l_there)::int, 1, j, 7::smallint) f;
end $$;

-- Deletes it for good.  One row, as it was: verdict 0, or 1.
create or replace function queen.jobs_dead_delete_v1(p_tenant uuid, p_id uuid,
	p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	j queen.jobs; l_there boolean;
begin
	delete from queen.jobs x
	where x.tenant = p_tenant and x.id = p_id and x.state + 0 = 7 and x.dead
		and (select q.deleted_at is null from queen.ojs_queues q
			where q.id = x.queue_id)
	returning x.* into j;
	l_there := j.id is not null;
	j.id := p_id;
	return query select f.*
	from queen.job_show((not l_there)::int, 1, j, null) f;
end $$;

-- Inside: which attempt made the newest error; that of the job may be a later one.
create or replace function queen.job_failed_attempt(j queen.jobs)
returns int
language sql immutable as $$
	select substring(right(j.errors[cardinality(j.errors)], 80)
		from '"attempt":([0-9]+),"occurred_at":"[^"]*"}$')::int
$$;

-- Inside: how far a call for events looks, of which it wants these kinds: to where one
-- of them has p_most entries since (p_at, p_id); null = it sees all until p_til.
create or replace function queen.jobs_events_reach(p_tenant uuid, p_at timestamptz,
	p_id uuid, p_til timestamptz, p_want boolean[], p_most int,
	out at timestamptz, out id uuid)
language plpgsql volatile as $$
begin
	select x.at, x.id into at, id from (
		(select j.created_at as at, j.id from queen.jobs j
		where p_want[1]
			and j.tenant = p_tenant and j.created_at <= p_til
			and (j.created_at, j.id) >= (p_at, p_id)
		order by j.created_at, j.id offset p_most limit 1)
		union all
		(select j.started_at, j.id from queen.jobs j
		where p_want[2]
			and j.tenant = p_tenant and j.started_at <= p_til
			and (j.started_at, j.id) >= (p_at, p_id)
		order by j.started_at, j.id offset p_most limit 1)
		union all
		(select j.failed_at, j.id from queen.jobs j
		where (p_want[3] or p_want[4])
			and j.tenant = p_tenant and j.failed_at <= p_til
			and (j.failed_at, j.id) >= (p_at, p_id)
		order by j.failed_at, j.id offset p_most limit 1)
		union all
		(select j.ended_at, j.id from queen.jobs j
		where (p_want[5] or p_want[6] or p_want[7])
			and j.tenant = p_tenant and j.ended_at <= p_til
			and (j.ended_at, j.id) >= (p_at, p_id)
		order by j.ended_at, j.id offset p_most limit 1)
	) x order by x.at, x.id limit 1;
end $$;

-- What happened to jobs, oldest first, behind (p_after_at, p_after_key) = (at, key) of
-- the last one seen; read off their rows, so what a later attempt wrote over is
-- gone.  Null lists = all.  Nothing younger than 100 ms, or than the oldest transaction
-- that writes: it may still commit something older; who stamps rows behind a wait draws
-- its transaction id first.  Looks at some 20000 entries of a kind, or as many as fill
-- the page: when there are more, the last row has no event, it is where to go on.  No
-- locks.
create or replace function queen.jobs_events_v1(p_tenant uuid, p_after_at timestamptz,
	p_after_key text, p_types text[], p_queues text[], p_job_types text[], p_limit int,
	p_now timestamptz default null)
returns table (at timestamptz, key text, event text, id uuid, type text, queue text,
	attempt int, duration_ms bigint, detail text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	l_til timestamptz := coalesce(p_now - interval '100 ms',
		(select s.safe_time from queen.safe_time_v1(100, 5000) s),
		clock_timestamp() - interval '5 s');
	l_at timestamptz := coalesce(p_after_at, '-infinity');
	l_key text := coalesce(p_after_key, '');
	l_id uuid := coalesce(substring(l_key from
		'^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'),
		'00000000-0000-0000-0000-000000000000');
	l_til_id uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
	l_queues bigint[]; l_want boolean[];	-- by kind
	l_reach record; n int;
begin
	l_queues := case when p_queues is not null then array(select
		queen.ojs_queue_id(p_tenant, u.name) from unnest(p_queues) u(name)) end;
	select array_agg(coalesce('job.' || w.name = any (p_types), true) order by w.kind)
	into l_want
	from unnest(array['enqueued', 'started', 'failed', 'retrying', 'completed',
		'cancelled', 'discarded']) with ordinality w(name, kind);
	select r.at, r.id into l_reach from queen.jobs_events_reach(p_tenant, l_at, l_id,
		l_til, l_want, case when num_nonnulls(p_types, p_queues, p_job_types) > 0
			then 20000 else p_limit end) r;
	l_til_id := coalesce(l_reach.id, l_til_id);
	l_til := coalesce(l_reach.at, l_til);
	return query
	with e as (
		select x.j, (x.j).created_at as at, 1 kind, 'job.enqueued' event
		from (select j from queen.jobs j where j.tenant = p_tenant
				and (j.created_at, j.id) >= (l_at, l_id)
				and (j.created_at, j.id) <= (l_til, l_til_id)
				and j.created_at <= l_til and j.state + 0 <> 8
				and (l_queues is null or j.queue_id = any (l_queues))
				and (p_job_types is null or j.type = any (p_job_types))
				and (select q.deleted_at is null from queen.ojs_queues q
					where q.id = j.queue_id)
			order by j.created_at, j.id limit p_limit + 1) x
		where l_want[1]
		union all
		select x.j, (x.j).started_at, 2, 'job.started'
		from (select j from queen.jobs j where j.tenant = p_tenant
				and (j.started_at, j.id) >= (l_at, l_id)
				and (j.started_at, j.id) <= (l_til, l_til_id)
				and j.started_at <= l_til
				and (l_queues is null or j.queue_id = any (l_queues))
				and (p_job_types is null or j.type = any (p_job_types))
				and (select q.deleted_at is null from queen.ojs_queues q
					where q.id = j.queue_id)
			order by j.started_at, j.id limit p_limit + 1) x
		where l_want[2]
		union all
		select x.j, (x.j).failed_at, k.kind, k.event
		from (select j from queen.jobs j where j.tenant = p_tenant
				and (j.failed_at, j.id) >= (l_at, l_id)
				and (j.failed_at, j.id) <= (l_til, l_til_id)
				and j.failed_at <= l_til and (l_want[3]
					or (j.ended_at = j.failed_at) is not true)
				and (l_queues is null or j.queue_id = any (l_queues))
				and (p_job_types is null or j.type = any (p_job_types))
				and (select q.deleted_at is null from queen.ojs_queues q
					where q.id = j.queue_id)
			order by j.failed_at, j.id limit p_limit + 1) x
		join (values (3, 'job.failed'), (4, 'job.retrying')) k(kind, event)
			on l_want[k.kind] and (k.kind = 3
				or ((x.j).ended_at = (x.j).failed_at) is not true)
		where l_want[3] or l_want[4]
		union all
		select x.j, (x.j).ended_at, (x.j).state, (array['job.completed',
			'job.cancelled', 'job.discarded'])[(x.j).state - 4]
		from (select j from queen.jobs j where j.tenant = p_tenant
				and (j.ended_at, j.id) >= (l_at, l_id)
				and (j.ended_at, j.id) <= (l_til, l_til_id)
				and j.ended_at <= l_til and l_want[j.state]
				and (l_queues is null or j.queue_id = any (l_queues))
				and (p_job_types is null or j.type = any (p_job_types))
				and (select q.deleted_at is null from queen.ojs_queues q
					where q.id = j.queue_id)
			order by j.ended_at, j.id limit p_limit + 1) x
		where l_want[5] or l_want[6] or l_want[7])
	select e.at, w.key, e.event, (e.j).id, (e.j).type, q.name::text, a.n,
		case when e.kind in (3, 4, 5, 7) and e.at >= (e.j).started_at
				and a.n = (e.j).attempt then
			(extract(epoch from e.at - (e.j).started_at) * 1000)::bigint end,
		case when e.kind in (3, 4) or e.kind = 7 and (e.j).has_error
			then (e.j).errors[cardinality((e.j).errors)] end
	from e
	cross join lateral (select ((e.j).id::text || e.kind) collate "C") w(key)
	cross join lateral (select case when e.kind in (3, 4)
		then queen.job_failed_attempt(e.j) else (e.j).attempt end) a(n)
	join queen.ojs_queues q on q.id = (e.j).queue_id
	where (e.at, w.key) > (l_at, l_key collate "C")
	order by e.at, w.key limit p_limit;
	get diagnostics n = row_count;
	if n < p_limit and l_reach.id is not null then
		at := l_til;
		key := l_til_id || '9';		-- behind all of that job
		return next;
	end if;
end $$;

-- Which of these queues have something to claim now: not paused, and a job that is
-- available or due, and not kept back by a rate limit.  Cell-wide, no locks.
create or replace function queen.jobs_ready_v1(p_queue_ids bigint[],
	p_now timestamptz default null)
returns table (queue_id bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
begin
	return query
	select u.id from unnest(p_queue_ids) u(id)
	join lateral (select q.paused_at is null and q.deleted_at is null as open
		from queen.ojs_queues q where q.id = u.id) q on q.open
	cross join lateral (
		(select from queen.jobs j where j.queue_id = u.id and j.state = 0
			and j.rate_key is null and (j.expires_at is null or j.expires_at > t)
		order by j.rank, j.enqueued_at, j.seq limit 1)
		union all
		(select from queen.jobs j where j.queue_id = u.id and j.state in (2, 3)
			and j.due_at <= t and (j.expires_at is null or j.expires_at > t)
		order by j.due_at limit 1)
		union all
		(select from queen.jobs_limited_keys(u.id, t) limit 1)
		limit 1) x;
end $$;

-- For tests: empties all that queen-ojs keeps of a tenant.  Locks each queue and its
-- stream exclusively; 55P03 after 1 s.
create or replace function queen.jobs_reset_v1(p_tenant uuid)
returns void
language plpgsql volatile as $$
declare
	l_ids bigint[] := array(select q.id from queen.ojs_queues q
		where q.tenant = p_tenant order by q.id);
	l_id bigint;
begin
	perform set_config('lock_timeout', '1s', true);
	foreach l_id in array l_ids loop
		perform pg_advisory_xact_lock(66341, queen.stream_key(l_id));
		perform queen.stream_drop(l_id);
	end loop;
	delete from queen.ojs_crons c where c.tenant = p_tenant;
	delete from queen.ojs_workflow_jobs m where m.tenant = p_tenant;
	delete from queen.ojs_workflows w where w.tenant = p_tenant;
	delete from queen.jobs j where j.tenant = p_tenant;
	delete from queen.ojs_rates r where r.queue_id = any (l_ids);
	delete from queen.ojs_job_counts c where c.queue_id = any (l_ids);
	delete from queen.ojs_queues q where q.id = any (l_ids);
end $$;
