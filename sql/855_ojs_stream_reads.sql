-- SPDX-License-Identifier: Apache-2.0
-- What is to be seen of streams.  Schemas and locks: 850.
--
--   stream_news_v1       whose log moved on
--   stream_info_v1, stream_consumers_v1, stream_counts, stream_counts_some
--
-- Tables written: none.

-- Numbers of a queue: zeros without a log.
create or replace function queen.stream_counts(p_queue_id bigint,
	out events bigint, out consumers bigint, out dead_letters bigint)
language plpgsql volatile as $$
begin
	events := 0;
	consumers := 0;
	dead_letters := 0;
	if queen.stream_there(p_queue_id) then
		events := queen.stream_events_n(p_queue_id);
		execute format('select (select count(*) from %1$I.stream_subscriptions),
			(select count(*) from %1$I.stream_dead_letters)',
			queen.stream_schema(p_queue_id)) into consumers, dead_letters;
	end if;
end $$;

-- The same for a list, consumers and dead letters counted up to p_most each; nulls when
-- there is no log, or somebody drops or rotates it now.  Keeps no lock: its block is
-- undone, as the locks of the tables of many logs would fill the server's table.
create or replace function queen.stream_counts_some(p_queue_id bigint, p_most bigint,
	out events bigint, out consumers bigint, out dead_letters bigint)
language plpgsql volatile as $$
begin
	if pg_try_advisory_xact_lock_shared(1869247281, queen.stream_key(p_queue_id)) then
		execute format('select queen.stream_events_n($1),
			(select count(*) from (select from %1$I.stream_subscriptions limit $2) s),
			(select count(*) from (select from %1$I.stream_dead_letters limit $2) d)',
			queen.stream_schema(p_queue_id))
		into events, consumers, dead_letters using p_queue_id, p_most;
	end if;
	raise exception sqlstate 'QOJ01';
exception when sqlstate 'QOJ01' or undefined_table or invalid_schema_name then
	null;
end $$;

-- Takes the log's key shared and says whether there is a log.
create or replace function queen.stream_there(p_queue_id bigint)
returns boolean language plpgsql volatile as $$
begin
	perform queen.stream_isolation();
	perform pg_advisory_xact_lock_shared(1869247281, queen.stream_key(p_queue_id));
	return exists (select from queen.ojs_queues q where q.id = p_queue_id
		and q.deleted_at is null and q.stream_at is not null);
end $$;

-- Of the logs in p_queue_ids those with events that came since p_xids, each
-- with the transaction id to ask with next time, 0 at first.  Nothing is missed:
-- an event counts from the moment it is committed, whatever its seq.  It may come
-- twice while a long transaction runs.  A log that somebody drops or rotates now
-- is left out.
create or replace function queen.stream_news_v1(p_queue_ids bigint[], p_xids bigint[],
	p_now timestamptz default null)
returns table (queue_id bigint, xid bigint)
language plpgsql volatile as $$
declare
	l_from bigint; l_cur smallint;
begin
	perform queen.stream_isolation();
	for queue_id, l_from in select distinct * from unnest(p_queue_ids, p_xids) u order by 1
	loop
		continue when not pg_try_advisory_xact_lock_shared(1869247281,
			queen.stream_key(queue_id));
		select s.cur_segment into l_cur
		from queen.ojs_queues q join queen.ojs_streams s on s.queue_id = q.id
		where q.id = stream_news_v1.queue_id and q.deleted_at is null
			and q.stream_at is not null;
		continue when not found;
		execute format('select pg_snapshot_xmin(pg_current_snapshot())::text::bigint
			where exists (select from %1$I.stream_events
				where segment in (%2$s, %3$s) and txid >= %4$L)',
			queen.stream_schema(queue_id), l_cur, (l_cur + 2) % 3, l_from) into xid;
		if xid is not null then
			return next;
		end if;
	end loop;
end $$;

-- A span as in `84h`, `1h30m`, `250ms`.
create or replace function queen.stream_span(p_ms bigint)
returns text language sql immutable as $$
	select coalesce(nullif(concat(
		nullif(p_ms / 3600000, 0) || 'h', nullif(p_ms / 60000 % 60, 0) || 'm',
		nullif(p_ms / 1000 % 60, 0) || 's', nullif(p_ms % 1000, 0) || 'ms'), ''), '0s')
$$;

-- What pins a segment: the consumers whose group cursor is before its seal.
create or replace function queen.stream_pins(p_queue_id bigint, p_segment smallint,
	p_seal_tick bigint)
returns text[] language plpgsql volatile as $$
declare
	l_names text[];
begin
	execute format('select coalesce(array_agg(s.consumer order by s.consumer), ''{}'')
		from %1$I.stream_subscriptions s where s.last_tick < $1 or s.id in (
			select b.subscription_id from %1$I.stream_batches b
			join %1$I.stream_batch_events e on e.batch_id = b.batch_id and e.segment = $2)',
		queen.stream_schema(p_queue_id)) into l_names using p_seal_tick, p_segment;
	return l_names;
end $$;

-- The segments as `info` shows them.
create or replace function queen.stream_segments_json(p_queue_id bigint, p_cur smallint)
returns json language plpgsql volatile as $$
declare
	l_list json[]; i int; l record;
begin
	for i in 0..2 loop
		execute format('select g.*, coalesce((select max(seq) - min(seq) + 1
				from %1$I.stream_events_%2$s), 0) as n
			from %1$I.stream_segments g where g.segment = %2$s',
			queen.stream_schema(p_queue_id), i) into l;
		l_list := l_list || (select row_to_json(x) from (select i as segment,
			case when i = p_cur then 'current' when l.seal_tick is null then 'empty'
				else 'sealed' end as state,
			l.n as events, l.sealed_xid::text as sealed_xid, l.seal_tick,
			queen.iso_ms_v1(l.sealed_at) as sealed_at,
			case when l.seal_tick is not null then array_to_json(
				queen.stream_pins(p_queue_id, i::smallint, l.seal_tick)) end as pinned_by) x);
	end loop;
	return array_to_json(l_list);
end $$;

-- The numbers of a log as `info` shows them; p_queue_id null = there is none.
create or replace function queen.stream_numbers(p_queue_id bigint)
returns json language plpgsql volatile as $$
declare
	s queen.ojs_streams; l_events bigint; l_period bigint; l_found json;
begin
	select * into s from queen.ojs_streams c where c.queue_id = p_queue_id;
	l_events := queen.stream_events_n(p_queue_id);
	l_period := coalesce(s.retention_ms, 604800000) / 2;
	execute format('select row_to_json(x) from (select $1 as events,
		(select count(*) from %1$I.stream_subscriptions) as consumers,
		(select count(*) from %1$I.stream_batches where acked_at is null) as active_batches,
		(select count(*) from %1$I.stream_retry_events) as retries,
		(select count(*) from %1$I.stream_dead_letters) as dead_letters,
		(select min(seq) from %1$I.stream_events) as first_seq,
		(select max(seq) from %1$I.stream_events) as last_seq,
		(select min(tick_id) from %1$I.stream_ticks) as first_tick,
		l.tick_id as last_tick, (select count(*) from %1$I.stream_ticks) as ticks,
		queen.iso_ms_v1(l.created_at) as last_tick_at,
		(select row_to_json(w) from (select last_tick as tick, consumer
			from %1$I.stream_subscriptions order by last_tick, id limit 1) w) as watermark,
		$2 as segment, queen.iso_ms_v1($3) as segment_started_at,
		queen.stream_span($4) as rotation_period, $4 as rotation_period_ms,
		queen.iso_ms_v1($3 + $4 * interval ''1 ms'') as next_rotation_at,
		queen.stream_segments_json($5, $2) as segments
		from (select * from %1$I.stream_ticks order by tick_id desc limit 1) l) x',
		queen.stream_schema(p_queue_id))
	into l_found using l_events, s.cur_segment, s.segment_started_at, l_period, p_queue_id;
	return l_found;
end $$;

-- The body of `info`; null = no such queue.  Without a log: zeros and defaults.
create or replace function queen.stream_info_v1(p_tenant uuid, p_queue text,
	p_now timestamptz default null)
returns text language plpgsql volatile as $$
declare
	l record; l_stream json; l_ms bigint;
begin
	l := queen.stream_open(p_tenant, p_queue);
	if l.o_id is null then
		return null;
	elsif l.o_live then
		l_stream := queen.stream_numbers(l.o_id);
	else
		select c.retention_ms / 2 into l_ms from queen.stream_config_get(l.o_id) c;
		l_stream := format('{"events":0,"consumers":0,"active_batches":0,"retries":0,'
			|| '"dead_letters":0,"ticks":0,"rotation_period":"%s","rotation_period_ms":%s,'
			|| '"segments":[]}', queen.stream_span(l_ms), l_ms)::json;
	end if;
	return json_strip_nulls(row_to_json(x))::text
		from (select p_queue as queue, l_stream as stream) x;
end $$;

-- The batches of a subscription as the list of consumers shows them.
create or replace function queen.stream_batches_json(p_queue_id bigint, p_subscription bigint)
returns text language plpgsql volatile as $$
declare
	l_found text;
begin
	execute format('select json_strip_nulls(coalesce(array_to_json(array_agg(row_to_json(x))),
			''[]''))::text
		from (select b.batch_id as id, b.member, b.start_tick, b.end_tick, b.size,
			(select count(*) from %1$I.stream_nacks n where n.batch_id = b.batch_id) as nacked,
			queen.iso_ms_v1(b.created_at) as created_at, queen.iso_ms_v1(b.acked_at) as acked_at
		from %1$I.stream_batches b where b.subscription_id = $1 order by b.start_tick) x',
		queen.stream_schema(p_queue_id)) into l_found using p_subscription;
	return l_found;
end $$;

-- The consumers of a queue by name; lag_events is an estimate, lag_ms the age of
-- the oldest event that waits, 0 when none does; null before a rebase, when
-- nobody can tell.
create or replace function queen.stream_consumers_v1(p_tenant uuid, p_queue text,
	p_now timestamptz default null)
returns table (name text, last_tick bigint, next_tick bigint, lag_ticks bigint,
	lag_events bigint, lag_ms bigint, retries bigint, active_at timestamptz,
	created_at timestamptz, batches text)
language plpgsql volatile as $$
declare
	l record; l_id bigint; l_snapshot pg_snapshot; l_now_is pg_snapshot; l_seq bigint;
	l_at timestamptz;
begin
	l := queen.stream_open(p_tenant, p_queue);
	if l.o_live is not true then
		return;
	end if;
	for l_id, name, last_tick, next_tick, active_at, created_at, lag_ticks, lag_events,
		retries, l_snapshot, l_seq, l_at in execute format('select s.id, s.consumer,
			s.last_tick, s.next_tick, s.active_at, s.created_at,
			(select max(tick_id) from %1$I.stream_ticks) - s.last_tick,
			(select max(seq) from %1$I.stream_events) - t.max_seq,
			(select count(*) from %1$I.stream_retry_events r where r.subscription_id = s.id),
			t.snapshot, t.max_seq, t.created_at
		from %1$I.stream_subscriptions s join %1$I.stream_ticks t on t.tick_id = s.last_tick
		order by s.consumer', queen.stream_schema(l.o_id))
	loop
		select pg_current_snapshot() into l_now_is;
		if l.o_stale then
			lag_ms := null;
			lag_events := null;
		elsif exists (select from queen.stream_diff(l.o_id, l_id, l_snapshot, l_now_is,
				queen.stream_after(l.o_id, last_tick), 1)) then
			execute format('select coalesce((select e.created_at from %1$I.stream_events e
				where e.seq > $1 order by e.seq limit 1), $2)', queen.stream_schema(l.o_id))
			into l_at using l_seq, l_at;
			lag_ms := greatest(0, extract(epoch from coalesce(p_now, clock_timestamp())
				- l_at) * 1000)::bigint;
			lag_events := greatest(coalesce(lag_events, 1), 1);
		else
			lag_ms := 0;
			lag_events := 0;
		end if;
		batches := queen.stream_batches_json(l.o_id, l_id);
		return next;
	end loop;
end $$;
