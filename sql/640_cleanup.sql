-- SPDX-License-Identifier: Apache-2.0
-- Housekeeping beside retention, each call bounded.
--
--   cleanup_step_v1(...)   removes empty partitions nobody uses any more
--   purge_queue_v1(limit)  removes the rows of deleted queues
--   purge_group_v1(limit)  removes the cursors of deleted groups
--   prune_v1(days, limit)  old counters, retention log, repair notes
--
-- Lock order: partition heads (for update, skip locked), then what hangs off
-- them.  A push that resolved a partition id just before finds no head and
-- answers `gone`, so nothing is written into a removed id.  Cell-wide.

-- One page of the walk over partitions by last write, oldest first, starting
-- after (p_after_at, p_after_id).  Removes those that are empty, idle for
-- p_days and not vetoed by a dead letter, a live lease or recent activity of a
-- group.  One row: where to go on (null = the walk is over) and the queues and
-- ids removed.
create or replace function queen.cleanup_step_v1(
	p_days int, p_after_at timestamptz, p_after_id bigint, p_limit int,
	p_now timestamptz default null)
returns table (next_at timestamptz, next_id bigint, queues bigint[], parts bigint[])
language plpgsql volatile as $$
#variable_conflict use_column
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	cutoff timestamptz := t - make_interval(days => p_days);
	l_id bigint[]; n int;
begin
	select count(*), (array_agg(p.last_write_at))[count(*)],
		(array_agg(p.id))[count(*)],
		array_agg(p.id) filter (where p.oldest_live_at is null)
	into n, next_at, next_id, l_id
	from (select h.id, h.last_write_at, h.oldest_live_at
		from queen.partition_heads h
		where (h.last_write_at, h.id) > (p_after_at, p_after_id)
			and h.last_write_at < cutoff
		order by h.last_write_at, h.id limit p_limit) p;
	if n < p_limit then
		next_at := null;
		next_id := null;
	end if;
	-- the page was read without locks: all of it is asked again under them
	select array_agg(x.id) into l_id
	from (select h.id from queen.partition_heads h
		where h.id = any (l_id) order by h.id
		for update skip locked) x;
	select array_agg(h.queue_id order by h.id), array_agg(h.id order by h.id)
	into queues, parts
	from queen.partition_heads h
	join queen.partitions p on p.id = h.id and p.created_at < cutoff
	where h.id = any (l_id) and h.last_write_at < cutoff
		and not exists (select from queen.segments s
			where s.partition_id = h.id)
		and not exists (select from queen.dead_letters d
			where d.partition_id = h.id)
		and not exists (select from queen.consumers c
			where c.partition_id = h.id
				and (c.acquired_at >= cutoff
					or c.expires_at >= cutoff));
	if parts is not null then
		perform queen.partitions_drop(parts);
		insert into queen.retention_log (at, queue_id, partition_id,
			kind, messages)
		select t, i.queue_id, i.id, '__partition_deleted__', 0
		from unnest(queues, parts) i(queue_id, id);
	end if;
	return next;
end $$;

-- Removes partitions without messages and all that hangs off them; the caller
-- holds their heads.  Dead letters stay out of it: cleanup vetoes, purge has
-- its own step.
create or replace function queen.partitions_drop(p_part bigint[])
returns void
language plpgsql volatile as $$
begin
	delete from queen.segment_ids i where i.partition_id = any (p_part);
	delete from queen.consumers c where c.partition_id = any (p_part);
	delete from queen.partition_heads h where h.id = any (p_part);
	delete from queen.partitions p where p.id = any (p_part);
end $$;

-- One step on the oldest deleted queue: at most p_limit rows of a kind.
-- Returns rows removed; 0 = nothing to purge.
create or replace function queen.purge_queue_v1(p_limit int)
returns int
language plpgsql volatile as $$
declare
	l_queue bigint; l_part bigint[]; l_head bigint[]; n int; total int := 0;
begin
	select q.id into l_queue from queen.queues q
	where q.deleted_at is not null order by q.id limit 1
	for update skip locked;
	if not found then
		return 0;
	end if;
	select array_agg(p.id order by p.id) into l_part
	from (select p.id from queen.partitions p where p.queue_id = l_queue
		order by p.id limit 500) p;
	if l_part is not null then
		select array_agg(x.id) into l_head
		from (select h.id from queen.partition_heads h
			where h.id = any (l_part) order by h.id for update) x;
		delete from queen.segments s where s.ctid = any (array(
			select d.ctid from queen.segments d
			where d.partition_id = any (l_part) limit p_limit));
		get diagnostics n = row_count;
		total := n;
		if n < p_limit then
			delete from queen.segment_ids s where s.ctid = any (array(
				select d.ctid from queen.segment_ids d
				where d.partition_id = any (l_part)
				limit p_limit));
			get diagnostics n = row_count;
			total := total + n;
			if n < p_limit then
				perform queen.partitions_drop(l_part);
				total := total + cardinality(l_part);
			end if;
		end if;
		return total;
	end if;
	delete from queen.dead_letters d where d.ctid = any (array(
		select x.ctid from queen.dead_letters x
		where x.queue_id = l_queue limit p_limit));
	get diagnostics total = row_count;
	if total < p_limit then
		-- groups go by their own purge; the queue's row is last
		update queen.groups g set deleted_at = clock_timestamp()
		where g.queue_id = l_queue and g.deleted_at is null;
		delete from queen.repairs r where r.queue_id = l_queue;
		perform queen.seal_forget(l_queue);
		delete from queen.queues q where q.id = l_queue;
		total := total + 1;
	end if;
	return total;
end $$;

-- One step on the oldest deleted group: at most p_limit cursors.  Returns
-- rows removed; 0 = nothing to purge.
create or replace function queen.purge_group_v1(p_limit int)
returns int
language plpgsql volatile as $$
declare
	l_group bigint; n int;
begin
	select g.id into l_group from queen.groups g
	where g.deleted_at is not null order by g.id limit 1
	for update skip locked;
	if not found then
		return 0;
	end if;
	delete from queen.consumers c where c.ctid = any (array(
		select x.ctid from queen.consumers x
		where x.group_id = l_group limit p_limit));
	get diagnostics n = row_count;
	if n < p_limit then
		delete from queen.groups g where g.id = l_group;
		n := n + 1;
	end if;
	return n;
end $$;

-- Removes at most p_limit old rows of each kind: counters and retention log
-- older than p_days, repair notes older than an hour.  Returns rows removed.
create or replace function queen.prune_v1(
	p_days int, p_limit int, p_now timestamptz default null)
returns int
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp());
	cutoff timestamptz := t - make_interval(days => p_days);
	n int; total int := 0;
begin
	delete from queen.queue_minutes m where m.ctid = any (array(
		select x.ctid from queen.queue_minutes x
		where x.minute < cutoff limit p_limit));
	get diagnostics n = row_count;
	total := total + n;
	delete from queen.instance_minutes m where m.ctid = any (array(
		select x.ctid from queen.instance_minutes x
		where x.minute < cutoff limit p_limit));
	get diagnostics n = row_count;
	total := total + n;
	delete from queen.retention_log l where l.ctid = any (array(
		select x.ctid from queen.retention_log x
		where x.at < cutoff limit p_limit));
	get diagnostics n = row_count;
	total := total + n;
	delete from queen.repairs r where r.ctid = any (array(
		select x.ctid from queen.repairs x
		where x.at < t - interval '1 hour' limit p_limit));
	get diagnostics n = row_count;
	return total + n;
end $$;
