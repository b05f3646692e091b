-- SPDX-License-Identifier: Apache-2.0
-- The transaction: leases that must be live, pushes and acks, in the caller's
-- begin .. commit.  Queues and partitions were made before, by
-- partitions_ensure_v1 in a commit of its own: a rollback leaves them, empty.
--
-- bundle_v1.
--
-- Writes what push_v1 and ack_v1 write.  Lock order: heads of the partitions
-- pushed to, ascending; then consumer rows of leases and acks together,
-- ascending by (partition, group).  READ COMMITTED is assumed.

-- l_*: leases required to be live; then push_v1's arrays and ack_v1's.  a_strict:
-- an ack that names no lease rides on the row's live holder, which must be
-- among l_*; else it is refused as stale.
-- Rows: kind 0 = lease (verdict 0 live, 1 dead), kind 1 = push as push_v1, kind 2 = ack
-- as ack_v1 (base and blob with needs_frame).  A dead lease: only kind 0; a
-- push verdict other than 0: no kind 2.  The caller commits only when every
-- verdict is good, and rolls back else.
create or replace function queen.bundle_v1(p_tenant uuid, l_part bigint[],
	l_group bigint[], l_no bigint[], p_part bigint[], p_n int[],
	p_ids bytea[], p_raw int[], p_key smallint[], p_blob bytea[],
	p_verified bigint[], p_covered timestamptz[], s_seg int[], s_pos int[],
	s_lo bigint[], s_hi bigint[], a_group bigint[], a_part bigint[],
	a_at bigint[], a_group_at bigint[], a_no bigint[], a_ids bytea[],
	a_status bytea[], e_ack int[], e_item int[], e_text text[], f_ack int[],
	f_off bigint[], f_frame bytea[], f_at timestamptz[], d_id uuid[],
	a_strict boolean, p_now timestamptz default null)
returns table (kind int, ord int, verdict int, base bigint, at timestamptz,
	gap_base bigint, gap bytea, dup_pos int[], dup_off bigint[],
	committed bigint, dead bigint, dropped bigint, conflated bigint,
	more boolean, off bigint, blob bytea, items bytea)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz; l_live boolean[]; good boolean := true; n_locked bigint;
	n_at bigint[] := a_at; n_group_at bigint[] := a_group_at;
	n_no bigint[] := a_no;
begin
	if (cardinality(l_part) = cardinality(l_group)
			and cardinality(l_part) = cardinality(l_no)
			and cardinality(a_part) = cardinality(a_group)
			and cardinality(a_part) = cardinality(a_at)
			and cardinality(a_part) = cardinality(a_group_at)
			and cardinality(a_part) = cardinality(a_no)) is not true then
		raise exception 'queen.bundle_v1: arrays differ in length'
			using errcode = '22023';
	end if;

	if cardinality(l_part) > 0 or a_strict then
		-- consumers come after partitions in the order of locks
		if cardinality(p_part) > 0 then
			perform h.id from queen.partition_heads h
			where h.id = any (p_part) order by h.id for no key update;
		end if;
		with k as materialized (
			select r.part, r.grp
			from unnest(l_part, l_group, l_no) l(part, grp, no)
			cross join lateral queen.lease_rows(p_tenant, l.part, l.grp,
				l.no) r
			union
			select a.part, a.grp from unnest(a_part, a_group) a(part, grp)
			order by 1, 2
		)
		select count(c.committed) into n_locked
		from k cross join lateral (select c.committed
			from queen.consumers c
			where c.group_id = k.grp and c.partition_id = k.part
			order by c.gen desc limit 1 for no key update) c;
		t := coalesce(p_now, clock_timestamp());
		select array_agg(l.live order by l.ord) into l_live
		from queen.leases_live_v1(p_tenant, l_part, l_group, l_no, t) l;
		for kind, ord, verdict in
			select 0, l.ord::int, (not l.live)::int
			from unnest(l_live) with ordinality l(live, ord)
		loop
			return next;
		end loop;
		if false = any (l_live) then
			return;
		end if;
		if a_strict then
			select array_agg(case when a.no is not null then a.at
					else coalesce(c.at, -1) end order by a.ord),
				array_agg(case when a.no is not null then a.grp_at
					else coalesce(c.grp, -1) end order by a.ord),
				array_agg(case when a.no is not null then a.no
					else coalesce(c.no, -1) end order by a.ord)
			into n_at, n_group_at, n_no
			from unnest(a_part, a_group, a_at, a_group_at, a_no)
				with ordinality a(part, grp, at, grp_at, no, ord)
			left join lateral (select c.lease_at as at, c.lease_group as grp,
					c.lease_no as no, c.expires_at
				from queen.consumers c
				where c.group_id = a.grp and c.partition_id = a.part
					and a.no is null
				order by c.gen desc limit 1) c on c.expires_at > t
				and (c.at, c.grp, c.no) in (select l.part, l.grp, l.no
					from unnest(l_part, l_group, l_no) l(part, grp, no));
		end if;
	end if;

	-- a call for nothing costs as much as one message
	if cardinality(p_part) > 0 then
		for ord, verdict, base, at, gap_base, gap, dup_pos, dup_off in
			select p.* from queen.push_v1(p_tenant, p_part, p_n, p_ids,
				p_raw, p_key, p_blob, p_verified, p_covered, s_seg, s_pos,
				s_lo, s_hi, p_now) p
		loop
			kind := 1;
			good := good and verdict = 0;
			return next;
		end loop;
	end if;
	if not good or cardinality(a_part) = 0 then
		return;
	end if;

	at := null; gap_base := null; gap := null; dup_pos := null; dup_off := null;
	for ord, verdict, committed, dead, dropped, conflated, more, off, base, blob,
		items in
		select a.* from queen.ack_v1(p_tenant, a_group, a_part, n_at,
			n_group_at, n_no, a_ids, a_status, e_ack, e_item, e_text, f_ack,
			f_off, f_frame, f_at, d_id, p_now) a
		order by a.ord
	loop
		kind := 2;
		return next;
	end loop;
end $$;
