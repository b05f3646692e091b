-- SPDX-License-Identifier: Apache-2.0
-- The stream's part of a queue's backup.  Schemas and locks: 850; how lines are
-- written and read: 860.
--
-- Transaction ids mean nothing elsewhere: an event is kept with the number of the
-- first tick that sees it (0 = none does yet), and restored with ids as
-- stream_rebase_v1 (858) gives them.  Batches come back with what they hold and
-- what was given back of it, under new ids: the old ones are of another cell's
-- sequence, or of this one's and still another log's.

-- Inside: where the log's tables are what the transaction's snapshot has them for.
-- TRUNCATE does not ask snapshots, so they are locked as every reader locks them.
-- 40001: one was emptied since.
create or replace function queen.stream_backup_lock(p_queue_id bigint)
returns void language plpgsql volatile as $$
declare
	l_same boolean;
begin
	execute format('lock table %I.stream_events in access share mode',
		queen.stream_schema(p_queue_id));
	select bool_and(c.relfilenode = pg_relation_filenode(c.oid)) into l_same
	from pg_class c
	where c.relnamespace = to_regnamespace(queen.stream_schema(p_queue_id))
		and c.relkind = 'r' and c.relname like 'stream\_events\__';
	if l_same is not true then
		raise exception 'old events of the stream were removed just now; try again'
			using errcode = '40001';
	end if;
end $$;

-- Inside: the lines of a log, as cursors.  Ticks come before what names them.
-- An event's tick is found by bisecting the ends of the snapshots; only one that
-- ran when the tick was made is looked for in those that follow.
-- Locks: the events' tables, shared.
create or replace function queen.stream_backup(p_queue_id bigint, p_live boolean)
returns table (kind text, lines refcursor)
language plpgsql volatile
set enable_seqscan = on set enable_nestloop = off set enable_mergejoin = off as $$
declare
	l_s text := queen.stream_schema(p_queue_id); l_tops bigint[]; l_sql text;
	l_seq bigint := 0; l_segments text := '[]';
begin
	if p_live then
		perform queen.stream_backup_lock(p_queue_id);
		execute format('select case when s.is_called then s.last_value else 0 end,
				(select ''['' || string_agg(row_to_json(g)::text, '','') || '']''
				from (select segment, seal_tick, sealed_at
					from %1$I.stream_segments order by segment) g),
				array(select pg_snapshot_xmax(t.snapshot)::text::bigint
				from %1$I.stream_ticks t order by t.tick_id)
			from %1$I.stream_seq s', l_s) into l_seq, l_segments, l_tops;
	end if;
	kind := 'stream';
	open lines for select queen.ojs_backup_line('stream', row_to_json(x)) from (
		select p_live as live, l_seq as seq, l_segments::json as segments, s.max_retries,
			s.retention_ms, s.cur_segment, s.segment_started_at, s.floor_tick,
			s.cleaned_tick, s.pinned_at
		from queen.ojs_streams s where s.queue_id = p_queue_id) x;
	return next;
	if not p_live then
		return;
	end if;
	for kind, l_sql in values
		('tick', 'select row_number() over (order by tick_id) as n, tick_id, max_seq,
			created_at, heavy from %1$I.stream_ticks order by tick_id'),
		('subscription', 'select * from %1$I.stream_subscriptions order by id'),
		('batch', 'select b as row, (select (''['' || string_agg(row_to_json(e)::text, '','')
				|| '']'')::json from %1$I.stream_batch_events e
				where e.batch_id = b.batch_id) as events,
			(select (''['' || string_agg(row_to_json(n)::text, '','') || '']'')::json
				from %1$I.stream_nacks n where n.batch_id = b.batch_id) as nacks
			from %1$I.stream_batches b order by b.batch_id'),
		('event', 'select e.seq, e.segment, case when t.n is null then 0
				when pg_visible_in_snapshot(e.txid, t.snapshot) then t.n
				else coalesce((select min(o.n) from ticks o where o.n > t.n
					and pg_visible_in_snapshot(e.txid, o.snapshot)), 0) end as tick,
				e.bytes, e.retry_count, e.owner, e.created_at, e.event_id, e.type,
				e.payload::text as payload, e.headers::text as headers
			from %1$I.stream_events e
			left join ticks t on t.n = width_bucket(e.txid::text::bigint, $1) + 1'),
		('retry', 'select subscription_id, seq, bytes, retry_count, deliver_at, created_at,
			event_id, type, payload::text as payload, headers::text as headers
			from %1$I.stream_retry_events'),
		('dead_letter', 'select id, consumer, seq, bytes, retry_count, created_at, failed_at,
			event_id, type, reason, payload::text as payload, headers::text as headers
			from %1$I.stream_dead_letters')
	loop
		lines := null;
		open lines for execute format('with ticks as materialized (
				select row_number() over (order by tick_id) as n, snapshot
				from %1$I.stream_ticks)
			select queen.ojs_backup_line(%2$L, row_to_json(x)) from ('
			|| l_sql || ') x', l_s, kind) using l_tops;
		return next;
	end loop;
end $$;

-- Inside: makes the log a line `stream` speaks of.
-- Locks: the log's key exclusively; nobody else sees the queue yet.
create or replace function queen.stream_restore_make(p_queue_id bigint, p_row json,
	p_now timestamptz)
returns void language plpgsql volatile as $$
declare
	s queen.ojs_streams := json_populate_record(null::queen.ojs_streams, p_row);
	l_s text := queen.stream_schema(p_queue_id);
begin
	perform pg_advisory_xact_lock(1869247281, queen.stream_key(p_queue_id));
	if (p_row ->> 'live')::boolean then
		perform queen.stream_make(p_queue_id, p_now);
		update queen.ojs_queues q set stream_at = p_now where q.id = p_queue_id;
		execute format('delete from %1$I.stream_ticks;
			update %1$I.stream_segments g set seal_tick = r.seal_tick,
				sealed_at = r.sealed_at
			from json_populate_recordset(null::%1$I.stream_segments, %2$L) r
			where r.segment = g.segment;
			select setval(''%1$I.stream_seq'', greatest(%3$s, 1), %3$s > 0)',
			l_s, p_row -> 'segments', (p_row ->> 'seq')::bigint);
	end if;
	insert into queen.ojs_streams as c (queue_id, max_retries, retention_ms, cur_segment,
		segment_started_at, floor_tick, cleaned_tick, pinned_at)
	values (p_queue_id, s.max_retries, s.retention_ms, s.cur_segment, s.segment_started_at,
		s.floor_tick, s.cleaned_tick, s.pinned_at)
	on conflict (queue_id) do update set max_retries = excluded.max_retries,
		retention_ms = excluded.retention_ms, cur_segment = excluded.cur_segment,
		segment_started_at = excluded.segment_started_at,
		floor_tick = excluded.floor_tick, cleaned_tick = excluded.cleaned_tick,
		pinned_at = excluded.pinned_at;
end $$;

-- Inside: a batch, under a new id.
create or replace function queen.stream_restore_batch(p_queue_id bigint, p_row json)
returns void language plpgsql volatile as $$
declare
	l_s text := queen.stream_schema(p_queue_id); l_id bigint := nextval('queen.ojs_batch_ids');
begin
	execute format('insert into %1$I.stream_batches select $1, r.subscription_id, r.member,
			r.start_tick, r.end_tick, r.size, r.created_at, r.active_at, r.acked_at
		from json_populate_record(null::%1$I.stream_batches, $2) r', l_s)
	using l_id, p_row -> 'row';
	execute format('insert into %1$I.stream_batch_events select $1, r.segment, r.seqs
		from json_populate_recordset(null::%1$I.stream_batch_events, $2) r', l_s)
	using l_id, (p_row ->> 'events')::json;
	execute format('insert into %1$I.stream_nacks select $1, r.seq, r.outcome,
			r.retry_count, r.max_retries, r.deliver_at, r.dead_letter_id
		from json_populate_recordset(null::%1$I.stream_nacks, $2) r', l_s)
	using l_id, (p_row ->> 'nacks')::json;
end $$;

-- Inside: stores lines of one kind.  22023: a kind that there is not, or an event
-- of a tick that there is not.
-- Locks: the log's key exclusively, held since its first line.
create or replace function queen.stream_restore(p_queue_id bigint, p_kind text,
	p_docs json[], p_now timestamptz)
returns void language plpgsql volatile as $$
declare
	l_s text := queen.stream_schema(p_queue_id); l_n bigint; l_doc json; l_sql text;
begin
	if p_kind in ('stream', 'batch') then
		foreach l_doc in array p_docs loop
			if p_kind = 'stream' then
				perform queen.stream_restore_make(p_queue_id, l_doc, p_now);
			else
				perform queen.stream_restore_batch(p_queue_id, l_doc);
			end if;
		end loop;
		return;
	end if;
	l_sql := case p_kind
		when 'tick' then 'insert into %1$I.stream_ticks (tick_id, snapshot, max_seq,
				created_at, heavy)
			select r.tick_id, format(''%%1$s:%%1$s:'', (u.doc ->> ''n'')::bigint + 3)
				::pg_snapshot, r.max_seq, r.created_at, r.heavy
			from unnest($1) u (doc),
				json_populate_record(null::%1$I.stream_ticks, u.doc) r'
		when 'subscription' then 'insert into %1$I.stream_subscriptions
			overriding system value select r.* from unnest($1) u (doc),
				json_populate_record(null::%1$I.stream_subscriptions, u.doc) r'
		when 'event' then 'insert into %1$I.stream_events (seq, segment, bytes, retry_count,
				txid, owner, created_at, event_id, type, payload, headers)
			select r.seq, r.segment, r.bytes, r.retry_count, (case when r.tick = 0
					then $2 + 3 else r.tick + 2 end)::text::xid8,
				r.owner, r.created_at, r.event_id, r.type, r.payload::json,
				r.headers::json
			from unnest($1) u (doc), json_to_record(u.doc) r (seq bigint,
				segment smallint, tick bigint, bytes int, retry_count int,
				owner bigint, created_at timestamptz, event_id text, type text,
				payload text, headers text)'
		when 'retry' then 'insert into %1$I.stream_retry_events (subscription_id, seq,
				bytes, retry_count, deliver_at, created_at, event_id, type, payload,
				headers)
			select r.subscription_id, r.seq, r.bytes, r.retry_count, r.deliver_at,
				r.created_at, r.event_id, r.type, r.payload::json, r.headers::json
			from unnest($1) u (doc), json_to_record(u.doc) r (subscription_id bigint,
				seq bigint, bytes int, retry_count int, deliver_at timestamptz,
				created_at timestamptz, event_id text, type text, payload text,
				headers text)'
		when 'dead_letter' then 'insert into %1$I.stream_dead_letters (id, consumer, seq,
				bytes, retry_count, created_at, failed_at, event_id, type, payload,
				headers, reason)
			overriding system value
			select r.id, r.consumer, r.seq, r.bytes, r.retry_count, r.created_at,
				r.failed_at, r.event_id, r.type, r.payload::json, r.headers::json,
				r.reason
			from unnest($1) u (doc), json_to_record(u.doc) r (id bigint, consumer text,
				seq bigint, bytes int, retry_count int, created_at timestamptz,
				failed_at timestamptz, event_id text, type text, payload text,
				headers text, reason text)'
	end;
	if l_sql is null then
		raise exception 'unknown kind "%"', p_kind using errcode = '22023';
	end if;
	if p_kind = 'event' then
		execute format('select count(*) from %I.stream_ticks', l_s) into l_n;
		if exists (select from unnest(p_docs) u (doc)
				where ((u.doc ->> 'tick')::bigint between 0 and l_n) is not true) then
			raise exception 'an event names a tick that is not there'
				using errcode = '22023';
		end if;
	end if;
	execute format(l_sql, l_s) using p_docs, l_n;
end $$;

-- Inside: what is left to do once all lines are there: counters go on where they
-- were, and ids of this server up to those given are used up.  22023: a cursor or
-- a batch names a tick that there is not.
create or replace function queen.stream_restore_end(p_queue_id bigint, p_now timestamptz)
returns void language plpgsql volatile as $$
declare
	l_s text := queen.stream_schema(p_queue_id); l_n bigint; l_lost bigint;
begin
	execute format('select count(*), (select x.tick from (
			select last_tick as tick from %1$I.stream_subscriptions
			union all select next_tick from %1$I.stream_subscriptions
			union all select start_tick from %1$I.stream_batches
			union all select end_tick from %1$I.stream_batches) x
		where not exists (select from %1$I.stream_ticks o where o.tick_id = x.tick)
		limit 1) from %1$I.stream_ticks t', l_s) into l_n, l_lost;
	if l_lost is not null or l_n = 0 then
		raise exception 'there is no tick %', coalesce(l_lost, 1)
			using errcode = '22023';
	end if;
	execute format('update %1$I.stream_segments g set sealed_xid = pg_snapshot_xmax(t.snapshot)
			from %1$I.stream_ticks t where t.tick_id = g.seal_tick;
		select setval(pg_get_serial_sequence(''%1$I.stream_subscriptions'', ''id''), max(id))
			from %1$I.stream_subscriptions having count(*) > 0;
		select setval(pg_get_serial_sequence(''%1$I.stream_dead_letters'', ''id''), max(id))
			from %1$I.stream_dead_letters having count(*) > 0', l_s);
	perform queen.stream_spend(p_queue_id, l_n + 4 - pg_current_xact_id()::text::bigint);
	update queen.ojs_stream_work w set due_at = p_now where w.queue_id = p_queue_id;
end $$;
