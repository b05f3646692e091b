-- SPDX-License-Identifier: Apache-2.0
-- The transaction with key/value operations or timers, in the caller's begin ..
-- commit.
--
-- bundle_riders_v1.
--
-- Writes what kv_apply_v1, timer_apply_v1 and bundle_v1 write, in this order of
-- locks.  READ COMMITTED is assumed.

-- The arguments of bundle_v1, then those of kv_apply_v1 (in a bundle) and of
-- timer_apply_v1 behind p_tenant.
-- Rows, in this order: kind 3 = key/value as kv_apply_v1; kind 4 = timer as
-- timer_apply_v1, verdict = its status; kinds 0 to 2 as bundle_v1.  When the last
-- row is of kind 3 with verdict 2, a required operation was lost: the caller
-- rolls back.
create or replace function queen.bundle_riders_v1(p_tenant uuid, l_part bigint[],
	l_group bigint[], l_no bigint[], p_part bigint[], p_n int[],
	p_ids bytea[], p_raw int[], p_key smallint[], p_blob bytea[],
	p_verified bigint[], p_covered timestamptz[], s_seg int[], s_pos int[],
	s_lo bigint[], s_hi bigint[], a_group bigint[], a_part bigint[],
	a_at bigint[], a_group_at bigint[], a_no bigint[], a_ids bytea[],
	a_status bytea[], e_ack int[], e_item int[], e_text text[], f_ack int[],
	f_off bigint[], f_frame bytea[], f_at timestamptz[], d_id uuid[],
	a_strict boolean, p_read_bytes bigint, k_op smallint[], k_ns text[],
	k_key text[], k_value text[], k_expect bigint[], k_ttl_s bigint[],
	k_required boolean[], k_delta text[], k_min text[], k_max text[],
	k_after text[], k_limit int[], k_keys_only boolean[], m_op int[],
	m_key text[], t_op smallint[], t_queue text[], t_key text[],
	t_partition text[], t_delay_us bigint[], t_hash bytea[], t_frame bytea[],
	t_key_id smallint[], p_now timestamptz default null)
returns table (kind int, ord int, verdict int, base bigint, at timestamptz,
	gap_base bigint, gap bytea, dup_pos int[], dup_off bigint[],
	committed bigint, dead bigint, dropped bigint, conflated bigint,
	more boolean, off bigint, blob bytea, items bytea, row_no int,
	reason text, key text, value text, version bigint,
	expires_at timestamptz, updated_at timestamptz, txn text,
	message_id uuid, deliver_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	-- a call for nothing costs as much as one operation
	if cardinality(k_op) > 0 then
		kind := 3;
		for ord, row_no, verdict, reason, key, value, version, expires_at,
			updated_at in
			select k.* from queen.kv_apply_v1(p_tenant, true, p_read_bytes,
				k_op, k_ns, k_key, k_value, k_expect, k_ttl_s, k_required,
				k_delta, k_min, k_max, k_after, k_limit, k_keys_only, m_op,
				m_key, p_now) k
		loop
			return next;
			if verdict = 2 then
				return;
			end if;
		end loop;
		row_no := null; reason := null; key := null; value := null;
		version := null; expires_at := null; updated_at := null;
	end if;
	if cardinality(t_op) > 0 then
		kind := 4;
		for ord, verdict, txn, message_id, deliver_at in
			select r.* from queen.timer_apply_v1(p_tenant, t_op, t_queue,
				t_key, t_partition, t_delay_us, t_hash, t_frame, t_key_id,
				p_now) r
		loop
			return next;
		end loop;
		txn := null; message_id := null; deliver_at := null;
	end if;

	if cardinality(l_part) + cardinality(p_part) + cardinality(a_part) = 0 then
		return;
	end if;
	for kind, ord, verdict, base, at, gap_base, gap, dup_pos, dup_off, committed,
		dead, dropped, conflated, more, off, blob, items in
		select b.* from queen.bundle_v1(p_tenant, l_part, l_group, l_no,
			p_part, p_n, p_ids, p_raw, p_key, p_blob, p_verified, p_covered,
			s_seg, s_pos, s_lo, s_hi, a_group, a_part, a_at, a_group_at,
			a_no, a_ids, a_status, e_ack, e_item, e_text, f_ack, f_off,
			f_frame, f_at, d_id, a_strict, p_now) b
	loop
		return next;
	end loop;
end $$;
