# SPDX-License-Identifier: Apache-2.0
"""A source whose server dies and whose standby is promoted, on the first
version that takes slots along."""
import contextlib
import os
import shutil
import signal

import pytest

import queenlib
from pgkit import FarDb, FarServer
from proxykit import Proxy
from queenlib import Port, wait_until
from srckit import number_of

VERSION = "17"


class Standby(FarServer):
    """A server from a cold copy of another's data."""

    def __init__(self, of, name):
        self.__dict__.update(of.__dict__)
        self.port, self.running, self.starts = Port(), False, 0
        self.spare = []
        self.dir = os.path.join(of.dir, name)
        self.data = os.path.join(self.dir, "data")
        self.log = os.path.join(self.dir, "server.log")
        os.mkdir(self.dir)
        shutil.copytree(of.data, self.data)
        for path, dirs, files in os.walk(self.dir):
            for one in [path] + [os.path.join(path, f) for f in files]:
                if self.user:
                    os.chown(one, self.user.pw_uid, self.user.pw_gid)
        self.set("listen_addresses = '127.0.0.1'", "port = %d"
                 % self.port.number, "unix_socket_directories = '%s'"
                 % self.dir)

    def set(self, *lines):
        with open(os.path.join(self.data, "postgresql.conf"), "a") as f:
            f.write("\n".join(lines) + "\n")

    def follow(self, primary):
        self.set("primary_conninfo = 'host=127.0.0.1 port=%d user=queen"
                 " dbname=postgres'" % primary.port.number,
                 "primary_slot_name = 'standby'", "hot_standby_feedback = on",
                 "sync_replication_slots = on")
        self.follows()
        self.start()

    def follows(self):
        path = os.path.join(self.data, "standby.signal")
        open(path, "w").close()

    def promote(self):
        self._run("pg_ctl", "-w", "-t", "60", "-s", "-D", self.data,
                  "promote")

    def synced(self):
        conn = self.connect()
        with contextlib.closing(conn):
            return [r[0] for r in queenlib.rows(
                conn, "select slot_name from pg_replication_slots where synced"
                " and not temporary and invalidation_reason is null")]


@pytest.fixture
def cluster():
    """(primary, its standby, a stand-in for one that was cut off), and what
    leads to one or the other."""
    with contextlib.ExitStack() as stack:
        primary = FarServer(VERSION)
        stack.callback(primary.close)
        far = primary.new_far()
        primary.stop()
        standby = Standby(primary, "standby")
        stack.callback(standby.close)
        primary.start()
        primary.admin("select pg_create_physical_replication_slot('standby',"
                      " true)")
        standby.follow(primary)
        primary.admin("alter system set synchronized_standby_slots ="
                      " 'standby'")
        primary.admin("select pg_reload_conf()")
        yield primary, standby, far, stack


def await_slots(standby, far, *names):
    """Slots are taken along once their owners have read what the standby
    began with.  Gives how many rows were made for that."""
    made = []

    def there():
        made.append(-len(made) - 1)
        far.run("insert into t values (%d)" % made[-1],
                "insert into u values (%d)" % made[-1],
                "select pg_log_standby_snapshot()")
        # who would look again in half a minute is woken
        standby.admin("select pg_reload_conf()")
        return sorted(standby.synced()) == sorted(names)
    wait_until(there, what="slots of the standby", every_s=0.2)
    return len(made)


def through(proxy, far):
    return {**far.connection(), "port": proxy.port.number}


def test_a_source_follows_its_server(src, cluster):
    primary, standby, far, stack = cluster
    far.run("create table t (id int primary key)",
            "create table u (id int primary key)")
    links = []
    for _ in range(2):
        links.append(Proxy(primary.port.number))
        stack.callback(links[-1].close)
    goes_on, left = (
        src(name, [(table, name)], _far=far, connection=through(link, far))
        for name, table, link in zip(("goes-on", "left"), "tu", links))
    for one in goes_on, left:
        one.await_phase("streaming", failover=True)
    n = await_slots(standby, far, "queen_goes_on", "queen_left")

    # a second standby stays behind here
    standby.stop()
    behind = Standby(standby, "behind")
    stack.callback(behind.close)
    standby.start()
    for table in "tu":
        far.run("insert into %s select generate_series(1, 100)" % table)
    for one in goes_on, left:
        wait_until(lambda: len(one.events()) == n + 100)
        # a walsender that waits for the standby is slow, and no more
        assert one.status()["restarts"] == 0
    pointer = left.pointer()

    src.watch.sources.clear()
    os.kill(primary.pid(), signal.SIGKILL)
    primary.running = False
    behind.start()
    for server, link in (standby, links[0]), (behind, links[1]):
        server.promote()
        link.target = server.port.number
    now = FarDb(standby, far.name)
    stack.callback(lambda: [c.close() for c in now.conns])
    now.run("insert into t values (101)")
    found = goes_on.until(lambda found: len(found) == n + 101)
    assert len({e.id for e in found}) == n + 101
    goes_on.await_phase("streaming", error=None)
    now.run("delete from t where id = 1")
    goes_on.far = now
    found = goes_on.check("t")
    assert len(found) == n + 102
    assert len({e.id[3:11] for e in found}) == 1
    assert goes_on.pointer()["timeline"] == 2
    assert goes_on.confirmed() <= number_of(goes_on.pointer()["lsn"])

    # what the pointer has seen this one never had
    block = left.await_phase("error", error="timeline_diverged")
    assert "queenctl connector resync left" in block["error"]["message"]
    assert left.pointer() == pointer and len(left.events()) == n + 100
