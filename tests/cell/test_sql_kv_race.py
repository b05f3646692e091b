# SPDX-License-Identifier: Apache-2.0
"""queen.kv under locks: winners, losers, the sweep and the order of locks."""
import threading

import psycopg2
import pytest

from kvkit import waiting_for_locks
from queenlib import rows, wait_until
from sqlkit import at
from test_sql_kv import NOW, Kv, run_all, sweep

pytestmark = pytest.mark.allpg


def waiter(db, call):
    """Runs call in a thread until it waits for a lock; (thread, results)."""
    got = []
    t = threading.Thread(target=lambda: got.append(call()))
    t.start()
    wait_until(lambda: waiting_for_locks(db) == 1, what="the waiter")
    return t, got


@pytest.fixture
def kv(db):
    return Kv(db.connect())


@pytest.mark.parametrize("op", ["put", "delete"])
@pytest.mark.parametrize("first,end", [
    ("put", "commit"), ("put", "rollback"), ("delete", "commit"),
    ("delete", "rollback")])
def test_who_waited_with_an_expected_version(kv, db, op, first, end):
    v = kv("put", "a", value=0)[3]
    kv.conn.autocommit = False
    w = kv(first, "a", **({"value": 1} if first == "put" else {}))[3]
    other = Kv(db.connect())
    t, got = waiter(db, lambda: other(
        op, "a", expect=v, **({"value": 2} if op == "put" else {})))
    getattr(kv.conn, end)()
    t.join()
    if end == "rollback":
        verdict, why, value, version = got[0]
        assert (verdict, why) == (0, None)
        if op == "put":
            assert value == 2 and version > v
            # also than one that was drawn and never seen
            assert first == "delete" or version != w
        else:
            assert (value, version) == (0, v)
    elif first == "put":
        assert got == [(1, "version", 1, w)]
    else:
        assert got == [(1, "absent", None, 0)]


@pytest.mark.parametrize("end,wanted", [
    ("commit", (0, None, 2)), ("rollback", (1, "exists", 0))])
def test_put_if_absent_waits_for_a_delete(kv, db, end, wanted):
    v = kv("put", "a", value=0)[3]
    kv.conn.autocommit = False
    kv("delete", "a")
    other = Kv(db.connect())
    t, got = waiter(db, lambda: other("put", "a", value=2, expect=0))
    getattr(kv.conn, end)()
    t.join()
    assert got[0][:3] == wanted
    assert got[0][3] == v if end == "rollback" else got[0][3] > v


def test_put_if_absent_waits_for_the_sweep(kv, db):
    """The dead row is being removed: its successor is a row of its own."""
    old = kv("put", "a", value=0, ttl=10)[3]
    conn = db.connect()
    conn.autocommit = False
    assert rows(conn, "select deleted from queen.kv_expire_step_v1(%s, 10,"
                " %s)", (list(range(64)), at(1010))) == [(1,)]
    t, got = waiter(db, lambda: kv("put", "a", value=1, expect=0,
                                   now=at(1010)))
    conn.commit()
    t.join()
    assert got[0][:3] == (0, None, 1) and got[0][3] > old
    assert kv.row("a") == (1, None, at(1010), at(1010))


def test_winners_sweeps_and_deletes(db):
    """In each round the row of the round before is dead.  Four ask for it,
    two delete, two sweep: who won and was not deleted is there, no row that
    lives is swept, and versions grow in the order of the locks."""
    db.rows("create sequence seen_no; create table seen (no bigint, v bigint);"
            "create function note() returns trigger language plpgsql as $$"
            " begin if new.version > 0 then insert into seen values"
            " (nextval('seen_no'), new.version); end if; return new; end $$;"
            "create trigger note before insert or update on queen.kv"
            " for each row execute function note()")
    rounds = 40
    barrier = threading.Barrier(8)
    kvs = [Kv(db.connect()) for _ in range(6)]
    sweepers = [db.connect() for _ in range(2)]
    won = [[] for _ in range(rounds)]
    gone = [[] for _ in range(rounds)]

    def put(kv):
        for i in range(rounds):
            barrier.wait(60)
            v, why, _, version = kv("put", "a", value=i, expect=0, ttl=5,
                                    now=at(1000 + 10 * i))
            assert (v, why) in ((0, None), (1, "exists"))
            if v == 0:
                won[i].append(version)

    def delete(kv):
        for i in range(rounds):
            barrier.wait(60)
            v, _, value, version = kv("delete", "a", now=at(1000 + 10 * i))
            if v == 0:
                assert value == i
                gone[i].append(version)

    def clean(conn):
        for i in range(rounds):
            barrier.wait(60)
            rows(conn, "select * from queen.kv_expire_step_v1(%s, 10, %s)",
                 (list(range(64)), at(1000 + 10 * i)))

    run_all([lambda k=k: put(k) for k in kvs[:4]]
            + [lambda k=k: delete(k) for k in kvs[4:]]
            + [lambda c=c: clean(c) for c in sweepers])
    for i in range(rounds):
        assert 1 <= len(won[i]) <= 3
        assert len(won[i]) - len(gone[i]) in (0, 1)
        assert set(gone[i]) <= set(won[i])
    last = rows(kvs[0].conn, "select version from queen.kv")
    left = set(won[-1]) - set(gone[-1])
    assert {r[0] for r in last} == left
    seen = [r[0] for r in db.rows("select v from seen order by no")]
    assert len(seen) == sum(map(len, won)) and seen == sorted(set(seen))


def test_versions_grow_through_the_sweep(kv, db):
    versions = []
    for i in range(5):
        now = at(1000 + 10 * i)
        versions.append(kv("put", "a", value=i, expect=0, ttl=5, now=now)[3])
        assert sweep(db, 10, at(1005 + 10 * i))[0] == 1
        versions.append(kv("incr", "a", delta=1, ttl=1, now=now)[3])
        assert kv("delete", "a", now=now)[0] == 0
    assert versions == sorted(set(versions))


# The order of locks

KEYS = [("b", "a"), ("a", "\u00e9"), ("a", "b"), ("a", "Z"), ("a", "a"),
        ("b", "\U0001f600"), ("b", "\uffee"), ("a.", "0"), ("a-", "0"),
        ("a", "\u007f"), ("a", "A")]


def by_bytes(pair):
    return pair[0].encode(), pair[1].encode()


def test_rows_are_taken_in_byte_order(kv):
    found = kv.raw([{"op": "put", "ns": ns, "key": key, "value": 1}
                    for ns, key in KEYS])
    versions = {KEYS[r[0] - 1]: r[6] for r in found}
    assert sorted(KEYS, key=versions.get) == sorted(KEYS, key=by_bytes)


def test_calls_over_namespaces_do_not_deadlock(db):
    kvs = [Kv(db.connect()) for _ in range(4)]
    orders = [KEYS, KEYS[::-1], sorted(KEYS), KEYS[5:] + KEYS[:5]]

    def work(kv, order, op):
        for i in range(15):
            kv.raw([dict({"op": op, "ns": ns, "key": key}, **(
                {"delta": 1} if op == "incr" else {"value": i}))
                for ns, key in order])

    run_all([lambda k=k, o=o, n=n: work(k, o, "incr" if n else "put")
             for n, (k, o) in enumerate(zip(kvs, orders))])


@pytest.mark.parametrize("call", [
    {"op": "get", "key": "a"}, {"op": "getMany", "keys": ["b", "a"]},
    {"op": "delete", "key": "a", "expect": 0}])
def test_a_read_takes_no_lock_and_waits_for_none(kv, db, call):
    """Nothing is held that an order of locks would have to name."""
    kv("put", "a", value=0)
    kv("put", "b", value=0)
    kv.conn.autocommit = False
    kv.raw([call], bundle=True)
    other = Kv(db.connect())
    rows(other.conn, "set lock_timeout = '10s'")
    # nobody waits for the reader ...
    assert other("put", "a", value=1)[0] == 0
    kv.conn.commit()
    # ... nor it for a writer
    other.conn.autocommit = False
    other("put", "a", value=2)
    rows(kv.conn, "set lock_timeout = '10s'")
    kv.raw([call], bundle=True)
    other.conn.rollback()


def test_a_loser_of_put_if_absent_holds_the_row(kv, db):
    kv("put", "a", value=0)
    kv.conn.autocommit = False
    assert kv("put", "a", value=1, expect=0)[:2] == (1, "exists")
    other = Kv(db.connect())
    rows(other.conn, "set lock_timeout = '100ms'")
    with pytest.raises(psycopg2.errors.LockNotAvailable):
        other("put", "a", value=2)
    kv.conn.rollback()
    assert other("put", "a", value=2)[0] == 0


# One instant

def test_only_the_instant_of_the_call_decides(kv, db):
    """Whatever the clocks of the hosts say, and in which order."""
    v = kv("put", "a", value=0, ttl=10, now=at(1000))[3]
    for now, live in ((at(1009), True), (at(10 ** 9), False),
                      (at(0), True), (at(1010), False), (at(1009), True)):
        assert kv("get", "a", now=now)[0] == (not live)
        assert kv("put", "a", value=1, expect=v + 10 ** 6, now=now)[1] == (
            "version" if live else "absent")
        many = kv.raw([{"op": "getMany", "keys": ["a"]},
                       {"op": "getPrefix", "key": "a"}], now=now)
        assert len(many) == (4 if live else 3)
    # without an argument: that of the transaction, for all of a call
    rows(kv.conn, "begin")
    kv.raw([{"op": "put", "key": "b", "value": 1, "ttl": 60}], now=None)
    rows(kv.conn, "select pg_sleep(0.01)")
    kv.raw([{"op": "put", "key": "c", "value": 1, "ttl": 60}], now=None)
    assert rows(kv.conn, "select distinct expires_at - now(), updated_at ="
                " now() from queen.kv where key in ('b', 'c')") == [
                    (at(60) - at(0), True)]
    rows(kv.conn, "commit")
    assert NOW == at(1000)
