-- SPDX-License-Identifier: Apache-2.0
-- Recurring jobs of queen-ojs: when they are due, and how they become jobs.
--
-- Any process may fire: a cron is one row, and who has locked it fires it; the
-- others skip it.  Lock order: cron, then queue and jobs.  What drops a queue
-- skips crons that are locked, and comes again.

create table if not exists queen.ojs_crons (
	tenant uuid not null,
	name text collate "C" not null,
	queue text collate "C" not null,	-- of the template
	expression text not null,		-- as sent
	zone text not null,			-- IANA
	minutes bigint not null,		-- bit n = value n
	hours int not null,
	days bigint not null,
	months int not null,
	weekdays int not null,			-- Sunday 0
	any_day boolean not null,		-- the field began with a star
	any_weekday boolean not null,
	overlap text not null,			-- skip, allow, cancel_previous, enqueue
	enabled boolean not null,
	shown text not null,			-- members shown, `"a":1,"b":2`
	template queen.job_spec not null,	-- its id is replaced in each job
	created_at timestamptz not null,
	changed_at timestamptz not null,
	next_at timestamptz,			-- null = it never comes again
	look_at timestamptz,			-- next_at, sooner while a job is owed
	owed boolean not null default false,	-- enqueue: the previous job still ran
	last_at timestamptz,			-- when the last job was made
	last_job uuid,
	primary key (tenant, name)
);
create index if not exists ojs_crons_look on queen.ojs_crons (look_at) where enabled;
-- queue first: no plan of an empty table takes it for tenant and name
create index if not exists ojs_crons_queue on queen.ojs_crons (queue, tenant);

-- When a wall clock in the zone shows this for the first time; null when it
-- never does, because it was moved forward over it.  Of the offsets in force a
-- day before and a day after one must be that of the moment itself.
create or replace function queen.cron_instant(p_wall timestamp, p_zone text)
returns timestamptz language sql stable parallel safe as $$
	select min(i.at)
	from (values (interval '-1 day'), (interval '1 day')) d(away)
	cross join lateral (select (p_wall + d.away) at time zone 'UTC' as away) s
	cross join lateral (select p_wall at time zone 'UTC'
		- (s.away at time zone p_zone - s.away at time zone 'UTC') as at) i
	where i.at at time zone p_zone = p_wall
$$;

-- Does the day match?  As in crontab(5): the day of the month or that of the
-- week when both are given, else both, of which one is any.
create or replace function queen.cron_day(p_day date, p_days bigint, p_months int,
	p_weekdays int, p_any_day boolean, p_any_weekday boolean)
returns boolean language sql immutable parallel safe as $$
	select (p_months >> extract(month from p_day)::int) & 1 = 1
		and case when p_any_day or p_any_weekday
			then m.day = 1 and w.day = 1 else m.day = 1 or w.day = 1 end
	from (select (p_days >> extract(day from p_day)::int) & 1 as day) m,
		(select (p_weekdays >> extract(dow from p_day)::int) & 1 as day) w
$$;

-- The first moment of the day that is due and after p_after; null when there
-- is none.
create or replace function queen.cron_in_day(p_day date, p_minutes bigint, p_hours int,
	p_zone text, p_after timestamptz)
returns timestamptz language plpgsql stable parallel safe as $$
declare
	l_wall timestamp := p_after at time zone p_zone;
	l_from int := case when p_day = l_wall::date
		then extract(hour from l_wall)::int else 0 end;
	l_at timestamptz;
begin
	for l_hour in l_from..23 loop
		continue when (p_hours >> l_hour) & 1 = 0;
		for l_minute in 0..59 loop
			continue when (p_minutes >> l_minute) & 1 = 0;
			l_at := queen.cron_instant(p_day
				+ make_interval(hours => l_hour, mins => l_minute),
				p_zone);
			if l_at > p_after then
				return l_at;
			end if;
		end loop;
	end loop;
	return null;
end $$;

-- The first moment after p_after at which the expression is due; null when
-- there is none in fifty years (29 February on a weekday comes within forty).
-- What the wall clock skips is skipped, what it shows twice is due once.
create or replace function queen.cron_next(p_minutes bigint, p_hours int, p_days bigint,
	p_months int, p_weekdays int, p_any_day boolean, p_any_weekday boolean,
	p_zone text, p_after timestamptz)
returns timestamptz language plpgsql stable parallel safe as $$
declare
	l_day date := (p_after at time zone p_zone)::date;
	l_end date := l_day + 18263;
	l_at timestamptz;
begin
	while l_day < l_end loop
		if (p_months >> extract(month from l_day)::int) & 1 = 0 then
			l_day := date_trunc('month', l_day::timestamp)
				+ interval '1 month';
			continue;
		end if;
		if queen.cron_day(l_day, p_days, p_months, p_weekdays, p_any_day,
				p_any_weekday) then
			l_at := queen.cron_in_day(l_day, p_minutes, p_hours,
				p_zone, p_after);
			if l_at is not null then
				return l_at;
			end if;
		end if;
		l_day := l_day + 1;
	end loop;
	return null;
end $$;

-- A UUIDv7 of this moment.
create or replace function queen.cron_job_id(p_now timestamptz)
returns uuid language sql volatile parallel safe as $$
	select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
		placing substring(int8send(floor(extract(epoch from p_now)
			* 1000)::bigint) from 3) from 1 for 6), 52, 1), 53, 1),
		'hex')::uuid
$$;

-- ---- registration ----

-- Registers a cron, or changes it.  verdict 0 = the row, created or not; 1 = no
-- such zone.  What is due stays due unless the expression, the zone or enabled
-- changes, so that a client may register at each of its starts.  p_days holds
-- 31 bits and more; the arrays hold one element, the template.  Locks the row.
create or replace function queen.cron_put_v1(p_tenant uuid, p_name text,
	p_expression text, p_zone text, p_minutes bigint, p_hours int, p_days bigint,
	p_months int, p_weekdays int, p_any_day boolean, p_any_weekday boolean,
	p_overlap text, p_enabled boolean, p_shown text,
	p_id uuid[], p_type text[], p_queue text[], p_doc text[], p_rank smallint[],
	p_max_attempts int[], p_due timestamptz[], p_pending boolean[],
	p_expires timestamptz[], p_timeout_ms bigint[], p_lease_ms bigint[],
	p_policy text[], p_uniq text[], p_rate text[], p_now timestamptz default null)
returns table (verdict smallint, created boolean, name text, expression text,
	zone text, overlap text, enabled boolean, shown text, created_at timestamptz,
	changed_at timestamptz, next_at timestamptz, last_at timestamptz, last_job uuid)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_next timestamptz;
begin
	if not queen.cron_zone_ok(p_zone) then
		return query select 1::smallint, false, p_name, p_expression, p_zone,
			p_overlap, p_enabled, p_shown, t, t, null::timestamptz,
			null::timestamptz, null::uuid;
		return;
	end if;
	l_next := queen.cron_next(p_minutes, p_hours, p_days, p_months, p_weekdays,
		p_any_day, p_any_weekday, p_zone, t);
	return query
	insert into queen.ojs_crons as k (tenant, name, queue, expression, zone, minutes,
		hours, days, months, weekdays, any_day, any_weekday, overlap, enabled,
		shown, template, created_at, changed_at, next_at, look_at)
	values (p_tenant, p_name, p_queue[1], p_expression, p_zone, p_minutes, p_hours,
		p_days, p_months, p_weekdays, p_any_day, p_any_weekday, p_overlap,
		p_enabled, p_shown,
		row(p_id[1], p_type[1], p_queue[1], p_doc[1], p_rank[1],
			p_max_attempts[1], p_due[1], p_pending[1], p_expires[1],
			p_timeout_ms[1], p_lease_ms[1], p_policy[1], p_uniq[1],
			p_rate[1])::queen.job_spec,
		t, t, l_next, l_next)
	on conflict (tenant, name) do update set
		queue = excluded.queue, expression = excluded.expression,
		zone = excluded.zone, minutes = excluded.minutes,
		hours = excluded.hours, days = excluded.days,
		months = excluded.months, weekdays = excluded.weekdays,
		any_day = excluded.any_day, any_weekday = excluded.any_weekday,
		overlap = excluded.overlap, enabled = excluded.enabled,
		shown = excluded.shown, template = excluded.template,
		changed_at = excluded.changed_at,
		(next_at, look_at, owed) = (
			select case when same then k.next_at else excluded.next_at end,
				case when same and excluded.overlap = 'enqueue'
						then k.look_at
					when same then k.next_at
					else excluded.next_at end,
				same and k.owed and excluded.overlap = 'enqueue'
			from (select k.expression = excluded.expression
				and k.zone = excluded.zone and k.enabled as same) c)
	returning 0::smallint, k.xmax = 0, k.name::text, k.expression, k.zone,
		k.overlap, k.enabled, k.shown, k.created_at, k.changed_at, k.next_at,
		k.last_at, k.last_job;
end $$;

-- Is it a zone of the IANA database, by its own name?
create or replace function queen.cron_zone_ok(p_zone text)
returns boolean language sql stable as $$
	select p_zone = 'UTC' or p_zone !~ '^(posix|right)/|^(Factory|localtime|posixrules)$'
		and exists (select from pg_timezone_names z where z.name = p_zone)
$$;

-- A page of the crons by name, after p_after.  The first row holds the number
-- of all alone.
create or replace function queen.cron_list_v1(p_tenant uuid, p_after text,
	p_offset bigint, p_limit int, p_now timestamptz default null)
returns table (total bigint, name text, expression text, zone text, overlap text,
	enabled boolean, shown text, created_at timestamptz, changed_at timestamptz,
	next_at timestamptz, last_at timestamptz, last_job uuid)
language plpgsql stable as $$
#variable_conflict use_column
begin
	return query select count(*), null::text, null::text, null::text, null::text,
		null::boolean, null::text, null::timestamptz, null::timestamptz,
		null::timestamptz, null::timestamptz, null::uuid
	from queen.ojs_crons k where k.tenant = p_tenant;
	return query select null::bigint, k.name::text, k.expression, k.zone, k.overlap,
		k.enabled, k.shown, k.created_at, k.changed_at, k.next_at, k.last_at,
		k.last_job
	from queen.ojs_crons k
	where k.tenant = p_tenant and k.name > coalesce(p_after, '') collate "C"
	order by k.name limit p_limit offset p_offset;
end $$;

-- One cron; no row when there is none.
create or replace function queen.cron_get_v1(p_tenant uuid, p_name text,
	p_now timestamptz default null)
returns table (verdict smallint, created boolean, name text, expression text,
	zone text, overlap text, enabled boolean, shown text, created_at timestamptz,
	changed_at timestamptz, next_at timestamptz, last_at timestamptz, last_job uuid)
language plpgsql stable as $$
#variable_conflict use_column
begin
	return query select 0::smallint, false, k.name::text, k.expression, k.zone,
		k.overlap, k.enabled, k.shown, k.created_at, k.changed_at, k.next_at,
		k.last_at, k.last_job
	from queen.ojs_crons k where k.tenant = p_tenant and k.name = p_name collate "C";
end $$;

-- Removes a cron, and shows what it was; its jobs stay.  No row when there is
-- none.  Waits for who fires it.
create or replace function queen.cron_delete_v1(p_tenant uuid, p_name text,
	p_now timestamptz default null)
returns table (verdict smallint, created boolean, name text, expression text,
	zone text, overlap text, enabled boolean, shown text, created_at timestamptz,
	changed_at timestamptz, next_at timestamptz, last_at timestamptz, last_job uuid)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	return query delete from queen.ojs_crons k
	where k.tenant = p_tenant and k.name = p_name collate "C"
	returning 0::smallint, false, k.name::text, k.expression, k.zone,
		k.overlap, k.enabled, k.shown, k.created_at, k.changed_at, k.next_at,
		k.last_at, k.last_job;
end $$;

-- ---- firing ----

-- When the cron is due after p_now.  A zone that the server has lost since (its
-- files come with the system) ends it, and must not end the firing of others.
create or replace function queen.cron_after(k queen.ojs_crons, p_now timestamptz)
returns timestamptz language plpgsql stable as $$
begin
	return queen.cron_next(k.minutes, k.hours, k.days, k.months, k.weekdays,
		k.any_day, k.any_weekday, k.zone, p_now);
exception when invalid_parameter_value then
	return null;
end $$;

-- Has the job not ended yet, whatever it waits for?
create or replace function queen.cron_job_runs(p_tenant uuid, p_id uuid)
returns boolean language plpgsql stable as $$
begin
	return exists (select from queen.jobs j
		where j.tenant = p_tenant and j.id = p_id
			and j.state in (0, 1, 2, 3, 4, 8));
end $$;

-- Makes the job of one cron, whose row is locked.  The queue's id when the job
-- is available now; null when it is not, or when there is none: the previous
-- one runs, its unique policy has another, the queue is full.
create or replace function queen.cron_fire(k queen.ojs_crons, p_now timestamptz)
returns bigint language plpgsql volatile as $$
declare
	l_due boolean := k.next_at <= p_now;
	l_runs boolean := k.overlap <> 'allow'
		and queen.cron_job_runs(k.tenant, k.last_job);
	l_next timestamptz := k.next_at;
	l_spec queen.job_spec := k.template;
	l_job queen.job_out;
begin
	if l_due then
		l_next := queen.cron_after(k, p_now);
	end if;
	if l_runs and k.overlap <> 'cancel_previous' then
		-- one is owed, however often it was due meanwhile
		update queen.ojs_crons c set next_at = l_next,
			owed = k.overlap = 'enqueue',
			look_at = case when k.overlap = 'enqueue'
				then least(l_next, p_now + interval '1 s') else l_next end
		where c.tenant = k.tenant and c.name = k.name;
		return null;
	end if;
	if l_runs then
		perform queen.jobs_cancel_v1(k.tenant, k.last_job, p_now);
	end if;
	l_spec.id := queen.cron_job_id(p_now);
	select j.* into l_job from queen.jobs_put(k.tenant, array[l_spec], false, null,
		p_now) j;
	update queen.ojs_crons c set next_at = l_next, look_at = l_next, owed = false,
		last_at = case when l_job.verdict = 0 then p_now else c.last_at end,
		last_job = case when l_job.verdict = 0 then l_spec.id else c.last_job end
	where c.tenant = k.tenant and c.name = k.name;
	return case when l_job.verdict = 0 and l_job.state = 0
		then l_job.queue_id end;
end $$;

-- Fires one cron as queen.cron_fire, which may fail without any other's being undone:
-- it is looked at again in a minute, or a second later when others were in the way.
create or replace function queen.cron_try(k queen.ojs_crons, p_now timestamptz)
returns bigint language plpgsql volatile as $$
begin
	return queen.cron_fire(k, p_now);
exception when others then
	raise warning 'queen.crons_fire_v1: cron % of % was not fired: %', k.name,
		k.tenant, sqlerrm;
	update queen.ojs_crons c set look_at = p_now + case
		when sqlstate like '40%' or sqlstate = '55P03' then interval '1 s'
		else interval '1 min' end
	where c.tenant = k.tenant and c.name = k.name;
	return null;
end $$;

-- Fires the crons that are due, each once however long nobody looked.  One row
-- per queue with jobs that became available, or one without queue when there is
-- more.  Locks the crons, skips those another has; then as queen.jobs_put.
create or replace function queen.crons_fire_v1(p_limit int,
	p_now timestamptz default null)
returns table (queue_id bigint, became int, more boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	k queen.ojs_crons;
	l_queues bigint[] := '{}';
	l_n int := 0;
begin
	for k in select c.* from queen.ojs_crons c
		where c.enabled and c.look_at <= t
		order by c.look_at limit p_limit for update skip locked
	loop
		l_n := l_n + 1;
		l_queues := l_queues || queen.cron_try(k, t);
	end loop;
	return query select u.id, count(*)::int, l_n = p_limit
	from unnest(l_queues) u(id) where u.id is not null group by u.id;
	if not found and l_n = p_limit then
		return query select null::bigint, 0, true;
	end if;
end $$;
