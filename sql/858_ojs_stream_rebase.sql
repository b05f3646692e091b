-- SPDX-License-Identifier: Apache-2.0
-- Streams after a restore on another server, where the stored transaction ids
-- mean nothing: with ids above that server's, new events would look as if they
-- had been delivered long ago.  Schemas and locks: 850.
--
--   stream_check_v1      which logs need it
--   stream_rebase_v1     gives a log transaction ids of its own making

-- Logs that must not be used before stream_rebase_v1, of the newest 200: the
-- database was restored on another server.  The others are refused when they
-- are first used.
create or replace function queen.stream_check_v1()
returns table (queue_id bigint, why text)
language plpgsql volatile as $$
declare
	l_cur smallint;
begin
	for queue_id, l_cur in select s.queue_id, s.cur_segment
		from queen.ojs_queues q join queen.ojs_streams s on s.queue_id = q.id
		where q.deleted_at is null and q.stream_at is not null
		order by s.queue_id desc limit 200
	loop
		continue when not queen.stream_there(queue_id);
		if to_regclass(queen.stream_schema(queue_id) || '.stream_ticks') is null then
			why := 'missing';
			return next;
		elsif queen.stream_stale(queue_id, l_cur) then
			why := 'restored';
			return next;
		end if;
	end loop;
end $$;

-- Numbers the ticks of a log 1..n: an event that tick i was the first to see gets
-- the transaction id i + 2, one that none has seen n + 3, tick i a snapshot that
-- sees all ids below i + 3.  Every batch and cursor stays what it was.  Ids of
-- this server up to n + 3 are used up, so that what is new comes after them.
-- Returns the number of ticks, or null: no such log.
-- Locks: the log's key exclusively; 55P03 after 1 s.
create or replace function queen.stream_rebase_v1(p_queue_id bigint,
	p_now timestamptz default null)
returns bigint language plpgsql volatile as $$
declare
	l_n bigint; l_s text := queen.stream_schema(p_queue_id);
begin
	perform queen.stream_isolation();
	perform set_config('lock_timeout', '1s', true);
	perform pg_advisory_xact_lock(1869247281, queen.stream_key(p_queue_id));
	if not queen.stream_there(p_queue_id) then
		return null;
	end if;
	perform set_config('client_min_messages', 'warning', true);
	execute format('drop table if exists pg_temp.ojs_ticks, pg_temp.ojs_ids;
		create temp table ojs_ticks on commit drop as select t.tick_id, t.snapshot,
			pg_snapshot_xmax(t.snapshot) as top, row_number() over (order by t.tick_id) as i
			from %1$I.stream_ticks t;
		create index on ojs_ticks (top, i);
		analyze pg_temp.ojs_ticks;
		create temp table ojs_ids on commit drop as select d.txid, coalesce((select t.i
				from pg_temp.ojs_ticks t where t.top > d.txid
				and pg_visible_in_snapshot(d.txid, t.snapshot)
				order by t.top, t.i limit 1),
				(select count(*) + 1 from pg_temp.ojs_ticks)) + 2 as id
			from (select distinct txid from %1$I.stream_events) d;
		analyze pg_temp.ojs_ids;
		update %1$I.stream_events e set txid = m.id::text::xid8
			from pg_temp.ojs_ids m where m.txid = e.txid;
		update %1$I.stream_ticks t
			set snapshot = format(''%%1$s:%%1$s:'', r.i + 3)::pg_snapshot
			from pg_temp.ojs_ticks r where r.tick_id = t.tick_id;
		update %1$I.stream_segments g set sealed_xid = pg_snapshot_xmax(t.snapshot)
			from %1$I.stream_ticks t where t.tick_id = g.seal_tick', l_s);
	select count(*) into l_n from pg_temp.ojs_ticks;
	perform queen.stream_spend(p_queue_id,
		l_n + 4 - pg_current_xact_id()::text::bigint);
	update queen.ojs_stream_work w set due_at = coalesce(p_now, clock_timestamp())
	where w.queue_id = p_queue_id;
	return l_n;
end $$;

-- Uses up p_n transaction ids: each block with a handler is a subtransaction, which
-- draws an id of its own once it writes.  The rows are removed again.
create or replace function queen.stream_spend(p_queue_id bigint, p_n bigint)
returns void language plpgsql volatile as $$
declare
	i bigint := 0; l_s text := queen.stream_schema(p_queue_id);
begin
	while i < p_n loop
		begin
			execute format('insert into %I.stream_nacks (batch_id, seq, outcome,
				retry_count, max_retries) values (0, $1, 0, 0, 0)', l_s) using i;
		exception when division_by_zero then
			null;
		end;
		i := i + 1;
	end loop;
	execute format('delete from %I.stream_nacks where batch_id = 0', l_s);
end $$;
