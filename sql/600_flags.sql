-- SPDX-License-Identifier: Apache-2.0
-- Switches of the cell: maintenance_mode, pop_maintenance_mode, kv_enabled,
-- timers_schedule_enabled, timers_fire_enabled.
--
--   flags_read_v1()                 every flag that was ever set
--   flag_set_v1(key, enabled)       sets one
--
-- Writes queen.flags, one row at a time.  Cell-wide: no tenant.

-- All flags.  Rows (key, enabled).  A flag without a row has its default.
create or replace function queen.flags_read_v1()
returns table (key text, enabled boolean)
language sql stable as $$
	select f.key, coalesce((f.value ->> 'enabled')::boolean, false)
	from queen.flags f order by f.key;
$$;

-- Sets a flag; locks its row.  Returns nothing.
create or replace function queen.flag_set_v1(p_key text, p_enabled boolean)
returns void
language sql volatile as $$
	insert into queen.flags (key, value)
	values (p_key, jsonb_build_object('enabled', p_enabled))
	on conflict (key) do update set value = excluded.value,
		changed_at = clock_timestamp();
$$;
