# SPDX-License-Identifier: Apache-2.0
"""
A table copied from end to end, and who looks whether it is exact: a cell, a
database with a table under writes, one with two sinks of its queue, all on
servers with fsync, each part of which can be killed.

World   the parts; kill(victim), progress(), check()
Losing  a proxy that loses the answers to chosen statements
"""
import contextlib
import os
import signal
import threading
import time
from decimal import Decimal

import psycopg2.extras

import pgkit
import queenlib
from proxykit import StepProxy
from queenlib import wait_until
from sealkit import K1
from srckit import Event, Watch, check, events, number_of, parse
from writekit import FIRST_ROWS, LEDGER, PAIRS, SETTLE_S


class Says:
    """What a failure says, looked up when it comes."""

    def __init__(self, text, *parts):
        self.text, self.parts = text, parts

    def __str__(self):
        return self.text % tuple(p() if callable(p) else p
                                 for p in self.parts)


# ---- processes that end ----

def gone(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def children(pid):
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task)) as f:
                found += [int(p) for p in f.read().split()]
    return found


def kill9(*pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: all(map(gone, pids)), what="the end of %s" % (pids,))


def kill_server(server):
    """SIGKILL for the postmaster; its children notice, and it comes back."""
    pid = server.pid()
    os.kill(pid, signal.SIGSTOP)  # so that no child is born meanwhile
    own = children(pid)
    kill9(pid)
    server.running = False
    wait_until(lambda: all(map(gone, own)), what="the end of backends")
    # they name a process that nobody may have reaped yet
    os.unlink(os.path.join(server.data, "postmaster.pid"))
    os.unlink(os.path.join(server.dir, ".s.PGSQL.%d.lock"
                           % server.port.number))
    server.start()


# ---- what loses answers ----

class Losing(StepProxy):
    """
    Of the requests that hold all texts of one of the marks one has no answer
    every now and then, the first is the first: the server has done it when
    the link is cut.  Links live long enough to be dialled again at once.  Such
    requests are held back while `free` is not set.
    """

    def __init__(self, target, every_s, *marks):
        self.marks, self.every_s = marks, every_s
        self.lost, self.held, self.next = [], 0, 0
        self.free = threading.Event()
        self.free.set()
        super().__init__(target)

    def arms(self, batch):
        found = [mark for mark in self.marks if all(
            any(part in m for m in batch) for part in mark)]
        if not found:
            return False
        self.held += not self.free.is_set()
        while not self.free.wait(0.1):
            if self.stop.is_set():
                return False
        if time.monotonic() < self.next:
            return False
        self.next = time.monotonic() + self.every_s
        self.lost += found[:1]
        return True

    def _pass(self, link, to, way, m):
        if not link["armed"] or way == ">":
            to.sendall(m)
            return True
        return m[:1] != b"Z"


# ---- the parts ----

class Connector:
    """What srckit.Watch looks at."""

    def __init__(self, world):
        self.confirmed, self.pointer = world.confirmed, world.pointer
        self.name = "ledger"


class World:
    """Everything that has a part in one copy.  cell: queend; far, far_too:
    the table and its copy; ports: of proxies, where a link has one."""

    SINKS = "copy", "applied"

    def __init__(self, cell, far, far_too, new_tool, src_cell=None,
                 sink_cell=None, target=None):
        self.cell, self.db, self.far, self.too = cell, cell.db, far, far_too
        self.env = {"QUEEN_PG_LEASE_TTL_MS": "3000",
                    "QUEEN_PG_ALLOW_PRIVATE_NETWORKS": "true",
                    "QUEEN_PG_RELOAD_MS": "500", "QUEEN_ENCRYPTION_KEY": K1}
        self.src = new_tool("queen-pgsrc", **self.env, **(
            {"PG_PORT": src_cell} if src_cell else {}))
        self.sink = new_tool("queen-pgsink", **self.env, **(
            {"PG_PORT": sink_cell} if sink_cell else {}))
        self.target = target or far_too.server.port.number
        self.watch = Watch(far)
        self.kills = []
        self.role = far.guarded_role("cdc", "replication")

    # life

    def begin(self, rows, **source):
        """Tables, connectors, and a pointer: what comes now is streamed."""
        for one in self.far, self.too:
            one.run("grant create on database %s to %s" % (one.name,
                                                           self.role),
                    "grant create on schema public to " + self.role)
        self.far.run(LEDGER % ("ledger", "ledger"), PAIRS,
                     "create table done (writer int, txn int, primary key"
                     " (writer, txn))", "create table marks (id int primary"
                     " key)", FIRST_ROWS % rows,
                     "alter table marks owner to " + self.role,
                     "alter table ledger owner to " + self.role,
                     "alter table pairs owner to " + self.role)
        self.too.run(LEDGER % ("ledger", "ledger"),
                     "create table applied (seq bigserial, part text,"
                     " at bigint, txn text)",
                     "alter table ledger owner to " + self.role,
                     "alter table applied owner to " + self.role)
        made = self.cell.post("/api/v1/configure", {"queue": "ledger"})
        assert made.status in (200, 201), made
        self.put("copy", kind="sink", sink={
            "queue": "ledger", "table": "ledger", "mode": "cdc",
            "leaseSeconds": 5, "workers": 2})
        self.put("applied", kind="sink", sink={
            "queue": "ledger", "table": "applied", "mode": "sql",
            "leaseSeconds": 5, "workers": 2, "params": [
                "@partition", "@offset", "@transactionId"],
            "statement": "insert into applied (part, at, txn)"
            " values ($1, $2::bigint, $3)"})
        self.put("ledger", kind="source", source={
            "tables": [{"table": "ledger", "queue": "ledger",
                        "partitionBy": ["grp"]},
                       {"table": "pairs", "queue": "pairs"},
                       {"table": "marks", "queue": "marks"}], **source})
        self.sink.start()
        for name in self.SINKS:
            self.sink.await_status(name, phase="running")
        self.src.start()
        wait_until(self.pointer, every_s=0.002,
                   what=Says("a pointer: %s", self.statuses))
        self.watch.add(Connector(self))
        self.mark = self.progress()

    def put(self, name, **document):
        far = self.far if document["kind"] == "source" else self.too
        connection = far.connection(user=self.role, password=pgkit.PASSWORD)
        if document["kind"] == "sink":
            connection["port"] = self.target
        reply = self.cell.request("PUT", "/api/v1/connectors/" + name, dict(
            document, connection=connection))
        assert reply.status in (200, 201), reply
        assert pgkit.PASSWORD not in str(reply.body)

    def end(self):
        self.watch.end()

    def statuses(self):
        return [tool.status(name) for tool, name in
                [(self.src, "ledger")] + [(self.sink, n) for n in self.SINKS]]

    # how far it is

    def pointer(self):
        found = self.db.rows(
            "select pointer from queen.connector_list_v1(%s, 'ledger')",
            (queenlib.TENANT,))
        return parse(found[0][0]) if found and found[0][0] else None

    def confirmed(self):
        return number_of(self.far.slots()["queen_ledger"])

    def place(self):
        p = self.pointer()
        return [str(p[k]) for k in ("epoch", "lsn", "inTxn", "snapshot")]

    def progress(self):
        """What a commit changes: the pointer's place, and what each of the
        sinks has applied."""
        return [self.place()] + [self.too.value(
            "select coalesce(sum(last_offset + 1), 0)::bigint from"
            " queen.sink_progress where sink like %s", ("%/" + n,))
            for n in self.SINKS]

    def await_commits(self):
        """Until source and sinks have committed since the last kill."""
        wait_until(lambda: all(a != b for a, b in zip(
            self.mark, self.progress())), SETTLE_S,
            what=Says("commits since %s, %s, now %s: %s", self.kills[-1:],
                      self.mark, self.progress, self.statuses))

    def in_large(self, done, lsn):
        """Once the pointer is inside a transaction, beyond done: how far.
        None: it is at lsn, the transaction is over."""
        def inside():
            p = self.pointer()
            at = p["inTxn"]["done"] if p["inTxn"] else 0
            return (at,) if at > done else \
                (None,) if number_of(p["lsn"]) >= lsn else ()
        return wait_until(inside, every_s=0.002, what=Says(
            "a piece beyond %d, now %s: %s", done, self.place,
            self.statuses))[0]

    # kills

    def kill(self, victim):
        """pgsrc and pgsink: with their children, and alone each."""
        tool = self.src if victim.startswith("pgsrc") else self.sink
        self.kills.append((victim, self.pointer()["snapshot"] is not None))
        if victim == "queend":
            self.cell.kill9()
            self.cell.start()
        elif victim == "cell":
            kill_server(self.db.server)
        elif victim == "far":
            kill_server(self.far.server)
        elif victim.endswith(" child"):
            kill9(wait_until(tool.children)[0])
        else:
            own = tool.children()
            tool.kill9()
            if not victim.endswith(" parent"):
                kill9(*own)
            tool.start()
        self.mark = self.progress()

    # what came of it

    def settled(self, deadline_s=SETTLE_S):
        """Until the queue has all of the source, the sinks all of it."""
        end = time.monotonic() + deadline_s
        lsn = self.far.lsn()
        # an idle stream moves its pointer every 10 s, a change at once
        self.far.run("insert into marks values (1)")

        def there():
            p = self.pointer()
            return not p["inTxn"] and not p["snapshot"] \
                and number_of(p["lsn"]) >= lsn
        wait_until(there, deadline_s, what=Says(
            "the stream at %X, now %s: %s", lsn, self.place, self.statuses))
        want = self.db.value(
            "select sum(s.end_offset - s.base_offset + 1)::bigint from"
            " queen.segments s join queen.partitions p on p.id ="
            " s.partition_id join queen.queues q on q.id = p.queue_id"
            " where q.name = 'ledger'")
        wait_until(lambda: self.progress()[1:] == [want, want],
                   end - time.monotonic(), what=Says(
                       "%d applied, now %s: %s", want, self.progress,
                       self.statuses))
        found = differences(self.far, self.too)
        assert not found, found

    def read(self, queue):
        """The events of a queue, as its readers see them."""
        names = [r[0] for r in self.db.rows(
            "select p.name from queen.partitions p join queen.queues q on"
            " q.id = p.queue_id where q.name = %s order by 1", (queue,))]
        # routes refuse to name the partition of an empty text
        return [e for name in names if name
                for e in self.read_partition(queue, name)] + [
            e for e in events(self.db, queue) if not e.partition]

    def read_partition(self, queue, name):
        found, conn = [], self.cell.http()
        with contextlib.closing(conn):
            while True:
                conn.request("POST", "/api/v1/fetch", queenlib.json.dumps({
                    "entries": [{"queue": queue, "partition": name,
                                 "offset": len(found),
                                 "maxBytes": 8388608}]}))
                answer = parse(conn.getresponse().read())
                assert "entries" in answer, (name, answer)
                entry, = answer["entries"]
                assert "error" not in entry, entry
                found += [Event(queue, name, r["offset"], r["transactionId"],
                                r["payload"]) for r in entry["records"]]
                if len(found) == entry["highWatermark"]:
                    return found

    def check(self, writers, large=0):
        """The queue, the copy, and what each sink has done: exact."""
        found = self.read("ledger") + self.read("pairs")
        check(found, {"public.ledger": table_rows(self.far, "ledger",
                                                  ("grp", "id")),
                      "public.pairs": table_rows(self.far, "pairs",
                                                 ("a", "b"))})
        stream = [e for e in found if "xid" in e.payload]
        check_large([e for e in stream if e.partition.startswith("big")],
                    large)
        writers.check([e for e in stream if not e.partition.startswith("big")])
        applied = self.too.rows("select part, at, txn from applied order by"
                                " part collate \"C\", seq")
        wrong = set(applied) ^ set(sorted_places(found))
        assert applied == sorted_places(found), (len(applied), wrong)
        assert [r[0] for r in self.too.rows(
            "select count(*) from queen.sink_progress group by sink")] == [
            len({r[0] for r in applied})] * 2
        return found

    def check_secrets(self):
        for one in [self.cell.get("/api/v1/connectors").body] + [
                part.log_text() for part in (self.cell, self.src, self.sink)]:
            assert pgkit.PASSWORD not in str(one)


def sorted_places(found):
    return sorted((e.partition, e.offset, e.id) for e in found
                  if e.queue == "ledger")


def check_large(found, rows):
    """One transaction, every change of it once and in its order."""
    assert sorted(e.payload["seq"] for e in found) == list(range(rows))
    assert all(e.payload["after"]["n"] == e.payload["seq"] + 1
               for e in found)
    assert len({(e.payload["lsn"], e.payload["xid"]) for e in found}) <= 1
    last = {}
    for e in found:
        assert last.get(e.partition, -1) < e.payload["seq"], e
        last[e.partition] = e.payload["seq"]


def differences(far, too):
    """What is not the same in both tables, row for row."""
    one, two = ({r[:2]: r[2:] for r in db.rows(
        "select grp, id, md5(l::text), left(l::text, 200) from ledger l")}
        for db in (far, too))
    return [(key, one.get(key), two.get(key)) for key in set(one) | set(two)
            if one.get(key) != two.get(key)][:10]


def table_rows(far, table, key):
    """{key: row}, its numbers as exact as the queue's."""
    conn = far.connect()
    with contextlib.closing(conn), conn.cursor() as cur:
        psycopg2.extras.register_default_jsonb(conn, loads=parse)
        cur.execute("select * from " + table)
        names = [c.name for c in cur.description]
        made = [dict(zip(names, r)) for r in cur.fetchall()]
    for row in made:
        if isinstance(row.get("amount"), Decimal):
            text = str(row["amount"])  # what JSON has no number for is text
            row["amount"] = text if text == "NaN" else parse(text)
    return {tuple(r[k] for k in key): r for r in made}
