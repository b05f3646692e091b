-- SPDX-License-Identifier: Apache-2.0
-- The end of a tenant: everything it stored, in bounded steps.
--
--   tenant_purge_v1(...)   one step; the caller repeats it until it is done
--
-- Writes every table with rows of a tenant.  Lock order: the queue's row,
-- partition heads ascending, then what hangs off them.  It is not a lock on
-- the tenant: stop its traffic first.  A table with a column `tenant` that is not
-- named here makes the step fail, so that none is ever forgotten.

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
			'kv_quota', 'kv_usage', 'timers')
	limit 1;
	if found then
		raise exception 'queen.tenant_purge_v1: table queen.% is not covered',
			l_table using errcode = '0A000';
	end if;
end $$;

-- One bounded step on one queue, which goes last.  Returns rows removed.
-- Locks its row, then the heads of up to 500 of its partitions.
create or replace function queen.tenant_queue_step(p_queue bigint, p_limit int)
returns int language plpgsql volatile as $$
declare
	l_part bigint[]; n int; total int := 0;
begin
	perform q.id from queen.queues q where q.id = p_queue for update;
	select array_agg(p.id order by p.id) into l_part
	from (select p.id from queen.partitions p where p.queue_id = p_queue
		order by p.id limit 500) p;
	if l_part is not null then
		perform h.id from queen.partition_heads h
		where h.id = any (l_part) order by h.id for update;
		delete from queen.segments s where s.ctid = any (array(
			select d.ctid from queen.segments d
			where d.partition_id = any (l_part) limit p_limit));
		get diagnostics n = row_count;
		if n < p_limit then
			delete from queen.segment_ids s where s.ctid = any (array(
				select d.ctid from queen.segment_ids d
				where d.partition_id = any (l_part) limit p_limit - n));
			get diagnostics total = row_count;
			total := total + n;
			if total < p_limit then
				perform queen.partitions_drop(l_part);
				total := total + cardinality(l_part);
			end if;
			return total;
		end if;
		return n;
	end if;
	delete from queen.dead_letters d where d.ctid = any (array(
		select x.ctid from queen.dead_letters x
		where x.queue_id = p_queue limit p_limit));
	get diagnostics total = row_count;
	if total < p_limit then
		delete from queen.lease_sets l using queen.groups g
		where g.queue_id = p_queue and l.lease_group = g.id;
		delete from queen.groups g where g.queue_id = p_queue;
		delete from queen.repairs r where r.queue_id = p_queue;
		delete from queen.queue_minutes m where m.queue_id = p_queue;
		delete from queen.retention_log l where l.queue_id = p_queue;
		delete from queen.queues q where q.id = p_queue;
		total := total + 1;
	end if;
	return total;
end $$;

-- Rows of a tenant outside its queues, at most p_limit of a kind.
create or replace function queen.tenant_sweep(p_tenant uuid, p_limit int)
returns int language plpgsql volatile as $$
declare
	n int; total int := 0;
begin
	delete from queen.trace_names t where t.ctid = any (array(
		select x.ctid from queen.trace_names x
		where x.tenant = p_tenant limit p_limit));
	get diagnostics total = row_count;
	delete from queen.traces t where t.ctid = any (array(
		select x.ctid from queen.traces x
		where x.tenant = p_tenant limit p_limit));
	get diagnostics n = row_count;
	total := total + n;
	delete from queen.kv k where k.ctid = any (array(
		select x.ctid from queen.kv x
		where x.tenant = p_tenant limit p_limit));
	get diagnostics n = row_count;
	total := total + n;
	delete from queen.kv_usage u where u.tenant = p_tenant;
	get diagnostics n = row_count;
	total := total + n;
	delete from queen.kv_quota u where u.tenant = p_tenant;
	get diagnostics n = row_count;
	return total + n;
end $$;

-- One step: timers first (one that fires makes its queue again), then up to
-- p_max_queues queues, then the rest; at most about p_max_rows rows.  Answers
-- {tenant, done, phase, queues: {deleted, remaining}, rows}; phase is where it
-- stopped: timers, queue-residue, queues, sweep or complete.  done only when a
-- step found nothing.  22023: no tenant, a bound below 1, or the default tenant
-- without p_allow_default.
create or replace function queen.tenant_purge_v1(p_tenant uuid,
	p_max_queues int default 10, p_max_rows int default 20000,
	p_allow_default boolean default false)
returns jsonb language plpgsql volatile as $$
declare
	l_queue bigint; n int; total int := 0; l_deleted int := 0;
	l_left bigint; l_phase text := 'queues';
begin
	if (p_max_queues >= 1 and p_max_rows >= 1 and p_tenant is not null)
			is not true or (p_tenant = '00000000-0000-0000-0000-000000000001'
			and not p_allow_default) then
		raise exception 'queen.tenant_purge_v1: no such purge'
			using errcode = '22023';
	end if;
	perform queen.tenant_coverage();
	delete from queen.timers t where t.ctid = any (array(
		select x.ctid from queen.timers x where x.tenant = p_tenant
		limit p_max_rows));
	get diagnostics total = row_count;
	-- nothing may be pushed, popped or found from here on
	update queen.queues q set deleted_at = clock_timestamp(),
		changed_at = greatest(clock_timestamp(), q.changed_at)
	where q.tenant = p_tenant and q.deleted_at is null;
	if total = p_max_rows then
		l_phase := 'timers';
	else
		while l_deleted < p_max_queues and total < p_max_rows loop
			select q.id into l_queue from queen.queues q
			where q.tenant = p_tenant order by q.id limit 1;
			exit when not found;
			n := queen.tenant_queue_step(l_queue, p_max_rows - total);
			total := total + n;
			perform from queen.queues q where q.id = l_queue;
			l_deleted := l_deleted + (not found)::int;
		end loop;
	end if;
	select count(*) into l_left from queen.queues q where q.tenant = p_tenant;
	if l_left = 0 and l_phase = 'queues' and total < p_max_rows then
		n := queen.tenant_sweep(p_tenant, p_max_rows - total);
		l_phase := case when n > 0 then 'sweep' else 'complete' end;
		total := total + n;
	elsif l_phase = 'queues' and total >= p_max_rows then
		l_phase := 'queue-residue';
	end if;
	return jsonb_build_object('tenant', p_tenant, 'done', total = 0,
		'phase', l_phase, 'queues', jsonb_build_object('deleted', l_deleted,
			'remaining', l_left), 'rows', total);
end $$;
