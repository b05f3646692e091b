-- SPDX-License-Identifier: Apache-2.0
-- How ids and times look outside: the SQL twin of lib/qid.h and lib/clk.h.
--
-- Functions: wire_id_of_v1, wire_id_v1, wire_lease_v1, iso_ms_v1, iso_us_v1.
-- Tables written: none.  Locks: none.

-- A queue (kind 1) or partition (kind 2) id for a given cell tag; set-based
-- callers read the tag once and call this, which the planner inlines.
create or replace function queen.wire_id_of_v1(p_tag bigint, p_kind int, p_id bigint)
returns uuid language sql immutable parallel safe as $$
	select (lpad(to_hex(p_tag), 12, '0') || '8' || to_hex(p_kind) || '00'
		|| to_hex((1::bigint << 63) | p_id))::uuid
$$;

-- The same with this cell's tag.
create or replace function queen.wire_id_v1(p_kind int, p_id bigint)
returns uuid language sql stable parallel safe as $$
	select queen.wire_id_of_v1(c.tag, p_kind, p_id) from queen.cell c
$$;

-- A lease id: 46 bits partition, 34 bits group, 42 bits number, in order
-- through the 122 bits that version and variant leave free.
create or replace function queen.wire_lease_v1(p_part bigint, p_group bigint, p_no bigint)
returns uuid language sql immutable parallel safe as $$
	select (lpad(to_hex((substring(b.v, 1, 48) || B'1000'
		|| substring(b.v, 49, 12))::bit(64)::bigint), 16, '0')
		|| lpad(to_hex((B'10' || substring(b.v, 61, 62))::bit(64)::bigint), 16,
			'0'))::uuid
	from (select p_part::bit(46) || p_group::bit(34) || p_no::bit(42) as v) b
$$;

-- ISO 8601 in UTC whatever the session's zone; null and infinities are null.
create or replace function queen.iso_ms_v1(p_at timestamptz)
returns text language sql stable parallel safe as $$
	select case when isfinite(p_at) then to_char(p_at at time zone 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') end
$$;

create or replace function queen.iso_us_v1(p_at timestamptz)
returns text language sql stable parallel safe as $$
	select case when isfinite(p_at) then to_char(p_at at time zone 'UTC',
		'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') end
$$;
