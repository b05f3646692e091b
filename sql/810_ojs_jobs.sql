-- SPDX-License-Identifier: Apache-2.0
-- Jobs of queen-ojs (Open Job Spec 1.0): one row per job, all queues in one
-- table.

-- What a producer asked for, as the process packed it.
do $$ begin
	create type queen.job_spec as (
		id uuid,			-- never null
		type text,
		queue text,
		doc text,			-- members of the client's document, `"a":1,"b":2`
		rank smallint,			-- -priority
		max_attempts int,
		due_at timestamptz,		-- null or past = now
		pending boolean,
		expires_at timestamptz,
		timeout_ms bigint,		-- execution, per attempt; null = none
		lease_ms bigint,		-- null = the queue's, else the caller's
		policy text,			-- retry policy as JSON; null = the default
		uniq text,			-- unique policy as JSON; null = none
		rate text			-- rate limit as JSON; null = none
	);
exception when duplicate_object then null; end $$;

-- A job as every function answers it.
do $$ begin
	create type queen.job_out as (
		verdict smallint,
		idx int,			-- of the request's element, 1-based
		queue_id bigint,
		seq bigint,			-- order of insertion
		rank smallint,
		id uuid,
		type text,
		queue text,
		state smallint,
		doc text,
		attempt int,
		max_attempts int,
		created_at timestamptz,
		enqueued_at timestamptz,
		started_at timestamptz,
		completed_at timestamptz,
		cancelled_at timestamptz,
		discarded_at timestamptz,
		next_attempt_at timestamptz,
		retry_delay_ms bigint,
		error text,			-- newest, a JSON object
		errors text,			-- history, a JSON array
		result text,
		worker text,
		lease_until timestamptz,
		previous_state smallint,	-- of what this call changed
		parents text,			-- results of earlier steps, a JSON array
		workflow_id uuid,
		unique_key text			-- hex
	);
exception when duplicate_object then null; end $$;
