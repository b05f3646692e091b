-- SPDX-License-Identifier: Apache-2.0
-- How jobs of queen-ojs (810) are claimed: by priority and age, within what rate
-- limits allow.
--
-- jobs_fetch_v1; inside: jobs_promote, jobs_claim, jobs_claim_limited and its parts,
-- job_allowed, job_rate_lock, job_rate_take.
--
-- Writes jobs, ojs_rates.  Waits for nobody: what others hold is passed over.
-- READ COMMITTED is assumed: a claim looks at the row it has locked again.

-- What was claimed of late under a rate limit: (when, how many), as many entries
-- as a hundredth of the period asks for.
create table if not exists queen.ojs_rates (
	queue_id bigint not null,
	key text collate "C" not null,
	taken_at timestamptz[] not null default '{}',
	taken_n int[] not null default '{}',
	until timestamptz not null,		-- then nothing of it counts
	primary key (queue_id, key)
);
create index if not exists ojs_rates_until on queen.ojs_rates (until);

-- Inside: makes due jobs of these queues available, at most p_limit of those that
-- became due after p_since; how many.  Rows others hold are theirs.
create or replace function queen.jobs_promote(p_queue bigint[], p_since timestamptz,
	p_limit int, t timestamptz)
returns int
language plpgsql volatile as $$
declare
	n int;
begin
	with d as materialized (
		select w.row, row_number() over (order by w.due_at desc, w.seq desc) nth
		from (select x.* from unnest(p_queue) q(id)
			cross join lateral (select j.ctid as row, j.due_at, j.seq
				from queen.jobs j where j.queue_id = q.id
					and j.state in (2, 3) and j.due_at > p_since
					and j.due_at <= t
				order by j.due_at limit p_limit
				for update skip locked) x
			limit p_limit) w)
	update queen.jobs j set state = 0, enqueued_at = t - (d.nth - 1) * interval '1 us'
	from d where j.ctid = d.row;
	get diagnostics n = row_count;
	return n;
end $$;

-- Inside: locks up to p_count available jobs of these queues that no rate limits,
-- in order, passing over expired ones and what others hold.  What is remembered
-- (s_*: queue, rank, enqueued_at, seq) cuts a queue's part of the index into ranges,
-- one behind each remembered place up to the next rank that has one.
create or replace function queen.jobs_claim(p_queue bigint[], p_count int,
	s_queue bigint[], s_rank smallint[], s_at timestamptz[], s_seq bigint[],
	t timestamptz)
returns tid[]
language plpgsql volatile as $$
begin
	return (with p as (
		select q.ord, q.id, s.rank, s.at, s.seq
		from unnest(p_queue) with ordinality q(id, ord)
		join unnest(s_queue, s_rank, s_at, s_seq) s(id, rank, at, seq)
			on s.id = q.id
		union all
		select q.ord, q.id, '-32768', '-infinity', 0
		from unnest(p_queue) with ordinality q(id, ord)
	), r as materialized (
		select p.*, lead(p.rank, 1, 32767::smallint)
			over (partition by p.ord order by p.rank) til
		from p order by p.ord, p.rank)
	select array_agg(x.row) from (
		select j.row from r
		cross join lateral (select j.ctid as row from queen.jobs j
			where j.queue_id = r.id and j.state = 0 and j.rate_key is null
				and (j.rank, j.enqueued_at, j.seq) > (r.rank, r.at, r.seq)
				and j.rank < r.til
				and (j.expires_at is null or j.expires_at > t)
			order by j.rank, j.enqueued_at, j.seq limit p_count
			for update skip locked) j
		limit p_count) x);
end $$;

-- Inside: how many jobs may be claimed now under a limit whose row the caller has
-- locked, or looks at; null = any number.
create or replace function queen.job_allowed(p_queue bigint, p_key text, p_rate jsonb,
	t timestamptz)
returns bigint
language plpgsql volatile as $$
begin
	return (select least((p_rate ->> 'max')::bigint - (select coalesce(sum(w.n), 0)
			from queen.ojs_rates r
			cross join lateral unnest(r.taken_at, r.taken_n) w(at, n)
			where r.queue_id = p_queue and r.key = p_key
				and w.at > t - (p_rate ->> 'period_ms')::float8
					* interval '1 ms'),
		case when p_rate ->> 'concurrency' is not null then
			(p_rate ->> 'concurrency')::bigint - (select count(*)
				from queen.jobs j where j.queue_id = p_queue
					and j.state = 1 and j.rate_key = p_key) end));
end $$;

-- Inside: enters a claim of n jobs under a limit; entries closer than a hundredth of
-- the period count as one, of the later time, so never too few are counted.
create or replace function queen.job_rate_take(p_queue bigint, p_key text, p_rate jsonb,
	p_n int, t timestamptz)
returns void
language plpgsql volatile as $$
begin
	update queen.ojs_rates r set (taken_at, taken_n, until) = (
		select array_agg(y.at order by y.at), array_agg(y.n order by y.at),
			t + l.period
		from (select max(x.at) at, sum(x.n)::int n
			from (select u.at, u.n from unnest(r.taken_at, r.taken_n) u(at, n)
				union all select t, p_n) x
			where x.at > t - l.period
			group by ceil(extract(epoch from x.at)
				/ extract(epoch from l.period) * 100)) y)
	from (select coalesce((p_rate ->> 'period_ms')::float8, 1000)
		* interval '1 ms' period) l
	where r.queue_id = p_queue and r.key = p_key;
end $$;

-- Inside: locks the row of a limit, made when missing; false: another claims under it
-- now.  Who makes a row has a lock that others only try: to insert it would wait.
create or replace function queen.job_rate_lock(p_queue bigint, p_key text, t timestamptz)
returns boolean
language plpgsql volatile as $$
begin
	perform from queen.ojs_rates r where r.queue_id = p_queue and r.key = p_key
	for update skip locked;
	if found then
		return true;
	end if;
	if exists (select from queen.ojs_rates r
			where r.queue_id = p_queue and r.key = p_key)
		or not pg_try_advisory_xact_lock(hashtextextended(p_key, p_queue)) then
		return false;
	end if;
	insert into queen.ojs_rates (queue_id, key, until) values (p_queue, p_key, t)
	on conflict do nothing;
	perform from queen.ojs_rates r where r.queue_id = p_queue and r.key = p_key
	for update skip locked;
	return found;
end $$;

-- Inside: of these available jobs of one limited key, as far as its limit goes, those
-- it could lock; the limit is that of the first job there is.  Nothing when others are
-- claiming under it.
create or replace function queen.jobs_claim_key(p_queue bigint, p_key text, p_rows tid[],
	t timestamptz)
returns setof tid
language plpgsql volatile as $$
declare
	l_rate jsonb; l_n bigint;
begin
	select j.rate into l_rate from queen.jobs j
	where j.queue_id = p_queue and j.state = 0 and j.rate_key is not null
		and j.rate_key = p_key
	order by j.rank, j.enqueued_at, j.seq limit 1;
	if l_rate is null or not queen.job_rate_lock(p_queue, p_key, t) then
		return;
	end if;
	-- with the lock, in a new statement
	l_n := least(cardinality(p_rows), queen.job_allowed(p_queue, p_key, l_rate, t));
	return query
	select j.ctid from queen.jobs j
	where j.ctid = any (p_rows) and j.queue_id = p_queue and j.state + 0 = 0
		and j.rate_key = p_key and (j.expires_at is null or j.expires_at > t)
	order by j.rank, j.enqueued_at, j.seq limit greatest(l_n, 0)
	for update skip locked;
end $$;

-- Inside: keys of limited jobs of a queue that have some left, and how many (null = any
-- number), as far as can be told without the lock.  Looks at 64 at most, from anywhere
-- among them on: keys are hashes.
create or replace function queen.jobs_limited_keys(p_queue bigint, t timestamptz)
returns table (key text, allowed bigint)
language plpgsql volatile as $$
declare
	l_from text := md5(random()::text); l_wrapped boolean := false;
	l_rate jsonb;
begin
	key := l_from;
	for i in 1..64 loop
		select j.rate_key, j.rate into key, l_rate from queen.jobs j
		where j.queue_id = p_queue and j.state = 0
			and j.rate_key is not null and j.rate_key > key
		order by j.rate_key, j.rank, j.enqueued_at, j.seq limit 1;
		if key is null and not l_wrapped then
			l_wrapped := true;
			key := '';
			continue;
		end if;
		exit when key is null or l_wrapped and key > l_from;
		allowed := queen.job_allowed(p_queue, key, l_rate, t);
		if coalesce(allowed, 1) > 0 then
			return next;
		end if;
	end loop;
end $$;

-- Inside: the first p_count in order of p_rows and of what these keys allow, as far as
-- can be told without locks: the rows of each key that is among them.
create or replace function queen.jobs_limited_next(p_queue bigint[], p_count int,
	p_rows tid[], p_of bigint[], p_keys text[], p_allowed bigint[], t timestamptz)
returns table (queue_id bigint, key text, found tid[])
language plpgsql volatile as $$
#variable_conflict use_column
begin
	return query
	select x.queue_id, x.key, array_agg(x.row)
	from (select c.* from (
			select j.* from unnest(p_of, p_keys, p_allowed)
				k(queue_id, key, allowed)
			cross join lateral (select k.queue_id, k.key, i.ctid as row,
					i.rank, i.enqueued_at, i.seq
				from queen.jobs i where i.queue_id = k.queue_id
					and i.state = 0 and i.rate_key is not null
					and i.rate_key = k.key
					and (i.expires_at is null or i.expires_at > t)
				order by i.rank, i.enqueued_at, i.seq
				limit least(p_count, k.allowed)) j
			union all
			select j.queue_id, null, j.ctid, j.rank, j.enqueued_at, j.seq
			from queen.jobs j where j.ctid = any (p_rows)) c
		order by array_position(p_queue, c.queue_id), c.rank, c.enqueued_at,
			c.seq
		limit p_count) x
	where x.key is not null group by x.queue_id, x.key;
end $$;

-- Inside: of the claimed p_rows and what limits allow, the first p_count in order.
-- Locks no more than these: a key that others claim under is left out, and what comes
-- next is looked for without it.
create or replace function queen.jobs_claim_limited(p_queue bigint[], p_count int,
	p_rows tid[], t timestamptz)
returns tid[]
language plpgsql volatile as $$
declare
	l_rows tid[] := coalesce(p_rows, '{}'); l_tried text[];
	l_of bigint[]; l_keys text[]; l_allowed bigint[];
begin
	select array_agg(q.id), array_agg(k.key), array_agg(k.allowed)
	into l_of, l_keys, l_allowed
	from unnest(p_queue) q(id)
	cross join lateral queen.jobs_limited_keys(q.id, t) k;
	loop
		select array_agg(x.tried), l_rows || array_agg(x.row)
				filter (where x.row is not null)
		into l_tried, l_rows
		from (select n.queue_id || n.key tried, c.row
			from queen.jobs_limited_next(p_queue, p_count, l_rows, l_of,
				l_keys, l_allowed, t) n
			left join lateral queen.jobs_claim_key(n.queue_id, n.key,
				n.found, t) c(row) on true) x;
		exit when l_tried is null;
		select array_agg(k.of), array_agg(k.key), array_agg(k.allowed)
		into l_of, l_keys, l_allowed
		from unnest(l_of, l_keys, l_allowed) k(of, key, allowed)
		where k.of || k.key <> all (l_tried);
	end loop;
	select array_agg(x.row) into l_rows
	from (select j.ctid as row from queen.jobs j where j.ctid = any (l_rows)
		order by array_position(p_queue, j.queue_id), j.rank, j.enqueued_at,
			j.seq
		limit p_count) x;
	perform queen.job_rate_take(x.queue_id, x.rate_key, x.rate, x.n, t)
	from (select j.queue_id, j.rate_key, (array_agg(j.rate))[1] rate,
			count(*)::int n
		from queen.jobs j where j.ctid = any (l_rows) and j.rate_key is not null
		group by j.queue_id, j.rate_key) x;
	return l_rows;
end $$;

-- Claims up to p_count jobs for p_worker, over the queues in order, then by rank
-- and age.  Lease: p_lease_ms, else the job's, the queue's, p_default_lease_ms.
-- p_seen_*: where the caller's last claims ended; empty = look from the start, which
-- is done anyway when nothing is found there.  Rows: the jobs in order, then one of
-- verdict 9 per queue asked for (idx, name, queue_id or null, attempt 1 = paused).
-- Locks jobs and rate limits, waits for nobody.
create or replace function queen.jobs_fetch_v1(p_tenant uuid, p_queues text[],
	p_count int, p_worker text, p_lease_ms bigint, p_default_lease_ms bigint,
	p_seen_queue bigint[], p_seen_rank smallint[], p_seen_at timestamptz[],
	p_seen_seq bigint[], p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_id bigint[]; l_paused int[]; l_open bigint[]; l_rows tid[]; o queen.job_out;
begin
	select array_agg(q.id order by u.ord), array_agg(q.paused order by u.ord)
	into l_id, l_paused
	from unnest(p_queues) with ordinality u(name, ord)
	left join lateral (select q.id, (q.paused_at is not null)::int paused
		from queen.ojs_queues q where q.tenant = p_tenant
			and q.name = u.name collate "C" and q.deleted_at is null
		limit 1) q on true;
	select array_agg(x.id order by x.ord) into l_open
	from (select u.id, min(u.ord) ord from unnest(l_id, l_paused) with ordinality
			u(id, paused, ord)
		where u.paused = 0 group by u.id) x;

	if l_open is not null and p_count > 0 then
		-- of late: under a held snapshot entries of the index stay
		perform queen.jobs_promote(l_open, t - interval '5 s', 100, t);
		l_rows := queen.jobs_claim(l_open, p_count, p_seen_queue, p_seen_rank,
			p_seen_at, p_seen_seq, t);
		if l_rows is null and (queen.jobs_promote(l_open, '-infinity', 100, t) > 0
			or cardinality(p_seen_queue) > 0) then
			l_rows := queen.jobs_claim(l_open, p_count, '{}', '{}', '{}', '{}', t);
		end if;
		if exists (select from unnest(l_open) q(id)
			cross join lateral (select from queen.jobs j
				where j.queue_id = q.id and j.state = 0
					and j.rate_key is not null limit 1) x) then
			l_rows := queen.jobs_claim_limited(l_open, p_count, l_rows, t);
		end if;
	end if;
	return query
	with c as (
		update queen.jobs j set state = 1, attempt = j.attempt + 1,
			started_at = t, worker = p_worker,
			(granted_ms, lease_until, wake_at) = (select l.ms,
				t + l.ms * interval '1 ms',
				t + least(l.ms, j.timeout_ms) * interval '1 ms'
				from (select coalesce(p_lease_ms, j.lease_ms,
					(select q.visibility_timeout_ms
						from queen.ojs_queues q where q.id = j.queue_id),
					p_default_lease_ms) ms offset 0) l)
		where j.ctid = any (l_rows)
		returning j)
	select f.* from c cross join lateral queen.job_show(0, 0, c.j, null) f
	order by array_position(l_open, f.queue_id), f.rank, f.enqueued_at, f.seq;
	for i in 1..cardinality(p_queues) loop
		o.verdict := 9;
		o.idx := i;
		o.queue := p_queues[i];
		o.queue_id := l_id[i];
		o.attempt := l_paused[i];
		return next o;
	end loop;
end $$;
