-- SPDX-License-Identifier: Apache-2.0
-- Retention: what is due, and bounded steps of one partition each.
--
--   retention_due_v1(cap)             partitions with something to delete
--   retention_step_v1(part, limit)    deletes a prefix by the three rules
--   ids_due_v1(cap), ids_step_v1(...) id rows that outlived their segments
--
-- Rules (queue-options): 1 retentionSeconds, consumed or not; 2
-- completedRetentionSeconds, up to what every group has committed; 3
-- maxWaitTimeSeconds, whatever else is set.  A sink hold floors rules 1 and 2:
-- what queen-s3 has not committed stays, see lake_floor.
-- Writes segments, segment_ids, partition_heads, retention_log.  Locks one
-- partition head per call.  Cell-wide: the queue's row implies the tenant.

-- A name as keys of queen-s3 have it: bytes other than A-Z a-z 0-9 . _ - as
-- %XX.  The twin of key_escape.
create or replace function queen.lake_escape(p_name text)
returns text language sql immutable parallel safe as $$
	select coalesce(string_agg(case when c.x ~ '[A-Za-z0-9._-]' collate "C"
			then c.x
		else regexp_replace(upper(encode(convert_to(c.x, 'UTF8'), 'hex')),
			'(..)', '%\1', 'g') end, '' order by c.ord), '')
	from regexp_split_to_table(p_name, '') with ordinality c(x, ord)
	where c.x <> ''
$$;

-- A time in a document of queen-s3: ISO text, or integer microseconds as older
-- ones have it.  Tenants write these rows: what cannot be read is null.
create or replace function queen.lake_time(p_value jsonb)
returns timestamptz language plpgsql stable as $$
declare
	l_text text := p_value #>> '{}';
begin
	if jsonb_typeof(p_value) = 'string' and l_text
			~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$' then
		return l_text::timestamptz;
	elsif jsonb_typeof(p_value) = 'number' and l_text ~ '^-?\d{1,16}$' then
		return timestamptz 'epoch' + l_text::float8 * interval '1 us';
	end if;
	return null;
exception when data_exception then
	return null;
end $$;

-- Inside: below what a queue with a sink hold keeps everything: a minute before
-- the end that its sink has committed, but no more than the cap; and, until the
-- cap has passed since it was opened, all of the window that is being shipped.
create or replace function queen.lake_floor(q queen.queues, p_now timestamptz)
returns timestamptz
language plpgsql stable as $$
declare
	l_key text := 's3:' || q.retention_sink_hold || ':'
		|| queen.lake_escape(q.name) || ':';
	l_cap interval := make_interval(secs =>
		greatest(q.retention_sink_hold_max_s, 60));
	l_done jsonb; l_open jsonb; l_at timestamptz; l_next numeric := 1;
	l_floor timestamptz := p_now - l_cap;
begin
	select k.value into l_done from queen.kv k
	where k.tenant = q.tenant and k.namespace = 'queen-s3'
		and k.key = l_key || 'committed'
		and queen.kv_live_v1(k.expires_at, p_now);
	l_floor := greatest(queen.lake_time(l_done->'tEnd')
		- interval '60 s', l_floor);
	if jsonb_typeof(l_done->'k') = 'number' then
		l_next := (l_done->>'k')::numeric + 1;
	end if;
	select k.value, k.updated_at into l_open, l_at from queen.kv k
	where k.tenant = q.tenant and k.namespace = 'queen-s3'
		and k.key = l_key || 'intent'
		and queen.kv_live_v1(k.expires_at, p_now);
	if l_at + l_cap > p_now and l_open->'k' = to_jsonb(l_next) then
		l_floor := least(queen.lake_time(l_open->'tStart'), l_floor);
	end if;
	return l_floor;
end $$;

-- The cutoffs of one queue at p_now; null = the rule is off.  `offset 0`: the
-- floor is looked up once per queue, and for one without a hold not at all.
create or replace function queen.retention_cutoffs(
	q queen.queues, p_now timestamptz)
returns table (kept timestamptz, completed timestamptz, waited timestamptz)
language sql stable as $$
	select
		case when q.retention_enabled and q.retention_s > 0 then
			least(p_now - make_interval(secs => q.retention_s),
				h.hold) end,
		case when q.retention_enabled and q.completed_retention_s > 0 then
			least(p_now - make_interval(
				secs => q.completed_retention_s), h.hold) end,
		case when q.max_wait_s > 0 then
			p_now - make_interval(secs => q.max_wait_s) end
	from (select case when q.retention_sink_hold <> '' then
		queen.lake_floor(q, p_now) end as hold offset 0) h;
$$;

-- Partitions whose oldest message is past a cutoff, oldest first within a
-- queue, at most p_cap rows.  Rule 2 alone waits for retry_at: a group that
-- lags is not asked again every cycle.  Reads only.
create or replace function queen.retention_due_v1(
	p_cap int, p_now timestamptz default null)
returns table (part bigint, queue_id bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
begin
	return query
	select d.id, q.id
	from queen.queues q
	cross join lateral queen.retention_cutoffs(q, t) c
	cross join lateral (
		select h.id from queen.partition_heads h
		where h.queue_id = q.id
			and h.oldest_live_at < greatest(c.kept, c.completed,
				c.waited)
			and (h.oldest_live_at < greatest(c.kept, c.waited)
				or h.retry_at is null or h.retry_at <= t)
		order by h.oldest_live_at limit p_cap
	) d
	where q.deleted_at is null
		and (q.max_wait_s > 0 or q.retention_enabled
			and (q.retention_s > 0 or q.completed_retention_s > 0))
	limit p_cap;
end $$;

-- The lowest committed offset over the live groups of a partition, by the
-- derived position where a group has no row; null when there is no group.
create or replace function queen.retention_floor(
	p_part bigint, p_queue bigint)
returns bigint
language sql volatile as $$
	select min(coalesce(c.committed,
		queen.group_start(p_part, p_queue, g.start_at)))
	from queen.groups g
	left join lateral (
		select c.committed from queen.consumers c
		where c.group_id = g.id and c.partition_id = p_part
		order by c.gen desc limit 1
	) c on true
	where g.queue_id = p_queue and g.deleted_at is null;
$$;

-- One step: deletes whole segments from the front of one partition, at most
-- p_limit.  Returns segments and messages deleted, and whether more is due.
-- Locks the head (for no key update); a partition that is gone: no row.
create or replace function queen.retention_step_v1(
	p_part bigint, p_limit int, p_now timestamptz default null)
returns table (segments int, messages bigint, more boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	h record; c record; floor_at bigint; w record; fresh record;
	by_age bigint; by_done bigint; by_wait bigint; upto bigint;
begin
	select x.id, x.queue_id, x.log_start, x.retry_ms into h
	from queen.partition_heads x where x.id = p_part for no key update;
	if not found then
		return;
	end if;
	select k.* into c from queen.queues q
	cross join lateral queen.retention_cutoffs(q, t) k
	where q.id = h.queue_id and q.deleted_at is null;
	if not found then
		return;
	end if;
	if c.completed is not null then
		floor_at := queen.retention_floor(p_part, h.queue_id);
	end if;

	-- stamps never decrease, so each rule takes a prefix of this window
	select count(*) as n, max(s.end_offset) as last_end,
		max(s.end_offset) filter (where s.created_at < c.kept) as age_end,
		max(s.end_offset) filter (where s.created_at < c.completed
			and s.end_offset <= floor_at) as done_end,
		max(s.end_offset) filter (where s.created_at < c.waited)
			as wait_end
	into w
	from (select s.end_offset, s.created_at from queen.segments s
		where s.partition_id = p_part
		order by s.base_offset limit p_limit) s;
	by_age := coalesce(w.age_end + 1, h.log_start);
	by_done := greatest(by_age, w.done_end + 1);
	by_wait := greatest(by_done, w.wait_end + 1);
	upto := by_wait;
	if upto <= h.log_start then
		-- a lagging group holds it: ask again later, doubling to 10 min
		update queen.partition_heads x set
			retry_ms = least(greatest(x.retry_ms * 2, 5000), 600000),
			retry_at = t + least(greatest(x.retry_ms * 2, 5000),
				600000) * interval '1 ms'
		where x.id = p_part;
		return query select 0, 0::bigint, false;
		return;
	end if;

	delete from queen.segments s
	where s.partition_id = p_part and s.base_offset < upto;
	get diagnostics segments = row_count;
	select s.created_at into fresh from queen.segments s
	where s.partition_id = p_part order by s.base_offset limit 1;
	update queen.partition_heads x set log_start = upto,
		oldest_live_at = fresh.created_at,
		oldest_id_at = (select i.created_at from queen.segment_ids i
			where i.partition_id = p_part
			order by i.base_offset limit 1),
		last_at = greatest(x.last_at, (select i.created_at
			from queen.segment_ids i where i.partition_id = p_part
			order by i.base_offset desc limit 1)),
		retry_at = null, retry_ms = 0
	where x.id = p_part;
	insert into queen.retention_log (at, queue_id, partition_id, kind, messages)
	select t, h.queue_id, p_part, k.kind, k.n
	from (values ('retention', by_age - h.log_start),
		('completed_retention', by_done - by_age),
		('max_wait_time_eviction', by_wait - by_done)) k(kind, n)
	where k.n > 0;
	messages := upto - h.log_start;
	more := w.n = p_limit and upto > w.last_end;
	return next;
end $$;

-- Partitions whose id rows outlived both their segments and the window, at
-- most p_cap.  The window is max(dedup, completed retention, 900 s).
create or replace function queen.ids_due_v1(
	p_cap int, p_now timestamptz default null)
returns table (part bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
begin
	return query
	select d.id
	from queen.queues q
	cross join lateral (
		select h.id from queen.partition_heads h
		where h.queue_id = q.id and h.oldest_id_at < t - make_interval(
			secs => greatest(q.dedup_window_s,
				q.completed_retention_s, 900))
		order by h.oldest_id_at limit p_cap
	) d
	where q.deleted_at is null
	limit p_cap;
end $$;

-- One step: deletes id rows below log_start and older than the window, at
-- most p_limit.  Returns rows deleted and whether more is due.  Locks the
-- head; a partition that is gone: no row.
create or replace function queen.ids_step_v1(
	p_part bigint, p_limit int, p_now timestamptz default null)
returns table (deleted int, more boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	h record; upto bigint; n int; next_base bigint; next_at timestamptz;
begin
	select x.id, x.log_start, x.ids_start, t - make_interval(secs =>
		greatest(q.dedup_window_s, q.completed_retention_s, 900)) as cutoff
	into h
	from queen.partition_heads x join queen.queues q on q.id = x.queue_id
	where x.id = p_part for no key update of x;
	if not found then
		return;
	end if;
	select max(i.end_offset) + 1, count(*) into upto, n
	from (select i.end_offset, i.created_at from queen.segment_ids i
		where i.partition_id = p_part
		order by i.base_offset limit p_limit) i
	where i.end_offset < h.log_start and i.created_at < h.cutoff;
	if n > 0 then
		delete from queen.segment_ids i
		where i.partition_id = p_part and i.base_offset < upto;
	end if;
	select i.base_offset, i.created_at into next_base, next_at
	from queen.segment_ids i where i.partition_id = p_part
	order by i.base_offset limit 1;
	-- null while every id row has its segment: then nothing can be due
	update queen.partition_heads x set
		ids_start = coalesce(next_base, x.log_start),
		oldest_id_at = case when next_base < x.log_start then next_at end
	where x.id = p_part;
	deleted := n;
	more := n = p_limit;
	return next;
end $$;
