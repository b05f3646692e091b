# SPDX-License-Identifier: Apache-2.0
"""
Streams whose process or backend is killed in the middle: each call happens as
a whole or not at all, and over acked batches every event came once.
"""
import collections
import http.client
import random
import threading
import time

import pytest

from queenlib import wait_until

S = "queen_ojs_1."
STATE = " union all ".join(
    "select '%s', count(*), coalesce(sum(hashtext(t::text)), 0)"
    " from %s t" % (name, columns) for name, columns in (
        ("events", "(select seq, event_id, retry_count from %sstream_events)"
         % S),
        ("ticks", "(select tick_id, max_seq from %sstream_ticks)" % S),
        ("cursors", "(select consumer, last_tick, next_tick from"
         " %sstream_subscriptions)" % S),
        ("batches", "(select batch_id, end_tick, acked_at from"
         " %sstream_batches)" % S),
        ("held", "(select batch_id, seqs from %sstream_batch_events)" % S),
        ("nacks", "(select batch_id, seq from %sstream_nacks)" % S),
        ("retries", "(select seq, retry_count from %sstream_retry_events)"
         % S)))
OURS = ("select pid from pg_stat_activity where application_name like"
        " 'queen-ojs%%' and datname = current_database()")
FAILURES = (OSError, http.client.HTTPException)


def event(n):
    return {"id": "e%d" % n, "type": "t", "payload": n}


def asked(ojs, what, batch):
    """The request of one kind: path and body."""
    if what == "append":
        return "/queues/q/messages/batch", {"messages": [event(8), event(9)]}
    if what == "receive":
        return "/queues/q/receive", {"consumer": "other"}
    body = {"queue": "q", "batch_id": batch["batch"]["id"]}
    if what == "nack":
        body.update(seq=batch["messages"][1]["seq"], retry_after="1h")
    return "/streams/" + what, body


# what each of them waits for in its middle
BARRIER = {
    "append": "lock table %sstream_events_0 in share mode" % S,
    "receive": "select 1 from %sstream_subscriptions for update" % S,
    "ack": "lock table %sstream_batch_events in share mode" % S,
    "nack": "lock table %sstream_retry_events in share mode" % S,
}


def waiting(db):
    return [pid for pid, in db.rows(OURS + " and wait_event_type = 'Lock'")]


def test_killed_at_each_step(new_ojs, db):
    ojs = new_ojs(QUEEN_OJS_SWEEPER="false").start()
    for name in "c", "other":
        ojs.subscribe("q", name)
    ojs.append("q", *map(event, range(3)))
    batch = ojs.receive("q", "c")
    for what in "append", "receive", "nack", "ack":
        path, body = asked(ojs, what, batch)
        for kill in "backend", "process":
            before = db.rows(STATE)
            door = db.connect(autocommit=False)
            with door.cursor() as cur:
                cur.execute(BARRIER[what])
            answers = []
            thread = threading.Thread(target=lambda: answers.append(
                attempt(ojs, path, body)))
            thread.start()
            pid, = wait_until(lambda: waiting(db))
            if kill == "process":
                ojs.kill9()
            db.rows("select pg_terminate_backend(%s)", (pid,))
            wait_until(lambda: pid not in waiting(db))
            door.rollback()
            door.close()
            thread.join(30)
            assert answers[0] is None or answers[0].status == 503, answers
            if kill == "process":
                ojs.start()
            assert db.rows(STATE) == before, (what, kill)
        reply = attempt(ojs, path, body)
        assert reply.status == (201 if what == "append" else 200)
        assert db.rows(STATE) != before
    got = ojs.receive("q", "c")
    assert [m["payload"] for m in got["messages"]] == [8, 9]


def attempt(ojs, path, body):
    try:
        return ojs.request("POST", "/ojs/v1" + path, body)
    except FAILURES:
        return None


class Load:
    """Appends and consumers that go on whatever happens to the process."""

    def __init__(self, ojs):
        self.ojs = ojs
        self.sent, self.told = 0, set()
        self.taken = collections.Counter()
        self.lost = collections.Counter()
        self.appending = self.going = True
        self.faults = []
        workers = [(self.append,), (self.consume, "plain", None)]
        workers += [(self.consume, "group", "m%d" % i) for i in range(3)]
        self.threads = [threading.Thread(target=self.run, args=w)
                        for w in workers]
        for t in self.threads:
            t.start()

    def run(self, fn, *args):
        try:
            fn(*args)
        except Exception as e:  # noqa: BLE001, whatever it is fails the test
            self.faults.append(e)

    def sure(self, what, path, body):
        """Until there is an answer that is one, 503 is none; and whether it
        was the first."""
        first = True
        while True:
            reply = attempt(self.ojs, path, body)
            if reply is not None and reply.status < 500:
                return reply, first
            first = False
            self.lost[what] += 1
            time.sleep(0.01)

    def append(self):
        while self.appending:
            ids = range(self.sent, self.sent + random.randrange(1, 20))
            self.sent = ids.stop
            reply = attempt(self.ojs, "/queues/q/messages/batch",
                            {"messages": [event(n) for n in ids]})
            if reply is not None and reply.status == 201:
                self.told.update("e%d" % n for n in ids)
            else:
                self.lost["append"] += 1
            time.sleep(0.002)

    def consume(self, consumer, member):
        body = {"consumer": consumer, "wait_ms": 50}
        if member:
            body["member"] = member
        while self.going:
            reply, _ = self.sure("receive", "/queues/q/receive", body)
            assert reply.status == 200, reply
            if reply.body["batch"]:
                self.end(consumer, reply.body)

    def end(self, consumer, got):
        key = {"queue": "q", "batch_id": got["batch"]["id"]}
        for m in got["messages"]:
            if m.get("outcome"):
                continue
            if m["retry_count"] == 0 and m["payload"] % 7 == 0:
                reply, _ = self.sure("nack", "/streams/nack", {
                    **key, "seq": m["seq"], "retry_after": 0})
                assert reply.status == 200, reply
                m["outcome"] = "retry"
        reply, first = self.sure("ack", "/streams/ack", key)
        # it was done, the answer got lost
        again = () if first else (404, 409)
        assert reply.status in (200, *again), reply
        for m in got["messages"]:
            if not m.get("outcome"):
                self.taken[consumer, m["id"]] += 1

    def stop(self):
        self.going = self.appending = False
        for t in self.threads:
            t.join(60)
        assert not self.faults, self.faults


def still(db):
    """Nothing is under way or to come."""
    return db.row(
        "select (select count(*) from %sstream_retry_events)"
        " + (select count(*) from %sstream_batches)"
        " + (select count(*) from %sstream_subscriptions s where exists"
        "    (select from queen.stream_consumers_v1"
        "        ('00000000-0000-0000-0000-000000000001', 'q') c"
        "     where c.name = s.consumer and c.lag_events > 0))"
        % (S, S, S))[0] == 0


@pytest.mark.parametrize("rounds", [
    pytest.param(12, id="short"),
    pytest.param(150, id="long", marks=pytest.mark.soak)])
def test_killed_over_and_over(new_ojs, db, rounds):
    ojs = new_ojs(QUEEN_OJS_SWEEP_MS="10").start()
    for name in "plain", "group":
        ojs.subscribe("q", name)
    load = Load(ojs)
    rng = random.Random(45)
    try:
        for n in range(rounds * 4):
            if n >= rounds and load.lost["append"] and load.lost["receive"]:
                break
            for _ in range(8):
                time.sleep(rng.uniform(0, 0.04))
                pids = [pid for pid, in db.rows(OURS)]
                if pids:
                    db.rows("select pg_terminate_backend(%s)",
                            (rng.choice(pids),))
            if n % 2:
                ojs.kill9()
                ojs.start()
        load.appending = False
        wait_until(lambda: load.faults or still(db), 60)
    finally:
        load.stop()
    stored = collections.Counter(i for i, in db.rows(
        "select event_id from %sstream_events where retry_count = 0" % S))
    assert set(stored.values()) == {1}
    assert load.told <= set(stored)
    assert len(stored) <= load.sent
    assert load.lost["append"] and load.lost["receive"], load.lost
    for consumer in "plain", "group":
        taken = {i: n for (c, i), n in load.taken.items() if c == consumer}
        assert taken == dict(stored), consumer
    # ticks are nested; nothing is left over
    assert db.rows(
        "select from (select snapshot s, lag(snapshot) over (order by"
        " tick_id) o from %sstream_ticks) t where pg_snapshot_xmin(s) <"
        " pg_snapshot_xmin(o) or pg_snapshot_xmax(s) < pg_snapshot_xmax(o)"
        % S) == []
    for table in "batch_events", "nacks", "retry_events", "batches":
        assert db.value("select count(*) from %sstream_%s" % (S, table)) == 0
