# SPDX-License-Identifier: Apache-2.0
"""
Segments that take turns under load, with an old snapshot held open: the log
is emptied by TRUNCATE alone, and nobody's events go with it.
"""
import time

import pytest

from loadkit import Workers
from queenlib import wait_until


def schema_of(db, queue):
    return "queen_ojs_%d" % db.value(
        "select id from queen.ojs_queues where name = %s and deleted_at"
        " is null", (queue,))


def churn(db, schema):
    """Tuples updated, deleted and dead in the tables of the events."""
    return db.row(
        "select coalesce(sum(n_tup_upd), 0)::int, coalesce(sum(n_tup_del),"
        " 0)::int, coalesce(sum(n_dead_tup), 0)::int from"
        " pg_stat_user_tables where schemaname = %s and relname like"
        " 'stream_events%%'", (schema,))


def segments(ojs, queue):
    return ojs.ask("GET", "/queues/%s/info" % queue)["stream"]


class Reader:
    """A consumer that acks what it gets, and keeps the numbers."""

    def __init__(self, ojs, queue, name, stop, pause_s=0.0):
        self.ojs, self.queue, self.name = ojs, queue, name
        self.stop, self.pause_s, self.got = stop, pause_s, []

    def step(self, **more):
        reply = self.ojs.receive(self.queue, self.name, **more)
        if not reply["batch"]:
            return False
        self.got += [m["payload"] for m in reply["messages"]]
        self.ojs.stream_ack(self.queue, reply["batch"]["id"])
        return True

    def run(self):
        while not self.stop.is_set():
            self.step(wait_ms=200)
            self.stop.wait(self.pause_s)


def rotations(db, schema, seen):
    """Notes each new file of an event table: one TRUNCATE each."""
    for name, node in db.rows(
            "select relname, relfilenode from pg_class c join pg_namespace n"
            " on n.oid = relnamespace where nspname = %s and relname like"
            " 'stream_events\\_%%' and relkind = 'r'", (schema,)):
        seen.setdefault(name, []).append(node) \
            if node not in seen.get(name, []) else None
    return sum(len(nodes) - 1 for nodes in seen.values())


@pytest.mark.amount
@pytest.mark.parametrize("least_s, most_s, least, retention_s", [
    pytest.param(15, 45, 2, 4, id="short"),
    pytest.param(600, 600, 6, 60, id="long", marks=pytest.mark.soak)])
def test_rotation_under_load_with_an_old_snapshot(
        new_ojs, db, least_s, most_s, least, retention_s):
    """A23, A31: the events of ten minutes as soak."""
    ojs = new_ojs(QUEEN_OJS_SWEEP_MS=100).start()
    ojs.append("log", {"type": "first", "payload": -1})
    ojs.ask("POST", "/queues/log/config", {"retention": "%ds" % retention_s})
    schema = schema_of(db, "log")
    old = db.connect()
    old.set_session(isolation_level="REPEATABLE READ", autocommit=False)
    with old.cursor() as cur:
        cur.execute("select count(*) from queen.ojs_queues")
    sent, seen, most = [], {}, 0
    with Workers() as w:
        fast = Reader(ojs, "log", "fast", w.stop)
        ojs.subscribe("log", "fast", from_tick="now")

        def produce():
            while not w.stop.is_set():
                batch = list(range(len(sent), len(sent) + 20))
                ojs.append("log", *({"type": "e", "payload": n}
                                    for n in batch))
                sent.extend(batch)
                w.stop.wait(0.05)

        w.start(produce)
        w.start(fast.run)
        start = time.monotonic()
        wait_until(lambda: rotations(db, schema, seen) >= least
                   and time.monotonic() > start + least_s
                   or time.monotonic() > start + most_s,
                   deadline_s=most_s + 30)
        most = rotations(db, schema, seen)
        w.stop.set()
        w.join(30)
    while fast.step():
        pass
    assert most >= least, seen
    assert sorted(fast.got) == sent and len(sent) > 100
    assert churn(db, schema) == (0, 0, 0)
    old.close()


def test_a_slow_consumer_pins_its_segment(new_ojs, db):
    """A24: what it has not read stays, however old; then the log goes on."""
    ojs = new_ojs(QUEEN_OJS_SWEEP_MS=50).start()
    ojs.append("p", {"type": "first", "payload": -1})
    ojs.ask("POST", "/queues/p/config", {"retention": "1s"})
    schema = schema_of(db, "p")
    ojs.subscribe("p", "slow", from_tick="now")
    ojs.append("p", {"type": "e", "payload": 0})
    seen, sent = {}, [0]
    rotations(db, schema, seen)

    def pinned():
        ojs.append("p", {"type": "e", "payload": len(sent)})
        sent.append(len(sent))
        return any("slow" in s.get("pinned_by", [])
                   for s in segments(ojs, "p")["segments"])

    wait_until(pinned, deadline_s=30)
    before = rotations(db, schema, seen)
    first = segments(ojs, "p")["first_seq"]
    stop = time.monotonic() + 2.5
    while time.monotonic() < stop:
        pinned()
        time.sleep(0.1)
    assert rotations(db, schema, seen) <= before + 1
    assert segments(ojs, "p")["first_seq"] >= first
    with Workers() as w:
        slow = Reader(ojs, "p", "slow", w.stop)
        while slow.step():
            pass
        assert slow.got == sent

        def moves_on():
            pinned()
            slow.step()
            return rotations(db, schema, seen) >= before + 2
        wait_until(moves_on, deadline_s=30)
    assert slow.got == sent[:len(slow.got)]
