-- SPDX-License-Identifier: Apache-2.0
-- Dead letters of streams: messages a consumer gave back too often.  They stay
-- when their consumer or their segment goes.  Schemas and locks: 850.
--
--   stream_dead_v1, stream_dead_count_v1     newest first
--   stream_dead_replay_v1, stream_dead_replay_all_v1, stream_dead_purge_v1

-- The dead letters of a queue, of one consumer with p_consumer, newest first, 8 MiB
-- of them and one more at most; p_after = id of the last one seen, or null.
-- more = there is one behind this row.
create or replace function queen.stream_dead_v1(p_tenant uuid, p_queue text, p_consumer text,
	p_limit int, p_offset bigint, p_after bigint, p_now timestamptz default null)
returns table (id bigint, consumer text, message_id text, seq bigint, type text, payload text,
	headers text, retry_count int, reason text, created_at timestamptz,
	failed_at timestamptz, more boolean)
language plpgsql volatile as $$
declare
	l record;
begin
	l := queen.stream_open(p_tenant, p_queue);
	if l.o_live then
		return query execute format('select d.id, d.consumer::text, d.event_id, d.seq, d.type,
				d.payload::text, d.headers::text, d.retry_count, d.reason, d.created_at,
				d.failed_at, p.more
			from (select x.id, row_number() over w as nr, lead(x.id) over w is not null as more,
					sum(x.bytes) over w - x.bytes as before
				from (select d.id, d.bytes from %1$I.stream_dead_letters d where '
				|| concat_ws(' and ', 'true',
					case when p_consumer is not null then 'd.consumer = $1' end,
					case when p_after is not null then 'd.id < $2' end)
				|| ' order by d.id desc limit $3::bigint + 1 offset $4) x
				window w as (order by x.id desc)) p
			join %1$I.stream_dead_letters d on d.id = p.id
			where p.nr <= $3 and p.before < 8388608 order by d.id desc',
			queen.stream_schema(l.o_id))
		using p_consumer, p_after, p_limit, coalesce(p_offset, 0);
	end if;
end $$;

-- How many stream_dead_v1 has; null = no such queue.
create or replace function queen.stream_dead_count_v1(p_tenant uuid, p_queue text,
	p_consumer text, p_now timestamptz default null)
returns bigint language plpgsql volatile as $$
declare
	l record; l_n bigint := 0;
begin
	l := queen.stream_open(p_tenant, p_queue);
	if l.o_live then
		execute format('select count(*) from %I.stream_dead_letters d
			where $1 is null or d.consumer = $1', queen.stream_schema(l.o_id))
		into l_n using p_consumer;
	end if;
	return case when l.o_id is not null then l_n end;
end $$;

-- Puts one dead letter back into the log with its id, as never tried, for its
-- consumer alone if that still exists; no row = it is gone.  The caller holds
-- the log's key shared.
create or replace function queen.stream_revive(p_queue_id bigint, p_cur smallint, p_id bigint)
returns table (message_id text, seq bigint, type text, created_at timestamptz, bytes int)
language plpgsql volatile as $$
begin
	return query execute format('with d as (delete from %1$I.stream_dead_letters
			where id = $1 returning *)
		insert into %1$I.stream_events_%2$s as e (segment, bytes, owner, created_at, event_id,
			type, payload, headers)
		select %2$s, d.bytes, s.id, d.created_at, d.event_id, d.type, d.payload, d.headers
		from d left join %1$I.stream_subscriptions s on s.consumer = d.consumer
		returning e.event_id, e.seq, e.type, e.created_at, e.bytes',
		queen.stream_schema(p_queue_id), p_cur) using p_id;
end $$;

-- Replays one dead letter; of two at once one wins.  verdict 0, 2, 9, 13 gone.
-- bytes count towards the next heavy tick.
-- Locks: log key shared, the dead letter.
create or replace function queen.stream_dead_replay_v1(p_tenant uuid, p_queue text, p_id bigint,
	p_now timestamptz default null)
returns table (verdict smallint, queue_id bigint, message_id text, seq bigint, type text,
	created_at timestamptz, bytes int)
language plpgsql volatile as $$
declare
	l record;
begin
	l := queen.stream_open(p_tenant, p_queue);
	queue_id := l.o_id;
	if l.o_live and not l.o_stale then
		select r.message_id, r.seq, r.type, r.created_at, r.bytes
		into message_id, seq, type, created_at, bytes
		from queen.stream_revive(l.o_id, l.o_cur, p_id) r;
	end if;
	verdict := case when l.o_id is null then 2 when l.o_stale then 9
		when seq is null then 13 else 0 end;
	if verdict = 0 then
		perform queen.stream_wake(l.o_id, coalesce(p_now, clock_timestamp()) + interval '5 s');
	end if;
	return next;
end $$;

-- Replays up to p_limit dead letters after id p_after (null = from the first),
-- 8 MiB of them at most or one, oldest first, each by itself: one that fails
-- stops no other, and of the first its id and SQLSTATE are told.  While more the caller goes on with after; bytes count towards
-- the next heavy tick.  verdict 0, 2, 9.
create or replace function queen.stream_dead_replay_all_v1(p_tenant uuid, p_queue text,
	p_limit int, p_after bigint, p_now timestamptz default null)
returns table (verdict smallint, queue_id bigint, replayed int, failed int, first_error text,
	more boolean, after bigint, bytes bigint)
language plpgsql volatile as $$
declare
	l record; l_ids bigint[] := '{}'; l_found int := 0; l_n int; l_bytes bigint;
begin
	l := queen.stream_open(p_tenant, p_queue);
	queue_id := l.o_id;
	replayed := 0;
	failed := 0;
	bytes := 0;
	verdict := case when l.o_id is null then 2 when l.o_stale then 9 else 0 end;
	if verdict = 0 and l.o_live then
		execute format('select coalesce(array_agg(x.id order by x.id)
				filter (where x.sum <= 8388608 or x.sum = x.bytes), ''{}''), count(*)
			from (select d.id, d.bytes, sum(d.bytes) over (order by d.id) as sum
				from (select id, bytes from %I.stream_dead_letters
				where id > coalesce($1, 0) order by id limit $2) d) x',
			queen.stream_schema(l.o_id))
		into l_ids, l_found using p_after, p_limit;
	end if;
	foreach after in array l_ids loop
		begin
			select count(*), coalesce(sum(r.bytes), 0) into l_n, l_bytes
			from queen.stream_revive(l.o_id, l.o_cur, after) r;
			replayed := replayed + l_n;
			bytes := bytes + l_bytes;
		exception when others then
			-- what passes is the caller's to try again
			if sqlstate ~ '^(40|53|57|55P03)' then
				raise;
			end if;
			failed := failed + 1;
			first_error := coalesce(first_error,
				format('dead letter %s was not stored: SQLSTATE %s', after,
					sqlstate));
		end;
	end loop;
	if replayed > 0 then
		perform queen.stream_wake(l.o_id, coalesce(p_now, clock_timestamp()) + interval '5 s');
	end if;
	more := cardinality(l_ids) < l_found or l_found = p_limit;
	return next;
end $$;

-- Removes up to p_limit dead letters that failed longer ago than p_older_ms (null
-- = 30 days), oldest first; what another removes is passed over.  While more the
-- caller goes on.  verdict 0, 2, 9.
create or replace function queen.stream_dead_purge_v1(p_tenant uuid, p_queue text,
	p_older_ms bigint, p_limit int, p_now timestamptz default null)
returns table (verdict smallint, queue_id bigint, purged bigint, more boolean)
language plpgsql volatile as $$
declare
	l record;
begin
	l := queen.stream_open(p_tenant, p_queue);
	queue_id := l.o_id;
	purged := 0;
	verdict := case when l.o_id is null then 2 when l.o_stale then 9 else 0 end;
	if verdict = 0 and l.o_live then
		execute format('delete from %1$I.stream_dead_letters where id = any (array(
				select d.id from %1$I.stream_dead_letters d where d.failed_at <= $1
				order by d.failed_at limit $2 for update skip locked))',
			queen.stream_schema(l.o_id))
		using coalesce(p_now, clock_timestamp())
			- coalesce(p_older_ms, 2592000000) * interval '1 ms', p_limit;
		get diagnostics purged = row_count;
	end if;
	more := purged = p_limit;
	return next;
end $$;
