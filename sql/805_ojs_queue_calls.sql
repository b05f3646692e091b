-- SPDX-License-Identifier: Apache-2.0
-- The catalogue of queen-ojs: queues found, made, listed, configured, paused,
-- counted and dropped.
--
-- Who puts rows into a queue holds the shared advisory lock (66341, id) of it,
-- taken by ojs_queue_ensure.  A drop takes none: it only marks the row.  What
-- is left of a dropped queue goes under the exclusive lock, and both sides only
-- ever try: nobody waits, so nothing can deadlock here.
-- READ COMMITTED is assumed: each statement sees what committed before it.

-- Names to live queues, missing ones made; one row per distinct name, by id.
-- Until the transaction ends none of them is purged, whatever becomes of it: a
-- row that is put now is found by the purge.  Waits at most for the commit of
-- another maker of the same name.  55P03 when a name is dropped again and again.
create or replace function queen.ojs_queue_ensure(p_tenant uuid, p_names text[],
	p_now timestamptz default null)
returns table (name text, queue_id bigint, created boolean, paused boolean,
	max_jobs bigint, visibility_timeout_ms bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_names text[]; l_ids bigint[]; l_new bigint[] := '{}'; l_more bigint[];
	n int;
begin
	select array_agg(distinct u.name collate "C") into l_names
	from unnest(p_names) u(name) where u.name is not null;
	if l_names is null then
		return;
	end if;
	for n_try in 1..10 loop
		select array_agg(q.id order by q.id) into l_ids
		from unnest(l_names) i(name)
		cross join lateral (select q.id from queen.ojs_queues q
			where q.tenant = p_tenant and q.name = i.name collate "C"
				and q.deleted_at is null limit 1) q;
		if coalesce(cardinality(l_ids), 0) < cardinality(l_names) then
			with fresh as (
				insert into queen.ojs_queues (tenant, name,
					created_at, changed_at)
				select p_tenant, i.name, t, t
				from unnest(l_names) i(name)
				where not exists (select from queen.ojs_queues q
					where q.tenant = p_tenant
						and q.name = i.name collate "C"
						and q.deleted_at is null)
				order by i.name collate "C"
				on conflict (tenant, name)
					where deleted_at is null do nothing
				returning id)
			select array_agg(f.id) into l_more from fresh f;
			l_new := l_new || coalesce(l_more, '{}');
			continue;
		end if;
		with want as materialized (
			select u.id from unnest(l_ids) u(id) order by u.id)
		select array_agg(w.id order by w.id) into l_ids from want w
		where pg_try_advisory_xact_lock_shared(66341, w.id::int);
		-- with the locks held, in a new statement: are they still there?
		return query
		select q.name::text, q.id, q.id = any (l_new),
			q.paused_at is not null, q.max_jobs, q.visibility_timeout_ms
		from unnest(l_ids) i(id)
		cross join lateral (select q.* from queen.ojs_queues q
			where q.id = i.id limit 1) q
		where (select count(*) from unnest(l_ids) c(id)
			join queen.ojs_queues x on x.id = c.id
				and x.deleted_at is null) = cardinality(l_names)
		order by q.id;
		get diagnostics n = row_count;
		if n > 0 then
			return;
		end if;
	end loop;
	raise exception 'queen.ojs_queue_ensure: a queue is being dropped'
		using errcode = '55P03';
end $$;
