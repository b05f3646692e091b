-- SPDX-License-Identifier: Apache-2.0
-- The bundle of a source: messages and the pointer that covers them, in the
-- caller's begin .. commit.  Queues and partitions were made before, by
-- queue_resolve_v1 and partitions_ensure_v1 in commits of their own.
--
--   source_bundle_v1(...)    pointer, then segments
--   cell_key_v1()            with what transaction ids are hashed
--
-- Writes queen.kv and what push_v1 writes.  Lock order: the pointer's row, then
-- heads of partitions ascending.  READ COMMITTED is assumed.

-- The pointer moves from version p_expect (0: there is none) or nothing happens:
-- it is the fence, so ids are not looked at.  p_ends: where each round of segments
-- ends, counted from 1; within a round partitions strictly ascending, and the
-- segments of one partition are in order in as many rounds; none: the pointer
-- alone.  The rest is push_v1's.
-- One row.  verdict 0: written, version of the pointer; 1: another has moved it,
-- version and pointer are what is there; 2: a partition is gone; 4: a queue
-- takes sealed segments only; 5: pushes are suspended.  The caller commits only
-- after 0.  Raises what push_v1 raises, 22001 for a pointer too large.
create or replace function queen.source_bundle_v1(p_tenant uuid, p_key text,
	p_pointer text, p_expect bigint, p_ends int[], p_part bigint[], p_n int[],
	p_ids bytea[], p_raw int[], p_seal smallint[], p_blob bytea[],
	p_now timestamptz default null)
returns table (verdict int, version bigint, pointer text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	lo int := 1; hi int; k int;
begin
	if cardinality(p_ends) > 0 and exists (select from queen.flags f
			where f.key = 'maintenance_mode'
				and (f.value ->> 'enabled')::boolean) then
		return query select 5, null::bigint, null::text;
		return;
	end if;
	perform queen.kv_check_op(3, p_pointer::jsonb, coalesce(p_expect, -1),
		null, null);
	select w.verdict, w.version, w.value into verdict, version, pointer
	from queen.kv_put(p_tenant, 'queen-pg', p_key, p_pointer::jsonb, p_expect,
		null, coalesce(p_now, clock_timestamp())) w;
	if verdict = 0 then
		pointer := null;
		foreach hi in array p_ends loop
			k := hi - lo + 1;
			select coalesce(min(s.verdict), 0) into verdict
			from queen.push_v1(p_tenant, p_part[lo:hi], p_n[lo:hi],
				p_ids[lo:hi], p_raw[lo:hi], p_seal[lo:hi], p_blob[lo:hi],
				array_fill(null::bigint, array[k]),
				array_fill(null::timestamptz, array[k]), '{}', '{}', '{}',
				'{}', p_now) s
			where s.verdict <> 0;
			exit when verdict <> 0;
			lo := hi + 1;
		end loop;
	end if;
	return next;
end $$;

-- The key with which transaction ids are hashed, of the whole cell.
create or replace function queen.cell_key_v1()
returns bytea language sql stable as $$ select c.hash_key from queen.cell c $$;
