-- SPDX-License-Identifier: Apache-2.0
-- What the Prometheus page reads from the database, the same on every
-- instance.
--
--   prometheus_totals_v1()   counters of the cell
--   prometheus_queues_v1()   the latest minute of each active queue
--   prometheus_dead_v1()     dead letters per queue
--
-- Reads only.  Cell-wide: the page has no tenant.

-- Counters since the cell was made.  Rows (name, value).
create or replace function queen.prometheus_totals_v1()
returns table (name text, value bigint)
language sql stable as $$
	select t.name, t.value from queen.totals t order by t.name;
$$;

-- The newest minute of each queue that has one within five minutes; a quiet
-- queue disappears.
create or replace function queen.prometheus_queues_v1(
	p_now timestamptz default null)
returns table (queue text, age_s double precision, pop_messages bigint,
	push_requests bigint, push_messages bigint, pop_empty bigint,
	transactions bigint, conflated bigint, parked double precision,
	lag_avg_ms double precision, lag_max_ms bigint, ack_success bigint,
	ack_failed bigint)
language sql stable as $$
	select q.name, extract(epoch from t.now - m.minute)::double precision,
		m.pop_messages, m.push_requests, m.push_messages, m.pop_empty,
		m.transactions, m.conflated,
		m.parked_sum::double precision / nullif(m.parked_n, 0),
		m.lag_sum_ms::double precision / nullif(m.lag_n, 0),
		case when m.lag_n > 0 then m.lag_max_ms end,
		m.ack_success, m.ack_failed
	from (select coalesce(p_now, clock_timestamp()) as now) t
	cross join lateral (
		select distinct on (x.queue_id) x.* from queen.queue_minutes x
		where x.minute > t.now - interval '6 minutes'
		order by x.queue_id, x.minute desc
	) m
	join queen.queues q on q.id = m.queue_id and q.deleted_at is null
	order by q.name;
$$;

-- Dead letters per queue that has any.
create or replace function queen.prometheus_dead_v1()
returns table (queue text, letters bigint)
language sql stable as $$
	select q.name, d.n
	from (select x.queue_id, count(*) as n from queen.dead_letters x
		group by x.queue_id) d
	join queen.queues q on q.id = d.queue_id and q.deleted_at is null
	order by q.name;
$$;
