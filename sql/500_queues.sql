-- SPDX-License-Identifier: Apache-2.0
-- Queues as an operator sees them: configure, delete, list, describe.
--
-- Functions: queue_options, queue_option_rules, queue_option_check,
-- queue_configure_v1, queue_delete_v1, queue_retained_v1, queue_list_v1,
-- queue_get_v1.
-- Tables written: queues.  Lock order: one queue row.
--
-- The functions of routes return (status, body): the HTTP status and the JSON
-- of the answer.

-- All options of a queue, in the order of the manual.
create or replace function queen.queue_options(q queen.queues)
returns json language sql stable as $$
	select json_build_object('namespace', q.namespace, 'task', q.task, 'leaseTime',
		q.lease_time_s,
		'retryLimit', q.retry_limit, 'deadLetterQueue', q.dead_letter_queue,
		'dlqAfterMaxRetries', q.dlq_after_max_retries, 'delayedProcessing',
			q.delayed_processing_s,
		'windowBuffer', q.window_buffer_s, 'minPopWaitTime', q.min_pop_wait_ms,
		'retentionEnabled', q.retention_enabled, 'retentionSeconds', q.retention_s,
		'completedRetentionSeconds', q.completed_retention_s, 'maxWaitTimeSeconds',
			q.max_wait_s,
		'encryptionEnabled', q.encryption_enabled, 'dedupWindowSeconds',
			q.dedup_window_s,
		'retentionSinkHold', q.retention_sink_hold, 'retentionSinkHoldMaxSeconds',
			q.retention_sink_hold_max_s,
		'priority', q.priority, 'ttl', q.ttl_s, 'maxSize', q.max_size, 'retryDelay',
			q.retry_delay_ms)
$$;

-- Name, kind, range and default of each option; clamp: a value outside the
-- range is moved into it, not refused.
create or replace function queen.queue_option_rules()
returns table (name text, kind text, lo bigint, hi bigint, clamp boolean, dflt jsonb)
language sql immutable rows 21 as $$
	values ('namespace', 'string', 0::bigint, 1024::bigint, false, '""'::jsonb),
		('task', 'string', 0, 1024, false, '""'),
		('leaseTime', 'int', 1, 604800, false, '300'),
		('retryLimit', 'int', 0, 1000000, false, '3'),
		('deadLetterQueue', 'bool', 0, 1, false, 'true'),
		('dlqAfterMaxRetries', 'bool', 0, 1, false, 'true'),
		('delayedProcessing', 'int', 0, 2147483647, false, '0'),
		('windowBuffer', 'int', 0, 2147483647, false, '0'),
		('minPopWaitTime', 'int', 0, 60000, true, '0'),
		('retentionEnabled', 'bool', 0, 1, false, 'false'),
		('retentionSeconds', 'int', -2147483648, 2147483647, false, '0'),
		('completedRetentionSeconds', 'int', -2147483648, 2147483647, false, '0'),
		('maxWaitTimeSeconds', 'int', -2147483648, 2147483647, false, '0'),
		('encryptionEnabled', 'bool', 0, 1, false, 'false'),
		('dedupWindowSeconds', 'int', 0, 2147483647, true, '3600'),
		('retentionSinkHold', 'string', 0, 64, false, '""'),
		('retentionSinkHoldMaxSeconds', 'int', 60, 31536000, false, '604800'),
		('priority', 'int', -2147483648, 2147483647, false, '0'),
		('ttl', 'int', -2147483648, 2147483647, false, '3600'),
		('maxSize', 'int', -2147483648, 2147483647, false, '0'),
		('retryDelay', 'int', -2147483648, 2147483647, false, '1000')
$$;

-- One value against its rule.  p_kind: null, bool, number, string or other
-- (p_value then only names it); p_value: the text of a string, the literal of
-- anything else.  error null = value is good.  Unknown names: no row.
create or replace function queen.queue_option_check(p_name text, p_kind text, p_value text)
returns table (value jsonb, error text) language plpgsql immutable as $$
declare
	r record;
	n numeric;
	got text := case p_kind when 'string' then '''' || left(p_value, 64) || ''''
		else left(p_value, 64) end;
	word text := lower(btrim(p_value, E' \t\r\n'));
begin
	select * into r from queen.queue_option_rules() x where x.name = p_name;
	if not found then
		return;
	elsif p_kind = 'null' then
		return query select r.dflt, null::text;
	elsif r.kind = 'string' then
		return query select to_jsonb(p_value), case
			when p_name = 'retentionSinkHold'
				and (p_kind <> 'string' or p_value !~ '^[A-Za-z0-9._-]{0,64}$')
				then 'retentionSinkHold must match [A-Za-z0-9._-]{0,64}, got '
					|| got
			when p_kind <> 'string' then p_name || ' must be a string, got ' || got
			when octet_length(p_value) > r.hi
				then format('%s must be at most %s bytes', p_name, r.hi) end;
	elsif r.kind = 'bool' then
		if p_kind <> 'other' and word in ('true', 't', 'yes', 'y', 'on', '1') then
			return query select to_jsonb(true), null::text;
		elsif p_kind <> 'other' and word in ('false', 'f', 'no', 'n', 'off', '0') then
			return query select to_jsonb(false), null::text;
		else
			return query select null::jsonb, p_name || ' must be a boolean, got '
				|| got;
		end if;
	else
		if length(word) <= 40 and (p_kind = 'number'
			and word ~ '^-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,2})?$'
				or p_kind = 'string' and word ~ '^[+-]?[0-9]+$') then
			n := word::numeric;
		end if;
		if n is null or n <> trunc(n) then
			return query select null::jsonb, p_name || ' must be an integer, got '
				|| got;
		elsif n not between r.lo and r.hi and not r.clamp then
			return query select null::jsonb,
				format('%s must be between %s and %s, got %s', p_name, r.lo,
				r.hi, got);
		else
			return query select to_jsonb(greatest(r.lo, least(r.hi, n))::int),
				null::text;
		end if;
	end if;
end $$;

-- Creates a queue or edits its options.  Arrays aligned: option name, kind
-- and text of each value sent (see queue_option_check).  p_replace: what is
-- absent returns to its default, else it stays.  The first bad value is 400
-- with `invalid`, nothing written.  Locks the queue row.
create or replace function queen.queue_configure_v1(p_tenant uuid, p_name text, p_option text[],
	p_kind text[],
	p_value text[], p_replace boolean, p_now timestamptz default null)
returns table (status int, body text, id bigint) language plpgsql volatile as $$
declare
	bad record;
	sent jsonb;
	v jsonb;
	q queen.queues;
	fresh boolean := false;
begin
	select i.name, c.error into bad from unnest(p_option, p_kind,
		p_value) with ordinality i(name, kind, value, ord)
	cross join lateral queen.queue_option_check(i.name, i.kind, i.value) c
	where c.error is not null order by i.ord limit 1;
	if found then
		return query select 400, json_build_object('error', bad.error, 'invalid',
			bad.name)::text, null::bigint;
		return;
	end if;
	select coalesce(jsonb_object_agg(i.name, c.value order by i.ord), '{}') into sent
	from unnest(p_option, p_kind, p_value) with ordinality i(name, kind, value, ord)
	cross join lateral queen.queue_option_check(i.name, i.kind, i.value) c;
	loop
		select * into q from queen.queues x where x.tenant = p_tenant
			and x.name = p_name and x.deleted_at is null
		for update;
		exit when found;
		insert into queen.queues (tenant, name, created_at, changed_at)
		values (p_tenant, p_name, coalesce(p_now, clock_timestamp()),
			coalesce(p_now, clock_timestamp()))
		on conflict (tenant, name) where deleted_at is null do nothing;
		fresh := found;
	end loop;
	if fresh or p_replace then
		select jsonb_object_agg(r.name, r.dflt) into v
			from queen.queue_option_rules() r;
	else
		v := queen.queue_options(q)::jsonb;
	end if;
	v := v || sent;
	update queen.queues x set namespace = v->>'namespace', task = v->>'task',
		lease_time_s = (v->>'leaseTime')::int,
		retry_limit = (v->>'retryLimit')::int,
			dead_letter_queue = (v->>'deadLetterQueue')::boolean,
		dlq_after_max_retries = (v->>'dlqAfterMaxRetries')::boolean,
		delayed_processing_s = (v->>'delayedProcessing')::int,
			window_buffer_s = (v->>'windowBuffer')::int,
		min_pop_wait_ms = (v->>'minPopWaitTime')::int,
			retention_enabled = (v->>'retentionEnabled')::boolean,
		retention_s = (v->>'retentionSeconds')::int,
			completed_retention_s = (v->>'completedRetentionSeconds')::int,
		max_wait_s = (v->>'maxWaitTimeSeconds')::int,
			encryption_enabled = (v->>'encryptionEnabled')::boolean,
		dedup_window_s = (v->>'dedupWindowSeconds')::int,
			retention_sink_hold = v->>'retentionSinkHold',
		retention_sink_hold_max_s = (v->>'retentionSinkHoldMaxSeconds')::int,
			priority = (v->>'priority')::int,
		ttl_s = (v->>'ttl')::int, max_size = (v->>'maxSize')::int,
			retry_delay_ms = (v->>'retryDelay')::int,
		changed_at = greatest(coalesce(p_now, clock_timestamp()), x.changed_at)
	where x.id = q.id returning x.* into q;
	return query select 200, json_build_object('configured', true, 'queueId',
		queen.wire_id_v1(1, q.id),
		'partitionId', null, 'queue', q.name, 'namespace', q.namespace, 'task', q.task,
			'storage', 'segments',
		'options', queen.queue_options(q)::jsonb - array['namespace', 'task'])::text,
			q.id;
end $$;

-- Takes a queue out of sight at once and frees its name; the maintenance
-- purges its data in steps.  Always 200.  Locks the queue row.
create or replace function queen.queue_delete_v1(p_tenant uuid, p_name text,
	p_now timestamptz default null)
returns table (status int, body text, id bigint) language plpgsql volatile as $$
declare
	gone bigint;
begin
	update queen.queues q set deleted_at = coalesce(p_now, clock_timestamp()),
		changed_at = greatest(coalesce(p_now, clock_timestamp()), q.changed_at)
	where q.tenant = p_tenant and q.name = p_name and q.deleted_at is null
	returning q.id into gone;
	return query select 200, case when gone is null
		then json_build_object('deleted', false, 'queue', p_name, 'existed', false,
			'message', 'Queue not found, nothing was deleted')
		else json_build_object('deleted', true, 'queue', p_name, 'existed',
			true) end::text, gone;
end $$;

-- Segments and stored bytes per queue; linear in the number of segments.
create or replace function queen.queue_retained_v1(p_tenant uuid, p_queue bigint[])
returns table (queue_id bigint, segments bigint,
	bytes bigint) language sql stable rows 1000 as $$
	select q.id, count(*), sum(octet_length(s.blob))::bigint
	from unnest(p_queue) u(id)
	join queen.queues q on q.id = u.id and q.tenant = p_tenant and q.deleted_at is null
	join queen.partitions p on p.queue_id = q.id
	join queen.segments s on s.partition_id = p.id
	group by q.id
$$;

-- All queues of a tenant by name.  p_stats false: no live numbers (zeros).
create or replace function queen.queue_list_v1(p_tenant uuid, p_stats boolean,
	p_now timestamptz default null)
returns table (status int, body text) language sql volatile as $$
	with ids as materialized (
		select array(select q.id from queen.queues q where q.tenant = p_tenant
			and q.deleted_at is null) v),
	counted as materialized (
		select p.queue_id, count(*) n from unnest((select v from ids)) u(id)
		join queen.partitions p on p.queue_id = u.id group by p.queue_id),
	summed as materialized (
		select d.queue_id, sum(d.total)::bigint total, sum(d.pending)::bigint pending,
			sum(d.processing)::bigint processing
		from queen.partition_depths_v1(p_tenant,
			case when p_stats then queen.queue_parts_v1(p_tenant,
				(select v from ids)) else '{}' end, p_now) d
		group by d.queue_id),
	kept as materialized (
		select * from queen.queue_retained_v1(p_tenant, case when p_stats
			then (select v from ids) else '{}' end))
	select 200, json_build_object('queues', coalesce(json_agg(json_build_object(
		'id', queen.wire_id_of_v1(c.tag, 1, q.id), 'name', q.name, 'namespace',
			q.namespace, 'task', q.task,
		'createdAt', queen.iso_ms_v1(q.created_at), 'partitions', coalesce(n.n, 0),
		'retainedBytes', coalesce(k.bytes, 0),
		'segments', json_build_object('segments', coalesce(k.segments, 0), 'messages',
			coalesce(s.total, 0)),
		'messages', json_build_object('total', coalesce(s.total, 0), 'pending',
			coalesce(s.pending, 0),
			'processing', coalesce(s.processing, 0)),
		'options', queen.queue_options(q)) order by q.name), '[]'))::text
	from queen.cell c
	join queen.queues q on q.tenant = p_tenant and q.deleted_at is null
	left join counted n on n.queue_id = q.id
	left join summed s on s.queue_id = q.id
	left join kept k on k.queue_id = q.id
$$;

-- One queue with its partitions (by name, the first 100 000) and totals over
-- all of them; 404 when there is none.
create or replace function queen.queue_get_v1(p_tenant uuid, p_name text,
	p_now timestamptz default null)
returns table (status int, body text) language plpgsql volatile as $$
declare
	q queen.queues;
	tag bigint := (select c.tag from queen.cell c);
	t record;
	kept record;
begin
	select * into q from queen.queues x where x.tenant = p_tenant and x.name = p_name
		and x.deleted_at is null;
	if not found then
		return query select 404, '{"error":"Queue not found"}'::text;
		return;
	end if;
	select coalesce(sum(d.total), 0) total, coalesce(sum(d.pending), 0) pending,
		coalesce(sum(d.processing), 0) processing,
		coalesce(sum(greatest(d.total - d.pending - d.dead, 0)), 0) completed,
			coalesce(sum(d.dead), 0) dead,
		coalesce(json_agg(json_build_object('id', queen.wire_id_of_v1(tag, 2, d.part),
			'name', d.name,
			'createdAt', queen.iso_ms_v1(d.created_at),
			'stats', queen.six_counts(d.total, d.pending, d.processing, d.dead),
			'oldestMessage', case when d.pending > 0 then queen.iso_ms_v1(
				queen.oldest_after(d.part,
					greatest(d.worst, d.log_start - 1))) end,
			'newestMessage', queen.iso_ms_v1(d.newest_at))
				order by d.name collate "C") filter (where d.nth <= 100000),
				'[]') parts
	into t
	from (select x.*, row_number() over (order by x.name collate "C") nth
		from queen.partition_depths_v1(p_tenant,
			queen.queue_parts_v1(p_tenant, array[q.id]), p_now) x) d;
	select coalesce(sum(r.segments), 0) segments, coalesce(sum(r.bytes), 0) bytes into kept
	from queen.queue_retained_v1(p_tenant, array[q.id]) r;
	return query select 200, json_build_object('id', queen.wire_id_of_v1(tag, 1, q.id),
		'name', q.name,
		'namespace', q.namespace, 'task', q.task, 'createdAt',
			queen.iso_ms_v1(q.created_at),
		'options', queen.queue_options(q), 'partitions', t.parts,
		'totals', json_build_object('total', t.total, 'pending', t.pending,
			'processing', t.processing,
			'completed', t.completed, 'failed', null, 'deadLetter', t.dead),
		'retainedBytes', kept.bytes,
		'segments', json_build_object('segments', kept.segments, 'messages',
			t.total))::text;
end $$;
