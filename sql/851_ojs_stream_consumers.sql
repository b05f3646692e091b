-- SPDX-License-Identifier: Apache-2.0
-- Consumers of a stream: each a cursor on a tick.  Schemas and locks: 850.
--
--   stream_subscribe_v1, stream_unsubscribe_v1, stream_touch_v1

-- The tick a new or moved cursor stands on: null = the newest, 'now' = one made
-- here, '0' = before the first event still there, else that tick or null.
-- The caller holds the care key, so that no tick goes meanwhile.
create or replace function queen.stream_from(p_queue_id bigint, p_from text, p_now timestamptz)
returns bigint language plpgsql volatile as $$
declare
	l_floor bigint; l_tick bigint; l_snapshot pg_snapshot;
begin
	if p_from = 'now' then
		perform pg_advisory_xact_lock(1869247282, queen.stream_key(p_queue_id));
		select pg_current_snapshot() into l_snapshot;
		return queen.stream_tick_put(p_queue_id, l_snapshot, p_now);
	end if;
	select s.floor_tick into l_floor from queen.ojs_streams s where s.queue_id = p_queue_id;
	if p_from::numeric = 0 then
		return l_floor;
	elsif p_from::numeric > 9223372036854775807 then
		return null;
	end if;
	execute format('select t.tick_id from %1$I.stream_ticks t
		where t.tick_id >= $1 and ($2 is null or t.tick_id = $2)
		order by t.tick_id desc limit 1', queen.stream_schema(p_queue_id))
	into l_tick using l_floor, p_from::numeric::bigint;
	return l_tick;
end $$;

-- Forgets the batches of a subscription.
create or replace function queen.stream_forget(p_queue_id bigint, p_subscription bigint)
returns void language plpgsql volatile as $$
begin
	execute format('with b as (delete from %1$I.stream_batches
			where subscription_id = $1 returning batch_id),
		n as (delete from %1$I.stream_nacks where batch_id = any (array(select batch_id from b)))
		delete from %1$I.stream_batch_events
		where batch_id = any (array(select batch_id from b))',
		queen.stream_schema(p_queue_id)) using p_subscription;
end $$;

-- Makes a consumer, or with p_from moves one and drops its batches; one row.
-- p_from: null, 'now' or a tick in digits.  verdict 0, 1 no log yet, 9 needs
-- rebase, 12 no such tick.  Locks: log and care keys shared, the subscription;
-- with 'now' the tick key.
create or replace function queen.stream_subscribe_v1(p_tenant uuid, p_queue text,
	p_consumer text, p_from text, p_now timestamptz default null)
returns table (verdict smallint, queue_id bigint, created boolean, last_tick bigint,
	next_tick bigint, created_at timestamptz)
language plpgsql volatile as $$
declare
	l record; l_now timestamptz := coalesce(p_now, clock_timestamp());
	l_s text; l_id bigint; l_tick bigint;
begin
	l := queen.stream_open(p_tenant, p_queue);
	queue_id := l.o_id;
	verdict := case when l.o_live is not true then 1 when l.o_stale then 9 else 0 end;
	if verdict > 0 then
		return next;
		return;
	end if;
	l_s := queen.stream_schema(l.o_id);
	perform pg_advisory_xact_lock_shared(1869247283, queen.stream_key(l.o_id));
	if p_from is distinct from 'now' then
		l_tick := queen.stream_from(l.o_id, p_from, l_now);
		if l_tick is null then
			verdict := 12;
			return next;
			return;
		end if;
	end if;
	loop
		execute format('insert into %1$I.stream_subscriptions as s
				(consumer, last_tick, next_tick, active_at, created_at)
			select $1, x, x, $3, $3 from (select coalesce($2, (select max(tick_id)
				from %1$I.stream_ticks)) x) t
			where not exists (select from %1$I.stream_subscriptions where consumer = $1)
			on conflict (consumer) do nothing
			returning s.id, s.last_tick, s.next_tick, s.created_at', l_s)
		into l_id, last_tick, next_tick, created_at using p_consumer, l_tick, l_now;
		created := l_id is not null;
		exit when created;
		execute format('select s.id, s.last_tick, s.next_tick, s.created_at
			from %1$I.stream_subscriptions s where s.consumer = $1' ||
			case when p_from is not null then ' for update' else '' end, l_s)
		into l_id, last_tick, next_tick, created_at using p_consumer;
		exit when l_id is not null;
	end loop;
	if p_from is not null then
		l_tick := coalesce(l_tick, queen.stream_from(l.o_id, p_from, l_now));
		perform queen.stream_forget(l.o_id, l_id);
		execute format('update %1$I.stream_subscriptions set last_tick = $2, next_tick = $2
			where id = $1', l_s) using l_id, l_tick;
		last_tick := l_tick;
		next_tick := l_tick;
	end if;
	perform queen.stream_wake(l.o_id, l_now + interval '5 s');
	return next;
end $$;

-- Removes a consumer with its batches and retries; dead letters stay.  One row:
-- verdict 0, 2, 3, 9.
create or replace function queen.stream_unsubscribe_v1(p_tenant uuid, p_queue text,
	p_consumer text, p_now timestamptz default null)
returns table (verdict smallint, queue_id bigint)
language plpgsql volatile as $$
declare
	l record; l_s text; l_id bigint;
begin
	l := queen.stream_open(p_tenant, p_queue);
	queue_id := l.o_id;
	if l.o_live and not l.o_stale then
		l_s := queen.stream_schema(l.o_id);
		execute format('select s.id from %1$I.stream_subscriptions s
			where s.consumer = $1 for update', l_s) into l_id using p_consumer;
	end if;
	verdict := case when l.o_id is null then 2 when l.o_stale then 9
		when l_id is null then 3 else 0 end;
	if verdict = 0 then
		perform queen.stream_forget(l.o_id, l_id);
		execute format('with r as (delete from %1$I.stream_retry_events
				where subscription_id = $1)
			delete from %1$I.stream_subscriptions where id = $1', l_s) using l_id;
	end if;
	return next;
end $$;

-- A member says that it lives, so that nobody takes over its batch; one row:
-- verdict 0, 2, 3, 9, and how many batches it holds.
create or replace function queen.stream_touch_v1(p_tenant uuid, p_queue text,
	p_consumer text, p_member text, p_now timestamptz default null)
returns table (verdict smallint, queue_id bigint, batches int)
language plpgsql volatile as $$
declare
	l record; l_s text; l_id bigint;
begin
	l := queen.stream_open(p_tenant, p_queue);
	queue_id := l.o_id;
	batches := 0;
	if l.o_live and not l.o_stale then
		l_s := queen.stream_schema(l.o_id);
		execute format('select s.id from %1$I.stream_subscriptions s
			where s.consumer = $1 for update', l_s) into l_id using p_consumer;
	end if;
	verdict := case when l.o_id is null then 2 when l.o_stale then 9
		when l_id is null then 3 else 0 end;
	if verdict = 0 then
		execute format('update %1$I.stream_batches set active_at = $3
			where subscription_id = $1 and member = $2 and acked_at is null', l_s)
		using l_id, p_member, coalesce(p_now, clock_timestamp());
		get diagnostics batches = row_count;
	end if;
	return next;
end $$;
