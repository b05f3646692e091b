# SPDX-License-Identifier: Apache-2.0
"""The fire: whole or absent whatever is killed, held up by nobody, on time."""
import contextlib
import select
import signal
import struct
import threading

import pytest

from proxykit import Proxy
from queenlib import metric, wait_until
from test_timer import drain, fill, log_ids, op, pending, send, statuses

SWITCHES = "/api/v1/system/kv-timers"
LOCK = 4711


def fired(cell, result="fired"):
    return metric(cell, 'queen_timers_fired_total{result="%s"}' % result)


def quiet(db):
    """No backend of the cell does anything any more."""
    wait_until(lambda: db.value(
        "select count(*) from pg_stat_activity where datname ="
        " current_database() and pid <> pg_backend_pid()"
        " and state <> 'idle'") == 0, what="backends to end")


def due(round_no, n=7):
    """n timers for three queues and five partitions, due at once."""
    return [op("r%d-%d" % (round_no, i), -1, "q%d" % (i % 3),
               partition="p%d" % (i % 5)) for i in range(n)]


def whole(db, before, n=7):
    """All fired or none; how many are still pending."""
    quiet(db)
    found = log_ids(db) - before, pending(db)
    assert found in ((0, n), (n, 0)), found
    return found[1]


def each_once(cell, want):
    got = []
    for queue in ("q0", "q1", "q2"):
        while True:
            m = cell.pop(queue, batch=1000, partitions=10, autoAck=True)
            if not m:
                break
            got += [x["transactionId"] for x in m]
    assert sorted(got) == sorted(want)


# Killed between any two messages of the protocol

class Cut(Proxy):
    """
    Passes on whole messages; kills instead of passing on the k-th of a fire,
    counted from its Bind (side "front") or from the first answer to that (side
    "back"); a Parse comes once per connection only and does nothing yet.
    """

    def __init__(self, target):
        self.side = self.at = self.kill = None
        self.seen = {"front": [], "back": []}
        self.over = threading.Event()
        super().__init__(target)

    def arm(self, side, at, kill):
        self.seen = {"front": [], "back": []}
        self.over.clear()
        self.side, self.at, self.kill = side, at, kill

    def _message(self, state, side, kind, data):
        """False: this one is not passed on."""
        if self.kill and side == "front" and kind == ord("B") \
                and b"timer_fire\0" in data:
            state["fire"] = True
        if not state["fire"] or not self.kill or kind == ord("1"):
            return True
        self.seen[side].append(chr(kind))
        if (side, len(self.seen[side])) == (self.side, self.at):
            kill, self.kill = self.kill, None
            kill()
            self.over.set()
            return False
        if side == "back" and kind == ord("Z"):
            self.kill, state["fire"] = None, False
            self.over.set()
        return True

    def _pipe(self, one, two):
        state = {"fire": False, "started": False}
        rest = {one: b"", two: b""}
        try:
            while not self.stop.is_set():
                for s in select.select([one, two], [], [], 0.1)[0]:
                    data = s.recv(1 << 20)
                    if not data:
                        return
                    rest[s] += data
                    if not self._pass(state, s, one, two, rest):
                        return
        except OSError:
            pass
        finally:
            one.close()
            two.close()

    def _pass(self, state, s, one, two, rest):
        to = two if s is one else one
        while True:
            data = rest[s]
            # the first message of a client has no letter
            head = 1 if s is two or state["started"] else 0
            if len(data) < head + 4:
                return True
            n = head + struct.unpack_from("!I", data, head)[0]
            if len(data) < n:
                return True
            if head and not self._message(
                    state, "front" if s is one else "back", data[0],
                    data[:n]):
                return False
            if s is one:
                state["started"] = True
            to.sendall(data[:n])
            rest[s] = data[n:]


@pytest.fixture
def cut(pg):
    made = Cut(pg.port.number)
    yield made
    made.close()


def test_killed_at_every_message_of_a_fire(new_cell, db, cut):
    """All or nothing each time, and after a restart each timer once."""
    cell = new_cell(PG_PORT=cut.port.number).start()
    total, want, outcomes = 0, [], []

    def one_round(no, side, at):
        nonlocal total
        cut.arm(side, at, cell.proc.kill)
        ops = due(no)
        want.extend(o["txn"] for o in ops)
        with contextlib.suppress(OSError):
            cell.post("/api/v1/timers", ops)
        assert cut.over.wait(30)
        if side is None:
            return
        cell.wait_exit()
        outcomes.append((side, at, whole(db, total)))
        cell.start()

    # how many there are, when nothing is killed
    one_round(0, None, None)
    steps = {k: len(v) for k, v in cut.seen.items()}
    assert cut.seen["front"][0] == "B" and cut.seen["front"][-1] == "S"
    assert cut.seen["back"][0] == "2" and cut.seen["back"][-1] == "Z"
    assert steps["front"] >= 3 and steps["back"] >= 4
    no = 0
    for side in ("front", "back"):
        for at in range(1, steps[side] + 1):
            no += 1
            wait_until(lambda: pending(db) == 0)
            total = 7 * no
            assert log_ids(db) == total
            one_round(no, side, at)
    wait_until(lambda: pending(db) == 0)
    # before the end of the call was sent nothing is stored; once the answer
    # began to come all is
    assert all(left == 7 for side, _, left in outcomes if side == "front")
    assert outcomes[-1] == ("back", steps["back"], 0)
    each_once(cell, want)


@pytest.mark.parametrize("how", ["goes on", "is ended"])
@pytest.mark.parametrize("table,event", [
    ("queues", "insert"), ("partitions", "insert"), ("segments", "insert"),
    ("segment_ids", "insert"), ("partition_heads", "update"),
    ("timers", "delete")])
def test_killed_inside_the_fire(cell, db, table, event, how):
    """queend dies at one of its writes; its backend goes on or is ended."""
    db.psql("-c", """
        create function hold() returns trigger language plpgsql as $$
        begin
            perform pg_advisory_xact_lock_shared(%d);
            return coalesce(new, old);
        end $$;
        create trigger hold before %s on queen.%s
        for each row execute function hold()""" % (LOCK, event, table))
    held = db.connect()
    with held.cursor() as cur:
        cur.execute("select pg_advisory_lock(%s)", (LOCK,))
        ops = due(0)
        send(cell, *ops)
        pid = wait_until(lambda: db.rows(
            "select pid from pg_locks where locktype = 'advisory'"
            " and not granted"))[0][0]
        cell.kill9()
        if how == "is ended":
            cur.execute("select pg_terminate_backend(%s)", (pid,))
            wait_until(lambda: not db.rows(
                "select 1 from pg_stat_activity where pid = %s", (pid,)))
        cur.execute("select pg_advisory_unlock(%s)", (LOCK,))
    left = whole(db, 0)
    assert left == 7 or how == "goes on"
    cell.start()
    wait_until(lambda: pending(db) == 0)
    each_once(cell, [o["txn"] for o in ops])


@pytest.mark.durable
@pytest.mark.amount
def test_a_killed_database_fires_each_once(cells, db, pg):
    a, b = cells(2)
    fill(a, 2000, -1)
    pg.restart("immediate")
    assert log_ids(db) + pending(db) == 2000
    wait_until(lambda: pending(db) == 0)
    wait_until(lambda: b.get("/health").status == 200)
    got = drain(b, "q", 2000)
    assert sorted(m["transactionId"] for m in got) \
        == ["t-k%05d" % i for i in range(2000)]


# the second schedule must not wait for the link that the fire is held on
@pytest.mark.cellenv(DB_POOL_SIZE=16)
def test_a_stop_while_firing_is_whole(cell, db):
    """What is in hand commits, nothing more is begun, the end is 0."""
    db.psql("-c", """
        create function hold() returns trigger language plpgsql as $$
        begin
            perform pg_advisory_xact_lock_shared(%d);
            return new;
        end $$;
        create trigger hold before insert on queen.segments
        for each row execute function hold()""" % LOCK)
    held = db.connect()
    with held.cursor() as cur:
        cur.execute("select pg_advisory_lock(%s)", (LOCK,))
        send(cell, op("a", -1))
        wait_until(lambda: db.rows("select 1 from pg_locks where locktype ="
                                   " 'advisory' and not granted"))
        # one more is due meanwhile: it is left to the next process
        send(cell, op("b", -1))
        cell.signal(signal.SIGTERM)
        wait_until(lambda: "draining" in cell.log_text())
        cur.execute("select pg_advisory_unlock(%s)", (LOCK,))
    assert cell.wait_exit() == 0
    assert (log_ids(db), pending(db)) == (1, 1)
    cell.start()
    assert [m["transactionId"] for m in drain(cell, "q", 2)] == ["t-a", "t-b"]


def test_a_stop_among_thousands_is_whole(new_cell, db):
    cell = new_cell(QUEEN_SWEEPER_MAX_FIRE_BYTES=4000).start()
    fill(cell, 2000, -1)
    assert cell.term() == 0
    assert log_ids(db) + pending(db) == 2000
    cell.start()
    got = drain(cell, "q", 2000)
    assert len({m["transactionId"] for m in got}) == len(got) == 2000


# Held up by nobody

def test_a_locked_destination_holds_up_no_other(cell, db):
    cell.push("q", [0], partition="held")
    conn = db.connect(autocommit=False)
    with conn.cursor() as cur:
        cur.execute("select 1 from queen.partition_heads for update")
    send(cell, op("held", -1, partition="held"),
         *[op("k%d" % i, -1, partition="p%d" % i) for i in range(20)])
    wait_until(lambda: pending(db) == 1, what="the others")
    assert db.rows("select timer_key, attempts, last_error from queen.timers"
                   ) == [("held", 0, None)]
    assert fired(cell) == 20 and fired(cell, "failed") == 0
    conn.rollback()
    wait_until(lambda: pending(db) == 0)
    assert len(drain(cell, "q", 22)) == 22


def test_a_locked_destination_is_waited_for_once(cell, db):
    """Not once for each of its timers, all of them due before the others."""
    cell.push("q", [0], partition="held")
    conn = db.connect(autocommit=False)
    with conn.cursor() as cur:
        cur.execute("select 1 from queen.partition_heads for update")
    send(cell, *[op("k%d" % i, -1, partition="held") for i in range(60)])
    send(cell, op("free", -1))
    wait_until(lambda: fired(cell) == 1, deadline_s=4)
    assert pending(db) == 60
    conn.rollback()
    wait_until(lambda: pending(db) == 0)
    assert len(drain(cell, "q", 62)) == 62


def test_one_that_cannot_be_put_back_holds_up_no_other(cell, db):
    db.psql("-c", "create function public.stay() returns trigger language"
            " plpgsql as $$ begin raise exception '%', repeat('é', 200)"
            " using errcode = '23514'; end $$;"
            " create trigger stay before update or delete on queen.timers"
            " for each row when (old.timer_key = 'bad')"
            " execute function public.stay()")
    send(cell, op("bad", -1000), *[op("k%d" % i, -1) for i in range(5)])
    wait_until(lambda: pending(db) == 1, what="the others")
    assert fired(cell) == 5
    db.psql("-c", "drop trigger stay on queen.timers")
    wait_until(lambda: pending(db) == 0)
    assert len(drain(cell, "q", 6)) == 6


@pytest.mark.cellenv(QUEEN_SWEEPER_MAX_ATTEMPTS=1)
def test_an_error_of_any_length_is_filed(cell, db):
    db.psql("-c", "create function public.no() returns trigger language"
            " plpgsql as $$ begin raise exception '%', repeat('é', 200)"
            " using errcode = '23514'; end $$;"
            " create trigger no before insert on queen.segments"
            " for each row execute function public.no()")
    send(cell, op("k", -1))
    wait_until(lambda: pending(db) == 0)
    assert set(db.value("select error from queen.dead_letters")) == {"é"}


@pytest.mark.cellenv(QUEEN_SWEEPER_ISOLATE_ON_PERMANENT="false",
                     QUEEN_SWEEPER_TRANSIENT_BACKOFF_MS=50)
def test_a_locked_destination_is_no_failed_attempt(cell, db):
    cell.push("q", [0], partition="held")
    conn = db.connect(autocommit=False)
    with conn.cursor() as cur:
        cur.execute("select 1 from queen.partition_heads for update")
    send(cell, op("held", -1, partition="held"), op("free", -1))
    wait_until(lambda: "repeated" in cell.log_text())
    assert db.rows("select attempts from queen.timers") == [(0,), (0,)]
    conn.rollback()
    wait_until(lambda: pending(db) == 0)
    assert fired(cell) == 2 and fired(cell, "failed") == 0


@pytest.mark.parametrize("isolate", ["true", "false"])
def test_all_fail_together_or_one_by_one(new_cell, db, isolate):
    """Without isolation every timer of a failed fire has an attempt more."""
    cell = new_cell(QUEEN_SWEEPER_ISOLATE_ON_PERMANENT=isolate,
                    QUEEN_SWEEPER_BACKOFF_MIN_MS=3600000,
                    QUEEN_SWEEPER_BACKOFF_MAX_MS=3600000).start()
    db.psql("-c", "alter table queen.segments add constraint no_poison"
            " check (position('poison'::bytea in blob) = 0)")
    send(cell, op("poison", -1), op("good", -1))
    if isolate == "true":
        assert [m["transactionId"] for m in drain(cell, "q", 1)] == ["t-good"]
        wait_until(lambda: fired(cell, "failed") == 1)
    else:
        wait_until(lambda: fired(cell, "failed") == 2)
    found = db.rows("select timer_key, attempts, last_error from queen.timers"
                    " order by 1")
    assert [r[:2] for r in found] == ([("poison", 1)] if isolate == "true"
                                      else [("good", 1), ("poison", 1)])
    assert ("no_poison" in found[-1][2]) == (isolate == "true")
    seen = cell.get("/api/v1/timers/q/poison").body
    assert (seen["attempts"], seen["lastError"], seen["claimed"]) == (
        1, found[-1][2], False)
    # in backoff: it can be cancelled
    assert cell.delete("/api/v1/timers/q/poison").body["status"] == "cancelled"


# On time

@pytest.mark.cellenv(QUEEN_SWEEPER_MAX_SLEEP_MS=200)
def test_an_idle_process_finds_what_another_promised(cell, new_cell, db):
    """Also when no hint reaches it and who promised is gone."""
    other = new_cell(QUEEN_SWEEPER="false").start()
    wait_until(lambda: metric(cell, "queen_timers_due") == 0)
    send(other, op("k", -1))
    other.kill9()
    wait_until(lambda: pending(db) == 0, deadline_s=5)
    assert fired(cell) == 1


@pytest.mark.cellenv(QUEEN_SWEEPER="false")
def test_without_a_sweeper_nothing_fires_here(cell, new_cell, db):
    assert statuses(send(cell, op("k", -1), op("j", -1))) == ["scheduled"] * 2
    assert cell.delete("/api/v1/timers/q/j").body["status"] == "cancelled"
    # long enough for one that fires to have done it
    other = new_cell(QUEEN_SWEEPER="false").start()
    assert cell.pop("q", wait=True, wait_ms=1500) == []
    assert pending(db) == 1 and fired(cell) == fired(other) == 0
    third = new_cell().start()
    assert [m["transactionId"] for m in drain(cell, "q", 1)] == ["t-k"]
    assert fired(third) == 1


def test_stopped_fires_wait_and_are_measured(cells):
    a, b = cells(2)
    assert a.post(SWITCHES, {"timersFire": False}).body["mirrored"] is True
    wait_until(lambda: not b.get(SWITCHES).body["timersFireEnabled"])
    send(a, *[op("k%d" % i, -1) for i in range(3)])
    for cell in (a, b):
        wait_until(lambda: metric(cell, "queen_timers_due") == 3)
        wait_until(lambda: metric(
            cell, "queen_timers_oldest_late_seconds") > 1)
    assert pending(a.db) == 3 and log_ids(a.db) == 0
    assert a.delete("/api/v1/timers/q/k0").body["status"] == "cancelled"
    assert b.post(SWITCHES, {"timersFire": True}).body["mirrored"] is True
    assert sorted(m["transactionId"] for m in drain(a, "q", 2)) \
        == ["t-k1", "t-k2"]
    assert fired(a) + fired(b) == 2
    assert max(metric(c, "queen_timers_fire_lag_seconds")
               for c in (a, b)) > 1
    for cell in (a, b):
        wait_until(lambda: metric(cell, "queen_timers_due") == 0)
        assert metric(cell, "queen_timers_oldest_late_seconds") == 0
