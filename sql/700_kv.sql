-- SPDX-License-Identifier: Apache-2.0
-- Key/value state: one row per (tenant, namespace, key) with a version that
-- grows with every write of its key, and a lifetime.
--
--   kv_apply_v1(...)        the operations of a call or of a transaction
--   kv_one_v1(...)          a call of one operation on one key
--   kv_settle_v1(...)       what a key is once nobody holds it
--   kv_list_v1(...)         a page of one namespace, for people
--   kv_namespaces_v1(...)   the namespaces of a tenant and their keys
--   kv_expire_step_v1(...)  removes rows whose lifetime is over
--   kv_live_v1 kv_ver_v1 kv_num_v1 kv_prefix_end_v1 kv_check_names_v1
--                           the one definition of each rule
--
-- Writes queen.kv.  Lock order: rows ascending by (namespace, key), before any
-- timer, partition or consumer row; the sweeper skips what is locked.

-- Equality of versions is what `expect` tests; their order is the fence: cache
-- 1, and a version is drawn only by who holds the row.
create sequence if not exists queen.kv_version as bigint cache 1;

create table if not exists queen.kv (
	tenant uuid not null,
	namespace text collate "C" not null,
	key text collate "C" not null,
	value jsonb not null,
	version bigint not null,
	expires_at timestamptz,			-- null = forever; dead at this very instant
	shard smallint not null generated always as
		((hashtextextended(key, 0) & 63)::smallint) stored,
	created_at timestamptz not null,	-- of this life: a dead row that is written again restarts it
	updated_at timestamptz not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
create index if not exists kv_expiry on queen.kv (shard, expires_at)
	where expires_at is not null;
do $$ begin
	if to_regclass('queen.kv_pkey') is null then
		alter table queen.kv add primary key (tenant, namespace, key);
	end if;
end $$;

-- Is a row live?  True or false, whatever the arguments.
create or replace function queen.kv_live_v1(p_expires timestamptz, p_at timestamptz)
returns boolean language sql immutable parallel safe as $$
	select coalesce(p_expires > p_at, p_expires is null)
$$;

-- The version a caller may expect: 0 for an absent or dead row.
create or replace function queen.kv_ver_v1(p_version bigint, p_expires timestamptz,
	p_at timestamptz)
returns bigint language sql immutable parallel safe as $$
	select case when queen.kv_live_v1(p_expires, p_at)
		then coalesce(p_version, 0) else 0 end
$$;

-- The number an incr starts from: 0 for what is absent, dead or no number.
create or replace function queen.kv_num_v1(p_value jsonb, p_expires timestamptz,
	p_at timestamptz)
returns numeric language sql immutable parallel safe as $$
	select case when jsonb_typeof(p_value) = 'number'
			and queen.kv_live_v1(p_expires, p_at)
		then p_value::numeric else 0 end
$$;

-- The least text above every text with this prefix, or null when there is
-- none.  Drives the index only; starts_with decides.
create or replace function queen.kv_prefix_end_v1(p_prefix text)
returns text language sql immutable parallel safe as $$
	select case
		when s.p = '' then null
		when ascii(right(s.p, 1)) = 55295	-- over the surrogates
			then left(s.p, -1) || chr(57344)
		else left(s.p, -1) || chr(ascii(right(s.p, 1)) + 1) end
	from (select rtrim(p_prefix, chr(1114111)) as p) s
$$;

-- Raises 22023 (kv_bad_namespace, kv_bad_key) or 22001 (kv_key_too_large).
create or replace function queen.kv_check_names_v1(p_ns text, p_key text)
returns void
language plpgsql immutable as $$
begin
	if (p_ns ~ '^[a-z0-9][a-z0-9._-]{0,63}$') is not true then
		raise exception 'kv_bad_namespace' using errcode = '22023',
			detail = 'a namespace matches [a-z0-9][a-z0-9._-]{0,63}';
	elsif (p_key <> '') is not true then
		raise exception 'kv_bad_key' using errcode = '22023',
			detail = 'a key is a text that is not empty';
	elsif octet_length(p_key) > 512 then
		raise exception 'kv_key_too_large' using errcode = '22001',
			detail = 'a key has at most 512 bytes';
	end if;
end $$;

-- One put.  verdict 0 with the stored value, or 1 with the reason and what is
-- there.  An absent key first gets a placeholder, so that the version is drawn
-- under the lock; a loser of expect 0 holds the row, others lock nothing.
create or replace function queen.kv_put(p_tenant uuid, p_ns text, p_key text,
	p_value jsonb, p_expect bigint, p_expires timestamptz, p_at timestamptz,
	out verdict int, out reason text, out value text, out version bigint)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	verdict := 0;
	value := p_value::text;
	if coalesce(p_expect, 0) = 0 then
		insert into queen.kv as k (tenant, namespace, key, value, version,
			expires_at, created_at, updated_at)
		values (p_tenant, p_ns, p_key, p_value, 0, p_expires, p_at, p_at)
		on conflict (tenant, namespace, key) do update set
			value = excluded.value, version = nextval('queen.kv_version'),
			expires_at = excluded.expires_at, updated_at = p_at,
			created_at = case when queen.kv_live_v1(k.expires_at, p_at)
				then k.created_at else p_at end
		where p_expect is null or not queen.kv_live_v1(k.expires_at, p_at)
		returning k.version into version;
		if version = 0 then
			update queen.kv k set version = nextval('queen.kv_version')
			where k.tenant = p_tenant and k.namespace = p_ns
				and k.key = p_key
			returning k.version into version;
		elsif version is null then
			verdict := 1;
			reason := 'exists';
			select k.value::text, k.version into value, version
			from queen.kv k where k.tenant = p_tenant
				and k.namespace = p_ns and k.key = p_key;
		end if;
		return;
	end if;
	loop
		-- who waited for another writer gets the expression evaluated again
		update queen.kv k set value = p_value, expires_at = p_expires,
			updated_at = p_at, version = nextval('queen.kv_version')
		where k.tenant = p_tenant and k.namespace = p_ns and k.key = p_key
			and k.version = p_expect
			and queen.kv_live_v1(k.expires_at, p_at)
		returning k.version into version;
		exit when found;
		select f.reason, f.value, f.version into reason, value, version
		from queen.kv_why_lost(p_tenant, p_ns, p_key, p_expect, p_at) f;
		if reason is not null then
			verdict := 1;
			return;
		end if;
		value := p_value::text;
	end loop;
end $$;

-- Why a write that expected a version found no row, and what is there.  No
-- reason: the row has become what was expected, the caller tries again.
create or replace function queen.kv_why_lost(p_tenant uuid, p_ns text, p_key text,
	p_expect bigint, p_at timestamptz,
	out reason text, out value text, out version bigint)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	select k.value::text, k.version into value, version from queen.kv k
	where k.tenant = p_tenant and k.namespace = p_ns and k.key = p_key
		and queen.kv_live_v1(k.expires_at, p_at);
	if not found then
		reason := 'absent';
		version := 0;
	elsif version <> p_expect then
		reason := 'version';
	end if;
end $$;

-- One delete.  verdict and reason as kv_put; applied with what was removed.  A
-- dead row is removed but counts as absent.  Of p_expect 0 nothing is locked: it
-- tells what was, and guards nothing until the commit.
create or replace function queen.kv_delete(p_tenant uuid, p_ns text, p_key text,
	p_expect bigint, p_at timestamptz,
	out verdict int, out reason text, out value text, out version bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	l_expires timestamptz;
begin
	verdict := 0;
	if p_expect = 0 then
		select k.value::text, k.version into value, version from queen.kv k
		where k.tenant = p_tenant and k.namespace = p_ns and k.key = p_key
			and queen.kv_live_v1(k.expires_at, p_at);
		if found then
			verdict := 1;
			reason := 'exists';
		end if;
		version := coalesce(version, 0);
		return;
	elsif p_expect is null then
		delete from queen.kv k
		where k.tenant = p_tenant and k.namespace = p_ns and k.key = p_key
		returning k.value::text, k.version, k.expires_at
		into value, version, l_expires;
		if not found or not queen.kv_live_v1(l_expires, p_at) then
			verdict := 1;
			reason := 'absent';
			value := null;
			version := 0;
		end if;
		return;
	end if;
	loop
		delete from queen.kv k
		where k.tenant = p_tenant and k.namespace = p_ns and k.key = p_key
			and k.version = p_expect
			and queen.kv_live_v1(k.expires_at, p_at)
		returning k.value::text, k.version into value, version;
		exit when found;
		select f.reason, f.value, f.version into reason, value, version
		from queen.kv_why_lost(p_tenant, p_ns, p_key, p_expect, p_at) f;
		if reason is not null then
			verdict := 1;
			return;
		end if;
	end loop;
end $$;

-- One incr.  verdict and reason as kv_put.  The lifetime is the first writer's:
-- a live counter keeps it.  Locks the row also when it loses.
create or replace function queen.kv_incr(p_tenant uuid, p_ns text, p_key text,
	p_delta numeric, p_min numeric, p_max numeric, p_expires timestamptz,
	p_at timestamptz,
	out verdict int, out reason text, out value text, out version bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	outside boolean := coalesce(p_delta < p_min, false)
		or coalesce(p_delta > p_max, false);
	l_value jsonb; l_expires timestamptz;
begin
	verdict := 0;
	insert into queen.kv as k (tenant, namespace, key, value, version,
		expires_at, created_at, updated_at)
	select p_tenant, p_ns, p_key, to_jsonb(trim_scale(p_delta)), 0, p_expires,
		p_at, p_at
	where not outside or exists (select from queen.kv k
		where k.tenant = p_tenant and k.namespace = p_ns and k.key = p_key)
	on conflict (tenant, namespace, key) do update set
		value = to_jsonb(trim_scale(queen.kv_num_v1(k.value, k.expires_at,
			p_at) + p_delta)),
		version = nextval('queen.kv_version'), updated_at = p_at,
		expires_at = case when queen.kv_live_v1(k.expires_at, p_at)
			then k.expires_at else p_expires end,
		created_at = case when queen.kv_live_v1(k.expires_at, p_at)
			then k.created_at else p_at end
	where (jsonb_typeof(k.value) = 'number'
			or not queen.kv_live_v1(k.expires_at, p_at))
		and coalesce(queen.kv_num_v1(k.value, k.expires_at, p_at)
			+ p_delta >= p_min, true)
		and coalesce(queen.kv_num_v1(k.value, k.expires_at, p_at)
			+ p_delta <= p_max, true)
	returning k.value::text, k.version into value, version;
	if version = 0 and not outside then
		update queen.kv k set version = nextval('queen.kv_version')
		where k.tenant = p_tenant and k.namespace = p_ns and k.key = p_key
		returning k.version into version;
	elsif version = 0 then
		-- the row that was seen went before it could be locked
		delete from queen.kv k
		where k.tenant = p_tenant and k.namespace = p_ns and k.key = p_key;
		version := null;
	end if;
	if version is null then
		verdict := 1;
		select k.value, k.version, k.expires_at
		into l_value, version, l_expires from queen.kv k
		where k.tenant = p_tenant and k.namespace = p_ns and k.key = p_key;
		version := queen.kv_ver_v1(version, l_expires, p_at);
		reason := case when version = 0 or jsonb_typeof(l_value) = 'number'
			then 'limit' else 'type' end;
		value := trim_scale(queen.kv_num_v1(l_value, l_expires, p_at))::text;
	end if;
end $$;

-- Raises what is wrong with one operation: 22023 with the reason as message,
-- 22001 for sizes.  Names are checked by kv_check_names_v1.
create or replace function queen.kv_check_op(p_op int, p_value jsonb, p_expect bigint,
	p_ttl_s bigint, p_delta text)
returns void
language plpgsql immutable as $$
begin
	if (p_op between 0 and 5) is not true then
		raise exception 'kv_unknown_op' using errcode = '22023';
	elsif p_expect < 0 or p_op = 5 and p_expect is not null then
		raise exception 'kv_bad_expect' using errcode = '22023';
	elsif p_ttl_s <= 0 or p_ttl_s > 3153600000 then
		raise exception 'kv_bad_ttl' using errcode = '22023',
			detail = 'ttlSeconds is 1 to 3153600000';
	elsif p_op = 3 and p_value is null
			or p_op = 5 and (jsonb_typeof(p_delta::jsonb) = 'number')
				is not true then
		raise exception 'kv_bad_request' using errcode = '22023';
	elsif octet_length(p_value::text) > 65536 then
		raise exception 'kv_value_too_large' using errcode = '22001',
			detail = 'a value has at most 65536 bytes';
	end if;
end $$;

-- The rows of one getMany: row_no 1.. what was found, in key order; then what
-- was not, with verdict 1, in the order asked for; last row_no 0, verdict 1
-- when the budget cut some.
create or replace function queen.kv_get_many(p_tenant uuid, p_ns text, p_keys text[],
	p_budget bigint, p_at timestamptz)
returns table (row_no int, verdict int, key text, value text, version bigint,
	expires_at timestamptz, updated_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	r record; missing text[]; cut boolean := false; n int := 0;
begin
	for r in
		select a.key, k.value, k.version, k.expires_at, k.updated_at
		from (select distinct u.key collate "C" as key
			from unnest(p_keys) u(key) order by 1) a
		left join lateral (select k.value, k.version, k.expires_at,
				k.updated_at
			from queen.kv k where k.tenant = p_tenant
				and k.namespace = p_ns and k.key = a.key
				and queen.kv_live_v1(k.expires_at, p_at)
			limit 1) k on true
		order by a.key
	loop
		perform queen.kv_check_names_v1(p_ns, r.key);
		if r.version is null then
			missing := missing || r.key;
		elsif p_budget <= 0 then
			cut := true;
		else
			n := n + 1;
			row_no := n;
			verdict := 0;
			key := r.key;
			value := r.value::text;
			version := r.version;
			expires_at := r.expires_at;
			updated_at := r.updated_at;
			p_budget := p_budget - octet_length(value);
			return next;
		end if;
	end loop;
	return query select (n + row_number() over (order by min(u.ord)))::int, 1,
		u.key, null::text, null::bigint, null::timestamptz, null::timestamptz
	from unnest(missing) m(key)
	join unnest(p_keys) with ordinality u(key, ord) on u.key = m.key
	group by u.key order by min(u.ord);
	return query select 0, cut::int, null::text, null::text, null::bigint,
		null::timestamptz, null::timestamptz;
end $$;

-- The rows of one page: row_no 1.. in key order; last row_no 0, with verdict 1
-- and the key to go on after when there are more.  The row that crosses the
-- budget is the last one.
create or replace function queen.kv_page(p_tenant uuid, p_ns text, p_prefix text,
	p_after text, p_limit int, p_keys_only boolean, p_dead boolean,
	p_budget bigint, p_at timestamptz)
returns table (row_no int, verdict int, key text, value text, version bigint,
	expires_at timestamptz, updated_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	r record; n int := 0;
	l_limit int := least(greatest(coalesce(p_limit, 100), 1), 1000);
	l_after text := coalesce(p_after, '');
	l_last text := nullif(p_after, '');
	-- above every key: a key has at most 128 characters of four bytes
	l_end text := coalesce(queen.kv_prefix_end_v1(p_prefix),
		repeat(chr(1114111), 129));
begin
	for r in
		select k.key, k.value, k.version, k.expires_at, k.updated_at
		from queen.kv k
		where k.tenant = p_tenant and k.namespace = p_ns
			and k.key >= p_prefix and k.key > l_after and k.key < l_end
			and starts_with(k.key, p_prefix)
			and (p_dead or queen.kv_live_v1(k.expires_at, p_at))
		order by k.key limit l_limit + 1
	loop
		if n = l_limit or p_budget <= 0 then
			return query select 0, 1, l_last, null::text, null::bigint,
				null::timestamptz, null::timestamptz;
			return;
		end if;
		n := n + 1;
		row_no := n;
		verdict := 0;
		key := r.key;
		l_last := r.key;
		value := case when not p_keys_only then r.value::text end;
		version := r.version;
		expires_at := r.expires_at;
		updated_at := r.updated_at;
		p_budget := p_budget - coalesce(octet_length(value), 0);
		return next;
	end loop;
	return query select 0, 0, null::text, null::text, null::bigint,
		null::timestamptz, null::timestamptz;
end $$;

-- One operation on one key, as kv_apply_v1 returns it.  Raises 22001 when an
-- incr grows too long.
create or replace function queen.kv_single(p_tenant uuid, p_op int, p_ns text,
	p_key text, p_value jsonb, p_expect bigint, p_delta text, p_min text,
	p_max text, p_expires timestamptz, p_at timestamptz,
	out verdict int, out reason text, out value text, out version bigint,
	out expires_at timestamptz, out updated_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	w record;
begin
	if p_op = 0 then
		select k.value::text, k.version, k.expires_at, k.updated_at
		into value, version, expires_at, updated_at from queen.kv k
		where k.tenant = p_tenant and k.namespace = p_ns and k.key = p_key
			and queen.kv_live_v1(k.expires_at, p_at);
		verdict := (not found)::int;
		return;
	elsif p_op = 3 then
		w := queen.kv_put(p_tenant, p_ns, p_key, p_value, p_expect, p_expires,
			p_at);
	elsif p_op = 4 then
		w := queen.kv_delete(p_tenant, p_ns, p_key, p_expect, p_at);
	else
		w := queen.kv_incr(p_tenant, p_ns, p_key, p_delta::numeric,
			p_min::numeric, p_max::numeric, p_expires, p_at);
	end if;
	if octet_length(w.value) > 65536 then
		raise exception 'kv_value_too_large' using errcode = '22001',
			detail = 'a value has at most 65536 bytes';
	end if;
	verdict := w.verdict;
	reason := w.reason;
	value := w.value;
	version := w.version;
end $$;

-- One read of several keys: getMany (1) or getPrefix, as kv_apply_v1 returns it.
create or replace function queen.kv_read(p_tenant uuid, p_op int, p_ns text,
	p_key text, p_keys text[], p_after text, p_limit int, p_keys_only boolean,
	p_budget bigint, p_at timestamptz)
returns table (row_no int, verdict int, key text, value text, version bigint,
	expires_at timestamptz, updated_at timestamptz)
language plpgsql volatile as $$
begin
	if p_op = 1 then
		perform queen.kv_check_names_v1(p_ns, '-');
		return query select r.* from queen.kv_get_many(p_tenant, p_ns, p_keys,
			p_budget, p_at) r;
	else
		return query select r.* from queen.kv_page(p_tenant, p_ns, p_key,
			p_after, p_limit, coalesce(p_keys_only, false), false, p_budget,
			p_at) r;
	end if;
end $$;

-- In which order the operations of a call are applied: positions.
create or replace function queen.kv_order(k_op smallint[], k_ns text[], k_key text[])
returns int[]
language plpgsql immutable as $$
begin
	if cardinality(k_op) < 2 then	-- nearly every call: no query
		return case cardinality(k_op) when 1 then '{1}' else '{}' end;
	end if;
	return (select array_agg(k.ord::int order by k.op in (1, 2),
			k.ns collate "C", k.key collate "C", k.ord)
		from unnest(k_op, k_ns, k_key) with ordinality k(op, ns, key, ord));
end $$;

-- The operations of a call, all at one instant, in the order (single keys before
-- getMany and getPrefix, namespace, key, position).  k_op: 0 get, 1 getMany, 2
-- getPrefix (k_key is its prefix), 3 put, 4 delete, 5 incr; k_expect 0 of a put =
-- putIfAbsent; k_ttl_s null = forever; m_op, m_key: keys of the getMany ops, m_op
-- counted from 1, ascending.  p_read_bytes: values read per call, null = 4 MiB.
-- Rows: per op (ord from 1, contiguous, not in order) one with row_no 0, verdict
-- 0 = applied, found, complete; 1 = not; for getMany and getPrefix also the
-- rows of kv_get_many and kv_page.  A lost k_required ends the call: the LAST
-- row has verdict 2 and the caller rolls back, whatever came before it.
-- Raises 22023 (message = reason) and 22001.  Locks the keys it writes.
create or replace function queen.kv_apply_v1(p_tenant uuid, p_in_bundle boolean,
	p_read_bytes bigint, k_op smallint[], k_ns text[], k_key text[],
	k_value text[], k_expect bigint[], k_ttl_s bigint[], k_required boolean[],
	k_delta text[], k_min text[], k_max text[], k_after text[], k_limit int[],
	k_keys_only boolean[], m_op int[], m_key text[],
	p_now timestamptz default null)
returns table (ord int, row_no int, verdict int, reason text, key text, value text,
	version bigint, expires_at timestamptz, updated_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, transaction_timestamp());
	budget bigint := coalesce(p_read_bytes, 4194304);
	max_ops int := case when p_in_bundle then 64 else 4096 end;
	max_keys int := case when p_in_bundle then 256 else 4096 end;
	w record; n_keys int := 0; n_own int; keys text[];
	op int; ns text; at_ns text; at_key text;	-- at_: of the last write
begin
	if (cardinality(k_op) = all (array[cardinality(k_ns), cardinality(k_key),
			cardinality(k_value), cardinality(k_expect),
			cardinality(k_ttl_s), cardinality(k_required),
			cardinality(k_delta), cardinality(k_min), cardinality(k_max),
			cardinality(k_after), cardinality(k_limit),
			cardinality(k_keys_only)])
			and cardinality(m_op) = cardinality(m_key)) is not true then
		raise exception 'queen.kv_apply_v1: arrays differ in length'
			using errcode = '22023';
	elsif cardinality(k_op) > max_ops then
		raise exception 'kv_too_many_ops' using errcode = '22023';
	end if;
	foreach ord in array queen.kv_order(k_op, k_ns, k_key) loop
		op := k_op[ord];
		ns := k_ns[ord];
		key := k_key[ord];
		perform queen.kv_check_op(op, k_value[ord]::jsonb, k_expect[ord],
			k_ttl_s[ord], k_delta[ord]);
		if op = 1 then
			n_own := cardinality(array_positions(m_op, ord));
			keys := m_key[array_position(m_op, ord) :
				array_position(m_op, ord) + n_own - 1];
		else
			perform queen.kv_check_names_v1(ns, key);
		end if;
		n_keys := n_keys + case op when 1 then cardinality(keys) when 2
			then least(greatest(coalesce(k_limit[ord], 100), 1), 1000)
			else 1 end;
		if n_keys > max_keys then
			raise exception 'kv_too_many_keys' using errcode = '22023';
		elsif op = 2 and p_in_bundle then
			raise exception 'kv_get_prefix_not_allowed_in_transaction'
				using errcode = '22023';
		elsif op > 2 and (ns, key) = (at_ns, at_key) then
			raise exception 'kv_duplicate_key_in_call' using errcode = '22023';
		end if;
		reason := null;
		if op in (1, 2) then
			for row_no, verdict, key, value, version, expires_at, updated_at in
				select r.* from queen.kv_read(p_tenant, op, ns, key, keys,
					k_after[ord], k_limit[ord], k_keys_only[ord], budget,
					t) r
			loop
				budget := budget - coalesce(octet_length(value), 0);
				return next;
			end loop;
			continue;
		end if;
		w := queen.kv_single(p_tenant, op, ns, key, k_value[ord]::jsonb,
			k_expect[ord], k_delta[ord], k_min[ord], k_max[ord],
			t + k_ttl_s[ord] * interval '1 second', t);
		row_no := 0;
		verdict := w.verdict;
		reason := w.reason;
		value := w.value;
		version := w.version;
		expires_at := w.expires_at;
		updated_at := w.updated_at;
		if op = 0 then
			budget := budget - coalesce(octet_length(value), 0);
		else
			verdict := verdict + (verdict = 1
				and coalesce(k_required[ord], false))::int;
			at_ns := ns;
			at_key := key;
		end if;
		return next;
		exit when verdict = 2;
	end loop;
end $$;

-- A call of one operation on one key (0 get, 3 put, 4 delete, 5 incr): what
-- kv_apply_v1 makes of it, without arrays to take apart.  The one row, SQLSTATEs
-- and locks are those of kv_apply_v1.
create or replace function queen.kv_one_v1(p_tenant uuid, p_op int, p_ns text,
	p_key text, p_value text, p_expect bigint, p_ttl_s bigint,
	p_required boolean, p_delta text, p_min text, p_max text,
	p_now timestamptz default null)
returns table (ord int, row_no int, verdict int, reason text, key text, value text,
	version bigint, expires_at timestamptz, updated_at timestamptz)
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, transaction_timestamp());
	w record;
begin
	if p_op in (1, 2) then
		raise exception 'kv_unknown_op' using errcode = '22023';
	end if;
	perform queen.kv_check_op(p_op, p_value::jsonb, p_expect, p_ttl_s, p_delta);
	perform queen.kv_check_names_v1(p_ns, p_key);
	w := queen.kv_single(p_tenant, p_op, p_ns, p_key, p_value::jsonb, p_expect,
		p_delta, p_min, p_max, t + p_ttl_s * interval '1 second', t);
	ord := 1;
	row_no := 0;
	verdict := w.verdict + (w.verdict = 1 and p_op > 0
		and coalesce(p_required, false))::int;
	reason := w.reason;
	key := p_key;
	value := w.value;
	version := w.version;
	expires_at := w.expires_at;
	updated_at := w.updated_at;
	return next;
end $$;

-- What a key is once nobody holds it: verdict 0 with value and version, or 1 with
-- version 0.  Waits for a transaction that wrote the row and has not ended, also
-- one that made it, which no lock on rows does: hence the placeholder, removed
-- when the key was absent.  55P03 when the other one takes longer than 2 s.
create or replace function queen.kv_settle_v1(p_tenant uuid, p_ns text, p_key text,
	p_now timestamptz default null)
returns table (verdict int, value text, version bigint)
language plpgsql volatile set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
	l_expires timestamptz;
begin
	perform queen.kv_check_names_v1(p_ns, p_key);
	loop
		insert into queen.kv (tenant, namespace, key, value, version,
			created_at, updated_at)
		values (p_tenant, p_ns, p_key, 'null', 0, clock_timestamp(),
			clock_timestamp())
		on conflict (tenant, namespace, key) do nothing;
		if found then
			delete from queen.kv k where k.tenant = p_tenant
				and k.namespace = p_ns and k.key = p_key;
			return query select 1, null::text, 0::bigint;
			return;
		end if;
		select k.value::text, k.version, k.expires_at
		into value, version, l_expires from queen.kv k
		where k.tenant = p_tenant and k.namespace = p_ns and k.key = p_key
		for no key update;
		exit when found;
	end loop;
	verdict := (not queen.kv_live_v1(l_expires,
		coalesce(p_now, clock_timestamp())))::int;
	if verdict = 1 then
		value := null;
		version := 0;
	end if;
	return next;
end $$;

-- One page of a namespace, dead rows too when asked for; an empty prefix is all
-- of it.  Rows as kv_page, with what is dead told.
create or replace function queen.kv_list_v1(p_tenant uuid, p_ns text, p_prefix text,
	p_after text, p_limit int, p_keys_only boolean, p_include_expired boolean,
	p_read_bytes bigint, p_now timestamptz default null)
returns table (row_no int, verdict int, key text, value text, version bigint,
	expires_at timestamptz, updated_at timestamptz, expired boolean)
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, transaction_timestamp());
begin
	perform queen.kv_check_names_v1(p_ns, coalesce(nullif(p_prefix, ''), '-'));
	return query select p.*, not queen.kv_live_v1(p.expires_at, t)
	from queen.kv_page(p_tenant, p_ns, coalesce(p_prefix, ''), p_after, p_limit,
		coalesce(p_keys_only, false), coalesce(p_include_expired, false),
		coalesce(p_read_bytes, 4194304), t) p;
end $$;

-- The namespaces of a tenant with their keys, dead ones included.
create or replace function queen.kv_namespaces_v1(p_tenant uuid)
returns table (namespace text, keys bigint)
language sql stable as $$
	select k.namespace, count(*) from queen.kv k where k.tenant = p_tenant
	group by k.namespace order by k.namespace;
$$;

-- Removes at most p_limit dead rows of these shards, oldest first in each; what
-- another one holds is left.  done: there was no full batch to select.
-- unpruned, lag_ms: dead rows left (capped at 8 batches) and the age of the
-- oldest.  Cell-wide.
create or replace function queen.kv_expire_step_v1(p_shards int[], p_limit int,
	p_now timestamptz default null)
returns table (deleted int, done boolean, unpruned int, unpruned_capped boolean,
	lag_ms bigint, now timestamptz)
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp()); l_row tid[];
begin
	select coalesce(array_agg(x.ctid), '{}') into l_row
	from (select e.ctid from unnest(p_shards) s(shard)
		cross join lateral (select k.ctid from queen.kv k
			where k.shard = s.shard and k.expires_at <= t
			order by k.expires_at limit p_limit
			for update skip locked) e
		limit p_limit) x;
	delete from queen.kv k where k.ctid = any (l_row) and k.expires_at <= t;
	get diagnostics deleted = row_count;
	done := cardinality(l_row) < p_limit or deleted = 0;
	select count(*)::int into unpruned
	from (select from unnest(p_shards) s(shard)
		cross join lateral (select from queen.kv k
			where k.shard = s.shard and k.expires_at <= t
			order by k.expires_at limit 8 * p_limit) e
		limit 8 * p_limit) x;
	-- of every shard, however many rows the first of them have
	select (extract(epoch from t - min(e.expires_at)) * 1000)::bigint into lag_ms
	from unnest(p_shards) s(shard)
	cross join lateral (select k.expires_at from queen.kv k
		where k.shard = s.shard and k.expires_at <= t
		order by k.expires_at limit 1) e;
	unpruned_capped := unpruned >= 8 * p_limit;
	lag_ms := coalesce(lag_ms, 0);
	now := t;
	return next;
end $$;
