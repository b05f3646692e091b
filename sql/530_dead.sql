-- SPDX-License-Identifier: Apache-2.0
-- Dead letters as an operator sees them; replay is elsewhere.
--
-- Functions: dead_list_v1, dead_find_v1, dead_purge_v1.
-- Tables written: dead_letters.  Locks: the rows deleted.

-- A page, newest first; null filters match all.  failed_at in [p_from, p_to).
create or replace function queen.dead_list_v1(p_tenant uuid, p_queue text, p_group text,
	p_partition text,
	p_from timestamptz, p_to timestamptz, p_limit int, p_offset int)
returns table (id uuid, part bigint, queue text, partition text, group_name text, error text,
	retries int,
	created_at timestamptz, failed_at timestamptz, frame bytea)
language sql stable rows 100 as $$
	with page as materialized (
		select x.*, q.name qname from queen.queues q
		cross join lateral (
			select d.id, d.partition_id, d.failed_at from queen.dead_letters d
			where d.queue_id = q.id and (p_group is null or d.group_name = p_group)
				and d.failed_at >= coalesce(p_from, '-infinity')
					and d.failed_at < coalesce(p_to, 'infinity')
				and (p_partition is null or d.partition_id = (
					select p.id from queen.partitions p
						where p.queue_id = q.id
						and p.name = p_partition))
			order by d.failed_at desc limit p_limit + p_offset) x
		where q.tenant = p_tenant and q.deleted_at is null
			and (p_queue is null or q.name = p_queue)
		order by x.failed_at desc, x.id desc limit p_limit offset p_offset)
	select d.id, d.partition_id, g.qname::text, p.name::text, d.group_name::text, d.error,
		d.retries, d.created_at,
		d.failed_at, d.frame
	from page g
	join queen.dead_letters d on d.id = g.id
	join queen.partitions p on p.id = g.partition_id
	order by d.failed_at desc, d.id desc
$$;

-- The newest dead letter of an address, or null.
create or replace function queen.dead_find_v1(p_tenant uuid, p_part bigint, p_id bytea)
returns uuid language sql stable as $$
	select d.id from queen.dead_letters d
	join queen.queues q on q.id = d.queue_id and q.tenant = p_tenant
		and q.deleted_at is null
	where d.partition_id = p_part and d.id_hash = p_id
	order by d.failed_at desc, d.id desc limit 1
$$;

-- One step of emptying a queue's dead letters (of one group, or null: all);
-- how many went.  The caller repeats it while that is p_limit.
create or replace function queen.dead_purge_v1(p_tenant uuid, p_queue text, p_group text,
	p_limit int)
returns bigint language sql volatile as $$
	with gone as (
		delete from queen.dead_letters x where x.id in (
			select d.id from queen.dead_letters d
			where d.queue_id = queen.queue_id_v1(p_tenant, p_queue)
				and (p_group is null or d.group_name = p_group)
			limit p_limit)
		returning 1)
	select count(*) from gone
$$;
