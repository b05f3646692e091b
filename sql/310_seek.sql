-- SPDX-License-Identifier: Apache-2.0
-- Moving the position of a consumer group by hand.
--
-- partition_seek_v1, group_seek_v1, group_delete_v1; inside: repair_note,
-- group_take, cursor_take.
--
-- Writes groups, consumers, repairs.  Lock order: queue row (for no key
-- update, so that two of these on one queue come one after the other), the
-- partition's head (for key share), groups, consumer row, the note last.
--
-- A seek of a whole queue and a delete write one group row, whatever the
-- number of partitions: a new id makes every cursor and lease of the old one
-- void, and rows of dead groups are purged elsewhere in steps.  The note is
-- written by the same transaction as the move, so a lost hint costs latency
-- only.  READ COMMITTED is assumed.

-- Inside: the note for the change scans.  Numbers follow the commits: the lock
-- is held from before the number is drawn until the commit, and nothing is
-- locked after it.
create or replace function queen.repair_note(p_queue bigint, p_group bigint,
	p_part bigint, p_now timestamptz)
returns void
language plpgsql volatile as $$
begin
	perform pg_advisory_xact_lock(hashtextextended('queen.repairs', 0));
	insert into queen.repairs (queue_id, group_id, partition_id, at)
	values (p_queue, p_group, p_part, p_now);
end $$;

-- Inside: the live group of a queue; registered when it does not exist (from
-- p_now on, the group-less group from the start).  The caller holds the queue
-- row, so that nobody else registers, moves or deletes it meanwhile.
create or replace function queen.group_take(p_queue bigint, p_name text,
	p_now timestamptz)
returns queen.groups
language plpgsql volatile as $$
declare
	g queen.groups;
	l_all boolean := p_name = '__QUEUE_MODE__';
begin
	select x.* into g from queen.groups x
	where x.queue_id = p_queue and x.name = p_name collate "C"
		and x.deleted_at is null;
	if not found then
		insert into queen.groups as x (queue_id, name, mode,
			subscribed_at, start_at, created_at)
		values (p_queue, p_name, case when l_all then 'all' else 'new' end,
			case when l_all then 'epoch' else p_now end,
			case when not l_all then p_now end, p_now)
		returning x.* into g;
	end if;
	return g;
end $$;

-- Inside: the row of a cursor, locked.  Null: there is none, and nobody makes
-- one until we commit (creators take the same lock and look again).
create or replace function queen.cursor_take(p_part bigint, p_group bigint)
returns tid
language plpgsql volatile as $$
declare
	l_row tid;
begin
	for i in 1 .. 2 loop
		select c.ctid into l_row from queen.consumers c
		where c.group_id = p_group and c.partition_id = p_part
		order by c.gen desc limit 1
		for no key update;
		exit when found or i = 2;
		perform pg_advisory_xact_lock(hashint8extended(p_part, p_group));
	end loop;
	return l_row;
end $$;

-- Sets one cursor: p_to end, timestamp (the first message at or after p_at is
-- next) or offset (p_offset is next; clamped to what is there).  Ends the
-- lease, resets budget and attempts, registers the group and makes the row
-- when missing.  Verdict 0 done, 1 no such queue or partition.
create or replace function queen.partition_seek_v1(p_tenant uuid,
	p_group text, p_queue text, p_partition text, p_to text,
	p_at timestamptz, p_offset bigint, p_now timestamptz default null)
returns table (verdict int, queue_id bigint, group_id bigint, part bigint,
	committed bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_queue bigint; l_part bigint; l_row tid; l_start bigint; l_last bigint;
	l_to bigint; l_group bigint;
begin
	if (p_to = 'end' or p_to = 'timestamp' and p_at is not null
			or p_to = 'offset' and p_offset >= 0) is not true then
		raise exception 'queen.partition_seek_v1: no target'
			using errcode = '22023';
	end if;
	select q.id into l_queue from queen.queues q
	where q.tenant = p_tenant and q.name = p_queue collate "C"
		and q.deleted_at is null
	for no key update;
	select p.id into l_part from queen.partitions p
	where p.queue_id = l_queue and p.name = p_partition collate "C";
	perform from queen.partition_heads h where h.id = l_part for key share;
	if not found then
		return query select 1, null::bigint, null::bigint, null::bigint,
			null::bigint;
		return;
	end if;
	l_group := (queen.group_take(l_queue, p_group, t)).id;
	l_row := queen.cursor_take(l_part, l_group);

	select h.log_start into l_start from queen.partition_heads h
	where h.id = l_part;
	select s.end_offset into l_last from queen.segments s
	where s.partition_id = l_part order by s.base_offset desc limit 1;
	l_last := coalesce(l_last, l_start - 1);
	l_to := case p_to when 'end' then l_last
		when 'offset' then greatest(least(p_offset - 1, l_last), l_start - 1)
		else queen.offset_before(l_part, l_queue, p_at) end;
	if l_row is null then
		insert into queen.consumers (group_id, partition_id, committed)
		values (l_group, l_part, l_to);
	else
		update queen.consumers c set
			gen = c.gen + ((c.turn & 31) = 31)::int, turn = c.turn + 1,
			committed = l_to, batch_end = null, lease_at = null,
			lease_group = null, lease_no = null, last_lease_at = null,
			last_lease_no = null, expires_at = null, acquired_at = null,
			retries = 0, attempt_offset = null, attempts = 0,
			conflated = false
		where c.ctid = l_row;
	end if;
	perform queen.repair_note(l_queue, l_group, l_part, t);
	return query select 0, l_queue, l_group, l_part, l_to;
end $$;

-- Moves a group on all partitions of a queue, those to come included: p_to end
-- or timestamp (the first message at or after p_at is next; a time to come
-- means now).  The group gets a new id, which ends its leases and is the one
-- in the note; registered when missing.  partitions = how many the queue has.
-- Verdict 0 done, 1 no such queue, or it has no partitions.
create or replace function queen.group_seek_v1(p_tenant uuid, p_group text,
	p_queue text, p_to text, p_at timestamptz,
	p_now timestamptz default null)
returns table (verdict int, queue_id bigint, group_id bigint,
	old_group_id bigint, partitions bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz;
	l_queue bigint; l_n bigint; l_new bigint; g queen.groups;
begin
	if (p_to = 'end' or p_to = 'timestamp' and p_at is not null) is not true
	then
		raise exception 'queen.group_seek_v1: no target'
			using errcode = '22023';
	end if;
	select q.id into l_queue from queen.queues q
	where q.tenant = p_tenant and q.name = p_queue collate "C"
		and q.deleted_at is null
	for no key update;
	select count(*) into l_n from queen.partitions p
	where p.queue_id = l_queue;
	if l_n = 0 then
		return query select 1, null::bigint, null::bigint, null::bigint,
			null::bigint;
		return;
	end if;
	t := coalesce(p_now, clock_timestamp());
	g := queen.group_take(l_queue, p_group, t);
	-- after all waits: what committed before is stamped before
	t := coalesce(p_now, clock_timestamp());
	update queen.groups x set deleted_at = t where x.id = g.id;
	insert into queen.groups as x (queue_id, name, mode, subscribed_at,
		start_at, conflated, created_at)
	values (l_queue, p_group, g.mode, g.subscribed_at,
		case p_to when 'end' then t else least(p_at, t) end,
		g.conflated, g.created_at)
	returning x.id into l_new;
	perform queen.repair_note(l_queue, l_new, null, t);
	return query select 0, l_queue, l_new, g.id, l_n;
end $$;

-- Deletes a group on one queue (p_queue null: on all of the tenant).  With
-- p_metadata the next contact is a first one; without, the group begins again
-- where its stored subscription says.  Dead letters stay.  One row per queue:
-- the id that is dead now, and how many cursors it had.  The notes name the
-- dead ids and those that follow them.
create or replace function queen.group_delete_v1(p_tenant uuid,
	p_group text, p_queue text, p_metadata boolean,
	p_now timestamptz default null)
returns table (queue_id bigint, group_id bigint, partitions bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_queue bigint[]; l_dead bigint[]; l_next bigint[];
begin
	select array_agg(x.id) into l_queue
	from (select q.id from queen.queues q
		cross join lateral (select from queen.groups g
			where g.queue_id = q.id and g.name = p_group collate "C"
				and g.deleted_at is null limit 1) g
		where q.tenant = p_tenant and q.deleted_at is null
			and (p_queue is null or q.name = p_queue collate "C")
		order by q.id for no key update of q) x;
	-- looked up again now that the queues are ours: a seek may have come first
	with dead as (
		update queen.groups g set deleted_at = t
		where g.queue_id = any (l_queue) and g.name = p_group collate "C"
			and g.deleted_at is null
		returning g.id
	)
	select array_agg(d.id order by d.id) into l_dead from dead d;
	if not p_metadata then
		with next as (
			insert into queen.groups (queue_id, name, mode,
				subscribed_at, start_at, conflated, created_at)
			select g.queue_id, g.name, g.mode, g.subscribed_at,
				case when g.mode <> 'all' then g.subscribed_at end,
				g.conflated, g.created_at
			from queen.groups g where g.id = any (l_dead)
			order by g.queue_id
			returning id
		)
		select array_agg(n.id) into l_next from next n;
	end if;
	return query
	select g.queue_id, g.id, (select count(*) from queen.consumers c
		where c.group_id = g.id)
	from queen.groups g where g.id = any (l_dead)
	order by g.queue_id;
	perform queen.repair_note(g.queue_id, g.id, null, t)
	from queen.groups g where g.id = any (l_dead || l_next)
	order by g.id;
end $$;
