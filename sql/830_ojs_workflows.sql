-- SPDX-License-Identifier: Apache-2.0
-- Workflows of queen-ojs: chains, groups, and batches with callbacks.
--
-- All jobs are put when the workflow is made.  Those that wait are held (state
-- 8: nobody sees them) and released by the transaction in which the job before
-- them ends.  A member counts at its first end: what an operator makes of its
-- dead letter is no part of the workflow any more.
--
-- Lock order: jobs that are not held, then the workflow's row, then its held
-- jobs, which nobody else locks.  READ COMMITTED is assumed.
--
-- workflow_create_v1, workflow_get_v1, workflow_list_v1, workflow_cancel_v1,
-- workflow_prune; inside: workflow_job_ended and what follows from it.

create table if not exists queen.ojs_workflows (
	tenant uuid not null,
	id uuid not null,
	kind text not null,			-- chain, group, batch
	name text,
	state smallint not null default 0,	-- 1 completed 2 failed 3 cancelled
	total int not null,			-- members, callbacks not counted
	completed int not null default 0,
	failed int not null default 0,
	created_at timestamptz not null,
	ended_at timestamptz,
	primary key (tenant, id)
);
-- partial, so that nobody looks for an id in it
create index if not exists ojs_workflows_list on queen.ojs_workflows
	(tenant, created_at, id) where created_at is not null;
create index if not exists ojs_workflows_ended on queen.ojs_workflows (ended_at)
	where ended_at is not null;

create table if not exists queen.ojs_workflow_jobs (
	tenant uuid not null,
	workflow_id uuid not null,
	idx int not null,			-- 1-based, as sent
	role text not null,			-- step, job, on_complete, ...
	job_id uuid not null,
	pending boolean not null,		-- what it is when released
	ended smallint,				-- state of its first end
	result text,				-- of that, for the jobs behind it
	primary key (tenant, workflow_id, idx)
);
-- held jobs of a queue that is dropped
create index if not exists jobs_held on queen.jobs (queue_id) where state = 8;
-- the one index for the row of a job: what names the workflow as well says
-- `(... = ...) is true`, or small tables make plans that read all of it
create index if not exists ojs_workflow_jobs_job on queen.ojs_workflow_jobs (job_id);

-- Inside: the results of the members before p_idx in their order, a JSON array; null for
-- one that has none.  More than 16 MiB is more than a job shall carry: what is over is
-- null.  Each is stored once, however many jobs are shown it.
create or replace function queen.workflow_results(p_tenant uuid, p_workflow uuid,
	p_idx int)
returns text
language plpgsql stable as $$
begin
	return (select '[' || string_agg(case when r.sum <= 16777216 then r.result
			else 'null' end, ',' order by r.idx) || ']'
		from (select m.idx, coalesce(m.result, 'null') as result,
				coalesce(sum(length(m.result)) over (order by m.idx), 0) as sum
			from queen.ojs_workflow_jobs m
			where m.tenant = p_tenant and m.workflow_id = p_workflow
				and m.idx < p_idx and m.role in ('step', 'job')) r);
end $$;

-- Inside: held jobs become what they were put as, as if they were pushed now; those
-- that are available, as an answer.  The caller has the workflow's lock.
create or replace function queen.workflow_release(p_tenant uuid, p_workflow uuid,
	p_roles text[], p_idx int, t timestamptz)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	m record; l_job queen.jobs;
begin
	for m in select x.idx, x.job_id, x.pending from queen.ojs_workflow_jobs x
		where x.tenant = p_tenant and x.workflow_id = p_workflow
			and x.role = any (p_roles) and (p_idx is null or x.idx = p_idx)
		order by x.idx
	loop
		update queen.jobs j set created_at = t, parents_of = p_workflow,
			state = case when m.pending then 4 when j.due_at > t then 2
				else 0 end,
			enqueued_at = case when not m.pending
				and (j.due_at > t) is not true then t end
		where j.tenant = p_tenant and j.id = m.job_id and j.state + 0 = 8
		returning j.* into l_job;
		if l_job.state = 0 then
			l_job.parents_of := null;	-- for who fetches it
			return query select f.*
			from queen.job_show(0, m.idx, l_job, 8::smallint) f;
		end if;
	end loop;
end $$;

-- Inside: a workflow is over.  Its held jobs never run: they are cancelled.
create or replace function queen.workflow_end(p_tenant uuid, p_workflow uuid,
	p_state int, t timestamptz)
returns void
language plpgsql volatile as $$
begin
	update queen.ojs_workflows w set state = p_state, ended_at = t
	where w.tenant = p_tenant and w.id = p_workflow;
	update queen.jobs j set state = 6, ended_at = t
	where j.ctid = any (array(select x.row from queen.ojs_workflow_jobs m
		cross join lateral (select h.ctid as row from queen.jobs h
			where h.tenant = p_tenant and h.id = m.job_id
				and h.state + 0 = 8 limit 1) x
		where m.tenant = p_tenant and m.workflow_id = p_workflow));
end $$;

-- Inside: what follows from the end of member p_idx, counted already: jobs that became
-- available.
create or replace function queen.workflow_advance(w queen.ojs_workflows, p_idx int,
	t timestamptz)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	l_failed boolean := w.failed > 0;
begin
	if w.kind = 'chain' and not l_failed and p_idx < w.total then
		return query select f.* from queen.workflow_release(w.tenant, w.id,
			'{step}', p_idx + 1, t) f;
		return;
	end if;
	if w.kind <> 'chain' and w.completed + w.failed < w.total then
		return;
	end if;
	if w.kind = 'batch' then
		return query select f.* from queen.workflow_release(w.tenant, w.id,
			array['on_complete', case when l_failed then 'on_failure'
				else 'on_success' end],
			null, t) f;
	end if;
	perform queen.workflow_end(w.tenant, w.id, case when l_failed then 2 else 1 end,
		t);
end $$;

-- A job of a workflow has ended: its row is written, in this transaction.  Counts it
-- once, and advances the workflow: a row per job that became available.  Locks the
-- workflow's row, then its held jobs.
create or replace function queen.workflow_job_ended(p_tenant uuid, p_workflow uuid,
	p_id uuid, p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	w queen.ojs_workflows; j queen.jobs; l_idx int; l_role text;
begin
	select x.* into w from queen.ojs_workflows x
	where x.tenant = p_tenant and x.id = p_workflow for update;
	if not found then
		return;
	end if;
	select x.* into j from queen.jobs x
	where x.tenant = p_tenant and x.id = p_id and x.state + 0 in (5, 6, 7);
	update queen.ojs_workflow_jobs m set ended = j.state, result = case
		when j.state = 5 and w.kind <> 'group' then j.result end
	where m.job_id = p_id and (m.tenant = p_tenant) is true
		and (m.workflow_id = p_workflow) is true
		and m.ended is null and j.state is not null
	returning m.idx, m.role into l_idx, l_role;
	if l_idx is null or l_role not in ('step', 'job') then
		return;
	end if;
	update queen.ojs_workflows x set
		completed = x.completed + (j.state = 5)::int,
		failed = x.failed + (j.state <> 5)::int
	where x.tenant = p_tenant and x.id = p_workflow
	returning x.* into w;
	if w.state = 0 then
		return query select f.* from queen.workflow_advance(w, l_idx, t) f;
	end if;
end $$;

-- Makes a workflow of p_kind with jobs in order (members, then callbacks), each with
-- its role and the members of queen.job_spec.  Rows: as queen.jobs_push_v1, the jobs
-- that wait in state 8; or one of a failing verdict: the caller has to roll back.
-- Locks as queen.jobs_put.
create or replace function queen.workflow_create_v1(p_tenant uuid, p_workflow uuid,
	p_kind text, p_name text, p_role text[], p_id uuid[], p_type text[],
	p_queue text[], p_doc text[], p_rank smallint[], p_max_attempts int[],
	p_due timestamptz[], p_pending boolean[], p_expires timestamptz[],
	p_timeout_ms bigint[], p_lease_ms bigint[], p_policy text[], p_uniq text[],
	p_rate text[], p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	l_xid xid8 := pg_current_xact_id();	-- first, for jobs_events_v1
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_specs queen.job_spec[]; l_out queen.job_out[] := '{}'; l_now int; o queen.job_out;
	l_total int := cardinality(array_positions(p_role, 'step'))
		+ cardinality(array_positions(p_role, 'job'));
begin
	select u.id into o.id from unnest(p_id) u(id)
	group by u.id having count(*) > 1 limit 1;
	if found then
		o.verdict := 3;
		return next o;
		return;
	end if;
	select array_agg(row(s.*)::queen.job_spec) into l_specs
	from unnest(p_id, p_type, p_queue, p_doc, p_rank, p_max_attempts, p_due,
		p_pending, p_expires, p_timeout_ms, p_lease_ms, p_policy, p_uniq,
		p_rate) s;
	l_now := case when p_kind = 'chain' then 1 else l_total end;
	-- all at once, each in one order: the jobs are put in two calls
	perform queen.ojs_queue_ensure(p_tenant, p_queue, t);
	perform queen.jobs_lock_keys(p_tenant, l_specs);
	insert into queen.ojs_workflows (tenant, id, kind, name, total, created_at)
	values (p_tenant, p_workflow, p_kind, p_name, l_total, t);
	insert into queen.ojs_workflow_jobs (tenant, workflow_id, idx, role, job_id, pending)
	select p_tenant, p_workflow, u.ord, u.role, u.id, u.pending
	from unnest(p_role, p_id, p_pending) with ordinality u(role, id, pending, ord);
	for o in select f.* from queen.jobs_put(p_tenant, l_specs[:l_now], false,
			p_workflow, t) f
		union all
		select f.* from queen.jobs_put(p_tenant, l_specs[l_now + 1:], true,
			p_workflow, t) f where l_now < cardinality(p_id)
	loop
		if o.verdict <> 0 then
			-- a job that is there already belongs to somebody else
			o.verdict := case when o.verdict = 5 then 4 else o.verdict end;
			o.workflow_id := nullif(o.workflow_id, p_workflow);
			return query select (o).*;
			return;
		end if;
		l_out := l_out || o;
	end loop;
	return query select (x.u).* from (select unnest(l_out) as u) x;
end $$;

-- A workflow: a row per job in order, of all what is known of both; no row: no such
-- workflow.  Type and queue are null for a job that is not kept any more.  No locks.
create or replace function queen.workflow_get_v1(p_tenant uuid, p_workflow uuid,
	p_now timestamptz default null)
returns table (id uuid, kind text, name text, state smallint, total int, completed int,
	failed int, created_at timestamptz, ended_at timestamptz, role text, job_id uuid,
	type text, queue text, job_state smallint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
begin
	return query
	select w.id, w.kind, w.name, w.state, w.total, w.completed, w.failed,
		w.created_at, w.ended_at, m.role, m.job_id, j.type, j.queue,
		coalesce(j.state, m.ended, 6::smallint)
	from queen.ojs_workflows w
	cross join lateral (select y.* from queen.ojs_workflow_jobs y
		where y.tenant = p_tenant and y.workflow_id = p_workflow offset 0) m
	left join lateral (select x.type, q.name::text as queue, queen.job_state(
			x.state, x.due_at, x.expires_at, t) as state
		from (select y.* from queen.jobs y
			where y.tenant = p_tenant and y.id = m.job_id limit 1) x
		cross join lateral (select z.name, z.deleted_at from queen.ojs_queues z
			where z.id = x.queue_id limit 1) q
		where q.deleted_at is null) j on true
	where w.tenant = p_tenant and w.id = p_workflow
	order by m.idx;
end $$;

-- Workflows, the newest first, after (p_after_at, p_after_id) or from p_offset on:
-- first a row with their overall number alone, then up to p_limit of them.  No locks.
create or replace function queen.workflow_list_v1(p_tenant uuid,
	p_after_at timestamptz, p_after_id uuid, p_offset bigint, p_limit int,
	p_now timestamptz default null)
returns table (id uuid, kind text, name text, state smallint, total int, completed int,
	failed int, created_at timestamptz, ended_at timestamptz, overall bigint)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	select count(*) into overall from queen.ojs_workflows w where w.tenant = p_tenant;
	return next;
	return query
	select w.id, w.kind, w.name, w.state, w.total, w.completed, w.failed,
		w.created_at, w.ended_at, null::bigint
	from queen.ojs_workflows w
	where w.tenant = p_tenant and w.created_at <= coalesce(p_after_at, 'infinity')
		and (w.created_at, w.id) < (
		coalesce(p_after_at, 'infinity'), coalesce(p_after_id,
			'ffffffff-ffff-ffff-ffff-ffffffffffff'))
	order by w.created_at desc, w.id desc offset p_offset limit p_limit;
end $$;

-- Inside: locks the jobs of a workflow that wait to run, and then the workflow.
-- Answers those jobs; null: no such workflow.  55P03 in the rare case that a job
-- was released in between and somebody else has it: to be called again.
create or replace function queen.workflow_lock(p_tenant uuid, p_workflow uuid)
returns uuid[]
language plpgsql volatile as $$
declare
	l_ids uuid[]; l_id uuid;
begin
	l_ids := array(select x.id from (select m.job_id from queen.ojs_workflow_jobs m
			where m.tenant = p_tenant and m.workflow_id = p_workflow
				and m.ended is null
			order by m.job_id) m
		cross join lateral (select j.id from queen.jobs j
			where j.tenant = p_tenant and j.id = m.job_id
				and j.state + 0 in (0, 2, 3, 4) for update) x);
	perform from queen.ojs_workflows w
	where w.tenant = p_tenant and w.id = p_workflow for update;
	if not found then
		return null;
	end if;
	for l_id in
		select x.id from queen.ojs_workflow_jobs m
		cross join lateral (select j.id from queen.jobs j
			where j.tenant = p_tenant and j.id = m.job_id
				and j.state + 0 in (0, 2, 3, 4) limit 1) x
		where m.tenant = p_tenant and m.workflow_id = p_workflow
			and m.ended is null
			and not exists (select from unnest(l_ids) u(id)
				where u.id = m.job_id)
	loop
		perform from queen.jobs j
		where j.tenant = p_tenant and j.id = l_id for update nowait;
		l_ids := l_ids || l_id;
	end loop;
	return l_ids;
end $$;

-- Inside: what queen.jobs_cancel_v1 does to one job, to these, which the caller has
-- locked; and what is counted of it.
create or replace function queen.workflow_cancel_jobs(p_tenant uuid, p_workflow uuid,
	p_ids uuid[], t timestamptz)
returns void
language plpgsql volatile as $$
begin
	with gone as (
		update queen.jobs j set state = 6, ended_at = t,
			previous_state = queen.job_state(j.state, j.due_at,
				j.expires_at, t)
		where j.ctid = any (array(select x.row from unnest(p_ids) u(id)
			cross join lateral (select y.ctid as row from queen.jobs y
				where y.tenant = p_tenant and y.id = u.id
					and y.state + 0 in (0, 2, 3, 4)
					and (y.expires_at is null
						or y.expires_at > t) limit 1) x))
		returning j.id
	), told as (
		update queen.ojs_workflow_jobs m set ended = 6
		where m.ctid = any (array(select x.row from gone
			cross join lateral (select y.ctid as row
				from queen.ojs_workflow_jobs y
				where y.job_id = gone.id
					and (y.tenant = p_tenant) is true
					and (y.workflow_id = p_workflow) is true
				limit 1) x))
		returning m.role
	)
	update queen.ojs_workflows w set failed = w.failed + (select count(*) from told
		where role in ('step', 'job'))
	where w.tenant = p_tenant and w.id = p_workflow;
end $$;

-- Cancels a workflow that runs, with all its jobs but those that are worked on: these
-- finish.  Rows as queen.workflow_get_v1, with verdict 0, or 2: it is over already.
create or replace function queen.workflow_cancel_v1(p_tenant uuid, p_workflow uuid,
	p_now timestamptz default null)
returns table (id uuid, kind text, name text, state smallint, total int, completed int,
	failed int, created_at timestamptz, ended_at timestamptz, role text, job_id uuid,
	type text, queue text, job_state smallint, verdict smallint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	l_xid xid8 := pg_current_xact_id();	-- first, for jobs_events_v1
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_ids uuid[]; l_verdict smallint := 2;
begin
	l_ids := queen.workflow_lock(p_tenant, p_workflow);
	if exists (select from queen.ojs_workflows w
			where w.tenant = p_tenant and w.id = p_workflow and w.state = 0) then
		l_verdict := 0;
		perform queen.workflow_end(p_tenant, p_workflow, 3, t);
		perform queen.workflow_cancel_jobs(p_tenant, p_workflow, l_ids, t);
	end if;
	return query
	select g.*, l_verdict from queen.workflow_get_v1(p_tenant, p_workflow, t) g;
end $$;

-- Inside: rows of jobs whose queue was dropped: to their workflows they are cancelled,
-- but for those that ended.  How many there were.  Workflows and jobs that others
-- hold are passed over.
create or replace function queen.workflow_jobs_gone(p_rows tid[], t timestamptz)
returns bigint
language plpgsql volatile as $$
declare
	m record; l_id uuid; l_n bigint := 0;
begin
	for m in
		select j.tenant, j.workflow_id, array_agg(j.id order by j.id) as ids
		from (select x.* from queen.jobs x where x.ctid = any (p_rows)
			offset 0) j
		cross join lateral (select from queen.ojs_workflow_jobs k
			where k.job_id = j.id and (k.tenant = j.tenant) is true
				and (k.workflow_id = j.workflow_id) is true
				and k.ended is null limit 1) k
		group by j.tenant, j.workflow_id
	loop
		perform from queen.ojs_workflows w
		where w.tenant = m.tenant and w.id = m.workflow_id for update skip locked;
		continue when not found;
		update queen.jobs j set state = 6, ended_at = t, lease_until = null,
			wake_at = null
		where j.ctid = any (array(select x.row from unnest(m.ids) u(id)
			cross join lateral (select y.ctid as row from queen.jobs y
				where y.tenant = m.tenant and y.id = u.id
					and y.state + 0 not in (5, 6, 7)
				for update skip locked) x));
		foreach l_id in array m.ids loop
			perform queen.workflow_job_ended(m.tenant, m.workflow_id, l_id, t);
			l_n := l_n + 1;
		end loop;
	end loop;
	return l_n;
end $$;

-- Inside: jobs of these members that may run again keep for themselves what comes
-- before them.
create or replace function queen.workflow_leave(p_rows tid[])
returns void
language plpgsql volatile as $$
begin
	update queen.jobs j set parents_of = null,
		parents = queen.workflow_parents(j.tenant, j.parents_of, j.id)
	where j.ctid = any (array(select x.row from queen.ojs_workflow_jobs m
		cross join lateral (select y.ctid as row from queen.jobs y
			where y.tenant = m.tenant and y.id = m.job_id
				and y.state + 0 not in (5, 6)
				and y.parents_of = m.workflow_id limit 1) x
		where m.ctid = any (p_rows)));
end $$;

-- Removes workflows that ended more than seven days ago: up to p_limit of them and of
-- the rows of their jobs; how many rows.  One with more jobs goes in several calls, from
-- its end on.
create or replace function queen.workflow_prune(p_limit int, t timestamptz)
returns bigint
language plpgsql volatile as $$
declare
	l_old tid[]; l_rows tid[]; l_jobs bigint; n bigint;
begin
	l_old := array(select w.ctid from queen.ojs_workflows w
		where w.ended_at < t - interval '7 days'
		order by w.ended_at limit p_limit for update skip locked);
	l_rows := array(select m.row from queen.ojs_workflows w
		cross join lateral (select x.ctid as row from queen.ojs_workflow_jobs x
			where x.tenant = w.tenant and x.workflow_id = w.id
			order by x.idx desc limit p_limit) m
		where w.ctid = any (l_old) limit p_limit);
	perform queen.workflow_leave(l_rows);
	delete from queen.ojs_workflow_jobs d where d.ctid = any (l_rows);
	get diagnostics l_jobs = row_count;
	delete from queen.ojs_workflows w where w.ctid = any (l_old)
		and (select true from queen.ojs_workflow_jobs m
			where m.tenant = w.tenant and m.workflow_id = w.id limit 1) is null;
	get diagnostics n = row_count;
	return l_jobs + n;
end $$;
