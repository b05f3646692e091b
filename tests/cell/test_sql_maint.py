# SPDX-License-Identifier: Apache-2.0
"""610_minutes.sql to 640_cleanup.sql: claims, retention, purge, counters."""
import json

import pytest

from queenlib import OTHER_TENANT, TENANT
from sqlkit import Kit, at, mid

pytestmark = pytest.mark.allpg


@pytest.fixture
def kit(db):
    return Kit(db.connect())


def option(kit, queue, **values):
    for name, value in values.items():
        kit.rows("update queen.queues set %s = %%s where id = %%s" % name,
                 value, queue)


def due(kit, now, cap=100):
    return [r[0] for r in kit.rows(
        "select part from queen.retention_due_v1(%s, %s)", cap, now)]


def step(kit, part, now, limit=100):
    """(segments, messages, more) of one step, or None."""
    found = kit.rows("select segments, messages, more"
                     " from queen.retention_step_v1(%s, %s, %s)",
                     part, limit, now)
    return found[0] if found else None


def head(kit, part):
    return kit.rows("select log_start, oldest_live_at, oldest_id_at"
                    " from queen.partition_heads where id = %s", part)[0]


def logged(kit):
    return kit.rows("select kind, messages from queen.retention_log"
                    " order by at, kind")


@pytest.fixture
def part(kit):
    """Ten segments of 2 messages, one every 10 seconds from 0."""
    q = kit.queue("q")
    p = kit.part(q, "a")
    for i in range(10):
        kit.push(p, 2, now=at(i * 10))
    kit.q = q
    return p


# The three rules

def test_no_rule_nothing_is_due(kit, part):
    assert due(kit, at(1e6)) == []
    assert step(kit, part, at(1e6)) == (0, 0, False)
    assert head(kit, part)[0] == 0


def test_rule_1_deletes_by_age_whether_consumed_or_not(kit, part):
    option(kit, kit.q, retention_enabled=True, retention_s=60)
    assert due(kit, at(60)) == []           # the cutoff itself is kept
    assert due(kit, at(61)) == [part]
    assert step(kit, part, at(85)) == (3, 6, False)   # stamps 0, 10, 20
    assert head(kit, part)[:2] == (6, at(30))
    assert logged(kit) == [("retention", 6)]


def test_rule_1_needs_the_master_switch(kit, part):
    option(kit, kit.q, retention_s=60)
    assert due(kit, at(1e6)) == []
    assert step(kit, part, at(1e6)) == (0, 0, False)


def test_rule_2_without_a_group_deletes_nothing(kit, part):
    option(kit, kit.q, retention_enabled=True, completed_retention_s=60)
    assert step(kit, part, at(1000)) == (0, 0, False)


def test_rule_2_stops_at_the_slowest_group(kit, part):
    option(kit, kit.q, retention_enabled=True, completed_retention_s=60)
    fast, slow = kit.group(kit.q, "fast"), kit.group(kit.q, "slow")
    kit.pop([part], fast, 1, auto=True, now=at(100))
    kit.pop([part], slow, 2, budget=5, auto=True, now=at(100))
    # slow has committed 0..4: offsets 0..3 are whole segments below it
    assert step(kit, part, at(1000)) == (2, 4, False)
    assert head(kit, part)[0] == 4
    assert logged(kit) == [("completed_retention", 4)]


def test_rule_2_counts_a_group_without_a_row_at_its_start(kit, part):
    option(kit, kit.q, retention_enabled=True, completed_retention_s=60)
    kit.group(kit.q, "all")                 # begins at the start: holds all
    assert step(kit, part, at(1000)) == (0, 0, False)
    kit.rows("update queen.groups set start_at = %s", at(45))
    assert step(kit, part, at(1000)) == (5, 10, False)   # stamps 0 to 40


def test_rule_2_backs_off_from_a_lagging_group(kit, part):
    option(kit, kit.q, retention_enabled=True, completed_retention_s=60)
    kit.group(kit.q, "lags")
    assert due(kit, at(1000)) == [part]
    assert step(kit, part, at(1000)) == (0, 0, False)
    assert due(kit, at(1004)) == []
    assert due(kit, at(1006)) == [part]     # 5 s later, then 10 s
    step(kit, part, at(1006))
    assert due(kit, at(1015)) == [] and due(kit, at(1017)) == [part]
    for _ in range(20):
        step(kit, part, at(2000))
    assert kit.value("select retry_ms from queen.partition_heads") == 600000


def test_the_back_off_never_holds_rule_1(kit, part):
    option(kit, kit.q, retention_enabled=True, completed_retention_s=10,
           retention_s=500)
    kit.group(kit.q, "lags")
    step(kit, part, at(400))
    assert due(kit, at(401)) == []
    assert due(kit, at(501)) == [part]


def test_rule_3_ignores_the_switch_and_leases(kit, part):
    option(kit, kit.q, max_wait_s=60)
    g = kit.group(kit.q, "g")
    kit.pop([part], g, 1, now=at(100))
    assert step(kit, part, at(1000)) == (10, 20, False)
    assert head(kit, part)[:2] == (20, None)
    assert logged(kit) == [("max_wait_time_eviction", 20)]


def test_the_larger_boundary_wins_and_each_rule_is_logged(kit, part):
    option(kit, kit.q, retention_enabled=True, retention_s=80,
           completed_retention_s=60, max_wait_s=40)
    kit.pop([part], kit.group(kit.q, "g"), 1, auto=True, now=at(100))
    # rule 1: stamps < 20; rule 2: < 40; rule 3: < 60
    assert step(kit, part, at(100)) == (6, 12, False)
    assert logged(kit) == [("completed_retention", 4),
                           ("max_wait_time_eviction", 4), ("retention", 4)]


def test_a_sink_hold_without_a_pointer_holds_up_to_its_cap(kit, part):
    option(kit, kit.q, retention_enabled=True, retention_s=10,
           retention_sink_hold="s3", retention_sink_hold_max_s=100)
    assert step(kit, part, at(100)) == (0, 0, False)
    assert step(kit, part, at(125)) == (3, 6, False)     # stamps < 25
    option(kit, kit.q, max_wait_s=10)       # rule 3 does not know the hold
    assert step(kit, part, at(125))[0] == 7


# The sink hold: what queen-s3 has not committed stays (spec of the sink, 18)

def pointer(kit, what, value, queue="q", sink="s3", tenant=TENANT, written=0,
            ttl=None):
    """A row of the sink, as a client may write it too."""
    kit.rows("delete from queen.kv where tenant = %s and key = %s", tenant,
             "s3:%s:%s:%s" % (sink, queue, what))
    kit.rows("select queen.kv_put(%s, 'queen-s3', %s, %s, null, %s, %s)",
             tenant, "s3:%s:%s:%s" % (sink, queue, what), json.dumps(value),
             at(written + ttl) if ttl else None, at(written))


def iso(seconds):
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def micros(seconds):
    return int(at(seconds).timestamp()) * 1000000


def floor(kit, now, name="q"):
    """Seconds since at(0) of the floor a hold gives."""
    return (kit.value("select queen.lake_floor(q, %s) from queen.queues q"
                      " where q.name = %s", at(now), name)
            - at(0)).total_seconds()


@pytest.fixture
def held(kit, part):
    option(kit, kit.q, retention_enabled=True, retention_s=10,
           retention_sink_hold="s3", retention_sink_hold_max_s=1000)
    return part


def test_a_committed_pointer_holds_a_minute_before_its_end(kit, held):
    """152: ISO text and, of older ones, integer microseconds."""
    for end in (iso(110), micros(110), iso(110)[:-8] + "Z"):
        pointer(kit, "committed", {"k": 3, "tEnd": end})
        assert floor(kit, 200) == 50
    assert step(kit, held, at(200)) == (5, 10, False)    # stamps < 50
    # never above what the rule itself says
    pointer(kit, "committed", {"k": 4, "tEnd": iso(1000)})
    assert step(kit, held, at(75)) == (2, 4, False)      # stamps < 65
    option(kit, kit.q, retention_s=0, completed_retention_s=1)
    kit.group(kit.q, "g", start=at(1000), mode="new")
    pointer(kit, "committed", {"k": 4, "tEnd": iso(140)})
    assert step(kit, held, at(200)) == (1, 2, False)     # stamps < 80
    option(kit, kit.q, retention_sink_hold="")
    assert step(kit, held, at(200)) == (2, 4, False)


def test_the_cap_beats_a_stale_pointer(kit, held):
    pointer(kit, "committed", {"k": 3, "tEnd": iso(0)})
    assert floor(kit, 500) == -60
    assert floor(kit, 1020) == 20
    option(kit, kit.q, retention_sink_hold_max_s=1)     # a minute at least
    assert floor(kit, 500) == 440


UNREADABLE = [
    5, "text", None, [1], {}, {"tEnd": {}}, {"tEnd": "2026-01-01"},
    {"tEnd": "2026-13-01T00:00:00Z"}, {"tEnd": "9999-12-31T99:00:00Z"},
    {"tEnd": 1.5}, {"tEnd": 10 ** 30}, {"tEnd": "infinity"}, {"tEnd": True},
    {"tEnd": None}, {"k": 1e300, "tEnd": "now"}, {"tEnd": "12"}]


def test_what_cannot_be_read_falls_to_the_cap(kit, held):
    for value in UNREADABLE:
        pointer(kit, "committed", value)
        pointer(kit, "intent", value)
        assert floor(kit, 500) == -500, value
        assert step(kit, held, at(500)) == (0, 0, False), value


def test_the_pointer_is_that_of_sink_queue_and_tenant(kit, held):
    done = {"k": 3, "tEnd": iso(400)}
    pointer(kit, "committed", done, tenant=OTHER_TENANT)
    pointer(kit, "committed", done, sink="other")
    pointer(kit, "committed", done, queue="Q")
    pointer(kit, "committed", done, ttl=10)             # dead
    assert floor(kit, 500) == -500
    kit.queue("a/b c")
    option(kit, kit.queue("a/b c"), retention_sink_hold="s3",
           retention_sink_hold_max_s=1000)
    pointer(kit, "committed", done, queue="a/b c")
    assert floor(kit, 500, "a/b c") == -500
    pointer(kit, "committed", done, queue="a%2Fb%20c")
    assert floor(kit, 500, "a/b c") == 340


def test_an_open_window_is_held_while_it_is_shipped(kit, held):
    """From its start, even past the cap, for as long as the cap since it was
    opened."""
    option(kit, kit.q, retention_sink_hold_max_s=100)
    one = {"k": 1, "tStart": micros(20), "tEnd": micros(40)}
    pointer(kit, "intent", one, written=300)
    assert floor(kit, 399) == 20
    assert floor(kit, 401) == 301
    pointer(kit, "committed", {"k": 3, "tEnd": iso(200)})
    assert floor(kit, 310) == 210                       # of another window
    pointer(kit, "intent", dict(one, k=3), written=300)
    assert floor(kit, 310) == 210                       # committed by now
    pointer(kit, "intent", dict(one, k=4), written=300)
    assert floor(kit, 310) == 20
    assert step(kit, held, at(310)) == (2, 4, False)    # stamps < 20
    pointer(kit, "intent", dict(one, k=4, tStart=None), written=300)
    assert floor(kit, 310) == 210


ESCAPED = [
    ("../../etc", "..%2F..%2Fetc"), ("caffè", "caff%C3%A8"),
    ("100%", "100%25"), ("a b/ü:c", "a%20b%2F%C3%BC%3Ac"), ("a~b", "a%7Eb"),
    ("AZaz09._-", "AZaz09._-"), ("", ""), ("été", "%C3%A9t%C3%A9"),
    ("=?&\n\U0001f600", "%3D%3F%26%0A%F0%9F%98%80")]


def test_names_are_escaped_as_the_sink_does(kit):
    """The examples of the specification; the sink's own tests have them too."""
    for name, want in ESCAPED:
        assert kit.value("select queen.lake_escape(%s)", name) == want


def test_a_queue_without_a_hold_pays_nothing(kit):
    """One due look over many queues asks for rows of the sinks of those alone
    that have a hold, and once each."""
    for setting in ("plan_cache_mode = force_generic_plan",
                    "enable_seqscan = off", "enable_bitmapscan = off"):
        kit.rows("set " + setting)
    kit.rows("insert into queen.queues (tenant, name, retention_enabled,"
             " retention_s, retention_sink_hold) select %s, 'n' || i, true,"
             " 100, case when i %% 1000 = 0 then 's3' else '' end"
             " from generate_series(1, 5000) i", TENANT)
    kit.rows("insert into queen.partition_heads (id, queue_id, last_write_at,"
             " oldest_live_at) select q.id * 10 + i, q.id, %s, %s"
             " from queen.queues q, generate_series(1, 5) i", at(0), at(0))
    kit.rows("analyze queen.queues")

    def looks():
        kit.rows("select pg_stat_force_next_flush()")
        return kit.value("select coalesce(sum(calls), 0)::int from"
                         " pg_stat_user_functions where funcname ="
                         " 'lake_floor'")

    kit.rows("set track_functions = 'all'")
    before = looks()
    assert due(kit, at(100)) == []
    assert looks() - before == 5
    # a day later all but the held ones: their cap is a week
    assert len(due(kit, at(86400), 100000)) == 4995 * 5
    assert looks() - before == 10
    assert len(due(kit, at(700000), 100000)) == 5000 * 5


def test_steps_are_bounded_and_go_on(kit, part):
    option(kit, kit.q, retention_enabled=True, retention_s=1)
    assert step(kit, part, at(1000), limit=4) == (4, 8, True)
    assert step(kit, part, at(1000), limit=4) == (4, 8, True)
    assert step(kit, part, at(1000), limit=4) == (2, 4, False)
    assert step(kit, part, at(1000), limit=4) == (0, 0, False)


def test_offsets_and_stamps_go_on_after_the_log_was_emptied(kit, part):
    option(kit, kit.q, max_wait_s=1)
    step(kit, part, at(1000))
    assert kit.push(part, 1, now=at(5)) == 20
    assert kit.value("select created_at from queen.segments") == at(90)


def test_log_start_never_moves_back(kit, part):
    option(kit, kit.q, max_wait_s=1)
    step(kit, part, at(1000))
    step(kit, part, at(1))
    assert head(kit, part)[0] == 20


def test_due_is_capped_and_oldest_first(kit):
    q = kit.queue("q")
    option(kit, q, max_wait_s=1)
    parts = kit.parts(q, ["a", "b", "c"])
    for i, p in enumerate(parts):
        kit.push(p, 1, now=at(30 - i))
    assert due(kit, at(100), cap=2) == [parts[2], parts[1]]


def test_a_deleted_queue_is_left_to_the_purge(kit, part):
    option(kit, kit.q, max_wait_s=1, deleted_at=at(0))
    assert due(kit, at(1000)) == []
    assert step(kit, part, at(1000)) is None


# Id rows

def ids_step(kit, part, now, limit=100):
    return kit.rows("select deleted, more from queen.ids_step_v1(%s, %s, %s)",
                    part, limit, now)[0]


def ids_due(kit, now):
    return [r[0] for r in kit.rows(
        "select part from queen.ids_due_v1(100, %s)", now)]


def test_id_rows_stay_while_their_segment_does(kit, part):
    assert ids_due(kit, at(1e6)) == []
    assert ids_step(kit, part, at(1e6)) == (0, False)


@pytest.mark.parametrize("options, window", [
    ({"dedup_window_s": 0}, 900),
    ({"dedup_window_s": 3600}, 3600),
    ({"dedup_window_s": 0, "completed_retention_s": 5000}, 5000)])
def test_id_rows_outlive_segments_for_the_window(kit, part, options, window):
    option(kit, kit.q, max_wait_s=1, **options)
    step(kit, part, at(60))                 # stamps 0 to 50 go
    assert head(kit, part)[2] == at(0)
    assert ids_due(kit, at(window)) == []
    assert ids_due(kit, at(window + 1)) == [part]
    assert ids_step(kit, part, at(window + 25)) == (3, False)
    assert kit.value("select count(*) from queen.segment_ids") == 7
    assert kit.rows("select ids_start, oldest_id_at"
                    " from queen.partition_heads") == [(6, at(30))]
    assert ids_step(kit, part, at(1e6)) == (3, False)
    assert head(kit, part)[2] is None       # every row has its segment again
    assert ids_due(kit, at(1e6)) == []


def test_a_duplicate_is_still_known_after_retention(kit, part):
    kit.push(part, ids=["x"], now=at(95))
    option(kit, kit.q, max_wait_s=1)
    step(kit, part, at(1000))
    found = kit.rows(
        "select verdict, dup_off from queen.push_v1(%s, %s, array[1],"
        " %s::bytea[], array[9], array[null]::smallint[],"
        " array['\\x0100']::bytea[], array[-1]::bigint[],"
        " array['-infinity']::timestamptz[], '{}', '{}', '{}', '{}', %s)",
        TENANT, [part], [mid("x")], at(1000))
    assert found == [(1, [20])]


# Cleanup of idle partitions

DAY = 86400


def cleanup(kit, now, days=30, limit=100, after="-infinity", after_id=0):
    return kit.rows("select next_at, parts from queen.cleanup_step_v1("
                    "%s, %s, %s, %s, %s)", days, after, after_id, limit,
                    now)[0]


def idle(kit, name="idle"):
    """A partition whose only message retention removed."""
    q = kit.queue("q")
    p = kit.value("select id from queen.partitions_ensure_v1(%s, %s, %s, %s)",
                  TENANT, [q], [name], at(0))
    kit.push(p, 1, now=at(0))
    option(kit, q, max_wait_s=1)
    step(kit, p, at(10))
    kit.q = q
    return p


def test_an_empty_idle_partition_goes_with_its_rows(kit):
    p = idle(kit)
    assert cleanup(kit, at(29 * DAY)) == (None, None)
    assert cleanup(kit, at(31 * DAY)) == (None, [p])
    for table in ("partitions", "partition_heads"):
        assert kit.value("select count(*) from queen." + table) == 0
    assert kit.value("select count(*) from queen.segment_ids") == 0
    assert ("__partition_deleted__", 0) in logged(kit)
    # written again it is another partition, from offset 0
    again = kit.part(kit.q, "idle")
    assert again != p and kit.push(again, 1) == 0


def test_cleanup_keeps_what_is_in_use(kit):
    q = kit.queue("q")
    p = idle(kit, "letter")
    kit.rows("insert into queen.dead_letters (id, queue_id, partition_id,"
             " group_name, message_offset, id_hash, retries, failed_at)"
             " values (gen_random_uuid(), %s, %s, 'g', 0, '\\x00', 0, %s)",
             q, p, at(0))
    full = kit.part(q, "full")
    kit.push(full, 1, now=at(0))
    active = idle(kit, "active")
    g = kit.group(q, "g")
    kit.pop([active], g, 1, now=at(40 * DAY))
    kit.rows("update queen.consumers set acquired_at = %s", at(35 * DAY))
    assert cleanup(kit, at(40 * DAY)) == (None, None)
    assert kit.value("select count(*) from queen.partitions") == 3


def test_cleanup_walks_in_pages(kit):
    parts = [idle(kit, "p%d" % i) for i in range(5)]
    next_at, gone = cleanup(kit, at(40 * DAY), limit=2)
    assert gone == parts[:2] and next_at is not None
    rest = cleanup(kit, at(40 * DAY), limit=10, after=next_at,
                   after_id=parts[1])
    assert rest == (None, parts[2:])


def test_a_push_into_a_cleaned_partition_is_told_gone(kit):
    p = idle(kit)
    cleanup(kit, at(40 * DAY))
    found = kit.rows(
        "select verdict from queen.push_v1(%s, %s, array[1], %s::bytea[],"
        " array[9], array[null]::smallint[], array['\\x0100']::bytea[],"
        " array[null]::bigint[], array[null]::timestamptz[],"
        " '{}', '{}', '{}', '{}')", TENANT, [p], [mid("y")])
    assert found == [(2,)]


def test_cleanup_waits_for_nobody(kit, db):
    p = idle(kit)
    other = db.connect(autocommit=False)
    cur = other.cursor()
    cur.execute("select from queen.partition_heads where id = %s"
                " for no key update", (p,))
    kit.rows("set lock_timeout = '1s'")
    assert cleanup(kit, at(40 * DAY)) == (None, None)
    other.rollback()
    assert cleanup(kit, at(40 * DAY)) == (None, [p])


# Purge

def purge_all(kit, function, limit=100):
    for n in range(1000):
        if kit.value("select queen.%s(%%s)" % function, limit) == 0:
            return n
    raise AssertionError("the purge never ends")


def test_purge_removes_every_row_of_a_deleted_queue(kit, part):
    g = kit.group(kit.q, "g")
    kit.pop([part], g, 1, now=at(100))
    kit.rows("insert into queen.dead_letters (id, queue_id, partition_id,"
             " group_name, message_offset, id_hash, retries, failed_at)"
             " values (gen_random_uuid(), %s, %s, 'g', 0, '\\x00', 0, %s)",
             kit.q, part, at(0))
    other = kit.part(kit.queue("other"), "a")
    kit.push(other, 1)
    option(kit, kit.q, deleted_at=at(0))
    assert purge_all(kit, "purge_queue_v1", limit=3) > 3   # bounded steps
    purge_all(kit, "purge_group_v1", limit=3)
    for table, left in (("queues", 1), ("partitions", 1), ("segments", 1),
                        ("segment_ids", 1), ("partition_heads", 1),
                        ("consumers", 0), ("groups", 0),
                        ("dead_letters", 0)):
        assert kit.value("select count(*) from queen." + table) == left, table


def test_purge_of_a_group_leaves_the_others(kit, part):
    gone, kept = kit.group(kit.q, "gone"), kit.group(kit.q, "kept")
    kit.pop([part], gone, 1)
    kit.pop([part], kept, 2)
    kit.rows("update queen.groups set deleted_at = now() where id = %s", gone)
    purge_all(kit, "purge_group_v1")
    assert kit.rows("select group_id from queen.consumers") == [(kept,)]
    assert kit.rows("select id from queen.groups") == [(kept,)]


# Claims

def take(kit, holder, now, lease_ms=60000):
    return kit.value("select fence from queen.claim_take_v1("
                     "'retention', %s, %s, %s)", holder, lease_ms, now)


def give(kit, fence, ok, now):
    return kit.value("select queen.claim_give_v1('retention', %s, %s, %s)",
                     fence, ok, now)


@pytest.fixture
def claim(kit):
    kit.rows("select queen.claim_ensure_v1('retention', 5000, %s)", at(0))
    return kit


def test_one_holder_at_a_time(claim):
    assert take(claim, "a", at(0)) == 1
    assert take(claim, "b", at(1)) is None
    assert give(claim, 1, True, at(2))
    assert take(claim, "b", at(4)) is None      # due at 5 s
    assert take(claim, "b", at(5)) == 2


def test_an_expired_lease_is_taken_over_and_its_fence_is_stale(claim):
    assert take(claim, "a", at(0)) == 1
    assert take(claim, "b", at(61)) == 2
    assert give(claim, 1, True, at(62)) is False
    assert give(claim, 2, True, at(62)) is True


def test_a_failed_run_stays_due(claim):
    take(claim, "a", at(0))
    give(claim, 1, False, at(1))
    assert take(claim, "b", at(1)) == 2
    assert claim.value("select runs from queen.claims") == 0


def test_a_late_run_does_not_make_up_for_lost_periods(claim):
    take(claim, "a", at(100))
    give(claim, 1, True, at(101))
    assert claim.value("select next_due_at from queen.claims") == at(101)


def test_a_switched_off_task_is_not_taken(claim):
    claim.rows("update queen.claims set enabled = false")
    assert take(claim, "a", at(10)) is None
    claim.rows("select queen.claim_ensure_v1('retention', 1000, %s)", at(10))
    assert take(claim, "a", at(10)) is None


def test_a_shorter_period_brings_the_next_run_forward(claim):
    take(claim, "a", at(0))
    give(claim, 1, True, at(0))
    claim.rows("select queen.claim_ensure_v1('retention', 1000, %s)", at(0))
    assert claim.value("select next_due_at from queen.claims") == at(1)


# Counters

def minutes(kit, queue, n, now):
    kit.rows("select queen.minutes_add_v1(%s)" % ", ".join(
        ["array[%s]"] * 19 + ["%s"]), queue, *([n] * 18), now)


def test_minutes_of_a_queue_that_is_gone_are_left_out(kit):
    q = kit.queue("q")
    minutes(kit, q + 1, 3, at(10))
    minutes(kit, q, 2, at(10))
    assert kit.rows("select queue_id, push_messages"
                    " from queen.queue_minutes") == [(q, 2)]


def test_minutes_add_up_and_keep_the_largest_lag(kit):
    q = kit.queue("q")
    minutes(kit, q, 3, at(10))
    minutes(kit, q, 2, at(50))
    minutes(kit, q, 1, at(70))
    assert kit.rows("select minute, push_messages, lag_sum_ms, lag_max_ms"
                    " from queen.queue_minutes order by minute") == [
        (at(0), 5, 5, 3), (at(60), 1, 1, 1)]
    assert dict(kit.rows("select * from queen.prometheus_totals_v1()"))[
        "push_messages"] == 6


def test_prune_removes_what_is_old_in_bounded_steps(kit):
    q = kit.queue("q")
    for i in range(5):
        minutes(kit, q, 1, at(i * 60))
    now = at(91 * DAY)
    assert kit.value("select queen.prune_v1(90, 3, %s)", now) == 3
    assert kit.value("select queen.prune_v1(90, 3, %s)", now) == 2
    assert kit.value("select queen.prune_v1(90, 3, %s)", now) == 0
    assert dict(kit.rows("select * from queen.prometheus_totals_v1()"))[
        "push_messages"] == 5
