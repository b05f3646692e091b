-- SPDX-License-Identifier: Apache-2.0
-- Looking at stored messages.  Rows carry blobs and frames: the caller opens
-- them, nothing here reads a payload.
--
-- Functions: group_mode, message_list_v1, message_find_v1, message_get_v1,
-- message_delete_v1.
-- Tables written: dead_letters.  Locks: the rows deleted.

-- Who consumes from these queues: without a group, with groups, both, none.
create or replace function queen.group_mode(p_queue bigint[])
returns json language sql stable as $$
	select json_build_object('hasQueueMode', m.own, 'busGroupsCount', m.n, 'type',
		case when m.own and m.n > 0 then 'hybrid' when m.own then 'queue' when m.n > 0
			then 'bus' else 'none' end)
	from (
		select coalesce(bool_or(g.name = '__QUEUE_MODE__'), false) own,
			count(distinct g.name) filter (where g.name <> '__QUEUE_MODE__') n
		from unnest(p_queue) u(id) join queen.groups g on g.queue_id = u.id
			and g.deleted_at is null) m
$$;

-- Partitions that may hold messages of this window: those named, or the
-- 10 000 written last.
create or replace function queen.message_parts(p_queue bigint[], p_partition text,
	p_from timestamptz)
returns bigint[] language plpgsql stable as $$
begin
	if p_partition is not null then
		return array(select p.id from unnest(p_queue) u(id)
			join queen.partitions p on p.queue_id = u.id and p.name = p_partition);
	end if;
	return array(select h.id from queen.partition_heads h
		where h.last_write_at >= p_from - interval '2 seconds'
			and h.queue_id = any(p_queue)
		order by h.last_write_at desc, h.id desc limit 10000);
end $$;

-- The newest segments of these partitions created in [p_from, p_to), newest
-- first, until they hold p_want messages.
create or replace function queen.message_segments(p_tenant uuid, p_part bigint[],
	p_from timestamptz, p_to timestamptz,
	p_want int)
returns table (part bigint, base bigint, last bigint, at timestamptz, raw_bytes int)
language sql volatile rows 100 as $$
	with bounds as materialized (
		select s.part, case when s.oldest_live_at >= p_from then s.log_start
				else queen.offset_bisect(s.part, s.log_start, s.last_offset,
					p_from) + 1 end lo,
			case when s.newest_at < p_to then s.last_offset
				else queen.offset_bisect(s.part, s.log_start, s.last_offset,
					p_to) end hi
		from queen.partition_states_v1(p_tenant, p_part) s where s.newest_at >= p_from),
	-- only partitions whose newest segment is among the newest p_want matter
	tops as materialized (
		select b.part, b.lo, b.hi from bounds b
		cross join lateral (
			select g.created_at from queen.segments g
			where g.partition_id = b.part and g.base_offset between b.lo and b.hi
			order by g.base_offset desc limit 1) t
		order by t.created_at desc, b.part limit p_want),
	found as (
		select g.*, sum(g.last - g.base + 1)
			over (order by g.at desc, g.part, g.base desc) as upto
		from (
			select t.part, x.base_offset as base, x.end_offset as last,
				x.created_at as at, x.raw_bytes
			from tops t cross join lateral (
				select g.base_offset, g.end_offset, g.created_at, g.raw_bytes
					from queen.segments g
				where g.partition_id = t.part and g.base_offset between t.lo
					and t.hi
				order by g.base_offset desc limit p_want) x) g)
	select f.part, f.base, f.last, f.at, f.raw_bytes from found f
	where f.upto - (f.last - f.base + 1) < p_want order by f.at desc, f.part, f.base desc
$$;

-- A page of messages, newest first; null filters match all, p_from null = an
-- hour ago, p_to null = to the end of this minute.  The first row has part null and mode set.  The blob stands in the first row of its segment,
-- null there when the page is over 64 MiB.  With p_status the newest 100 000
-- messages of the window are looked through.
create or replace function queen.message_list_v1(p_tenant uuid, p_queue text, p_partition text,
	p_namespace text,
	p_task text, p_status text, p_from timestamptz, p_to timestamptz, p_limit int,
		p_offset int,
	p_now timestamptz default null)
returns table (part bigint, queue text, partition text, namespace text, task text, priority int,
	base bigint, off bigint,
	at timestamptz, status text, lease_expires_at timestamptz, consumed_by bigint,
		total_groups bigint, blob bytea,
	mode text)
language plpgsql volatile as $$
declare
	at_from timestamptz := coalesce(p_from, coalesce(p_now, now()) - interval '1 hour');
	at_to timestamptz := coalesce(p_to, date_trunc('minute', coalesce(p_now, now()))
		+ interval '1 minute');
	ids bigint[] := array(select q.id from queen.queues q where q.tenant = p_tenant
		and q.deleted_at is null
		and (p_queue is null or q.name = p_queue)
			and (p_namespace is null or q.namespace = p_namespace)
		and (p_task is null or q.task = p_task));
	parts bigint[] := queen.message_parts(ids, p_partition, at_from);
	want int := case when p_status is null then p_limit + p_offset else 100000 end;
begin
	mode := queen.group_mode(ids)::text;
	return next;
	return query
	with segs as materialized (
		select * from queen.message_segments(p_tenant, parts, at_from, at_to, want)),
	cursors as materialized (
		select * from queen.cursor_states_v1(p_tenant,
			array(select distinct s.part from segs s), p_now)),
	own as materialized (
		select c.part, c.committed, c.leased_to, c.expires_at from cursors c
			where c.group_name = '__QUEUE_MODE__'),
	page as materialized (
		select m.* from (
			select s.part, s.base, o.off, s.at, s.raw_bytes, w.expires_at,
				coalesce(o.off > w.committed and o.off <= w.leased_to,
					false) leased,
				case when exists (select from queen.dead_letters d
						where d.partition_id = s.part
							and d.message_offset = o.off)
							then 'dead_letter'
					when o.off <= w.committed then 'completed'
					when o.off <= w.leased_to then 'processing'
						else 'pending' end status
			from segs s cross join lateral generate_series(s.base, s.last) o(off)
			left join own w on w.part = s.part) m
		where p_status is null or m.status = p_status
		order by m.at desc, m.part, m.off desc limit p_limit offset p_offset),
	firsts as materialized (
		select f.*, sum(f.raw_bytes) over (order by f.at desc, f.part, f.base desc) upto
		from (select distinct on (g.part, g.base) g.* from page g order by g.part,
			g.base, g.off desc) f)
	select g.part, q.name::text, p.name::text, q.namespace, q.task, q.priority, g.base,
		g.off, g.at, g.status,
		case when g.leased then g.expires_at end,
		(select count(*) from cursors c where c.part = g.part
			and c.group_name <> '__QUEUE_MODE__'
			and c.committed >= g.off),
		(select count(*) from cursors c where c.part = g.part
			and c.group_name <> '__QUEUE_MODE__'),
		(select s.blob from firsts f join queen.segments s on s.partition_id = f.part
			and s.base_offset = f.base
			where f.part = g.part and f.base = g.base and f.off = g.off
				and f.upto - f.raw_bytes < 67108864), null::text
	from page g
	join queen.partitions p on p.id = g.part
	join queen.queues q on q.id = p.queue_id
	order by g.at desc, g.part, g.off desc;
end $$;

-- The newest stored offset of a transaction-id hash in a partition, or null.
-- Reads id rows backwards; linear in the ids kept.
create or replace function queen.message_find_v1(p_tenant uuid, p_part bigint, p_id bytea)
returns bigint language plpgsql stable as $$
declare
	r record;
	i bigint;
begin
	for r in
		select s.base_offset, s.end_offset, s.ids from queen.partitions p
		join queen.queues q on q.id = p.queue_id and q.tenant = p_tenant
			and q.deleted_at is null
		join queen.partition_heads h on h.id = p.id
		join lateral (
			select x.base_offset, x.end_offset, x.ids from queen.segment_ids x
			where x.partition_id = p.id
				order by x.base_offset desc) s on s.end_offset >= h.log_start
		where p.id = p_part and position(p_id in s.ids) > 0
	loop
		for i in reverse r.end_offset - r.base_offset .. 0 loop
			if substring(r.ids from (i * 16 + 1)::int for 16) = p_id then
				return r.base_offset + i;
			end if;
		end loop;
	end loop;
	return null;
end $$;

-- One message by address: from the log, else from its newest dead letter; no
-- row when neither has it.  blob null = take dead_frame (null when retention
-- had removed it).
create or replace function queen.message_get_v1(p_tenant uuid, p_part bigint, p_id bytea,
	p_now timestamptz default null)
returns table (queue text, partition text, namespace text, task text, base bigint, off bigint,
	at timestamptz,
	blob bytea, dead_frame bytea, error text, retries int, status text,
		lease_expires_at timestamptz, config text,
	groups text, mode text)
language plpgsql volatile as $$
declare
	o bigint := queen.message_find_v1(p_tenant, p_part, p_id);
	d queen.dead_letters;
begin
	select x.* into d from queen.dead_letters x
	where x.partition_id = p_part and x.id_hash = p_id
		and (o is null or x.message_offset = o)
	order by x.failed_at desc, x.id desc limit 1;
	o := coalesce(o, d.message_offset);
	return query
	with cursors as materialized (select * from queen.cursor_states_v1(p_tenant,
		array[p_part], p_now)),
	own as (select c.* from cursors c where c.group_name = '__QUEUE_MODE__')
	select q.name::text, p.name::text, q.namespace, q.task, s.base_offset, o,
		coalesce(s.created_at, d.created_at), s.blob,
		d.frame, d.error, coalesce(d.retries, 0),
		case when d.id is not null then 'dead_letter' when o <= w.committed
			then 'completed'
			when o <= w.leased_to then 'processing' else 'pending' end,
		case when o > w.committed and o <= w.leased_to then w.expires_at end,
		json_build_object('leaseTime', q.lease_time_s, 'retryLimit', q.retry_limit,
			'retryDelay', q.retry_delay_ms,
			'ttl', q.ttl_s, 'priority', q.priority)::text,
		(select coalesce(json_agg(json_build_object('name', c.group_name, 'group',
			c.group_name,
			'consumed', c.committed >= o, 'leaseExpiresAt', case
				when o > c.committed and o <= c.leased_to
				then queen.iso_ms_v1(c.expires_at) end) order by c.group_name),
					'[]')::text from cursors c),
		queen.group_mode(array[q.id])::text
	from queen.partitions p
	join queen.queues q on q.id = p.queue_id and q.tenant = p_tenant
		and q.deleted_at is null
	left join lateral (
		select g.base_offset, g.end_offset, g.created_at, g.blob from queen.segments g
		where g.partition_id = p.id and g.base_offset <= o order by g.base_offset desc
			limit 1) s on s.end_offset >= o
	left join own w on true
	where p.id = p_part and o is not null;
end $$;

-- Deletes the dead letters of an address, of all groups; how many.
create or replace function queen.message_delete_v1(p_tenant uuid, p_part bigint, p_id bytea)
returns bigint language sql volatile as $$
	with gone as (
		delete from queen.dead_letters d using queen.queues q
		where d.partition_id = p_part and d.id_hash = p_id and q.id = d.queue_id
			and q.tenant = p_tenant
			and q.deleted_at is null
		returning 1)
	select count(*) from gone
$$;
