-- SPDX-License-Identifier: Apache-2.0
-- Jobs of queen-ojs, read: one, dead letters, events, which queues have something.
--
-- jobs_get_v1.

-- One job in the state it is in, swept or not: verdict 0, or 1.  No locks.
create or replace function queen.jobs_get_v1(p_tenant uuid, p_id uuid,
	p_now timestamptz default null)
returns setof queen.job_out
language plpgsql volatile as $$
declare
	t timestamptz := coalesce(p_now, clock_timestamp()); j queen.jobs;
begin
	select x.* into j from queen.jobs x
	where x.tenant = p_tenant and x.id = p_id and x.state + 0 <> 8
		and exists (select from queen.ojs_queues q
			where q.id = x.queue_id and q.deleted_at is null);
	if j.id is null then
		j.id := p_id;
		return query select f.* from queen.job_show(1, 1, j, null) f;
	else
		j := queen.job_at(j, t);
		return query select f.*
		from queen.job_show(0, 1, j, j.previous_state) f;
	end if;
end $$;
