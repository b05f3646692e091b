-- SPDX-License-Identifier: Apache-2.0
-- Consumer groups as an operator sees them; seek and delete are elsewhere.
--
-- Functions: group_list_v1, group_lagging_v1, group_get_v1,
-- group_subscription_v1.
-- Tables written: groups.  Lock order: group rows by id.
--
-- A registered group stands somewhere on every partition of its queue, with a
-- row or without one, so members counts all of them.

-- One entry per (group, queue).  Age in seconds of the oldest message not yet
-- consumed decides Lagging; else Stable once it consumed anything.
create or replace function queen.group_list_v1(p_tenant uuid, p_now timestamptz default null)
returns table (status int, body text) language sql volatile as $$
	with ids as materialized (
		select array(select q.id from queen.queues q where q.tenant = p_tenant
			and q.deleted_at is null) v),
	sums as materialized (
		select c.group_id, count(*) n, count(*) filter (where c.lag > 0) lagging,
			sum(c.lag)::bigint lag,
			coalesce(floor(extract(epoch
				from max(case when c.lag > 0 then coalesce(p_now, now())
				- queen.oldest_after(c.part,
					greatest(c.committed, c.log_start - 1)) end))),
					0)::bigint age,
			sum(c.consumed)::bigint consumed
		from queen.cursor_states_v1(p_tenant,
			queen.queue_parts_v1(p_tenant, (select v from ids)), p_now) c
			group by c.group_id)
	select 200, coalesce(json_agg(json_build_object('name', g.name, 'topics',
		json_build_array(q.name),
		'queueName', q.name, 'members', coalesce(s.n, 0), 'partitionCursors',
			coalesce(s.n, 0),
		'partitionsWithLag', coalesce(s.lagging, 0), 'totalLag', coalesce(s.lag, 0),
		'maxTimeLag', greatest(coalesce(s.age, 0), 0),
		'state', case when s.age > 300 then 'Lagging' when s.consumed > 0 then 'Stable'
			else 'Dead' end,
		'storage', 'segments', 'subscriptionMode', g.mode,
		'subscriptionTimestamp', queen.iso_ms_v1(g.subscribed_at),
		'subscriptionCreatedAt', queen.iso_ms_v1(g.created_at), 'conflation',
			g.conflated)
		order by g.name, q.name), '[]')::text
	from unnest((select v from ids)) u(id)
	join queen.queues q on q.id = u.id
	join queen.groups g on g.queue_id = q.id and g.deleted_at is null
	left join sums s on s.group_id = g.id
$$;

-- Every (group, partition) whose oldest unconsumed message is older than
-- p_min_s, longest first, at most 10 000.
create or replace function queen.group_lagging_v1(p_tenant uuid, p_min_s int,
	p_now timestamptz default null)
returns table (status int, body text) language sql volatile as $$
	with ids as materialized (
		select array(select q.id from queen.queues q where q.tenant = p_tenant
			and q.deleted_at is null) v),
	late as materialized (
		select c.*, o.at, floor(extract(epoch
			from coalesce(p_now, now()) - o.at))::bigint age
		from queen.cursor_states_v1(p_tenant,
			queen.queue_parts_v1(p_tenant, (select v from ids)), p_now) c
		cross join lateral (select case when c.lag > 0
			then queen.oldest_after(c.part,
				greatest(c.committed, c.log_start - 1)) end as at) o
		where o.at <= coalesce(p_now, now()) - make_interval(secs => p_min_s)
		order by o.at, c.part, c.group_id limit 10000)
	select 200, coalesce(json_agg(json_build_object('consumer_group', l.group_name,
		'queue_name', q.name,
		'partition_name', l.partition, 'partition_id',
			queen.wire_id_of_v1(e.tag, 2, l.part), 'worker_id', l.lease,
		'offset_lag', l.lag, 'time_lag_seconds', l.age, 'lag_hours',
			round(l.age / 3600.0, 2),
		'oldest_unconsumed_at', queen.iso_ms_v1(l.at), 'last_consumed_at', null)
		order by l.at, l.part, l.group_id), '[]')::text
	from queen.cell e cross join late l join queen.queues q on q.id = l.queue_id
$$;

-- One group on all its queues, an object by queue name ({} when unknown); the
-- first 100 000 partitions.
create or replace function queen.group_get_v1(p_tenant uuid, p_group text,
	p_now timestamptz default null)
returns table (status int, body text) language sql volatile as $$
	with mine as materialized (
		select g.id, g.queue_id, g.conflated, q.name from queen.groups g
		join queen.queues q on q.id = g.queue_id and q.tenant = p_tenant
			and q.deleted_at is null
		where g.name = p_group and g.deleted_at is null),
	cursors as materialized (
		select c.* from queen.cursor_states_v1(p_tenant,
			queen.queue_parts_v1(p_tenant, array(select m.queue_id from mine m)),
				p_now) c
		where c.group_name = p_group order by c.queue_id, c.partition collate "C"
			limit 100000),
	parts as materialized (
		select c.group_id, json_agg(json_build_object('partition', c.partition,
			'workerId', c.lease,
			'lastConsumedAt', null, 'totalConsumed', c.consumed, 'offsetLag', c.lag,
			'timeLagSeconds', case when c.lag > 0
				then greatest(floor(extract(epoch from coalesce(p_now, now())
				- queen.oldest_after(c.part,
					greatest(c.committed, c.log_start - 1)))), 0)::bigint
					else 0 end,
			'leaseActive', c.leased_to is not null)
				order by c.partition collate "C") v
		from cursors c group by c.group_id)
	select 200, coalesce(json_object_agg(m.name,
		json_build_object('conflation', m.conflated,
		'partitions', coalesce(p.v, '[]')) order by m.name), '{}')::text
	from mine m left join parts p on p.group_id = m.id
$$;

-- Stores another subscription time on all queues of a group; moves no cursor
-- (start_at stays), it counts when the group is seeded again.  A group that
-- subscribed to everything subscribes from that time on.
create or replace function queen.group_subscription_v1(p_tenant uuid, p_group text,
	p_at timestamptz)
returns table (status int, body text) language plpgsql volatile as $$
declare
	ids bigint[];
	n bigint;
begin
	ids := array(select g.id from queen.groups g
		join queen.queues q on q.id = g.queue_id and q.tenant = p_tenant
			and q.deleted_at is null
		where g.name = p_group and g.deleted_at is null
			order by g.id for no key update of g);
	update queen.groups g set subscribed_at = p_at,
		mode = case when g.mode = 'all' then 'timestamp' else g.mode end
	where g.id = any(ids);
	get diagnostics n = row_count;
	return query select 200, json_build_object('success', true, 'consumerGroup', p_group,
		'newTimestamp', queen.iso_ms_v1(p_at), 'rowsUpdated', n)::text;
end $$;
