-- SPDX-License-Identifier: Apache-2.0
-- The status pages: throughput of a window and the backlog of queues.
--
--   bucket_minutes(from, to)   internal: width of a bucket of a window
--   buckets(from, to, width)   internal: the buckets of a window
--   status_v2(...)             GET /api/v1/status; status_v1 for the cell, of a tenant or cell-wide
--   status_queues_v1(...)      GET /api/v1/status/queues
--   status_queue_v1(...)       GET /api/v1/status/queues/:queue
--   status_analytics_v1(...)   GET /api/v1/status/analytics
--
-- Tables written: none.  Locks: none.

-- Minutes of a bucket: finer for shorter windows.
create or replace function queen.bucket_minutes(
	p_from timestamptz, p_to timestamptz)
returns int language sql immutable as $$
	select case
		when p_to - p_from <= interval '60 minutes' then 1
		when p_to - p_from <= interval '6 hours' then 5
		when p_to - p_from <= interval '24 hours' then 15
		when p_to - p_from <= interval '7 days' then 60
		else 360 end
$$;

-- Starts of the buckets that cover [p_from, p_to), aligned to the epoch; the
-- newest 5000 of them at most.
create or replace function queen.buckets(
	p_from timestamptz, p_to timestamptz, p_minutes int)
returns setof timestamptz language sql immutable as $$
	select b from generate_series(
		date_bin(p_minutes * interval '1 minute',
			greatest(p_from, p_to - 5000 * p_minutes * interval '1 minute'),
			timestamptz '1970-01-01 00:00:00+00'),
		p_to - interval '1 microsecond',
		p_minutes * interval '1 minute') b
$$;

-- Counters of the window per bucket, backlog of the queues that match, the
-- instances seen in the last two minutes.  Filters are null or exact; without a
-- tenant it is the whole cell.
create or replace function queen.status_v2(p_tenant uuid,
	p_from timestamptz, p_to timestamptz, p_queue text, p_namespace text,
	p_task text, p_now timestamptz default null)
returns table (status int, body text) language plpgsql volatile as $$
declare
	at timestamptz := coalesce(p_now, now());
	w int := queen.bucket_minutes(p_from, p_to);
	ids bigint[];
	l record; s record; r record; c record; e record;
begin
	select coalesce(array_agg(q.id), '{}') into ids from queen.queues q
	where q.deleted_at is null
		and (p_tenant is null or q.tenant = p_tenant)
		and (p_queue is null or q.name = p_queue)
		and (p_namespace is null or q.namespace = p_namespace)
		and (p_task is null or q.task = p_task);
	with m as (
		select date_bin(w * interval '1 minute', x.minute,
				timestamptz '1970-01-01 00:00:00+00') as b, x.*
		from queen.queue_minutes x
		where x.minute >= p_from and x.minute < p_to
			and x.queue_id = any (ids)
	), q as (
		select m.b, sum(m.push_messages) pushed, sum(m.ack_success) acked,
			sum(m.pop_messages) popped, sum(m.lag_sum_ms) lag_sum,
			sum(m.lag_n) lag_n, max(m.lag_max_ms) lag_max,
			sum(m.ack_failed) failed, sum(m.dead_letters) dead
		from m group by m.b
	), i as (
		select date_bin(w * interval '1 minute', x.minute,
				timestamptz '1970-01-01 00:00:00+00') as b,
			avg(x.loop_lag_avg_us) lag_avg, max(x.loop_lag_max_us) lag_max,
			min(x.pool_size - x.pool_busy_max) free,
			sum(x.db_errors) errors, sum(x.cpu_user_us) cpu_user,
			sum(x.cpu_system_us) cpu_sys, max(x.rss_bytes) rss,
			max(x.pool_busy_max) busy, max(x.pool_size) size
		from queen.instance_minutes x
		where x.minute >= p_from and x.minute < p_to group by 1
	)
	select count(*) n, coalesce(json_agg(json_build_object(
		'timestamp', queen.iso_ms_v1(b.b),
		'ingested', coalesce(q.pushed, 0), 'processed', coalesce(q.acked, 0),
		'popMessages', coalesce(q.popped, 0),
		'ingestedPerSecond', round(coalesce(q.pushed, 0) / (w * 60.0), 2),
		'processedPerSecond', round(coalesce(q.acked, 0) / (w * 60.0), 2),
		'popPerSecond', round(coalesce(q.popped, 0) / (w * 60.0), 2),
		'avgLagMs', round(q.lag_sum / nullif(q.lag_n, 0), 2),
		'maxLagMs', case when q.lag_n > 0 then q.lag_max end,
		'avgEventLoopLagMs', round(coalesce(i.lag_avg, 0) / 1000.0, 3),
		'maxEventLoopLagMs', round(coalesce(i.lag_max, 0) / 1000.0, 3),
		'minFreeSlots', i.free, 'dbErrors', coalesce(i.errors, 0),
		'ackFailed', coalesce(q.failed, 0), 'dlqCount', coalesce(q.dead, 0),
		'queenCpuUserPct', round(coalesce(i.cpu_user, 0) / (w * 600000.0), 2),
		'queenCpuSysPct', round(coalesce(i.cpu_sys, 0) / (w * 600000.0), 2),
		'queenRssMb', round(coalesce(i.rss, 0) / 1048576.0, 1),
		'dbPoolActive', i.busy, 'dbPoolIdle', i.size - i.busy,
		'dbPoolSize', i.size) order by b.b desc), '[]') points
	into s
	from queen.buckets(p_from, p_to, w) b(b)
	left join q on q.b = b.b left join i on i.b = b.b;

	select coalesce(sum(d.total), 0) total,
		coalesce(sum(d.pending - d.processing), 0) pending,
		coalesce(sum(d.processing), 0) processing,
		coalesce(sum(greatest(d.total - d.pending - d.dead, 0)), 0) completed,
		coalesce(sum(d.dead), 0) dead,
		count(*) filter (where d.dead > 0) dead_parts,
		count(distinct d.queue_id) filter (where d.dead > 0) dead_queues
	into c
	from (select distinct q.tenant from queen.queues q where q.id = any (ids)) t
	cross join lateral queen.partition_depths_v1(t.tenant,
		queen.queue_parts_v1(t.tenant, ids), at) d;
	select coalesce(sum(m.push_requests), 0) push_r,
		coalesce(sum(m.pop_requests), 0) pop_r,
		coalesce(sum(m.ack_requests), 0) ack_r,
		coalesce(sum(m.push_messages), 0) push_m,
		coalesce(sum(m.pop_messages), 0) pop_m,
		coalesce(sum(m.ack_success + m.ack_failed), 0) ack_m,
		coalesce(sum(m.ack_failed), 0) failed,
		coalesce(sum(m.dead_letters), 0) dead
	into r from queen.queue_minutes m
	where m.minute >= p_from and m.minute < p_to and m.queue_id = any (ids);
	select count(*) active, count(distinct x.partition_id) parts into l
	from queen.groups g
	cross join lateral (
		select distinct on (k.partition_id) k.partition_id, k.expires_at,
			k.batch_end
		from queen.consumers k where k.group_id = g.id
		order by k.partition_id, k.gen desc) x
	where g.queue_id = any (ids) and g.deleted_at is null
		and x.batch_end is not null and x.expires_at > at;
	select coalesce(sum(i.db_errors), 0) errors into e
	from queen.instance_minutes i
	where i.minute >= p_from and i.minute < p_to;

	return query select 200, json_build_object(
		'timeRange', json_build_object('from', queen.iso_ms_v1(p_from),
			'to', queen.iso_ms_v1(p_to)),
		'bucketMinutes', w, 'pointCount', s.n, 'throughput', s.points,
		'queues', queen.status_queue_names(ids),
		'messages', json_build_object('total', c.total, 'pending', c.pending,
			'processing', c.processing, 'completed', c.completed,
			'failed', null, 'deadLetter', c.dead,
			'requests', json_build_object('push', r.push_r,
				'pop', r.pop_r, 'ack', r.ack_r),
			'batchEfficiency', json_build_object(
				'push', coalesce(round(r.push_m / nullif(r.push_r, 0), 2), 0),
				'pop', coalesce(round(r.pop_m / nullif(r.pop_r, 0), 2), 0),
				'ack', coalesce(round(r.ack_m / nullif(r.ack_r, 0), 2), 0))),
		'leases', json_build_object('active', l.active, 'partitions', l.parts),
		'deadLetterQueue', json_build_object('total', c.dead,
			'queues', c.dead_queues),
		'workers', queen.status_workers(at),
		'errors', json_build_object('dbErrors', e.errors,
			'ackFailed', r.failed, 'dlqMessages', r.dead),
		'blocked', queen.status_blocked(ids, at),
		'statsAge', 0)::text;
end $$;

-- The whole cell, as a release before asks for it.
create or replace function queen.status_v1(
	p_from timestamptz, p_to timestamptz, p_queue text, p_namespace text,
	p_task text, p_now timestamptz default null)
returns table (status int, body text) language sql volatile as $$
	select s.* from queen.status_v2(null, p_from, p_to, p_queue, p_namespace,
		p_task, p_now) s
$$;

-- Internal: id, labels, partitions and what was consumed, of these queues.
create or replace function queen.status_queue_names(p_queue bigint[])
returns json language sql stable as $$
	select coalesce(json_agg(json_build_object(
		'id', queen.wire_id_of_v1(c.tag, 1, q.id), 'name', q.name,
		'namespace', q.namespace, 'task', q.task,
		'partitions', (select count(*) from queen.partitions p
			where p.queue_id = q.id),
		'totalConsumed', (select coalesce(sum(x.consumed), 0)::bigint
			from queen.groups g cross join lateral (
				select distinct on (k.partition_id) k.consumed
				from queen.consumers k where k.group_id = g.id
				order by k.partition_id, k.gen desc) x
			where g.queue_id = q.id and g.deleted_at is null))
		order by q.name), '[]')
	from queen.cell c cross join unnest(p_queue) u(id)
	join queen.queues q on q.id = u.id
$$;

-- Internal: what of these queues is not delivered, for it cannot be opened.
create or replace function queen.status_blocked(
	p_queue bigint[], p_at timestamptz)
returns json language sql volatile as $$
	select coalesce(json_agg(json_build_object('queue', b.queue,
		'partition', b.partition, 'offset', b.off, 'keyId', b.key_id,
		'reason', case when b.damaged then 'damaged' else 'no_key' end,
		'hostname', b.instance, 'seenAt', queen.iso_ms_v1(b.seen_at))
		order by b.queue, b.queue_id, b.key_id), '[]')
	from queen.seal_blocks_v1(null, p_at) b
	where b.queue_id = any (p_queue)
$$;

-- Internal: instances with a row in the last two minutes.
create or replace function queen.status_workers(p_at timestamptz)
returns json language sql stable as $$
	select coalesce(json_agg(json_build_object('hostname', x.instance,
		'workerId', 0,
		'avgEventLoopLagMs', round(x.loop_lag_avg_us / 1000.0, 3),
		'maxEventLoopLagMs', round(x.loop_lag_max_us / 1000.0, 3),
		'freeSlots', x.pool_size - x.pool_busy_max,
		'dbConnections', x.pool_size, 'jobQueueSize', 0,
		'messagesProcessed', x.requests) order by x.instance), '[]')
	from (select distinct on (i.instance) i.* from queen.instance_minutes i
		where i.minute > p_at - interval '3 minutes'
		order by i.instance, i.minute desc) x
$$;

-- A page of queues with their counts; filters are null or exact.
create or replace function queen.status_queues_v1(
	p_tenant uuid, p_queue text, p_namespace text, p_task text, p_limit int,
	p_offset int, p_now timestamptz default null)
returns table (status int, body text) language plpgsql volatile as $$
declare
	ids bigint[];
begin
	select coalesce(array_agg(x.id), '{}') into ids
	from (select q.id from queen.queues q
		where q.tenant = p_tenant and q.deleted_at is null
			and (p_queue is null or q.name = p_queue)
			and (p_namespace is null or q.namespace = p_namespace)
			and (p_task is null or q.task = p_task)
		order by q.name limit p_limit offset p_offset) x;
	return query select 200, json_build_object('queues', coalesce(json_agg(
		json_build_object('id', queen.wire_id_of_v1(c.tag, 1, q.id),
			'name', q.name, 'namespace', q.namespace, 'task', q.task,
			'createdAt', queen.iso_ms_v1(q.created_at),
			'partitions', coalesce(s.parts, 0),
			'messages', json_build_object('total', coalesce(s.total, 0),
				'pending', coalesce(s.pending, 0),
				'processing', coalesce(s.processing, 0),
				'completed', coalesce(s.completed, 0),
				'deadLetter', coalesce(s.dead, 0)),
			'lagSeconds', coalesce(s.lag, 0)) order by q.name), '[]'),
		'pagination', json_build_object('limit', p_limit,
			'offset', p_offset))::text
	from queen.cell c cross join unnest(ids) u(id)
	join queen.queues q on q.id = u.id
	left join (
		select d.queue_id, count(*) parts, sum(d.total) total,
			sum(d.pending) pending, sum(d.processing) processing,
			sum(greatest(d.total - d.pending - d.dead, 0)) completed,
			sum(d.dead) dead, max(floor(extract(epoch from
				coalesce(p_now, now()) - a.at))) filter
				(where d.pending > 0) lag
		from queen.partition_depths_v1(p_tenant,
			queen.queue_parts_v1(p_tenant, ids), p_now) d
		left join lateral (select queen.oldest_after(d.part,
			greatest(d.worst, d.log_start - 1)) as at
			where d.pending > 0) a on true
		group by d.queue_id
	) s on s.queue_id = q.id;
end $$;

-- One queue with its partitions (by name, the first 100 000); 404 when there
-- is none.
create or replace function queen.status_queue_v1(
	p_tenant uuid, p_name text, p_now timestamptz default null)
returns table (status int, body text) language plpgsql volatile as $$
declare
	q queen.queues;
	tag bigint := (select c.tag from queen.cell c);
	t record;
begin
	select * into q from queen.queues x
	where x.tenant = p_tenant and x.name = p_name and x.deleted_at is null;
	if not found then
		return query select 404, '{"error":"Queue not found"}'::text;
		return;
	end if;
	select coalesce(sum(d.total), 0)::bigint total,
		coalesce(sum(d.pending), 0)::bigint pending,
		coalesce(sum(d.processing), 0)::bigint processing,
		coalesce(sum(d.dead), 0)::bigint dead,
		coalesce(sum(greatest(d.total - d.pending - d.dead, 0)), 0) completed,
		coalesce(json_agg(json_build_object(
			'id', queen.wire_id_of_v1(tag, 2, d.part), 'name', d.name,
			'createdAt', queen.iso_ms_v1(d.created_at),
			'messages', queen.six_counts(d.total, d.pending,
				d.processing, d.dead),
			'stats', queen.six_counts(d.total, d.pending,
				d.processing, d.dead),
			'cursor', json_build_object('totalConsumed', u.consumed,
				'batchesConsumed', 0),
			'lastActivity', queen.iso_ms_v1(greatest(d.newest_at,
				u.acquired_at)),
			'oldestMessage', case when d.pending > 0 then queen.iso_ms_v1(
				queen.oldest_after(d.part,
					greatest(d.worst, d.log_start - 1))) end,
			'newestMessage', queen.iso_ms_v1(d.newest_at))
			order by d.name collate "C") filter (where d.nth <= 100000),
			'[]') parts
	into t
	from (select x.*, row_number() over (order by x.name collate "C") nth
		from queen.partition_depths_v1(p_tenant,
			queen.queue_parts_v1(p_tenant, array[q.id]), p_now) x) d
	cross join lateral (
		select coalesce(sum(c.consumed), 0)::bigint consumed,
			max(c.acquired_at) acquired_at
		from queen.groups g cross join lateral (
			select k.consumed, k.acquired_at from queen.consumers k
			where k.group_id = g.id and k.partition_id = d.part
			order by k.gen desc limit 1) c
		where g.queue_id = q.id and g.deleted_at is null) u;
	return query select 200, json_build_object(
		'queue', json_build_object('id', queen.wire_id_of_v1(tag, 1, q.id),
			'name', q.name, 'namespace', q.namespace, 'task', q.task,
			'priority', q.priority,
			'createdAt', queen.iso_ms_v1(q.created_at),
			'config', json_build_object('leaseTime', q.lease_time_s,
				'retryLimit', q.retry_limit,
				'retryDelay', q.retry_delay_ms, 'ttl', q.ttl_s,
				'maxQueueSize', q.max_size,
				'deadLetterQueue', q.dead_letter_queue)),
		'partitions', t.parts,
		'totals', json_build_object('messages', json_build_object(
			'total', t.total, 'pending', t.pending,
			'processing', t.processing, 'completed', t.completed,
			'failed', null, 'deadLetter', t.dead)))::text;
end $$;

-- Messages stored per bucket of p_interval (minute, hour or day), zero-filled.
create or replace function queen.status_analytics_v1(
	p_tenant uuid, p_from timestamptz, p_to timestamptz, p_interval text,
	p_queue text, p_namespace text, p_task text)
returns table (status int, body text) language sql stable as $$
	with w as (
		select case p_interval when 'minute' then 1 when 'day' then 1440
			else 60 end as minutes
	), m as (
		select date_bin(w.minutes * interval '1 minute', x.minute,
				timestamptz '1970-01-01 00:00:00+00') as b,
			sum(x.push_messages) n
		from w, queen.queue_minutes x
		join queen.queues q on q.id = x.queue_id
		where x.minute >= p_from and x.minute < p_to
			and q.tenant = p_tenant and q.deleted_at is null
			and (p_queue is null or q.name = p_queue)
			and (p_namespace is null or q.namespace = p_namespace)
			and (p_task is null or q.task = p_task)
		group by 1
	)
	select 200, json_build_object('dataPoints', coalesce(json_agg(
		json_build_object('timestamp', queen.iso_ms_v1(b.b),
			'messages', coalesce(m.n, 0)) order by b.b), '[]'),
		'interval', case when p_interval in ('minute', 'day')
			then p_interval else 'hour' end,
		'from', queen.iso_ms_v1(p_from), 'to', queen.iso_ms_v1(p_to))::text
	from w cross join lateral queen.buckets(p_from, p_to, w.minutes) b(b)
	left join m on m.b = b.b
$$;
