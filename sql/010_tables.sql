-- SPDX-License-Identifier: Apache-2.0
-- The tables of a cell.  Idempotent and additive: a later release adds
-- columns with defaults, it never renames or drops one that is in use.
--
-- No foreign keys on hot tables: a push would pay for each; what deletes a
-- partition deletes its rows, and a push that finds its partition gone
-- says so.  Times are the database's clock.

create schema if not exists queen;

-- Keys are made after the other indexes of a table, and the unique name index
-- after the rest: between indexes that cost the same the planner takes the one
-- made last, and while a table has a row or two all of them cost the same.  A
-- generic plan made then would walk a whole index for as long as it lives.

-- Who this cell is.  One row, written by the first apply (990_cell.sql).
create table if not exists queen.cell (
	one boolean primary key default true check (one),
	tag bigint not null,			-- 48 random bits, part of every wire id
	hash_key bytea not null,		-- 16 bytes, SipHash key of transaction ids
	major int not null,
	number int not null,
	hash text not null,
	created_at timestamptz not null default clock_timestamp(),
	applied_at timestamptz not null default clock_timestamp()
);

-- One row per queue: identity and all options.  A deleted queue keeps its row
-- (the name is free at once) until its data is purged.
create table if not exists queen.queues (
	id bigint generated always as identity,
	tenant uuid not null,
	name text collate "C" not null,
	namespace text not null default '',
	task text not null default '',
	lease_time_s int not null default 60,
	retry_limit int not null default 3,
	dead_letter_queue boolean not null default true,
	dlq_after_max_retries boolean not null default true,
	delayed_processing_s int not null default 0,
	window_buffer_s int not null default 0,
	min_pop_wait_ms int not null default 0,
	retention_enabled boolean not null default false,
	retention_s int not null default 0,
	completed_retention_s int not null default 0,
	max_wait_s int not null default 0,
	encryption_enabled boolean not null default false,
	dedup_window_s int not null default 3600,
	retention_sink_hold text not null default '',
	retention_sink_hold_max_s int not null default 604800,
	priority int not null default 0,
	ttl_s int not null default 3600,
	max_size int not null default 0,
	retry_delay_ms int not null default 1000,
	created_at timestamptz not null default clock_timestamp(),
	changed_at timestamptz not null default clock_timestamp(),
	deleted_at timestamptz
);
create index if not exists queues_changed on queen.queues (changed_at, id);
create index if not exists queues_dead on queen.queues (id) where deleted_at is not null;
create unique index if not exists queues_name on queen.queues (tenant, name) where deleted_at is null;
do $$ begin
	if to_regclass('queen.queues_pkey') is null then
		alter table queen.queues add primary key (id);
	end if;
end $$;

create table if not exists queen.partitions (
	id bigint generated always as identity,
	queue_id bigint not null,
	name text collate "C" not null,
	created_at timestamptz not null
);
create index if not exists partitions_queue on queen.partitions (queue_id, id);
create unique index if not exists partitions_name on queen.partitions (queue_id, name);
do $$ begin
	if to_regclass('queen.partitions_pkey') is null then
		alter table queen.partitions add primary key (id);
	end if;
end $$;

-- The lock and the summary of a partition, rewritten at most once a second.
-- There is no last offset: it is the end of the newest segment, or
-- log_start - 1 when there is none.
create table if not exists queen.partition_heads (
	id bigint not null,
	queue_id bigint not null,
	log_start bigint not null default 0,
	ids_start bigint not null default 0,
	last_at timestamptz,			-- newest created_at; kept when the log empties
	last_write_at timestamptz not null,	-- newest created_at, quantised to 1 s
	oldest_live_at timestamptz,		-- created_at at log_start; null = nothing live
	oldest_id_at timestamptz,		-- created_at at ids_start; set by retention once id rows outlive segments
	retry_at timestamptz,			-- retention rule 2 backs off until then
	retry_ms int not null default 0
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
create index if not exists partition_heads_written on queen.partition_heads (last_write_at, id);
create index if not exists partition_heads_live on queen.partition_heads (queue_id, oldest_live_at)
	where oldest_live_at is not null;
create index if not exists partition_heads_ids on queen.partition_heads (queue_id, oldest_id_at)
	where oldest_id_at is not null;
do $$ begin
	if to_regclass('queen.partition_heads_pkey') is null then
		alter table queen.partition_heads add primary key (id);
	end if;
end $$;

create table if not exists queen.segments (
	partition_id bigint not null,
	base_offset bigint not null,
	end_offset bigint not null,		-- inclusive
	created_at timestamptz not null,
	raw_bytes int not null,			-- frames before compression
	key_id smallint,			-- null = not sealed
	blob bytea not null,
	primary key (partition_id, base_offset)
) with (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_scale_factor = 0.1,
	autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0,
	toast.autovacuum_vacuum_scale_factor = 0.1, toast.autovacuum_vacuum_insert_scale_factor = 0.3,
	toast.autovacuum_vacuum_cost_delay = 0);
alter table queen.segments alter blob set storage external;

-- 16 bytes per message (SipHash of the transaction id), one row per segment.
create table if not exists queen.segment_ids (
	partition_id bigint not null,
	base_offset bigint not null,
	end_offset bigint not null,
	created_at timestamptz not null,
	ids bytea not null,
	primary key (partition_id, base_offset)
) with (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_scale_factor = 0.1,
	autovacuum_vacuum_cost_delay = 0);
alter table queen.segment_ids alter ids set storage external;

-- A consumer group on a queue.  Registering, seeking a whole queue (a new id
-- with a new start_at) and deleting (deleted_at) write one row.
create table if not exists queen.groups (
	id bigint generated always as identity,
	queue_id bigint not null,
	name text collate "C" not null,
	mode text not null,			-- all, new, timestamp: as first asked
	subscribed_at timestamptz not null,	-- the stored subscription time (epoch for all)
	start_at timestamptz,			-- where partitions without a row begin; null = everything retained
	conflated boolean not null default false,
	created_at timestamptz not null default clock_timestamp(),
	deleted_at timestamptz
);
create index if not exists groups_by_name on queen.groups (name) where deleted_at is null;
create index if not exists groups_dead on queen.groups (id) where deleted_at is not null;
create unique index if not exists groups_name on queen.groups (queue_id, name) where deleted_at is null;
do $$ begin
	if to_regclass('queen.groups_pkey') is null then
		alter table queen.groups add primary key (id);
	end if;
end $$;

-- Cursor, lease and retry budget of a (group, partition); made by the first
-- claim, ack or partition seek.  Two changes per batch under a held snapshot
-- grow a version chain, so every 32nd change moves the row to the next
-- generation, which is part of the key.  Look-ups take the newest generation
-- by one backward key step; updates go to the locked row by its ctid.
create table if not exists queen.consumers (
	group_id bigint not null,
	partition_id bigint not null,
	gen int not null default 0,
	turn int not null default 0,
	committed bigint not null,
	batch_end bigint,			-- inclusive end of the leased batch; null = no lease
	lease_at bigint,			-- first partition of the pop that holds the lease
	lease_group bigint,			-- and its group
	lease_no bigint,			-- and its random part
	last_lease_at bigint,			-- the lease before, for repeated acks
	last_lease_no bigint,
	expires_at timestamptz,
	acquired_at timestamptz,
	retries int not null default 0,
	attempt_offset bigint,
	attempts int not null default 0,
	conflated boolean not null default false,	-- the held lease is a last-value one
	consumed bigint not null default 0
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
create index if not exists consumers_partition on queen.consumers (partition_id);
do $$ begin
	if to_regclass('queen.consumers_pkey') is null then
		alter table queen.consumers add primary key (group_id, partition_id, gen);
	end if;
end $$;

-- The partitions of a lease that has several, kept apart from the consumer row of
-- the first: that one may be acked and popped again while the others are held.
-- Swept a day after the expiry (lease_sweep_v1).
create table if not exists queen.lease_sets (
	lease_at bigint not null,
	lease_group bigint not null,
	lease_no bigint not null,
	parts bigint[] not null,		-- ascending by (part, group)
	groups bigint[] not null,		-- aligned with parts
	expires_at timestamptz not null,
	primary key (lease_at, lease_group, lease_no)
);
create index if not exists lease_sets_expires on queen.lease_sets (expires_at);

-- Survives retention, seek and group delete; goes by replay, delete, purge or
-- with its queue.  Keyed by the group's name so that it outlives the id.
create table if not exists queen.dead_letters (
	id uuid primary key,			-- UUIDv7
	queue_id bigint not null,
	partition_id bigint not null,
	group_name text collate "C" not null,
	message_offset bigint not null,
	id_hash bytea not null,			-- 16 bytes, address look-up
	frame bytea,				-- whole frame; null = retention had removed it
	error text,
	retries int not null,
	created_at timestamptz,			-- of the message
	failed_at timestamptz not null
);
create index if not exists dead_letters_queue on queen.dead_letters (queue_id, failed_at desc);
create index if not exists dead_letters_address on queen.dead_letters (partition_id, id_hash, failed_at desc);
create index if not exists dead_letters_offset on queen.dead_letters (partition_id, message_offset);

-- "A cursor moved backwards": written with the move, read by every change
-- scan, so that a lost hint costs latency only.  Pruned after an hour.
create table if not exists queen.repairs (
	id bigint generated always as identity primary key,
	queue_id bigint not null,
	group_id bigint not null,
	partition_id bigint,			-- null = all
	at timestamptz not null
);
create index if not exists repairs_at on queen.repairs (at);

-- Cell-wide jobs: due time, lease and fence in a row.
create table if not exists queen.claims (
	task text primary key,
	period_ms bigint not null,
	next_due_at timestamptz not null,
	lease_until timestamptz,
	holder text,
	fence bigint not null default 0,
	enabled boolean not null default true,
	last_start_at timestamptz,
	last_end_at timestamptz,
	last_duration_ms bigint,
	runs bigint not null default 0
);

create table if not exists queen.flags (
	key text primary key,			-- maintenance_mode, pop_maintenance_mode, ...
	value jsonb not null,
	changed_at timestamptz not null default clock_timestamp()
);

create table if not exists queen.traces (
	id uuid primary key,
	tenant uuid not null,
	partition_id bigint not null,
	transaction_id text collate "C" not null,
	consumer_group text not null,
	event_type text not null,
	data text not null,			-- JSON as sent
	worker_id text,
	created_at timestamptz not null default clock_timestamp()
);
create index if not exists traces_address on queen.traces (partition_id, transaction_id, created_at);

create table if not exists queen.trace_names (
	tenant uuid not null,
	name text collate "C" not null,
	trace_id uuid not null,
	created_at timestamptz not null,
	primary key (tenant, name, trace_id)
);
create index if not exists trace_names_recent on queen.trace_names (tenant, name, created_at desc);

-- Per-minute counters: a row only for a queue with activity in that minute.
create table if not exists queen.queue_minutes (
	minute timestamptz not null,
	queue_id bigint not null,
	push_requests bigint not null default 0,
	push_messages bigint not null default 0,
	pop_requests bigint not null default 0,
	pop_messages bigint not null default 0,
	pop_empty bigint not null default 0,
	ack_requests bigint not null default 0,
	ack_success bigint not null default 0,
	ack_failed bigint not null default 0,
	transactions bigint not null default 0,
	conflated bigint not null default 0,
	dead_letters bigint not null default 0,
	partitions_created bigint not null default 0,
	partitions_deleted bigint not null default 0,
	lag_sum_ms bigint not null default 0,	-- pop-weighted: sum over lag_n pops
	lag_n bigint not null default 0,
	lag_max_ms bigint not null default 0,
	parked_sum bigint not null default 0,	-- samples of parked pops
	parked_n bigint not null default 0,
	primary key (minute, queue_id)
);

-- Per instance and minute; queue-independent gauges.
create table if not exists queen.instance_minutes (
	minute timestamptz not null,
	instance text not null,
	requests bigint not null default 0,
	db_errors bigint not null default 0,
	cpu_user_us bigint not null default 0,
	cpu_system_us bigint not null default 0,
	rss_bytes bigint not null default 0,
	loop_lag_avg_us bigint not null default 0,
	loop_lag_max_us bigint not null default 0,
	pool_size int not null default 0,
	pool_busy_max int not null default 0,
	uptime_s bigint not null default 0,
	primary key (minute, instance)
);

-- Counters of the cell since it was made; unlike the minutes never purged.
create table if not exists queen.totals (
	name text primary key,
	value bigint not null default 0
);

create table if not exists queen.retention_log (
	at timestamptz not null,
	queue_id bigint not null,
	partition_id bigint not null,
	kind text not null,			-- retention, completed_retention, max_wait_time_eviction, __partition_deleted__
	messages bigint not null
);
create index if not exists retention_log_at on queen.retention_log (at, queue_id);
