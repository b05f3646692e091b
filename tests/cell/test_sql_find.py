# SPDX-License-Identifier: Apache-2.0
"""300_find.sql: finding work and messages."""
import re
import threading

import pytest

from queenlib import OTHER_TENANT, TENANT
from sqlkit import Kit, at, mid


pytestmark = pytest.mark.allpg


@pytest.fixture
def kit(db):
    return Kit(db.connect())


def pending(kit, group, limit=1000, tenant=TENANT):
    """All pages: the pending partitions, and how many pages."""
    found, after, pages = [], 0, 0
    while after is not None:
        page = kit.rows("select part, next from queen.group_pending_v1("
                        "%s, %s, %s, %s)", tenant, group, after, limit)
        assert page and len({r[1] for r in page}) == 1, page
        found += [r[0] for r in page if r[0] is not None]
        after = page[0][1]
        pages += 1
    return found, pages


def test_pending_of_a_group_from_the_start(kit):
    q = kit.queue("q")
    a, b, c = kit.parts(q, ["a", "b", "c"])
    kit.push(a, 3)
    kit.push(c, 1)
    g = kit.group(q, "g")
    assert pending(kit, g) == ([a, c], 1)
    assert b not in pending(kit, g)[0]


def test_pending_ignores_leases_but_not_commits(kit):
    q = kit.queue("q")
    a, b = kit.parts(q, ["a", "b"])
    kit.push(a, 3)
    kit.push(b, 3)
    g = kit.group(q, "g")
    kit.pop([a], g, 1)
    kit.pop([b], g, 2, auto=True)
    assert pending(kit, g)[0] == [a]
    kit.push(b, 1)
    assert pending(kit, g)[0] == [a, b]


def test_pending_counts_from_the_start_time(kit):
    q = kit.queue("q")
    a, b, c = kit.parts(q, ["a", "b", "c"])
    kit.push(a, 1, now=at(10))
    kit.push(b, 1, now=at(20))
    kit.push(c, 1, now=at(30))
    g = kit.group(q, "g", "timestamp", at(20))
    assert pending(kit, g)[0] == [b, c]


def test_pending_pages_by_partition_id(kit):
    q, other = kit.queue("q"), kit.queue("other")
    ids = kit.parts(q, ["p%d" % i for i in range(10)])
    kit.push(kit.part(other, "x"), 1)
    for part in (ids[0], ids[4], ids[9]):
        kit.push(part, 1)
    g = kit.group(q, "g")
    page = kit.rows("select * from queen.group_pending_v1(%s, %s, 0, 4)",
                    TENANT, g)
    assert page == [(ids[0], ids[3])]
    page = kit.rows("select * from queen.group_pending_v1(%s, %s, %s, 4)",
                    TENANT, g, ids[4])
    assert page == [(None, ids[8])]
    page = kit.rows("select * from queen.group_pending_v1(%s, %s, %s, 4)",
                    TENANT, g, ids[8])
    assert page == [(ids[9], None)]
    # a full last page is followed by an empty one
    assert pending(kit, g, limit=5) == ([ids[0], ids[4], ids[9]], 3)


def test_pending_of_a_dead_or_foreign_group_is_empty(kit):
    q = kit.queue("q")
    kit.push(kit.part(q, "a"), 1)
    g = kit.group(q, "g")
    assert pending(kit, g, tenant=OTHER_TENANT) == ([], 1)
    kit.rows("update queen.groups set deleted_at = now() where id = %s", g)
    assert pending(kit, g) == ([], 1)


def test_pending_survives_retention(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    for _ in range(3):
        kit.push(a, 2)
    g = kit.group(q, "g")
    kit.pop([a], g, 1, budget=2, auto=True)
    kit.drop_segments(a, 3)
    assert pending(kit, g)[0] == [a]
    kit.drop_segments(a, 5)
    assert pending(kit, g)[0] == []


def test_change_scan_pages_in_order_of_time(kit):
    q = kit.queue("q")
    ids = kit.parts(q, ["p%d" % i for i in range(5)])
    for i, part in enumerate(ids):
        kit.push(part, 1, now=at(100 - i % 2))
    want = [(q, p, at(99)) for p in (ids[1], ids[3])] \
        + [(q, p, at(100)) for p in (ids[0], ids[2], ids[4])]
    found, since, after = [], at(0), 0
    while True:
        page = kit.rows("select * from queen.change_scan_v1(%s, %s, 2)",
                        since, after)
        found += page
        if not page:
            break
        since, after = page[-1][2], page[-1][1]
    assert found == want
    assert kit.rows("select * from queen.change_scan_v1(%s, 0, 10)",
                    at(100)) == want[2:]


def test_change_scan_meets_a_moving_row_once_at_least(kit):
    q = kit.queue("q")
    ids = kit.parts(q, ["p%d" % i for i in range(6)])
    for i, part in enumerate(ids):
        kit.push(part, 1, now=at(i))
    seen = [r[1] for r in kit.rows(
        "select * from queen.change_scan_v1(%s, 0, 3)", at(-1))]
    kit.push(ids[0], 1, now=at(50))
    kit.push(ids[4], 1, now=at(51))
    seen += [r[1] for r in kit.rows(
        "select * from queen.change_scan_v1(%s, %s, 100)", at(2), ids[2])]
    assert sorted(set(seen)) == ids
    assert seen == ids[:4] + [ids[5], ids[0], ids[4]]


def test_change_scan_with_rows_moving_during_the_walk(db, kit):
    """Every partition is met although others are written all the time."""
    q = kit.queue("q")
    names = ["p%03d" % i for i in range(200)]
    ids = kit.parts(q, names)
    for part in ids:
        kit.push(part, 1, now=at(0))
    done = threading.Event()

    def write():
        mine = Kit(db.connect())
        n = 0
        while not done.is_set():
            n += 1
            mine.push(ids[(n * 7) % 200], 1, now=at(10 + n))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen, since, after = set(), at(-1), 0
        for _ in range(400):
            page = kit.rows("select * from queen.change_scan_v1(%s, %s, 9)",
                            since, after)
            if not page:
                break
            seen |= {r[1] for r in page}
            since, after = page[-1][2], page[-1][1]
            if seen == set(ids):
                break
        assert seen == set(ids)
    finally:
        done.set()
        writer.join()


def test_repair_scan_returns_what_lies_after(kit):
    for part in (None, 7):
        kit.rows("select queen.repair_note(1, 2, %s, now())", part)
    notes = kit.rows("select * from queen.repair_scan_v1(0)")
    assert [n[1:] for n in notes] == [(1, 2, None), (1, 2, 7)]
    assert kit.rows("select * from queen.repair_scan_v1(%s)",
                    notes[0][0]) == notes[1:]


def test_repair_notes_are_numbered_in_commit_order(db, kit):
    """A reader that saw a note has seen all lower numbers."""
    stop = threading.Event()
    faults = []

    def note(n):
        conn = db.connect(autocommit=False)
        mine = Kit(conn)
        for _ in range(60):
            mine.rows("select queen.repair_note(%s, 0, null, now())", n)
            conn.commit()

    def read():
        mine = Kit(db.connect())
        seen = set()
        while not stop.is_set():
            now = {r[0] for r in mine.rows(
                "select id from queen.repair_scan_v1(0)")}
            late = {i for i in now - seen if seen and i < max(seen)}
            if late:
                faults.append(late)
            seen = now

    reader = threading.Thread(target=read)
    reader.start()
    writers = [threading.Thread(target=note, args=(n,)) for n in range(4)]
    for w in writers:
        w.start()
    for w in writers:
        w.join()
    stop.set()
    reader.join()
    assert faults == []
    assert kit.value("select count(*) from queen.repairs") == 240


def ids_page(kit, part, after=-1, since=None, limit=100, tenant=TENANT):
    return [(r[0], r[1]) for r in kit.rows(
        "select * from queen.ids_page_v1(%s, %s, %s, %s, %s)",
        tenant, part, after, since, limit)]


def test_ids_page_walks_the_window(kit):
    a = kit.part(kit.queue("q"), "a")
    for i in range(20):
        kit.push(a, 3, now=at(i))
    all_rows = [(3 * i, 3 * i + 2) for i in range(20)]
    assert ids_page(kit, a) == all_rows
    for since in range(0, 21):
        assert ids_page(kit, a, since=at(since)) == all_rows[since:]
        assert ids_page(kit, a, since=at(since - 0.5)) == all_rows[since:]
    assert ids_page(kit, a, after=2) == all_rows[1:]
    assert ids_page(kit, a, after=3) == all_rows[1:]
    assert ids_page(kit, a, after=58) == all_rows[19:]
    assert ids_page(kit, a, after=59) == []
    assert ids_page(kit, a, after=10, since=at(7), limit=2) == all_rows[7:9]
    assert ids_page(kit, a, after=40, since=at(7), limit=2) == all_rows[13:15]


def test_ids_page_gives_times_and_hashes(kit):
    a = kit.part(kit.queue("q"), "a")
    kit.push(a, now=at(1), ids=["x", "y"])
    row = kit.rows("select * from queen.ids_page_v1(%s, %s, -1, null, 9)",
                   TENANT, a)[0]
    assert (row[2], bytes(row[3])) == (at(1), mid("x") + mid("y"))


def test_ids_page_starts_where_id_rows_were_removed(kit):
    a = kit.part(kit.queue("q"), "a")
    for i in range(6):
        kit.push(a, 2, now=at(i))
    kit.rows("delete from queen.segment_ids where partition_id = %s"
             " and end_offset < 6", a)
    assert ids_page(kit, a) == [(6, 7), (8, 9), (10, 11)]
    assert ids_page(kit, a, since=at(0)) == [(6, 7), (8, 9), (10, 11)]
    assert ids_page(kit, a, since=at(4)) == [(8, 9), (10, 11)]
    kit.rows("update queen.partition_heads set ids_start = 6 where id = %s",
             a)
    assert ids_page(kit, a, since=at(4)) == [(8, 9), (10, 11)]


def test_ids_page_knows_only_its_own_partitions(kit):
    q = kit.queue("q")
    a = kit.part(q, "a")
    assert ids_page(kit, a) == []
    kit.push(a, 1)
    assert ids_page(kit, a, tenant=OTHER_TENANT) == []
    assert ids_page(kit, -1) == []
    kit.rows("update queen.queues set deleted_at = now() where id = %s", q)
    assert ids_page(kit, a) == []


def test_segments_at_finds_the_covering_segment(kit):
    q = kit.queue("q")
    a, b = kit.parts(q, ["a", "b"])
    kit.push(a, 3, now=at(1), blob=b"\x01\x00one")
    kit.push(a, 2, now=at(2), blob=b"\x01\x00two", key=200, raw=77)
    kit.push(b, 1, now=at(3), blob=b"\x01\x00bbb")
    found = kit.rows(
        "select ord, base, last, at, raw_bytes, key_id, blob"
        " from queen.segments_at_v1(%s, %s, %s)", TENANT,
        [a, b, a, a, a, b, -9], [4, 0, 0, 5, 2, 1, 0])
    found = [r[:6] + (bytes(r[6]),) for r in found]
    one = (0, 2, at(1), 300, None, b"\x01\x00one")
    assert found == [
        (1, 3, 4, at(2), 77, 200, b"\x01\x00two"),
        (2, 0, 0, at(3), 100, None, b"\x01\x00bbb"),
        (3,) + one, (5,) + one]


def test_segments_at_has_no_row_for_removed_or_foreign(kit):
    a = kit.part(kit.queue("q"), "a")
    kit.push(a, 2)
    kit.push(a, 2)
    kit.drop_segments(a, 1)
    sql = "select ord, base from queen.segments_at_v1(%s, %s, %s)"
    assert kit.rows(sql, TENANT, [a, a], [1, 2]) == [(2, 2)]
    assert kit.rows(sql, OTHER_TENANT, [a], [2]) == []


def test_segments_at_refuses_arrays_that_differ(kit):
    with pytest.raises(Exception, match="arrays differ in length"):
        kit.rows("select * from queen.segments_at_v1(%s, '{1,2}', '{1}')",
                 TENANT)


def offset_at(kit, part, when):
    return kit.value("select queen.offset_at_v1(%s, %s, %s)", TENANT, part,
                     when)


def test_offset_at_is_exact_to_the_push(kit):
    """First offset stamped at or after, by linear search and by function."""
    a = kit.part(kit.queue("q"), "a")
    stamps = []
    for i, n in enumerate([1, 5, 2, 9, 1, 1, 30, 2, 4, 1, 1, 7]):
        # some pushes share a stamp
        stamps += [i // 2 * 10] * n
        kit.push(a, n, now=at(i // 2 * 10))
    for when in range(-5, 60):
        want = next((o for o, s in enumerate(stamps) if s >= when),
                    len(stamps))
        assert offset_at(kit, a, at(when)) == want, when


def test_offset_at_keeps_to_what_is_retained(kit):
    a = kit.part(kit.queue("q"), "a")
    assert offset_at(kit, a, at(0)) == 0
    for i in range(10):
        kit.push(a, 2, now=at(i))
    kit.drop_segments(a, 9)
    assert offset_at(kit, a, at(0)) == 10
    assert offset_at(kit, a, None) == 10
    assert offset_at(kit, a, at(7)) == 14
    assert offset_at(kit, a, at(99)) == 20
    kit.drop_segments(a, 19)
    assert offset_at(kit, a, at(0)) == 20
    assert offset_at(kit, -1, at(0)) is None


def test_offset_at_takes_steps_not_scans(db, kit):
    """Bisection over many segments touches few pages."""
    a = kit.part(kit.queue("q"), "a")
    kit.rows("insert into queen.segments select %s, i * 3, i * 3 + 2,"
             " %s::timestamptz + make_interval(secs => i), 10, null, '\\x0100'"
             " from generate_series(0, 39999) i", a, at(0))
    assert offset_at(kit, a, at(12345)) == 3 * 12345
    assert offset_at(kit, a, at(12345.5)) == 3 * 12346
    kit.rows("set plan_cache_mode = force_generic_plan")
    kit.rows("set enable_seqscan = off")
    text = "\n".join(r[0] for r in kit.rows(
        "explain (analyze, buffers, timing off, costs off)"
        " select queen.offset_at_v1(%s, %s, %s)", TENANT, a, at(777)))
    hits = int(text.split("shared hit=")[1].split()[0].rstrip(")"))
    assert hits < 400, text


def test_plans_made_on_an_empty_database_stay_good(kit):
    """As pooled sessions have it: generic plans, kept while the tables fill.
    A page costs what it returns, whatever else the cell holds."""
    for option in ("plan_cache_mode = force_generic_plan",
                   "enable_seqscan = off", "enable_bitmapscan = off",
                   "jit = off"):
        kit.rows("set " + option)
    q, big = kit.queue("q"), kit.queue("big")
    g = kit.group(q, "g")
    calls = [
        ("group_pending_v1(%s, %s, 0, 1000)", (TENANT, g)),
        ("change_scan_v1(%s, 0, 1000)", (at(500),)),
        ("ids_page_v1(%s, %s, -1, %s, 10)", (TENANT, 1, at(15000))),
        ("segments_at_v1(%s, array[%s::bigint], '{45000}')", (TENANT, 1)),
        ("fetch_v1(%s, '{q}', '{a}', '{45000}', '{2000}', 2000)", (TENANT,)),
        ("fetch_high_v1(%s, '{q}', '{a}')", (TENANT,)),
        ("partitions_changed_v1(%s, '{q}', array[null::timestamptz],"
         " array[null::timestamptz], '{null}', '{10}')", (TENANT,)),
        ("partitions_changed_v1(%s, '{big}', array[%s::timestamptz],"
         " array[null::timestamptz], '{null}', '{10}')", (TENANT, at(500))),
    ]

    def run_all():
        for call, args in calls:
            kit.rows("select * from queen." + call, *args)

    for _ in range(3):
        run_all()
    part = kit.part(q, "a")
    calls[2] = (calls[2][0], (TENANT, part, at(15000)))
    calls[3] = (calls[3][0], (TENANT, part))
    kit.rows("with p as (insert into queen.partitions (queue_id, name,"
             " created_at) select %s, 'p' || i, now() from"
             " generate_series(1, 20000) i returning id, queue_id)"
             " insert into queen.partition_heads (id, queue_id,"
             " last_write_at) select id, queue_id, %s from p", big, at(1))
    for table, column in (("segments", "10, null, '\\x0100'"),
                          ("segment_ids", "decode(repeat('00', 48), 'hex')")):
        kit.rows("insert into queen.%s select %%s, i * 3, i * 3 + 2,"
                 " %%s::timestamptz + make_interval(secs => i), %s"
                 " from generate_series(0, 19999) i" % (table, column),
                 part, at(0))
    kit.rows("update queen.partition_heads set last_write_at = %s"
             " where id = %s", at(19999), part)
    run_all()
    for call, args in calls:
        plan = "\n".join(r[0] for r in kit.rows(
            "explain (analyze, buffers, timing off, costs off)"
            " select * from queen." + call, *args))
        pages = sum(int(n) for n in re.findall(
            r"shared (?:hit|read)=(\d+)", plan.split("Planning")[0]))
        assert pages < 250, (call, plan)
    assert pending(kit, g)[0] == [part]
