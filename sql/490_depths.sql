-- SPDX-License-Identifier: Apache-2.0
-- The arithmetic of backlogs, in one place: every listing, depth and lag is
-- an aggregate over these rows.  Nothing is stored; a call costs one key step
-- per partition and one per (group, partition), whatever the log holds.
--
-- Functions: queue_id_v1, queue_parts_v1, partition_states_v1, position_of, cursor_states_v1,
-- partition_depths_v1, oldest_after, six_counts.
-- Tables written: none.  Locks: none.
--
-- cursor_states_v1 and partition_depths_v1 are volatile so that the planner
-- does not merge them into the caller: what it made of the whole, without
-- statistics, took minutes instead of two seconds.

-- The live queue of this name, or null.
create or replace function queen.queue_id_v1(p_tenant uuid, p_name text)
returns bigint language sql stable as $$
	select q.id from queen.queues q where q.tenant = p_tenant and q.name = p_name
		and q.deleted_at is null
$$;

-- Ids of all partitions of these live queues.
create or replace function queen.queue_parts_v1(p_tenant uuid, p_queue bigint[])
returns bigint[] language sql stable as $$
	select array(select p.id from unnest(p_queue) u(id)
		join queen.queues q on q.id = u.id and q.tenant = p_tenant
			and q.deleted_at is null
		join queen.partitions p on p.queue_id = q.id)
$$;

-- These partitions: retained range log_start .. last_offset (last_offset =
-- log_start - 1 when nothing is stored) and newest stamp.
create or replace function queen.partition_states_v1(p_tenant uuid, p_part bigint[])
returns table (queue_id bigint, part bigint, name text, created_at timestamptz,
	log_start bigint, last_offset bigint,
	newest_at timestamptz, oldest_live_at timestamptz)
language sql stable rows 1000 as $$
	select q.id, p.id, p.name, p.created_at, h.log_start,
		coalesce(s.end_offset, h.log_start - 1), s.created_at,
		h.oldest_live_at
	from unnest(p_part) u(id)
	join queen.partitions p on p.id = u.id
	join queen.queues q on q.id = p.queue_id and q.tenant = p_tenant
		and q.deleted_at is null
	join queen.partition_heads h on h.id = p.id
	left join lateral (
		select g.end_offset, g.created_at from queen.segments g
		where g.partition_id = p.id order by g.base_offset desc limit 1) s on true
$$;

-- Where a group stands on a partition: its row's cursor, or where a group
-- without a row begins (start_at null = everything retained).  The stamps
-- spare the search of the log in all but mixed partitions.
create or replace function queen.position_of(p_part bigint, p_committed bigint,
	p_start_at timestamptz,
	p_log_start bigint, p_last_offset bigint, p_newest_at timestamptz,
		p_oldest_at timestamptz)
returns bigint language sql volatile as $$
	select case
		when p_committed is not null then p_committed
		when p_start_at is null then p_log_start - 1
		when p_newest_at is null or p_newest_at < p_start_at then p_last_offset
		when p_start_at <= p_oldest_at then p_log_start - 1
		else queen.offset_bisect(p_part, p_log_start, p_last_offset, p_start_at)
	end
$$;

-- Every (live group, partition) of these partitions; committed is the derived
-- position where there is no row.  leased_to null = no live lease at p_now.
create or replace function queen.cursor_states_v1(p_tenant uuid, p_part bigint[],
	p_now timestamptz default null)
returns table (queue_id bigint, group_id bigint, group_name text, conflated boolean,
	part bigint, partition text,
	log_start bigint, last_offset bigint, committed bigint, leased_to bigint,
		expires_at timestamptz,
	lease uuid, consumed bigint, lag bigint)
language sql volatile rows 1000 as $$
	select s.queue_id, g.id, g.name, g.conflated, s.part, s.name, s.log_start,
		s.last_offset, v.committed,
		case when v.live then c.batch_end end, case when v.live then c.expires_at end,
		case when c.lease_no is not null then queen.wire_lease_v1(c.lease_at,
			c.lease_group, c.lease_no) end,
		coalesce(c.consumed, 0), greatest(s.last_offset - greatest(v.committed,
			s.log_start - 1), 0)
	from queen.partition_states_v1(p_tenant, p_part) s
	join queen.groups g on g.queue_id = s.queue_id and g.deleted_at is null
	left join lateral (
		select k.committed, k.batch_end, k.lease_at, k.lease_group, k.lease_no,
			k.expires_at, k.consumed
		from queen.consumers k where k.group_id = g.id and k.partition_id = s.part
		order by k.gen desc limit 1) c on true
	cross join lateral (
		select queen.position_of(s.part, c.committed, g.start_at, s.log_start,
			s.last_offset, s.newest_at,
			s.oldest_live_at) as committed,
			(c.batch_end is not null and c.expires_at > coalesce(p_now,
				now())) as live) v
$$;

-- These partitions with their backlog.  worst = lowest cursor of the named groups,
-- of the group-less consumer when there is none, else -1; processing = leased
-- and not yet acked, at most pending; dead = dead letters.
create or replace function queen.partition_depths_v1(p_tenant uuid, p_part bigint[],
	p_now timestamptz default null)
returns table (queue_id bigint, part bigint, name text, created_at timestamptz,
	log_start bigint, last_offset bigint,
	newest_at timestamptz, worst bigint, total bigint, pending bigint, processing bigint,
		dead bigint)
language sql volatile rows 1000 as $$
	with cursors as materialized (
		select c.part, coalesce(min(c.committed)
			filter (where c.group_name <> '__QUEUE_MODE__'),
			min(c.committed)) worst,
			sum(greatest(c.leased_to - c.committed, 0))::bigint leased
		from queen.cursor_states_v1(p_tenant, p_part, p_now) c group by c.part)
	select s.queue_id, s.part, s.name, s.created_at, s.log_start, s.last_offset,
		s.newest_at, coalesce(c.worst, -1),
		greatest(s.last_offset - s.log_start + 1, 0), v.pending,
			least(coalesce(c.leased, 0), v.pending),
		d.n
	from queen.partition_states_v1(p_tenant, p_part) s
	left join cursors c on c.part = s.part
	cross join lateral (select count(*) n from queen.dead_letters x
		where x.partition_id = s.part) d
	cross join lateral (
		select greatest(s.last_offset - greatest(coalesce(c.worst, -1),
			s.log_start - 1), 0) as pending) v
$$;

-- created_at of the first stored message after this offset.
create or replace function queen.oldest_after(p_part bigint, p_offset bigint)
returns timestamptz language sql stable as $$
	select coalesce(
		(select s.created_at from (
			select g.created_at, g.end_offset from queen.segments g
			where g.partition_id = p_part and g.base_offset <= p_offset + 1
				order by g.base_offset desc limit 1) s
		where s.end_offset > p_offset),
		(select g.created_at from queen.segments g
		where g.partition_id = p_part and g.base_offset > p_offset
			order by g.base_offset limit 1))
$$;

-- The six numbers every status shows; failed is null, there is no per-message
-- failure state.
create or replace function queen.six_counts(p_total bigint, p_pending bigint,
	p_processing bigint, p_dead bigint)
returns json language sql immutable as $$
	select json_build_object('total', p_total, 'pending', p_pending, 'processing',
		p_processing,
		'completed', greatest(p_total - p_pending - p_dead, 0), 'failed', null,
			'deadLetter', p_dead)
$$;
