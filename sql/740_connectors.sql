-- SPDX-License-Identifier: Apache-2.0
-- Connectors between the cell and PostgreSQL tables: their documents, and what
-- the programs that run them report.
--
--   connector_list_v1(...)         documents of a tenant, with status and state
--   connector_put_v1(...)          writes a document at the version that was read
--   connector_delete_v1(...)       removes one, and with it what ran under it
--   connector_overlap_v1(...)      documents that get into each other's way
--   connector_group_v1(...)        the sink that owns a consumer group
--   connector_all_v1()             every document of the cell, for those who run them
--   connector_status_list_v1(...)  status of a tenant's connectors
--   connector_status_put_v1(...)   what a node reports
--   connector_status_drop_v1(...)  what a node does not run any more
--   connector_metrics_v1()         counters and gauges of the cell
--   doctor_connectors_v1()         connectors that do not do their work
--
-- Documents are rows of queen.kv: tenant nil, namespace queen-pg, key
-- conn:TENANT:NAME; no route of a client leads there.  Pointer and lease of a
-- source are rows of its tenant: src:NAME:pointer, src:NAME:lease.
-- Writes queen.kv, rows ascending by key, and queen.connector_status, rows
-- ascending by (tenant, name, node).

create table if not exists queen.connector_status (
	tenant uuid not null,
	name text collate "C" not null,
	node text collate "C" not null,
	kind text,				-- null: its document does not parse
	status jsonb not null,
	metrics jsonb not null,			-- family -> number
	updated_at timestamptz not null,
	primary key (tenant, name, node)
) with (fillfactor = 70);

-- The key of a document.
create or replace function queen.connector_key(p_tenant uuid, p_name text)
returns text language sql immutable parallel safe as $$
	select 'conn:' || p_tenant || ':' || p_name
$$;

-- The status to show of a connector: of the node that owns it, else the newest;
-- null when none is younger than 30 s.
create or replace function queen.connector_status_of(p_tenant uuid, p_name text,
	p_owner text, p_at timestamptz)
returns jsonb language sql stable as $$
	select s.status from queen.connector_status s
	where s.tenant = p_tenant and s.name = p_name
		and s.updated_at > p_at - interval '30 s'
	order by coalesce(s.node = p_owner, false) desc, s.updated_at desc, s.node
	limit 1
$$;

-- A live value of a tenant's queen-pg rows.
create or replace function queen.connector_state(p_tenant uuid, p_key text,
	p_at timestamptz)
returns jsonb language sql stable as $$
	select k.value from queen.kv k
	where k.tenant = p_tenant and k.namespace = 'queen-pg' and k.key = p_key
		and queen.kv_live_v1(k.expires_at, p_at)
$$;

-- The documents of a tenant; p_name null = all.  ~ is above every character of a
-- name.  Rows that are no connector's are passed over.
create or replace function queen.connector_rows(p_tenant uuid, p_name text)
returns table (name text, version bigint, value jsonb)
language sql stable as $$
	select substr(k.key, 43), k.version, k.value from queen.kv k
	where k.tenant = '00000000-0000-0000-0000-000000000000'
		and k.namespace = 'queen-pg'
		and k.key >= queen.connector_key(p_tenant, coalesce(p_name, ''))
		and k.key <= queen.connector_key(p_tenant, coalesce(p_name, '~'))
		and substr(k.key, 43) ~ '^[a-z0-9][a-z0-9_-]{0,47}$'
$$;

-- The documents of a tenant in order of their names; p_name null = all.  kind,
-- sealed and resync are read from the raw document, which may not parse.
create or replace function queen.connector_list_v1(p_tenant uuid, p_name text,
	p_now timestamptz default null)
returns table (name text, version bigint, document text, kind text, sealed text,
	resync text, status text, pointer text, lease text)
language plpgsql stable as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
begin
	return query select r.name, r.version, r.value::text, r.value->>'kind',
		r.value->'connection'->>'passwordSealed',
		r.value->>'resyncRequestedAt',
		queen.connector_status_of(p_tenant, r.name, s.lease->>'node', t)::text,
		s.pointer::text, s.lease::text
	from queen.connector_rows(p_tenant, p_name) r
	cross join lateral (select
		queen.connector_state(p_tenant, 'src:' || r.name || ':pointer', t)
			as pointer,
		queen.connector_state(p_tenant, 'src:' || r.name || ':lease', t)
			as lease) s
	order by r.name collate "C";
end $$;

-- A request that counts in this cell alone: a restore makes another of it.
create or replace function queen.connector_takeover(p_action text, p_at text)
returns jsonb language sql stable as $$
	select jsonb_build_object('takeover', jsonb_build_object('action', p_action,
		'cell', lpad(to_hex(c.tag), 12, '0'), 'requestedAt', p_at))
	from queen.cell c
$$;

-- Writes a document, if it still has the version that was read (0 = there was
-- none).  The time of the write goes into updatedAt and, by p_stamp, into a
-- request: resync, delete with the slot, or adopt or reset with the tag of this
-- cell (null = none).  verdict 0 with what is stored now, 1 when somebody else
-- wrote.  Raises 22001 when it is too large.
create or replace function queen.connector_put_v1(p_tenant uuid, p_name text,
	p_document text, p_expect bigint, p_stamp text,
	p_now timestamptz default null)
returns table (verdict int, version bigint, document text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_at text := queen.iso_us_v1(t);
	l_value jsonb := p_document::jsonb || jsonb_build_object('updatedAt', l_at)
		|| case p_stamp
			when 'resync' then jsonb_build_object('resyncRequestedAt', l_at)
			when 'delete' then jsonb_build_object('deleting',
				jsonb_build_object('dropSlot', true, 'requestedAt', l_at))
			when 'adopt' then queen.connector_takeover(p_stamp, l_at)
			when 'reset' then queen.connector_takeover(p_stamp, l_at)
			else '{}' end;
begin
	perform queen.kv_check_op(3, l_value, p_expect, null, null);
	return query select w.verdict, w.version, w.value
	from queen.kv_put('00000000-0000-0000-0000-000000000000', 'queen-pg',
		queen.connector_key(p_tenant, p_name), l_value, p_expect, null, t) w;
end $$;

-- Removes a document at the version that was read, and the status of it.  With
-- p_state also pointer and lease of a source.  verdict as connector_put_v1.
create or replace function queen.connector_delete_v1(p_tenant uuid, p_name text,
	p_expect bigint, p_state boolean, p_now timestamptz default null)
returns int
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_verdict int;
begin
	select d.verdict into l_verdict
	from queen.kv_delete('00000000-0000-0000-0000-000000000000', 'queen-pg',
		queen.connector_key(p_tenant, p_name), p_expect, t) d;
	if l_verdict <> 0 then
		return l_verdict;
	end if;
	if p_state then
		perform queen.kv_delete(p_tenant, 'queen-pg',
			'src:' || p_name || ':lease', null, t);
		perform queen.kv_delete(p_tenant, 'queen-pg',
			'src:' || p_name || ':pointer', null, t);
	end if;
	delete from queen.connector_status s
	where s.tenant = p_tenant and s.name = p_name;
	return 0;
end $$;

-- Every document of the cell, in order of its key.
create or replace function queen.connector_all_v1()
returns table (key text, version bigint, document text)
language sql stable as $$
	select k.key, k.version, k.value::text from queen.kv k
	where k.tenant = '00000000-0000-0000-0000-000000000000'
		and k.namespace = 'queen-pg' and k.key >= 'conn:' and k.key < 'conn;'
	order by k.key
$$;

-- A table's name with its schema.
create or replace function queen.connector_table(p_table text)
returns text language sql immutable parallel safe as $$
	select case when strpos(p_table, '.') = 0 then 'public.' else '' end || p_table
$$;

-- What gets into the way of this stored document: `slot`, another source on the
-- same slot of the same database; `loop`, a sink into a table that a source of
-- the same tenant reads into the sink's queue.  name null: another tenant's.
create or replace function queen.connector_overlap_v1(p_tenant uuid, p_name text)
returns table (what text, name text)
language sql stable as $$
	with d as materialized (
		select split_part(a.key, ':', 2) as tenant,
			split_part(a.key, ':', 3) as name, v.doc, v.doc->>'kind' as kind,
			(lower(v.doc->'connection'->>'host'),
			v.doc->'connection'->>'port',
			v.doc->'connection'->>'database')::text as place
		from queen.connector_all_v1() a
		cross join lateral (select a.document::jsonb as doc) v
	), pair as (
		select m.name = p_name and m.tenant = p_tenant::text as mine,
			m.kind, m.doc, o.tenant, o.name, o.kind as o_kind, o.doc as o_doc
		from d m join d o on o.place = m.place
			and (o.tenant, o.name) <> (m.tenant, m.name)
		where m.name = p_name and m.tenant = p_tenant::text
	)
	select 'slot', case when p.tenant = p_tenant::text then p.name end
	from pair p
	where p.kind = 'source' and p.o_kind = 'source'
		and coalesce(p.o_doc->'source'->>'slot',
			'queen_' || replace(p.name, '-', '_'))
		= coalesce(p.doc->'source'->>'slot',
			'queen_' || replace(p_name, '-', '_'))
	union all
	select 'loop', p.name
	from pair p
	cross join lateral (select
		case p.kind when 'source' then p.doc else p.o_doc end as src,
		case p.kind when 'sink' then p.doc else p.o_doc end as snk) x
	where p.tenant = p_tenant::text and p.kind <> p.o_kind
		and exists (select from jsonb_array_elements(
			case jsonb_typeof(x.src->'source'->'tables') when 'array'
				then x.src->'source'->'tables' else '[]' end) e
			where queen.connector_table(e->>'table')
				= queen.connector_table(x.snk->'sink'->>'table')
			and e->>'queue' = x.snk->'sink'->>'queue')
	order by 1, 2
$$;

-- The name of a sink that reads the queue (null = any) as this group; null: none.
create or replace function queen.connector_group_v1(p_tenant uuid, p_group text,
	p_queue text)
returns text
language sql stable as $$
	select min(r.name) from queen.connector_rows(p_tenant, null) r
	where r.value->>'kind' = 'sink'
		and coalesce(r.value->'sink'->>'consumerGroup', 'pg-' || r.name)
			= p_group
		and (p_queue is null or r.value->'sink'->>'queue' = p_queue)
$$;

-- The status of each connector of a tenant; null when nobody reports it.
create or replace function queen.connector_status_list_v1(p_tenant uuid,
	p_now timestamptz default null)
returns table (name text, kind text, status text)
language sql stable as $$
	select r.name, r.value->>'kind', queen.connector_status_of(p_tenant, r.name,
		queen.connector_state(p_tenant, 'src:' || r.name || ':lease',
			n.at)->>'node', n.at)::text
	from (select coalesce(p_now, clock_timestamp()) as at) n
	cross join queen.connector_rows(p_tenant, null) r
	order by r.name collate "C"
$$;

-- The rows of a node, all of one length; those it does not name stay.
create or replace function queen.connector_status_put_v1(p_node text,
	p_tenant uuid[], p_name text[], p_kind text[], p_status text[],
	p_metrics text[], p_now timestamptz default null)
returns void
language sql volatile as $$
	insert into queen.connector_status as s (tenant, name, node, kind, status,
		metrics, updated_at)
	select u.tenant, u.name, p_node, u.kind, u.status::jsonb,
		u.metrics::jsonb, coalesce(p_now, clock_timestamp())
	from unnest(p_tenant, p_name, p_kind, p_status, p_metrics)
		u(tenant, name, kind, status, metrics)
	order by u.tenant, u.name collate "C"
	on conflict (tenant, name, node) do update set kind = excluded.kind,
		status = excluded.status, metrics = excluded.metrics,
		updated_at = excluded.updated_at
$$;

-- Removes rows of a node.
create or replace function queen.connector_status_drop_v1(p_node text,
	p_tenant uuid[], p_name text[])
returns void
language sql volatile as $$
	delete from queen.connector_status s
	using unnest(p_tenant, p_name) u(tenant, name)
	where s.tenant = u.tenant and s.name = u.name and s.node = p_node
$$;

-- The metrics of every connector that has a document: what ends in _total is
-- added up over the nodes, of the rest the highest that is younger than 30 s.
create or replace function queen.connector_metrics_v1(p_now timestamptz default null)
returns table (family text, tenant uuid, name text, value text)
language sql stable as $$
	select m.key, s.tenant, s.name,
		trunc(case when m.key like '%\_total' then sum(m.num)
			else max(m.num) filter (where s.updated_at
				> coalesce(p_now, clock_timestamp()) - interval '30 s')
			end)::text
	from queen.connector_status s
	cross join lateral (select e.key, e.value::text::numeric as num
		from jsonb_each(s.metrics) e
		where jsonb_typeof(e.value) = 'number') m
	where exists (select from queen.kv k
		where k.tenant = '00000000-0000-0000-0000-000000000000'
			and k.namespace = 'queen-pg'
			and k.key = queen.connector_key(s.tenant, s.name))
	group by m.key, s.tenant, s.name
	order by m.key, s.tenant, s.name
$$;

-- Connectors in error, with code and sentence, and those that should run and
-- nobody reports (code null), at most 20.  One that is paused is left alone.
create or replace function queen.doctor_connectors_v1(p_now timestamptz default null)
returns table (name text, kind text, code text, message text)
language sql stable as $$
	select x.name, x.doc->>'kind', x.status->'error'->>'code',
		x.status->'error'->>'message'
	from (select coalesce(p_now, clock_timestamp()) as at) n
	cross join lateral (
		select r.name, v.doc, queen.connector_status_of(r.tenant, r.name,
			queen.connector_state(r.tenant, 'src:' || r.name || ':lease',
				n.at)->>'node', n.at) as status
		from (select case when a.key ~ '^conn:[0-9a-f-]{36}:'
				then substr(a.key, 6, 36)::uuid end as tenant,
				substr(a.key, 43) as name, a.document
			from queen.connector_all_v1() a) r
		cross join lateral (select r.document::jsonb as doc) v
		where r.tenant is not null) x
	where jsonb_typeof(x.status->'error') = 'object'
		or x.status is null and (x.doc->>'enabled' is distinct from 'false'
			or x.doc ? 'deleting')
	order by (x.status is null), x.name collate "C" limit 20
$$;
