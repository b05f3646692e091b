-- SPDX-License-Identifier: Apache-2.0
-- The queues of queen-ojs: one catalogue for jobs and streams, apart from the
-- queues of queend.
--
-- A queue that was dropped keeps its row, its name is free at once, until its
-- jobs are purged; ids are never reused.

create table if not exists queen.ojs_queues (
	id bigint generated always as identity,
	tenant uuid not null,
	name text collate "C" not null,
	created_at timestamptz not null default clock_timestamp(),
	changed_at timestamptz not null default clock_timestamp(),
	deleted_at timestamptz,
	paused_at timestamptz,			-- null = jobs are delivered
	stream_at timestamptz,			-- null = no stream was used yet
	-- configuration; null = the default of the process or of the contract
	visibility_timeout_ms bigint,		-- lease of a job that names none
	job_retention_ms bigint,		-- completed, cancelled, discarded: 7 days
	dead_letter_retention_ms bigint,	-- 180 days
	dead_letter_max bigint,			-- 10000
	max_jobs bigint,			-- quota of jobs that have not ended
	max_events bigint,			-- quota of events in the log
	primary key (id)
);
create unique index if not exists ojs_queues_name on queen.ojs_queues (tenant, name)
	where deleted_at is null;
create index if not exists ojs_queues_changed on queen.ojs_queues (changed_at, id);
create index if not exists ojs_queues_dead on queen.ojs_queues (deleted_at, id)
	where deleted_at is not null;
