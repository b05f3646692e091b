-- SPDX-License-Identifier: Apache-2.0
-- Per-minute counters, written by every instance once a minute.
--
--   minutes_add_v1(...)    adds to queen.queue_minutes and queen.totals
--   instance_add_v1(...)   adds to queen.instance_minutes and queen.totals
--   totals_add(...)        internal: adds to queen.totals
--
-- Cell-wide (a queue id implies its tenant).  Locks the counter rows in
-- (minute, queue_id) order, then totals by name, so instances never deadlock.

-- Adds to the counters of the cell; names ascending.  Returns nothing.
create or replace function queen.totals_add(p_name text[], p_value bigint[])
returns void
language sql volatile as $$
	insert into queen.totals as t (name, value)
	select i.name, i.value from unnest(p_name, p_value) i(name, value)
	order by i.name collate "C"
	on conflict (name) do update set value = t.value + excluded.value;
$$;

-- Adds counters of one instance to the current minute; arrays aligned, one
-- entry per queue with activity, those of queues that are gone left out.  Returns nothing.
create or replace function queen.minutes_add_v1(
	p_queue bigint[], p_push_requests bigint[], p_push_messages bigint[],
	p_pop_requests bigint[], p_pop_messages bigint[], p_pop_empty bigint[],
	p_ack_requests bigint[], p_ack_success bigint[], p_ack_failed bigint[],
	p_transactions bigint[], p_conflated bigint[], p_dead bigint[],
	p_created bigint[], p_deleted bigint[], p_lag_sum_ms bigint[],
	p_lag_n bigint[], p_lag_max_ms bigint[], p_parked_sum bigint[],
	p_parked_n bigint[], p_now timestamptz default null)
returns void
language sql volatile as $$
	insert into queen.queue_minutes as m (minute, queue_id,
		push_requests, push_messages, pop_requests, pop_messages,
		pop_empty, ack_requests, ack_success, ack_failed, transactions,
		conflated, dead_letters, partitions_created, partitions_deleted,
		lag_sum_ms, lag_n, lag_max_ms, parked_sum, parked_n)
	select date_trunc('minute', coalesce(p_now, clock_timestamp())), i.*
	from unnest(p_queue, p_push_requests, p_push_messages, p_pop_requests,
		p_pop_messages, p_pop_empty, p_ack_requests, p_ack_success,
		p_ack_failed, p_transactions, p_conflated, p_dead, p_created,
		p_deleted, p_lag_sum_ms, p_lag_n, p_lag_max_ms, p_parked_sum,
		p_parked_n) as i(queue_id, a, b, c, d, e, f, g, h, j, k, l, m,
			n, o, p, q, r, s)
	-- counted before a purge took the queue
	where exists (select from queen.queues q where q.id = i.queue_id)
	order by i.queue_id
	on conflict (minute, queue_id) do update set
		push_requests = m.push_requests + excluded.push_requests,
		push_messages = m.push_messages + excluded.push_messages,
		pop_requests = m.pop_requests + excluded.pop_requests,
		pop_messages = m.pop_messages + excluded.pop_messages,
		pop_empty = m.pop_empty + excluded.pop_empty,
		ack_requests = m.ack_requests + excluded.ack_requests,
		ack_success = m.ack_success + excluded.ack_success,
		ack_failed = m.ack_failed + excluded.ack_failed,
		transactions = m.transactions + excluded.transactions,
		conflated = m.conflated + excluded.conflated,
		dead_letters = m.dead_letters + excluded.dead_letters,
		partitions_created = m.partitions_created
			+ excluded.partitions_created,
		partitions_deleted = m.partitions_deleted
			+ excluded.partitions_deleted,
		lag_sum_ms = m.lag_sum_ms + excluded.lag_sum_ms,
		lag_n = m.lag_n + excluded.lag_n,
		lag_max_ms = greatest(m.lag_max_ms, excluded.lag_max_ms),
		parked_sum = m.parked_sum + excluded.parked_sum,
		parked_n = m.parked_n + excluded.parked_n;
	select queen.totals_add(
		array['ack_failed', 'ack_messages', 'ack_requests',
			'ack_success', 'dlq', 'pop_messages', 'pop_requests',
			'push_messages', 'push_requests', 'transactions'],
		array[sum(i.failed), sum(i.success + i.failed), sum(i.acks),
			sum(i.success), sum(i.dead), sum(i.popped),
			sum(i.pops), sum(i.pushed), sum(i.pushes),
			sum(i.txns)]::bigint[])
	from unnest(p_ack_failed, p_ack_success, p_ack_requests, p_dead,
		p_pop_messages, p_pop_requests, p_push_messages,
		p_push_requests, p_transactions)
		i(failed, success, acks, dead, popped, pops, pushed, pushes,
			txns);
$$;

-- Adds one instance's gauges to the current minute.  Returns nothing.
create or replace function queen.instance_add_v1(
	p_instance text, p_requests bigint, p_db_errors bigint,
	p_cpu_user_us bigint, p_cpu_system_us bigint, p_rss_bytes bigint,
	p_loop_lag_avg_us bigint, p_loop_lag_max_us bigint, p_pool_size int,
	p_pool_busy_max int, p_uptime_s bigint,
	p_now timestamptz default null)
returns void
language sql volatile as $$
	insert into queen.instance_minutes as m (minute, instance, requests,
		db_errors, cpu_user_us, cpu_system_us, rss_bytes,
		loop_lag_avg_us, loop_lag_max_us, pool_size, pool_busy_max,
		uptime_s)
	values (date_trunc('minute', coalesce(p_now, clock_timestamp())),
		p_instance, p_requests, p_db_errors, p_cpu_user_us,
		p_cpu_system_us, p_rss_bytes, p_loop_lag_avg_us,
		p_loop_lag_max_us, p_pool_size, p_pool_busy_max, p_uptime_s)
	on conflict (minute, instance) do update set
		requests = m.requests + excluded.requests,
		db_errors = m.db_errors + excluded.db_errors,
		cpu_user_us = m.cpu_user_us + excluded.cpu_user_us,
		cpu_system_us = m.cpu_system_us + excluded.cpu_system_us,
		rss_bytes = excluded.rss_bytes,
		loop_lag_avg_us = greatest(m.loop_lag_avg_us,
			excluded.loop_lag_avg_us),
		loop_lag_max_us = greatest(m.loop_lag_max_us,
			excluded.loop_lag_max_us),
		pool_size = excluded.pool_size,
		pool_busy_max = greatest(m.pool_busy_max,
			excluded.pool_busy_max),
		uptime_s = excluded.uptime_s;
	select queen.totals_add(array['db_errors'], array[p_db_errors]);
$$;
