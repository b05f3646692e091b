-- SPDX-License-Identifier: Apache-2.0
-- Replay: a dead letter becomes a message again, in one commit.
--
-- dead_move_v1.
--
-- Writes what push_v1 writes, and dead_letters.  Lock order: the head of the
-- destination, then the dead letter.  READ COMMITTED is assumed.

-- Moves dead letter p_id to the end of p_part as the one-message segment given; p_ids
-- is the hash of its new id, sought in the whole window of the destination.
-- Verdicts: 0 moved (base, at; the row is gone), 1 duplicate (the row stays),
-- 2 no such dead letter, 3 no such partition, 4 encryption_required.
create or replace function queen.dead_move_v1(p_tenant uuid, p_id uuid,
	p_part bigint, p_ids bytea, p_raw int, p_key smallint, p_blob bytea,
	p_now timestamptz default null)
returns table (verdict int, base bigint, at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	c_all constant bigint := 9223372036854775806;
	r record;
begin
	perform h.id from queen.partition_heads h
	where h.id = p_part and p_tenant = (select q.tenant from queen.queues q
		where q.id = h.queue_id and q.deleted_at is null)
	for no key update;
	if not found then
		return query select 3, null::bigint, null::timestamptz;
		return;
	end if;
	perform d.id from queen.dead_letters d
	where d.id = p_id and p_tenant = (select q.tenant from queen.queues q
		where q.id = d.queue_id)
	for update;
	if not found then
		return query select 2, null::bigint, null::timestamptz;
		return;
	end if;
	-- all is vouched for but this one id: a suspect over the whole window
	select * into r from queen.push_v1(p_tenant, array[p_part], array[1],
		array[p_ids], array[p_raw], array[p_key], array[p_blob], array[c_all],
		array['-infinity'::timestamptz], array[1], array[0],
		array[0::bigint], array[c_all], p_now);
	if r.verdict = 0 then
		delete from queen.dead_letters d where d.id = p_id;
	end if;
	return query select case when r.verdict = 2 then 3 else r.verdict end,
		r.base, r.at;
end $$;
