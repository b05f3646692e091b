-- SPDX-License-Identifier: Apache-2.0
-- How jobs of queen-ojs go on and end: ack, nack, heartbeat, cancel, activate, and
-- what time does to them.
--
-- jobs_ack_v1, jobs_nack_v1, jobs_heartbeat_v1, jobs_cancel_v1, jobs_activate_v1,
-- jobs_sweep_v1, jobs_prune_v1; inside: job_delay, job_stops, job_errors, job_failed,
-- job_lost, job_woken, job_done, jobs_sweep_expired, jobs_sweep_woken, jobs_sweep_due,
-- jobs_tellable, jobs_told, job_needed.
--
-- Writes jobs; workflows through workflow_job_ended, which is told after the row is
-- written.  READ COMMITTED is assumed: every transition is one guarded update, so of
-- two at once one wins.  `state + 0` in a guard keeps the planner from the partial
-- indexes, which would be walked instead of the key.

-- Milliseconds before the next attempt, after failed attempt p_attempt; p_random of
-- [0, 1) for the jitter, null = none.  Pure.
create or replace function queen.job_delay(p_policy jsonb, p_attempt int,
	p_random float8)
returns bigint
language plpgsql immutable as $$
declare
	l_first float8 := coalesce((p_policy ->> 'initial_ms')::float8, 1000);
	l_by float8 := coalesce((p_policy ->> 'coefficient')::float8, 2);
	l_most float8 := coalesce((p_policy ->> 'max_ms')::float8, 300000);
	l_n float8 := greatest(p_attempt, 1); l_raw float8;
	l_strategy text := coalesce(p_policy ->> 'strategy', 'exponential');
	l_log float8;	-- of the factor: it may be beyond all numbers
begin
	l_log := case l_strategy when 'linear' then ln(l_n)
		when 'exponential' then ln(l_by) * (l_n - 1)
		when 'polynomial' then ln(l_n) * l_by
		else 0 end;
	if ln(l_first) + l_log > ln(l_most) + 1 then
		l_raw := l_most;
	else
		l_raw := least(l_most, l_first * case l_strategy
			when 'linear' then l_n
			when 'exponential' then l_by ^ (l_n - 1)
			when 'polynomial' then l_n ^ l_by
			else 1 end);
	end if;
	if p_random is not null and coalesce((p_policy ->> 'jitter')::boolean, true) then
		l_raw := least(l_most, l_raw * (0.5 + p_random));
	end if;
	return l_raw::bigint;
end $$;

-- Inside: does a policy's list name this error?  `auth.*` = begins with `auth.`.
create or replace function queen.job_stops(p_policy jsonb, p_type text, p_class text,
	p_code text)
returns boolean
language sql immutable as $$
	select exists (select from jsonb_array_elements_text(p_policy -> 'stop') s(name)
		cross join unnest(array[p_type, p_class, p_code]) e(name)
		where e.name = s.name or right(s.name, 2) = '.*'
			and starts_with(e.name, left(s.name, -1)))
$$;

-- Inside: the error of an attempt as it is kept, and the newest 25 of them.
create or replace function queen.job_errors(p_errors text[], p_error text,
	p_attempt int, t timestamptz)
returns text[]
language sql stable as $$
	select coalesce(p_errors[greatest(1, cardinality(p_errors) - 23):], '{}')
		|| format('{%s,"attempt":%s,"occurred_at":"%s"}', p_error, p_attempt,
			to_char(t at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
$$;

-- Inside: an active job after an attempt that failed: its row, not yet written.
create or replace function queen.job_failed(j queen.jobs, p_error text, p_type text,
	p_class text, p_code text, p_retryable boolean, p_random float8, t timestamptz)
returns queen.jobs
language plpgsql stable as $$
begin
	j.errors := queen.job_errors(j.errors, p_error, j.attempt, t);
	j.has_error := true;
	j.failed_at := t;
	j.lease_until := null;
	j.wake_at := null;
	if p_code in ('DISCARD', 'FAIL', 'DEAD_LETTER')
		or p_retryable is false and p_code is distinct from 'RETRY'
		or queen.job_stops(j.policy, p_type, p_class, p_code)
		or j.attempt >= j.max_attempts then
		j.state := 7;
		j.ran := true;
		j.ended_at := t;
		j.dead := case when p_code in ('DISCARD', 'FAIL') then false
			when p_code = 'DEAD_LETTER' then true
			else coalesce((j.policy ->> 'dead')::boolean, false) end;
	else
		j.state := 3;
		j.retry_delay_ms := queen.job_delay(j.policy, j.attempt, p_random);
		j.due_at := t + j.retry_delay_ms * interval '1 ms';
	end if;
	return j;
end $$;

-- Inside: an active job after a lease that ran out: available at once.
create or replace function queen.job_lost(j queen.jobs, t timestamptz)
returns queen.jobs
language plpgsql stable as $$
begin
	j := queen.job_failed(j, format('"code":"visibility_timeout",'
		'"type":"visibility_timeout","message":"The lease ended."'
		',"details":{"lease_ms":%s}', j.granted_ms),
		null, null, null, null, null, t);
	if j.state = 3 then
		j.state := 0;
		j.enqueued_at := t;
		j.started_at := null;
		j.due_at := null;
		j.retry_delay_ms := null;
	end if;
	return j;
end $$;

-- Inside: an active job whose time was up, whichever clock it was.  Both at once:
-- the execution timeout.
create or replace function queen.job_woken(j queen.jobs, t timestamptz)
returns queen.jobs
language sql volatile as $$
	select case when j.started_at + j.timeout_ms * interval '1 ms' <= t
		then queen.job_failed(j, format('"code":"timeout","type":"timeout",'
			'"message":"The execution timeout ran out.","details":'
			'{"timeout_kind":"execution","limit_ms":%s,"elapsed_ms":%s}',
			j.timeout_ms, floor(extract(epoch from t - j.started_at) * 1000)),
			'timeout', null, null, null, random(), t)
		else queen.job_lost(j, t) end
$$;

-- Inside: answers for a transition that was made; tells the workflow of an ended job,
-- and behind it answers those of its jobs that are available now.  A job of a dropped
-- queue is none.
create or replace function queen.job_done(j queen.jobs, p_previous smallint,
	t timestamptz)
returns setof queen.job_out
language plpgsql volatile as $$
begin
	if (select q.deleted_at is null from queen.ojs_queues q
		where q.id = j.queue_id) is not true then
		return query select f.*
		from queen.job_verdict(j.tenant, j.id, null, null, t) f;
		return;
	end if;
	return query select f.* from queen.job_show(0, 1, j, p_previous) f;
	if j.workflow_id is not null and j.state in (5, 6, 7) then
		return query select f.* from queen.workflow_job_ended(j.tenant,
			j.workflow_id, j.id, t) f;
	end if;
end $$;

-- Completes the attempt p_worker (null: whoever) runs.  One row: verdict 0, 1 no such
-- job, 2 not active, 7 another worker's, 8 another attempt; behind it what became
-- available of its workflow.
create or replace function queen.jobs_ack_v1(p_tenant uuid, p_id uuid, p_worker text,
	p_attempt int, p_result text, p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp()); j queen.jobs;
begin
	update queen.jobs x set state = 5, ended_at = t, result = p_result,
		has_error = false, lease_until = null, wake_at = null
	where x.tenant = p_tenant and x.id = p_id and x.state + 0 = 1
		and (p_worker <> x.worker) is not true
		and (p_attempt <> x.attempt) is not true
	returning x.* into j;
	if j.id is null then
		return query select f.*
		from queen.job_verdict(p_tenant, p_id, p_worker, p_attempt, t) f;
	else
		return query select f.* from queen.job_done(j, 1::smallint, t) f;
	end if;
end $$;

-- The attempt failed: retryable or discarded by the policy (p_type, p_class, p_code:
-- what its list is matched with; p_code also directs).  p_requeue: it is given back, no
-- error.  p_error: members of the stored error.  Verdicts as jobs_ack_v1.
create or replace function queen.jobs_nack_v1(p_tenant uuid, p_id uuid, p_worker text,
	p_attempt int, p_error text, p_type text, p_class text, p_code text,
	p_retryable boolean, p_requeue boolean, p_random float8 default null,
	p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_random float8 := coalesce(p_random, random()); j queen.jobs;
begin
	if p_requeue then
		update queen.jobs x set state = 0, enqueued_at = t, started_at = null,
			lease_until = null, wake_at = null
		where x.tenant = p_tenant and x.id = p_id and x.state + 0 = 1
			and (p_worker <> x.worker) is not true
			and (p_attempt <> x.attempt) is not true
		returning x.* into j;
	else
		update queen.jobs x set (state, ended_at, ran, dead, has_error, errors,
			failed_at, retry_delay_ms, due_at, lease_until, wake_at) =
			(select f.state, f.ended_at, f.ran, f.dead, f.has_error, f.errors,
				f.failed_at, f.retry_delay_ms, f.due_at, f.lease_until,
				f.wake_at
			from queen.job_failed(x, p_error, p_type, p_class, p_code,
				p_retryable, l_random, t) f)
		where x.tenant = p_tenant and x.id = p_id and x.state + 0 = 1
			and (p_worker <> x.worker) is not true
			and (p_attempt <> x.attempt) is not true
		returning x.* into j;
	end if;
	if j.id is null then
		return query select f.*
		from queen.job_verdict(p_tenant, p_id, p_worker, p_attempt, t) f;
	else
		return query select f.* from queen.job_done(j, 1::smallint, t) f;
	end if;
end $$;

-- Restarts the leases of those jobs p_worker, or nobody by name, holds; p_lease_ms, else
-- what was granted.  A row per id in order, held = extended; with no ids one row with a
-- null id.  directive, if p_test: the test hook of a held job.  Locks the jobs by id.
create or replace function queen.jobs_heartbeat_v1(p_tenant uuid, p_worker text,
	p_ids uuid[], p_lease_ms bigint, p_test boolean, p_now timestamptz default null)
returns table (id uuid, held boolean, directive text, server_time timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_ids uuid[]; l_rows tid[]; l_docs jsonb;
begin
	if coalesce(cardinality(p_ids), 0) = 0 then
		return query select null::uuid, false, null::text, t;
		return;
	end if;
	select array_agg(distinct u.id) into l_ids from unnest(p_ids) u(id);
	select array_agg(x.row) into l_rows from unnest(l_ids) u(id)
	cross join lateral (select j.ctid as row from queen.jobs j
		where j.tenant = p_tenant and j.id = u.id and j.state + 0 = 1
			and (p_worker <> j.worker) is not true
		for no key update) x;
	-- in a statement that sees what the locks waited for
	with w as (
		update queen.jobs j set (lease_until, wake_at) = (select n.til,
			least(n.til, j.started_at + j.timeout_ms * interval '1 ms')
			from (select t + coalesce(p_lease_ms, j.granted_ms)
				* interval '1 ms' til) n)
		where j.ctid = any (l_rows)
		returning j.id, case when p_test then substring(j.doc from
			'"test_directive"\s*:\s*"(quiet|terminate)"') end directive)
	select jsonb_object_agg(w.id, w.directive) into l_docs from w;
	return query
	select u.id, coalesce(l_docs ? u.id::text, false), l_docs ->> u.id::text, t
	from unnest(p_ids) with ordinality u(id, ord) order by u.ord;
end $$;

-- Cancels a job that has not ended.  One row: verdict 0 (previous_state), 1, 2; behind
-- it what became available of its workflow.
create or replace function queen.jobs_cancel_v1(p_tenant uuid, p_id uuid,
	p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp()); j queen.jobs;
begin
	update queen.jobs x set state = 6, ended_at = t, lease_until = null,
		wake_at = null,
		previous_state = queen.job_state(x.state, x.due_at, x.expires_at, t)
	where x.tenant = p_tenant and x.id = p_id and (x.state + 0 = 1
		or x.state + 0 in (0, 2, 3, 4)
			and (x.expires_at is null or x.expires_at > t))
	returning x.* into j;
	if j.id is null then
		return query select f.*
		from queen.job_verdict(p_tenant, p_id, null, null, t) f;
	else
		return query select f.* from queen.job_done(j, j.previous_state, t) f;
	end if;
end $$;

-- A pending job becomes available, or scheduled while its time is ahead.  One row:
-- verdict 0, 1, 2.
create or replace function queen.jobs_activate_v1(p_tenant uuid, p_id uuid,
	p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp()); j queen.jobs;
begin
	update queen.jobs x set state = case when x.due_at > t then 2 else 0 end,
		enqueued_at = case when x.due_at > t then null else t end
	where x.tenant = p_tenant and x.id = p_id and x.state + 0 = 4
		and (x.expires_at is null or x.expires_at > t)
	returning x.* into j;
	if j.id is null then
		return query select f.*
		from queen.job_verdict(p_tenant, p_id, null, null, t) f;
	else
		return query select f.* from queen.job_done(j, 4::smallint, t) f;
	end if;
end $$;

-- Inside: of these rows, which the caller has locked, those whose workflow, if any, is
-- nobody else's now: locked too, so that telling it waits for nobody.
create or replace function queen.jobs_tellable(p_rows tid[])
returns tid[]
language plpgsql volatile as $$
declare
	l_busy uuid[];
begin
	if not exists (select from queen.jobs j
			where j.ctid = any (p_rows) and j.workflow_id is not null) then
		return p_rows;
	end if;
	with w as materialized (
		select distinct j.tenant, j.workflow_id as id from queen.jobs j
		where j.ctid = any (p_rows) and j.workflow_id is not null
	), free as materialized (
		select w.id from w cross join lateral (select from queen.ojs_workflows x
			where x.tenant = w.tenant and x.id = w.id
			for update skip locked) x
	)
	select array_agg(w.id) into l_busy from w
	where w.id not in (select f.id from free f)
		and exists (select from queen.ojs_workflows x
			where x.tenant = w.tenant and x.id = w.id);
	return array(select j.ctid from queen.jobs j where j.ctid = any (p_rows)
		and (j.workflow_id = any (l_busy)) is not true);
end $$;

-- Inside: tells the workflows of ended jobs, in one order for all; the queues of the
-- jobs that became available by it.
create or replace function queen.jobs_told(p_jobs queen.jobs[], t timestamptz)
returns setof bigint
language plpgsql volatile as $$
declare
	j queen.jobs;
begin
	for j in select u.* from unnest(p_jobs) u
		where u.workflow_id is not null and u.state in (5, 6, 7)
		order by u.workflow_id, u.id
	loop
		return query select f.queue_id
		from queen.workflow_job_ended(j.tenant, j.workflow_id, j.id, t) f;
	end loop;
end $$;

-- Inside, for the sweep, each a part of what is due, oldest first, at most p_limit, and
-- nothing others hold: jobs that expired before they began ...
create or replace function queen.jobs_sweep_expired(p_limit int, t timestamptz)
returns queen.jobs[]
language plpgsql volatile as $$
declare
	l_rows tid[]; l_jobs queen.jobs[];
begin
	l_rows := array(select j.ctid from queen.jobs j
		where j.state in (0, 2, 3, 4) and j.expires_at <= t
		order by j.expires_at limit p_limit for update skip locked);
	l_rows := queen.jobs_tellable(l_rows);
	with u as (
		update queen.jobs j set state = 7, ended_at = t
		where j.ctid = any (l_rows) returning j)
	select array_agg(u.j) into l_jobs from u;
	return l_jobs;
end $$;

-- ... active ones whose lease or execution timeout ran out ...
create or replace function queen.jobs_sweep_woken(p_limit int, t timestamptz)
returns queen.jobs[]
language plpgsql volatile as $$
declare
	l_rows tid[]; l_jobs queen.jobs[];
begin
	l_rows := array(select j.ctid from queen.jobs j
		where j.state = 1 and j.wake_at <= t
		order by j.wake_at limit p_limit for update skip locked);
	l_rows := queen.jobs_tellable(l_rows);
	with u as (
		update queen.jobs j set (state, enqueued_at, started_at, ended_at, ran,
			dead, has_error, errors, failed_at, retry_delay_ms, due_at,
			lease_until, wake_at) =
			(select f.state, f.enqueued_at, f.started_at, f.ended_at, f.ran,
				f.dead, f.has_error, f.errors, f.failed_at,
				f.retry_delay_ms, f.due_at, f.lease_until, f.wake_at
			from queen.job_woken(j, t) f)
		where j.ctid = any (l_rows) returning j)
	select array_agg(u.j) into l_jobs from u;
	return l_jobs;
end $$;

-- ... and those whose time has come.
create or replace function queen.jobs_sweep_due(p_limit int, t timestamptz)
returns queen.jobs[]
language plpgsql volatile as $$
declare
	l_rows tid[]; l_jobs queen.jobs[];
begin
	l_rows := array(select j.ctid from queen.jobs j
		where j.state in (2, 3) and j.due_at <= t
		order by j.due_at, j.seq limit p_limit for update skip locked);
	with u as (
		update queen.jobs j set state = 0, enqueued_at = t
			- (cardinality(l_rows) - r.nth) * interval '1 us'
		from unnest(l_rows) with ordinality r(row, nth)
		where j.ctid = r.row returning j)
	select array_agg(u.j) into l_jobs from u;
	return l_jobs;
end $$;

-- Cell-wide: does what time asks of jobs, p_limit of each kind at most; waits for no
-- row.  A row per queue touched: how many jobs became available, how many steps; more =
-- there is more due.
create or replace function queen.jobs_sweep_v1(p_limit int,
	p_now timestamptz default null)
returns table (queue_id bigint, became int, steps int, more boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_old queen.jobs[]; l_woken queen.jobs[]; l_due queen.jobs[]; l_all queen.jobs[];
	l_next bigint[];
begin
	l_old := queen.jobs_sweep_expired(p_limit, t);
	l_woken := queen.jobs_sweep_woken(p_limit, t);
	l_due := queen.jobs_sweep_due(p_limit, t);
	l_all := l_old || l_woken || l_due;
	if l_all is null then
		return;
	end if;
	l_next := array(select queen.jobs_told(l_all, t));
	return query
	select x.id, sum(x.became)::int, sum(x.step)::int,
		coalesce(p_limit in (cardinality(l_old), cardinality(l_woken),
			cardinality(l_due)), false)
	from (select u.queue_id, (u.state = 0)::int, 1 from unnest(l_all) u
		union all
		select u.id, 1, 0 from unnest(l_next) u(id)) x(id, became, step)
	group by x.id;
end $$;

-- Inside: does this workflow still run?  It may hand on what its jobs answered.
create or replace function queen.job_needed(p_tenant uuid, p_workflow uuid)
returns boolean
language plpgsql stable as $$
begin
	return exists (select from queen.ojs_workflows w
		where w.tenant = p_tenant and w.id = p_workflow and w.ended_at is null);
end $$;

-- Cell-wide: deletes ended jobs and dead letters beyond what their queues keep, p_limit
-- of each at most; how many.  Not what a workflow that runs still needs.  Looks at a
-- hundred queues, from anywhere among them on; at how many dead letters there are, of
-- five.  What others hold is left.
create or replace function queen.jobs_prune_v1(p_limit int,
	p_now timestamptz default null)
returns bigint
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_queues bigint[]; l_from bigint; l_ended tid[]; l_dead tid[]; l_over tid[];
	n bigint;
begin
	select floor(random() * (max(q.id) + 1)) into l_from from queen.ojs_queues q;
	l_queues := array(
		(select q.id from queen.ojs_queues q where q.id > l_from
		order by q.id limit 100)
		union all
		(select q.id from queen.ojs_queues q where q.id <= l_from
		order by q.id limit 100)
		limit 100);
	l_ended := array(select x.row from unnest(l_queues) u(id)
		join queen.ojs_queues q on q.id = u.id
		cross join lateral (select j.ctid as row from queen.jobs j
			where j.queue_id = u.id and j.state in (5, 6, 7) and not j.dead
				and j.ended_at < t - coalesce(q.job_retention_ms, 604800000)
					* interval '1 ms'
				and (j.workflow_id is null
					or not queen.job_needed(j.tenant, j.workflow_id))
			order by j.ended_at limit p_limit for update skip locked) x
		limit p_limit);
	l_dead := array(select x.row from unnest(l_queues) u(id)
		join queen.ojs_queues q on q.id = u.id
		cross join lateral (select j.ctid as row from queen.jobs j
			where j.queue_id = u.id and j.state = 7 and j.dead
				and j.ended_at < t - coalesce(q.dead_letter_retention_ms,
					15552000000) * interval '1 ms'
				and (j.workflow_id is null
					or not queen.job_needed(j.tenant, j.workflow_id))
			order by j.ended_at limit p_limit for update skip locked) x
		limit p_limit);
	l_over := array(select x.row from unnest(l_queues[1:5]) u(id)
		join queen.ojs_queues q on q.id = u.id
		cross join lateral (select j.ended_at, j.seq from queen.jobs j
			where j.queue_id = u.id and j.state = 7 and j.dead
			order by j.ended_at desc, j.seq desc
			offset coalesce(q.dead_letter_max, 10000) limit 1) k
		cross join lateral (select j.ctid as row from queen.jobs j
			where j.queue_id = u.id and j.state = 7 and j.dead
				and (j.ended_at, j.seq) <= (k.ended_at, k.seq)
				and (j.workflow_id is null
					or not queen.job_needed(j.tenant, j.workflow_id))
			order by j.ended_at, j.seq limit p_limit
			for update skip locked) x
		limit p_limit);
	delete from queen.jobs j where j.ctid = any (l_ended || l_dead || l_over);
	get diagnostics n = row_count;
	delete from queen.ojs_rates r where r.ctid = any (array(
		select w.ctid from queen.ojs_rates w where w.until < t
		order by w.until limit p_limit for update skip locked));
	return n;
end $$;
