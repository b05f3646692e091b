# SPDX-License-Identifier: Apache-2.0
"""100_catalog.sql: names to rows; the plans of the hot calls."""
import collections
import datetime
import re

import pytest

from hotkit import Hot, hot, q, refused, together  # noqa: F401
from queenlib import OTHER_TENANT, TENANT
from sqlkit import at

pytestmark = pytest.mark.allpg


def resolve(hot, names, create=True, now=None, tenant=TENANT):
    return hot.named("select * from queen.queue_resolve_v1(%s, %s, %s, %s)",
                     [tenant, names, create, now])


def ensure(hot, pairs, now=None, tenant=TENANT):
    return hot.named("select * from queen.partitions_ensure_v1(%s,"
                     " %s::bigint[], %s::text[], %s)",
                     [tenant, [x[0] for x in pairs], [x[1] for x in pairs],
                      now])


def register(hot, entries, now=None, tenant=TENANT):
    """entries: (queue, name, mode, from, conflated)"""
    return hot.named("select * from queen.group_register_v1(%s, %s::bigint[],"
                     " %s::text[], %s::text[], %s::timestamptz[],"
                     " %s::boolean[], %s)",
                     [tenant] + [[e[i] for e in entries] for i in range(5)]
                     + [now])


# Queues

def test_a_missing_queue_has_no_row_unless_created(hot):
    assert resolve(hot, ["a"], create=False) == []
    rows = resolve(hot, ["b", "a", "b"], now=at(5))
    assert [(r.ord, r.created) for r in rows] == [(1, True), (2, True),
                                                  (3, True)]
    assert rows[0].id == rows[2].id != rows[1].id
    again = resolve(hot, ["a", "nowhere", "b"], create=False)
    assert [(r.ord, r.id, r.created) for r in again] == [
        (1, rows[1].id, False), (3, rows[0].id, False)]


def test_a_new_queue_has_defaults_and_labels_of_its_name(hot):
    rows = resolve(hot, ["billing.invoice.x", "plain", "a."], now=at(5))
    assert [(r.namespace, r.task) for r in rows] == [
        ("billing", "invoice"), ("plain", ""), ("a", "")]
    r = rows[0]
    assert (r.lease_time_s, r.delayed_processing_s, r.window_buffer_s,
            r.min_pop_wait_ms, r.dedup_window_s, r.encryption_enabled,
            r.changed_at) == (60, 0, 0, 0, 3600, False, at(5))


def test_a_configured_queue_is_left_as_it_is(hot, q):
    hot.option(q, lease_time_s=300, namespace="n")
    (row,) = resolve(hot, ["q"])
    assert (row.id, row.created, row.lease_time_s, row.namespace) == (
        q, False, 300, "n")


def test_queues_are_per_tenant_and_names_are_free_after_delete(hot, q):
    (theirs,) = resolve(hot, ["q"], tenant=OTHER_TENANT)
    assert theirs.id != q and theirs.created
    hot.option(q, deleted_at=at(0))
    assert resolve(hot, ["q"], create=False) == []
    (row,) = resolve(hot, ["q"])
    assert row.created and row.id not in (q, theirs.id)


def test_names_differ_by_bytes(hot):
    rows = resolve(hot, ["a", "A", "ä", "a\u0308"])
    assert len({r.id for r in rows}) == 4


def test_one_queue_created_by_eight_is_one(db, hot):
    ones = [Hot(db.connect()) for _ in range(8)]
    rows = together(8, lambda i: resolve(
        ones[i], ["x", "y"] if i % 2 else ["y", "x"]))
    assert len({r.id for two in rows for r in two}) == 2
    assert all(len(two) == 2 for two in rows)
    assert hot.value("select count(*) from queen.queues") == 2


def test_the_scan_pages_by_change(hot, q):
    resolve(hot, ["b", "c", "d"], now=at(1))
    hot.option(q, changed_at=at(2), deleted_at=at(2))
    scan = "select * from queen.queue_scan_v1(%s, %s, %s)"
    found = hot.named(scan, [at(0), 0, 2])
    assert [(r.name, r.deleted) for r in found] == [("b", False),
                                                    ("c", False)]
    rest = hot.named(scan, [found[1].changed_at, found[1].id, 9])
    assert [(r.name, r.deleted, str(r.tenant)) for r in rest] == [
        ("d", False, TENANT), ("q", True, TENANT)]
    assert hot.named(scan, [rest[1].changed_at, rest[1].id, 9]) == []


# Partitions

def test_partitions_are_made_once_with_a_head(hot, q):
    rows = ensure(hot, [(q, "a"), (q, "b"), (q, "a")], now=at(5))
    assert [(r.ord, r.verdict) for r in rows] == [(1, 1), (2, 1), (3, 1)]
    assert rows[0].id == rows[2].id
    again = ensure(hot, [(q, "b"), (q, "c")])
    assert [(r.verdict, r.id == rows[1].id) for r in again] == [(0, True),
                                                                (1, False)]
    head = hot.head(rows[0].id)
    assert (head.queue_id, head.log_start, head.ids_start, head.last_at,
            head.oldest_live_at) == (q, 0, 0, None, None)
    assert hot.value("select created_at from queen.partitions where id = %s",
                     rows[0].id) == at(5)


def test_a_queue_that_is_not_there_is_gone(hot, q):
    assert [(r.verdict, r.id) for r in ensure(hot, [(q + 9, "a")])] == [
        (3, None)]
    assert ensure(hot, [(q, "a")], tenant=OTHER_TENANT)[0].verdict == 3
    ensure(hot, [(q, "a")])
    hot.option(q, deleted_at=at(0))
    assert [(r.verdict, r.id) for r in ensure(hot, [(q, "a"), (q, "b")])] == [
        (3, None), (3, None)]


def test_another_creator_makes_it_busy_not_slow(db, hot, q):
    one = Hot(db.connect(autocommit=False))
    assert ensure(one, [(q, "a")])[0].verdict == 1
    rows = ensure(hot, [(q, "a"), (q, "b")])
    assert [(r.verdict, r.id is None) for r in rows] == [(2, True),
                                                         (1, False)]
    one.conn.commit()
    assert ensure(hot, [(q, "a")])[0].verdict == 0


def test_a_thousand_are_made_in_a_call(hot, q):
    pairs = [(q, "p%04d" % i) for i in range(1500)]
    found = [r.verdict for r in ensure(hot, pairs)]
    assert (found.count(1), found.count(2)) == (1000, 500)
    found = [r.verdict for r in ensure(hot, pairs)]
    assert (found.count(0), found.count(1)) == (1000, 500)


def test_partitions_made_by_eight_at_once_are_made_once(db, hot, q):
    ones = [Hot(db.connect()) for _ in range(8)]
    names = ["n%d" % i for i in range(40)]

    def run(i):
        while True:
            order = names[i * 5:] + names[:i * 5]
            rows = ensure(ones[i], [(q, n) for n in order])
            if all(r.verdict in (0, 1) for r in rows):
                return {n: r.id for n, r in zip(order, rows)}

    found = together(8, run)
    assert all(f == found[0] for f in found)
    assert hot.value("select count(*) from queen.partitions") == 40
    assert hot.value("select count(*) from queen.partition_heads") == 40


def test_partitions_are_found_by_name_and_by_id(hot, q):
    a, b = hot.parts(q, ["a", "b"])
    find = "select * from queen.partitions_find_v1(%s, %s, %s)"
    assert hot.rows(find, TENANT, [q, q, q + 9, q], ["b", "no", "a", "a"]) \
        == [(1, b), (4, a)]
    assert hot.rows(find, OTHER_TENANT, [q], ["a"]) == []
    names = "select * from queen.partitions_names_v1(%s, %s)"
    assert hot.rows(names, TENANT, [b, 0, a]) == [
        (1, b, q, "q", "b"), (3, a, q, "q", "a")]
    assert hot.rows(names, OTHER_TENANT, [a]) == []
    hot.option(q, deleted_at=at(0))
    assert hot.rows(find, TENANT, [q], ["a"]) == []
    assert hot.rows(names, TENANT, [a]) == []


# Groups

@pytest.mark.parametrize("name, mode, start, want", [
    ("g", "all", None, ("all", "epoch", None)),
    ("g", "new", None, ("new", at(9), at(9))),
    ("g", "new", at(1), ("new", at(9), at(9))),
    ("g", "timestamp", at(1), ("timestamp", at(1), at(1))),
    ("g", "timestamp", None, ("new", at(9), at(9))),
    ("g", "whatever", at(1), ("all", "epoch", None)),
    ("__QUEUE_MODE__", "new", at(1), ("all", "epoch", None)),
])
def test_the_subscription_is_stored_as_first_asked(hot, q, name, mode, start,
                                                   want):
    (row,) = register(hot, [(q, name, mode, start, False)], now=at(9))
    assert (row.verdict, row.conflated) == (1, False)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    assert hot.rows("select mode, subscribed_at, start_at from queen.groups") \
        == [(want[0], epoch if want[1] == "epoch" else want[1], want[2])]


def test_later_values_change_nothing(hot, q):
    (first,) = register(hot, [(q, "g", "new", None, True)], now=at(1))
    (row,) = register(hot, [(q, "g", "all", None, False)], now=at(9))
    assert (row.verdict, row.id, row.conflated) == (0, first.id, True)
    assert hot.value("select start_at from queen.groups") == at(1)


def test_groups_of_several_queues_in_a_call(hot, q):
    r = hot.queue("r")
    rows = register(hot, [(r, "g", "all", None, False),
                          (q + 99, "g", "all", None, False),
                          (q, "g", "all", None, True),
                          (r, "g", "new", None, True)], now=at(1))
    assert [(x.ord, x.verdict, x.conflated) for x in rows] == [
        (1, 1, False), (2, 3, None), (3, 1, True), (4, 1, False)]
    assert rows[0].id == rows[3].id
    find = "select * from queen.groups_find_v1(%s, %s, %s)"
    assert hot.rows(find, TENANT, [q, q, r], ["g", "no", "g"]) == [
        (1, rows[2].id, True), (3, rows[0].id, False)]
    assert hot.rows(find, OTHER_TENANT, [q], ["g"]) == []


def test_groups_of_deleted_or_foreign_queues_are_gone(hot, q):
    entry = (q, "g", "all", None, False)
    assert register(hot, [entry], tenant=OTHER_TENANT)[0].verdict == 3
    (row,) = register(hot, [entry])
    hot.rows("update queen.groups set deleted_at = now()")
    (fresh,) = register(hot, [entry])
    assert fresh.verdict == 1 and fresh.id != row.id
    hot.option(q, deleted_at=at(0))
    assert (register(hot, [entry])[0].verdict,
            register(hot, [entry])[0].id) == (3, None)


def test_a_group_registered_by_eight_is_created_once(db, hot, q):
    ones = [Hot(db.connect()) for _ in range(8)]
    r = hot.queue("r")
    pair = [(q, "g", "new", None, False), (r, "g", "new", None, False)]
    rows = together(8, lambda i: register(
        ones[i], pair if i % 2 else pair[::-1]))
    assert sorted(x.verdict for two in rows for x in two) == [0] * 14 + [1] * 2
    assert len({x.id for two in rows for x in two}) == 2


def test_arrays_of_unequal_length_are_refused(hot, q):
    with refused("22023"):
        hot.rows("select queen.partitions_ensure_v1(%s, '{1}', '{a,b}')",
                 TENANT)
    with refused("22023"):
        hot.rows("select queen.group_register_v1(%s, '{1}', '{a}', '{all}',"
                 " '{}', '{f}')", TENANT)


def test_nothing_is_created_in_a_queue_while_it_is_deleted(db, hot, q):
    """A delete that is not committed yet is waited for; what it deletes gets
    nothing new."""
    one = db.connect(autocommit=False)
    with one.cursor() as cur:
        cur.execute("update queen.queues set deleted_at = now()")
    other = Hot(db.connect())

    def run(i):
        if i == 0:
            return ensure(other, [(q, "late")])[0].verdict
        hot.rows("select 1")
        deadline = datetime.datetime.now() + datetime.timedelta(seconds=20)
        while not hot.value("select count(*) from pg_locks where not granted"):
            assert datetime.datetime.now() < deadline
        one.commit()
        return None

    assert together(2, run)[0] == 3
    assert hot.value("select count(*) from queen.partitions") == 0


def test_the_clock_is_the_databases(hot):
    before = hot.value("select clock_timestamp()")
    assert before <= hot.value("select queen.clock_v1()")


# Positions

def test_time_to_offset_is_exact_to_the_segment(hot, q):
    p = hot.part(q, "p")
    before = "select queen.offset_before(%s, %s, %s)"
    assert hot.value(before, p, q, at(0)) == -1
    for n in range(9):
        hot.push(p, n + 1, now=at(10 * n))
    ends = [(n + 1) * (n + 2) // 2 - 1 for n in range(9)]
    for n in range(9):
        assert hot.value(before, p, q, at(10 * n)) == (
            ends[n - 1] if n else -1)
        assert hot.value(before, p, q, at(10 * n + 1)) == ends[n]
    hot.drop_segments(p, ends[3])
    assert hot.value(before, p, q, at(5)) == ends[3]
    assert hot.value(before, p, q, at(50)) == ends[4]
    hot.drop_segments(p, ends[8])
    assert hot.value(before, p, q, at(5)) == ends[8]
    assert hot.value(before, p, q + 1, at(5)) is None


# Plans

POOL = ("set plan_cache_mode = force_generic_plan; set enable_seqscan = off;"
        " set enable_bitmapscan = off; set jit = off")


@pytest.fixture
def notices(db):
    """A session with the pool's settings and auto_explain to the client."""
    conn = db.connect()
    with conn.cursor() as cur:
        cur.execute(POOL)
        cur.execute("load 'auto_explain'")
        cur.execute("set auto_explain.log_nested_statements = on;"
                    " set auto_explain.log_min_duration = 0;"
                    " set auto_explain.log_analyze = on;"
                    " set auto_explain.log_timing = off;"
                    " set client_min_messages = log")
    conn.notices = collections.deque()
    return conn


def walks(conn, limit):
    """The plans seen that scan a table, or in which one index scan read or
    threw away more than `limit` rows."""
    found = []
    for text in conn.notices:
        counts = re.findall(r"(?:Rows Removed by Filter|Heap Fetches): (\d+)"
                            r"|(?:Index|Index Only) Scan.*actual rows=(\d+)",
                            text)
        if "Seq Scan" in text or any(int(n or m) > limit for n, m in counts):
            found.append(text)
    return found


@pytest.mark.parametrize("planned", ["empty", "one row", "full"])
def test_no_hot_call_walks_a_table_or_an_index(db, notices, planned):
    """20 000 partitions; the plans were made on empty tables, on tables of
    one analysed row, or afterwards."""
    hot = Hot(notices)
    fill = Hot(db.connect())
    queue = fill.queue("q")
    group = fill.group(queue, "g")

    def traffic(parts, no):
        cands = [(1, x, group) for x in parts]
        for call in range(2):
            rows = hot.push_all([
                dict(part=x, ids=["%d-%d-%d" % (no, call, x)],
                     verified=-1 if call else None) for x in parts])
            assert {r.verdict for r in rows} == {0}
            rows = hot.pop_all([dict(no=no + call, budget=len(parts))], cands)
            got = [r for r in rows if r.verdict == 0]
            assert len(got) == len(parts), rows
            rows = hot.ack_all([
                dict(part=x, group=group, lease=(got[0].lease_at, group,
                                                 no + call),
                     ids=["%d-%d-%d" % (no, call, x)],
                     status="completed" if call else None) for x in parts])
            assert {r.verdict for r in rows} == {0}, rows
        ensure(hot, [(queue, "p%d" % x) for x in parts])
        register(hot, [(queue, "g", "all", None, False)])
        resolve(hot, ["q"])
        hot.rows("select * from queen.partitions_names_v1(%s, %s)", TENANT,
                 parts)
        hot.rows("select * from queen.leases_live_v1(%s, %s, %s, %s)", TENANT,
                 [parts[0]], [group], [no])
        hot.bundle([(parts[0], group, no)],
                   [dict(part=parts[0], ids=["b%d" % no])], strict=True)

    first = fill.part(queue, "first")
    if planned != "full":
        if planned == "one row":
            fill.push(first)
            fill.took(first, group, 1, auto=True)
            fill.rows("analyze")
        traffic([first], 1000)
    fill.rows("alter table queen.partition_heads set"
              " (autovacuum_enabled = off)")
    fill.rows(
        "with p as (insert into queen.partitions (queue_id, name, created_at)"
        " select %s, 'k' || i, now() from generate_series(1, 20000) i"
        " returning id) insert into queen.partition_heads (id, queue_id,"
        " last_write_at) select id, %s, now() - interval '1 h' from p",
        queue, queue)
    fill.rows(
        "insert into queen.consumers (group_id, partition_id, committed)"
        " select %s, id, -1 from queen.partitions where name like 'k%%'",
        group)
    fill.rows("insert into queen.queues (tenant, name) select %s, 'n' || i"
              " from generate_series(1, 3000) i", TENANT)
    fill.rows("insert into queen.groups (queue_id, name, mode, subscribed_at)"
              " select id, 'g', 'all', 'epoch' from queen.queues"
              " where name <> 'q'")
    if planned == "full":
        fill.rows("analyze")
    parts = [r[0] for r in fill.rows(
        "select id from queen.partitions where name like 'k%%'"
        " order by id limit 64 offset 9000")]
    notices.notices.clear()
    traffic(parts, 2000)
    assert any("insert into queen.segments" in x for x in notices.notices)
    found = walks(notices, 300)
    assert not found, found[0]
