-- SPDX-License-Identifier: Apache-2.0
-- Push: whole segments to the ends of partitions, set-based.
--
-- push_v1; inside: push_judged.
--
-- Writes segments, segment_ids, partition_heads.  Locks the heads of its
-- partitions for no key update, in id order, and nothing else.  There is no
-- counter: under the lock the newest segment tells the next offset.  READ
-- COMMITTED is assumed: the look at the tails is a statement of its own, so it
-- sees what the last holder of the lock committed.

-- One segment per partition, partitions strictly ascending; p_ids has 16 bytes
-- per message; p_key null = not sealed, -1 = not sealed and none asked for (it was
-- promised before the queue's flag was set).  p_verified: null = do not probe, else
-- the offset vouched up to (-1 = nothing), good if p_covered, the time the
-- caller's filter reaches back to, is not inside the window.  s_*: suspects, as
-- 1-based segment, 0-based position, offset range to look in.
-- Verdicts: 0 written (base, at), 1 duplicate (dup_pos, dup_off = lowest offset in
-- the window; nothing of the segment is written), 2 gone, 3 behind (more than
-- 4096 ids not vouched for), 4 encryption_required.  gap_base, gap: the ids
-- that were not vouched for.  22023: arrays, order, or ids and counts wrong.
create or replace function queen.push_v1(p_tenant uuid, p_part bigint[],
	p_n int[], p_ids bytea[], p_raw int[], p_key smallint[], p_blob bytea[],
	p_verified bigint[], p_covered timestamptz[], s_seg int[], s_pos int[],
	s_lo bigint[], s_hi bigint[], p_now timestamptz default null)
returns table (ord int, verdict int, base bigint, at timestamptz,
	gap_base bigint, gap bytea, dup_pos int[], dup_off bigint[])
language plpgsql volatile as $$
#variable_conflict use_column
declare
	k int := cardinality(p_part);
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_id bigint[]; l_row tid[]; l_due boolean[]; l_start bigint[]; l_ids bigint[];
	l_at timestamptz[]; l_win int[]; l_sealed boolean[]; l_any boolean;
	l_v int[]; l_prev bigint[]; l_stamp timestamptz[]; l_lo bigint[];
	l_ask boolean;
begin
	if (k = cardinality(p_n) and k = cardinality(p_ids)
			and k = cardinality(p_raw) and k = cardinality(p_key)
			and k = cardinality(p_blob) and k = cardinality(p_verified)
			and k = cardinality(p_covered)
			and cardinality(s_seg) = cardinality(s_pos)
			and cardinality(s_seg) = cardinality(s_lo)
			and cardinality(s_seg) = cardinality(s_hi)) is not true then
		raise exception 'queen.push_v1: arrays differ in length'
			using errcode = '22023';
	end if;

	select array_agg(x.id), array_agg(x.row), array_agg(x.log_start),
		array_agg(x.ids_start), array_agg(x.last_at), array_agg(x.due),
		array_agg(x.dedup_window_s), array_agg(x.encryption_enabled),
		bool_or(x.due)
	into l_id, l_row, l_start, l_ids, l_at, l_due, l_win, l_sealed, l_any
	from (select h.id, h.ctid as row, h.log_start, h.ids_start, h.last_at,
			q.dedup_window_s, q.encryption_enabled,
			h.last_write_at < t - interval '1 s'
				or h.oldest_live_at is null as due
		from queen.partition_heads h
		cross join lateral (select q.tenant, q.deleted_at,
				q.dedup_window_s, q.encryption_enabled
			from queen.queues q where q.id = h.queue_id limit 1) q
		where h.id = any (p_part) and q.tenant = p_tenant
			and q.deleted_at is null
		order by h.id for no key update of h) x;
	if l_id is distinct from p_part then
		-- some are gone: align what was found with the input
		if exists (select 1 from (select u.part, lag(u.part)
					over (order by u.ord) before
				from unnest(p_part) with ordinality u(part, ord)) u
				where u.part is null or u.part <= u.before) then
			raise exception 'queen.push_v1: partitions not strictly ascending'
				using errcode = '22023';
		end if;
		select array_agg(l.id order by i.ord), array_agg(l.row order by i.ord),
			array_agg(l.start order by i.ord),
			array_agg(l.ids order by i.ord), array_agg(l.at order by i.ord),
			array_agg(l.due order by i.ord), array_agg(l.win order by i.ord),
			array_agg(l.sealed order by i.ord)
		into l_id, l_row, l_start, l_ids, l_at, l_due, l_win, l_sealed
		from unnest(p_part) with ordinality i(part, ord)
		left join unnest(l_id, l_row, l_start, l_ids, l_at, l_due, l_win,
				l_sealed) l(id, row, start, ids, at, due, win, sealed)
			on l.id = i.part;
	end if;
	t := coalesce(p_now, clock_timestamp());

	-- the tail of each by one backward key step, what must be probed (lo, null =
	-- nothing), the first verdict
	select array_agg(x.v), array_agg(x.prev), array_agg(x.stamp),
		array_agg(x.lo), bool_or(x.v <> 0 or x.lo <= x.prev)
	into l_v, l_prev, l_stamp, l_lo, l_ask
	from (select case when i.id is null then 2
				when i.sealed and i.key is null then 4 else 0 end v,
			coalesce(s.end_offset, i.start - 1) prev,
			greatest(t, s.created_at, i.at) stamp,
			case when i.verified is not null and i.win > 0 then
				greatest(i.ids, case when i.covered
						<= t - make_interval(secs => i.win)
					then i.verified + 1 else 0 end) end lo
		from unnest(l_id, l_start, l_ids, l_at, l_win, l_sealed, p_verified,
				p_covered, p_key)
			i(id, start, ids, at, win, sealed, verified, covered, key)
		left join lateral (select s.end_offset, s.created_at
			from queen.segments s where s.partition_id = i.id
			order by s.base_offset desc limit 1) s on true) x;
	if l_ask or cardinality(s_seg) > 0 then
		return query select j.* from queen.push_judged(t, l_id, l_row, l_due,
			l_win, l_v, l_prev, l_stamp, l_lo, p_n, p_ids, p_raw, p_key,
			p_blob, s_seg, s_pos, s_lo, s_hi) j;
		return;
	end if;

	insert into queen.segments (partition_id, base_offset, end_offset,
		created_at, raw_bytes, key_id, blob)
	select i.part, i.prev + 1, i.prev + i.n, i.at, i.raw,
		nullif(i.key, -1::smallint), i.blob
	from unnest(p_part, l_prev, l_stamp, p_n, p_raw, p_key, p_blob)
		i(part, prev, at, n, raw, key, blob);
	insert into queen.segment_ids (partition_id, base_offset, end_offset,
		created_at, ids)
	select i.part, i.prev + 1, i.prev + i.n, i.at,
		case when octet_length(i.ids) = 16 * i.n and i.n > 0 then i.ids
			else queen.push_refuse() end
	from unnest(p_part, l_prev, l_stamp, p_n, p_ids) i(part, prev, at, n, ids);
	if l_any then
		update queen.partition_heads h set last_write_at = i.at,
			last_at = i.at,
			oldest_live_at = coalesce(h.oldest_live_at, i.at)
		from unnest(l_row, l_stamp, l_due) i(row, at, due)
		where i.due and h.ctid = i.row;
	end if;
	return query
	select i.ord::int, 0, i.prev + 1, i.at, null::bigint, null::bytea,
		null::int[], null::bigint[]
	from unnest(l_prev, l_stamp) with ordinality i(prev, at, ord);
end $$;

-- Inside push_v1: a count that does not match the bytes.  Here and not as a check
-- of the table: that costs tens of microseconds in every statement that inserts.
create or replace function queen.push_refuse()
returns bytea
language plpgsql volatile as $$
begin
	raise exception 'queen.push_v1: ids and counts differ'
		using errcode = '22023';
end $$;

-- Inside push_v1, when ids must be looked at or a verdict is not 0: the locks are
-- held, the tails are known.
create or replace function queen.push_judged(t timestamptz, l_id bigint[],
	l_row tid[], l_due boolean[], l_win int[], l_v int[], l_prev bigint[],
	l_stamp timestamptz[], l_lo bigint[], p_n int[], p_ids bytea[],
	p_raw int[], p_key smallint[], p_blob bytea[], s_seg int[], s_pos int[],
	s_lo bigint[], s_hi bigint[])
returns table (ord int, verdict int, base bigint, at timestamptz,
	gap_base bigint, gap bytea, dup_pos int[], dup_off bigint[])
language plpgsql volatile as $$
#variable_conflict use_column
declare
	l_gap bytea[]; l_base bigint[]; d_seg int[]; d_pos int[]; d_off bigint[];
begin
	-- a gap of more than 4096 ids the caller pages in by itself first; the
	-- plan may compute ids before it looks whether there is a gap: least()
	select array_agg(case when x.v = 0 and x.lo <= x.prev
			and x.prev - x.lo >= 4096 then 3 else x.v end order by x.ord),
		array_agg(case when g.ids is not null then g.base end order by x.ord),
		array_agg(g.ids order by x.ord)
	into l_v, l_base, l_gap
	from unnest(l_id, l_v, l_prev, l_lo) with ordinality x(id, v, prev, lo, ord)
	cross join lateral (	-- its condition inside: a gap not wanted is not read
		select greatest(x.lo, min(s.base_offset)) base,
			substr(string_agg(s.ids, ''::bytea order by s.base_offset),
				(greatest(x.lo - min(s.base_offset), 0) * 16)::int + 1) ids
		from queen.segment_ids s
		where x.v = 0 and x.lo <= x.prev and x.prev - x.lo < 4096
			and s.partition_id = x.id and s.base_offset <= x.prev
			and s.base_offset >= coalesce((select b.base_offset
				from queen.segment_ids b where b.partition_id = x.id
					and b.base_offset <= x.lo
				order by b.base_offset desc limit 1), x.lo)
		) g;

	select array_agg(z.seg), array_agg(z.pos), array_agg(z.off)
	into d_seg, d_pos, d_off
	from (select y.seg, y.pos, min(y.off) off
		from (select g.ord::int seg, h.pos, h.off
			from unnest(l_id, l_v, l_prev, l_lo, l_win, p_ids)
				with ordinality g(id, v, prev, lo, win, ids, ord)
			cross join lateral queen.push_gap_hits(g.id, g.lo, g.prev,
				t - make_interval(secs => g.win), g.ids) h
			where g.v = 0 and g.lo <= g.prev
			union all
			select u.seg, u.pos, h.off
			from unnest(s_seg, s_pos, s_lo, s_hi) u(seg, pos, lo, hi)
			cross join lateral queen.push_suspect_hit(l_id[u.seg], u.lo, u.hi,
				t - make_interval(secs => l_win[u.seg]),
				substr(p_ids[u.seg], u.pos * 16 + 1, 16)) h(off)
			where l_v[u.seg] = 0 and l_win[u.seg] > 0
				and h.off is not null
		) y group by y.seg, y.pos) z;

	return query
	with i as materialized (
		select i.*, case when i.v = 0 and i.ord = any (coalesce(d_seg, '{}'))
			then 1 else i.v end verdict
		from unnest(l_id, l_v, l_prev, l_stamp, l_row, l_due, l_base, l_gap,
				p_n, p_raw, p_key, p_ids, p_blob) with ordinality
			i(part, v, prev, at, row, due, gap_base, gap,
				n, raw, key, ids, blob, ord)
	), w1 as (
		insert into queen.segments (partition_id, base_offset, end_offset,
			created_at, raw_bytes, key_id, blob)
		select i.part, i.prev + 1, i.prev + i.n, i.at, i.raw,
		nullif(i.key, -1::smallint), i.blob
		from i where i.verdict = 0
	), w2 as (
		insert into queen.segment_ids (partition_id, base_offset, end_offset,
			created_at, ids)
		select i.part, i.prev + 1, i.prev + i.n, i.at,
			case when octet_length(i.ids) = 16 * i.n and i.n > 0 then i.ids
				else queen.push_refuse() end
		from i where i.verdict = 0
	), w3 as (
		update queen.partition_heads h set last_write_at = i.at,
			last_at = i.at,
			oldest_live_at = coalesce(h.oldest_live_at, i.at)
		from i where i.verdict = 0 and i.due and h.ctid = i.row
	)
	select i.ord::int, i.verdict,
		case when i.verdict = 0 then i.prev + 1 end,
		case when i.verdict = 0 then i.at end, i.gap_base, i.gap,
		case when i.verdict = 1 then (select array_agg(d.pos order by d.pos)
			from unnest(d_seg, d_pos) d(seg, pos) where d.seg = i.ord) end,
		case when i.verdict = 1 then (select array_agg(d.off order by d.pos)
			from unnest(d_seg, d_pos, d_off) d(seg, pos, off)
			where d.seg = i.ord) end
	from i order by i.ord;
end $$;

-- Inside: which of p_ids are among offsets p_lo .. p_hi stamped p_since or later.
create or replace function queen.push_gap_hits(p_part bigint, p_lo bigint,
	p_hi bigint, p_since timestamptz, p_ids bytea)
returns table (pos int, off bigint)
language plpgsql volatile rows 1 as $$
#variable_conflict use_column
begin
	return query
	select m.pos, min(m.off)
	from (select n.pos, h.off
		from (select p as pos, substr(p_ids, p * 16 + 1, 16) id
			from generate_series(0, octet_length(p_ids) / 16 - 1) p) n
		join queen.ids_slots(p_part, p_lo, p_hi, p_since) h on h.id = n.id) m
	group by m.pos;
end $$;

-- Inside: the lowest offset of one id in the id rows of p_lo .. p_hi stamped
-- p_since or later.  Sixteen bytes are sought; a find off the slots is settled
-- slot by slot.
create or replace function queen.push_suspect_hit(p_part bigint, p_lo bigint,
	p_hi bigint, p_since timestamptz, p_id bytea)
returns bigint
language plpgsql volatile as $$
declare
	r record; p int;
begin
	for r in select s.base_offset, s.end_offset, s.ids
		from queen.segment_ids s
		where s.partition_id = p_part and s.base_offset <= p_hi
			and s.base_offset >= coalesce((select b.base_offset
				from queen.segment_ids b where b.partition_id = p_part
					and b.base_offset <= p_lo
				order by b.base_offset desc limit 1), p_lo)
			and s.created_at >= p_since
		order by s.base_offset
	loop
		p := position(p_id in r.ids) - 1;
		if p >= 0 and p % 16 <> 0 then
			p := (select min(k) * 16
				from generate_series(0, octet_length(r.ids) / 16 - 1) k
				where substr(r.ids, k * 16 + 1, 16) = p_id);
		end if;
		if p >= 0 then
			return r.base_offset + p / 16;
		end if;
	end loop;
	return null;
end $$;

-- Inside: the ids of offsets p_lo .. p_hi stamped p_since or later (null = all), one
-- row each.  The bytes of a row are fetched once.
create or replace function queen.ids_slots(p_part bigint, p_lo bigint,
	p_hi bigint, p_since timestamptz)
returns table (id bytea, off bigint)
language plpgsql volatile rows 4096 as $$
#variable_conflict use_column
begin
	return query
	select substr(s.ids, k * 16 + 1, 16), s.base_offset + k
	from (select b.base_offset, b.end_offset, b.ids || ''::bytea as ids
		from queen.segment_ids b
		where b.partition_id = p_part and b.base_offset <= p_hi
			and b.base_offset >= coalesce((select c.base_offset
				from queen.segment_ids c where c.partition_id = p_part
					and c.base_offset <= p_lo
				order by c.base_offset desc limit 1), p_lo)
			and b.end_offset >= p_lo
			and (p_since is null or b.created_at >= p_since)
		offset 0) s
	cross join lateral generate_series(
		greatest(p_lo - s.base_offset, 0)::int,
		(least(p_hi, s.end_offset) - s.base_offset)::int) k;
end $$;
