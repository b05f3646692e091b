-- SPDX-License-Identifier: Apache-2.0
-- Batches of a stream: what becomes of them.  Schemas and locks: 850.
--
--   stream_ack_v1, stream_nack_v1

-- Opens a batch to change it: takes the care key if asked, locks the
-- subscription, then looks again at the batch, which a reposition or an ack may
-- have taken meanwhile.
-- o_verdict 0, 2, 6 no such batch, 8 acked, waits for earlier ones, 9.
create or replace function queen.stream_hold(p_tenant uuid, p_queue text, p_batch bigint,
	p_care boolean, out o_verdict smallint, out o_id bigint, out o_sub bigint, out o_consumer text,
	out o_member text, out o_end bigint, out o_cur smallint)
language plpgsql volatile as $$
declare
	l record; l_s text; l_acked timestamptz;
begin
	l := queen.stream_open(p_tenant, p_queue);
	o_id := l.o_id;
	o_cur := l.o_cur;
	o_verdict := case when l.o_id is null then 2 when l.o_stale then 9 else 6 end;
	if l.o_live is not true or l.o_stale then
		return;
	end if;
	l_s := queen.stream_schema(l.o_id);
	if p_care then
		perform pg_advisory_xact_lock_shared(1869247283, queen.stream_key(l.o_id));
	end if;
	execute format('select s.id, s.consumer from %1$I.stream_subscriptions s
		where s.id = (select b.subscription_id from %1$I.stream_batches b
			where b.batch_id = $1) for update', l_s) into o_sub, o_consumer using p_batch;
	if o_sub is null then
		return;
	end if;
	execute format('select b.member, b.end_tick, b.acked_at from %1$I.stream_batches b
		where b.batch_id = $1 for update', l_s) into o_member, o_end, l_acked using p_batch;
	o_verdict := case when o_end is null then 6 when l_acked is not null then 8 else 0 end;
end $$;

-- Acknowledges a batch; one row.  A plain cursor moves to its end; that of a
-- group over all acked batches that follow one another.  p_consumer, p_member:
-- null, or who says it.  verdict 0, 2, 6, 7 held by another, 8, 9.
-- Locks: log key shared, subscription, batch.
create or replace function queen.stream_ack_v1(p_tenant uuid, p_queue text, p_batch bigint,
	p_consumer text, p_member text, p_now timestamptz default null)
returns table (verdict smallint, queue_id bigint, consumer text, last_tick bigint,
	next_tick bigint)
language plpgsql volatile as $$
declare
	l record; l_s text; l_last bigint;
begin
	l := queen.stream_hold(p_tenant, p_queue, p_batch, false);
	queue_id := l.o_id;
	consumer := l.o_consumer;
	verdict := case when l.o_verdict in (0, 8) and (p_consumer <> l.o_consumer
		or p_member <> l.o_member) then 7 else l.o_verdict end;
	if verdict > 0 then
		return next;
		return;
	end if;
	l_s := queen.stream_schema(l.o_id);
	execute format('with e as (delete from %1$I.stream_batch_events where batch_id = $1),
		n as (delete from %1$I.stream_nacks where batch_id = $1)
		update %1$I.stream_batches set acked_at = $2 where batch_id = $1', l_s)
	using p_batch, coalesce(p_now, clock_timestamp());
	execute format('select s.last_tick from %1$I.stream_subscriptions s where s.id = $1', l_s)
	into last_tick using l.o_sub;
	loop
		execute format('delete from %1$I.stream_batches where subscription_id = $1
			and start_tick = $2 and acked_at is not null returning end_tick', l_s)
		into l_last using l.o_sub, last_tick;
		exit when l_last is null;
		last_tick := l_last;
	end loop;
	execute format('update %1$I.stream_subscriptions s set last_tick = $2,
			next_tick = greatest(s.next_tick, $2), active_at = $3
		where s.id = $1 returning s.next_tick', l_s)
	into next_tick using l.o_sub, last_tick, coalesce(p_now, clock_timestamp());
	return next;
end $$;

-- Where in a batch a message is, by seq or by id or both: the seqs that match.
create or replace function queen.stream_find(p_queue_id bigint, p_batch bigint, p_message text,
	p_seq bigint)
returns table (seq bigint, segment smallint)
language plpgsql volatile as $$
declare
	l_s text := queen.stream_schema(p_queue_id); l_segment smallint;
begin
	for l_segment in execute format('select b.segment from %I.stream_batch_events b
		where b.batch_id = $1 and ($2 is null or $2 = any (b.seqs))', l_s)
		using p_batch, p_seq
	loop
		return query execute format('select e.seq, e.segment from unnest(case when $2 is null
				then (select b.seqs from %1$I.stream_batch_events b
					where b.batch_id = $1 and b.segment = %2$s)
				else array[$2] end) q (seq)
			cross join lateral (select * from %1$I.stream_events_%2$s x
				where x.seq = q.seq offset 0) e
			where $3 is null or e.event_id = $3 order by e.seq limit 100',
			l_s, l_segment) using p_batch, p_seq, p_message;
	end loop;
end $$;

-- Gives one message of an active batch back: it comes again after p_retry_ms
-- (null = 60 s), to this consumer alone, or when it came too often it is filed
-- as a dead letter.  Said again: the same answer, nothing written.  One row:
-- verdict 0, 2, 6, 8, 9, 10 not in the batch, 11 several have the id (seqs).
-- Locks: log and care keys shared, subscription, batch.
create or replace function queen.stream_nack_v1(p_tenant uuid, p_queue text, p_batch bigint,
	p_message text, p_seq bigint, p_retry_ms bigint, p_reason text,
	p_now timestamptz default null)
returns table (verdict smallint, queue_id bigint, message_id text, seq bigint,
	outcome smallint, retry_count int, max_retries int, deliver_at timestamptz,
	dead_letter_id bigint, seqs bigint[])
language plpgsql volatile as $$
declare
	l record; l_s text; l_segment smallint; l_now timestamptz := coalesce(p_now, clock_timestamp());
begin
	l := queen.stream_hold(p_tenant, p_queue, p_batch, true);
	queue_id := l.o_id;
	verdict := l.o_verdict;
	if verdict = 0 then
		select array_agg(f.seq), min(f.segment) into seqs, l_segment
		from queen.stream_find(l.o_id, p_batch, p_message, p_seq) f;
		verdict := case coalesce(cardinality(seqs), 0) when 0 then 10 when 1 then 0 else 11 end;
	end if;
	if verdict = 0 then
		seq := seqs[1];
		perform queen.stream_nack_put(l.o_id, p_batch, l.o_sub, l.o_consumer, l_segment, seq,
			l_now + coalesce(p_retry_ms, 60000) * interval '1 ms',
			coalesce(p_reason, 'max retries exceeded'), l_now);
		execute format('select e.event_id, n.outcome, n.retry_count, n.max_retries,
				n.deliver_at, n.dead_letter_id
			from %1$I.stream_nacks n, %1$I.stream_events_%2$s e
			where n.batch_id = $1 and n.seq = $2 and e.seq = $2',
			queen.stream_schema(l.o_id), l_segment)
		into message_id, outcome, retry_count, max_retries, deliver_at, dead_letter_id
		using p_batch, seq;
	end if;
	return next;
end $$;

-- Files the nack of a message unless it is filed: a retry or a dead letter, both
-- copies of the stored event.  The caller holds the care key and the batch.
create or replace function queen.stream_nack_put(p_queue_id bigint, p_batch bigint,
	p_subscription bigint, p_consumer text, p_segment smallint, p_seq bigint,
	p_deliver_at timestamptz, p_reason text, p_now timestamptz)
returns void language plpgsql volatile as $$
declare
	l_s text := queen.stream_schema(p_queue_id); l_max int; l_count int; l_dead bigint;
begin
	execute format('select e.retry_count from %1$I.stream_events_%2$s e where e.seq = $2
		and not exists (select from %1$I.stream_nacks n where n.batch_id = $1 and n.seq = $2)',
		l_s, p_segment) into l_count using p_batch, p_seq;
	if l_count is null then
		return;
	end if;
	select c.max_retries into l_max from queen.stream_config_get(p_queue_id) c;
	if l_count < l_max then
		execute format('insert into %1$I.stream_retry_events as r (subscription_id, seq, bytes,
				retry_count, deliver_at, created_at, event_id, type, payload, headers)
			select $1, e.seq, e.bytes, e.retry_count + 1, $3, e.created_at, e.event_id, e.type,
				e.payload, e.headers
			from %1$I.stream_events_%2$s e where e.seq = $2
			on conflict (subscription_id, seq) do update set
				retry_count = excluded.retry_count, deliver_at = excluded.deliver_at',
			l_s, p_segment) using p_subscription, p_seq, p_deliver_at;
		perform queen.stream_wake(p_queue_id, p_deliver_at, true);
	else
		execute format('insert into %1$I.stream_dead_letters as d (consumer, seq, bytes,
				retry_count, created_at, failed_at, event_id, type, payload, headers, reason)
			select $1, e.seq, e.bytes, e.retry_count, e.created_at, $3, e.event_id, e.type,
				e.payload, e.headers, $4
			from %1$I.stream_events_%2$s e where e.seq = $2
			on conflict (consumer, seq) do update set
				failed_at = excluded.failed_at, reason = excluded.reason
			returning d.id', l_s, p_segment) into l_dead using p_consumer, p_seq, p_now, p_reason;
	end if;
	execute format('insert into %1$I.stream_nacks (batch_id, seq, outcome, retry_count,
			max_retries, deliver_at, dead_letter_id)
		values ($1, $2, case when $5 is null then 1 else 2 end,
			case when $5 is null then $3 + 1 else $3 end, $4,
			case when $5 is null then $6 end, $5)', l_s)
	using p_batch, p_seq, l_count, l_max, l_dead, p_deliver_at;
end $$;
