-- SPDX-License-Identifier: Apache-2.0
-- What tenants may store (written by an operator) and what they do store
-- (measured now and then).  queend reads both; no write of a key or timer
-- touches either, for that would put all writers of a tenant in one queue.
--
--   kv_usage_step_v1(...)       measures, when it is time
--   kv_quota_refresh_v1(...)    caps and measurements, together
--
-- Writes queen.kv_usage, rows ascending by tenant, under a try-lock of its own.

create table if not exists queen.kv_quota (
	tenant uuid primary key,
	enabled boolean not null default true,	-- false: no writes
	max_rows bigint,			-- null = no cap, here and below
	max_bytes bigint,
	max_timers bigint,
	max_timer_horizon_s bigint,
	max_reads_per_sec int,			-- rate and burst
	max_writes_per_sec int,
	updated_at timestamptz not null default clock_timestamp()
);

create table if not exists queen.kv_usage (
	tenant uuid primary key,
	computed_at timestamptz not null,
	kv_rows bigint not null,
	kv_bytes bigint not null,		-- of values, as stored
	timer_rows bigint not null,
	timer_bytes bigint not null,		-- of frames
	timer_oldest timestamptz,		-- the earliest time of delivery
	sampled boolean not null default false	-- an eighth was counted
);

-- Is a tenant at p_percent of a cap by the last measurement?
create or replace function queen.kv_usage_hot(p_percent int)
returns boolean language sql stable as $$
	select exists (select from queen.kv_quota q
		join queen.kv_usage u on u.tenant = q.tenant
		where u.kv_rows::numeric * 100 >= q.max_rows::numeric * p_percent
			or u.kv_bytes::numeric * 100
				>= q.max_bytes::numeric * p_percent
			or u.timer_rows::numeric * 100
				>= q.max_timers::numeric * p_percent)
$$;

-- Live rows and value bytes per tenant: all, or 8 of the 64 shards and times 8.
create or replace function queen.kv_usage_count(p_sampled boolean, p_at timestamptz)
returns table (tenant uuid, kv_rows bigint, kv_bytes bigint)
language sql stable as $$
	select k.tenant, count(*) * case when p_sampled then 8 else 1 end,
		sum(pg_column_size(k.value))::bigint
			* case when p_sampled then 8 else 1 end
	from queen.kv k
	where (k.expires_at > p_at or k.expires_at is null)
		and (not p_sampled or k.shard % 8 = 0)
	group by k.tenant;
$$;

-- Measures all tenants when the last measurement is older than p_every_ms, or
-- than p_hot_ms when one is at p_hot_percent of a cap, here or (p_hot) by the
-- count of the caller.  Above p_sample_over rows it counts an eighth.  Rows:
-- measured (false: not yet, or another one is at it), tenants.  Cell-wide.
create or replace function queen.kv_usage_step_v1(p_every_ms bigint, p_hot_ms bigint,
	p_hot_percent int, p_hot boolean, p_sample_over bigint default 200000,
	p_now timestamptz default null)
returns table (measured boolean, tenants int)
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp()); l_last timestamptz;
	l_sampled boolean;
begin
	measured := false;
	tenants := 0;
	l_last := (select max(u.computed_at) from queen.kv_usage u);
	if l_last > t - p_every_ms * interval '1 ms'
			and (l_last > t - p_hot_ms * interval '1 ms'
				or not (p_hot or queen.kv_usage_hot(p_hot_percent)))
			or not pg_try_advisory_xact_lock(
				hashtext('queen.kv_usage'), 0) then
		return next;
		return;
	end if;
	l_sampled := (select count(*) from (select from queen.kv
		limit p_sample_over + 1) x) > p_sample_over;
	delete from queen.kv_usage u where u.computed_at < t and not exists (
		select from queen.kv_quota q where q.tenant = u.tenant);
	insert into queen.kv_usage as u (tenant, computed_at, kv_rows, kv_bytes,
		timer_rows, timer_bytes, timer_oldest, sampled)
	select tenant, t, coalesce(k.kv_rows, 0), coalesce(k.kv_bytes, 0),
		coalesce(m.n, 0), coalesce(m.bytes, 0), m.oldest, l_sampled
	from (select q.tenant from queen.kv_quota q) q
	full join queen.kv_usage_count(l_sampled, t) k using (tenant)
	full join (select m.tenant, count(*) as n,
			sum(octet_length(m.frame)) as bytes,
			min(m.deliver_at) as oldest
		from queen.timers m group by m.tenant) m using (tenant)
	order by tenant
	on conflict (tenant) do update set computed_at = excluded.computed_at,
		kv_rows = excluded.kv_rows, kv_bytes = excluded.kv_bytes,
		timer_rows = excluded.timer_rows,
		timer_bytes = excluded.timer_bytes,
		timer_oldest = excluded.timer_oldest, sampled = excluded.sampled;
	get diagnostics tenants = row_count;
	measured := true;
	return next;
end $$;

-- Caps and measurement of at most p_limit tenants: those with a quota row first
-- (granted), then whoever is nearest to a cap.  computed_at is null when it was
-- never measured.  Cell-wide; reads only.
create or replace function queen.kv_quota_refresh_v1(p_limit int)
returns table (tenant uuid, granted boolean, enabled boolean, max_rows bigint,
	max_bytes bigint, max_timers bigint, max_timer_horizon_s bigint,
	max_reads_per_sec int, max_writes_per_sec int,
	computed_at timestamptz, kv_rows bigint, kv_bytes bigint,
	timer_rows bigint)
language sql stable as $$
	select tenant, q.updated_at is not null, coalesce(q.enabled, true),
		q.max_rows, q.max_bytes, q.max_timers, q.max_timer_horizon_s,
		q.max_reads_per_sec, q.max_writes_per_sec, u.computed_at,
		coalesce(u.kv_rows, 0), coalesce(u.kv_bytes, 0),
		coalesce(u.timer_rows, 0)
	from queen.kv_quota q full join queen.kv_usage u using (tenant)
	order by q.updated_at is null, greatest(
		u.kv_rows::numeric / nullif(q.max_rows, 0),
		u.kv_bytes::numeric / nullif(q.max_bytes, 0),
		u.timer_rows::numeric / nullif(q.max_timers, 0)) desc nulls last,
		tenant
	limit p_limit;
$$;
