-- SPDX-License-Identifier: Apache-2.0
-- Reading one dead letter, before it is replayed.
--
-- dead_get_v1.
--
-- Writes nothing, takes no lock: dead_move_v1 looks again under its own.

-- The dead letter with this id: where it came from, and its frame (null when
-- retention had removed the message first).  No row: no such dead letter.
create or replace function queen.dead_get_v1(p_tenant uuid, p_id uuid)
returns table (queue text, partition text, group_name text, frame bytea)
language plpgsql volatile rows 1 as $$
#variable_conflict use_column
begin
	return query
	select q.name::text, p.name::text, d.group_name::text, d.frame
	from queen.dead_letters d
	join queen.queues q on q.id = d.queue_id and q.tenant = p_tenant
		and q.deleted_at is null
	join queen.partitions p on p.id = d.partition_id
	where d.id = p_id;
end $$;
