-- SPDX-License-Identifier: Apache-2.0
-- Cell-wide jobs run by one process at a time, scheduled by rows, not by
-- timers: due time, lease and fence of queen.claims, on the database's clock.
--
--   claim_ensure_v1(task, period)        makes the row, sets the period
--   claim_take_v1(task, holder, lease)   takes it when due and free
--   claim_give_v1(task, fence, ok)       hands it back
--
-- Cell-wide: no tenant.  Each locks one row of queen.claims.

-- Makes the task's row or changes its period; a due time further away than
-- the new period is brought forward.  Never touches enabled, fence or lease.
create or replace function queen.claim_ensure_v1(
	p_task text, p_period_ms bigint, p_now timestamptz default null)
returns void
language sql volatile as $$
	insert into queen.claims as c (task, period_ms, next_due_at)
	values (p_task, p_period_ms, coalesce(p_now, clock_timestamp()))
	on conflict (task) do update set period_ms = excluded.period_ms,
		next_due_at = least(c.next_due_at, coalesce(p_now,
			clock_timestamp()) + p_period_ms * interval '1 ms');
$$;

-- Takes a task that is enabled, due and not under a live lease.  Returns the
-- fence to hand back with, or no row.
create or replace function queen.claim_take_v1(
	p_task text, p_holder text, p_lease_ms bigint,
	p_now timestamptz default null)
returns table (fence bigint)
language sql volatile as $$
	update queen.claims c set
		lease_until = t.now + p_lease_ms * interval '1 ms',
		holder = p_holder, fence = c.fence + 1, last_start_at = t.now
	from (select coalesce(p_now, clock_timestamp()) as now) t
	where c.task = p_task and c.enabled and c.next_due_at <= t.now
		and (c.lease_until is null or c.lease_until <= t.now)
	returning c.fence;
$$;

-- Hands a task back.  ok: the next run is due one period after this one was,
-- but not in the past; not ok: it stays due.  Returns false for a stale fence
-- (the lease was taken over), and then changes nothing.
create or replace function queen.claim_give_v1(
	p_task text, p_fence bigint, p_ok boolean,
	p_now timestamptz default null)
returns boolean
language sql volatile as $$
	with done as (
		update queen.claims c set
			lease_until = null,
			next_due_at = case when p_ok then greatest(
				c.next_due_at + c.period_ms * interval '1 ms',
				t.now) else c.next_due_at end,
			last_end_at = t.now,
			last_duration_ms = (extract(epoch from
				t.now - c.last_start_at) * 1000)::bigint,
			runs = c.runs + p_ok::int
		from (select coalesce(p_now, clock_timestamp()) as now) t
		where c.task = p_task and c.fence = p_fence
			and c.lease_until is not null
		returning 1
	)
	select exists (select from done);
$$;
