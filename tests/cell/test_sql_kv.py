# SPDX-License-Identifier: Apache-2.0
"""queen.kv_*: what an operation does to a key, at one instant, under locks."""
import json
import threading
import uuid

import psycopg2
import pytest

from queenlib import TENANT, rows, wait_until
from sqlkit import at

OPS = {"get": 0, "getMany": 1, "getPrefix": 2, "put": 3, "delete": 4, "incr": 5}
NOW = at(1000)
CALL = ("select * from queen.kv_apply_v1(%s, %s, %s, %s::smallint[], %s::text[],"
        " %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::boolean[],"
        " %s::text[], %s::text[], %s::text[], %s::text[], %s::int[],"
        " %s::boolean[], %s::int[], %s::text[], %s)")


class Kv:
    """Calls of kv_apply_v1 on one connection."""

    def __init__(self, conn, tenant=TENANT):
        self.conn, self.tenant = conn, tenant

    def raw(self, ops, now=NOW, bundle=False, budget=None):
        """ops: dicts as on the wire, ns "n" by default; the rows."""
        def column(name, default=None):
            return [o.get(name, default) for o in ops]

        many = [(i, key) for i, o in enumerate(ops, 1)
                for key in o.get("keys", ())]
        values = [json.dumps(o["value"]) if "value" in o else None
                  for o in ops]
        return rows(self.conn, CALL, (
            self.tenant, bundle, budget,
            [OPS.get(o["op"], 9) for o in ops], column("ns", "n"),
            [o.get("key", o.get("prefix")) for o in ops],
            [o.get("text", v) for o, v in zip(ops, values)],
            column("expect"), column("ttl"), column("required", False),
            [None if "delta" not in o else str(o["delta"]) for o in ops],
            [None if "min" not in o else str(o["min"]) for o in ops],
            [None if "max" not in o else str(o["max"]) for o in ops],
            column("after"), column("limit"), column("keysOnly", False),
            [i for i, _ in many], [k for _, k in many], now))

    def __call__(self, op, key=None, now=NOW, **fields):
        """One operation on one key: (verdict, reason, value, version)."""
        found = self.raw([dict(fields, op=op, key=key)], now)
        assert [r[:2] for r in found] == [(1, 0)]
        _, _, verdict, reason, back, value, version, _, _ = found[0]
        assert back == key
        return (verdict, reason, value and json.loads(value), version)

    def row(self, key):
        """(value, expires_at, created_at, updated_at) as stored."""
        found = rows(self.conn, "select value, expires_at, created_at,"
                     " updated_at from queen.kv where tenant = %s and"
                     " namespace = 'n' and key = %s", (self.tenant, key))
        return found[0] if found else None


@pytest.fixture
def kv(db):
    return Kv(db.connect())


def test_put(kv):
    v, reason, value, first = kv("put", "a", value={"x": 1})
    assert (v, reason, value) == (0, None, {"x": 1}) and first > 0
    assert kv.row("a") == ({"x": 1}, None, NOW, NOW)
    v, _, value, second = kv("put", "a", value=2, ttl=60, now=at(1001))
    assert (v, value) == (0, 2) and second > first
    assert kv.row("a") == (2, at(1061), NOW, at(1001))
    # the lifetime is never inherited
    kv("put", "a", value=3, now=at(1002))
    assert kv.row("a")[1] is None


@pytest.mark.allpg
def test_a_row_is_dead_at_the_very_instant(kv):
    _, _, _, old = kv("put", "a", value=1, ttl=10)
    almost = at(1010).replace(microsecond=0) - (at(1) - at(0)) / 1000000
    assert kv("get", "a", now=almost) == (0, None, 1, old)
    assert kv("get", "a", now=at(1010)) == (1, None, None, None)
    assert kv("put", "a", value=2, expect=old, now=at(1010)) == \
        (1, "absent", None, 0)
    assert kv("put", "a", value=2, expect=0, now=almost)[:2] == (1, "exists")
    v, _, _, new = kv("put", "a", value=2, expect=0, now=at(1010))
    assert v == 0 and new > old
    assert kv.row("a") == (2, None, at(1010), at(1010))


@pytest.mark.allpg
def test_delete_of_a_dead_row_removes_but_does_not_count(kv):
    kv("put", "a", value=1, ttl=10)
    assert kv("delete", "a", expect=0, now=at(2000)) == (0, None, None, 0)
    assert kv.row("a") is not None
    assert kv("delete", "a", now=at(2000)) == (1, "absent", None, 0)
    assert kv.row("a") is None


@pytest.mark.allpg
def test_incr_life(kv):
    assert kv("incr", "a", delta=5, ttl=10)[2] == 5
    assert kv("incr", "a", delta=1, ttl=500, now=at(1009))[2] == 6
    assert kv.row("a")[1:3] == (at(1010), NOW)
    assert kv("incr", "a", delta=1, ttl=500, now=at(1010))[2] == 1
    assert kv.row("a")[1:3] == (at(1510), at(1010))
    kv("put", "o", value={"x": 1}, ttl=10)
    assert kv("incr", "o", delta=1)[:3] == (1, "type", 0)
    assert kv("incr", "o", delta=1, now=at(1010))[:3] == (0, None, 1)
    # a limit counts from 0 over a dead row, and says 0
    kv("put", "d", value=50, ttl=10)
    assert kv("incr", "d", delta=9, max=8, now=at(1010)) == \
        (1, "limit", 0, 0)
    assert kv("incr", "d", delta="1.500")[2] == 51.5
    assert kv("incr", "d", delta=9, max=8)[:3] == (1, "limit", 51.5)


def test_placeholder_never_shows(kv):
    kv.raw([{"op": "put", "key": "k%d" % i, "value": i} for i in range(20)])
    assert rows(kv.conn, "select count(*) from queen.kv where version <= 0"
                ) == [(0,)]


@pytest.mark.allpg
def test_order_of_application_and_rows(kv):
    found = kv.raw([
        {"op": "getPrefix", "key": "a"},
        {"op": "getMany", "keys": ["zz", "b", "a", "zz", "y"]},
        {"op": "get", "key": "a"},
        {"op": "put", "key": "b", "value": 2},
        {"op": "put", "key": "a", "value": 1},
        {"op": "get", "key": "a"}])
    by_op = {}
    for r in found:
        by_op.setdefault(r[0], []).append((r[1], r[2], r[4], r[5]))
    assert by_op == {
        1: [(1, 0, "a", "1"), (0, 0, None, None)],
        2: [(1, 0, "a", "1"), (2, 0, "b", "2"), (3, 1, "zz", None),
            (4, 1, "y", None), (0, 0, None, None)],
        3: [(0, 1, "a", None)], 4: [(0, 0, "b", "2")],
        5: [(0, 0, "a", "1")], 6: [(0, 0, "a", "1")]}
    # a before b, whatever the order of the call
    versions = {r[0]: r[6] for r in found if r[0] in (4, 5)}
    assert versions[5] < versions[4]
    assert len({r[7] for r in found if r[6]}) == 1


@pytest.mark.allpg
def test_lost_required_is_the_last_row(kv):
    kv("put", "b", value=1)
    kv.conn.autocommit = False
    found = kv.raw([{"op": "put", "key": "c", "value": 1},
                    {"op": "put", "key": "b", "value": 2, "expect": 0,
                     "required": True},
                    {"op": "put", "key": "a", "value": 1}])
    assert [(r[0], r[2], r[3]) for r in found] == \
        [(3, 0, None), (2, 2, "exists")]
    kv.conn.rollback()
    kv.conn.autocommit = True
    assert kv.row("a") is None


@pytest.mark.parametrize("ops,code,message", [
    ([{"op": "frob", "key": "a"}], "22023", "kv_unknown_op"),
    ([{"op": "get", "key": "a", "ns": "A"}], "22023", "kv_bad_namespace"),
    ([{"op": "get", "key": "a", "ns": "a" * 65}], "22023",
     "kv_bad_namespace"),
    ([{"op": "get", "key": ""}], "22023", "kv_bad_key"),
    ([{"op": "get"}], "22023", "kv_bad_key"),
    ([{"op": "get", "key": "k" * 513}], "22001", "kv_key_too_large"),
    ([{"op": "getMany", "keys": [""]}], "22023", "kv_bad_key"),
    ([{"op": "getMany", "ns": "A", "keys": []}], "22023",
     "kv_bad_namespace"),
    ([{"op": "put", "key": "a"}], "22023", "kv_bad_request"),
    ([{"op": "put", "key": "a", "value": 1, "ttl": 0}], "22023",
     "kv_bad_ttl"),
    ([{"op": "put", "key": "a", "value": 1, "ttl": 3153600001}], "22023",
     "kv_bad_ttl"),
    ([{"op": "put", "key": "a", "value": 1, "expect": -1}], "22023",
     "kv_bad_expect"),
    ([{"op": "incr", "key": "a", "delta": 1, "expect": 0}], "22023",
     "kv_bad_expect"),
    ([{"op": "incr", "key": "a"}], "22023", "kv_bad_request"),
    ([{"op": "incr", "key": "a", "delta": '"x"'}], "22023",
     "kv_bad_request"),
    ([{"op": "put", "key": "a", "value": "x" * 65535}], "22001",
     "kv_value_too_large"),
    ([{"op": "put", "key": "a", "value": 1},
      {"op": "delete", "key": "a"}], "22023", "kv_duplicate_key_in_call"),
])
def test_faults_of_other_callers(kv, ops, code, message):
    good = {"op": "put", "key": "0", "value": 1}
    with pytest.raises(psycopg2.Error) as fault:
        kv.raw([good] + ops)
    assert fault.value.pgcode == code
    assert fault.value.diag.message_primary == message
    assert kv.row("0") is None


def test_arrays_must_fit(kv):
    with pytest.raises(psycopg2.Error) as fault:
        rows(kv.conn, CALL, (TENANT, False, None, [0], [], [], [], [], [], [],
                             [], [], [], [], [], [], [], [], None))
    assert fault.value.pgcode == "22023"


def test_caps(kv):
    get = {"op": "get", "key": "a"}
    assert len(kv.raw([get] * 64, bundle=True)) == 64
    for ops, message in (
            ([get] * 65, "kv_too_many_ops"),
            ([{"op": "getMany", "keys": ["k%d" % i for i in range(256)]},
              get], "kv_too_many_keys"),
            ([{"op": "getPrefix", "key": "a"}],
             "kv_get_prefix_not_allowed_in_transaction")):
        with pytest.raises(psycopg2.Error) as fault:
            kv.raw(ops, bundle=True)
        assert fault.value.diag.message_primary == message
    assert len(kv.raw([{"op": "put", "key": "a", "value": "x" * 65534}])) == 1
    assert len(kv.raw([{"op": "get", "key": "k" * 512}])) == 1


def test_tenants_are_apart(kv):
    other = Kv(kv.conn, str(uuid.uuid4()))
    kv("put", "a", value=1)
    assert other("get", "a")[0] == 1
    other("put", "a", value=2)
    assert other("delete", "a")[2] == 2
    assert kv("get", "a")[2] == 1
    for tenant, wanted in ((kv.tenant, [("n", 1)]), (other.tenant, [])):
        assert rows(kv.conn, "select * from queen.kv_namespaces_v1(%s)",
                    (tenant,)) == wanted


ONE = [
    {"op": "get", "key": "a"}, {"op": "put", "key": "a", "value": {"b": 1}},
    {"op": "get", "key": "a"},
    {"op": "put", "key": "a", "value": 2, "expect": 0},
    {"op": "put", "key": "a", "value": 2, "expect": 0, "required": True},
    {"op": "put", "key": "a", "value": 2, "expect": 10 ** 6,
     "required": True},
    {"op": "delete", "key": "a", "expect": 0}, {"op": "delete", "key": "a"},
    {"op": "delete", "key": "a", "required": True},
    {"op": "incr", "key": "c", "delta": "2.50", "min": 1, "max": 4, "ttl": 9},
    {"op": "incr", "key": "c", "delta": 2, "max": 4},
    {"op": "incr", "key": "c", "delta": 2, "max": 4, "required": True},
    {"op": "get", "key": "c"}, {"op": "get", "key": "c", "required": True},
    {"op": "frob", "key": "a"}, {"op": "getMany", "keys": ["a"]},
    {"op": "getPrefix", "key": "a"}, {"op": "get", "key": "a", "ns": "A"},
    {"op": "get", "key": ""}, {"op": "get", "key": "k" * 513},
    {"op": "put", "key": "a"}, {"op": "put", "key": "a", "value": 1, "ttl": 0},
    {"op": "put", "key": "a", "value": 1, "expect": -1},
    {"op": "incr", "key": "a"}, {"op": "incr", "key": "a", "delta": '"x"'},
    {"op": "put", "key": "a", "value": "x" * 65535},
]


@pytest.mark.allpg
def test_a_call_of_one_is_as_a_call_of_many(kv):
    """kv_one_v1 against kv_apply_v1, each in a tenant of its own."""
    other = str(uuid.uuid4())
    versions = {}

    def one(o):
        return rows(kv.conn, "select * from queen.kv_one_v1(%s, %s, %s, %s,"
                    " %s, %s, %s, %s, %s, %s, %s, %s)", (
                        other, OPS.get(o["op"], 9), o.get("ns", "n"),
                        o.get("key"), json.dumps(o["value"])
                        if "value" in o else None, o.get("expect"),
                        o.get("ttl"), o.get("required"),
                        *(None if n not in o else str(o[n])
                          for n in ("delta", "min", "max")), NOW))

    def outcome(fn, o):
        try:
            found = [list(r) for r in fn(o)]
        except psycopg2.Error as e:
            return (e.pgcode, e.diag.message_primary)
        for r in found:             # the versions differ, their places do not
            r[6] = r[6] and versions.setdefault(fn, []).append(r[6]) or (
                r[6] and r[6] > 0)
        return found

    def many(o):
        return kv.raw([o])

    for o in ONE:
        if o["op"] in ("getMany", "getPrefix"):
            assert outcome(one, o) == ("22023", "kv_unknown_op")
        else:
            assert outcome(one, o) == outcome(many, o), o
    assert len(versions[one]) == len(versions[many]) > 4
    assert rows(kv.conn, "select namespace, key, value, expires_at,"
                " created_at, updated_at from queen.kv where tenant = %s"
                " except all select namespace, key, value, expires_at,"
                " created_at, updated_at from queen.kv where tenant = %s",
                (kv.tenant, other)) == []


# The rules

@pytest.mark.allpg
def test_prefix_end(db):
    def end(text):
        return db.value("select queen.kv_prefix_end_v1(%s)", (text,))

    assert [end(t) for t in ("a", "az", "\ud7ff", "a\U0010ffff",
                             "\U0010ffff", "", "\u007f", "%", "\uffff")] == \
        ["b", "a{", "\ue000", "b", None, None, "\u0080", "&", "\U00010000"]


def test_live_ver_num_are_total(db):
    assert db.rows(
        "select queen.kv_live_v1(null, t), queen.kv_live_v1(t, t),"
        " queen.kv_live_v1(t + '1us', t), queen.kv_live_v1(t, null),"
        " queen.kv_ver_v1(5, t, t), queen.kv_ver_v1(null, null, t),"
        " queen.kv_ver_v1(5, null, t), queen.kv_num_v1(null, null, t),"
        " queen.kv_num_v1('7', t, t), queen.kv_num_v1('\"7\"', null, t),"
        " queen.kv_num_v1('7', null, t) from (select now() as t) x") == [
            (True, False, True, False, 0, 0, 5, 0, 0, 0, 7)]


def test_prefix_at_the_ends_of_text(kv):
    keys = ["\U0010ffff", "\U0010ffff\U0010ffff", "\ud7ffa", "\ue000", "z"]
    kv.raw([{"op": "put", "key": k, "value": 1} for k in keys])

    def under(prefix):
        return [r[4] for r in kv.raw([{"op": "getPrefix", "key": prefix}])
                if r[1]]

    assert under("\U0010ffff") == keys[:2]
    assert under("\ud7ff") == ["\ud7ffa"]


# Expiry

def sweep(db, limit, now, shards=range(64)):
    return db.rows("select deleted, done, unpruned, unpruned_capped, lag_ms"
                   " from queen.kv_expire_step_v1(%s, %s, %s)",
                   (list(shards), limit, now))[0]


@pytest.mark.allpg
def test_expire_steps(kv, db):
    kv.raw([{"op": "put", "key": "k%02d" % i, "value": i, "ttl": 10}
            for i in range(30)] + [{"op": "put", "key": "s", "value": 1}])
    assert sweep(db, 8, at(1009)) == (0, True, 0, False, 0)
    assert sweep(db, 2, at(1010)) == (2, False, 16, True, 0)
    assert sweep(db, 20, at(1012)) == (20, False, 8, False, 2000)
    assert sweep(db, 20, at(1012)) == (8, True, 0, False, 0)
    assert db.rows("select key from queen.kv") == [("s",)]


def test_the_lag_is_that_of_the_oldest_in_any_shard(kv, db):
    """Also when the shards before it have more than is counted."""
    kv.raw([{"op": "put", "key": "k%03d" % i, "value": i, "ttl": 10 + i % 2}
            for i in range(200)])
    db.rows("update queen.kv set expires_at = %s where ctid = (select ctid"
            " from queen.kv order by shard desc limit 1) returning 1",
            (at(1000),))
    held = db.connect(autocommit=False)
    with held.cursor() as cur:
        cur.execute("select 1 from queen.kv for update")
    assert sweep(db, 1, at(1020))[2:] == (8, True, 20000)
    held.rollback()


def test_sweep_skips_what_is_held_and_spares_what_lives_again(kv, db):
    kv.raw([{"op": "put", "key": k, "value": 1, "ttl": 10} for k in "ab"])
    other = Kv(db.connect())
    other.conn.autocommit = False
    other("put", "a", value=2, ttl=1000)
    assert sweep(db, 10, at(1010))[:3] == (1, True, 1)
    other.conn.commit()
    assert sweep(db, 10, at(1010))[:3] == (0, True, 0)
    assert kv.row("a")[0] == 2


# Two sessions and more

def test_a_loser_that_waited_is_told_the_truth(kv, db):
    """Two renewals of one version: the second sees what the first made."""
    first = kv("put", "a", value=0)[3]
    kv.conn.autocommit = False
    second = kv("put", "a", value=1, expect=first)[3]
    other, got = Kv(db.connect()), []
    t = threading.Thread(target=lambda: got.append(
        other("put", "a", value=2, expect=first)))
    t.start()
    wait_until(lambda: db.value(
        "select count(*) from pg_stat_activity where wait_event_type ="
        " 'Lock' and datname = current_database()") == 1, what="the loser")
    kv.conn.commit()
    t.join()
    assert got == [(1, "version", 1, second)]


@pytest.mark.parametrize("commit", [True, False])
def test_absent_key_is_waited_for(kv, db, commit):
    kv.conn.autocommit = False
    mine = kv("put", "a", value=1, expect=0)[3]
    other, got = Kv(db.connect()), []
    t = threading.Thread(target=lambda: got.append(
        other("put", "a", value=2, expect=0)))
    t.start()
    wait_until(lambda: db.value(
        "select count(*) from pg_stat_activity where wait_event_type ="
        " 'Lock' and datname = current_database()") == 1, what="the waiter")
    (kv.conn.commit if commit else kv.conn.rollback)()
    t.join()
    if commit:
        assert got == [(1, "exists", 1, mine)]
    else:
        assert got[0][:3] == (0, None, 2) and got[0][3] > mine


def run_all(calls):
    faults = []

    def guarded(call):
        try:
            call()
        except Exception as e:  # noqa: BLE001
            faults.append(e)

    threads = [threading.Thread(target=guarded, args=(c,)) for c in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert faults == []


@pytest.mark.allpg
def test_one_of_many_puts_if_absent(db):
    kvs = [Kv(db.connect()) for _ in range(8)]
    for key in ("k%d" % i for i in range(20)):
        got = []
        run_all([lambda k=k, n=n: got.append(
            k("put", key, value=n, expect=0)) for n, k in enumerate(kvs)])
        won = [g for g in got if g[0] == 0]
        assert len(won) == 1
        assert {g[2:] for g in got} == {won[0][2:]}


@pytest.mark.allpg
def test_versions_grow_through_delete_and_recreate(db):
    """Eight writers on one key.  A trigger notes each version in the order
    in which the rows were locked: it runs while the row is held."""
    db.rows("create sequence seen_no; create table seen (no bigint, v bigint);"
            "create function note() returns trigger language plpgsql as $$"
            " begin if new.version > 0 then insert into seen values"
            " (nextval('seen_no'), new.version); end if; return new; end $$;"
            "create trigger note before insert or update on queen.kv"
            " for each row execute function note()")
    kvs = [Kv(db.connect()) for _ in range(8)]

    def work(kv, n):
        for i in range(60):
            if (i + n) % 3 == 0:
                kv("delete", "a")
            elif (i + n) % 3 == 1:
                kv("put", "a", value=i)
            else:
                kv("put", "a", value=i, expect=0)

    run_all([lambda k=k, n=n: work(k, n) for n, k in enumerate(kvs)])
    seen = [r[0] for r in db.rows("select v from seen order by no")]
    assert len(seen) > 160
    assert seen == sorted(set(seen))


def test_counters_lose_nothing(db):
    kvs = [Kv(db.connect()) for _ in range(8)]
    run_all([lambda k=k: [k("incr", "a", delta=1) for _ in range(50)]
             for k in kvs])
    assert kvs[0]("get", "a")[2] == 400
    got = []
    run_all([lambda k=k: got.extend(
        k("incr", "b", delta=1, max=100)[0] for _ in range(25))
        for k in kvs])
    assert (got.count(0), kvs[0]("get", "b")[2]) == (100, 100)


def test_calls_in_any_order_do_not_deadlock(db):
    kvs = [Kv(db.connect()) for _ in range(4)]
    ops = [{"op": "incr", "key": "k%d" % i, "delta": 1} for i in range(20)]
    run_all([lambda k=k, n=n: [k.raw(ops[::-1] if n % 2 else ops)
                               for _ in range(20)]
             for n, k in enumerate(kvs)])
    assert {r[0] for r in db.rows("select value from queen.kv")} == {80}


# Plans

@pytest.mark.allpg
def test_plans_use_the_keys(kv, db):
    """Generic plans made while the table is small must hold when it is not:
    no call reads the table."""
    conn = kv.conn
    for option in ("plan_cache_mode = force_generic_plan",
                   "enable_seqscan = off", "enable_bitmapscan = off",
                   "jit = off"):
        rows(conn, "set " + option)
    calls = [[{"op": "put", "key": "k5", "value": 1, "ttl": 60}],
             [{"op": "put", "key": "k5", "value": 1, "expect": 3}],
             [{"op": "get", "key": "k6"}], [{"op": "delete", "key": "k7"}],
             [{"op": "delete", "key": "k8", "expect": 3}],
             [{"op": "incr", "key": "n", "delta": 1}],
             [{"op": "getMany", "keys": ["k1", "k2", "nope"]}],
             [{"op": "getPrefix", "key": "k1", "limit": 5}]]
    for call in calls:
        kv.raw(call)
    rows(conn, "select * from queen.kv_expire_step_v1('{1,2}', 5, %s)", (NOW,))
    rows(conn, "insert into queen.kv (tenant, namespace, key, value, version,"
         " expires_at, created_at, updated_at) select %s, 'n', 'x' || i, '1',"
         " nextval('queen.kv_version'), %s + i * interval '1 s', %s, %s"
         " from generate_series(1, 20000) i", (TENANT, NOW, NOW, NOW))

    def reads():
        rows(conn, "select pg_stat_force_next_flush()")
        return rows(conn, "select seq_tup_read, idx_tup_fetch from"
                    " pg_stat_user_tables where relname = 'kv'")[0]

    before = reads()
    for call in calls:
        kv.raw(call)
    rows(conn, "select * from queen.kv_expire_step_v1('{1,2}', 5, %s)", (NOW,))
    after = reads()
    assert after[0] - before[0] == 0
    assert after[1] - before[1] < 100
