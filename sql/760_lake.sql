-- SPDX-License-Identifier: Apache-2.0
-- What queen-s3 keeps in the cell: the state of its queues and the sinks of
-- tenants.  What it reads is in 300_find, 320_fetch and 330_changed; the floor it
-- gives to retention in 630_retention.
--
--   lake_queues_v1(...)       names of a tenant's queues
--   lake_rows_v1(...)         several rows at once
--   lake_fence_v1(...)        lease and pointer, written together or not at all
--   lake_resume_v1(...)       asks a queue that is held to go on
--   lake_sink_put_v1(...)     stores the sink of a tenant
--   lake_sink_get_v1(...)     shows it
--   lake_sink_delete_v1(...)  removes it
--   lake_sinks_v1()           all of the cell, for those who run them
--   doctor_lake_v1(...)       queues that are not shipped
--
-- Rows of queen.kv, namespace queen-s3.  Of the tenant whose queue it is:
-- s3:SINK:QUEUE:lease, :intent, :committed, :resume (QUEUE by lake_escape) and
-- s3:SINK:node=INSTANCE; they stay when the queue is deleted, and one of the same
-- name goes on where it ended.  Of the internal tenant (nil): sink:TENANT, which
-- no route of a client leads to.  Lock order: rows ascending by key; one that
-- has yet to be made comes last.

-- Names of the live queues of a tenant, sorted.
create or replace function queen.lake_queues_v1(p_tenant uuid)
returns table (name text) language sql stable as $$
	select q.name from queen.queues q
	where q.tenant = p_tenant and q.deleted_at is null order by q.name
$$;

-- Rows in the order asked for; version 0 = there is none, or it is dead.
create or replace function queen.lake_rows_v1(p_tenant uuid, p_keys text[],
	p_now timestamptz default null)
returns table (version bigint, value text) language sql stable as $$
	select coalesce(k.version, 0), k.value::text
	from unnest(p_keys) with ordinality i(key, ord)
	left join lateral (select k.version, k.value from queen.kv k
		where k.tenant = p_tenant and k.namespace = 'queen-s3'
			and k.key = i.key collate "C"
			and queen.kv_live_v1(k.expires_at,
				coalesce(p_now, clock_timestamp()))
		limit 1) k on true
	order by i.ord
$$;

-- Rewrites the lease and writes a pointer, each at the version the caller knows
-- (p_expect 0: there is none), and removes p_drop (null: none): all of it, or
-- nothing.  verdict 0 written; 1 the lease is another's or over; 2 the pointer is
-- not as it was read; 3 this very call was done before, and its answer lost; 4
-- nothing was done, and the lease is of this incarnation, at another version.
-- The versions are those there now.  22023 for keys outside s3:.
create or replace function queen.lake_fence_v1(p_tenant uuid,
	p_lease_key text, p_lease text, p_lease_expect bigint,
	p_lease_ttl_s bigint, p_key text, p_value text, p_expect bigint,
	p_drop text, p_now timestamptz default null)
returns table (verdict int, lease_version bigint, version bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	k record; w record; l_key text;
	l_mine boolean := false; l_same boolean := false;
begin
	perform queen.lake_fence_check(p_lease_key, p_lease, p_lease_expect,
		p_lease_ttl_s, p_key, p_value, p_expect, p_drop);
	lease_version := 0;
	version := 0;
	for l_key in
		select u.key from unnest(array[p_lease_key, p_key, p_drop]) u(key)
		where u.key is not null order by u.key collate "C"
	loop
		select x.value, x.version into k from queen.kv x
		where x.tenant = p_tenant and x.namespace = 'queen-s3'
			and x.key = l_key and queen.kv_live_v1(x.expires_at, t)
		for no key update;
		if not found then
			continue;
		elsif l_key = p_lease_key then
			lease_version := k.version;
			l_mine := coalesce(k.value->'incarnation'
				= p_lease::jsonb->'incarnation', false);
		elsif l_key = p_key then
			version := k.version;
			l_same := k.value = p_value::jsonb;
		end if;
	end loop;
	verdict := case
		when lease_version = p_lease_expect and version = p_expect then 0
		when l_mine and l_same then 3
		when lease_version = p_lease_expect then 2
		when l_mine then 4 else 1 end;
	if verdict = 0 then
		w := queen.kv_put(p_tenant, 'queen-s3', p_key, p_value::jsonb,
			p_expect, null, t);
		verdict := 2 * w.verdict;
		version := w.version;
	end if;
	if verdict = 0 then
		lease_version := (queen.kv_put(p_tenant, 'queen-s3', p_lease_key,
			p_lease::jsonb, p_lease_expect,
			t + p_lease_ttl_s * interval '1 s', t)).version;
		if p_drop is not null then
			perform queen.kv_delete(p_tenant, 'queen-s3', p_drop, null, t);
		end if;
	end if;
	return next;
end $$;

-- Inside: raises 22023 for what is no fence, and what kv_check_op raises.
create or replace function queen.lake_fence_check(p_lease_key text, p_lease text,
	p_lease_expect bigint, p_lease_ttl_s bigint, p_key text, p_value text,
	p_expect bigint, p_drop text)
returns void
language plpgsql immutable as $$
begin
	if (p_lease_key ~ '^s3:.' and p_key ~ '^s3:.' and p_key <> p_lease_key
			and p_lease_expect > 0 and p_lease_ttl_s > 0 and p_expect >= 0
			and (p_drop is null or p_drop ~ '^s3:.'
				and p_drop not in (p_key, p_lease_key))) is not true then
		raise exception 'queen.lake_fence_v1: not rows of a queue'
			using errcode = '22023';
	end if;
	perform queen.kv_check_op(3, p_lease::jsonb, null, p_lease_ttl_s, null);
	perform queen.kv_check_op(3, p_value::jsonb, null, null, null);
end $$;

-- Asks a queue that is held to go on: after the newest manifest of its bucket
-- (p_prefix null), or afresh under another prefix.  The request is for whoever
-- holds the queue within the hour.  False: no such queue.
create or replace function queen.lake_resume_v1(p_tenant uuid, p_sink text,
	p_queue text, p_prefix text, p_now timestamptz default null)
returns boolean
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_key text := 's3:' || p_sink || ':' || queen.lake_escape(p_queue)
		|| ':resume';
begin
	if p_sink !~ '^[A-Za-z0-9._-]{1,64}$' or not exists (
			select from queen.queues q where q.tenant = p_tenant
				and q.name = p_queue collate "C"
				and q.deleted_at is null) then
		return false;
	end if;
	perform queen.kv_check_names_v1('queen-s3', l_key);
	perform queen.kv_put(p_tenant, 'queen-s3', l_key,
		jsonb_strip_nulls(jsonb_build_object(
			'resume', case when p_prefix is null then 'newest'
				else 'prefix' end, 'prefix', p_prefix,
			'atMs', floor(extract(epoch from t) * 1000)::bigint)),
		null, t + interval '1 hour', t);
	return true;
end $$;

-- Inside: the key of a tenant's sink.
create or replace function queen.lake_sink_key(p_tenant uuid)
returns text language sql immutable parallel safe as $$
	select 'sink:' || p_tenant
$$;

-- Every sink of the cell, by tenant; secret: sealed.  updated_at moves with
-- every write, and a sink is set up anew when it does.
create or replace function queen.lake_sinks_v1()
returns table (tenant uuid, cluster text, enabled boolean, config text,
	secret text, updated_at timestamptz)
language sql stable as $$
	select substr(k.key, 6)::uuid, k.value->>'cluster',
		k.value->'enabled' = 'true', (k.value->'config')::text,
		k.value->>'secret', k.updated_at
	from queen.kv k
	where k.tenant = '00000000-0000-0000-0000-000000000000'
		and k.namespace = 'queen-s3'
		and k.key >= 'sink:' and k.key < 'sink;'
		and k.key ~ '^sink:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
	order by k.key
$$;

-- The sink of a tenant; no row: it has none.
create or replace function queen.lake_sink_get_v1(p_tenant uuid)
returns table (cluster text, enabled boolean, config text,
	updated_at timestamptz)
language sql stable as $$
	select k.value->>'cluster', k.value->'enabled' = 'true',
		(k.value->'config')::text, k.updated_at
	from queen.kv k
	where k.tenant = '00000000-0000-0000-0000-000000000000'
		and k.namespace = 'queen-s3'
		and k.key = queen.lake_sink_key(p_tenant)
$$;

-- Stores it.  p_secret: sealed; null keeps the one that is stored, and then
-- nothing is written when nothing differs.  verdict 0, and what is stored now is
-- shown by lake_sink_get_v1; 1: none is stored and the secret is missing.
-- Raises 22001 when it is too large.
create or replace function queen.lake_sink_put_v1(p_tenant uuid, p_cluster text,
	p_enabled boolean, p_config text, p_secret text,
	p_now timestamptz default null)
returns int
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_key text := queen.lake_sink_key(p_tenant);
	l_value jsonb; k record; w record;
begin
	loop
		select x.value, x.version, x.updated_at into k from queen.kv x
		where x.tenant = '00000000-0000-0000-0000-000000000000'
			and x.namespace = 'queen-s3' and x.key = l_key
		for no key update;
		if not found and p_secret is null then
			return 1;
		end if;
		l_value := jsonb_build_object('cluster', p_cluster,
			'enabled', p_enabled, 'config', p_config::jsonb,
			'secret', coalesce(p_secret, k.value->>'secret'));
		if p_secret is null and l_value = k.value then
			return 0;
		end if;
		perform queen.kv_check_op(3, l_value, null, null, null);
		w := queen.kv_put('00000000-0000-0000-0000-000000000000',
			'queen-s3', l_key, l_value, coalesce(k.version, 0), null,
			greatest(t, k.updated_at + interval '1 us'));
		exit when w.verdict = 0;	-- else another has just made it
	end loop;
	return 0;
end $$;

-- Removes it; its bucket is left alone.  False: there was none.
create or replace function queen.lake_sink_delete_v1(p_tenant uuid)
returns boolean
language sql volatile as $$
	select d.verdict = 0 from queen.kv_delete(
		'00000000-0000-0000-0000-000000000000', 'queen-s3',
		queen.lake_sink_key(p_tenant), null, clock_timestamp()) d
$$;

-- Inside: since when a queue has messages stamped p_end or later; null = none.  It
-- looks at a thousand partitions that were written since.
create or replace function queen.lake_behind(p_queue bigint, p_end timestamptz)
returns timestamptz
language sql volatile as $$
	select min(queen.oldest_after(h.id,
		queen.offset_before(h.id, p_queue, p_end)))
	from (select x.id from queen.partition_heads x
		where x.last_write_at >= p_end - interval '1 s'
			and x.queue_id = p_queue
		order by x.last_write_at, x.id limit 1000) h
$$;

-- Queues that a sink has shipped before and that have messages older than
-- p_behind_s beyond its pointer, the furthest behind first, at most 20.  holder:
-- the node that has it now, null = none; moved: the pointer is of another cell, so
-- it is held until it is told how to go on.
create or replace function queen.doctor_lake_v1(p_behind_s bigint,
	p_now timestamptz default null)
returns table (sink text, queue text, holder text, moved boolean, age_s bigint)
language sql volatile as $$
	with n as materialized (select coalesce(p_now, clock_timestamp()) as at),
	pointers as materialized (
		select t.tenant, split_part(k.key, ':', 2) as sink,
			split_part(k.key, ':', 3) as escaped,
			left(k.key, -9) || 'lease' as lease_key,
			queen.lake_time(k.value->'tEnd') as t_end,
			k.value->>'cell' as cell
		from (select distinct q.tenant from queen.queues q
			where q.deleted_at is null) t
		join queen.kv k on k.tenant = t.tenant
			and k.namespace = 'queen-s3' and k.key >= 's3:'
			and k.key < 's3;' and k.key ~ '^s3:[^:]+:[^:]+:committed$'
	)
	select p.sink, q.name::text, l.holder,
		coalesce(p.cell <> lpad(to_hex(c.tag), 12, '0'), false),
		extract(epoch from n.at - b.since)::bigint
	from n cross join queen.cell c cross join pointers p
	join queen.queues q on q.tenant = p.tenant and q.deleted_at is null
		and queen.lake_escape(q.name) = p.escaped
	cross join lateral (select queen.lake_behind(q.id, p.t_end) as since) b
	left join lateral (select k.value->>'instance' as holder from queen.kv k
		where k.tenant = p.tenant and k.namespace = 'queen-s3'
			and k.key = p.lease_key
			and queen.kv_live_v1(k.expires_at, n.at)) l on true
	where p.t_end < n.at - make_interval(secs => p_behind_s)
		and b.since < n.at - make_interval(secs => p_behind_s)
	order by 5 desc, 1, 2 limit 20
$$;
