-- SPDX-License-Identifier: Apache-2.0
-- Jobs of queen-ojs (Open Job Spec 1.0): one row per job, all queues in one
-- table.
--
-- jobs_push_v1; inside: job_show, job_state, job_verdict, job_at, jobs_put and its
-- parts.  How jobs are claimed: 812.  How they end: 815.  Reads: 817.
--
-- Writes jobs, ojs_job_counts; queues through ojs_queue_ensure.
-- Lock order: the queue's shared lock, unique keys in order, jobs, workflow.
-- READ COMMITTED is assumed: a guarded update that waited looks at its guard
-- again, so of two transitions at once one wins.

-- What a producer asked for, as the process packed it.
do $$ begin
	create type queen.job_spec as (
		id uuid,			-- never null
		type text,
		queue text,
		doc text,			-- members of the client's document, `"a":1,"b":2`;
						-- "scheduled_at" is the first if there is one
		rank smallint,			-- -priority
		max_attempts int,
		due_at timestamptz,		-- null or past = now
		pending boolean,
		expires_at timestamptz,
		timeout_ms bigint,		-- execution, per attempt; null = none
		lease_ms bigint,		-- null = the queue's, else the caller's
		policy text,			-- retry policy as JSON; null = the default
		uniq text,			-- unique policy as JSON; null = none
		rate text			-- rate limit as JSON; null = none
	);
exception when duplicate_object then null; end $$;

-- A job as every function answers it.
do $$ begin
	create type queen.job_out as (
		verdict smallint,
		idx int,			-- of the request's element, 1-based
		queue_id bigint,
		seq bigint,			-- order of insertion
		rank smallint,
		id uuid,
		type text,
		queue text,
		state smallint,
		doc text,
		attempt int,
		max_attempts int,
		created_at timestamptz,
		enqueued_at timestamptz,
		started_at timestamptz,
		completed_at timestamptz,
		cancelled_at timestamptz,
		discarded_at timestamptz,
		next_attempt_at timestamptz,
		retry_delay_ms bigint,
		error text,			-- newest, a JSON object
		errors text,			-- history, a JSON array
		result text,
		worker text,			-- while active, and with verdicts 2, 7, 8
		lease_until timestamptz,
		previous_state smallint,	-- of what this call changed
		parents text,			-- results of earlier steps, a JSON array
		workflow_id uuid,
		unique_key text			-- hex
	);
exception when duplicate_object then null; end $$;

-- state: 0 available, 1 active, 2 scheduled, 3 retryable, 4 pending,
-- 5 completed, 6 cancelled, 7 discarded, 8 held by its workflow.
create table if not exists queen.jobs (
	tenant uuid not null,
	id uuid not null,
	seq bigint generated always as identity,
	queue_id bigint not null,
	created_at timestamptz not null,
	enqueued_at timestamptz,		-- became available; never null in state 0
	started_at timestamptz,
	ended_at timestamptz,			-- states 5, 6, 7
	failed_at timestamptz,			-- of the newest error
	due_at timestamptz,			-- scheduled_at, next_attempt_at
	expires_at timestamptz,
	lease_until timestamptz,		-- state 1
	wake_at timestamptz,			-- state 1: the lease's end or the timeout
	timeout_ms bigint,
	lease_ms bigint,			-- as pushed
	granted_ms bigint,			-- as fetched
	retry_delay_ms bigint,
	attempt int not null default 0,
	max_attempts int not null,
	state smallint not null,
	rank smallint not null,
	previous_state smallint,		-- of a cancelled one
	ran boolean not null default false,	-- discarded by a failed attempt
	dead boolean not null default false,	-- in the dead-letter set
	has_error boolean not null default false, -- the last of errors is its error
	type text not null,
	worker text,				-- holds it, or held it
	rate_key text collate "C",		-- hash of its limit's key; null = none
	doc text not null,
	errors text[],				-- JSON objects, oldest first
	result text,
	parents text,				-- results, kept for itself
	parents_of uuid,			-- or the workflow that keeps them
	workflow_id uuid,
	unique_key bytea,
	policy jsonb,				-- retry policy; null = the default
	rate jsonb,
	primary key (tenant, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
	autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0,
	vacuum_truncate = off, toast.autovacuum_vacuum_scale_factor = 0.1,
	toast.autovacuum_vacuum_cost_delay = 0);
-- claims; and those under a rate limit, which must not stand in their way
create index if not exists jobs_claim on queen.jobs (queue_id, rank, enqueued_at, seq)
	where state = 0 and rate_key is null;
create index if not exists jobs_limited
	on queen.jobs (queue_id, rate_key, rank, enqueued_at, seq)
	where state = 0 and rate_key is not null;
create index if not exists jobs_limited_busy on queen.jobs (queue_id, rate_key)
	where state = 1 and rate_key is not null;
-- sweeps
create index if not exists jobs_due on queen.jobs (due_at) where state in (2, 3);
create index if not exists jobs_lease on queen.jobs (wake_at) where state = 1;
create index if not exists jobs_expires on queen.jobs (expires_at)
	where state in (0, 2, 3, 4) and expires_at is not null;
-- promotion in a fetch; with those below, exact counts of a queue
create index if not exists jobs_waiting on queen.jobs (queue_id, due_at) include (state)
	where state in (2, 3);
create index if not exists jobs_busy on queen.jobs (queue_id, state) where state in (1, 4);
create index if not exists jobs_ended on queen.jobs (queue_id, ended_at) include (state)
	where state in (5, 6, 7) and not dead;
create index if not exists jobs_dead on queen.jobs (queue_id, ended_at, seq)
	where state = 7 and dead;
create index if not exists jobs_dead_all on queen.jobs (tenant, ended_at, seq)
	where state = 7 and dead;
-- unique keys: of what has not ended, and per state of what has
create index if not exists jobs_unique_live on queen.jobs (tenant, unique_key, seq)
	where unique_key is not null and state in (0, 1, 2, 3, 4, 8);
create index if not exists jobs_unique_ended
	on queen.jobs (tenant, unique_key, state, created_at, seq)
	where unique_key is not null and state in (5, 6, 7);
create index if not exists jobs_workflow on queen.jobs (workflow_id)
	where workflow_id is not null;
-- events, oldest first
create index if not exists jobs_made on queen.jobs (tenant, created_at, id)
	where created_at is not null;	-- or plans of an empty table look for ids here
create index if not exists jobs_started on queen.jobs (tenant, started_at, id)
	where started_at is not null;
create index if not exists jobs_failed on queen.jobs (tenant, failed_at, id)
	where failed_at is not null;
create index if not exists jobs_over on queen.jobs (tenant, ended_at, id)
	where ended_at is not null;

-- Jobs that have not ended, of queues with a large quota.
create table if not exists queen.ojs_job_counts (
	queue_id bigint primary key,
	jobs bigint not null,
	counted_at timestamptz not null
);

-- Inside: the state a row is in at t, before a sweep has come by.
create or replace function queen.job_state(p_state smallint, p_due timestamptz,
	p_expires timestamptz, t timestamptz)
returns smallint
language sql immutable as $$
	select case when p_state in (0, 2, 3, 4) and p_expires <= t then 7::smallint
		when p_state in (2, 3) and p_due <= t then 0::smallint
		else p_state end
$$;

-- Inside: what a job is shown of those before it in its workflow, a JSON array.
create or replace function queen.workflow_parents(p_tenant uuid, p_workflow uuid,
	p_job uuid)
returns text
language plpgsql stable as $$
begin
	return queen.workflow_results(p_tenant, p_workflow, (select m.idx
		from queen.ojs_workflow_jobs m where m.job_id = p_job
			and (m.tenant = p_tenant) is true
			and (m.workflow_id = p_workflow) is true limit 1));
end $$;

-- Inside: one row, as an answer.
create or replace function queen.job_show(p_verdict int, p_idx int, j queen.jobs,
	p_previous smallint)
returns setof queen.job_out
language sql stable as $$
	select p_verdict::smallint, p_idx, j.queue_id, j.seq, j.rank, j.id, j.type,
		(select q.name::text from queen.ojs_queues q where q.id = j.queue_id),
		j.state, j.doc, j.attempt, j.max_attempts, j.created_at, j.enqueued_at,
		j.started_at,
		case when j.state = 5 or j.state = 7 and j.ran then j.ended_at end,
		case when j.state = 6 then j.ended_at end,
		case when j.state = 7 then j.ended_at end,
		case when j.state = 3 then j.due_at end,
		case when j.state in (0, 1, 3) then j.retry_delay_ms end,
		case when j.has_error then j.errors[cardinality(j.errors)] end,
		'[' || array_to_string(j.errors, ',') || ']', j.result,
		case when j.state = 1 or p_verdict in (2, 7, 8) then j.worker end,
		j.lease_until, p_previous, case when j.parents_of is null then j.parents
			else queen.workflow_parents(j.tenant, j.parents_of, j.id) end,
		j.workflow_id,
		encode(j.unique_key, 'hex')
$$;

-- Inside: why a guarded update of a job found nothing, and the job.  A job of a
-- dropped queue is none, nor is one that its workflow holds.
create or replace function queen.job_verdict(p_tenant uuid, p_id uuid, p_worker text,
	p_attempt int, t timestamptz)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	j queen.jobs;
begin
	select x.* into j from queen.jobs x
	where x.tenant = p_tenant and x.id = p_id and x.state + 0 <> 8
		and (select q.deleted_at is null from queen.ojs_queues q
			where q.id = x.queue_id);
	if j.id is null then
		j.id := p_id;
		return query select f.* from queen.job_show(1, 1, j, null) f;
		return;
	end if;
	j := queen.job_at(j, t);
	return query select f.* from queen.job_show(case
		when j.state <> 1 then 2
		when p_worker <> j.worker then 7
		when p_attempt <> j.attempt then 8
		else 2 end, 1, j, null) f;
end $$;

-- Inside: a row as a sweep at t would leave it, as far as nothing ran.
create or replace function queen.job_at(j queen.jobs, t timestamptz)
returns queen.jobs
language plpgsql immutable as $$
declare
	l_state smallint := queen.job_state(j.state, j.due_at, j.expires_at, t);
begin
	if l_state <> j.state then
		if l_state = 0 then
			j.enqueued_at := j.due_at;
		else
			j.ended_at := j.expires_at;
		end if;
		j.state := l_state;
	end if;
	return j;
end $$;

-- Inside: how many jobs of a queue have not ended, counted up to p_most.
create or replace function queen.jobs_open(p_queue bigint, p_most bigint)
returns bigint
language plpgsql volatile as $$
begin
	return (select count(*) from (
		select from queen.jobs j where j.queue_id = p_queue
			and j.state = 0 and j.rate_key is null
		union all
		select from queen.jobs j where j.queue_id = p_queue
			and j.state = 0 and j.rate_key is not null
		union all
		select from queen.jobs j where j.queue_id = p_queue and j.state in (1, 4)
		union all
		select from queen.jobs j where j.queue_id = p_queue and j.state in (2, 3)
		union all
		select from queen.jobs j where j.queue_id = p_queue and j.state = 8
		limit p_most) x);
end $$;

-- Inside: does a queue with the quota p_max take p_more jobs?  Exact up to 1000;
-- above, what was counted may be old: a second, and one more for each 100 000, so
-- that pushes pay for a part of a count.
create or replace function queen.jobs_full(p_queue bigint, p_max bigint, p_more bigint,
	t timestamptz)
returns boolean
language plpgsql volatile as $$
declare
	c queen.ojs_job_counts;
begin
	if p_max <= 1000 then
		return queen.jobs_open(p_queue, p_max + 1) + p_more > p_max;
	end if;
	select x.* into c from queen.ojs_job_counts x where x.queue_id = p_queue;
	if c.counted_at > t - (1 + c.jobs / 100000) * interval '1 s'
		or not pg_try_advisory_xact_lock(hashtextextended('queen.job_counts',
			p_queue)) then
		return coalesce(c.jobs, 0) + p_more > p_max;
	end if;
	c.jobs := queen.jobs_open(p_queue, p_max + 1);
	insert into queen.ojs_job_counts as w (queue_id, jobs, counted_at)
	values (p_queue, c.jobs, t)
	on conflict (queue_id) do update set jobs = excluded.jobs,
		counted_at = excluded.counted_at;
	return c.jobs + p_more > p_max;
end $$;

-- Inside: writes rows, nothing else.  Fewer than asked for came back: an id was
-- used.  Waits for who is inserting the same id.
create or replace function queen.jobs_insert(p_tenant uuid, p_specs queen.job_spec[],
	p_queue bigint[], p_key bytea, p_held boolean, p_workflow uuid, t timestamptz)
returns queen.jobs[]
language plpgsql volatile as $$
declare
	l_made queen.jobs[];
begin
	with i as (
		insert into queen.jobs (tenant, id, queue_id, created_at, enqueued_at,
			due_at, expires_at, timeout_ms, lease_ms, max_attempts, state,
			rank, type, rate_key, doc, workflow_id, unique_key, policy, rate)
		select p_tenant, s.id, s.queue_id, t, case when w.state = 0 then t end,
			s.due_at, s.expires_at, s.timeout_ms, s.lease_ms, s.max_attempts,
			w.state, s.rank, s.type, md5(s.rate::jsonb ->> 'key'), s.doc,
			p_workflow, p_key, s.policy::jsonb, s.rate::jsonb
		from unnest(p_specs, p_queue) with ordinality s(id, type, queue, doc,
			rank, max_attempts, due_at, pending, expires_at, timeout_ms,
			lease_ms, policy, uniq, rate, queue_id, ord)
		cross join lateral (select (case when p_held then 8
			when s.pending then 4 when s.due_at > t then 2
			else 0 end)::smallint state) w
		order by s.ord
		on conflict (tenant, id) do nothing
		returning jobs as j)
	select array_agg(i.j order by (i.j).seq) into l_made from i;
	return l_made;
end $$;

-- Inside: the key of what a unique policy's canonical text says.
create or replace function queen.job_unique_key(p_canonical text)
returns bytea
language sql immutable as $$
	select sha256(convert_to(normalize(p_canonical, NFC), 'UTF8'))
$$;

-- Inside: the newest of the ended jobs that a unique one is in conflict with: one of
-- each state is looked at, how many ever had the key does not matter.
create or replace function queen.jobs_unique_ended(p_tenant uuid, p_key bytea,
	p_policy jsonb, p_since timestamptz)
returns queen.jobs
language plpgsql volatile as $$
begin
	return (select x.j from unnest('{5,6,7}'::smallint[]) w(state)
	cross join lateral (select j from queen.jobs j
		where j.tenant = p_tenant and j.unique_key = p_key
			and j.state = w.state and j.state in (5, 6, 7)
			and j.created_at > p_since
			and (select q.deleted_at is null from queen.ojs_queues q
				where q.id = j.queue_id)
		order by j.created_at desc, j.seq desc limit 1) x
	where (p_policy -> 'states') @> to_jsonb(w.state)
	order by (x.j).seq desc limit 1);
end $$;

-- Inside: the job a unique one is in conflict with, a live one first; a held one is
-- as one that is pending, a job of a dropped queue is none.  The caller holds the key's
-- lock.
create or replace function queen.jobs_unique(p_tenant uuid, p_key bytea, p_policy jsonb,
	t timestamptz)
returns queen.jobs
language plpgsql volatile as $$
declare
	l_ms float8 := (p_policy ->> 'period_ms')::float8;
	-- beyond a thousand years there is nothing
	l_since timestamptz := coalesce(t - least(l_ms, 31557600000000)
		* interval '1 ms', '-infinity');
	j queen.jobs; l_ended queen.jobs;
begin
	select x.* into j from queen.jobs x
	cross join lateral queen.job_state(x.state, x.due_at, x.expires_at, t) s(state)
	where x.tenant = p_tenant and x.unique_key = p_key
		and x.state in (0, 1, 2, 3, 4, 8) and x.created_at > l_since
		and (select q.deleted_at is null from queen.ojs_queues q
			where q.id = x.queue_id)
		and (p_policy -> 'states') @> to_jsonb(case s.state when 8 then 4
			else s.state end)
	order by s.state = 7, x.seq desc limit 1;
	if j.id is null or queen.job_state(j.state, j.due_at, j.expires_at, t) = 7 then
		l_ended := queen.jobs_unique_ended(p_tenant, p_key, p_policy, l_since);
		if j.id is null or l_ended.seq > j.seq then
			return l_ended;
		end if;
	end if;
	return j;
end $$;

-- Inside: the queue of each spec, made when missing, and the first spec whose
-- queue is full.  Locks as ojs_queue_ensure.
create or replace function queen.jobs_queues(p_tenant uuid, p_specs queen.job_spec[],
	t timestamptz, out p_queue bigint[], out p_full int)
language plpgsql volatile as $$
declare
	l_names text[]; l_id bigint[]; l_max bigint[]; l_map jsonb;
begin
	select array_agg(distinct s.queue) into l_names from unnest(p_specs) s;
	select array_agg(e.queue_id), array_agg(e.max_jobs),
		jsonb_object_agg(e.name, e.queue_id)
	into l_id, l_max, l_map
	from queen.ojs_queue_ensure(p_tenant, l_names, t) e;
	if cardinality(l_id) = 1 then
		p_queue := array_fill(l_id[1], array[cardinality(p_specs)]);
	else
		select array_agg((l_map ->> s.queue)::bigint order by s.ord) into p_queue
		from unnest(p_specs) with ordinality s(id, type, queue, doc, rank,
			max_attempts, due_at, pending, expires_at, timeout_ms, lease_ms,
			policy, uniq, rate, ord);
	end if;
	if num_nonnulls(variadic l_max) > 0 then
		select min(c.first) into p_full
		from (select k.id, min(k.ord)::int first, count(*) n
			from unnest(p_queue) with ordinality k(id, ord) group by k.id) c
		cross join lateral (select m.most from unnest(l_id, l_max) m(id, most)
			where m.id = c.id and m.most is not null limit 1) m
		where queen.jobs_full(c.id, m.most, c.n, t);
	end if;
end $$;

-- Inside: the first spec that another job keeps from its id, with that job.  40001 when
-- that was deleted meanwhile: to be called again.
create or replace function queen.jobs_taken(p_tenant uuid, p_specs queen.job_spec[],
	p_first int)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	l_at int; l_id uuid; j queen.jobs;
begin
	select s.ord, s.id into l_at, l_id
	from (select u.id, u.ord,
			row_number() over (partition by u.id order by u.ord) nth
		from unnest(p_specs) with ordinality u(id, type, queue, doc, rank,
			max_attempts, due_at, pending, expires_at, timeout_ms, lease_ms,
			policy, uniq, rate, ord)) s
	where s.nth > 1 or exists (select from queen.jobs x
		where x.tenant = p_tenant and x.id = s.id
			and x.xmin <> pg_current_xact_id()::xid)
	order by s.ord limit 1;
	if l_at is null then
		raise exception 'queen.jobs_taken: the job is gone'
			using errcode = '40001';
	end if;
	select x.* into j from queen.jobs x where x.tenant = p_tenant and x.id = l_id;
	j.id := l_id;
	return query select f.*
	from queen.job_show(3, p_first - 1 + l_at, j, null) f;
end $$;

-- Inside: puts one spec that wants to be unique; its key's lock is held.  A job that a
-- workflow holds cannot be replaced and is nothing to answer with, as nobody sees it;
-- nor can one that the workflow of the spec has put: it would end that workflow.
create or replace function queen.jobs_put_unique(p_tenant uuid, s queen.job_spec,
	p_idx int, p_queue bigint, p_held boolean, p_workflow uuid, t timestamptz)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	p jsonb := s.uniq::jsonb;
	k bytea := queen.job_unique_key(p ->> 'key');
	j queen.jobs := queen.jobs_unique(p_tenant, k, p, t);
	l_made queen.jobs[]; l_live boolean; l_kept boolean; l_sched text;
begin
	l_live := j.id is not null and queen.job_state(j.state, j.due_at,
		j.expires_at, t) not in (5, 6, 7);
	l_kept := j.state = 8 or j.workflow_id = p_workflow;
	if j.id is not null and (l_kept or p ->> 'on' in ('reject', 'ignore')) then
		j := queen.job_at(j, t);
		return query select f.* from queen.job_show(case
			when l_kept or p ->> 'on' = 'reject' then 4 else 5 end,
			p_idx, j, null) f;
		return;
	end if;
	if l_live then
		perform queen.jobs_cancel_v1(p_tenant, j.id, t);
		if p ->> 'on' = 'replace_except_schedule' and j.state in (2, 4)
			and j.due_at > t then
			l_sched := substring(j.doc from '^"scheduled_at":"[^"]*"');
			s.due_at := j.due_at;
			s.doc := concat_ws(',', l_sched, nullif(regexp_replace(s.doc,
				'^"scheduled_at":"[^"]*",?', ''), ''));
		end if;
	end if;
	l_made := queen.jobs_insert(p_tenant, array[s], array[p_queue], k, p_held,
		p_workflow, t);
	if l_made is null then
		return query select f.*
		from queen.jobs_taken(p_tenant, array[s], p_idx) f;
	else
		return query select f.*
		from queen.job_show(0, p_idx, l_made[1], null) f;
	end if;
end $$;

-- Inside: locks the unique keys of specs, in one order for all: once in a transaction.
-- 55P03 after 1 s, as who waits keeps a connection from others.
create or replace function queen.jobs_lock_keys(p_tenant uuid, p_specs queen.job_spec[])
returns void
language plpgsql volatile as $$
begin
	perform set_config('lock_timeout', '1s', true);
	perform pg_advisory_xact_lock(k.lock)
	from (select distinct hashtextextended(p_tenant::text
			|| (u.uniq::jsonb ->> 'key'), 66341) as lock
		from unnest(p_specs) u where u.uniq is not null order by 1) k;
end $$;

-- Inside: puts jobs, all or none: a row per element in order (verdict 0, or 5: the
-- job it would have repeated), or a last row of verdict 3 (id used), 4 (unique) or
-- 6 (quota): the caller has to roll back.  p_held: state 8, for a workflow.
-- Locks the queues shared, then unique keys; waits for who puts the same id or key.
create or replace function queen.jobs_put(p_tenant uuid, p_specs queen.job_spec[],
	p_held boolean, p_workflow uuid, p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	-- first, for jobs_events_v1
	l_xid xid8 := pg_current_xact_id();
	t timestamptz := coalesce(p_now, clock_timestamp());
	n int := cardinality(p_specs); l_queue bigint[]; l_at int; l_made queen.jobs[];
	j queen.jobs; o queen.job_out;
begin
	select q.p_queue, q.p_full into l_queue, l_at
	from queen.jobs_queues(p_tenant, p_specs, t) q;
	if l_at is not null then
		j.id := p_specs[l_at].id;
		j.queue_id := l_queue[l_at];
		return query select f.* from queen.job_show(6, l_at, j, null) f;
		return;
	end if;
	if not exists (select from unnest(p_specs) u where u.uniq is not null) then
		l_made := queen.jobs_insert(p_tenant, p_specs, l_queue, null, p_held,
			p_workflow, t);
		if cardinality(l_made) = n then
			return query select f.*
			from (select m as j, row_number() over () as n
				from unnest(l_made) m) x
			cross join lateral queen.job_show(0, x.n::int, x.j, null) f;
		else
			return query select f.*
			from queen.jobs_taken(p_tenant, p_specs, 1) f;
		end if;
		return;
	end if;
	perform queen.jobs_lock_keys(p_tenant, p_specs);
	for i in 1..n loop
		if p_specs[i].uniq is not null then
			select f.* into o from queen.jobs_put_unique(p_tenant, p_specs[i],
				i, l_queue[i], p_held, p_workflow, t) f;
		else
			l_made := queen.jobs_insert(p_tenant, p_specs[i:i],
				l_queue[i:i], null, p_held, p_workflow, t);
			if l_made is null then
				select f.* into o
				from queen.jobs_taken(p_tenant, p_specs[i:i], i) f;
			else
				select f.* into o
				from queen.job_show(0, i, l_made[1], null) f;
			end if;
		end if;
		return next o;
		if o.verdict not in (0, 5) then
			return;
		end if;
	end loop;
end $$;

-- What a push of a client asks for: jobs_put, of arrays as long as each other.
-- One row of a failing verdict alone, instead of all others.
create or replace function queen.jobs_push_v1(p_tenant uuid, p_id uuid[], p_type text[],
	p_queue text[], p_doc text[], p_rank smallint[], p_max_attempts int[],
	p_due timestamptz[], p_pending boolean[], p_expires timestamptz[],
	p_timeout_ms bigint[], p_lease_ms bigint[], p_policy text[], p_uniq text[],
	p_rate text[], p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	l_specs queen.job_spec[];
begin
	select array_agg(row(s.*)::queen.job_spec) into l_specs
	from unnest(p_id, p_type, p_queue, p_doc, p_rank, p_max_attempts, p_due,
		p_pending, p_expires, p_timeout_ms, p_lease_ms, p_policy, p_uniq,
		p_rate) s;
	return query with put as materialized (select f.*
		from queen.jobs_put(p_tenant, l_specs, false, null, p_now) f)
	select p.* from put p where p.verdict not in (0, 5)
		or not exists (select from put x where x.verdict not in (0, 5));
end $$;
