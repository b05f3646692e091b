-- SPDX-License-Identifier: Apache-2.0
-- Streams of queen-ojs: an append-only log per queue, cut into batches by
-- stored snapshots (ticks).  85x files alone hold dynamic SQL: each queue's log
-- has a schema of its own, queen_ojs_<queue id>, because TRUNCATE cannot empty
-- part of a table.
--
--   stream_ensure_v1, stream_append_v1, stream_tick_v1
--   stream_config_get, stream_config_set, stream_drop   called by the queue's functions
--
-- An event belongs to the batch between two ticks when it is visible in the
-- snapshot of the later one and not in that of the earlier one, so an append
-- that commits late is delivered late and never lost; seq orders the messages
-- of a batch and nothing else.
--
-- A receive reads its batch into memory, so ticks bound what one can be: each
-- log has one at least every 500 events, and a heavy one, which is never
-- thinned, when a process has stored 8 MiB in it.
--
-- Every function takes the log's advisory key first, shared, and looks into the
-- catalogue in a new statement: who drops a queue or rotates its log holds the
-- key exclusively.  Order of locks: log key, care key, subscription, tick key,
-- batch, its events, retries and dead letters, queen.ojs_streams,
-- queen.ojs_stream_work.
-- Keys are (class, queue id): 'ojs1' the log; 'ojs2' ticks are made in the
-- order of their snapshots; 'ojs3' care: whoever points a cursor at a tick, or
-- files a retry, holds it shared, and who removes ticks or sets the next due
-- time takes it exclusively.
--
-- All need read committed, where each statement of a volatile function has a
-- snapshot of its own; anything else is refused with 25000.

-- What a log is, apart from its events.  Written by rotation and configuration.
create table if not exists queen.ojs_streams (
	queue_id bigint primary key,
	max_retries int,			-- null = 5
	retention_ms bigint,			-- null = 7 days
	cur_segment smallint not null default 0,
	segment_started_at timestamptz not null default clock_timestamp(),
	floor_tick bigint not null default 1,	-- lies before the first event still there
	cleaned_tick bigint not null default 0,	-- ticks up to here have been thinned
	pinned_at timestamptz,			-- a rotation was told to wait, last said so
	check (max_retries >= 0),
	check (retention_ms > 0)
);

-- When a log needs care next.  Users only move it earlier; who cares for it
-- never sets it beyond 5 s while the log is in use.
create table if not exists queen.ojs_stream_work (
	queue_id bigint primary key,
	due_at timestamptz not null,
	holder text,
	fence bigint not null default 0,
	seen_seq bigint not null default 0,	-- of the last look: to know disuse
	seen_tick bigint not null default 0
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
create index if not exists ojs_stream_work_due on queen.ojs_stream_work (due_at);

-- One for all queues: the batch of a dropped queue names none of its successor.
create sequence if not exists queen.ojs_batch_ids as bigint cache 1;

-- The schema of a queue's log.
create or replace function queen.stream_schema(p_queue_id bigint)
returns text language sql immutable as $$ select 'queen_ojs_' || p_queue_id::text $$;

-- The second half of the advisory keys; two queues that share one only wait.
create or replace function queen.stream_key(p_queue_id bigint)
returns int language sql immutable as $$ select (p_queue_id % 2147483648)::int $$;

-- Makes the tables of a log's consumers.
create or replace function queen.stream_make_consumers(p_queue_id bigint)
returns void language plpgsql volatile as $make$
begin
	execute format($ddl$
create table %1$I.stream_subscriptions (
	id bigint generated always as identity primary key,
	consumer text collate "C" not null unique,
	last_tick bigint not null,
	next_tick bigint not null,
	active_at timestamptz not null,
	created_at timestamptz not null,
	check (last_tick <= next_tick)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
create table %1$I.stream_batches (
	batch_id bigint primary key,
	subscription_id bigint not null,
	member text collate "C" not null,
	start_tick bigint not null,
	end_tick bigint not null,
	size bigint not null,
	created_at timestamptz not null,
	active_at timestamptz not null,
	acked_at timestamptz
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
create unique index stream_batches_active on %1$I.stream_batches (subscription_id, member)
	where acked_at is null;
create unique index stream_batches_start on %1$I.stream_batches (subscription_id, start_tick);
create table %1$I.stream_batch_events (
	batch_id bigint not null,
	segment smallint not null,
	seqs bigint[] not null,
	primary key (batch_id, segment)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
create index stream_batch_events_segment on %1$I.stream_batch_events (segment);
create table %1$I.stream_nacks (
	batch_id bigint not null,
	seq bigint not null,
	outcome smallint not null,
	retry_count int not null,
	max_retries int not null,
	deliver_at timestamptz,
	dead_letter_id bigint,
	primary key (batch_id, seq)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
create table %1$I.stream_retry_events (
	subscription_id bigint not null,
	seq bigint not null,
	bytes int not null,
	retry_count int not null,
	deliver_at timestamptz not null,
	created_at timestamptz not null,
	event_id text not null,
	type text not null,
	payload json not null,
	headers json,
	primary key (subscription_id, seq)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
create index stream_retry_events_due on %1$I.stream_retry_events (deliver_at);
create table %1$I.stream_dead_letters (
	id bigint generated always as identity primary key,
	consumer text collate "C" not null,
	seq bigint not null,
	bytes int not null,
	retry_count int not null,
	created_at timestamptz not null,
	failed_at timestamptz not null,
	event_id text not null,
	type text not null,
	payload json not null,
	headers json,
	reason text not null,
	unique (consumer, seq)
);
create index stream_dead_letters_consumer on %1$I.stream_dead_letters (consumer, id);
create index stream_dead_letters_failed on %1$I.stream_dead_letters (failed_at);
$ddl$, queen.stream_schema(p_queue_id));
end $make$;

-- Makes the schema of a log, with the tick everything begins at.  The caller
-- holds the log's key exclusively.
create or replace function queen.stream_make(p_queue_id bigint, p_now timestamptz)
returns void language plpgsql volatile as $make$
begin
	execute format($ddl$
create schema %1$I;
create sequence %1$I.stream_seq as bigint cache 1;
create table %1$I.stream_ticks (
	tick_id bigint primary key,
	snapshot pg_snapshot not null,
	max_seq bigint not null,
	created_at timestamptz not null,
	heavy boolean not null default false
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
create table %1$I.stream_segments (
	segment smallint primary key,
	sealed_xid xid8,
	seal_tick bigint,
	sealed_at timestamptz
);
create table %1$I.stream_events (
	seq bigint not null default nextval('%1$I.stream_seq'),
	segment smallint not null,
	bytes int not null,
	retry_count int not null default 0,
	txid xid8 not null default pg_current_xact_id(),
	owner bigint,
	created_at timestamptz not null,
	event_id text not null,
	type text not null,
	payload json not null,
	headers json
) partition by list (segment);
create table %1$I.stream_events_0 partition of %1$I.stream_events for values in (0);
create table %1$I.stream_events_1 partition of %1$I.stream_events for values in (1);
create table %1$I.stream_events_2 partition of %1$I.stream_events for values in (2);
create index stream_events_txid on %1$I.stream_events (txid);
create index stream_events_seq on %1$I.stream_events (seq);
insert into %1$I.stream_segments (segment) values (0), (1), (2);
insert into %1$I.stream_ticks values (1, pg_current_snapshot(), 0, %2$L);
$ddl$, queen.stream_schema(p_queue_id), p_now);
	perform queen.stream_make_consumers(p_queue_id);
	insert into queen.ojs_streams as s (queue_id, segment_started_at)
	values (p_queue_id, p_now)
	on conflict (queue_id) do update set segment_started_at = excluded.segment_started_at;
	insert into queen.ojs_stream_work (queue_id, due_at)
	values (p_queue_id, p_now + interval '5 s')
	on conflict (queue_id) do nothing;
end $make$;

-- The queue of that name, with its log, both made when missing; its id.  In a
-- transaction of its own: an append sees the log only after it.
-- Locks: the log's key exclusively when there is no log yet; 55P03 after 1 s.
create or replace function queen.stream_ensure_v1(p_tenant uuid, p_queue text,
	p_now timestamptz default null)
returns bigint language plpgsql volatile as $$
declare
	l_now timestamptz := coalesce(p_now, clock_timestamp());
	l_id bigint; l_at timestamptz;
begin
	perform queen.stream_isolation();
	perform set_config('lock_timeout', '1s', true);
	loop
		select q.id, q.stream_at into l_id, l_at from queen.ojs_queues q
		where q.tenant = p_tenant and q.name = p_queue and q.deleted_at is null;
		exit when l_at is not null;
		if l_id is null then
			insert into queen.ojs_queues (tenant, name, created_at, changed_at)
			values (p_tenant, p_queue, l_now, l_now)
			on conflict (tenant, name) where deleted_at is null do nothing;
			continue;
		end if;
		perform pg_advisory_xact_lock(1869247281, queen.stream_key(l_id));
		select q.stream_at into l_at from queen.ojs_queues q
		where q.id = l_id and q.deleted_at is null;
		continue when not found;
		exit when l_at is not null;
		perform queen.stream_make(l_id, l_now);
		update queen.ojs_queues set stream_at = l_now,
			changed_at = greatest(l_now, changed_at) where id = l_id;
		exit;
	end loop;
	return l_id;
end $$;

-- Refuses what would look with a snapshot older than its locks: appends would
-- land in a sealed segment.
create or replace function queen.stream_isolation()
returns void language plpgsql volatile as $$
begin
	if current_setting('transaction_isolation') <> 'read committed' then
		raise exception 'streams need transactions that are read committed'
			using errcode = '25000';
	end if;
end $$;

-- Takes the log's key shared and looks, in a new statement, what there is:
-- o_id null = no such queue, o_live = it has a log, o_stale = its transaction
-- ids are of another server (restored, not rebased: what was appended since
-- would look as if it had been delivered long ago).
create or replace function queen.stream_open(p_tenant uuid, p_queue text,
	out o_id bigint, out o_live boolean, out o_stale boolean, out o_cur smallint,
	out o_max_events bigint)
language plpgsql volatile as $$
declare
	l_id bigint;
begin
	perform queen.stream_isolation();
	loop
		select q.id into l_id from queen.ojs_queues q
		where q.tenant = p_tenant and q.name = p_queue and q.deleted_at is null;
		exit when not found;
		perform pg_advisory_xact_lock_shared(1869247281, queen.stream_key(l_id));
		select q.id, q.stream_at is not null, s.cur_segment, q.max_events
		into o_id, o_live, o_cur, o_max_events
		from queen.ojs_queues q left join queen.ojs_streams s on s.queue_id = q.id
		where q.id = l_id and q.deleted_at is null;
		exit when found;
	end loop;
	if o_live then
		o_stale := queen.stream_stale(o_id, o_cur);
	end if;
end $$;

-- Whether a tick or an event of a log bears a transaction id that this server
-- has not given out yet.  The caller holds the log's key.
create or replace function queen.stream_stale(p_queue_id bigint, p_cur smallint)
returns boolean language plpgsql volatile as $$
declare
	l_found boolean;
begin
	execute format('select pg_snapshot_xmax((select t.snapshot from %1$I.stream_ticks t
			order by t.tick_id desc limit 1)) > pg_snapshot_xmax(pg_current_snapshot())
		or (select e.txid >= pg_snapshot_xmax(pg_current_snapshot())
			and e.txid is distinct from pg_current_xact_id_if_assigned()
			from %1$I.stream_events_%2$s e order by e.txid desc limit 1)',
		queen.stream_schema(p_queue_id), p_cur) into l_found;
	return coalesce(l_found, false);
end $$;

-- Moves the care of a log to p_at if it was to come later.  Not p_sure: nobody
-- waits for another who is at it and has not committed.
create or replace function queen.stream_wake(p_queue_id bigint, p_at timestamptz,
	p_sure boolean default false)
returns void language plpgsql volatile as $$
begin
	if p_sure then
		update queen.ojs_stream_work w set due_at = p_at
		where w.queue_id = p_queue_id and w.due_at > p_at;
	else
		update queen.ojs_stream_work w set due_at = p_at
		where w.queue_id = (select l.queue_id from queen.ojs_stream_work l
			where l.queue_id = p_queue_id and l.due_at > p_at for update skip locked);
	end if;
end $$;

-- How many events lie in a log, by the ends of its indexes: exact unless
-- appends were rolled back.  The caller holds the log's key.
create or replace function queen.stream_events_n(p_queue_id bigint)
returns bigint language plpgsql volatile as $$
declare
	l_n bigint;
begin
	execute format('select coalesce((select max(seq) - min(seq) + 1 from %1$I.stream_events_0), 0)
		+ coalesce((select max(seq) - min(seq) + 1 from %1$I.stream_events_1), 0)
		+ coalesce((select max(seq) - min(seq) + 1 from %1$I.stream_events_2), 0)',
		queen.stream_schema(p_queue_id)) into l_n;
	return l_n;
end $$;

-- Appends p_ids[1..] in order, all or nothing; one row.  verdict 0, 1 no log
-- yet (stream_ensure_v1, then again), 2 quota, 9 needs rebase.  since_tick =
-- events after the newest tick: beyond 500 the caller asks for one, in another
-- transaction (a tick must not share one with an append); for a heavy one when
-- it has stored 8 MiB in this log.
create or replace function queen.stream_append_v1(p_tenant uuid, p_queue text,
	p_ids text[], p_types text[], p_payloads text[], p_headers text[],
	p_now timestamptz default null)
returns table (verdict smallint, queue_id bigint, seq bigint[], created_at timestamptz,
	since_tick bigint)
language plpgsql volatile as $$
declare
	l record;
begin
	l := queen.stream_open(p_tenant, p_queue);
	queue_id := l.o_id;
	created_at := coalesce(p_now, clock_timestamp());
	verdict := case when l.o_live is not true then 1 when l.o_stale then 9
		when l.o_max_events is not null and queen.stream_events_n(l.o_id)
			+ cardinality(p_ids) > l.o_max_events then 2
		else 0 end;
	if verdict = 0 then
		execute format('with i as (insert into %1$I.stream_events_%2$s
				(segment, bytes, created_at, event_id, type, payload, headers)
			select %2$s, octet_length(m.payload) + coalesce(octet_length(m.headers), 0)
				+ octet_length(m.id) + octet_length(m.type), $5,
				m.id, m.type, m.payload::json, m.headers::json
			from unnest($1, $2, $3, $4) with ordinality m (id, type, payload, headers, ord)
			order by m.ord
			returning seq)
			select array_agg(i.seq order by i.seq), max(i.seq) - (select t.max_seq
				from %1$I.stream_ticks t order by t.tick_id desc limit 1) from i',
			queen.stream_schema(l.o_id), l.o_cur)
		into seq, since_tick using p_ids, p_types, p_payloads, p_headers, created_at;
		perform queen.stream_wake(l.o_id, created_at + interval '5 s');
	end if;
	return next;
end $$;

-- Stores p_snapshot as the next tick; its id.  The caller holds the tick key
-- and took the snapshot after it, so that ticks are nested: what is visible in
-- one is visible in all later ones.
create or replace function queen.stream_tick_put(p_queue_id bigint, p_snapshot pg_snapshot,
	p_now timestamptz, p_heavy boolean default false)
returns bigint language plpgsql volatile as $$
declare
	l_tick bigint;
begin
	execute format('insert into %1$I.stream_ticks as n (tick_id, snapshot, max_seq, created_at, heavy)
		select t.tick_id + 1, $1, case when s.is_called then s.last_value else 0 end, $2, $3
		from (select tick_id from %1$I.stream_ticks order by tick_id desc limit 1) t,
			%1$I.stream_seq s
		returning n.tick_id', queen.stream_schema(p_queue_id))
	into l_tick using p_snapshot, p_now, p_heavy;
	return l_tick;
end $$;

-- A tick when more than p_events events came since the last one, so that a
-- consumer that was away finds boundaries; its id, or null: not needed, or
-- somebody else is at it.  p_heavy: one in any case, that is never thinned, for
-- who has stored 8 MiB since the last one it made.  In a transaction of its own.
-- Locks: log key shared; the tick key, not waited for.
create or replace function queen.stream_tick_v1(p_queue_id bigint,
	p_heavy boolean default false, p_events bigint default 500,
	p_now timestamptz default null)
returns bigint language plpgsql volatile as $$
declare
	l_due boolean; l_snapshot pg_snapshot;
begin
	if not queen.stream_enter(p_queue_id) or not pg_try_advisory_xact_lock(1869247282,
			queen.stream_key(p_queue_id)) then
		return null;
	end if;
	execute format('select s.is_called and s.last_value > $1 + (select t.max_seq
			from %1$I.stream_ticks t order by t.tick_id desc limit 1)
		from %1$I.stream_seq s', queen.stream_schema(p_queue_id))
	into l_due using p_events;
	if not l_due and not p_heavy then
		return null;
	end if;
	select pg_current_snapshot() into l_snapshot;
	return queen.stream_tick_put(p_queue_id, l_snapshot, coalesce(p_now, clock_timestamp()),
		p_heavy);
end $$;

-- As stream_open for work that knows the id: false = no log any more, or one
-- that must not be touched before its rebase.
create or replace function queen.stream_enter(p_queue_id bigint)
returns boolean language plpgsql volatile as $$
declare
	l_cur smallint;
begin
	perform queen.stream_isolation();
	perform pg_advisory_xact_lock_shared(1869247281, queen.stream_key(p_queue_id));
	select s.cur_segment into l_cur
	from queen.ojs_queues q join queen.ojs_streams s on s.queue_id = q.id
	where q.id = p_queue_id and q.deleted_at is null and q.stream_at is not null;
	return l_cur is not null and not queen.stream_stale(p_queue_id, l_cur);
end $$;

-- The log's part of a queue's configuration; always one row.
create or replace function queen.stream_config_get(p_queue_id bigint)
returns table (max_retries int, retention_ms bigint)
language sql volatile as $$
	select coalesce(s.max_retries, 5), coalesce(s.retention_ms, 604800000)
	from (select p_queue_id as id) q left join queen.ojs_streams s on s.queue_id = q.id
$$;

-- Changes it; null leaves as it is.  Holds at the next nack and the next pass.
create or replace function queen.stream_config_set(p_queue_id bigint, p_max_retries int,
	p_retention_ms bigint, p_now timestamptz default null)
returns void language plpgsql volatile as $$
begin
	if p_max_retries is null and p_retention_ms is null then
		return;
	end if;
	insert into queen.ojs_streams as s (queue_id, max_retries, retention_ms)
	values (p_queue_id, p_max_retries, p_retention_ms)
	on conflict (queue_id) do update set
		max_retries = coalesce(excluded.max_retries, s.max_retries),
		retention_ms = coalesce(excluded.retention_ms, s.retention_ms);
	perform queen.stream_wake(p_queue_id, coalesce(p_now, clock_timestamp()), true);
end $$;

-- Removes a queue's log with all that hangs off it.  Before the queue's row is
-- touched, in the transaction that deletes it.  Locks: the log's key
-- exclusively; 55P03 after 1 s.
create or replace function queen.stream_drop(p_queue_id bigint)
returns void language plpgsql volatile as $$
begin
	perform queen.stream_isolation();
	perform set_config('lock_timeout', '1s', true);
	perform set_config('client_min_messages', 'warning', true);
	perform pg_advisory_xact_lock(1869247281, queen.stream_key(p_queue_id));
	-- a look before would not see what another did while the key was waited for
	execute format('drop schema if exists %I cascade', queen.stream_schema(p_queue_id));
	delete from queen.ojs_streams where queue_id = p_queue_id;
	delete from queen.ojs_stream_work where queue_id = p_queue_id;
end $$;
