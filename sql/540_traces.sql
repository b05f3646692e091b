-- SPDX-License-Identifier: Apache-2.0
-- Events that applications write about messages, by address and by name.
-- They outlive messages and queues.  data comes back as it was sent.
--
-- Functions: trace_add_v1, trace_list_v1, trace_by_name_v1, trace_names_v1.
-- Tables written: traces, trace_names.  Locks: none.

-- Stores one event.  False = no such partition of this tenant.
create or replace function queen.trace_add_v1(p_tenant uuid, p_id uuid, p_part bigint,
	p_txn text, p_group text,
	p_type text, p_data text, p_names text[], p_now timestamptz default null)
returns boolean language plpgsql volatile as $$
declare
	at timestamptz := coalesce(p_now, clock_timestamp());
begin
	if not exists (select from queen.partitions p join queen.queues q on q.id = p.queue_id
			where p.id = p_part and q.tenant = p_tenant) then
		return false;
	end if;
	insert into queen.traces (id, tenant, partition_id, transaction_id, consumer_group,
		event_type, data, created_at)
	values (p_id, p_tenant, p_part, p_txn, p_group, p_type, p_data, at);
	insert into queen.trace_names (tenant, name, trace_id, created_at)
	select distinct p_tenant, n.v, p_id, at from unnest(p_names) n(v);
	return true;
end $$;

-- The first 10 000 events of an address, oldest first.
create or replace function queen.trace_list_v1(p_tenant uuid, p_part bigint, p_txn text)
returns table (status int, body text) language sql stable as $$
	select 200, json_build_object('traces', coalesce(json_agg(json_build_object('id', t.id,
		'event_type', t.event_type,
		'data', t.data::json, 'consumer_group', t.consumer_group, 'worker_id',
			t.worker_id,
		'created_at', queen.iso_ms_v1(t.created_at), 'trace_names', t.names)
			order by t.created_at, t.id), '[]'))::text
	from (
		select x.*, array(select n.name from queen.trace_names n
			where n.tenant = p_tenant and n.trace_id = x.id
			order by n.name) names
		from queen.traces x where x.partition_id = p_part and x.transaction_id = p_txn
			and x.tenant = p_tenant
		order by x.created_at, x.id limit 10000) t
$$;

-- Events of a name, newest first, with the names of queue and partition
-- while they exist.
create or replace function queen.trace_by_name_v1(p_tenant uuid, p_name text, p_limit int,
	p_offset int)
returns table (status int, body text) language sql stable as $$
	select 200, json_build_object('traces', coalesce(json_agg(json_build_object('id', t.id,
		'event_type', t.event_type,
		'data', t.data::json, 'consumer_group', t.consumer_group, 'worker_id',
			t.worker_id,
		'created_at', queen.iso_ms_v1(t.created_at), 'trace_names', t.names,
			'transaction_id', t.transaction_id,
		'partition_id', queen.wire_id_v1(2, t.partition_id), 'queue_name', t.qname,
			'partition_name', t.pname,
		'message_payload', null) order by t.created_at desc, t.id desc), '[]'),
		'total', (select count(*) from queen.trace_names n where n.tenant = p_tenant
			and n.name = p_name),
		'pagination', json_build_object('limit', p_limit, 'offset', p_offset))::text
	from (
		select x.*, p.name pname, q.name qname,
			array(select m.name from queen.trace_names m where m.tenant = p_tenant
				and m.trace_id = x.id
				order by m.name) names
		from (select n.trace_id from queen.trace_names n where n.tenant = p_tenant
			and n.name = p_name
			order by n.created_at desc, n.trace_id desc
				limit p_limit offset p_offset) n
		join queen.traces x on x.id = n.trace_id
		left join queen.partitions p on p.id = x.partition_id
		left join queen.queues q on q.id = p.queue_id) t
$$;

-- Names by their newest event.  One key step per name, then only the page's
-- names are counted.
create or replace function queen.trace_names_v1(p_tenant uuid, p_limit int, p_offset int)
returns table (status int, body text) language sql stable as $$
	with recursive seen as (
		(select n.name, n.created_at from queen.trace_names n where n.tenant = p_tenant
			order by n.name, n.created_at desc limit 1)
		union all
		select x.name, x.created_at from seen s cross join lateral (
			select n.name, n.created_at from queen.trace_names n
				where n.tenant = p_tenant and n.name > s.name
			order by n.name, n.created_at desc limit 1) x),
	page as (
		select s.name, s.created_at from seen s order by s.created_at desc, s.name
			limit p_limit offset p_offset)
	select 200, json_build_object('trace_names',
		coalesce(json_agg(json_build_object('trace_name', g.name,
		'trace_count', c.n, 'message_count', c.messages, 'last_seen',
			queen.iso_ms_v1(g.created_at))
		order by g.created_at desc, g.name), '[]'),
		'total', (select count(*) from seen),
		'pagination', json_build_object('limit', p_limit, 'offset', p_offset))::text
	from page g cross join lateral (
		select count(*) n, count(distinct (t.partition_id, t.transaction_id)) messages
		from queen.trace_names n join queen.traces t on t.id = n.trace_id
		where n.tenant = p_tenant and n.name = g.name) c
$$;
