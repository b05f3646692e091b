-- SPDX-License-Identifier: Apache-2.0
-- Timers: messages promised now and appended later.
--
--   timer_apply_v1(...)   schedules and cancels of a call or of a transaction
--   timer_peek_v1 timer_list_v1 timer_count_v1   what is pending
--   timer_due_v1          when the next one is due, how many are
--   timer_fire_v1         appends what is due and deletes the timers, in one
--                         commit; timer_fire_one_v1 the same for one of them
--   timer_next_v1         names of due ones, to find the one that fails
--   timer_fail_v1         puts one back, or files it as a dead letter
--
-- Writes timers, and what push_v1, queue_resolve_v1 and partitions_ensure_v1
-- write, and dead_letters.  Lock order: timer rows (ascending by queue and key
-- in a call; the fire skips what is locked), then queues, partitions, heads,
-- by tenant.  READ COMMITTED is assumed.
--
-- A pending timer holds its finished frame, so that the fire is concatenation.
-- There is no claim: who holds the row's lock fires or cancels it.

create table if not exists queen.timers (
	tenant uuid not null,
	queue text collate "C" not null,
	timer_key text collate "C" not null,
	partition text collate "C" not null,
	deliver_at timestamptz not null,	-- as promised
	due_at timestamptz not null,		-- the same, the schedule or the end of a backoff if later
	message_id uuid not null,
	frame bytea not null,			-- whole frame, its length included
	hash bytea not null,			-- 16 bytes, of the transaction id
	key_id smallint,			-- null = not sealed
	attempts int not null default 0,
	last_error text,
	created_at timestamptz not null,
	updated_at timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
alter table queen.timers alter frame set storage external;
create index if not exists timers_due on queen.timers (due_at);
do $$ begin
	if to_regclass('queen.timers_pkey') is null then
		alter table queen.timers add primary key (tenant, queue, timer_key);
	end if;
end $$;

-- Transaction id and producer of a frame (lib/frame.h); null = none.
create or replace function queen.timer_txn_v1(p_frame bytea)
returns text language sql immutable parallel safe as $$
	select convert_from(substr(p_frame, o.at + 2,
		get_byte(p_frame, o.at - 1) + 256 * get_byte(p_frame, o.at)), 'UTF8')
	from (select 22 + 16 * (get_byte(p_frame, 4) & 1) as at) o
$$;

create or replace function queen.timer_sub_v1(p_frame bytea)
returns text language sql immutable parallel safe as $$
	select case when get_byte(p_frame, 4) & 2 <> 0 then
		convert_from(substr(p_frame, s.at + 2,
			get_byte(p_frame, s.at - 1) + 256 * get_byte(p_frame, s.at)),
			'UTF8') end
	from (select o.at + 2 + get_byte(p_frame, o.at - 1)
			+ 256 * get_byte(p_frame, o.at) as at
		from (select 22 + 16 * (get_byte(p_frame, 4) & 1) as at) o) s
$$;

-- The operations of a call, in the order (queue, key).  t_op: 0 schedule (a
-- timer of that name is replaced), 1 cancel, which needs no more than its names.
-- Rows: ord from 1, status 0 scheduled, 1 rescheduled, 2 cancelled (txn is the
-- stored one), 3 absent.  Raises 22023: message = reason, which names the
-- operation (from 0) that must be sealed.  Locks the timers.
create or replace function queen.timer_apply_v1(p_tenant uuid, t_op smallint[],
	t_queue text[], t_key text[], t_partition text[], t_delay_us bigint[],
	t_hash bytea[], t_frame bytea[], t_key_id smallint[],
	p_now timestamptz default null)
returns table (ord int, status int, txn text, message_id uuid,
	deliver_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	o record; l_queue text; l_key text; l_fresh boolean; l_frame bytea;
begin
	if (cardinality(t_op) = all (array[cardinality(t_queue),
			cardinality(t_key), cardinality(t_partition),
			cardinality(t_delay_us), cardinality(t_hash),
			cardinality(t_frame), cardinality(t_key_id)])) is not true then
		raise exception 'queen.timer_apply_v1: arrays differ in length'
			using errcode = '22023';
	end if;
	for o in
		select u.*, u.op = 0 and u.key_id is null and q.sealed as bare
		from unnest(t_op, t_queue, t_key, t_partition, t_delay_us, t_hash,
			t_frame, t_key_id) with ordinality
			u(op, queue, key, partition, delay_us, hash, frame, key_id, ord)
		left join lateral (select q.encryption_enabled sealed
			from queen.queues q where q.tenant = p_tenant
				and q.name = u.queue collate "C"
				and q.deleted_at is null limit 1) q on true
		order by u.queue collate "C", u.key collate "C", u.ord
	loop
		if (o.queue, o.key) = (l_queue, l_key) then
			raise exception 'timers_duplicate_key_in_call'
				using errcode = '22023';
		elsif o.bare then
			raise exception 'encryption_required: operation %', o.ord - 1
				using errcode = '22023';
		end if;
		l_queue := o.queue;
		l_key := o.key;
		ord := o.ord;
		if o.op = 0 then
			insert into queen.timers as w (tenant, queue, timer_key, partition,
				deliver_at, due_at, message_id, frame, hash, key_id,
				created_at, updated_at)
			values (p_tenant, o.queue, o.key, o.partition,
				t + o.delay_us * interval '1 us',
				t + greatest(o.delay_us, 0) * interval '1 us',
				encode(substr(o.frame, 6, 16), 'hex')::uuid, o.frame, o.hash,
				o.key_id, t, t)
			on conflict (tenant, queue, timer_key) do update
			set partition = excluded.partition,
				deliver_at = excluded.deliver_at, due_at = excluded.due_at,
				message_id = excluded.message_id, frame = excluded.frame,
				hash = excluded.hash, key_id = excluded.key_id,
				attempts = 0, last_error = null, updated_at = t
			returning w.xmax = 0, w.frame, w.message_id, w.deliver_at
			into l_fresh, l_frame, message_id, deliver_at;
			status := case when l_fresh then 0 else 1 end;
			txn := queen.timer_txn_v1(l_frame);
		else
			delete from queen.timers w
			where w.tenant = p_tenant and w.queue = o.queue
				and w.timer_key = o.key
			returning w.frame, w.message_id, w.deliver_at
			into l_frame, message_id, deliver_at;
			status := case when found then 2 else 3 end;
			txn := case when found then queen.timer_txn_v1(l_frame) end;
		end if;
		return next;
	end loop;
end $$;

-- One timer with its frame; no row = not pending.
create or replace function queen.timer_peek_v1(p_tenant uuid, p_queue text,
	p_key text)
returns table (partition text, deliver_at timestamptz, frame bytea, attempts int,
	last_error text, created_at timestamptz, updated_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	return query
	select t.partition, t.deliver_at, t.frame, t.attempts, t.last_error,
		t.created_at, t.updated_at
	from queen.timers t
	where t.tenant = p_tenant and t.queue = p_queue and t.timer_key = p_key;
end $$;

-- A page of a queue's timers in the order of their keys, after p_after (null:
-- from the first), one more than p_limit when there are more.
create or replace function queen.timer_list_v1(p_tenant uuid, p_queue text,
	p_after text, p_limit int)
returns table (timer_key text, partition text, deliver_at timestamptz, txn text,
	message_id uuid, sealed boolean, producer_sub text, attempts int,
	last_error text, created_at timestamptz, updated_at timestamptz)
language plpgsql volatile as $$
#variable_conflict use_column
begin
	return query
	select t.timer_key, t.partition, t.deliver_at,
		queen.timer_txn_v1(t.head), t.message_id,
		get_byte(t.head, 4) & 4 <> 0, queen.timer_sub_v1(t.head),
		t.attempts, t.last_error, t.created_at, t.updated_at
	from (select w.*, substr(w.frame, 1, 70000) head	-- without the payload
		from queen.timers w
		where w.tenant = p_tenant and w.queue = p_queue
			and w.timer_key > coalesce(p_after, '')
		order by w.timer_key limit p_limit + 1) t
	order by t.timer_key;
end $$;

-- How many timers of a queue have keys that start with p_prefix.
create or replace function queen.timer_count_v1(p_tenant uuid, p_queue text,
	p_prefix text)
returns bigint
language plpgsql volatile as $$
declare
	-- above every key: one has at most 512 characters
	l_end text := coalesce(queen.kv_prefix_end_v1(p_prefix),
		repeat(chr(1114111), 513));
begin
	return (select count(*) from queen.timers t
		where t.tenant = p_tenant and t.queue = p_queue
			and t.timer_key >= p_prefix and t.timer_key < l_end
			and starts_with(t.timer_key, p_prefix));
end $$;

-- The clock, microseconds until the next timer is due (negative: since; null:
-- there is none) and how many are, counted up to p_cap.  Cell-wide.
create or replace function queen.timer_due_v1(p_cap int,
	p_now timestamptz default null)
returns table (now timestamptz, next_us bigint, due int, late_ms bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	l_next timestamptz;
begin
	now := coalesce(p_now, clock_timestamp());
	select t.due_at into l_next from queen.timers t order by t.due_at limit 1;
	next_us := (extract(epoch from l_next - now) * 1000000)::bigint;
	due := 0;
	if l_next <= now then
		select count(*) into due
		from (select from queen.timers t where t.due_at <= now
			order by t.due_at limit p_cap) d;
	end if;
	late_ms := greatest(-next_us / 1000, 0);
	return next;
end $$;

-- Names of the timers due longest.  Cell-wide.  No locks.
create or replace function queen.timer_next_v1(p_rows int,
	p_now timestamptz default null)
returns table (tenant uuid, queue text, timer_key text, message_id uuid,
	partition text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
begin
	return query
	select w.tenant, w.queue, w.timer_key, w.message_id, w.partition
	from queen.timers w
	where w.due_at <= t order by w.due_at limit p_rows;
end $$;

-- Fires what is due, oldest first: at most p_rows timers and p_bytes of frames,
-- but one always; locked ones are left to who holds them.
-- Rows: per segment written (verdict 0, n messages, the longest lag); 1: some
-- were left, their destination is being made: call again.  Raises 55P03 when a
-- destination is locked for long.  Cell-wide.
create or replace function queen.timer_fire_v1(p_rows int, p_bytes bigint,
	p_now timestamptz default null)
returns table (verdict int, tenant uuid, queue_id bigint, part_id bigint, n int,
	lag_ms bigint, queue_new boolean, part_new boolean)
language plpgsql volatile set lock_timeout = '500ms' as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	r record;
begin
	for r in
		select y.tenant as of, array_agg(y.row) as rows
		from (select x.row, x.tenant, x.bytes, sum(x.bytes) over
				(order by x.due_at, x.row rows unbounded preceding) upto
			from (select w.ctid as row, w.tenant, w.due_at,
					octet_length(w.frame) bytes
				from queen.timers w where w.due_at <= t
				order by w.due_at limit p_rows
				for update skip locked) x) y
		where y.upto <= p_bytes or y.upto = y.bytes
		group by y.tenant order by y.tenant
	loop
		return query select f.*
		from queen.timer_fire_tenant(r.of, r.rows, t) f;
	end loop;
end $$;

-- The same for one timer, if it is due, unlocked and still this message.
create or replace function queen.timer_fire_one_v1(p_tenant uuid, p_queue text,
	p_key text, p_message uuid, p_now timestamptz default null)
returns table (verdict int, tenant uuid, queue_id bigint, part_id bigint, n int,
	lag_ms bigint, queue_new boolean, part_new boolean)
language plpgsql volatile set lock_timeout = '200ms' as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	l_row tid;
begin
	select w.ctid into l_row from queen.timers w
	where w.tenant = p_tenant and w.queue = p_queue and w.timer_key = p_key
		and w.message_id = p_message and w.due_at <= t
	for update skip locked;
	if found then
		return query select f.*
		from queen.timer_fire_tenant(p_tenant, array[l_row], t) f;
	end if;
end $$;

-- Inside: timers of one tenant, found by ctid alone (with a condition on a name a
-- plan may walk its index).  Makes the destinations, lays the frames of each
-- partition out in segments of at most 1 MiB and of one key, and pushes them round
-- by round: the k-th segment of every partition goes in the k-th.
create or replace function queen.timer_fire_tenant(p_tenant uuid, p_row tid[],
	t timestamptz)
returns table (verdict int, tenant uuid, queue_id bigint, part_id bigint, n int,
	lag_ms bigint, queue_new boolean, part_new boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	q_name text[]; q_id bigint[]; q_new boolean[];
	g_queue bigint[]; g_name text[]; g_part bigint[]; g_new boolean[];
	s_row tid[] := '{}'; s_part bigint[] := '{}'; s_round int[] := '{}';
	r record; l_part bigint; l_key int; l_bytes bigint; l_round int; l_last int := 0;
begin
	select array_agg(distinct w.queue) into q_name
	from queen.timers w where w.ctid = any (p_row);
	select array_agg(q.id order by q.ord), array_agg(q.created order by q.ord)
	into q_id, q_new
	from queen.queue_resolve_v1(p_tenant, q_name, true, t) q;
	select array_agg(x.id), array_agg(x.partition) into g_queue, g_name
	from (with w as materialized (select w.queue, w.partition
			from queen.timers w where w.ctid = any (p_row))
		select distinct q.id, w.partition
		from w join unnest(q_name, q_id) q(name, id) on q.name = w.queue) x;
	select array_agg(e.id order by e.ord), array_agg(e.verdict = 1 order by e.ord)
	into g_part, g_new
	from queen.partitions_ensure_v1(p_tenant, g_queue, g_name, t) e;

	for r in
		with w as materialized (select w.ctid as row, w.queue, w.partition,
				w.deliver_at, w.timer_key, w.key_id,
				octet_length(w.frame) bytes
			from queen.timers w where w.ctid = any (p_row))
		select w.row, g.part, w.bytes, w.key_id
		from w
		join unnest(q_name, q_id) q(name, id) on q.name = w.queue
		join unnest(g_queue, g_name, g_part) g(queue, name, part)
			on g.queue = q.id and g.name = w.partition
		where g.part is not null
		order by g.part, w.deliver_at, w.timer_key
	loop
		if r.part is distinct from l_part then
			l_round := 1;
			l_bytes := 0;
		elsif r.key_id is distinct from l_key or l_bytes + r.bytes > 1048576 then
			l_round := l_round + 1;
			l_bytes := 0;
		end if;
		l_part := r.part;
		l_key := r.key_id;
		l_bytes := l_bytes + r.bytes;
		l_last := greatest(l_last, l_round);
		s_row := s_row || r.row;
		s_part := s_part || r.part;
		s_round := s_round || l_round;
	end loop;
	for l_round in 1 .. l_last loop
		return query
		select 0, p_tenant, g.queue, f.part, f.n, f.lag_ms,
			q.fresh and l_round = 1, g.fresh and l_round = 1
		from queen.timer_push(p_tenant, s_row, s_part, s_round, l_round, t) f
		join unnest(g_queue, g_part, g_new) g(queue, part, fresh)
			on g.part = f.part
		join unnest(q_id, q_new) q(id, fresh) on q.id = g.queue;
	end loop;
	if array_position(g_part, null) is not null then
		return query select 1, p_tenant, null::bigint, null::bigint,
			0, 0::bigint, false, false;
	end if;
end $$;

-- Inside: one round.  What push_v1 took is no timer any more; what is gone is
-- left.  A frame is sealed or not by the queue's flag at its schedule.
create or replace function queen.timer_push(p_tenant uuid, s_row tid[],
	s_part bigint[], s_round int[], p_round int, t timestamptz)
returns table (part bigint, n int, lag_ms bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
	l_part bigint[]; l_n int[]; l_ids bytea[]; l_raw int[]; l_key smallint[];
	l_blob bytea[]; l_lag bigint[]; l_verdict int[];
begin
	select array_agg(x.part order by x.part), array_agg(x.n order by x.part),
		array_agg(x.ids order by x.part), array_agg(x.raw order by x.part),
		array_agg(x.key order by x.part), array_agg(x.blob order by x.part),
		array_agg(x.lag order by x.part)
	into l_part, l_n, l_ids, l_raw, l_key, l_blob, l_lag
	from (select s.part, count(*)::int n,
			string_agg(w.hash, ''::bytea order by s.ord) ids,
			sum(octet_length(w.frame))::int raw,
			coalesce(min(w.key_id), -1::smallint) as key,
			'\x0100'::bytea
				|| string_agg(w.frame, ''::bytea order by s.ord) blob,
			(extract(epoch from t - min(w.deliver_at)) * 1000)::bigint lag
		from unnest(s_row, s_part, s_round) with ordinality
			s(row, part, round, ord)
		join queen.timers w on w.ctid = s.row
		where s.round = p_round
		group by s.part) x;
	select array_agg(p.verdict order by p.ord) into l_verdict
	from queen.push_v1(p_tenant, l_part, l_n, l_ids, l_raw, l_key, l_blob,
		array_fill(null::bigint, array[cardinality(l_part)]),
		array_fill(null::timestamptz, array[cardinality(l_part)]),
		'{}', '{}', '{}', '{}', t) p;
	delete from queen.timers w where w.ctid = any (array(
		select s.row from unnest(s_row, s_part, s_round) s(row, part, round)
		join unnest(l_part, l_verdict) v(part, verdict) on v.part = s.part
		where s.round = p_round and v.verdict = 0));
	return query
	select v.part, v.n, v.lag
	from unnest(l_verdict, l_part, l_n, l_lag) v(verdict, part, n, lag)
	where v.verdict = 0;
end $$;

-- Inside: a locked timer that failed.  One attempt more; after p_attempts a dead
-- letter of group __timer__ on its destination, before that it is due after
-- p_backoff_ms, doubled with each, p_backoff_max_ms at most.  True = filed.
create or replace function queen.timer_put_back(p_tenant uuid, p_row tid,
	p_error text, p_attempts int, p_backoff_ms int, p_backoff_max_ms int,
	t timestamptz)
returns boolean
language plpgsql volatile as $$
declare
	w queen.timers; l_queue bigint; l_part bigint;
begin
	select x.* into w from queen.timers x where x.ctid = p_row;
	if w.attempts + 1 < p_attempts then
		update queen.timers x set attempts = w.attempts + 1,
			last_error = p_error, updated_at = t,
			due_at = t + least(p_backoff_ms * 2.0 ^ least(w.attempts, 30),
				p_backoff_max_ms) * interval '1 ms'
		where x.ctid = p_row;
		return false;
	end if;
	select q.id into l_queue
	from queen.queue_resolve_v1(p_tenant, array[w.queue], true, t) q;
	select e.id into l_part
	from queen.partitions_ensure_v1(p_tenant, array[l_queue],
		array[w.partition], t) e;
	if l_part is null then	-- being made by another: soon
		update queen.timers x set last_error = p_error,
			due_at = t + p_backoff_ms * interval '1 ms'
		where x.ctid = p_row;
		return false;
	end if;
	insert into queen.dead_letters (id, queue_id, partition_id, group_name,
		message_offset, id_hash, frame, error, retries, created_at, failed_at)
	values ((lpad(to_hex((extract(epoch from t) * 1000)::bigint), 12, '0')
			|| '7' || substr(replace(gen_random_uuid()::text, '-', ''),
			14))::uuid, l_queue, l_part, '__timer__', -1, w.hash, w.frame,
		p_error, w.attempts + 1, w.created_at, t);
	delete from queen.timers x where x.ctid = p_row;
	return true;
end $$;

-- A fire of this timer failed, and its transaction with it: puts it back
-- (p_counted: an attempt more, p_attempts and the backoff as timer_put_back;
-- else it is due after p_backoff_ms as if nothing had happened).
-- 0 put back, 1 filed as a dead letter, 2 not there or another message by now.
create or replace function queen.timer_fail_v1(p_tenant uuid, p_queue text,
	p_key text, p_message uuid, p_counted boolean, p_error text, p_attempts int,
	p_backoff_ms int, p_backoff_max_ms int, p_now timestamptz default null)
returns int
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp()); l_row tid;
begin
	select w.ctid into l_row from queen.timers w
	where w.tenant = p_tenant and w.queue = p_queue and w.timer_key = p_key
		and w.message_id = p_message and w.due_at <= t
	for update;
	if not found then
		return 2;
	elsif not p_counted then
		update queen.timers w set due_at = t + p_backoff_ms * interval '1 ms'
		where w.ctid = l_row;
		return 0;
	end if;
	return queen.timer_put_back(p_tenant, l_row, p_error, p_attempts,
		p_backoff_ms, p_backoff_max_ms, t)::int;
end $$;
