# SPDX-License-Identifier: Apache-2.0
"""
What the cell tests stand on: real PostgreSQL servers, databases cloned from a
template that holds the schema, queend processes and a small HTTP client.

Everything started here is ended by its pid.  Ports are held by a lock file
each, so parallel runs on one machine do not take each other's.
"""
import collections
import contextlib
import fcntl
import glob
import hashlib
import http.client
import json
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse

import psycopg2

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
SAN = os.environ.get("QUEEN_SAN", "") not in ("", "0")
BIN = os.environ.get("QUEEN_BIN_DIR") or os.path.join(
    ROOT, "build", *(["san"] if SAN else []), "bin")
BUILD = os.path.dirname(BIN)
TENANT = "00000000-0000-0000-0000-000000000001"
NIL_TENANT = "00000000-0000-0000-0000-000000000000"
OTHER_TENANT = "00000000-0000-0000-0000-0000000000aa"
# Sanitized binaries on a busy machine take their time; a condition that is
# met returns at once whatever the deadline.
DEADLINE_S = 60 if SAN else 30
FINDING = re.compile(r"ERROR: \w+Sanitizer|runtime error:|"
                     r"SUMMARY: \w+Sanitizer")

Reply = collections.namedtuple("Reply", "status headers body")


def wait_until(fn, deadline_s=DEADLINE_S, what=None, every_s=0.02):
    """The first true value of fn; AssertionError after the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        value = fn()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("not within %s s: %s"
                                 % (deadline_s, what or fn))
        time.sleep(every_s)


def metric(cell, name):
    """The value of one line of /metrics/prometheus."""
    text = cell.get("/metrics/prometheus").body.decode()
    return float(re.search(r"^%s (\S+)$" % re.escape(name), text,
                           re.M).group(1))


def tail(path, n_bytes=6000):
    try:
        with open(path, "rb") as f:
            f.seek(0, os.SEEK_END)
            f.seek(max(0, f.tell() - n_bytes))
            return f.read().decode("utf-8", "replace")
    except OSError as e:
        return str(e)


def binary(name):
    """The built program, or a failure that says what to do."""
    path = os.path.join(BIN, name)
    if not os.access(path, os.X_OK):
        raise AssertionError("%s is not built: run `make%s`"
                             % (path, " SAN=1" if SAN else ""))
    return path


class Port:
    """A free TCP port below the ephemeral range, ours until given back."""

    folder = os.path.join(tempfile.gettempdir(),
                          "queen-test-ports-%d" % os.getuid())

    def __init__(self):
        os.makedirs(self.folder, exist_ok=True)
        for _ in range(500):
            number = random.SystemRandom().randrange(12000, 32000)
            path = os.path.join(self.folder, str(number))
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with socket.socket() as s:
                    # no SO_REUSEPORT: a listener that has it is noticed
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    s.bind(("127.0.0.1", number))
            except OSError:
                os.close(fd)
                continue
            self.number, self.fd = number, fd
            return
        raise AssertionError("no free port found")

    def give(self):
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def pg_user():
    """PostgreSQL refuses to run as root: the user it runs as, None = us."""
    if os.getuid() != 0:
        return None
    for name in ("queentest", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
        if name == "queentest":
            subprocess.run(["useradd", "--system", "--no-create-home",
                            "--shell", "/usr/sbin/nologin", name],
                           stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False)
            with contextlib.suppress(KeyError):
                return pwd.getpwnam(name)
    raise AssertionError("no unprivileged user to run PostgreSQL as")


def pg_bin(version):
    """The folder with initdb, pg_ctl and postgres of a version."""
    if version == "dist":
        found = glob.glob("/usr/lib/postgresql/*/bin/initdb")
        if not found:
            raise AssertionError("no PostgreSQL in /usr/lib/postgresql: "
                                 "install the package postgresql")
        return os.path.dirname(max(
            found, key=lambda p: int(p.split("/")[4])))
    for sub in ("bin", "native/bin"):
        path = os.path.join(ROOT, "build", "pg", version, sub)
        if os.access(os.path.join(path, "initdb"), os.X_OK):
            return path
    raise AssertionError("no PostgreSQL %s in build/pg/%s: "
                         "run tests/fetch-postgres" % (version, version))


def client_bin(name):
    """psql, pg_dump ...: always the distribution's."""
    return shutil.which(name) or os.path.join(pg_bin("dist"), name)


def sql_files():
    folder = os.environ.get("QUEEN_SQL_DIR") or os.path.join(ROOT, "sql")
    return sorted(glob.glob(os.path.join(folder, "[0-9]*.sql")))


def server_home(settings):
    """Where a server's data lies: in memory when there is room, for cloning
    a database makes hundreds of files; on disk for a server with fsync."""
    shm = "/dev/shm"
    if settings.get("fsync") == "on" or not os.access(shm, os.W_OK):
        return "/tmp"
    room = os.statvfs(shm)
    return shm if room.f_bavail * room.f_frsize > 4 << 30 else "/tmp"


def copy_tree(source, target):
    """Owners and all; pages of zeros take no room."""
    subprocess.run(["cp", "-a", "--sparse=always", source, target],
                   check=True, stdin=subprocess.DEVNULL)


class Server:
    """A private PostgreSQL server with a template database."""

    TEMPLATE = "queen_template"

    def __init__(self, version="dist", **settings):
        self.version = version
        self.user = pg_user()
        found = pg_bin(version)
        self.dir = tempfile.mkdtemp(prefix="queen-pg-",
                                    dir=server_home(settings))
        self.data = os.path.join(self.dir, "data")
        self.log = os.path.join(self.dir, "server.log")
        if self.user:
            os.chown(self.dir, self.user.pw_uid, self.user.pw_gid)
        os.chmod(self.dir, 0o755)
        self.bin = self._reachable(found)
        self.port = Port()
        self.running = False
        self.starts = 0
        self.serial = 0
        self.spare = []
        self._data()
        self._configure(settings)
        self.start()

    def _data(self):
        """initdb and prepare() take most of a server's start: what they make
        is kept in build/ and copied."""
        name = "%s-%s" % (type(self).__name__.lower(), self.version)
        kept = os.path.join(ROOT, "build", "pgdata", name)
        made_from = "%s %s %s" % (
            schema_hash(), self.user and self.user.pw_name,
            self._run("postgres", "--version"))
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        with open(kept + ".from", "a+") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX)
            mark.seek(0)
            if mark.read() != made_from:
                self._make_data()
                shutil.rmtree(kept, ignore_errors=True)
                copy_tree(self.data, kept)
                mark.truncate(0)
                mark.write(made_from)
                return
            copy_tree(kept, self.data)

    def _make_data(self):
        self._run("initdb", "--no-sync", "-A", "trust", "-U", "queen",
                  "-E", "UTF8", "--locale=C", "-D", self.data)
        self._configure({})
        self.start()
        self.prepare()
        self.stop()

    def prepare(self):
        """What every server of this kind has, made once."""
        self.admin("create database %s" % self.TEMPLATE)
        self.apply_schema(self.TEMPLATE)

    def _reachable(self, path):
        # below a 0700 home the unprivileged user cannot run it: take a copy
        if not self.user or self._call([os.path.join(path, "initdb"),
                                        "--version"]).returncode == 0:
            return path
        copy = os.path.join(self.dir, "install")
        shutil.copytree(os.path.dirname(path), copy, symlinks=True)
        return os.path.join(copy, os.path.basename(path))

    def _configure(self, settings):
        conf = {
            "listen_addresses": "127.0.0.1",
            "port": self.port.number,
            "unix_socket_directories": self.dir,
            "max_connections": 300,
            "max_prepared_transactions": 10,
            "max_wal_senders": 10,
            "wal_level": "logical",
            "shared_buffers": "64MB",
            "fsync": "off",
            "lc_messages": "C",
            # nothing may depend on the session's zone
            "timezone": "Asia/Kolkata",
            "log_line_prefix": "%m [%p] %d ",
            "log_min_duration_statement": "5s",
            "log_lock_waits": "on",
        }
        conf.update(settings)
        with open(os.path.join(self.data, "postgresql.conf"), "a") as f:
            for key, value in conf.items():
                f.write("%s = '%s'\n" % (key, value))

    def _call(self, argv):
        if self.user:
            argv = ["setpriv", "--reuid=%d" % self.user.pw_uid,
                    "--regid=%d" % self.user.pw_gid, "--clear-groups"] + argv
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}
        # output to a file: a pipe would be kept open by the server
        with tempfile.TemporaryFile() as out:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out,
                                  stderr=subprocess.STDOUT, env=env, cwd="/",
                                  timeout=120, check=False)
            out.seek(0)
            done.stdout = out.read().decode("utf-8", "replace")
        return done

    def _run(self, name, *args):
        done = self._call([os.path.join(self.bin, name), *args])
        if done.returncode != 0:
            raise AssertionError("%s failed (%d): %s\n%s" % (
                name, done.returncode, done.stdout, tail(self.log)))
        return done.stdout

    def start(self):
        self._run("pg_ctl", "-w", "-t", "60", "-s", "-D", self.data,
                  "-l", self.log, "start")
        self.running = True
        self.starts += 1

    def stop(self, mode="fast"):
        """mode immediate = a crash; the next start recovers."""
        self._run("pg_ctl", "-w", "-t", "60", "-s", "-D", self.data,
                  "-m", mode, "stop")
        self.running = False

    def restart(self, mode="fast"):
        self.stop(mode)
        self.start()

    def pid(self):
        with open(os.path.join(self.data, "postmaster.pid")) as f:
            return int(f.readline())

    def close(self):
        """Ends the server whatever its state and removes its folder."""
        if self.running:
            try:
                self.stop("immediate")
            except (AssertionError, subprocess.TimeoutExpired):
                with contextlib.suppress(OSError, ValueError):
                    os.kill(self.pid(), signal.SIGKILL)
        self.port.give()
        shutil.rmtree(self.dir, ignore_errors=True)

    def conninfo(self, dbname="postgres", user="queen"):
        return "host=%s port=%d user=%s dbname=%s" % (
            self.dir, self.port.number, user, dbname)

    def connect(self, dbname="postgres", user="queen"):
        return psycopg2.connect(self.conninfo(dbname, user))

    def psql(self, *args, dbname="postgres", check=True):
        """psql -X -q -A -t with args; its standard output."""
        done = subprocess.run(
            [client_bin("psql"), "-X", "-q", "-A", "-t",
             "-v", "ON_ERROR_STOP=1", "-d", self.conninfo(dbname), *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, timeout=300, text=True, check=False,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C",
                 "PGOPTIONS": "-c client_min_messages=warning"})
        if check and done.returncode != 0:
            raise AssertionError("psql: %s" % done.stderr)
        return done.stdout.rstrip("\n")

    def admin(self, statement):
        """On a session that is kept for the next call; each costs 10 ms."""
        if self.spare:
            try:
                return self._admin(self.spare.pop(), statement)
            except psycopg2.Error as e:
                if e.pgcode and not e.pgcode.startswith("57P"):
                    raise
        # the session is over: the server was restarted, or ended it
        return self._admin(self.connect(), statement)

    def _admin(self, conn, statement):
        try:
            conn.autocommit = True
            with conn.cursor() as cur:
                cur.execute(statement)
        except psycopg2.Error:
            conn.close()
            raise
        self.spare.append(conn)

    def apply_schema(self, dbname):
        """The files of sql/ in order, then the row that says who we are."""
        args = []
        for path in sql_files():
            args += ["-f", path]
        self.psql(*args, dbname=dbname)
        self.psql("-c", "insert into queen.cell (tag, hash_key, major,"
                  " number, hash) values (%d, '\\x%s', %d, %d, '%s')"
                  " on conflict do nothing"
                  % (0x5eed00c0ffee, bytes(range(16)).hex(),
                     *schema_number(), schema_hash()), dbname=dbname)

    def new_db(self, schema=True):
        """A fresh database; schema=False = an empty one."""
        self.serial += 1
        name = "t%d" % self.serial
        # a copy of the files: several times faster than through the WAL
        self.admin("create database %s template %s strategy file_copy" % (
            name, self.TEMPLATE if schema else "template0"))
        return Db(self, name)


def schema_hash():
    """As lib/schema.c computes it over the files it embeds."""
    h = hashlib.sha256()
    for path in sql_files():
        with open(path, "rb") as f:
            h.update(os.path.basename(path).encode() + b"\0"
                     + f.read() + b"\0")
    return h.hexdigest()


def schema_number():
    """(major, number) of lib/schema.h."""
    with open(os.path.join(ROOT, "lib", "schema.h")) as f:
        text = f.read()
    return tuple(int(re.search(r"\b%s = (\d+)" % name, text).group(1))
                 for name in ("SCHEMA_MAJOR", "SCHEMA_NUMBER"))


class Db:
    """One database of a server; its connections are closed with it."""

    def __init__(self, server, name):
        self.server, self.name = server, name
        self.conns = []
        self.own, self.own_start = None, 0
        self.roles = []

    def conninfo(self, user="queen"):
        return self.server.conninfo(self.name, user)

    def connect(self, user="queen", autocommit=True):
        conn = self.server.connect(self.name, user)
        conn.autocommit = autocommit
        self.conns.append(conn)
        return conn

    def rows(self, sql, args=None):
        """Runs one statement on an own connection; its rows as a list."""
        if self.own is None or self.own.closed \
                or self.own_start != self.server.starts:
            self.own, self.own_start = self.connect(), self.server.starts
        return rows(self.own, sql, args)

    def row(self, sql, args=None):
        found = self.rows(sql, args)
        assert len(found) == 1, "%d rows: %s" % (len(found), sql)
        return found[0]

    def value(self, sql, args=None):
        return self.row(sql, args)[0]

    def psql(self, *args, check=True):
        return self.server.psql(*args, dbname=self.name, check=check)

    def role(self, suffix):
        """A login role of this test alone."""
        name = "%s_%s" % (self.name, suffix)
        self.server.admin("create role %s login" % name)
        self.roles.append(name)
        return name

    def drop(self):
        for conn in self.conns:
            with contextlib.suppress(psycopg2.Error):
                conn.close()
        if not self.server.running:
            self.server.start()
        self.server.admin("drop database if exists %s with (force)"
                          % self.name)
        for name in self.roles:
            self.server.admin("drop role if exists %s" % name)


def rows(conn, sql, args=None):
    with conn.cursor() as cur:
        cur.execute(sql, args)
        return cur.fetchall() if cur.description else []


class Cell:
    """One queend on a database."""

    def __init__(self, db, folder, env=None, port=None, name="queend"):
        self.db, self.folder, self.name = db, folder, name
        self.own_port = port is None
        self.port = port or Port()
        self.log = os.path.join(folder, name + ".log")
        self.extra = dict(env or {})
        self.proc = None
        self.expected_end = True

    def db_env(self):
        return {"PG_HOST": "127.0.0.1",
                "PG_PORT": str(self.db.server.port.number),
                "PG_USER": "queen", "PG_DATABASE": self.db.name}

    def env(self):
        env = {"PATH": os.environ["PATH"], "HOME": self.folder,
               "XDG_RUNTIME_DIR": self.folder, "LC_ALL": "C", "TZ": "UTC",
               "PORT": str(self.port.number), "QUEEN_BIND_ADDR": "127.0.0.1",
               # one per lane: most of a boot's CPU time is that of backends
               "DB_POOL_SIZE": "4",
               "ASAN_OPTIONS": "detect_leaks=1:exitcode=99",
               "UBSAN_OPTIONS": "print_stacktrace=1"}
        env.update(self.db_env())
        env.update(self.extra)
        return {k: str(v) for k, v in env.items() if v is not None}

    def start(self, wait=True):
        """wait=False: the caller looks at health or the exit status."""
        assert self.proc is None or self.proc.poll() is not None
        with open(self.log, "ab") as log:
            self.proc = subprocess.Popen(
                [binary("queend")], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=self.env(), cwd=self.folder)
        self.expected_end = not wait
        if wait:
            wait_until(self._healthy, what="health of %s:\n%s"
                       % (self.name, tail(self.log)))
        return self

    def _healthy(self):
        if self.proc.poll() is not None:
            self.expected_end = True
            raise AssertionError("%s ended with %d at boot:\n%s" % (
                self.name, self.proc.returncode, tail(self.log)))
        try:
            return self.get("/health", timeout=5).status == 200
        except OSError:
            return False

    def wait_exit(self, deadline_s=DEADLINE_S):
        """Its exit status; AssertionError when it runs on."""
        self.expected_end = True
        try:
            return self.proc.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError("%s still runs after %s s:\n%s" % (
                self.name, deadline_s, tail(self.log))) from None

    def signal(self, number):
        self.proc.send_signal(number)

    def kill9(self):
        self.signal(signal.SIGKILL)
        return self.wait_exit()

    def term(self, deadline_s=DEADLINE_S):
        """SIGTERM; the exit status of the drain."""
        self.signal(signal.SIGTERM)
        return self.wait_exit(deadline_s)

    def restart(self):
        if self.proc and self.proc.poll() is None:
            self.term()
        return self.start()

    def close(self):
        """Ends it by pid; complains of findings and of an end unasked."""
        faults = []
        if self.proc is not None:
            code = self.proc.poll()
            if code is not None and not self.expected_end:
                faults.append("%s ended by itself: %d" % (self.name, code))
            if code is None:
                self.proc.send_signal(signal.SIGCONT)
                self.proc.terminate()
                try:
                    code = self.proc.wait(15)
                    if code not in (0, -signal.SIGTERM):
                        faults.append("%s drained with status %d"
                                      % (self.name, code))
                except subprocess.TimeoutExpired:
                    self.proc.kill()
                    self.proc.wait()
                    faults.append("%s did not end within 15 s of SIGTERM"
                                  % self.name)
        if self.own_port:
            self.port.give()
        with contextlib.suppress(OSError):
            with open(self.log, errors="replace") as f:
                if FINDING.search(f.read()):
                    faults.append("sanitizer findings in %s" % self.log)
        assert not faults, "%s\n%s" % ("; ".join(faults), tail(self.log))

    def log_text(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    # HTTP

    def http(self, timeout=DEADLINE_S):
        """An own keep-alive connection; the caller closes it."""
        return http.client.HTTPConnection("127.0.0.1", self.port.number,
                                          timeout=timeout)

    def request(self, method, path, body=None, headers=None,
                timeout=DEADLINE_S, conn=None):
        """body: bytes and str as they are, anything else as JSON."""
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        own = conn or self.http(timeout)
        try:
            own.request(method, path, body=body, headers=headers or {})
            answer = own.getresponse()
            data = answer.read()
        finally:
            if conn is None:
                own.close()
        kind = answer.headers.get("Content-Type", "")
        if data and kind.startswith("application/json"):
            data = json.loads(data)
        return Reply(answer.status, answer.headers, data)

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body=None, **kw):
        return self.request("POST", path, body, **kw)

    def delete(self, path, **kw):
        return self.request("DELETE", path, **kw)

    def push(self, queue, payloads, partition=None, ids=None, **kw):
        """Pushes payloads to one partition; the results as a list."""
        items = []
        for i, payload in enumerate(payloads):
            item = {"queue": queue, "payload": payload}
            if partition is not None:
                item["partition"] = partition
            if ids is not None:
                item["transactionId"] = ids[i]
            items.append(item)
        reply = self.post("/api/v1/push", {"items": items}, **kw)
        assert reply.status == 201, reply
        return reply.body

    def pop(self, queue, group=None, partition=None, timeout=DEADLINE_S,
            headers=None, **query):
        """The popped messages, [] when there were none.  Query names as on
        the wire (batch, partitions, autoAck, wait, leaseSeconds ...);
        `wait_ms` is its `timeout`, `timeout` ours."""
        path = "/api/v1/pop/queue/" + urllib.parse.quote(queue, safe="")
        if partition is not None:
            path += "/partition/" + urllib.parse.quote(partition, safe="")
        if group is not None:
            query["consumerGroup"] = group
        if "wait_ms" in query:
            query["timeout"] = query.pop("wait_ms")
        query = {k: str(v).lower() if isinstance(v, bool) else v
                 for k, v in query.items()}
        if query:
            path += "?" + urllib.parse.urlencode(query)
        reply = self.get(path, timeout=timeout, headers=headers)
        if reply.status == 204:
            assert reply.body == b""
            return []
        assert reply.status == 200, reply
        return reply.body["messages"]

    def ack(self, messages, group=None, status="completed", error=None,
            lease=True, **kw):
        """Acks popped messages in one batch; the results as a list."""
        acks = []
        for m in messages:
            item = {"transactionId": m["transactionId"],
                    "partitionId": m["partitionId"], "status": status}
            if lease and m.get("leaseId"):
                item["leaseId"] = m["leaseId"]
            if error is not None:
                item["error"] = error
            acks.append(item)
        body = {"acknowledgments": acks}
        if group is not None:
            body["consumerGroup"] = group
        reply = self.post("/api/v1/ack/batch", body, **kw)
        assert reply.status == 200, reply
        return reply.body
