-- SPDX-License-Identifier: Apache-2.0
-- What `queenctl doctor` asks of the tables.  Cell-wide, read-only, asked by
-- hand: each call may look at every group and every cursor once.
--
--   doctor_lag_v1(max lag)     groups that are further behind
--   doctor_leases_v1(...)      batches that nobody finishes
--   doctor_claims_v1()         jobs that do not run
--   doctor_dead_v1()           queues whose dead letters grow
--
-- Tables written: none.  Locks: none.

-- Groups whose oldest unconsumed message is older than p_max_s, the furthest
-- behind first, at most 20.
create or replace function queen.doctor_lag_v1(p_max_s bigint, p_now timestamptz default null)
returns table (queue text, group_name text, messages bigint, age_s bigint) language sql volatile as $$
	select q.name::text, late.group_name, late.messages, late.age_s
	from (select distinct x.tenant from queen.queues x where x.deleted_at is null) t
	cross join lateral (
		select c.queue_id, c.group_name, sum(c.lag)::bigint as messages,
			max(floor(extract(epoch from coalesce(p_now, clock_timestamp())
				- queen.oldest_after(c.part, greatest(c.committed, c.log_start - 1)))))::bigint as age_s
		from queen.cursor_states_v1(t.tenant, queen.queue_parts_v1(t.tenant, array(
			select y.id from queen.queues y where y.tenant = t.tenant and y.deleted_at is null)), p_now) c
		where c.lag > 0 group by c.queue_id, c.group_name) late
	join queen.queues q on q.id = late.queue_id
	where late.age_s > p_max_s
	order by late.age_s desc, 1, 2 limit 20
$$;

-- Leases that ran out more than p_expired_s ago with their batch still open
-- (nobody pops there), and live ones held longer than p_held_s; at most 20.
create or replace function queen.doctor_leases_v1(p_expired_s bigint, p_held_s bigint,
	p_now timestamptz default null)
returns table (queue text, group_name text, expired bigint, held bigint, age_s bigint)
language sql volatile as $$
	with t as materialized (select coalesce(p_now, clock_timestamp()) as now),
	newest as materialized (
		select distinct on (c.group_id, c.partition_id) c.group_id, c.batch_end, c.expires_at, c.acquired_at
		from queen.consumers c order by c.group_id, c.partition_id, c.gen desc),
	stuck as (
		select n.group_id, n.expires_at <= t.now as is_expired,
			extract(epoch from t.now - case when n.expires_at <= t.now then n.expires_at
				else n.acquired_at end)::bigint as age_s
		from newest n cross join t where n.batch_end is not null)
	select q.name::text, g.name::text, count(*) filter (where s.is_expired),
		count(*) filter (where not s.is_expired), max(s.age_s)
	from stuck s
	join queen.groups g on g.id = s.group_id and g.deleted_at is null
	join queen.queues q on q.id = g.queue_id and q.deleted_at is null
	where s.age_s > case when s.is_expired then p_expired_s else p_held_s end
	group by 1, 2 order by 5 desc, 1, 2 limit 20
$$;

-- Every job: seconds it is overdue beyond its period (0 = on time), and for how
-- long its lease has been over while its holder never gave it back.
create or replace function queen.doctor_claims_v1(p_now timestamptz default null)
returns table (task text, enabled boolean, holder text, period_s bigint, overdue_s bigint, dead_s bigint)
language sql volatile as $$
	select c.task, c.enabled, c.holder, c.period_ms / 1000,
		greatest(extract(epoch from t.now - c.next_due_at
			- c.period_ms * interval '1 ms')::bigint, 0),
		greatest(extract(epoch from t.now - c.lease_until)::bigint, 0)
	from queen.claims c cross join (select coalesce(p_now, clock_timestamp()) as now) t
	order by c.task
$$;

-- Queues with dead letters of the last hour: how many then, and in all.
create or replace function queen.doctor_dead_v1(p_now timestamptz default null)
returns table (queue text, recent bigint, total bigint) language sql volatile as $$
	select q.name::text, r.n, (select count(*) from queen.dead_letters x where x.queue_id = q.id)
	from queen.queues q cross join lateral (
		select count(*) n from queen.dead_letters d where d.queue_id = q.id
			and d.failed_at > coalesce(p_now, clock_timestamp()) - interval '1 hour') r
	where q.deleted_at is null and r.n > 0
	order by r.n desc, q.name limit 20
$$;
