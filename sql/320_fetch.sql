-- SPDX-License-Identifier: Apache-2.0
-- Reading by offset: no lease, no cursor, nothing written, no lock.
--
-- fetch_v1, fetch_parts_v1, fetch_high_v1; inside: fetch_entries.
--
-- All are stable on purpose: every statement inside sees the snapshot of the
-- call, so that bounds and records of an answer agree while retention and
-- pushes go on.

-- Inside: the answer to entries whose partition was looked up: part null with
-- p_known = one never written, without = verdict 1.  p_each: the first segment of
-- each entry escapes p_max_bytes, not only that of the call.
create or replace function queen.fetch_entries(p_known boolean[],
	p_part bigint[], p_offset bigint[], p_max_bytes int[],
	p_budget_bytes bigint, p_each boolean)
returns table (ord int, verdict int, high bigint, log_start bigint,
	base bigint, last bigint, at timestamptz, raw_bytes int, key_id smallint,
	blob bytea)
language plpgsql stable as $$
#variable_conflict use_column
declare
	e record; s record;
	l_base bigint; l_bytes bigint; l_n bigint;
	n_stored bigint := p_budget_bytes; n_raw bigint := p_budget_bytes;
	l_first boolean := true; l_some boolean;
begin
	for e in
		select i.*, coalesce(h.log_start, 0) start,
			coalesce(s.end_offset, h.log_start - 1, -1) + 1 high
		from unnest(p_known, p_part, p_offset, p_max_bytes)
			with ordinality i(known, part, off, max_bytes, ord)
		left join lateral (select h.log_start from queen.partition_heads h
			where h.id = i.part limit 1) h on true
		left join lateral (select s.end_offset from queen.segments s
			where s.partition_id = i.part
			order by s.base_offset desc limit 1) s on true
		order by i.ord
	loop
		ord := e.ord; high := e.high; log_start := e.start;
		base := null; last := null; at := null; raw_bytes := null;
		key_id := null; blob := null;
		verdict := case when not e.known then 1
			when e.off between e.start and e.high then 0 else 2 end;
		l_some := false;
		if verdict = 0 and e.off < e.high
				and (l_first or n_stored > 0 and n_raw > 0) then
			select s.base_offset into l_base from queen.segments s
			where s.partition_id = e.part and s.base_offset <= e.off
			order by s.base_offset desc limit 1;
			l_bytes := e.max_bytes; l_n := 10000;
			for s in
				select s.*, octet_length(s.blob) bytes
				from queen.segments s
				where s.partition_id = e.part and s.base_offset >= l_base
				order by s.base_offset limit 10000
			loop
				exit when l_n <= 0 or not l_first and (s.bytes > n_stored
					or s.raw_bytes > n_raw or s.bytes > l_bytes
					and (l_some or not p_each));
				base := s.base_offset; last := s.end_offset;
				at := s.created_at; raw_bytes := s.raw_bytes;
				key_id := s.key_id; blob := s.blob;
				return next;
				l_first := false; l_some := true;
				l_bytes := l_bytes - s.bytes;
				n_stored := n_stored - s.bytes;
				n_raw := n_raw - s.raw_bytes;
				l_n := l_n - (s.end_offset + 1
					- greatest(s.base_offset, e.off));
			end loop;
		end if;
		if not l_some then
			return next;
		end if;
	end loop;
end $$;

-- Records from offsets on, entries in the order given; arrays aligned.
-- Verdict 0 ok (0..n rows per entry, by base; an empty one has base null), 1
-- unknown queue (bounds 0), 2 out of range.  high = the next offset, also of
-- a partition never written (0).  The first segment may begin below p_offset,
-- the last one of an entry may end beyond its 10 000 records: the caller cuts.
-- p_max_bytes bounds the stored bytes of an entry, p_budget_bytes those of
-- the call and also its raw bytes; the first segment of the call escapes all.
create or replace function queen.fetch_v1(p_tenant uuid, p_queue text[],
	p_partition text[], p_offset bigint[], p_max_bytes int[],
	p_budget_bytes bigint)
returns table (ord int, verdict int, high bigint, log_start bigint,
	base bigint, last bigint, at timestamptz, raw_bytes int, key_id smallint,
	blob bytea)
language plpgsql stable as $$
#variable_conflict use_column
declare
	l_known boolean[]; l_part bigint[];
begin
	select array_agg(q.id is not null order by i.ord),
		array_agg(p.id order by i.ord)
	into l_known, l_part
	from unnest(p_queue, p_partition)
		with ordinality i(queue_name, name, ord)
	left join lateral (select q.id from queen.queues q
		where q.tenant = p_tenant and q.name = i.queue_name collate "C"
			and q.deleted_at is null limit 1) q on true
	left join lateral (select p.id from queen.partitions p
		where p.queue_id = q.id and p.name = i.name collate "C"
		limit 1) p on true;
	return query
	select e.* from queen.fetch_entries(l_known, l_part, p_offset,
		p_max_bytes, p_budget_bytes, false) e;
end $$;

-- The same by partition ids of one queue, which are never used again: verdict 1
-- when the partition is gone, or of another queue, or the queue is.  The first
-- segment of each entry escapes p_max_bytes, that of the call the budget too.
create or replace function queen.fetch_parts_v1(p_tenant uuid, p_queue text,
	p_part bigint[], p_offset bigint[], p_max_bytes int[],
	p_budget_bytes bigint)
returns table (ord int, verdict int, high bigint, log_start bigint,
	base bigint, last bigint, at timestamptz, raw_bytes int, key_id smallint,
	blob bytea)
language plpgsql stable as $$
#variable_conflict use_column
declare
	l_queue bigint; l_known boolean[]; l_part bigint[];
begin
	select q.id into l_queue from queen.queues q
	where q.tenant = p_tenant and q.name = p_queue collate "C"
		and q.deleted_at is null;
	select array_agg(h.id is not null order by i.ord),
		array_agg(h.id order by i.ord)
	into l_known, l_part
	from unnest(p_part) with ordinality i(part, ord)
	left join lateral (select h.id from queen.partition_heads h
		where h.id = i.part and h.queue_id = l_queue limit 1) h on true;
	return query
	select e.* from queen.fetch_entries(l_known, l_part, p_offset,
		p_max_bytes, p_budget_bytes, true) e;
end $$;

-- Only the next offset of each entry, for a parked fetch; null = unknown queue.
create or replace function queen.fetch_high_v1(p_tenant uuid,
	p_queue text[], p_partition text[])
returns table (ord int, high bigint)
language plpgsql stable as $$
#variable_conflict use_column
begin
	return query
	select i.ord::int, case when q.id is not null
		then coalesce(s.end_offset, h.log_start - 1, -1) + 1 end
	from unnest(p_queue, p_partition) with ordinality i(queue_name, name, ord)
	left join lateral (select q.id from queen.queues q
		where q.tenant = p_tenant and q.name = i.queue_name collate "C"
			and q.deleted_at is null limit 1) q on true
	left join lateral (select p.id from queen.partitions p
		where p.queue_id = q.id and p.name = i.name collate "C"
		limit 1) p on true
	left join lateral (select h.log_start from queen.partition_heads h
		where h.id = p.id limit 1) h on true
	left join lateral (select s.end_offset from queen.segments s
		where s.partition_id = p.id
		order by s.base_offset desc limit 1) s on true
	order by i.ord;
end $$;
