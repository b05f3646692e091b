# SPDX-License-Identifier: Apache-2.0
"""
Sinks end to end: a cell with queend, processes of queen-pgsink, a database
they write to.

sinks  sinks(name, mode, **sink members) -> a Sink, put and running on one
       Tool; more Tools: sinks.tool(**env)

The queue is named as the sink, the table too; progress() is what the target
says of it.
"""
import contextlib

import psycopg2
import pytest

import queenlib
from queenlib import TENANT, wait_until

TABLE = "create table public.%s (id int primary key, n int)"


class Sink:
    """One connector: its document, its queue, its table."""

    def __init__(self, cell, tool, far, name, mode, tenant=TENANT,
                 connection=None, table_name=None, _put=None, **sink):
        self.cell, self.tool, self.far = cell, tool, far
        self.name, self.tenant = name, tenant
        self.queue = sink.pop("queue", name)
        self.document = {
            "kind": "sink", "enabled": True,
            "connection": far.connection(**(connection or {})),
            "sink": {"queue": self.queue, "table": table_name or name.replace("-", "_"),
                     "mode": mode, **sink}}
        if _put:
            made = _put.request("PUT", "/api/v1/connectors/" + name,
                                self.document)
            assert made.status == 200, made
        else:
            self.put()

    def put(self):
        self.tool.put(self.name, self.document, tenant=self.tenant)

    def change(self, **sink):
        self.document["sink"].update(sink)
        self.put()

    def enable(self, on):
        self.document["enabled"] = on
        self.put()
        self.await_status(phase="running" if on else "disabled")

    def status(self, tool=None):
        return (tool or self.tool).status(self.name, self.tenant)

    def await_status(self, tool=None, deadline_s=None, **want):
        return (tool or self.tool).await_status(
            self.name, self.tenant, deadline_s, **want)

    def await_error(self, code, *words):
        """The status once it says so, in a sentence with these words."""
        def said():
            block = self.status()
            error = block.get("error") or {}
            return block if block.get("phase") == "error" \
                and error.get("code") == code \
                and all(w in error["message"] for w in words) else None
        try:
            return wait_until(said)
        except AssertionError:
            raise AssertionError("not %s of %s: %s" % (
                (code, *words), self.name, self.status())) from None

    def push(self, payloads, partition="Default", **kw):
        return self.cell.push(self.queue, payloads, partition, **kw)

    def rows(self, columns="*", order="1"):
        return self.far.rows("select %s from %s order by %s" % (
            columns, self.document["sink"]["table"], order))

    def await_rows(self, want, columns="*", order="1", deadline_s=None):
        def equal():
            return self.rows(columns, order) == want
        try:
            wait_until(equal, deadline_s or queenlib.DEADLINE_S)
        except AssertionError:
            raise AssertionError("%s\nnot %s\n%s\n%s" % (
                self.rows(columns, order), want, self.status(),
                queenlib.tail(self.tool.log, 2000))) from None

    def progress(self, columns="partition, last_offset"):
        return self.far.rows(
            "select %s from queen.sink_progress where sink = %%s"
            " order by partition, partition_id" % columns,
            ("%s/%s" % (self.tenant, self.name),))

    def await_progress(self, want):
        try:
            wait_until(lambda: self.progress() == want)
        except psycopg2.Error as e:
            raise AssertionError("%s: %s" % (e, self.status())) from None
        except AssertionError:
            raise AssertionError("%s, not %s: %s" % (
                self.progress(), want, self.status())) from None

    def lag(self):
        """Messages the group (of all) has not been acknowledged for; -1 before
        it is there."""
        return self.tool.db.value(
            "select coalesce(sum(coalesce((select s.end_offset from"
            " queen.segments s where s.partition_id = p.id order by"
            " s.base_offset desc limit 1), -1) - coalesce(c.committed, -1)),"
            " -1)::bigint from queen.queues q join queen.partitions p on"
            " p.queue_id = q.id join queen.groups g on g.queue_id = q.id and"
            " g.name = %s and g.deleted_at is null left join queen.consumers c"
            " on c.group_id = g.id and c.partition_id = p.id"
            " where q.tenant = %s and q.name = %s and q.deleted_at is null",
            (self.document["sink"].get("consumerGroup", "pg-" + self.name),
             self.tenant, self.queue))

    def drained(self, deadline_s=None):
        wait_until(lambda: self.lag() == 0, deadline_s or queenlib.DEADLINE_S,
                   what="lag 0 of %s, not %d: %s" % (
                       self.name, self.lag(), self.status()))

    def dead(self):
        """[(partition, offset, text)] of what was filed."""
        return self.tool.db.rows(
            "select p.name, d.message_offset, d.error from queen.dead_letters d"
            " join queen.queues q on q.id = d.queue_id join queen.partitions p"
            " on p.id = d.partition_id where q.tenant = %s and q.name = %s"
            " order by 1, 2", (self.tenant, self.queue))

    def sessions(self, who="%"):
        """Pids of the sessions with the target: a worker's number or %."""
        return [r[0] for r in self.far.rows(
            "select pid from pg_stat_activity where datname ="
            " current_database() and application_name like %s",
            ("queen-pg/%%sink:%s:%s" % (self.name, who),))]


class Sinks:
    def __init__(self, cell, far, new_tool):
        self.cell, self.far, self.new_tool = cell, far, new_tool
        self.tools = []

    def tool(self, **env):
        one = self.new_tool("queen-pgsink", **{
            "QUEEN_PG_RELOAD_MS": "500", **env}).start()
        self.tools.append(one)
        return one

    def __call__(self, name, mode, table=TABLE, _tool=None, _far=None,
                 _options=None, **sink):
        """table: its DDL with %s for the name, None: there is one; _options:
        of the queue, which is made; _put: the queend that puts the document
        (a password needs one)."""
        tool = _tool or (self.tools or [self.tool()])[0]
        far = _far or self.far
        if table:
            far.run(table.replace("%s", name.replace("-", "_")))
        made = self.cell.post("/api/v1/configure", {
            "queue": name, "options": _options or {}},
            headers={"X-Queen-Tenant": sink.get("tenant", TENANT)})
        assert made.status in (200, 201), made
        return Sink(self.cell, tool, far, name, mode, **sink)


@pytest.fixture
def sinks(cell, far, new_tool):
    return Sinks(cell, far, new_tool)


# ---- a cell that goes back in time ----

@contextlib.contextmanager
def nobody_in(db):
    """No session but the caller's to be: connections are refused."""
    server = db.server
    server.admin("alter database %s allow_connections false" % db.name)
    db.own = None

    def gone():
        server.admin("select pg_terminate_backend(pid) from pg_stat_activity"
                     " where datname = '%s'" % db.name)
        conn = server.connect()
        with contextlib.closing(conn):
            return queenlib.rows(conn, "select count(*) from pg_stat_activity"
                                 " where datname = %s", (db.name,)) == [(0,)]
    wait_until(gone, what="the end of all sessions of " + db.name)
    try:
        yield server
    finally:
        server.admin("alter database %s allow_connections true" % db.name)


def keep(db):
    """What the database is now, for go_back."""
    name = db.name + "_kept"
    with nobody_in(db) as server:
        server.admin("create database %s template %s strategy file_copy"
                     % (name, db.name))


def go_back(db):
    """The database is again what keep saw, as far as anybody can tell."""
    with nobody_in(db) as server:
        server.admin("drop database %s" % db.name)
        server.admin("alter database %s_kept rename to %s"
                     % (db.name, db.name))


