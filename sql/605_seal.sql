-- SPDX-License-Identifier: Apache-2.0
-- A constant sealed with each key that was ever used here, so that a process
-- with a wrong key is found out at boot and not by its first message; and what
-- consumers do not get because it cannot be opened.
--
--   seal_proofs_v1(key_id)          the newest constant, and that of this id
--   seal_prove_v1(key_id, box)      files one, unless its id has one
--   seal_block_v1(...)              files that a message cannot be opened
--   seal_blocks_v1(tenant)          what was filed within ten minutes
--   lease_return_v1(...)            gives back a lease as if it never was
--
-- Writes queen.flags (`seal:ID` per key id, never changed; `blocked:QUEUE:ID`,
-- gone after a day) and consumers, lease_sets.  Locks consumer rows as
-- lease_extend_v1 does.  Proofs are cell-wide: no tenant.

-- Rows (key_id, newest, box): the constant filed last, and the one of
-- p_key_id; one row when that is the same.
create or replace function queen.seal_proofs_v1(p_key_id int)
returns table (key_id int, newest boolean, box bytea)
language sql stable as $$
	select s.id, s.nth = 1, decode(s.value ->> 'box', 'hex')
	from (select substr(f.key, 6)::int id, f.value,
			row_number() over (order by f.changed_at desc, f.key) nth
		from queen.flags f where f.key like 'seal:%') s
	where s.nth = 1 or s.id = p_key_id;
$$;

-- Files the constant of a key; the first one of an id stays.
create or replace function queen.seal_prove_v1(p_key_id int, p_box bytea)
returns void
language sql volatile as $$
	insert into queen.flags (key, value) values ('seal:' || p_key_id,
		jsonb_build_object('box', encode(p_box, 'hex')))
	on conflict (key) do nothing;
$$;

-- Files the newest message of a queue that a process could not open: its key is not
-- there, or (p_damaged) it is, but the message does not open with it.  Nothing for
-- another tenant's queue.  Locks that one row.
create or replace function queen.seal_block_v1(p_tenant uuid, p_queue bigint,
	p_part bigint, p_key int, p_offset bigint, p_damaged boolean,
	p_instance text, p_now timestamptz default null)
returns void
language sql volatile as $$
	with t as (select coalesce(p_now, clock_timestamp()) as now), old as (
		delete from queen.flags f where f.ctid = any (array(
			select x.ctid from queen.flags x, t
			where x.key like 'blocked:%'
				and x.changed_at < t.now - interval '1 day'
				and x.key <> format('blocked:%s:%s', p_queue, p_key)
			for update of x skip locked)))
	insert into queen.flags as f (key, value, changed_at)
	select format('blocked:%s:%s', p_queue, p_key), jsonb_build_object(
		'queue', p_queue, 'part', p_part, 'key', p_key, 'offset', p_offset,
		'damaged', p_damaged, 'instance', p_instance), t.now
	from t where exists (select 1 from queen.queues q where q.id = p_queue
		and q.tenant = p_tenant and q.deleted_at is null)
	on conflict (key) do update set value = excluded.value,
		changed_at = excluded.changed_at
	where f.changed_at <= excluded.changed_at;
$$;

-- What seal_block_v1 filed within ten minutes and a group has still to get past,
-- of a tenant (null: of all), a row per queue and key id.  No locks.
create or replace function queen.seal_blocks_v1(p_tenant uuid,
	p_now timestamptz default null)
returns table (queue_id bigint, queue text, partition text, key_id int,
	off bigint, damaged boolean, instance text, seen_at timestamptz)
language sql volatile as $$
	select q.id, q.name, p.name, (f.value ->> 'key')::int,
		(f.value ->> 'offset')::bigint, (f.value ->> 'damaged')::boolean,
		f.value ->> 'instance', f.changed_at
	from queen.flags f
	join queen.queues q on q.id = (f.value ->> 'queue')::bigint
		and q.deleted_at is null and (p_tenant is null or q.tenant = p_tenant)
	join queen.partitions p on p.id = (f.value ->> 'part')::bigint
	where f.key like 'blocked:%' and f.changed_at
			> coalesce(p_now, clock_timestamp()) - interval '10 minutes'
		and exists (select from queen.groups g
			left join lateral (select c.committed from queen.consumers c
				where c.group_id = g.id and c.partition_id = p.id
				order by c.gen desc limit 1) c on true
			where g.queue_id = q.id and g.deleted_at is null
				and coalesce(c.committed, -1)
					< (f.value ->> 'offset')::bigint)
	order by q.name, q.id, 4;
$$;

-- What was filed about a queue goes with it.
create or replace function queen.seal_forget(p_queue bigint)
returns void
language sql volatile as $$
	delete from queen.flags f
	where starts_with(f.key, format('blocked:%s:', p_queue));
$$;

-- Gives back what a live lease holds, of which nothing was delivered: cursor, retries
-- and attempts are as before its pop.  A row per partition; none: it is not live.
create or replace function queen.lease_return_v1(p_tenant uuid, p_part bigint,
	p_group bigint, p_no bigint, p_now timestamptz default null)
returns table (queue_id bigint, part bigint, grp bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	l_row tid[] := queen.lease_lock(p_tenant, p_part, p_group, p_no);
	t timestamptz := coalesce(p_now, clock_timestamp());
begin
	return query
	with u as (
		update queen.consumers c set
			gen = c.gen + ((c.turn & 31) = 31)::int, turn = c.turn + 1,
			batch_end = null, lease_at = null, lease_group = null,
			lease_no = null, expires_at = null, conflated = false,
			attempts = greatest(c.attempts - 1, 0)
		from unnest(l_row) l(row)
		where c.ctid = l.row and c.lease_at = p_part
			and c.lease_group = p_group and c.lease_no = p_no
			and c.expires_at > t
		returning c.partition_id, c.group_id
	), s as (
		delete from queen.lease_sets s where s.lease_at = p_part
			and s.lease_group = p_group and s.lease_no = p_no
			and exists (select 1 from u)
	)
	select g.queue_id, u.partition_id, u.group_id
	from u cross join lateral (select g.queue_id from queen.groups g
		where g.id = u.group_id limit 1) g
	order by 2, 3;
end $$;
