-- SPDX-License-Identifier: Apache-2.0
-- A constant sealed with each key that was ever used here, so that a process
-- with a wrong key is found out at boot and not by its first message.
--
--   seal_proofs_v1(key_id)          the newest constant, and that of this id
--   seal_prove_v1(key_id, box)      files one, unless its id has one
--
-- Writes queen.flags: one row `seal:ID` per key id, never changed.  Cell-wide:
-- no tenant.

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
