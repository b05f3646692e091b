# SPDX-License-Identifier: Apache-2.0
"""730_riders.sql: rows in order, locks in order, plans that hold."""
import json
import threading

import psycopg2
import pytest

from hotkit import Hot, refused
from queenlib import TENANT, rows, wait_until
from sqlkit import at, mid
from test_sql_catalog import notices, walks  # noqa: F401 - a fixture
from test_sql_kv import OPS
from test_sql_timer import frame

NOW = at(10)


class Riders(Hot):
    KV = ("%s::smallint[], %s::text[], %s::text[], %s::text[], %s::bigint[],"
          " %s::bigint[], %s::boolean[], %s::text[], %s::text[], %s::text[],"
          " %s::text[], %s::int[], %s::boolean[], %s::int[], %s::text[]")
    TIMERS = ("%s::smallint[], %s::text[], %s::text[], %s::text[],"
              " %s::bigint[], %s::bytea[], %s::bytea[], %s::smallint[]")

    @staticmethod
    def kv_args(ops):
        def column(name, default=None):
            return [o.get(name, default) for o in ops]

        many = [(i, key) for i, o in enumerate(ops, 1)
                for key in o.get("keys", ())]
        return [[OPS[o["op"]] for o in ops], column("ns", "n"), column("key"),
                [json.dumps(o["value"]) if "value" in o else None
                 for o in ops],
                column("expect"), column("ttl"), column("required", False),
                column("delta"), column("min"), column("max"),
                column("after"), column("limit"), column("keysOnly", False),
                [i for i, _ in many], [k for _, k in many]]

    @staticmethod
    def timer_args(ops):
        """ops: (op, queue, key)."""
        return [[o for o, _, _ in ops], [q for _, q, _ in ops],
                [k for _, _, k in ops], ["Default"] * len(ops),
                [3600 * 10 ** 6] * len(ops),
                [mid(k) if o == 0 else None for o, _, k in ops],
                [frame(k) if o == 0 else None for o, _, k in ops],
                [None] * len(ops)]

    def riders(self, kv=(), timers=(), leases=(), segs=(), acks=(),
               strict=False, now=NOW, tenant=TENANT):
        """All rows, in the order they came."""
        return self.named(
            "select * from queen.bundle_riders_v1(%s, %s::bigint[],"
            " %s::bigint[], %s::bigint[], " + self.PUSH + ", " + self.ACK
            + ", %s, null, " + self.KV + ", " + self.TIMERS + ", %s)",
            [tenant] + [[v[i] for v in leases] for i in range(3)]
            + self.push_args(segs) + self.ack_args(acks) + [strict]
            + self.kv_args(kv) + self.timer_args(timers) + [now])


def put(key, value=1, **more):
    return {"op": "put", "key": key, "value": value, **more}


def kinds(found):
    return [(r.kind, r.ord, r.verdict) for r in found]


class Scene:
    """Two rows of each thing a bundle locks, in the order of their locks."""

    def __init__(self, db):
        self.db, self.hot = db, Riders(db.connect())
        hot = self.hot
        queue = hot.queue("q")
        self.group = hot.group(queue, "g")
        self.parts = hot.parts(queue, ["a", "b"])
        for p in self.parts:
            hot.push_one(p, "x", now=at(0))
            hot.took(p, self.group, p, now=at(0), secs=3600)
        hot.riders([put("a"), put("b")], [(0, "q", "1"), (0, "r", "0")])
        head = "queen.partition_heads where id = %d"
        consumer = ("queen.consumers where group_id = %d and partition_id ="
                    " %%d" % self.group)
        self.things = (
            ["queen.kv where key = '%s'" % k for k in "ab"]
            + ["queen.timers where queue = '%s'" % k for k in "qr"]
            + [head % p for p in self.parts]
            + [consumer % p for p in self.parts])

    def bundle(self, conn, strict):
        """Everything; rows, timers and leases in the wrong order, pushes and
        acks have to be sorted by the caller."""
        a, b = self.parts
        acks = [dict(part=p, group=self.group, ids="x",
                     lease=None if strict else (p, self.group, p))
                for p in (a, b)]
        return Riders(conn).riders(
            [put("b"), put("a")], [(0, "r", "0"), (1, "q", "1")],
            [(p, self.group, p) for p in (b, a)] if strict else [],
            [dict(part=p, ids="y") for p in (a, b)], acks, strict)

    def is_free(self, thing):
        conn = self.db.connect(autocommit=False)
        try:
            return rows(conn, "select 1 from %s for update nowait"
                        % thing) != []
        except psycopg2.errors.LockNotAvailable:
            return False
        finally:
            conn.close()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("at_step", range(8))
def test_who_waits_for_one_lock_holds_those_before_and_none_behind(
        db, at_step, strict):
    scene = Scene(db)
    holder, one = db.connect(autocommit=False), db.connect(autocommit=False)
    rows(holder, "select 1 from %s for update" % scene.things[at_step])
    got = []
    t = threading.Thread(target=lambda: got.extend(scene.bundle(one, strict)))
    t.start()
    wait_until(lambda: db.value(
        "select count(*) from pg_locks where not granted and pid = %s",
        (one.info.backend_pid,)))
    free = [scene.is_free(x) for i, x in enumerate(scene.things)
            if i != at_step]
    holder.rollback()
    t.join(30)
    assert free == [False] * at_step + [True] * (7 - at_step)
    assert {r.verdict for r in got if r.kind in (0, 1, 2, 3)} == {0}
    one.rollback()
    assert all(scene.is_free(x) for x in scene.things)


def test_rows_come_riders_first(db):
    scene = Scene(db)
    conn = db.connect(autocommit=False)
    found = scene.bundle(conn, True)
    conn.commit()
    a, b = scene.parts
    assert [r.kind for r in found] == [3, 3, 4, 4, 0, 0, 1, 1, 2, 2]
    assert sorted(kinds(found)[:4]) == [(3, 1, 0), (3, 2, 0), (4, 1, 1),
                                        (4, 2, 2)]
    first = found[0]
    assert (first.key, first.value, first.row_no) == ("a", "1", 0)
    assert (first.txn, first.base, first.items) == (None, None, None)
    timer = [r for r in found if (r.kind, r.ord) == (4, 1)][0]
    assert (timer.txn, timer.key, timer.version) == ("0", None, None)
    push = found[6]
    assert (push.key, push.txn, push.deliver_at) == (None, None, None)
    assert [r.base for r in found if r.kind == 1] == [1, 1]
    assert scene.hot.consumer(scene.group, a).committed == 0


def test_each_part_may_be_missing(db):
    scene = Scene(db)
    hot, (a, _) = scene.hot, scene.parts
    assert hot.riders() == []
    assert kinds(hot.riders([put("a")])) == [(3, 1, 0)]
    assert kinds(hot.riders([], [(1, "q", "no")])) == [(4, 1, 3)]
    assert kinds(hot.riders([], [], [(a, scene.group, a)])) == [(0, 1, 0)]
    assert kinds(hot.riders(segs=[dict(part=a, ids="z")])) == [(1, 1, 0)]
    assert kinds(hot.riders(acks=[dict(
        part=a, group=scene.group, ids="x",
        lease=(a, scene.group, a))])) == [(2, 1, 0)]
    assert kinds(hot.riders([put("a")], [(0, "q", "2")], segs=[dict(
        part=a, ids="w")])) == [(3, 1, 0), (4, 1, 0), (1, 1, 0)]


def test_a_lost_required_is_the_last_row_and_locks_no_more(db):
    scene = Scene(db)
    conn = db.connect(autocommit=False)
    found = Riders(conn).riders(
        [put("b"), put("a", expect=0, required=True)], [(0, "q", "1")],
        segs=[dict(part=scene.parts[0], ids="y")])
    assert kinds(found) == [(3, 2, 2)]
    assert (found[0].reason, found[0].value) == ("exists", "1")
    assert [scene.is_free(x) for x in scene.things] == [False] + [True] * 7
    conn.rollback()


def test_it_is_one_transaction_of_the_caller(db):
    scene = Scene(db)
    before = [scene.hot.rows("select * from queen." + t + " order by 1, 2, 3")
              for t in ("kv", "timers", "segments", "consumers")]
    conn = db.connect(autocommit=False)
    scene.bundle(conn, False)
    conn.rollback()
    assert before == [
        scene.hot.rows("select * from queen." + t + " order by 1, 2, 3")
        for t in ("kv", "timers", "segments", "consumers")]


def test_faults_keep_their_codes(db):
    hot = Riders(db.connect())
    part = hot.part(hot.queue("q"), "p")
    push = dict(segs=[dict(part=part, ids="y")])
    for code, kv, timers in (
            ("22023", [put("a"), put("a")], []),
            ("22023", [{"op": "getPrefix", "key": "a"}], []),
            ("22023", [put("k%d" % i) for i in range(65)], []),
            ("22001", [put("a", "x" * 65535)], []),
            ("22023", [put("a")], [(0, "q", "1"), (1, "q", "1")])):
        with refused(code):
            hot.riders(kv, timers, **push)
    assert db.rows("select 1 from queen.kv") == []
    assert db.rows("select 1 from queen.segments") == []


# Plans

def fill_up(fill, queue, group):
    fill.rows("insert into queen.kv (tenant, namespace, key, value, version,"
              " created_at, updated_at) select %s, 'n', 'x' || i, '1',"
              " nextval('queen.kv_version'), %s, %s"
              " from generate_series(1, 20000) i on conflict do nothing",
              TENANT, NOW, NOW)
    fill.rows("insert into queen.timers (tenant, queue, timer_key, partition,"
              " deliver_at, due_at, message_id, frame, hash, created_at,"
              " updated_at) select %s, 'later', 'x' || i, 'Default', %s, %s,"
              " gen_random_uuid(), %s, '', %s, %s"
              " from generate_series(1, 20000) i", TENANT, at(10 ** 8),
              at(10 ** 8), frame("x"), NOW, NOW)
    fill.rows("insert into queen.queues (tenant, name) select %s, 'n' || i"
              " from generate_series(1, 3000) i", TENANT)
    fill.rows(
        "with p as (insert into queen.partitions (queue_id, name, created_at)"
        " select %s, 'k' || i, now() from generate_series(1, 20000) i"
        " returning id) insert into queen.partition_heads (id, queue_id,"
        " last_write_at) select id, %s, now() - interval '1 h' from p",
        queue, queue)
    fill.rows("insert into queen.consumers (group_id, partition_id, committed)"
              " select %s, id, -1 from queen.partitions where name like 'k%%'",
              group)


def traffic(hot, group, parts, no):
    """All kinds of operations over as many names as there are partitions."""
    keys = ["k%d-%d" % (no, i) for i in range(8)]
    segs = [dict(part=p, ids=["%d-%d" % (no, p)], verified=-1) for p in parts]
    found = hot.riders(
        [put(k, expect=0) for k in keys[:4]]
        + [{"op": "incr", "key": "c", "delta": "1"},
           {"op": "delete", "key": keys[4]},
           {"op": "get", "key": keys[5]},
           {"op": "getMany", "keys": keys}],
        [(0, "later", k) for k in keys] + [(1, "later", "no%d" % no)],
        segs=segs, now=None)
    assert {r.verdict for r in found if r.kind == 1} == {0}
    got = hot.pop_all([dict(no=no, budget=len(parts))],
                      [(1, p, group) for p in parts])
    lease = (got[0].lease_at, group, no)
    found = hot.riders(
        [put(keys[0], expect=1), put("x7", required=True)],
        [(0, "later", keys[0]), (1, "later", keys[1])],
        [lease], [dict(part=parts[0], ids=["b%d" % no], verified=0)],
        [dict(part=p, group=group, ids=["%d-%d" % (no, p)]) for p in parts],
        True, now=None)
    assert {r.verdict for r in found if r.kind in (0, 1, 2)} == {0}
    assert len([r for r in found if r.kind == 2]) == len(parts)


@pytest.mark.allpg
@pytest.mark.parametrize("planned", ["empty", "one row", "full"])
def test_no_bundle_walks_a_table_or_an_index(
        db, notices, planned):  # noqa: F811
    """Plans made on empty tables, on analysed tables of one row, or
    afterwards."""
    hot, fill = Riders(notices), Riders(db.connect())
    queue = fill.queue("q")
    group = fill.group(queue, "g")
    first = fill.part(queue, "first")
    for table in "kv", "timers", "partition_heads", "consumers":
        fill.rows("alter table queen.%s set (autovacuum_enabled = off)"
                  % table)
    if planned == "one row":
        fill.riders([put("k")], [(0, "later", "k")],
                    segs=[dict(part=first, ids="f")])
        fill.took(first, group, 1, auto=True)
        fill.rows("analyze")
    if planned != "full":
        traffic(hot, group, [first], 1000)
    fill_up(fill, queue, group)
    if planned == "full":
        fill.rows("analyze")
    parts = [r[0] for r in fill.rows(
        "select id from queen.partitions where name like 'k%%'"
        " order by id limit 64 offset 9000")]
    notices.notices.clear()
    traffic(hot, group, parts, 2000)
    for table in "kv", "timers", "segments":
        assert any("insert into queen." + table in x
                   for x in notices.notices), table
    found = walks(notices, 300)
    assert not found, found[0]
