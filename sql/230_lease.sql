-- SPDX-License-Identifier: Apache-2.0
-- Leases found by their id: its three parts name the first partition, its group
-- and a random number; lease_sets lists the partitions of a lease that has
-- several.  A lease lives while one of its consumer rows is held by it.
--
-- lease_extend_v1, leases_live_v1, lease_sweep_v1; inside: lease_rows, lease_lock.
--
-- Writes consumers, lease_sets.  Locks consumer rows ascending by (partition,
-- group), as acks do.  READ COMMITTED is assumed: rows are locked in one
-- statement and changed, by ctid, in the next.

-- Inside: the (partition, group) pairs a lease may hold, ascending; nothing
-- for another tenant's, nor for a group that a seek or a delete has ended.
create or replace function queen.lease_rows(p_tenant uuid, p_part bigint,
	p_group bigint, p_no bigint)
returns table (part bigint, grp bigint)
language plpgsql volatile rows 10 as $$
#variable_conflict use_column
begin
	if p_tenant is distinct from (select q.tenant from queen.queues q
			where q.id = (select g.queue_id from queen.groups g
				where g.id = p_group)) then
		return;
	end if;
	return query
	select u.part, u.grp from queen.lease_sets s
	cross join lateral unnest(s.parts, s.groups) u(part, grp)
	cross join lateral (select true as live from queen.groups g
		where g.id = u.grp and g.deleted_at is null limit 1) g
	where s.lease_at = p_part and s.lease_group = p_group
		and s.lease_no = p_no
	order by 1, 2;
	if not found then
		return query select p_part, p_group from queen.groups g
		where g.id = p_group and g.deleted_at is null;
	end if;
end $$;

-- The rows a lease may hold, locked in the order (partition, group); null: none.
create or replace function queen.lease_lock(p_tenant uuid, p_part bigint,
	p_group bigint, p_no bigint)
returns tid[]
language plpgsql volatile as $$
declare
	l_row tid[];
begin
	with k as materialized (
		select r.part, r.grp from queen.lease_rows(p_tenant, p_part, p_group,
			p_no) r order by r.part, r.grp
	)
	select array_agg(c.row) into l_row
	from k cross join lateral (select c.ctid as row
		from queen.consumers c
		where c.group_id = k.grp and c.partition_id = k.part
		order by c.gen desc limit 1 for no key update) c;
	return l_row;
end $$;

-- Renews what a lease still holds: expiry = max(old, now + p_secs), p_secs at least
-- 1.  renewed 0 and no time: unknown, expired, released or another tenant's;
-- else the earliest expiry of the renewed rows.
create or replace function queen.lease_extend_v1(p_tenant uuid, p_part bigint,
	p_group bigint, p_no bigint, p_secs int, p_now timestamptz default null)
returns table (renewed int, expires_at timestamptz)
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
			expires_at = greatest(c.expires_at,
				t + make_interval(secs => greatest(p_secs, 1)))
		from unnest(l_row) l(row)
		where c.ctid = l.row and c.lease_at = p_part
			and c.lease_group = p_group and c.lease_no = p_no
			and c.expires_at > t
		returning c.expires_at
	), s as (
		update queen.lease_sets s set expires_at = greatest(s.expires_at,
			(select max(u.expires_at) from u))
		where s.lease_at = p_part and s.lease_group = p_group
			and s.lease_no = p_no and exists (select 1 from u)
	)
	select count(*)::int, min(u.expires_at) from u;
end $$;

-- Which leases are live now.  No locks: bundle_v1 looks again under them.
create or replace function queen.leases_live_v1(p_tenant uuid, p_part bigint[],
	p_group bigint[], p_no bigint[], p_now timestamptz default null)
returns table (ord int, live boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
begin
	if (cardinality(p_part) = cardinality(p_group)
			and cardinality(p_part) = cardinality(p_no)) is not true then
		raise exception 'queen.leases_live_v1: arrays differ in length'
			using errcode = '22023';
	end if;
	return query
	select l.ord::int, exists (select 1
		from queen.lease_rows(p_tenant, l.part, l.grp, l.no) r
		cross join lateral (select c.lease_at, c.lease_group, c.lease_no,
				c.expires_at
			from queen.consumers c
			where c.group_id = r.grp and c.partition_id = r.part
			order by c.gen desc limit 1) c
		where c.lease_at = l.part and c.lease_group = l.grp
			and c.lease_no = l.no and c.expires_at > t)
	from unnest(p_part, p_group, p_no) with ordinality l(part, grp, no, ord)
	order by l.ord;
end $$;

-- Removes the lists of leases that ended ten minutes ago, at most p_limit;
-- returns how many.  Waits for nobody.
create or replace function queen.lease_sweep_v1(p_limit int,
	p_now timestamptz default null)
returns int
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	n int;
begin
	delete from queen.lease_sets s where s.ctid = any (array(
		select d.ctid from queen.lease_sets d
		where d.expires_at < t - interval '10 minutes'
		order by d.expires_at limit p_limit for update skip locked));
	get diagnostics n = row_count;
	return n;
end $$;
