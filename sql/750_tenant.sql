-- SPDX-License-Identifier: Apache-2.0
-- The end of a tenant: everything it stored, in bounded steps.
--
--   tenant_purge_v1(...)       one step; the caller repeats it until it is done
--   tenant_purge_pass_v1(...)  the same, adding up what the steps before it did
--
-- Writes every table with rows of a tenant.  Lock order: timers, the queue's
-- row, partition heads ascending, then what hangs off them; all of them skip
-- what others hold, and a later step takes it.  It is not a lock on the
-- tenant: stop its traffic first.  A table with a column `tenant` that is not
-- named here makes the step fail, so that none is ever forgotten.

-- Only the purge looks for rows by these.  Expressions, because no other query
-- may walk a whole history by them for want of a better plan.
create index if not exists queue_minutes_purge on queen.queue_minutes ((queue_id + 0));
create index if not exists retention_log_purge on queen.retention_log ((queue_id + 0));
create index if not exists repairs_purge on queen.repairs ((queue_id + 0));
create index if not exists traces_purge on queen.traces ((tenant::text));
create index if not exists groups_purge on queen.groups (queue_id) where deleted_at is not null;
create index if not exists queues_purge on queen.queues (tenant, id) where deleted_at is not null;

-- Raises 0A000 when a table holds rows of tenants that the purge does not know.
create or replace function queen.tenant_coverage()
returns void language plpgsql stable as $$
declare
	l_table text;
begin
	select c.relname into l_table
	from pg_catalog.pg_class c
	join pg_catalog.pg_attribute a on a.attrelid = c.oid
		and a.attname = 'tenant' and not a.attisdropped
	where c.relnamespace = 'queen'::regnamespace and c.relkind in ('r', 'p')
		and c.relname not in ('queues', 'traces', 'trace_names', 'kv',
			'kv_quota', 'kv_usage', 'timers', 'connector_status',
			'ojs_queues', 'jobs', 'ojs_crons', 'ojs_workflows',
			'ojs_workflow_jobs')
	limit 1;
	if found then
		raise exception 'queen.tenant_purge_v1: table queen.% is not covered',
			l_table using errcode = '0A000';
	end if;
end $$;

-- Rows removed by table: none yet.
create or replace function queen.tenant_counts()
returns jsonb language sql immutable as $$
	select jsonb_object_agg('queen.' || t, 0)
	from unnest(array['timers', 'segments', 'segment_ids', 'lease_sets',
		'consumers', 'partition_heads', 'partitions', 'dead_letters',
		'queue_minutes', 'retention_log', 'repairs', 'groups', 'queues',
		'trace_names', 'traces', 'kv', 'kv_usage', 'kv_quota',
		'connector_status', 'jobs', 'ojs_crons', 'ojs_workflows',
		'ojs_workflow_jobs', 'ojs_rates', 'ojs_job_counts', 'ojs_streams',
		'ojs_queues']) t
$$;

-- p_rows with p_n more of p_table.
create or replace function queen.tenant_count(p_rows jsonb, p_table text, p_n bigint)
returns jsonb language sql immutable as $$
	select jsonb_set(p_rows, array['queen.' || p_table],
		to_jsonb((p_rows->>('queen.' || p_table))::bigint + p_n), false)
$$;

-- One batch of partitions of a deleted queue, with what hangs off them.  They go
-- when nothing of theirs is left.  p_left is the budget of rows.
create or replace function queen.tenant_parts_step(p_queue bigint,
	inout p_rows jsonb, inout p_left int)
language plpgsql volatile as $$
declare
	l_part bigint[]; n int;
begin
	select array_agg(x.id) into l_part
	from (select h.id from queen.partition_heads h
		where h.id = any (array(select p.id from queen.partitions p
			where p.queue_id = p_queue order by p.id limit 500))
		order by h.id for update skip locked) x;
	delete from queen.segments s where s.ctid = any (array(
		select d.ctid from queen.segments d
		where d.partition_id = any (l_part) limit p_left));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'segments', n);
	p_left := p_left - n;
	delete from queen.segment_ids s where s.ctid = any (array(
		select d.ctid from queen.segment_ids d
		where d.partition_id = any (l_part) limit p_left));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'segment_ids', n);
	p_left := p_left - n;
	delete from queen.lease_sets s where s.ctid = any (array(
		select d.ctid from queen.lease_sets d
		where d.lease_at = any (l_part) limit p_left
		for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'lease_sets', n);
	p_left := p_left - n;
	delete from queen.consumers s where s.ctid = any (array(
		select d.ctid from queen.consumers d
		where d.partition_id = any (l_part) limit p_left
		for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'consumers', n);
	p_left := p_left - n;
	if p_left = 0 or exists (select from queen.consumers c
			where c.partition_id = any (l_part))
			or exists (select from queen.lease_sets l
			where l.lease_at = any (l_part)) then
		return;
	end if;
	delete from queen.partition_heads h where h.id = any (l_part);
	delete from queen.partitions p where p.id = any (l_part);
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(queen.tenant_count(p_rows,
		'partition_heads', n), 'partitions', n);
	p_left := greatest(p_left - n, 0);
end $$;

-- What else hangs off a queue without partitions, then the queue itself.
create or replace function queen.tenant_queue_step(p_queue bigint,
	inout p_rows jsonb, inout p_left int)
language plpgsql volatile as $$
declare
	n int;
begin
	delete from queen.dead_letters d where d.ctid = any (array(
		select x.ctid from queen.dead_letters x
		where x.queue_id = p_queue limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'dead_letters', n);
	p_left := p_left - n;
	delete from queen.queue_minutes m where m.ctid = any (array(
		select x.ctid from queen.queue_minutes x
		where x.queue_id + 0 = p_queue limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'queue_minutes', n);
	p_left := p_left - n;
	delete from queen.retention_log l where l.ctid = any (array(
		select x.ctid from queen.retention_log x
		where x.queue_id + 0 = p_queue limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'retention_log', n);
	p_left := p_left - n;
	delete from queen.repairs r where r.ctid = any (array(
		select x.ctid from queen.repairs x
		where x.queue_id + 0 = p_queue limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'repairs', n);
	p_left := p_left - n;
	update queen.groups g set deleted_at = clock_timestamp()
	where g.queue_id = p_queue and g.deleted_at is null;
	delete from queen.groups g where g.ctid = any (array(
		select x.ctid from queen.groups x
		where x.queue_id = p_queue and x.deleted_at is not null
		limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'groups', n);
	p_left := p_left - n;
	-- what others held is found by the queue's id alone: it waits for all
	if p_left > 0 and not exists (select from queen.groups g
			where g.queue_id = p_queue and g.deleted_at is not null)
			and not exists (select from queen.dead_letters d
			where d.queue_id = p_queue)
			and not exists (select from queen.queue_minutes m
			where m.queue_id + 0 = p_queue)
			and not exists (select from queen.retention_log l
			where l.queue_id + 0 = p_queue)
			and not exists (select from queen.repairs r
			where r.queue_id + 0 = p_queue) then
		perform queen.seal_forget(p_queue);
		delete from queen.queues q where q.id = p_queue;
		p_rows := queen.tenant_count(p_rows, 'queues', 1);
		p_left := p_left - 1;
	end if;
end $$;

-- Its connectors and its sink: documents without which none of the tools works
-- on.  They are rows of the internal tenant.  No bucket is touched.
create or replace function queen.tenant_connectors_step(p_tenant uuid,
	inout p_rows jsonb, inout p_left int)
language plpgsql volatile as $$
declare
	n int; l_low text := queen.connector_key(p_tenant, '');
begin
	delete from queen.kv k where k.ctid = any (array(
		select x.ctid from queen.kv x
		where x.tenant = '00000000-0000-0000-0000-000000000000'
			and x.namespace = 'queen-pg'
			and x.key >= l_low and x.key <= l_low || '~'
		limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'kv', n);
	p_left := p_left - n;
	delete from queen.kv k where k.ctid = any (array(
		select x.ctid from queen.kv x
		where x.tenant = '00000000-0000-0000-0000-000000000000'
			and x.namespace = 'queen-s3' and x.key = 'sink:' || p_tenant
		limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'kv', n);
	p_left := p_left - n;
	delete from queen.connector_status s where s.ctid = any (array(
		select x.ctid from queen.connector_status x
		where x.tenant = p_tenant limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'connector_status', n);
	p_left := p_left - n;
end $$;

-- Up to p_max queues that are marked as deleted.  A queue is given up for this
-- step when nothing of it could be removed: somebody holds the rest.
create or replace function queen.tenant_queues_step(p_tenant uuid, p_max int,
	inout p_rows jsonb, inout p_left int)
language plpgsql volatile as $$
declare
	l_queue bigint; l_after bigint := 0; l_before int; l_deleted int := 0;
begin
	while l_deleted < p_max and p_left > 0 loop
		select q.id into l_queue from queen.queues q
		where q.tenant = p_tenant and q.deleted_at is not null
			and q.id > l_after
		order by q.id limit 1 for update skip locked;
		exit when not found;
		l_before := p_left;
		if exists (select from queen.partitions p
				where p.queue_id = l_queue) then
			select s.p_rows, s.p_left into p_rows, p_left
			from queen.tenant_parts_step(l_queue, p_rows, p_left) s;
		else
			select s.p_rows, s.p_left into p_rows, p_left
			from queen.tenant_queue_step(l_queue, p_rows, p_left) s;
			l_deleted := l_deleted + (not exists (select
				from queen.queues q where q.id = l_queue))::int;
		end if;
		if p_left = l_before then
			l_after := l_queue;
		end if;
	end loop;
end $$;

-- Crons of queen-ojs, then up to p_max of its queues are marked as dropped, each
-- with its stream: schema, locks and all, that is why not more.  A stream that is
-- in use is passed over.
create or replace function queen.tenant_ojs_begin(p_tenant uuid, p_max int,
	inout p_rows jsonb, inout p_left int)
language plpgsql volatile as $$
declare
	l_queue bigint := 0; l_done int := 0; n int;
begin
	delete from queen.ojs_crons c where c.ctid = any (array(
		select x.ctid from queen.ojs_crons x
		where x.tenant = p_tenant limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'ojs_crons', n);
	p_left := p_left - n;
	while l_done < p_max and p_left > 0 loop
		select q.id into l_queue from queen.ojs_queues q
		where q.tenant = p_tenant and q.deleted_at is null and q.id > l_queue
		order by q.id limit 1;
		exit when not found;
		continue when not pg_try_advisory_xact_lock(1869247281,
			queen.stream_key(l_queue));
		select count(*) into n from queen.ojs_streams s
		where s.queue_id = l_queue;
		perform queen.ojs_queue_end(l_queue, clock_timestamp());
		l_done := l_done + 1;
		p_rows := queen.tenant_count(p_rows, 'ojs_streams', n);
		p_left := p_left - n;
	end loop;
end $$;

-- A dropped queue of queen-ojs without jobs, whose lock is held, and its counters.
create or replace function queen.tenant_ojs_queue(p_queue bigint,
	inout p_rows jsonb, inout p_left int)
language plpgsql volatile as $$
declare
	n int;
begin
	delete from queen.ojs_rates r where r.queue_id = p_queue;
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'ojs_rates', n);
	p_left := greatest(p_left - n, 0);
	delete from queen.ojs_job_counts c where c.queue_id = p_queue;
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'ojs_job_counts', n);
	p_left := greatest(p_left - n, 0);
	perform queen.stream_drop(p_queue);
	delete from queen.ojs_queues q where q.id = p_queue;
	p_rows := queen.tenant_count(p_rows, 'ojs_queues', 1);
	p_left := greatest(p_left - 1, 0);
end $$;

-- What is left of queen-ojs when no queue of it is live: workflows, jobs, then the
-- dropped queues that are empty.
create or replace function queen.tenant_ojs_sweep(p_tenant uuid,
	inout p_rows jsonb, inout p_left int)
language plpgsql volatile as $$
declare
	l_queue bigint; n int;
begin
	delete from queen.ojs_workflow_jobs m where m.ctid = any (array(
		select x.ctid from queen.ojs_workflow_jobs x
		where x.tenant = p_tenant limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'ojs_workflow_jobs', n);
	p_left := p_left - n;
	delete from queen.ojs_workflows w where w.ctid = any (array(
		select x.ctid from queen.ojs_workflows x
		where x.tenant = p_tenant limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'ojs_workflows', n);
	p_left := p_left - n;
	delete from queen.jobs j where j.ctid = any (array(
		select x.ctid from queen.jobs x
		where x.tenant = p_tenant limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'jobs', n);
	p_left := p_left - n;
	if exists (select from queen.jobs j where j.tenant = p_tenant) then
		return;
	end if;
	for l_queue in select q.id from queen.ojs_queues q
		where q.tenant = p_tenant and q.deleted_at is not null
			and pg_try_advisory_xact_lock(66341, queen.stream_key(q.id))
		limit p_left
	loop
		select s.p_rows, s.p_left into p_rows, p_left
		from queen.tenant_ojs_queue(l_queue, p_rows, p_left) s;
	end loop;
end $$;

-- Is there a row of queen-ojs with this tenant in it?
create or replace function queen.tenant_ojs_remains(p_tenant uuid)
returns boolean language plpgsql stable as $$
begin
	return exists (select from queen.ojs_queues q where q.tenant = p_tenant
			and q.deleted_at is null)
		or exists (select from queen.ojs_queues q where q.tenant = p_tenant
			and q.deleted_at is not null)
		or exists (select from queen.jobs j where j.tenant = p_tenant)
		or exists (select from queen.ojs_crons c where c.tenant = p_tenant)
		or exists (select from queen.ojs_workflows w where w.tenant = p_tenant)
		or exists (select from queen.ojs_workflow_jobs m
			where m.tenant = p_tenant);
end $$;

-- Rows of a tenant outside its queues.
create or replace function queen.tenant_sweep(p_tenant uuid,
	inout p_rows jsonb, inout p_left int)
language plpgsql volatile as $$
declare
	n int;
begin
	delete from queen.trace_names t where t.ctid = any (array(
		select x.ctid from queen.trace_names x
		where x.tenant = p_tenant limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'trace_names', n);
	p_left := p_left - n;
	delete from queen.traces t where t.ctid = any (array(
		select x.ctid from queen.traces x
		where x.tenant::text = p_tenant::text limit p_left
		for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'traces', n);
	p_left := p_left - n;
	delete from queen.kv k where k.ctid = any (array(
		select x.ctid from queen.kv x
		where x.tenant = p_tenant limit p_left for update skip locked));
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'kv', n);
	p_left := p_left - n;
	delete from queen.kv_usage u where u.tenant = p_tenant;
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'kv_usage', n);
	p_left := greatest(p_left - n, 0);
	delete from queen.kv_quota u where u.tenant = p_tenant;
	get diagnostics n = row_count;
	p_rows := queen.tenant_count(p_rows, 'kv_quota', n);
	p_left := greatest(p_left - n, 0);
	select s.p_rows, s.p_left into p_rows, p_left
	from queen.tenant_ojs_sweep(p_tenant, p_rows, p_left) s;
end $$;

-- Queues of a tenant, those already marked as deleted among them.
create or replace function queen.tenant_queues(p_tenant uuid)
returns bigint language sql stable as $$
	select (select count(*) from queen.queues q
			where q.tenant = p_tenant and q.deleted_at is not null)
		+ (select count(*) from queen.queues q
			where q.tenant = p_tenant and q.deleted_at is null)
$$;

-- Is there a row with this tenant in it, outside its queues?
create or replace function queen.tenant_remains(p_tenant uuid)
returns boolean language sql stable as $$
	select exists (select from queen.timers t where t.tenant = p_tenant)
		or exists (select from queen.trace_names n where n.tenant = p_tenant)
		or exists (select from queen.traces t
			where t.tenant::text = p_tenant::text)
		or exists (select from queen.kv k where k.tenant = p_tenant)
		or exists (select from queen.kv_usage u where u.tenant = p_tenant)
		or exists (select from queen.kv_quota u where u.tenant = p_tenant)
		or exists (select from queen.connector_status s
			where s.tenant = p_tenant)
		or exists (select from queen.kv k
			where k.tenant = '00000000-0000-0000-0000-000000000000'
				and k.namespace = 'queen-pg'
				and k.key >= queen.connector_key(p_tenant, '')
				and k.key <= queen.connector_key(p_tenant, '') || '~')
		or exists (select from queen.kv k
			where k.tenant = '00000000-0000-0000-0000-000000000000'
				and k.namespace = 'queen-s3'
				and k.key = 'sink:' || p_tenant)
		or queen.tenant_ojs_remains(p_tenant)
$$;

-- One step: connectors, timers and crons first (what they do makes queues again),
-- up to p_max_queues queues of queen-ojs are dropped, then up to as many of ours,
-- then the rest; about p_max_rows rows in all.  Answers
-- {tenant, done, phase, queues: {deleted, remaining}, rows: {TABLE: n, ...}};
-- phase is where it stopped: timers, queue-residue, queues, sweep or complete.
-- done only when a step found nothing.  22023: no tenant, a bound below 1, or
-- the default tenant without p_allow_default.
create or replace function queen.tenant_purge_v1(p_tenant uuid,
	p_max_queues int default 10, p_max_rows int default 20000,
	p_allow_default boolean default false)
returns jsonb language plpgsql volatile as $$
declare
	l_rows jsonb := queen.tenant_counts(); l_left int := p_max_rows;
	l_phase text := 'timers'; l_deleted bigint; l_queues bigint; n int;
begin
	if (p_max_queues >= 1 and p_max_rows >= 1 and p_tenant is not null)
			is not true or (p_tenant = '00000000-0000-0000-0000-000000000001'
			and p_allow_default is not true) then
		raise exception 'queen.tenant_purge_v1: no such purge'
			using errcode = '22023';
	end if;
	perform queen.tenant_coverage();
	select s.p_rows, s.p_left into l_rows, l_left
	from queen.tenant_connectors_step(p_tenant, l_rows, l_left) s;
	delete from queen.timers t where t.ctid = any (array(
		select x.ctid from queen.timers x where x.tenant = p_tenant
		limit l_left for update skip locked));
	get diagnostics n = row_count;
	l_rows := queen.tenant_count(l_rows, 'timers', n);
	l_left := l_left - n;
	select s.p_rows, s.p_left into l_rows, l_left
	from queen.tenant_ojs_begin(p_tenant, p_max_queues, l_rows, l_left) s;
	-- nothing may be pushed, popped or found from here on
	update queen.queues q set deleted_at = clock_timestamp(),
		changed_at = greatest(clock_timestamp(), q.changed_at)
	where q.ctid = any (array(select x.ctid from queen.queues x
		where x.tenant = p_tenant and x.deleted_at is null
		limit p_max_rows for update skip locked));
	if l_left > 0 then
		select s.p_rows, s.p_left into l_rows, l_left
		from queen.tenant_queues_step(p_tenant, p_max_queues, l_rows,
			l_left) s;
		l_phase := case when l_left > 0 then 'queues'
			else 'queue-residue' end;
	end if;
	l_deleted := (l_rows->>'queen.queues')::bigint;
	l_queues := queen.tenant_queues(p_tenant);
	if l_queues > 0 and l_phase = 'queues' and l_deleted < p_max_queues then
		l_phase := 'queue-residue';
	elsif l_queues = 0 and l_left > 0 then
		n := l_left;
		select s.p_rows, s.p_left into l_rows, l_left
		from queen.tenant_sweep(p_tenant, l_rows, l_left) s;
		l_phase := case when n > l_left or queen.tenant_remains(p_tenant)
			then 'sweep' else 'complete' end;
	end if;
	return jsonb_build_object('tenant', p_tenant,
		'done', l_phase = 'complete' and l_left = p_max_rows,
		'phase', l_phase, 'queues', jsonb_build_object(
			'deleted', l_deleted, 'remaining', l_queues),
		'rows', l_rows);
end $$;

-- One step after p_before, the answer of the one before it (null = none): its
-- counts are added.  removed is what this step alone removed.
create or replace function queen.tenant_purge_pass_v1(p_tenant uuid,
	p_before jsonb, p_allow_default boolean)
returns table (status int, body text, done boolean, removed bigint)
language sql volatile as $$
	select 200, (s.p || jsonb_build_object('rows', m.rows,
		'queues', jsonb_build_object('deleted', m.rows->'queen.queues',
			'remaining', s.p->'queues'->'remaining')))::text,
		(s.p->>'done')::boolean, m.removed
	from queen.tenant_purge_v1(p_tenant,
		p_allow_default => p_allow_default) s(p)
	cross join lateral (
		select jsonb_object_agg(r.key, r.value::bigint
				+ coalesce((p_before->'rows'->>r.key)::bigint, 0)) as rows,
			sum(r.value::bigint)::bigint as removed
		from jsonb_each_text(s.p->'rows') r) m
$$;
