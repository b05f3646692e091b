-- SPDX-License-Identifier: Apache-2.0
-- Batches of a stream: how they are cut and handed out.  Schemas and locks: 850.
--
--   stream_receive_v1, stream_batch_v1
--
-- A batch is kept as one row per segment with the seqs of its events: what it
-- holds stays the same when it is asked for again, and says to rotation which
-- segments are still needed.  Only messages that were nacked have rows of
-- their own.

-- Events after p_a and up to p_b that p_subscription is to get, in no order, at
-- most p_limit.  A range of transaction ids serves most; those that ran in p_a
-- and ended before p_b are looked up one by one, so that a transaction held
-- open for long does not widen the range.  The caller holds the log's key.
create or replace function queen.stream_diff(p_queue_id bigint, p_subscription bigint,
	p_a pg_snapshot, p_b pg_snapshot, p_segments smallint[], p_limit bigint)
returns table (seq bigint, segment smallint, bytes int)
language plpgsql volatile as $$
declare
	l_low bigint := pg_snapshot_xmax(p_a)::text::bigint;
	l_ids bigint[]; l_sql text;
begin
	select array_agg(x.id) into l_ids from (
		select i::text::bigint as id from pg_snapshot_xip(p_a) i
		except select i::text::bigint from pg_snapshot_xip(p_b) i) x;
	-- many just below the range are had cheaper by widening it, a few are not:
	-- each id in between may have appended a thousand events
	if cardinality(l_ids) > 20 then
		select least(l_low, min(x)) into l_low from unnest(l_ids) x where x >= l_low - 100;
		select array_agg(x) into l_ids from unnest(l_ids) x where x < l_low;
	end if;
	l_sql := format('select e.seq, e.segment, e.bytes from %I.stream_events e
		where e.segment = any (%L::smallint[])
		and pg_visible_in_snapshot(e.txid, $1) and not pg_visible_in_snapshot(e.txid, $2)
		and (e.owner is null or e.owner = $3) and ',
		queen.stream_schema(p_queue_id), p_segments);
	l_sql := format('%1$se.txid >= %2$L and e.txid < %3$L', l_sql, l_low, pg_snapshot_xmax(p_b))
		|| coalesce(format(' union all %1$se.txid = any (%2$L::xid8[])', l_sql, l_ids), '');
	return query execute l_sql || ' limit $4' using p_b, p_a, p_subscription, p_limit;
end $$;

-- The segments with events that a cursor at p_tick may not have seen.
create or replace function queen.stream_after(p_queue_id bigint, p_tick bigint)
returns smallint[] language plpgsql volatile as $$
declare
	l_segments smallint[];
begin
	execute format('select array_agg(g.segment) from %1$I.stream_segments g, queen.ojs_streams s
		where s.queue_id = $1 and (g.segment = s.cur_segment or g.seal_tick > $2)',
		queen.stream_schema(p_queue_id)) into l_segments using p_queue_id, p_tick;
	return l_segments;
end $$;

-- How many events lie between two snapshots, counted up to p_limit, their
-- bytes, and which.
create or replace function queen.stream_collect(p_queue_id bigint, p_subscription bigint,
	p_a pg_snapshot, p_b pg_snapshot, p_segments smallint[], p_limit bigint,
	out n bigint, out bytes bigint, out seqs bigint[], out segments smallint[])
language sql volatile as $$
	select count(*), coalesce(sum(d.bytes), 0), array_agg(d.seq), array_agg(d.segment)
	from queen.stream_diff(p_queue_id, p_subscription, p_a, p_b, p_segments, p_limit) d
$$;

-- The tick to try before p_high for a batch after p_low: the greatest whose
-- max_seq is at most p_seq, else the first after p_low; null = none between.
create or replace function queen.stream_tick_at(p_queue_id bigint, p_low bigint, p_high bigint,
	p_seq bigint, out tick_id bigint, out snapshot pg_snapshot, out max_seq bigint)
language plpgsql volatile as $$
begin
	execute format('select t.tick_id, t.snapshot, t.max_seq from %1$I.stream_ticks t
		where t.tick_id = coalesce(
			(select b.tick_id from %1$I.stream_ticks b where b.tick_id > $1
			and b.tick_id < coalesce((select o.tick_id from %1$I.stream_ticks o
				where o.tick_id > $1 and o.tick_id < $2 and o.max_seq > $3
				order by o.tick_id limit 1), $2)
			order by b.tick_id desc limit 1),
			(select f.tick_id from %1$I.stream_ticks f
			where f.tick_id > $1 and f.tick_id < $2 order by f.tick_id limit 1))',
		queen.stream_schema(p_queue_id))
	into tick_id, snapshot, max_seq using p_low, p_high, p_seq;
end $$;

-- How a batch may end.
do $$ begin
	create type queen.stream_end as (
		verdict smallint,		-- 0, or 4 = too large
		end_tick bigint,		-- null = nothing there
		reached bigint,			-- up to this tick there is nothing
		size bigint,			-- of the batch; 4: up to the newest tick
		need bigint,			-- 4: of the smallest batch there is
		seqs bigint[],
		segments smallint[]
	);
exception when duplicate_object then null; end $$;

-- The end of a batch after p_low when what lies up to p_high is too much: the
-- greatest tick that fits in p_max and p_max_bytes, guessed by max_seq and
-- counted.  The first batch there is goes out whatever its bytes; over p_max it
-- is refused.
create or replace function queen.stream_shorten(p_queue_id bigint, p_subscription bigint,
	p_low bigint, p_high bigint, p_segments smallint[], p_max bigint, p_max_bytes bigint)
returns queen.stream_end language plpgsql volatile as $$
declare
	l_low record; l_high record; l_top record; l_try record; l record;
	e queen.stream_end; l_seq bigint;
begin
	execute format('select t.tick_id, t.snapshot, t.max_seq from %1$I.stream_ticks t
		where t.tick_id = $1', queen.stream_schema(p_queue_id)) into l_low using p_low;
	execute format('select t.tick_id, t.snapshot, t.max_seq from %1$I.stream_ticks t
		where t.tick_id = $1', queen.stream_schema(p_queue_id)) into l_top using p_high;
	l_high := l_top;
	l_seq := l_low.max_seq + p_max;
	loop
		l_try := queen.stream_tick_at(p_queue_id, l_low.tick_id, l_high.tick_id, l_seq);
		exit when l_try.tick_id is null;
		l := queen.stream_collect(p_queue_id, p_subscription, l_low.snapshot,
			l_try.snapshot, p_segments, p_max + 1);
		if l.n = 0 then
			l_low := l_try;
			l_seq := greatest(l_low.max_seq + p_max, l_seq);
		elsif l.n <= p_max and l.bytes <= p_max_bytes then
			e.verdict := 0;
			e.end_tick := l_try.tick_id;
			e.size := l.n;
			e.seqs := l.seqs;
			e.segments := l.segments;
			return e;
		else
			l_high := l_try;
			l_seq := l_low.max_seq + case when l.n > p_max
				then (l_try.max_seq - l_low.max_seq) / 2
				else ((l_try.max_seq - l_low.max_seq)::numeric * p_max_bytes
					/ l.bytes)::bigint end;
		end if;
	end loop;
	l := queen.stream_collect(p_queue_id, p_subscription, l_low.snapshot, l_high.snapshot,
		p_segments, 1000000);
	e.verdict := case when l.n > p_max then 4 else 0 end;
	if e.verdict = 4 then
		e.need := l.n;
		select count(*) into e.size from queen.stream_diff(p_queue_id, p_subscription,
			l_low.snapshot, l_top.snapshot, p_segments, 1000000);
	else
		e.end_tick := l_high.tick_id;
		e.size := l.n;
		e.seqs := l.seqs;
		e.segments := l.segments;
	end if;
	return e;
end $$;

-- The end of the next batch after tick p_cursor: the newest tick; when there is
-- nothing up to it but the current snapshot shows something, a tick made here:
-- somebody else may have made it while the tick key was waited for.
-- What is refused is counted before, so that nothing is left of it.
-- Locks: the tick key, only to make one.
create or replace function queen.stream_next(p_queue_id bigint, p_subscription bigint,
	p_cursor bigint, p_max bigint, p_max_bytes bigint, p_now timestamptz)
returns queen.stream_end language plpgsql volatile as $$
declare
	l_segments smallint[] := queen.stream_after(p_queue_id, p_cursor);
	l_locked boolean := false; l_a pg_snapshot; l_b pg_snapshot; l_tick bigint;
	l record; e queen.stream_end;
begin
	e.verdict := 0;
	e.reached := p_cursor;
	execute format('select t.snapshot from %1$I.stream_ticks t where t.tick_id = $1',
		queen.stream_schema(p_queue_id)) into strict l_a using p_cursor;
	loop
		execute format('select t.tick_id, t.snapshot from %1$I.stream_ticks t
			order by t.tick_id desc limit 1', queen.stream_schema(p_queue_id))
		into l_tick, l_b;
		if l_tick = e.reached and not l_locked then
			perform pg_advisory_xact_lock(1869247282, queen.stream_key(p_queue_id));
			l_locked := true;
			continue;
		elsif l_tick = e.reached then
			select pg_current_snapshot() into l_b;
		end if;
		l := queen.stream_collect(p_queue_id, p_subscription, l_a, l_b, l_segments,
			p_max + 1);
		if l_tick > e.reached and l.n = 0 then
			e.reached := l_tick;
			l_a := l_b;
		elsif l_tick > e.reached and (l.n > p_max or l.bytes > p_max_bytes) then
			return queen.stream_shorten(p_queue_id, p_subscription, e.reached, l_tick,
				l_segments, p_max, p_max_bytes);
		elsif l.n = 0 then
			return e;
		else
			exit;
		end if;
	end loop;
	if l.n > p_max then
		e.verdict := 4;
		select count(*) into e.size from queen.stream_diff(p_queue_id, p_subscription,
			l_a, l_b, l_segments, 1000000);
		e.need := e.size;
		return e;
	end if;
	e.end_tick := case when l_tick > e.reached then l_tick
		else queen.stream_tick_put(p_queue_id, l_b, p_now) end;
	e.size := l.n;
	e.seqs := l.seqs;
	e.segments := l.segments;
	return e;
end $$;

-- Whether a receive has anything to do; if not, it writes nothing: verdict 0
-- yes, 1 no, 3 no such consumer, 5 plain and cooperative mixed.
create or replace function queen.stream_peek(p_queue_id bigint, p_consumer text,
	p_member text, p_dead_at timestamptz)
returns smallint language plpgsql volatile as $$
declare
	l record; l_snapshot pg_snapshot; l_found boolean;
begin
	execute format('select s.id, s.last_tick, s.next_tick, t.tick_id, t.snapshot,
			exists (select from %1$I.stream_batches b where b.subscription_id = s.id
				and b.acked_at is null and (b.member in ($2, '''') or $2 = ''''
				or b.active_at < $3)) as busy
		from %1$I.stream_subscriptions s, (select * from %1$I.stream_ticks
			order by tick_id desc limit 1) t
		where s.consumer = $1', queen.stream_schema(p_queue_id))
	into l using p_consumer, p_member, p_dead_at;
	if l.id is null then
		return 3;
	elsif l.busy or l.next_tick <> l.tick_id then
		return 0;
	elsif p_member = '' and l.last_tick <> l.next_tick then
		return 5;
	end if;
	select pg_current_snapshot() into l_snapshot;
	select exists (select from queen.stream_diff(p_queue_id, l.id, l.snapshot, l_snapshot,
		queen.stream_after(p_queue_id, l.tick_id), 1)) into l_found;
	return case when l_found then 0 else 1 end;
end $$;

-- Under the subscription's lock: the batch this member holds, else one of a
-- member that was not heard of since p_dead_at; nulls = none.
create or replace function queen.stream_held(p_queue_id bigint, p_subscription bigint,
	p_member text, p_dead_at timestamptz, out o_batch bigint, out o_member text,
	out o_size bigint)
language plpgsql volatile as $$
begin
	execute format('select b.batch_id, b.member, b.size from %1$I.stream_batches b
		where b.subscription_id = $1 and b.acked_at is null
			and (b.member = $2 or $2 <> '''' and b.active_at < $3)
		order by b.member <> $2, b.start_tick limit 1', queen.stream_schema(p_queue_id))
	into o_batch, o_member, o_size using p_subscription, p_member, p_dead_at;
end $$;

-- Gives a batch to a member: p_from's own stays what it is, another's gets a new
-- id, which is returned.
create or replace function queen.stream_give(p_queue_id bigint, p_batch bigint, p_from text,
	p_member text, p_now timestamptz)
returns bigint language plpgsql volatile as $$
declare
	l_s text := queen.stream_schema(p_queue_id); l_id bigint := p_batch;
begin
	if p_from <> p_member then
		l_id := nextval('queen.ojs_batch_ids');
		execute format('with e as (update %1$I.stream_batch_events set batch_id = $2
				where batch_id = $1)
			update %1$I.stream_nacks set batch_id = $2 where batch_id = $1', l_s)
		using p_batch, l_id;
	end if;
	execute format('update %1$I.stream_batches set batch_id = $2, member = $3, active_at = $4
		where batch_id = $1', l_s) using p_batch, l_id, p_member, p_now;
	return l_id;
end $$;

-- Moves an idle cursor on to a tick up to which there was nothing; in a group
-- with batches under way, by an acked batch without events: no hole in the chain.
create or replace function queen.stream_skip(p_queue_id bigint, p_subscription bigint,
	p_tick bigint, p_now timestamptz)
returns void language plpgsql volatile as $$
begin
	execute format('with b as (insert into %1$I.stream_batches (batch_id, subscription_id,
			member, start_tick, end_tick, size, created_at, active_at, acked_at)
		select nextval(''queen.ojs_batch_ids''), s.id, '''', s.next_tick, $2, 0, $3, $3, $3
		from %1$I.stream_subscriptions s where s.id = $1 and s.last_tick < s.next_tick)
		update %1$I.stream_subscriptions set next_tick = $2, active_at = $3,
			last_tick = case when last_tick = next_tick then $2 else last_tick end
		where id = $1', queen.stream_schema(p_queue_id)) using p_subscription, p_tick, p_now;
end $$;

-- Stores a batch; its id.
create or replace function queen.stream_batch_put(p_queue_id bigint, p_subscription bigint,
	p_member text, p_end queen.stream_end, p_now timestamptz)
returns bigint language plpgsql volatile as $$
declare
	l_id bigint := nextval('queen.ojs_batch_ids');
begin
	execute format('with e as (insert into %1$I.stream_batch_events (batch_id, segment, seqs)
			select $2, u.segment, array_agg(u.seq order by u.seq)
			from unnest($5, $6) u (seq, segment) group by u.segment),
		s as (update %1$I.stream_subscriptions set active_at = $8,
			next_tick = case when $3 = '''' then next_tick else $4 end where id = $1)
		insert into %1$I.stream_batches (batch_id, subscription_id, member, start_tick,
			end_tick, size, created_at, active_at)
		select $2, s.id, $3, s.next_tick, $4, $7, $8, $8
		from %1$I.stream_subscriptions s where s.id = $1', queen.stream_schema(p_queue_id))
	using p_subscription, l_id, p_member, p_end.end_tick, p_end.seqs, p_end.segments,
		p_end.size, p_now;
	return l_id;
end $$;

-- A batch as receive answers it: its messages in order, what was nacked marked.
-- offset 0: one look into the index per message, never the whole segment.
create or replace function queen.stream_messages(p_queue_id bigint, p_batch bigint,
	p_payload boolean)
returns table (seq bigint, event_id text, type text, payload text, headers text,
	retry_count int, created_at timestamptz, outcome smallint)
language plpgsql volatile as $$
declare
	l_sql text; l_segment smallint; l_s text := queen.stream_schema(p_queue_id);
begin
	for l_segment in execute format('select segment from %I.stream_batch_events
		where batch_id = $1', l_s) using p_batch
	loop
		l_sql := concat(l_sql || ' union all ', format('select e.seq, e.event_id, e.type, '
			|| case when p_payload then 'e.payload::text, e.headers::text'
				else 'null::text, null::text' end
			|| ', e.retry_count, e.created_at, coalesce(n.outcome, 0::smallint)
			from %1$I.stream_batch_events b
			cross join lateral unnest(b.seqs) q (seq)
			cross join lateral (select * from %1$I.stream_events_%2$s x
				where x.seq = q.seq offset 0) e
			left join %1$I.stream_nacks n on n.batch_id = $1 and n.seq = e.seq
			where b.batch_id = $1 and b.segment = %2$s', l_s, l_segment));
	end loop;
	if l_sql is not null then
		return query execute l_sql || ' order by 1' using p_batch;
	end if;
end $$;

-- The batch of a consumer, or of a member of its group: first a row that says
-- what it is, then its messages.  The same again until it is acked.
-- verdict 0, 1 nothing there, 2 no queue, 3 no consumer, 4 over p_max (need =
-- what would do), 5 plain and cooperative mixed, 9 needs rebase.
-- p_max: null = 100000.  p_dead_ms: null, or a member silent for longer loses its batch to this one.
-- Locks: log and care keys shared, subscription, tick key, batches; none of
-- them, and no transaction id, when there is nothing.
create or replace function queen.stream_receive_v1(p_tenant uuid, p_queue text,
	p_consumer text, p_member text, p_max int, p_max_bytes bigint, p_dead_ms bigint,
	p_now timestamptz default null)
returns table (verdict smallint, queue_id bigint, batch_id bigint, start_tick bigint,
	end_tick bigint, redelivered boolean, batch_at timestamptz, size bigint, need bigint,
	seq bigint, event_id text, type text, payload text, headers text, retry_count int,
	created_at timestamptz, outcome smallint)
language plpgsql volatile as $$
declare
	l_now timestamptz := coalesce(p_now, clock_timestamp());
	l_dead timestamptz := l_now - p_dead_ms * interval '1 ms';
	l record;
begin
	l := queen.stream_open(p_tenant, p_queue);
	queue_id := l.o_id;
	verdict := case when l.o_id is null then 2 when not l.o_live then 3
		when l.o_stale then 9 else 0 end;
	if verdict = 0 then
		perform pg_advisory_xact_lock_shared(1869247283, queen.stream_key(l.o_id));
		verdict := queen.stream_peek(l.o_id, p_consumer, coalesce(p_member, ''), l_dead);
	end if;
	if verdict = 0 then
		select r.o_verdict, r.o_batch, r.o_again, r.o_size, r.o_need
		into verdict, batch_id, redelivered, size, need
		from queen.stream_take(l.o_id, p_consumer, coalesce(p_member, ''),
			coalesce(p_max, 100000), coalesce(p_max_bytes, 9223372036854775807),
			l_dead, l_now) r;
	end if;
	if verdict = 0 then
		execute format('select start_tick, end_tick, created_at from %I.stream_batches
			where batch_id = $1', queen.stream_schema(l.o_id))
		into start_tick, end_tick, batch_at using batch_id;
	else
		batch_id := null;
	end if;
	return next;
	return query select null::smallint, null::bigint, null::bigint, null::bigint, null::bigint,
		null::boolean, null::timestamptz, null::bigint, null::bigint, m.*
		from queen.stream_messages(l.o_id, batch_id, true) m where batch_id is not null;
end $$;

-- What stream_receive_v1 does once there is something: the batch held already,
-- or a new one.
create or replace function queen.stream_take(p_queue_id bigint, p_consumer text, p_member text,
	p_max int, p_max_bytes bigint, p_dead_at timestamptz, p_now timestamptz,
	out o_verdict smallint, out o_batch bigint, out o_again boolean, out o_size bigint,
	out o_need bigint)
language plpgsql volatile as $$
declare
	l_s text := queen.stream_schema(p_queue_id); l record; h record; e queen.stream_end;
begin
	execute format('select s.id, s.last_tick, s.next_tick from %1$I.stream_subscriptions s
		where s.consumer = $1 for update', l_s) into l using p_consumer;
	if l.id is null then
		o_verdict := 3;
		return;
	end if;
	execute format('select exists (select from %1$I.stream_batches b
		where b.subscription_id = $1 and b.acked_at is null and (b.member = '''') <> ($2 = ''''))',
		l_s) into o_again using l.id, p_member;
	if o_again or p_member = '' and l.last_tick <> l.next_tick then
		o_verdict := 5;
		return;
	end if;
	o_verdict := 0;
	h := queen.stream_held(p_queue_id, l.id, p_member, p_dead_at);
	o_again := h.o_batch is not null;
	if o_again then
		o_size := h.o_size;
		o_need := h.o_size;
		-- nobody takes over, or holds on to, what it is refused
		if h.o_size > p_max then
			o_verdict := 4;
		else
			o_batch := queen.stream_give(p_queue_id, h.o_batch, h.o_member, p_member,
				p_now);
		end if;
		return;
	end if;
	e := queen.stream_next(p_queue_id, l.id, l.next_tick, p_max, p_max_bytes, p_now);
	o_verdict := e.verdict;
	o_size := e.size;
	o_need := e.need;
	if e.verdict = 0 and e.end_tick is not null then
		o_batch := queen.stream_batch_put(p_queue_id, l.id, p_member, e, p_now);
	elsif e.verdict = 0 then
		o_verdict := 1;
		if e.reached > l.next_tick then
			perform queen.stream_skip(p_queue_id, l.id, e.reached, p_now);
		end if;
	end if;
	if e.verdict = 0 then
		perform queen.stream_wake(p_queue_id, p_now + interval '5 s');
	end if;
end $$;

-- A batch while it is active, as receive answers it; payload and headers only
-- with p_payload.  verdict 0, 2, 6 no such batch, 9.
create or replace function queen.stream_batch_v1(p_tenant uuid, p_queue text, p_batch bigint,
	p_payload boolean, p_now timestamptz default null)
returns table (verdict smallint, queue_id bigint, batch_id bigint, start_tick bigint,
	end_tick bigint, redelivered boolean, batch_at timestamptz, size bigint, need bigint,
	consumer text, member text,
	seq bigint, event_id text, type text, payload text, headers text, retry_count int,
	created_at timestamptz, outcome smallint)
language plpgsql volatile as $$
declare
	l record;
begin
	l := queen.stream_open(p_tenant, p_queue);
	queue_id := l.o_id;
	if l.o_live and not l.o_stale then
		execute format('select b.batch_id, b.start_tick, b.end_tick, true, b.created_at, b.size,
				s.consumer, b.member
			from %1$I.stream_batches b
			join %1$I.stream_subscriptions s on s.id = b.subscription_id
			where b.batch_id = $1 and b.acked_at is null', queen.stream_schema(l.o_id))
		into batch_id, start_tick, end_tick, redelivered, batch_at, size, consumer, member
		using p_batch;
	end if;
	verdict := case when l.o_id is null then 2 when l.o_stale then 9
		when batch_id is null then 6 else 0 end;
	return next;
	return query select null::smallint, null::bigint, null::bigint, null::bigint, null::bigint,
		null::boolean, null::timestamptz, null::bigint, null::bigint, null::text, null::text,
		m.* from queen.stream_messages(l.o_id, batch_id, p_payload) m
		where batch_id is not null;
end $$;
