-- SPDX-License-Identifier: Apache-2.0
-- Numbers over many partitions: depth of a queue, overview of a tenant, sums
-- per namespace and task.
--
-- Functions: depth_v1, overview_v1, labels_v1.
-- Tables written: none.  Locks: none.

-- Backlog of a queue, for one group or (null) for its slowest consumer; 404
-- when there is no such queue.  A group that is not registered counts from
-- the start of each log.  Lists the first 100 000 partitions by name.
create or replace function queen.depth_v1(p_tenant uuid, p_queue text, p_group text,
	p_now timestamptz default null)
returns table (status int, body text) language plpgsql volatile as $$
declare
	q bigint := queen.queue_id_v1(p_tenant, p_queue);
	parts bigint[] := queen.queue_parts_v1(p_tenant, array[q]);
	g record;
	t record;
begin
	if q is null then
		return query select 404, '{"error":"Queue not found"}'::text;
		return;
	end if;
	select x.id, x.conflated into g from queen.groups x
	where x.queue_id = q and x.name = p_group and x.deleted_at is null;
	select coalesce(sum(d.pending), 0)::bigint pending,
		coalesce(sum(d.processing), 0)::bigint processing,
		count(*) filter (where d.pending > 0) parts_pending,
		count(*) filter (where d.pending > d.processing) parts_ready,
		coalesce(json_agg(json_build_object('partition', d.name, 'pending', d.pending,
			'processing', d.processing,
			'ready', d.pending - d.processing) order by d.name collate "C")
				filter (where d.nth <= 100000), '[]') parts
	into t
	from (
		select x.*, row_number() over (order by x.name collate "C") nth from (
			select d.name, d.pending, d.processing
				from queen.partition_depths_v1(p_tenant, parts, p_now) d
			where p_group is null
			union all
			select c.partition, c.lag,
				least(greatest(coalesce(c.leased_to - c.committed, 0), 0),
				c.lag)
			from queen.cursor_states_v1(p_tenant, parts, p_now) c
				where c.group_id = g.id
			union all
			select s.name, greatest(s.last_offset - s.log_start + 1, 0), 0
			from queen.partition_states_v1(p_tenant, parts) s
				where p_group is not null and g.id is null) x) d;
	return query select 200, json_build_object('queue', p_queue, 'group', p_group,
		'pending', t.pending,
		'processing', t.processing, 'ready', t.pending - t.processing,
			'partitionsPending', t.parts_pending,
		'partitionsReady', t.parts_ready, 'conflation', coalesce(g.conflated, false),
		'effectivePending', case when g.conflated then t.parts_pending
			else t.pending end,
		'effectiveReady', case when g.conflated then t.parts_ready
			else t.pending - t.processing end,
		'partitions', t.parts)::text;
end $$;

-- The whole tenant in one object.  pending here is what nobody works on;
-- throughput is the mean of the last five minutes.
create or replace function queen.overview_v1(p_tenant uuid, p_now timestamptz default null)
returns table (status int, body text) language plpgsql volatile as $$
declare
	at timestamptz := coalesce(p_now, now());
	ids bigint[] := array(select q.id from queen.queues q where q.tenant = p_tenant
		and q.deleted_at is null);
	n record;
	t record;
	f record;
begin
	select count(*) queues, count(distinct nullif(q.namespace, '')) namespaces,
		count(distinct nullif(q.task, '')) tasks
	into n from queen.queues q where q.id = any(ids);
	select count(*) parts, coalesce(sum(d.total), 0) total,
		coalesce(sum(d.pending - d.processing), 0) pending,
		coalesce(sum(d.processing), 0) processing,
		coalesce(sum(greatest(d.total - d.pending - d.dead, 0)), 0) completed,
			coalesce(sum(d.dead), 0) dead,
		coalesce(round(avg(a.age) filter (where d.pending > 0), 2), 0) age_avg,
			coalesce(max(a.age), 0) age_max,
		coalesce(percentile_cont(0.5) within group (order by a.age), 0) age_median,
		coalesce(round(avg(d.pending) filter (where d.pending > 0), 2), 0) lag_avg,
			coalesce(max(d.pending), 0) lag_max
	into t from queen.partition_depths_v1(p_tenant, queen.queue_parts_v1(p_tenant, ids),
		at) d
	cross join lateral (select case when d.pending > 0
		then greatest(floor(extract(epoch from
		at - queen.oldest_after(d.part, greatest(d.worst, d.log_start - 1)))),
			0) end as age) a;
	select round(coalesce(sum(m.push_messages), 0) / 300, 2) pushed,
		round(coalesce(sum(m.ack_success), 0) / 300, 2) acked
	into f from queen.queue_minutes m
	where m.minute > at - interval '5 minutes' and m.minute <= at and m.queue_id = any(ids);
	return query select 200, json_build_object('queues', n.queues, 'partitions', t.parts,
		'namespaces', n.namespaces,
		'tasks', n.tasks,
		'messages', json_build_object('total', t.total, 'pending', t.pending,
			'processing', t.processing,
			'completed', t.completed, 'failed', null, 'deadLetter', t.dead),
		'lag', json_build_object(
			'time', json_build_object('avg', t.age_avg, 'median', t.age_median,
				'min', 0, 'max', t.age_max),
			'offset', json_build_object('avg', t.lag_avg, 'median', 0, 'min', 0,
				'max', t.lag_max)),
		'throughput', json_build_object('ingestedPerSecond', f.pushed,
			'processedPerSecond', f.acked),
		'timestamp', queen.iso_ms_v1(at), 'statsAge', 0)::text;
end $$;

-- Queues, partitions and messages per label; p_by is namespace or task.
-- Queues without the label are left out.
create or replace function queen.labels_v1(p_tenant uuid, p_by text,
	p_now timestamptz default null)
returns table (status int, body text) language plpgsql volatile as $$
declare
	ids bigint[] := array(select q.id from queen.queues q where q.tenant = p_tenant
		and q.deleted_at is null
		and case p_by when 'task' then q.task else q.namespace end <> '');
begin
	return query select 200, json_build_object(p_by || 's',
		coalesce(json_agg(json_build_object(p_by, x.label,
		'queues', x.queues, 'partitions', x.parts,
		'messages', json_build_object('total', x.total, 'pending', x.pending))
			order by x.label), '[]'))::text
	from (
		select case p_by when 'task' then q.task else q.namespace end as label,
			count(*) queues,
			coalesce(sum(s.parts), 0) parts, coalesce(sum(s.total), 0) total,
				coalesce(sum(s.pending), 0) pending
		from queen.queues q
		left join (select d.queue_id, count(*) parts, sum(d.total) total,
			sum(d.pending) pending
			from queen.partition_depths_v1(p_tenant,
				queen.queue_parts_v1(p_tenant, ids), p_now) d
				group by d.queue_id) s on s.queue_id = q.id
		where q.id = any(ids) group by 1) x;
end $$;
