-- SPDX-License-Identifier: Apache-2.0
-- Finding work and messages: what the candidate rings, the dedup filters and
-- the message routes read.
--
-- group_pending_v1, change_scan_v1, repair_scan_v1, ids_page_v1,
-- segments_at_v1, offset_at_v1, offsets_at_v1.
--
-- Writes nothing and takes no lock.  Each call costs the page it returns,
-- never all partitions, also under a plan made while the tables were empty:
-- `queue_id = any (array[...])` keeps queue_id in the order asked for, so that
-- only the index on (queue_id, id) yields it without a sort.

-- Partitions with messages beyond the position of a group (leases ignored),
-- by id after p_after; examines at most p_limit of them.  Every row carries
-- next, where to go on; null = that was all.  Nothing pending: one row with
-- part null.  A partition that is pending all the time is on some page.
create or replace function queen.group_pending_v1(p_tenant uuid,
	p_group bigint, p_after bigint, p_limit int)
returns table (part bigint, next bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	l_queue bigint; l_start timestamptz;
begin
	select g.queue_id, g.start_at into l_queue, l_start
	from queen.groups g
	join queen.queues q on q.id = g.queue_id and q.tenant = p_tenant
		and q.deleted_at is null
	where g.id = p_group and g.deleted_at is null;
	return query
	with page as materialized (
		select p.id from queen.partitions p
		where p.queue_id = any (array[l_queue])
			and p.id > coalesce(p_after, 0)
		order by p.queue_id, p.id limit p_limit
	), pending as (
		select p.id from page p
		cross join lateral (select s.end_offset, s.created_at
			from queen.segments s where s.partition_id = p.id
			order by s.base_offset desc limit 1) s
		left join lateral (select c.committed from queen.consumers c
			where c.group_id = p_group and c.partition_id = p.id
			order by c.gen desc limit 1) c on true
		where case when c.committed is not null
				then c.committed < s.end_offset
			else l_start is null or s.created_at >= l_start end
	)
	select p.id, e.next
	from (select case when count(*) >= p_limit then max(id) end as next
		from page) e
	left join pending p on true
	order by p.id;
end $$;

-- Cell-wide: partitions written since, after (p_since, p_after) in the order
-- (last_write_at, id), at most p_limit.  One that is written between two pages
-- moves forward: seen twice, never missed.
create or replace function queen.change_scan_v1(p_since timestamptz,
	p_after bigint, p_limit int)
returns table (queue_id bigint, part bigint, written_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	return query
	select h.queue_id, h.id, h.last_write_at
	from queen.partition_heads h
	where (h.last_write_at, h.id) > (p_since, p_after)
	order by h.last_write_at, h.id limit p_limit;
end $$;

-- Cell-wide: cursors moved by hand, notes after p_after, at most 10 000.  Notes
-- are numbered in the order of their commits (queen.repair_note), so none
-- comes up behind the last one seen.  part null = every partition.
create or replace function queen.repair_scan_v1(p_after bigint)
returns table (id bigint, queue_id bigint, group_id bigint, part bigint)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	return query
	select r.id, r.queue_id, r.group_id, r.partition_id
	from queen.repairs r where r.id > p_after
	order by r.id limit 10000;
end $$;

-- A partition's id window, for a dedup filter: id rows with end_offset >
-- p_after and created_at >= p_since (null = all), ascending, at most p_limit.
-- The first base is where the window starts.  No row: nothing there, or no
-- such partition.
create or replace function queen.ids_page_v1(p_tenant uuid, p_part bigint,
	p_after bigint, p_since timestamptz, p_limit int)
returns table (base bigint, last bigint, at timestamptz, ids bytea)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	lo bigint; hi bigint; mid bigint;
	l_base bigint; l_end bigint; l_at timestamptz;
begin
	select greatest(h.ids_start, p_after + 1) into lo
	from queen.partition_heads h
	join queen.queues q on q.id = h.queue_id and q.tenant = p_tenant
		and q.deleted_at is null
	where h.id = p_part;
	select i.base_offset, i.end_offset into hi, l_end
	from queen.segment_ids i where i.partition_id = p_part
	order by i.base_offset desc limit 1;
	if lo is null or l_end is null or l_end < lo then
		return;
	end if;
	-- the first row that is young enough: usually the first of all
	mid := lo;
	while lo < hi and p_since is not null loop
		select i.base_offset, i.end_offset, i.created_at
		into l_base, l_end, l_at
		from queen.segment_ids i
		where i.partition_id = p_part and i.base_offset <= mid
		order by i.base_offset desc limit 1;
		if l_base is null or l_end < mid then
			lo := mid + 1;		-- a hole: removed meanwhile
		elsif l_at < p_since then
			lo := l_end + 1;
		else
			hi := greatest(l_base, lo);
		end if;
		mid := lo + (hi - lo) / 2;
	end loop;
	select i.base_offset into l_base
	from queen.segment_ids i
	where i.partition_id = p_part and i.base_offset <= lo
		and i.end_offset >= lo
	order by i.base_offset desc limit 1;
	return query
	select i.base_offset, i.end_offset, i.created_at, i.ids
	from queen.segment_ids i
	where i.partition_id = p_part and i.base_offset >= coalesce(l_base, lo)
		and (p_since is null or i.created_at >= p_since)
	order by i.base_offset limit p_limit;
end $$;

-- The segment that covers each (partition, offset), for opening one message.
-- No row: removed, never written, or another tenant's.
create or replace function queen.segments_at_v1(p_tenant uuid,
	p_part bigint[], p_off bigint[])
returns table (ord int, base bigint, last bigint, at timestamptz,
	raw_bytes int, key_id smallint, blob bytea)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	if (cardinality(p_part) = cardinality(p_off)) is not true then
		raise exception 'queen.segments_at_v1: arrays differ in length'
			using errcode = '22023';
	end if;
	return query
	select i.ord::int, s.base_offset, s.end_offset, s.created_at,
		s.raw_bytes, s.key_id, s.blob
	from unnest(p_part, p_off) with ordinality i(part, off, ord)
	cross join lateral (select h.queue_id from queen.partition_heads h
		where h.id = i.part limit 1) h
	cross join lateral (select true live from queen.queues q
		where q.id = h.queue_id and q.tenant = p_tenant
			and q.deleted_at is null limit 1) q
	cross join lateral (select s.* from queen.segments s
		where s.partition_id = i.part and s.base_offset <= i.off
		order by s.base_offset desc limit 1) s
	where s.end_offset >= i.off
	order by i.ord;
end $$;

-- The first offset stamped at or after p_at: log_start when all that is
-- retained is younger (or p_at is null), the next to be written when nothing
-- is.  Null: no such partition.
create or replace function queen.offset_at_v1(p_tenant uuid, p_part bigint,
	p_at timestamptz)
returns bigint
language plpgsql volatile as $$
declare
	l_queue bigint;
begin
	select h.queue_id into l_queue
	from queen.partition_heads h
	join queen.queues q on q.id = h.queue_id and q.tenant = p_tenant
		and q.deleted_at is null
	where h.id = p_part;
	return queen.group_start(p_part, l_queue, p_at) + 1;
end $$;

-- The same for partitions of one queue: off as offset_at_v1, null = gone, or of
-- another queue, or the queue is gone.
create or replace function queen.offsets_at_v1(p_tenant uuid, p_queue text,
	p_part bigint[], p_at timestamptz)
returns table (ord int, off bigint)
language plpgsql volatile as $$
declare
	l_queue bigint;
begin
	select q.id into l_queue from queen.queues q
	where q.tenant = p_tenant and q.name = p_queue collate "C"
		and q.deleted_at is null;
	return query
	select i.ord::int, queen.group_start(i.part, l_queue, p_at) + 1
	from unnest(p_part) with ordinality i(part, ord)
	order by i.ord;
end $$;
