# SPDX-License-Identifier: Apache-2.0
"""745_source.sql: the bundle of a source; kv_settle_v1 of 700_kv.sql."""
import contextlib
import json
import threading

import psycopg2
import pytest

from hotkit import Hot, refused
from kvkit import waiting_for_locks
from queenlib import OTHER_TENANT, TENANT, rows, wait_until
from sqlkit import at
from test_sql_catalog import notices, walks  # noqa: F401 - a fixture

pytestmark = pytest.mark.allpg
KEY = "src:s:pointer"


class Source(Hot):
    def source(self, segs=(), lsn="0/1", expect=0, ends=None, now=None,
               tenant=TENANT, value=None):
        """(verdict, version, pointer) of a bundle, in whatever transaction."""
        (row,) = self.named(
            "select * from queen.source_bundle_v1(%s, %s, %s, %s, %s::int[],"
            " %s::bigint[], %s::int[], %s::bytea[], %s::int[],"
            " %s::smallint[], %s::bytea[], %s)",
            [tenant, KEY, value or json.dumps({"lsn": lsn}), expect,
             ends if ends is not None else [len(segs)] if segs else []]
            + self.push_args(segs)[:6] + [now])
        return row.verdict, row.version, row.pointer and json.loads(
            row.pointer)

    def pointer(self):
        return self.rows("select value->>'lsn', version from queen.kv"
                         " where key = %s", KEY)

    def offsets(self, part):
        return self.rows("select base_offset, end_offset from queen.segments"
                         " where partition_id = %s order by 1", part)

    def counts(self):
        return self.rows("select (select count(*) from queen.kv),"
                         " (select count(*) from queen.segments),"
                         " (select count(*) from queen.segment_ids)")[0]


@pytest.fixture
def src(db):
    return Source(db.connect())


@pytest.fixture
def parts(src):
    return src.parts(src.queue("q"), ["a", "b", "c"])


@contextlib.contextmanager
def rolled_back(conn):
    """What a caller does with any verdict but 0."""
    conn.autocommit = False
    try:
        yield
    finally:
        conn.rollback()
        conn.autocommit = True


def seg(part, texts, **more):
    return dict(more, part=part, ids=texts)


def test_a_bundle_commits_its_pushes_with_its_pointer(src, parts):
    a, b, _ = parts
    verdict, one, pointer = src.source([seg(a, "xy"), seg(b, "z")], now=at(1))
    assert (verdict, pointer) == (0, None) and one > 0
    assert src.pointer() == [("0/1", one)]
    assert (src.offsets(a), src.offsets(b)) == ([(0, 1)], [(0, 0)])

    # again, the same: another has it already, by name
    assert src.source([seg(a, "xy"), seg(b, "z")]) == (1, one, {"lsn": "0/1"})
    # at a version it never had, and when it is not there at all
    assert src.source([seg(a, "w")], expect=one + 99) == (
        1, one, {"lsn": "0/1"})
    src.rows("delete from queen.kv")
    assert src.source([seg(a, "w")], expect=one) == (1, 0, None)
    assert src.counts() == (0, 2, 2)

    # ids are not looked at
    verdict, two, _ = src.source([seg(a, "xy")], now=at(2))
    assert verdict == 0 and two > one
    assert src.offsets(a) == [(0, 1), (2, 3)]
    # the pointer alone
    verdict, three, _ = src.source(lsn="0/3", expect=two)
    assert verdict == 0 and src.pointer() == [("0/3", three)]

    with rolled_back(src.conn):
        assert src.source([seg(a, "x")], tenant=OTHER_TENANT)[0] == 2
    assert src.counts() == (1, 3, 3)


def test_rounds(src, parts):
    """What a partition has more than one segment of follows in order."""
    a, b, c = parts
    segs = [seg(a, "123"), seg(b, "4"), seg(c, "5"), seg(a, "67"),
            seg(c, "8"), seg(a, "9")]
    assert src.source(segs, ends=[3, 5, 6], now=at(1))[0] == 0
    assert src.offsets(a) == [(0, 2), (3, 4), (5, 5)]
    assert src.offsets(b) == [(0, 0)]
    assert src.offsets(c) == [(0, 0), (1, 1)]
    assert src.rows("select distinct created_at from queen.segments") == [
        (at(1),)]
    for ends in ([6], [3, 6]):      # not ascending within a round
        with refused("22023"):
            src.source(segs, ends=ends, expect=src.pointer()[0][1])
    assert src.counts() == (1, 6, 6)


def test_verdicts(src, parts):
    a, b, c = parts
    version = src.source()[1]

    def verdict(*segs, **more):
        with rolled_back(src.conn):
            found = src.source(segs, expect=version, **more)
        assert src.counts() == (1, 0, 0)
        return found[0]

    assert verdict(seg(a, "x"), seg(c + 1000, "y")) == 2
    assert verdict(seg(a, "x"), seg(b, "y"), seg(c + 1000, "z"),
                   ends=[2, 3]) == 2
    sealed = src.part(src.queue("s"), "p")
    src.rows("update queen.queues set encryption_enabled = true"
             " where name = 's'")
    assert verdict(seg(a, "x"), seg(sealed, "y")) == 4
    assert verdict(seg(a, "x"), seg(sealed, "y", key=7)) == 0
    # gone is told first: its answer makes names anew, the other's only seals
    assert verdict(seg(sealed, "y"), seg(sealed + 1000, "y")) == 2

    src.rows("select queen.flag_set_v1('maintenance_mode', true)")
    assert verdict(seg(a, "x")) == 5
    assert verdict() == 0           # a step of the pointer is no push
    src.rows("select queen.flag_set_v1('maintenance_mode', false)")
    assert verdict(seg(a, "x")) == 0


def test_what_is_malformed(src, parts):
    a = parts[0]
    for args in (dict(expect=None), dict(expect=-1), dict(value="{"),
                 dict(segs=[seg(a, "xy", n=3)]),
                 dict(segs=[seg(a, "x"), seg(a, "y")])):
        with pytest.raises(psycopg2.Error) as e:
            src.source(**args)
        assert e.value.pgcode == ("22P02" if "value" in args else "22023")
    with refused("22001"):
        src.source(value=json.dumps("x" * 70000))
    assert src.counts() == (0, 0, 0)
    assert src.value("select queen.cell_key_v1() ="
                     " (select hash_key from queen.cell)")


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_two_owners(db, src, parts, first, end):
    """The second waits for the first at the pointer, and before any
    partition is locked."""
    a = parts[0]
    version = 0 if first else src.source()[1]
    one, two = Source(db.connect()), Source(db.connect())
    one.conn.autocommit = False
    assert one.source([seg(a, "x")], lsn="0/8", expect=version)[0] == 0
    found = []
    thread = threading.Thread(target=lambda: found.append(
        two.source([seg(a, "y")], lsn="0/9", expect=version)))
    thread.start()
    wait_until(lambda: waiting_for_locks(db) == 1, what="the second to wait")
    assert db.value("select count(*) from pg_locks l join pg_class c"
                    " on c.oid = l.relation where c.relname ="
                    " 'partition_heads' and l.pid <> %s",
                    (one.conn.get_backend_pid(),)) == 0
    getattr(one.conn, end)()
    thread.join(30)
    verdict, now, pointer = found[0]
    if end == "commit":
        assert (verdict, pointer) == (1, {"lsn": "0/8"})
    else:
        assert verdict == 0
    assert src.pointer() == [("0/8" if end == "commit" else "0/9", now)]
    assert src.offsets(a) == [(0, 0)]


SETTLE = "select * from queen.kv_settle_v1(%s, 'queen-pg', %s)"
CHANGES = [
    ("made", False, "select 1 from queen.source_bundle_v1(%s, %s, '1', 0,"
     " '{}', '{}', '{}', '{}', '{}', '{}', '{}')"),
    ("moved", True, "select 1 from queen.source_bundle_v1(%s, %s, '1',"
     " (select version from queen.kv), '{}', '{}', '{}', '{}', '{}', '{}',"
     " '{}')"),
    ("removed", True, "delete from queen.kv where tenant = %s and key = %s"
     " returning 1"),
]


@pytest.mark.parametrize("change", CHANGES, ids=[c[0] for c in CHANGES])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_settling_waits_for_who_writes(db, src, change, end):
    """A COMMIT whose answer was lost is still under way."""
    _, exists, sql = change
    if exists:
        src.source()
    before = src.pointer()
    other = db.connect(autocommit=False)
    assert rows(other, sql, (TENANT, KEY)) == [(1,)]
    found, conn = [], db.connect()
    thread = threading.Thread(target=lambda: found.extend(
        rows(conn, SETTLE, (TENANT, KEY))))
    thread.start()
    wait_until(lambda: waiting_for_locks(db) == 1, what="it to wait")
    getattr(other, end)()
    thread.join(30)
    after = src.pointer()
    assert (before == after) == (end == "rollback")
    (verdict, value, version), = found
    if after:
        assert (verdict, version) == (0, after[0][1]) and value
    else:
        assert (verdict, value, version) == (1, None, 0)
    # nothing is left of the look itself
    assert rows(conn, SETTLE, (TENANT, KEY)) == [(verdict, value, version)]
    assert src.pointer() == after


@pytest.mark.parametrize("planned", ["empty", "full"])
def test_no_bundle_walks_a_table_or_an_index(
        db, notices, planned):  # noqa: F811
    """10 000 partitions in one bundle, the first time and the next, and with
    one gone; plans made on empty tables, or afterwards."""
    src, fill = Source(notices), Source(db.connect())
    queue = fill.queue("q")
    first = fill.part(queue, "first")
    version = 0

    def traffic(parts):
        nonlocal version
        for _ in range(2):
            verdict, version, _ = src.source(
                [seg(p, "x") for p in parts], expect=version)
            assert verdict == 0
        with rolled_back(src.conn):
            assert src.source([seg(p, "x") for p in parts[:-1]]
                              + [seg(parts[-1] + 1000000, "x")],
                              expect=version)[0] == 2
        assert src.rows(SETTLE, TENANT, KEY)[0][0] == 0

    if planned == "empty":
        traffic([first])
    parts = [p for i in range(10) for p in fill.parts(
        queue, ["p%d-%d" % (i, k) for k in range(1000)])]
    fill.rows("insert into queen.kv (tenant, namespace, key, value, version,"
              " created_at, updated_at) select %s, 'queen-pg', 'x' || i, '1',"
              " 1, now(), now() from generate_series(1, 5000) i", TENANT)
    if planned == "full":
        fill.rows("analyze")
    notices.notices.clear()
    src.rows("set statement_timeout = '10 s'")
    traffic(sorted(parts))
    assert any("insert into queen.segments" in x for x in notices.notices)
    found = walks(notices, 10001)
    assert not found, found[0]
    assert fill.counts()[1] == (2 if planned == "empty" else 0) + 20000
