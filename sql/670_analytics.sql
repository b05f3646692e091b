-- SPDX-License-Identifier: Apache-2.0
-- Series over the per-minute counters, and what PostgreSQL says of itself.
--
--   analytics_lag_v1(...)        GET /api/v1/analytics/queue-lag
--   analytics_ops_v1(...)        GET /api/v1/analytics/queue-ops
--   analytics_retention_v1(...)  GET /api/v1/analytics/retention
--   analytics_postgres_v1()      GET /api/v1/analytics/postgres-stats
--
-- Tables written: none.  Locks: none.

-- Age at delivery per queue and bucket, newest first; a bucket without pops
-- has null, not zero.
create or replace function queen.analytics_lag_v1(
	p_tenant uuid, p_from timestamptz, p_to timestamptz, p_queue text)
returns table (status int, body text) language sql stable as $$
	select 200, coalesce(json_agg(json_build_object('queueName', x.name,
		'popCount', x.pops, 'avgLagMs', x.lag_avg, 'maxLagMs', x.lag_max,
		'bucketMinutes', x.w, 'bucketTime', queen.iso_ms_v1(x.b))
		order by x.b desc, x.name), '[]')::text
	from (
		select q.name, w.w, date_bin(w.w * interval '1 minute', m.minute,
				timestamptz '1970-01-01 00:00:00+00') as b,
			sum(m.lag_n) pops,
			round(sum(m.lag_sum_ms) / nullif(sum(m.lag_n), 0), 2) lag_avg,
			case when sum(m.lag_n) > 0 then max(m.lag_max_ms) end lag_max
		from (select queen.bucket_minutes(p_from, p_to) as w) w
		cross join queen.queue_minutes m
		join queen.queues q on q.id = m.queue_id
		where m.minute >= p_from and m.minute < p_to
			and q.tenant = p_tenant and q.deleted_at is null
			and (p_queue is null or q.name = p_queue)
		group by q.name, w.w, 3) x
$$;

-- Everything counted per queue and bucket, oldest first.
create or replace function queen.analytics_ops_v1(
	p_tenant uuid, p_from timestamptz, p_to timestamptz, p_queue text)
returns table (status int, body text) language sql stable as $$
	with w as (
		select queen.bucket_minutes(p_from, p_to) as w
	), x as (
		select q.name, q.id, date_bin(w.w * interval '1 minute', m.minute,
				timestamptz '1970-01-01 00:00:00+00') as b,
			sum(m.push_requests) push_r, sum(m.push_messages) push_m,
			sum(m.pop_messages) pop_m, sum(m.pop_empty) empty,
			sum(m.ack_requests) ack_r, sum(m.ack_success) ack_ok,
			sum(m.ack_failed) ack_failed, sum(m.transactions) txns,
			sum(m.partitions_created) created,
			sum(m.partitions_deleted) deleted,
			round(sum(m.lag_sum_ms) / nullif(sum(m.lag_n), 0), 2) lag_avg,
			case when sum(m.lag_n) > 0 then max(m.lag_max_ms) end lag_max,
			coalesce(round(sum(m.parked_sum) / nullif(sum(m.parked_n), 0), 2),
				0) parked
		from w cross join queen.queue_minutes m
		join queen.queues q on q.id = m.queue_id
		where m.minute >= p_from and m.minute < p_to
			and q.tenant = p_tenant and q.deleted_at is null
			and (p_queue is null or q.name = p_queue)
		group by q.name, q.id, 3
	)
	select 200, json_build_object(
		'timeRange', json_build_object('from', queen.iso_ms_v1(p_from),
			'to', queen.iso_ms_v1(p_to)),
		'bucketMinutes', w.w,
		'series', (select coalesce(json_agg(json_build_object(
			'bucket', queen.iso_ms_v1(x.b), 'queueName', x.name,
			'pushRequests', x.push_r, 'pushMessages', x.push_m,
			'popMessages', x.pop_m, 'popEmpty', x.empty,
			'ackRequests', x.ack_r, 'ackSuccess', x.ack_ok,
			'ackFailed', x.ack_failed, 'transactions', x.txns,
			'partitionsCreated', x.created,
			'partitionsDeleted', x.deleted,
			'partitionCount', (select count(*) from queen.partitions p
				where p.queue_id = x.id),
			'avgLagMs', x.lag_avg, 'maxLagMs', x.lag_max,
			'pushPerSecond', round(x.push_m / (w.w * 60.0), 2),
			'popPerSecond', round(x.pop_m / (w.w * 60.0), 2),
			'ackPerSecond', round(x.ack_ok / (w.w * 60.0), 2),
			'emptyPerSecond', round(x.empty / (w.w * 60.0), 2),
			'parkedCount', x.parked) order by x.b, x.name), '[]') from x),
		'queues', (select coalesce(json_agg(distinct x.name), '[]')
			from x))::text
	from w
$$;

-- Messages removed by retention per bucket; p_by null, or namespace, task or
-- queue for a break-down in rows.
create or replace function queen.analytics_retention_v1(
	p_tenant uuid, p_from timestamptz, p_to timestamptz, p_queue text,
	p_by text)
returns table (status int, body text) language sql stable as $$
	with w as (
		select queen.bucket_minutes(p_from, p_to) as w
	), l as (
		select q.id, case p_by when 'namespace' then q.namespace
				when 'task' then q.task else q.name end as key,
			date_bin(w.w * interval '1 minute', r.at,
				timestamptz '1970-01-01 00:00:00+00') as b,
			case when r.kind = 'retention' then r.messages else 0 end kept,
			case when r.kind = 'completed_retention' then r.messages
				else 0 end done,
			case when r.kind = 'max_wait_time_eviction' then r.messages
				else 0 end waited
		from w cross join queen.retention_log r
		join queen.queues q on q.id = r.queue_id
		where r.at >= p_from and r.at < p_to and q.tenant = p_tenant
			and q.deleted_at is null
			and r.kind <> '__partition_deleted__'
			and (p_queue is null or q.name = p_queue)
	), t as (
		select coalesce(sum(l.kept), 0) kept, coalesce(sum(l.done), 0) done,
			coalesce(sum(l.waited), 0) waited, count(*) n from l
	), s as (
		select l.b, sum(l.kept) kept, sum(l.done) done,
			sum(l.waited) waited, count(*) n from l group by l.b
	), k as (
		select l.key, count(distinct l.id) queues, sum(l.kept) kept,
			sum(l.done) done, sum(l.waited) waited, count(*) n
		from l where p_by is not null group by l.key
	)
	select 200, (jsonb_build_object() || json_build_object(
		'timeRange', json_build_object('from', queen.iso_ms_v1(p_from),
			'to', queen.iso_ms_v1(p_to)),
		'bucketMinutes', w.w,
		'series', (select coalesce(json_agg(json_build_object(
			'bucket', queen.iso_ms_v1(s.b), 'retentionMsgs', s.kept,
			'completedRetentionMsgs', s.done, 'evictionMsgs', s.waited,
			'totalMsgs', s.kept + s.done + s.waited,
			'eventCount', s.n) order by s.b), '[]') from s),
		'totals', json_build_object('retentionMsgs', t.kept,
			'completedRetentionMsgs', t.done, 'evictionMsgs', t.waited,
			'totalMsgs', t.kept + t.done + t.waited,
			'eventCount', t.n))::jsonb ||
		case when p_by is null then '{}' else jsonb_build_object('rows',
			(select coalesce(jsonb_agg(jsonb_build_object('key', k.key,
				'queues', k.queues, 'retentionMsgs', k.kept,
				'completedRetentionMsgs', k.done,
				'evictionMsgs', k.waited,
				'totalMsgs', k.kept + k.done + k.waited,
				'eventCount', k.n) order by k.key), '[]') from k))
		end)::text
	from w, t
$$;

-- PostgreSQL's own statistics of this database and of our tables.
create or replace function queen.analytics_postgres_v1()
returns table (status int, body text) language sql volatile as $$
	with d as (
		select * from pg_stat_database where datname = current_database()
	), u as (
		select t.*, i.heap_blks_read, i.heap_blks_hit, i.idx_blks_read,
			i.idx_blks_hit
		from pg_stat_user_tables t
		join pg_statio_user_tables i on i.relid = t.relid
		where t.schemaname = 'queen'
	), c as (
		select sum(u.heap_blks_hit) heap_hit, sum(u.heap_blks_read) heap_read,
			sum(u.idx_blks_hit) idx_hit, sum(u.idx_blks_read) idx_read
		from u
	)
	select 200, json_build_object(
		'timestamp', queen.iso_ms_v1(clock_timestamp()),
		'database', json_build_object('name', current_database(),
			'version', current_setting('server_version'),
			'sizeBytes', pg_database_size(current_database()),
			'connections', d.numbackends,
			'commits', d.xact_commit, 'rollbacks', d.xact_rollback,
			'deadlocks', d.deadlocks, 'tempBytes', d.temp_bytes),
		'databaseCache', json_build_object('hits', d.blks_hit,
			'reads', d.blks_read, 'hitRatio',
			round(d.blks_hit / nullif(d.blks_hit + d.blks_read, 0)::numeric, 4)),
		'tableCache', json_build_object('hits', c.heap_hit,
			'reads', c.heap_read, 'hitRatio',
			round(c.heap_hit / nullif(c.heap_hit + c.heap_read, 0), 4)),
		'indexCache', json_build_object('hits', c.idx_hit,
			'reads', c.idx_read, 'hitRatio',
			round(c.idx_hit / nullif(c.idx_hit + c.idx_read, 0), 4)),
		'cacheSummary', (select json_agg(json_build_object(
			'table', u.relname, 'heapHits', u.heap_blks_hit,
			'heapReads', u.heap_blks_read, 'indexHits', u.idx_blks_hit,
			'indexReads', u.idx_blks_read) order by u.relname) from u),
		'deadTuples', (select json_agg(json_build_object(
			'table', u.relname, 'live', u.n_live_tup,
			'dead', u.n_dead_tup) order by u.relname) from u),
		'hotUpdates', (select json_agg(json_build_object(
			'table', u.relname, 'updates', u.n_tup_upd,
			'hot', u.n_tup_hot_upd) order by u.relname) from u),
		'activeQueries', (select count(*) from pg_stat_activity a
			where a.datname = current_database() and a.state = 'active'
				and a.pid <> pg_backend_pid()),
		'autovacuumStatus', (select json_agg(json_build_object(
			'table', u.relname,
			'lastVacuum', queen.iso_ms_v1(greatest(u.last_vacuum,
				u.last_autovacuum)),
			'lastAnalyze', queen.iso_ms_v1(greatest(u.last_analyze,
				u.last_autoanalyze)),
			'vacuums', u.vacuum_count + u.autovacuum_count)
			order by u.relname) from u),
		'bufferConfig', json_build_object(
			'sharedBuffers', current_setting('shared_buffers'),
			'effectiveCacheSize', current_setting('effective_cache_size'),
			'maxWalSize', current_setting('max_wal_size'),
			'workMem', current_setting('work_mem')),
		'bufferUsage', (select json_build_object(
			'checkpointWrites', null, 'backendAllocs', b.buffers_alloc)
			from pg_stat_bgwriter b),
		'tableSizes', (select json_agg(json_build_object(
			'table', u.relname,
			'totalBytes', pg_total_relation_size(u.relid),
			'heapBytes', pg_relation_size(u.relid),
			'indexBytes', pg_indexes_size(u.relid))
			order by u.relname) from u))::text
	from d, c
$$;
