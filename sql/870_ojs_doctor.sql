-- SPDX-License-Identifier: Apache-2.0
-- What `queenctl doctor` and the metrics of queen-ojs ask of jobs and streams.
--
--   doctor_ojs_v1()    what wants something done
--   metrics_ojs_v1()   totals of the cell
--   ojs_restored_v1()  which streams need a rebase, page by page
--
-- Tables written: none.  Locks: the keys of the logs that are looked at,
-- shared; each also costs locks of tables, so no call looks at all of them.

-- How long the oldest work that is due has waited, by kind; null = none is due.
create or replace function queen.ojs_overdue(p_now timestamptz,
	out jobs interval, out leases interval, out crons interval, out streams interval)
language sql stable as $$
	select p_now - least((select min(j.due_at) from queen.jobs j where j.state in (2, 3)),
			(select min(j.expires_at) from queen.jobs j where j.state in (0, 2, 3, 4)
				and j.expires_at is not null)),
		p_now - (select min(j.wake_at) from queen.jobs j where j.state = 1),
		p_now - (select min(c.look_at) from queen.ojs_crons c where c.enabled),
		p_now - (select min(w.due_at) from queen.ojs_stream_work w)
$$;

-- Of the p_limit streams behind queue p_after, in order, what is wrong: null,
-- `missing` (there is no schema), `restored` (into another server).
-- Read committed, cell-wide.
create or replace function queen.ojs_restored_v1(p_after bigint, p_limit int)
returns table (queue_id bigint, queue text, why text) language plpgsql volatile as $$
declare
	l_cur smallint;
begin
	for queue_id, queue, l_cur in select q.id, q.name, s.cur_segment
		from queen.ojs_queues q join queen.ojs_streams s on s.queue_id = q.id
		where q.deleted_at is null and q.stream_at is not null and q.id > p_after
		order by q.id limit p_limit
	loop
		continue when not queen.stream_there(queue_id);
		why := case
			when to_regclass(queen.stream_schema(queue_id) || '.stream_ticks') is null
				then 'missing'
			when queen.stream_stale(queue_id, l_cur) then 'restored' end;
		return next;
	end loop;
end $$;

-- Findings, asked by hand; read committed, cell-wide:
--   missing, restored   of the streams that health looks at, the newest
--   pinned   a rotation found the log held, and consumer `detail` has events
--            waiting that are older than twice the retention; at most 20
--   overdue  work of kind `detail` is due for longer than p_overdue_s
create or replace function queen.doctor_ojs_v1(p_overdue_s bigint default 60,
	p_now timestamptz default null)
returns table (kind text, queue_id bigint, queue text, detail text, age_s bigint)
language plpgsql volatile as $$
declare
	l_now timestamptz := coalesce(p_now, clock_timestamp());
begin
	return query select c.why, c.queue_id, q.name::text, null::text, null::bigint
		from queen.stream_check_v1() c join queen.ojs_queues q on q.id = c.queue_id
		order by 2;
	return query select 'pinned', q.id, q.name::text, c.name, c.lag_ms / 1000
		from (select x.* from queen.ojs_streams x where x.pinned_at is not null
			and to_regclass(queen.stream_schema(x.queue_id) || '.stream_ticks') is not null
			order by x.segment_started_at limit 100) s
		join queen.ojs_queues q on q.id = s.queue_id and q.deleted_at is null
		cross join lateral queen.stream_consumers_v1(q.tenant, q.name, l_now) c
		where c.lag_ms > 2 * coalesce(s.retention_ms, 604800000)
		order by c.lag_ms desc, 2, 4 limit 20;
	return query select 'overdue', null::bigint, null::text, d.what,
			extract(epoch from d.late)::bigint
		from queen.ojs_overdue(l_now) o
		cross join lateral (values ('jobs', o.jobs), ('leases', o.leases),
			('crons', o.crons), ('streams', o.streams)) d (what, late)
		where d.late > p_overdue_s * interval '1 s'
		order by 4;
end $$;

-- Totals of all tenants, a row each.  Each costs an index scan of at most
-- 100000 entries; counts end there.  stream_pinned: logs that a rotation found
-- held, and in which there are events older than twice the retention by now
-- (the oldest segment begins one retention before the current one).
create or replace function queen.metrics_ojs_v1(p_now timestamptz default null)
returns table (name text, value bigint) language plpgsql stable as $$
declare
	l_now timestamptz := coalesce(p_now, clock_timestamp());
	o record;
begin
	o := queen.ojs_overdue(l_now);
	return query select m.name, m.value from (values
		('queues', (select count(*) from queen.ojs_queues q where q.deleted_at is null)),
		('jobs_available', (select count(*) from (
			(select from queen.jobs j where j.state = 0 and j.rate_key is null limit 100000)
			union all
			(select from queen.jobs j where j.state = 0 and j.rate_key is not null limit 100000)
			limit 100000) x)),
		('jobs_active', (select count(*) from (
			select from queen.jobs j where j.state = 1 limit 100000) x)),
		('jobs_waiting', (select count(*) from (
			(select from queen.jobs j where j.state in (2, 3) limit 100000)
			union all
			(select from queen.jobs j where j.state = 4 limit 100000)
			limit 100000) x)),
		('jobs_dead', (select count(*) from (
			select from queen.jobs j where j.state = 7 and j.dead limit 100000) x)),
		('jobs_overdue_seconds', greatest(0, extract(epoch from
			greatest(o.jobs, o.leases))::bigint)),
		('crons', (select count(*) from queen.ojs_crons c)),
		('workflows', (select count(*) from (
			select from queen.ojs_workflows w where w.state = 0 limit 100000) x)),
		('streams', (select count(*) from queen.ojs_queues q
			where q.deleted_at is null and q.stream_at is not null)),
		('stream_pinned', (select count(*) from queen.ojs_streams s
			where s.pinned_at is not null and l_now - s.segment_started_at
				> coalesce(s.retention_ms, 604800000) * interval '1 ms'))
	) m (name, value);
end $$;
