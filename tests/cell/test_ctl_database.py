# SPDX-License-Identifier: Apache-2.0
"""queenctl schema and doctor: the database directly."""
import re

import pytest

import queenlib
from ctlkit import OK, SERVER, USER, Ctl


@pytest.fixture
def pgctl(alone):
    def make(db):
        return Ctl(alone.home, PG_HOST="127.0.0.1",
                   PG_PORT=str(db.server.port.number), PG_USER="queen",
                   PG_DATABASE=db.name)
    return make


def test_schema_apply_and_status(pgctl, empty_db):
    ctl = pgctl(empty_db)
    assert ctl.json("schema", "status")["state"] == "absent"
    assert "run: queenctl schema apply" in ctl.fails(
        USER, "schema", "grant", "nobody")
    assert re.match(r"applied schema \d+\.\d+\n", ctl.run("schema", "apply"))
    status = ctl.json("schema", "status")
    assert status["state"] == "same"
    assert status["database"] == status["program"]
    assert re.match(r"schema \d+\.\d+ is there already\n",
                    ctl.run("schema", "apply"))
    assert alone_conninfo(ctl, empty_db) == "same"


def alone_conninfo(ctl, db):
    bare = Ctl(ctl.home)
    return bare.json("schema", "status", "--conninfo", db.conninfo())["state"]


def test_unreachable_database(alone):
    for args in (("schema", "status"), ("schema", "apply"), ("doctor",)):
        assert alone.fails(SERVER, *args, PG_HOST="127.0.0.1", PG_PORT="1")
    assert "PG_PORT" in alone.fails(USER, "doctor", PG_PORT="x")


def test_schema_grant_is_enough_to_run_queend(pgctl, db, new_cell):
    ctl = pgctl(db)
    role = db.role("r")
    out = ctl.run("schema", "grant", 'a"b', "--dry-run")
    assert 'grant usage on schema queen to "a""b";\n' in out
    assert ctl.run("schema", "grant", role) == 'granted to "%s"\n' % role
    cell = new_cell(PG_USER=role, QUEEN_APPLY_SCHEMA="false").start()
    cell.push("q", [1])
    assert cell.ack(cell.pop("q"))[0]["success"]
    assert db.value("select pg_has_role(%s, 'pg_read_all_stats', 'usage')",
                    (role,))
    db.rows("drop owned by %s cascade" % role)


def findings(ctl, *args, code=USER):
    out = ctl.json("doctor", *args, code=code)
    assert out["ok"] is (code == OK)
    assert out["checks"] > 15
    for f in out["findings"]:
        assert f["level"] in ("INFO", "WARN", "ERROR")
        assert f["level"] == "INFO" or f["fix"], f
    return {f["what"]: f for f in out["findings"]}


def matching(found, pattern):
    hits = [f for what, f in found.items() if re.search(pattern, what)]
    assert len(hits) == 1, found
    return hits[0]


def test_doctor_names_what_hurts_and_its_fix(no_last_cell, pgctl, db):
    ctl = pgctl(db)
    kit_rows(db)
    found = findings(ctl)
    fsync = matching(found, "^fsync is off")
    assert fsync["level"] == "ERROR"
    assert "alter system set fsync = on" in fsync["fix"]
    assert matching(found, "shared_buffers is only 64 MiB")
    assert matching(found, "max_wal_size is 1024 MiB")
    assert matching(found, "group slow of queue old is .* behind")
    assert matching(found, "queue old, group slow: 0 leases held and 1 run "
                           "out")
    assert matching(found, "queue old got 2 dead letters")
    assert matching(found, "job late is .* its holder x died")
    assert matching(found, "/health was not asked")["level"] == "INFO"
    text = ctl.run("doctor", "-o", "table", code=USER)
    assert re.search(r"^ERROR  fsync is off: .*  -> fix: psql -c ", text,
                     re.M)


def kit_rows(db):
    """A queue whose group stopped long ago."""
    q = db.value("insert into queen.queues (tenant, name) values (%s, 'old')"
                 " returning id", (queenlib.TENANT,))
    p = db.value("insert into queen.partitions (queue_id, name, created_at)"
                 " values (%s, 'p', now()) returning id", (q,))
    db.rows("insert into queen.partition_heads (id, queue_id, last_at,"
            " last_write_at, oldest_live_at) select %s, %s, t, t, t from"
            " (select now() - interval '3 h' t) x", (p, q))
    db.rows("insert into queen.segments (partition_id, base_offset,"
            " end_offset, created_at, raw_bytes, blob) values"
            " (%s, 0, 4, now() - interval '3 h', 1, '')", (p,))
    g = db.value("insert into queen.groups (queue_id, name, mode,"
                 " subscribed_at) values (%s, 'slow', 'all', now())"
                 " returning id", (q,))
    db.rows("insert into queen.consumers (group_id, partition_id, committed,"
            " batch_end, expires_at, acquired_at) values (%s, %s, 1, 2,"
            " now() - interval '1 h', now() - interval '2 h')", (g, p))
    db.rows("insert into queen.dead_letters (id, queue_id, partition_id,"
            " group_name, message_offset, id_hash, retries, failed_at)"
            " select gen_random_uuid(), %s, %s, 'slow', n, '', 0, now()"
            " from generate_series(0, 1) n", (q, p))
    db.rows("insert into queen.claims (task, period_ms, next_due_at,"
            " lease_until, holder) values ('late', 1000,"
            " now() - interval '1 h', now() - interval '50 min', 'x')")


def test_doctor_leaves_short_transactions_alone(pgctl, db):
    ctl = pgctl(db)
    conn = db.connect(autocommit=False)
    conn.cursor().execute("select pg_current_xact_id()")
    assert not [w for w in findings(ctl) if "in a transaction" in w]
    conn.rollback()


def test_doctor_without_schema(pgctl, empty_db):
    found = findings(pgctl(empty_db))
    assert matching(found, "the database has no schema")["fix"] == \
        "queenctl schema apply"


def test_doctor_asks_the_server_too(pgctl, db, cell):
    ctl = pgctl(db)
    found = findings(ctl, "--server",
                     "http://127.0.0.1:%d" % cell.port.number)
    assert not [w for w in found if "health" in w or "reach" in w]
    found = findings(ctl, "--server", "http://127.0.0.1:1")
    assert matching(found, "cannot reach http://127.0.0.1:1")["level"] == \
        "ERROR"


def test_doctor_tells_a_lacking_grant(pgctl, db):
    role = db.role("plain")
    ctl = pgctl(db)
    ctl.env["PG_USER"] = role
    found = findings(ctl)
    assert "queenctl schema grant %s" % role in matching(
        found, "lacks pg_read_all_stats")["fix"]
