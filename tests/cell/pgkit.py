# SPDX-License-Identifier: Apache-2.0
"""
The databases connectors read and write: servers beside the cell's, one per
version for the whole run, ready for logical replication.

far        a fresh database there (FarDb); marker farpg = once on each of the
           distribution's PostgreSQL, 17 and 18
far_too    a second one on the same server, e.g. a sink's target
far_server the server itself (FarServer)

A test that stops or crashes the server disturbs nobody: tests of one worker
run one after another, and the next finds it started again.
"""
import contextlib
import os

import pytest

import queenlib
from queenlib import wait_until

FAR = {}
PASSWORD = "s3cret-far"


class FarServer(queenlib.Server):
    def __init__(self, version, **settings):
        super().__init__(version, max_replication_slots=30,
                         max_wal_senders=30, **settings)

    def prepare(self):
        # members of `guarded` prove who they are, all others are trusted
        self.admin("create role guarded nologin")
        path = os.path.join(self.data, "pg_hba.conf")
        with open(path) as f:
            rest = f.read()
        with open(path, "w") as f:
            f.write("host all +guarded 127.0.0.1/32 scram-sha-256\n" + rest)

    def new_far(self):
        self.serial += 1
        name = "far%d" % self.serial
        self.admin("create database %s template template0 strategy file_copy"
                   % name)
        return FarDb(self, name)

    def show(self, name):
        conn = self.connect()
        try:
            return queenlib.rows(
                conn, "select setting from pg_settings where name = %s",
                (name,))[0][0]
        finally:
            conn.close()

    @contextlib.contextmanager
    def setting(self, **values):
        """Settings that a reload can change, for the length of a block."""
        for name, value in values.items():
            self.admin("alter system set %s = '%s'" % (name, value))
        self._reload(values)
        try:
            yield self
        finally:
            if not self.running:
                self.start()
            for name in values:
                self.admin("alter system reset %s" % name)
            self._reload(values)

    def _reload(self, values):
        before = self._loaded()
        self.admin("select pg_reload_conf()")
        wait_until(lambda: self._loaded() != before,
                   what="reload of %s" % ", ".join(values))

    def _loaded(self):
        conn = self.connect()
        try:
            return queenlib.rows(conn, "select pg_conf_load_time()")
        finally:
            conn.close()


class FarDb(queenlib.Db):
    """A database of a user's."""

    def connection(self, user="queen", **more):
        """The `connection` of a connector's document."""
        return {"host": "127.0.0.1", "port": self.server.port.number,
                "database": self.name, "user": user, **more}

    def run(self, *statements):
        for statement in statements:
            self.rows(statement)

    def guarded_role(self, suffix, options=""):
        """A login role of this test alone that has PASSWORD."""
        name = self.role(suffix)
        self.server.admin("alter role %s password '%s' %s"
                          % (name, PASSWORD, options))
        self.server.admin("grant guarded to %s" % name)
        return name

    def slots(self):
        """{name: confirmed_flush_lsn as text} of this database."""
        return dict(self.rows(
            "select slot_name, confirmed_flush_lsn::text from"
            " pg_replication_slots where database = current_database()"))

    def walsenders(self):
        """Pids of the sessions that hold a slot of this database."""
        return [r[0] for r in self.rows(
            "select active_pid from pg_replication_slots where database ="
            " current_database() and active_pid is not null")]

    def lsn(self):
        """The current position of the WAL, a number."""
        return self.value("select (pg_current_wal_lsn() - '0/0')::bigint")

    def drop_slots(self):
        def gone():
            self.rows("select pg_terminate_backend(active_pid) from"
                      " pg_replication_slots where database ="
                      " current_database() and active_pid is not null")
            self.rows("select pg_drop_replication_slot(slot_name) from"
                      " pg_replication_slots where database ="
                      " current_database() and active_pid is null")
            return not self.slots()
        wait_until(gone, what="the end of the slots of " + self.name)

    def drop(self):
        if not self.server.running:
            self.server.start()
        self.drop_slots()
        super().drop()


@pytest.fixture
def far_version(request):
    return getattr(request, "param", "dist")


@pytest.fixture(scope="session")
def far_servers():
    yield FAR
    for server in FAR.values():
        server.close()
    FAR.clear()


@pytest.fixture
def far_server(far_servers, far_version, keep_log):
    if far_version not in far_servers:
        far_servers[far_version] = FarServer(far_version)
    server = far_servers[far_version]
    if not server.running:
        server.start()
    keep_log("far PostgreSQL " + far_version, server.log)
    yield server
    if not server.running:
        server.start()


@pytest.fixture
def far(far_server):
    made = far_server.new_far()
    yield made
    made.drop()


@pytest.fixture
def far_too(far_server):
    made = far_server.new_far()
    yield made
    made.drop()
