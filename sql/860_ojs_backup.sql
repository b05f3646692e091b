-- SPDX-License-Identifier: Apache-2.0
-- A queue of queen-ojs as lines of text, one JSON object `{"KIND":ROW}` each, and
-- back: its configuration, jobs, recurring jobs, workflows and stream (859).
--
-- ojs_backup_v1; ojs_restore_begin_v1, ojs_restore_v1, ojs_restore_end_v1; inside:
-- ojs_backup_line, ojs_backup_job, ojs_restore_put, ojs_restore_jobs,
-- ojs_restore_workflows, ojs_restore_crons.
--
-- A backup is read in one transaction that is repeatable read, through cursors,
-- so that neither side holds it in memory.  A restore is one transaction that is
-- read committed; its caller rolls back when a verdict is not 0.

-- Inside: a line.
create or replace function queen.ojs_backup_line(p_kind text, p_row json)
returns text
language sql immutable as $$
	select '{"' || p_kind || '":' || p_row::text || '}'
$$;

-- Inside: a job as it comes back.  Leases do not: an active one is available again,
-- its attempt counted.  Without its workflow, one that was held waits for activate.
create or replace function queen.ojs_backup_job(j queen.jobs, p_workflow uuid)
returns queen.jobs
language plpgsql stable as $$
begin
	if j.state = 1 then
		j.state := 0;
		j.enqueued_at := coalesce(j.enqueued_at, j.created_at);
		j.started_at := null;
		j.lease_until := null;
		j.wake_at := null;
		j.granted_ms := null;
		j.worker := null;
		j.due_at := null;
		j.retry_delay_ms := null;
	elsif j.state = 8 and p_workflow is null then
		j.state := 4;
	end if;
	if j.parents_of <> p_workflow or p_workflow is null and j.parents_of is not null then
		j.parents := queen.workflow_parents(j.tenant, j.parents_of, j.id);
		j.parents_of := null;
	end if;
	j.workflow_id := p_workflow;
	return j;
end $$;

-- A queue as cursors, whose rows, one after the other, are the lines; no row: no
-- such queue.  Workflows are in it when no job of theirs is in another queue; the
-- header has the number of the others, whose jobs come back without.
-- 25000 unless the transaction is repeatable read; 40001 as stream_backup_lock.
create or replace function queen.ojs_backup_v1(p_tenant uuid, p_queue text)
returns table (kind text, lines refcursor)
language plpgsql volatile
set enable_seqscan = on set enable_nestloop = off set enable_mergejoin = off as $$
declare
	q queen.ojs_queues; l_whole uuid[]; l_split bigint;
begin
	if current_setting('transaction_isolation') <> 'repeatable read' then
		raise exception 'a backup needs a transaction that is repeatable read'
			using errcode = '25000';
	end if;
	select x.* into q from queen.ojs_queues x
	where x.tenant = p_tenant and x.name = p_queue collate "C" and x.deleted_at is null;
	if q.id is null then
		return;
	end if;
	with o as (select m.workflow_id as id, bool_and(j.queue_id = q.id) as whole
		from queen.ojs_workflow_jobs m
		join queen.jobs j on j.tenant = m.tenant and j.id = m.job_id
		where m.tenant = p_tenant group by m.workflow_id
		having bool_or(j.queue_id = q.id))
	select array_agg(o.id) filter (where o.whole), count(*) filter (where not o.whole)
	into l_whole, l_split
	from o join queen.ojs_workflows w on w.tenant = p_tenant and w.id = o.id;
	kind := 'header';
	open lines for select queen.ojs_backup_line('header', row_to_json(h)) from (
		select 1 as version, q.name as queue, lpad(to_hex(c.tag), 12, '0') as cell,
			now() as at, l_split as split_workflows from queen.cell c) h;
	return next;
	kind := 'queue';
	lines := null;
	open lines for select queen.ojs_backup_line('queue', row_to_json(x)) from (
		select q.created_at, q.paused_at, q.visibility_timeout_ms, q.job_retention_ms,
			q.dead_letter_retention_ms, q.dead_letter_max, q.max_jobs,
			q.max_events) x;
	return next;
	kind := 'workflow';
	lines := null;
	open lines for select queen.ojs_backup_line('workflow', row_to_json(x)) from (
		select w as row, (select ('[' || string_agg(row_to_json(m)::text, ','
				order by m.idx) || ']')::json
			from queen.ojs_workflow_jobs m
			where m.tenant = w.tenant and m.workflow_id = w.id) as jobs
		from unnest(l_whole) u(id)
		join queen.ojs_workflows w on w.tenant = p_tenant and w.id = u.id) x;
	return next;
	kind := 'job';
	lines := null;
	open lines for select queen.ojs_backup_line('job',
			row_to_json(queen.ojs_backup_job(j, w.id)))
		from queen.jobs j
		left join unnest(l_whole) w(id) on w.id = j.workflow_id
		where j.tenant = p_tenant and j.queue_id = q.id order by j.seq;
	return next;
	kind := 'cron';
	lines := null;
	open lines for select queen.ojs_backup_line('cron', row_to_json(k))
		from queen.ojs_crons k where k.tenant = p_tenant and k.queue = q.name;
	return next;
	kind := 'rate';
	lines := null;
	open lines for select queen.ojs_backup_line('rate', row_to_json(r))
		from queen.ojs_rates r where r.queue_id = q.id;
	return next;
	return query select s.* from queen.stream_backup(q.id, q.stream_at is not null) s;
end $$;

-- Makes the queue a header speaks of, or that of p_name (null = the header's).
-- verdict 0 = queue_id; 1 there is one already; 2 what is no header of ours; what =
-- its name, or why not.
-- Locks: those of ojs_queue_ensure, and the new name until the end.
create or replace function queen.ojs_restore_begin_v1(p_tenant uuid, p_name text,
	p_header text, p_now timestamptz default null)
returns table (verdict smallint, queue_id bigint, what text)
language plpgsql volatile as $$
declare
	l_head json; l_made boolean;
begin
	perform queen.stream_isolation();
	verdict := 2;
	begin
		l_head := p_header::json -> 'header';
	exception when data_exception then
		null;
	end;
	if l_head ->> 'version' is null then
		what := 'this is no backup of a queue';
	elsif l_head ->> 'version' <> '1' then
		what := format('version %s is not known, only 1', l_head ->> 'version');
	else
		what := coalesce(p_name, l_head ->> 'queue', '');
		verdict := case when what ~ '^[a-z0-9][a-z0-9.-]*$' and length(what) <= 128
			then 0 else 2 end;
	end if;
	if verdict = 0 then
		select e.queue_id, e.created into ojs_restore_begin_v1.queue_id, l_made
		from queen.ojs_queue_ensure(p_tenant, array[what], p_now) e;
		verdict := case when l_made then 0 else 1 end;
	elsif p_name is not null and what = p_name then
		what := 'a queue''s name must match ^[a-z0-9][a-z0-9.-]*$ and have at most 128 characters';
	end if;
	return next;
end $$;

-- Inside: the text of a JSON object with this member in its place, or at the end; the
-- values of all others as they were written.
create or replace function queen.ojs_restore_member(p_object text, p_key text, p_value text)
returns text
language sql immutable as $$
	select '{' || string_agg(to_json(e.key) || ':' || e.value, ',' order by e.ord) || '}'
	from (select m.key, case when m.key = p_key then p_value else m.value::text end, m.ord
		from json_each(p_object::json) with ordinality m(key, value, ord)
		union all
		select p_key, p_value, null
		where (p_object::json -> p_key) is null) e(key, value, ord)
$$;

-- Inside: a recurring job's members as they are shown, in a queue of another name.
-- json does not take \u0000 and halves of surrogate pairs apart: escapes are written
-- with a noncharacter that the text does not have meanwhile.
create or replace function queen.ojs_restore_shown(p_shown text, p_queue text)
returns text
language plpgsql immutable as $$
declare
	l_mark text; l_shown text; l_options text;
begin
	select chr(c) into l_mark from generate_series(64976, 65007) c
	where position(chr(c) in p_shown) = 0 limit 1;
	l_shown := '{' || replace(replace(regexp_replace(p_shown, '\\(.)', l_mark || '\1', 'g'),
		l_mark || '\', l_mark || 'B'), l_mark || '"', l_mark || 'Q') || '}';
	l_options := queen.ojs_restore_member(coalesce(l_shown::json ->> 'options', '{}'),
		'queue', to_json(p_queue)::text);
	l_shown := queen.ojs_restore_member(l_shown, 'options', l_options);
	l_shown := queen.ojs_restore_member(l_shown, 'job_template', queen.ojs_restore_member(
		coalesce(l_shown::json ->> 'job_template', '{}'), 'options', l_options));
	return replace(replace(replace(substr(left(l_shown, -1), 2), l_mark || 'Q', '\"'),
		l_mark || 'B', '\\'), l_mark, '\');
end $$;

-- Inside: recurring jobs; the first whose name is taken, or null.
create or replace function queen.ojs_restore_crons(p_tenant uuid, p_queue queen.ojs_queues,
	p_docs json[], out idx bigint, out what text)
language sql volatile as $$
	with r as materialized (
		select u.ord, k.*, k.queue = p_queue.name as same
		from unnest(p_docs) with ordinality u(doc, ord)
		cross join lateral json_populate_record(null::queen.ojs_crons, u.doc) k),
	i as (
		insert into queen.ojs_crons (tenant, name, queue, expression, zone, minutes,
			hours, days, months, weekdays, any_day, any_weekday, overlap, enabled,
			shown, template, created_at, changed_at, next_at, look_at, owed,
			last_at, last_job)
		select p_tenant, r.name, p_queue.name, r.expression, r.zone, r.minutes, r.hours,
			r.days, r.months, r.weekdays, r.any_day, r.any_weekday, r.overlap,
			r.enabled, case when r.same then r.shown
				else queen.ojs_restore_shown(r.shown, p_queue.name) end,
			row((r.template).id, (r.template).type, p_queue.name, (r.template).doc,
				(r.template).rank, (r.template).max_attempts,
				(r.template).due_at, (r.template).pending,
				(r.template).expires_at, (r.template).timeout_ms,
				(r.template).lease_ms, (r.template).policy, (r.template).uniq,
				(r.template).rate)::queen.job_spec,
			r.created_at, r.changed_at, r.next_at, r.look_at, r.owed, r.last_at,
			r.last_job
		from r
		on conflict (tenant, name) do nothing
		returning name)
	select r.ord, r.name::text from r
	where r.name not in (select i.name from i) order by r.ord limit 1
$$;

-- Inside: workflows with their members; the first whose id is taken, or null.  One
-- that is over and has no jobs left, as after a drop of its queue, makes room.
create or replace function queen.ojs_restore_workflows(p_tenant uuid, p_docs json[],
	out idx bigint, out what text)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	with gone as (
		delete from queen.ojs_workflows w
		where w.tenant = p_tenant and w.ended_at is not null
			and w.id in (select (u.doc -> 'row' ->> 'id')::uuid
				from unnest(p_docs) u(doc))
			and not exists (select from queen.jobs j where j.workflow_id = w.id
				and (j.tenant = w.tenant) is true)
		returning w.id)
	delete from queen.ojs_workflow_jobs m using gone
	where m.tenant = p_tenant and m.workflow_id = gone.id;
	with r as materialized (
		select u.ord, u.doc, w.*
		from unnest(p_docs) with ordinality u(doc, ord)
		cross join lateral json_populate_record(null::queen.ojs_workflows,
			u.doc -> 'row') w),
	i as (
		insert into queen.ojs_workflows (tenant, id, kind, name, state, total,
			completed, failed, created_at, ended_at)
		select p_tenant, r.id, r.kind, r.name, r.state, r.total, r.completed, r.failed,
			r.created_at, r.ended_at
		from r
		on conflict (tenant, id) do nothing
		returning id),
	m as (
		insert into queen.ojs_workflow_jobs (tenant, workflow_id, idx, role, job_id,
			pending, ended, result)
		select p_tenant, r.id, j.idx, j.role, j.job_id, j.pending, j.ended, j.result
		from r join i on i.id = r.id
		cross join lateral json_populate_recordset(null::queen.ojs_workflow_jobs,
			r.doc -> 'jobs') j)
	select r.ord, r.id::text into ojs_restore_workflows.idx, ojs_restore_workflows.what
	from r where r.id not in (select i.id from i) order by r.ord limit 1;
end $$;

-- Inside: jobs, in order; the first whose id is taken, or null.
create or replace function queen.ojs_restore_jobs(p_tenant uuid, p_queue bigint,
	p_docs json[], out idx bigint, out what text)
language sql volatile as $$
	with r as materialized (
		select u.ord, j.*
		from unnest(p_docs) with ordinality u(doc, ord)
		cross join lateral json_populate_record(null::queen.jobs, u.doc) j),
	i as (
		insert into queen.jobs (tenant, id, queue_id, created_at, enqueued_at,
			started_at, ended_at, failed_at, due_at, expires_at, timeout_ms,
			lease_ms, granted_ms, retry_delay_ms, attempt, max_attempts, state, rank,
			previous_state, ran, dead, has_error, type, worker, rate_key, doc,
			errors, result, parents, parents_of, workflow_id, unique_key, policy,
			rate)
		select p_tenant, r.id, p_queue, r.created_at, r.enqueued_at, r.started_at,
			r.ended_at, r.failed_at, r.due_at, r.expires_at, r.timeout_ms,
			r.lease_ms, r.granted_ms, r.retry_delay_ms, r.attempt,
			r.max_attempts, r.state, r.rank, r.previous_state, r.ran, r.dead,
			r.has_error, r.type, r.worker, r.rate_key, r.doc, r.errors, r.result,
			r.parents,
			r.parents_of, r.workflow_id, r.unique_key, r.policy, r.rate
		from r order by r.ord
		on conflict (tenant, id) do nothing
		returning id)
	select r.ord, r.id::text from r
	where r.id not in (select i.id from i) order by r.ord limit 1
$$;

-- Inside: stores lines of one kind; the first whose id or name is taken, or null.
create or replace function queen.ojs_restore_put(p_tenant uuid, p_queue bigint,
	p_kind text, p_docs json[], t timestamptz, out idx bigint, out what text)
language plpgsql volatile as $$
declare
	q queen.ojs_queues;
begin
	select x.* into q from queen.ojs_queues x where x.id = p_queue;
	if p_kind = 'queue' then
		update queen.ojs_queues w set created_at = r.created_at,
			paused_at = r.paused_at,
			visibility_timeout_ms = r.visibility_timeout_ms,
			job_retention_ms = r.job_retention_ms,
			dead_letter_retention_ms = r.dead_letter_retention_ms,
			dead_letter_max = r.dead_letter_max, max_jobs = r.max_jobs,
			max_events = r.max_events
		from json_populate_record(null::queen.ojs_queues, p_docs[1]) r
		where w.id = p_queue;
	elsif p_kind = 'workflow' then
		select f.* into idx, what from queen.ojs_restore_workflows(p_tenant, p_docs) f;
	elsif p_kind = 'job' then
		select f.* into idx, what
		from queen.ojs_restore_jobs(p_tenant, p_queue, p_docs) f;
	elsif p_kind = 'cron' then
		select f.* into idx, what from queen.ojs_restore_crons(p_tenant, q, p_docs) f;
	elsif p_kind = 'rate' then
		insert into queen.ojs_rates (queue_id, key, taken_at, taken_n, until)
		select p_queue, r.key, r.taken_at, r.taken_n, r.until
		from unnest(p_docs) u(doc)
		cross join lateral json_populate_record(null::queen.ojs_rates, u.doc) r;
	else
		perform queen.stream_restore(p_queue, p_kind, p_docs, t);
	end if;
end $$;

-- Stores lines of one kind, separated by line feeds, into the queue begun.
-- verdict 0; 3 line idx (1-based) cannot be stored: what = why; 4 its id or name,
-- what, is taken in this tenant.
create or replace function queen.ojs_restore_v1(p_tenant uuid, p_queue_id bigint,
	p_kind text, p_lines text, p_now timestamptz default null)
returns table (verdict smallint, idx bigint, what text)
language plpgsql volatile as $$
declare
	l_lines text[] := string_to_array(p_lines, E'\n'); l_n int := cardinality(l_lines);
begin
	begin
		select f.idx, f.what into ojs_restore_v1.idx, ojs_restore_v1.what
		from queen.ojs_restore_put(p_tenant, p_queue_id, p_kind,
			array(select u.line::json -> p_kind from unnest(l_lines)
				with ordinality u(line, ord) order by u.ord),
			coalesce(p_now, clock_timestamp())) f;
		verdict := case when what is null then 0 else 4 end;
		return next;
		return;
	exception when data_exception or integrity_constraint_violation
			or undefined_table or invalid_schema_name then
		verdict := 3;
		idx := 1;
		what := sqlerrm;
	end;
	-- which of them was it?
	for n in 1..case when l_n > 1 then l_n else 0 end loop
		select f.verdict, f.what into verdict, what
		from queen.ojs_restore_v1(p_tenant, p_queue_id, p_kind, l_lines[n], p_now) f;
		idx := n;
		exit when verdict <> 0;
	end loop;
	return next;
end $$;

-- All lines are there.  verdict 0; 3 they do not fit together: what = why.
create or replace function queen.ojs_restore_end_v1(p_tenant uuid, p_queue_id bigint,
	p_now timestamptz default null)
returns table (verdict smallint, what text)
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
begin
	verdict := 0;
	if exists (select from queen.ojs_queues q
			where q.id = p_queue_id and q.stream_at is not null) then
		perform queen.stream_restore_end(p_queue_id, t);
	end if;
	update queen.ojs_queues q set changed_at = t where q.id = p_queue_id;
	return next;
exception when invalid_parameter_value then
	verdict := 3;
	what := sqlerrm;
	return next;
end $$;
