-- SPDX-License-Identifier: Apache-2.0
-- Care for streams: retries, ticks, rotation.  Schemas and locks: 850.
--
--   stream_work_v1, stream_step_v1, stream_worked_v1   due work, step by step

-- Claims logs that need care, for 5 s, and says which steps each needs; step 0 =
-- none, only stream_worked_v1.  A log somebody else drops or rotates is left
-- for the next time.  Reads one index; logs that are not due cost nothing.
create or replace function queen.stream_work_v1(p_holder text, p_limit int,
	p_now timestamptz default null)
returns table (queue_id bigint, fence bigint, step smallint)
language plpgsql volatile as $$
declare
	l_now timestamptz := coalesce(p_now, clock_timestamp());
begin
	perform queen.stream_isolation();
	for queue_id, fence in
		update queen.ojs_stream_work w set due_at = l_now + interval '5 s',
			holder = p_holder, fence = w.fence + 1
		where w.queue_id = any (array(select d.queue_id from queen.ojs_stream_work d
			where d.due_at <= l_now order by d.due_at limit p_limit
			for update skip locked))
		returning w.queue_id, w.fence
	loop
		foreach step in array queen.stream_due(queue_id, l_now) loop
			return next;
		end loop;
	end loop;
end $$;

-- The steps a log needs: 1 retries go back into it, 2 a tick, 3 rotation,
-- 4 ticks are thinned; 0 none.
create or replace function queen.stream_due(p_queue_id bigint, p_now timestamptz)
returns smallint[] language plpgsql volatile as $$
declare
	s queen.ojs_streams; l record; l_steps smallint[];
begin
	if pg_try_advisory_xact_lock_shared(1869247281, queen.stream_key(p_queue_id)) then
		select c.* into s from queen.ojs_queues q
		join queen.ojs_streams c on c.queue_id = q.id
		where q.id = p_queue_id and q.deleted_at is null and q.stream_at is not null;
	end if;
	if s.queue_id is null or queen.stream_stale(p_queue_id, s.cur_segment) then
		return array[0];
	end if;
	execute format('select exists (select from %1$I.stream_retry_events
			where deliver_at <= $1) as retry,
		q.is_called and q.last_value - t.max_seq > 500 as tick,
		exists (select from %1$I.stream_ticks o where o.tick_id < $2)
			or (select o.created_at < $1 - interval ''10 min'' from %1$I.stream_ticks o
			where o.tick_id > $3 and o.tick_id < t.tick_id order by o.tick_id limit 1) as thin
		from %1$I.stream_seq q, (select * from %1$I.stream_ticks
			order by tick_id desc limit 1) t', queen.stream_schema(p_queue_id))
	into l using p_now, s.floor_tick, s.cleaned_tick;
	l_steps := array_remove(array[case when l.retry then 1 end, case when l.tick then 2 end,
		case when queen.stream_rotates_at(s) <= p_now
			and queen.stream_tries(s, p_now) then 3 end,
		case when l.thin then 4 end], null);
	return case when l_steps = '{}' then array[0] else l_steps end;
end $$;

-- What stands against emptying the segment that is next: o_any = there are
-- events at all, o_full = it has some, o_seal = its seal tick, o_pins = who
-- needs it, o_young = it is not as old as the retention.
create or replace function queen.stream_obstacles(s queen.ojs_streams, p_now timestamptz,
	out o_any boolean, out o_full boolean, out o_seal bigint, out o_pins text[],
	out o_young boolean)
language plpgsql volatile as $$
declare
	l_next smallint := (s.cur_segment + 1) % 3;
begin
	execute format('select exists (select from %1$I.stream_events),
			exists (select from %1$I.stream_events_%2$s), g.seal_tick, g.sealed_at > $1
		from %1$I.stream_segments g where g.segment = %2$s',
		queen.stream_schema(s.queue_id), l_next) into o_any, o_full, o_seal, o_young
	using p_now - coalesce(s.retention_ms, 604800000) * interval '1 ms';
	o_pins := '{}';
	if o_full then
		o_pins := queen.stream_pins(s.queue_id, l_next, o_seal);
	end if;
end $$;

-- Whether who pins a log is to be said: once per period.
create or replace function queen.stream_says(s queen.ojs_streams, p_now timestamptz)
returns boolean language sql stable as $$
	select s.pinned_at is null or s.pinned_at + coalesce(s.retention_ms, 604800000) / 2
		* interval '1 ms' <= p_now
$$;

-- Whether a rotation that is due gets anywhere, so that one that is pinned does
-- not hold up who appends.  The caller holds the log's key.
create or replace function queen.stream_tries(s queen.ojs_streams, p_now timestamptz)
returns boolean language sql volatile as $$
	select not o.o_full or o.o_pins = '{}' and not o.o_young
		or o.o_pins <> '{}' and queen.stream_says(s, p_now)
	from queen.stream_obstacles(s, p_now) o
$$;

-- When the segments of a log change next.
create or replace function queen.stream_rotates_at(s queen.ojs_streams)
returns timestamptz language sql stable as $$
	select s.segment_started_at + coalesce(s.retention_ms, 604800000) / 2 * interval '1 ms'
$$;

-- One step of care, one transaction; events = retries moved, ticks made or
-- removed, segments emptied; bytes = of the retries: 8 MiB or one message at
-- most, they count towards the next heavy tick; note = what a person should know.
create or replace function queen.stream_step_v1(p_queue_id bigint, p_step smallint,
	p_now timestamptz default null)
returns table (more boolean, events int, bytes bigint, note text)
language plpgsql volatile as $$
declare
	l_now timestamptz := coalesce(p_now, clock_timestamp());
begin
	perform queen.stream_isolation();
	more := false;
	events := 0;
	bytes := 0;
	if p_step = 3 then
		select r.o_events, r.o_note into events, note
		from queen.stream_rotate(p_queue_id, l_now) r;
	elsif p_step > 0 and queen.stream_enter(p_queue_id) then
		if p_step = 1 then
			select r.o_n, r.o_bytes, r.o_more into events, bytes, more
			from queen.stream_retry(p_queue_id, 1000, 8388608, l_now) r;
		elsif p_step = 2 then
			events := (queen.stream_tick_v1(p_queue_id, false, 500, l_now)
				is not null)::int;
		elsif p_step = 4 then
			events := queen.stream_thin(p_queue_id, 5000, l_now);
			more := events < 0;
			events := abs(events);
		end if;
	end if;
	return next;
end $$;

-- Puts up to p_limit retries that are due back into the log, each for its
-- consumer alone; how many and how much: p_bytes at most, or one.  The caller
-- holds the log's key shared.
create or replace function queen.stream_retry(p_queue_id bigint, p_limit int, p_bytes bigint,
	p_now timestamptz, out o_n int, out o_bytes bigint, out o_more boolean)
language plpgsql volatile as $$
declare
	l_cur smallint; l_due int;
begin
	select s.cur_segment into l_cur from queen.ojs_streams s where s.queue_id = p_queue_id;
	execute format('with c as (select subscription_id, seq, bytes, deliver_at
			from %1$I.stream_retry_events where deliver_at <= $1
			order by deliver_at limit $2 for update skip locked),
		t as (select subscription_id, seq, bytes,
			sum(bytes) over (order by deliver_at, subscription_id, seq) as sum from c),
		d as (delete from %1$I.stream_retry_events x using t
			where x.subscription_id = t.subscription_id and x.seq = t.seq
			and (t.sum <= $3 or t.sum = t.bytes) returning x.*),
		i as (insert into %1$I.stream_events_%2$s (segment, bytes, retry_count, owner,
				created_at, event_id, type, payload, headers)
			select %2$s, bytes, retry_count, subscription_id, created_at, event_id, type,
				payload, headers from d order by seq
			returning bytes)
		select count(*), coalesce(sum(i.bytes), 0), (select count(*) from c) from i',
		queen.stream_schema(p_queue_id), l_cur)
	into o_n, o_bytes, l_due using p_now, p_limit, p_bytes;
	o_more := o_n < l_due or l_due = p_limit;
end $$;

-- Removes ticks nobody points at: those before the floor, and from it on those
-- of more than 10 minutes ago without which no gap has more than 500 events, so
-- that who was away finds boundaries; of these no heavy one.  How many;
-- negative = there are more.
-- The caller holds the log's key shared.  Locks: the care key exclusively.
create or replace function queen.stream_thin(p_queue_id bigint, p_limit int, p_now timestamptz)
returns int language plpgsql volatile as $$
declare
	s queen.ojs_streams; l record; l_s text := queen.stream_schema(p_queue_id);
	l_seq bigint; l_seen int := 0; l_gone bigint[] := '{}'; l_n int;
begin
	if not queen.stream_care(p_queue_id) then
		return 0;
	end if;
	select * into s from queen.ojs_streams c where c.queue_id = p_queue_id;
	for l in execute format('select t.tick_id, t.max_seq, t.created_at,
			lead(t.max_seq) over (order by t.tick_id) as next_seq,
			t.heavy or t.tick_id = $2
			or exists (select from %1$I.stream_subscriptions u
				where t.tick_id in (u.last_tick, u.next_tick))
			or exists (select from %1$I.stream_batches b
				where t.tick_id in (b.start_tick, b.end_tick))
			or exists (select from %1$I.stream_segments g where g.seal_tick = t.tick_id) as kept
		from (select * from %1$I.stream_ticks where tick_id >= $2 and tick_id >= coalesce(
				(select max(tick_id) from %1$I.stream_ticks where tick_id <= $1), 0)
			order by tick_id limit $3) t order by t.tick_id', l_s)
		using s.cleaned_tick, s.floor_tick, p_limit + 2
	loop
		exit when l.next_seq is null or l.created_at >= p_now - interval '10 min';
		if l.tick_id > s.cleaned_tick and not l.kept and l.next_seq - l_seq <= 500 then
			l_gone := l_gone || l.tick_id;
		else
			l_seq := l.max_seq;
		end if;
		s.cleaned_tick := greatest(s.cleaned_tick, l.tick_id);
		l_seen := l_seen + 1;
	end loop;
	execute format('delete from %1$I.stream_ticks t where t.tick_id = any ($1)
		or t.tick_id < $2 and not exists (select from %1$I.stream_subscriptions u
			where t.tick_id in (u.last_tick, u.next_tick))
		and not exists (select from %1$I.stream_batches b
			where t.tick_id in (b.start_tick, b.end_tick))', l_s) using l_gone, s.floor_tick;
	get diagnostics l_n = row_count;
	update queen.ojs_streams c set cleaned_tick = s.cleaned_tick
	where c.queue_id = p_queue_id and c.cleaned_tick <> s.cleaned_tick;
	return case when l_seen > p_limit then - greatest(l_n, 1) else l_n end;
end $$;

-- Takes the care key exclusively; false = not within a second.
create or replace function queen.stream_care(p_queue_id bigint)
returns boolean language plpgsql volatile as $$
begin
	perform set_config('lock_timeout', '1s', true);
	perform pg_advisory_xact_lock(1869247283, queen.stream_key(p_queue_id));
	return true;
exception when lock_not_available then
	return false;
end $$;

-- Takes a log exclusively to rotate it; false = not within a second.
create or replace function queen.stream_seize(p_queue_id bigint)
returns boolean language plpgsql volatile as $$
begin
	perform set_config('lock_timeout', '1s', true);
	perform pg_advisory_xact_lock(1869247281, queen.stream_key(p_queue_id));
	return true;
exception when lock_not_available then
	return false;
end $$;

-- Takes a partition from its readers; false = there are some, who must not wait
-- behind us for each other.
create or replace function queen.stream_grab(p_queue_id bigint, p_segment smallint)
returns boolean language plpgsql volatile as $$
begin
	execute format('lock table %I.stream_events_%s in access exclusive mode nowait',
		queen.stream_schema(p_queue_id), p_segment);
	return true;
exception when lock_not_available then
	return false;
end $$;

-- The state of a log when it is time to rotate it, else a row of nulls.
create or replace function queen.stream_ripe(p_queue_id bigint, p_now timestamptz)
returns queen.ojs_streams language sql volatile as $$
	select c.* from queen.ojs_queues q join queen.ojs_streams c on c.queue_id = q.id
	where q.id = p_queue_id and q.deleted_at is null and q.stream_at is not null
		and queen.stream_rotates_at(c) <= p_now
$$;

-- Rotates a log when it is time: the oldest segment is emptied, if nobody needs
-- it and it is older than the retention, and becomes the current one.
-- Locks: the log's key exclusively, so every writer of the segment that is
-- sealed has ended and the seal tick sees them all; the partition, not waited
-- for; the tick key.
create or replace function queen.stream_rotate(p_queue_id bigint, p_now timestamptz,
	out o_events int, out o_note text)
language plpgsql volatile as $$
declare
	s queen.ojs_streams; g record; l_next smallint;
begin
	o_events := 0;
	s := queen.stream_ripe(p_queue_id, p_now);
	if s.queue_id is null or not queen.stream_seize(p_queue_id) then
		return;
	end if;
	s := queen.stream_ripe(p_queue_id, p_now);
	if s.queue_id is null or queen.stream_stale(p_queue_id, s.cur_segment) then
		return;
	end if;
	l_next := (s.cur_segment + 1) % 3;
	g := queen.stream_obstacles(s, p_now);
	if not g.o_any then
		update queen.ojs_streams c set segment_started_at = p_now
		where c.queue_id = p_queue_id;
		return;
	end if;
	if g.o_full then
		if g.o_pins <> '{}' and queen.stream_says(s, p_now) then
			update queen.ojs_streams c set pinned_at = p_now
			where c.queue_id = p_queue_id;
			o_note := format('stream "%s" is held by %s', (select q.name
				from queen.ojs_queues q where q.id = p_queue_id),
				array_to_string(g.o_pins, ', '));
		end if;
		if g.o_pins <> '{}' or g.o_young
				or not queen.stream_grab(p_queue_id, l_next) then
			return;
		end if;
		execute format('truncate %I.stream_events_%s',
			queen.stream_schema(p_queue_id), l_next);
		o_events := 1;
	end if;
	perform queen.stream_seal(s, l_next, g.o_seal, p_now);
end $$;

-- Seals the current segment with a tick and goes on in p_next.  The caller holds
-- the log's key exclusively.
create or replace function queen.stream_seal(s queen.ojs_streams, p_next smallint,
	p_floor bigint, p_now timestamptz)
returns void language plpgsql volatile as $$
declare
	l_snapshot pg_snapshot; l_tick bigint; l_s text := queen.stream_schema(s.queue_id);
begin
	perform pg_advisory_xact_lock(1869247282, queen.stream_key(s.queue_id));
	select pg_current_snapshot() into l_snapshot;
	l_tick := queen.stream_tick_put(s.queue_id, l_snapshot, p_now);
	execute format('update %1$I.stream_segments set sealed_xid = pg_snapshot_xmax($1),
		seal_tick = $2, sealed_at = $3 where segment = $4', l_s)
	using l_snapshot, l_tick, p_now, s.cur_segment;
	execute format('update %1$I.stream_segments set sealed_xid = null, seal_tick = null,
		sealed_at = null where segment = $1', l_s) using p_next;
	update queen.ojs_streams c set cur_segment = p_next, segment_started_at = p_now,
		floor_tick = coalesce(p_floor, c.floor_tick),
		cleaned_tick = coalesce(p_floor, c.cleaned_tick), pinned_at = null
	where c.queue_id = s.queue_id;
end $$;

-- Hands a claim back with the time of the next one: 5 s while the log is in
-- use, else its next retry, rotation or thinning.  False = claimed by another
-- meanwhile, or gone.
-- Locks: log key shared, care key exclusively: a nack under way counts.
create or replace function queen.stream_worked_v1(p_queue_id bigint, p_fence bigint,
	p_now timestamptz default null)
returns boolean language plpgsql volatile as $$
declare
	l_now timestamptz := coalesce(p_now, clock_timestamp()); s queen.ojs_streams; l record;
	l_at timestamptz; l_wait interval;
begin
	if not queen.stream_enter(p_queue_id) then
		update queen.ojs_stream_work w set due_at = l_now + interval '1 h', holder = null
		where w.queue_id = p_queue_id and w.fence = p_fence;
		return false;
	elsif not queen.stream_care(p_queue_id) then
		return false;
	end if;
	select * into s from queen.ojs_streams c where c.queue_id = p_queue_id;
	execute format('select (select min(deliver_at) from %1$I.stream_retry_events) as retry_at,
		q.last_value as seq, t.tick_id as tick,
		(select o.created_at + interval ''10 min'' from %1$I.stream_ticks o
			where o.tick_id > $1 and o.tick_id < t.tick_id order by o.tick_id limit 1)
			as thin_at
		from %1$I.stream_seq q, (select * from %1$I.stream_ticks
			order by tick_id desc limit 1) t', queen.stream_schema(p_queue_id))
	into l using s.cleaned_tick;
	-- what is overdue could not be done: pinned, or read by a dump
	l_wait := greatest(least(coalesce(s.retention_ms, 604800000) / 20, 3600000), 1000)
		* interval '1 ms';
	l_at := queen.stream_rotates_at(s);
	l_at := case when l_at > l_now then l_at else l_now + l_wait end;
	l_at := least(l_at, l.retry_at, case when l.thin_at is not null
		then greatest(l.thin_at, l_now + interval '5 s') end);
	update queen.ojs_stream_work w set holder = null, seen_seq = l.seq, seen_tick = l.tick,
		due_at = greatest(l_now, least(l_at, case when (w.seen_seq, w.seen_tick)
			is distinct from (l.seq, l.tick) then l_now + interval '5 s' end))
	where w.queue_id = p_queue_id and w.fence = p_fence;
	return found;
end $$;
