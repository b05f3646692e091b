# SPDX-License-Identifier: Apache-2.0
"""What tests of sealed payloads share: keys, flags, and the search of a
database for what must not be in it."""
import base64
import hashlib
import json
import os
import subprocess

import pytest

from queenlib import client_bin, wait_until

K1, K2, K3 = ("%02x" % b * 32 for b in (0x11, 0x22, 0x33))
WORD = "Zwetschgenknödel-4711"
PAYLOAD = {"note": WORD, "n": 1}

keyed = pytest.mark.cellenv(QUEEN_ENCRYPTION_KEY=K1)


def key_id(key):
    return hashlib.sha256(bytes.fromhex(key)).digest()[0]


def flag(cell, queue, on=True):
    reply = cell.post("/api/v1/configure", {
        "queue": queue, "options": {"encryptionEnabled": on}})
    assert reply.status in (200, 201), reply


def statuses(answer):
    return [r["status"] for r in answer]


def key_ids(db, queue="q"):
    return [r[0] for r in db.rows(
        "select s.key_id from queen.segments s"
        " join queen.partitions p on p.id = s.partition_id"
        " join queen.queues q on q.id = p.queue_id"
        " where q.name = %s order by p.id, s.base_offset", (queue,))]


def popped(cell, queue="q", **kw):
    return wait_until(lambda: cell.pop(queue, **kw))


def forms(text):
    """How a text may appear in a dump: as it is or escaped as in JSON; these
    bytes, their hex, their base64 at any of its three phases."""
    found = set()
    for raw in text.encode(), json.dumps(text)[1:-1].encode():
        found |= {raw, raw.hex().encode()}
        for lead in range(3):
            b64 = base64.b64encode(b"\0" * lead + raw)
            found.add(b64[4 if lead else 0:-4])
    return found


def assert_not_in_the_database(db, text):
    dump = subprocess.run(
        [client_bin("pg_dump"), db.conninfo()], check=True,
        stdout=subprocess.PIPE).stdout
    assert b"queen.segments" in dump
    for form in forms(text):
        assert form not in dump, form


def files_of(server):
    """Every file of a server that may hold rows, WAL or log lines."""
    for folder in ("base", "pg_wal"):
        for at, _, names in os.walk(os.path.join(server.data, folder)):
            for name in names:
                yield os.path.join(at, name)
    yield server.log


def on_disk(db, text):
    """Which files hold the text; what was written is on disk first."""
    db.server.admin("checkpoint")
    found = set()
    for path in files_of(db.server):
        try:
            with open(path, "rb") as f:
                data = f.read()
        except FileNotFoundError:
            continue
        if any(form in data for form in forms(text)):
            found.add(path)
    return found


def bury(cell, n=1):
    cell.push("q", [dict(PAYLOAD, n=i) for i in range(n)],
              ids=["t%d" % i for i in range(n)])
    buried = []
    for i in range(n):
        buried += popped(cell, batch=1)
        assert cell.ack(buried[i:], status="dlq", error="broken")[0]["dlq"]
    return buried


def fails_at_boot(one, text):
    one.start(wait=False)
    assert one.wait_exit() == 2
    fatal = [x for x in one.log_text().splitlines() if "FATAL" in x]
    assert len(fatal) == 1 and text in fatal[0], one.log_text()
    for key in (K1, K2, K3):
        assert key not in one.log_text()


def damage(db, where="true"):
    """Flips the last bit of segments: once more, and they are whole."""
    assert db.rows(
        "update queen.segments set blob = set_byte(blob, length(blob) - 1,"
        " get_byte(blob, length(blob) - 1) # 1) where " + where
        + " returning base_offset")


def consumers(db):
    """(committed, leased, attempts to come) of every cursor."""
    return db.rows(
        "select distinct on (group_id, partition_id) committed,"
        " lease_no is not null or batch_end is not null"
        " or expires_at is not null, attempts from queen.consumers"
        " order by group_id, partition_id, gen desc")


def faulty(cell, path):
    """The error of a pop that must fail, however often it found nothing."""
    return wait_until(lambda: [r for r in [cell.get(
        "/api/v1/pop/" + path)] if r.status == 500])[0].body["error"]
