# SPDX-License-Identifier: Apache-2.0
"""
The SQL functions of queen-ojs's streams by short names, for tests that talk to
the database alone.  Payloads are what a test knows an event by.

log    a Log on `db`, its queue and consumer `c` made
"""
import collections
import json

import psycopg2
import pytest

from queenlib import TENANT
from sqlkit import Kit

OK, NOTHING, NO_QUEUE, NO_CONSUMER, TOO_LARGE, MIXED, NO_BATCH, HOLDER, \
    WAITS, REBASE, NO_MESSAGE, AMBIGUOUS, NO_TICK, NO_DEAD = range(14)
Batch = collections.namedtuple("Batch", "head messages")


class Log(Kit):
    def __init__(self, conn, queue="q", tenant=TENANT):
        super().__init__(conn, tenant)
        self.queue = queue

    def named(self, sql, *args):
        with self.conn.cursor() as cur:
            cur.execute(sql, args)
            row = collections.namedtuple(
                "Row", [c.name for c in cur.description])
            return [row(*r) for r in cur.fetchall()]

    def one(self, sql, *args):
        (row,) = self.named(sql, *args)
        return row

    def call(self, name, *args):
        """A function of this queue that answers one row."""
        return self.one("select * from queen.%s(%s)" % (name, ", ".join(
            ["%s"] * (2 + len(args)))), self.tenant, self.queue, *args)

    @property
    def id(self):
        return self.value("select id from queen.ojs_queues where tenant = %s"
                          " and name = %s and deleted_at is null",
                          self.tenant, self.queue)

    @property
    def schema(self):
        return "queen_ojs_%d" % self.id

    def table(self, sql, *args):
        """Rows of the log's own tables; {} is the schema."""
        return self.rows(sql.replace("{}", self.schema), *args)

    def ensure(self):
        return self.value("select queen.stream_ensure_v1(%s, %s)",
                          self.tenant, self.queue)

    def append(self, *payloads, now=None, ids=None):
        """The seqs."""
        row = self.append_row(*payloads, now=now, ids=ids)
        assert row.verdict == OK, row
        return row.seq

    def append_row(self, *payloads, now=None, ids=None, headers=None):
        n = len(payloads)
        return self.call(
            "stream_append_v1", ids or ["e%s" % p for p in payloads],
            ["t"] * n, [json.dumps(p) for p in payloads],
            headers or [None] * n, now)

    def subscribe(self, consumer="c", start=None, now=None):
        return self.call("stream_subscribe_v1", consumer, start, now)

    def receive(self, consumer="c", member=None, most=100000, most_bytes=None,
                dead_ms=None, now=None):
        head, *rest = self.named(
            "select * from queen.stream_receive_v1(%s, %s, %s, %s, %s, %s,"
            " %s, %s)", self.tenant, self.queue, consumer, member, most,
            most_bytes, dead_ms, now)
        return Batch(head, rest)

    def got(self, consumer="c", member=None, **kw):
        """The payloads of a batch that has to be there, acked."""
        batch = self.receive(consumer, member, **kw)
        if batch.head.verdict == NOTHING:
            return []
        assert batch.head.verdict == OK, batch.head
        assert self.ack(batch, consumer, member).verdict == OK
        return values(batch)

    def ack(self, batch, consumer=None, member=None, now=None):
        return self.call("stream_ack_v1", batch_id(batch), consumer, member,
                         now)

    def nack(self, batch, message=None, seq=None, retry_ms=0, reason=None,
             now=None):
        return self.call("stream_nack_v1", batch_id(batch), message, seq,
                         retry_ms, reason, now)

    def batch(self, batch, payload=False):
        head, *rest = self.named(
            "select * from queen.stream_batch_v1(%s, %s, %s, %s)",
            self.tenant, self.queue, batch_id(batch), payload)
        return Batch(head, rest)

    def info(self):
        text = self.value("select queen.stream_info_v1(%s, %s)", self.tenant,
                          self.queue)
        return text and json.loads(text)["stream"]

    def consumers(self, now=None):
        return {r.name: r for r in self.named(
            "select * from queen.stream_consumers_v1(%s, %s, %s)",
            self.tenant, self.queue, now)}

    def configure(self, max_retries=None, retention_ms=None):
        self.rows("select queen.stream_config_set(%s, %s, %s)", self.id,
                  max_retries, retention_ms)

    def step(self, step, now=None):
        return self.one("select * from queen.stream_step_v1(%s, %s::smallint,"
                        " %s)", self.id, step, now)

    def care(self, now=None):
        """All the work that is due for this log; the steps."""
        done, fence = [], None
        for r in self.named("select * from queen.stream_work_v1('t', 100,"
                            " %s)", now):
            if r.queue_id == self.id:
                fence = r.fence
                while r.step and self.step(r.step, now).more:
                    pass
                done.append(r.step)
        if fence is not None:
            assert self.value("select queen.stream_worked_v1(%s, %s, %s)",
                              self.id, fence, now)
        return done

    def ticks(self):
        return [r[0] for r in self.table(
            "select tick_id from {}.stream_ticks order by 1")]

    def tick(self):
        """A tick whatever is there; its id."""
        return self.value("select queen.stream_tick_v1(%s, false, -1)", self.id)

    def cursor(self, consumer="c"):
        return self.table("select last_tick, next_tick from"
                          " {}.stream_subscriptions where consumer = %s",
                          consumer)[0]

    def dead(self, consumer=None, limit=50, offset=0, after=None):
        return self.named("select * from queen.stream_dead_v1(%s, %s, %s, %s,"
                          " %s, %s)", self.tenant, self.queue, consumer, limit,
                          offset, after)

    def drop(self):
        """As the queue's own function does."""
        with self.conn.cursor() as cur:
            cur.execute("begin")
            cur.execute("select queen.stream_drop(%s)", (self.id,))
            cur.execute("update queen.ojs_queues set deleted_at = now()"
                        " where id = %s", (self.id,))
            cur.execute("commit")

    def beside(self, db, **kw):
        """The same queue on a connection of its own."""
        return Log(db.connect(**kw), self.queue, self.tenant)


def batch_id(batch):
    return batch.head.batch_id if isinstance(batch, Batch) else batch


def values(batch):
    return [json.loads(m.payload) for m in batch.messages]


def logged(db, queue="q"):
    made = Log(db.connect(), queue)
    made.ensure()
    assert made.subscribe().verdict == OK
    return made


@pytest.fixture
def log(db):
    return logged(db)


def refused(sqlstate, call):
    """What a call must fail with; its connection is usable after it."""
    with pytest.raises(psycopg2.Error) as e:
        call()
    assert e.value.pgcode == sqlstate
