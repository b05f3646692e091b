# SPDX-License-Identifier: Apache-2.0
"""partitions/changed: pages, cursors, the settled time."""
import datetime
import re

from queenlib import wait_until

STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")


def changed(cell, entries=None):
    reply = cell.post("/api/v1/partitions/changed",
                      {} if entries is None else {"entries": entries})
    assert reply.status == 200, reply
    return reply.body


def sweep(cell, **entry):
    """All names of a sweep, page by page."""
    names, after, pages = [], None, 0
    while True:
        e = changed(cell, [dict(entry, after=after)])["entries"][0]
        names += [p["name"] for p in e["partitions"]]
        pages += 1
        after = e["next"]
        if after is None:
            return names, pages


def fill(cell, n, queue="q"):
    items = [{"queue": queue, "partition": "p%03d" % i, "payload": i}
             for i in range(n)]
    assert cell.post("/api/v1/push", {"items": items}).status == 201


def stamp(text):
    return datetime.datetime.strptime(
        text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(
            tzinfo=datetime.timezone.utc)


def test_exact_keys(cell):
    cell.push("orders", [1, 2], partition="cust-0420")
    body = changed(cell, [{"queue": "orders"}])
    assert list(body) == ["safeTime", "safeTimeDegraded", "entries"]
    assert STAMP.match(body["safeTime"])
    assert body["safeTimeDegraded"] is False
    e = body["entries"][0]
    assert list(e) == ["queue", "partitions", "next"]
    assert (e["queue"], e["next"]) == ("orders", None)
    p = e["partitions"][0]
    assert list(p) == ["name", "lastOffset", "logStart", "lastWriteAt"]
    assert (p["name"], p["lastOffset"], p["logStart"]) == (
        "cust-0420", 1, 0)
    assert STAMP.match(p["lastWriteAt"])


def test_no_entries_asks_for_the_settled_time_only(cell):
    for entries in (None, []):
        body = changed(cell, entries)
        assert body["entries"] == []
        assert STAMP.match(body["safeTime"])


def test_safe_time_trails_the_clock_and_stops_at_open_writes(cell, db,
                                                             connect):
    now = db.value("select clock_timestamp()")
    safe = stamp(changed(cell)["safeTime"])
    assert datetime.timedelta(0) < now - safe < datetime.timedelta(seconds=60)
    writer = connect(db, autocommit=False)
    with writer.cursor() as cur:
        cur.execute("select pg_current_xact_id(), xact_start from"
                    " pg_stat_activity where pid = pg_backend_pid()")
        start = cur.fetchone()[1]
    wait_until(lambda: stamp(changed(cell)["safeTime"]) == start,
               what="safeTime at the start of the open transaction")
    writer.rollback()
    wait_until(lambda: stamp(changed(cell)["safeTime"]) > start)


def test_sweep_by_name_pages_through_all(cell):
    fill(cell, 10)
    want = ["p%03d" % i for i in range(10)]
    assert sweep(cell, queue="q", limit=3) == (want, 4)
    # an exact multiple costs one empty page
    assert sweep(cell, queue="q", limit=5) == (want, 3)
    assert sweep(cell, queue="q") == (want, 1)
    assert changed(cell, [{"queue": "q", "limit": 3}])["entries"][0][
        "next"] == "n|p002"


def test_sweep_since_pages_by_time_and_name(cell, db):
    fill(cell, 10)
    db.rows("update queen.partition_heads h set last_write_at ="
            " timestamptz '2026-01-01 00:00:00+00' + interval '1 s' *"
            " (h.id % 3) ")
    names, pages = sweep(cell, queue="q", limit=4,
                         since="2025-12-31T00:00:00.000000Z")
    assert sorted(names) == ["p%03d" % i for i in range(10)]
    assert pages == 3
    rows = changed(cell, [{"queue": "q", "limit": 4,
                           "since": "2026-01-01T00:00:01Z"}])["entries"][0]
    times = [p["lastWriteAt"] for p in rows["partitions"]]
    assert times == sorted(times)
    assert min(times) >= "2026-01-01T00:00:01"
    assert rows["next"].startswith("t|17672256")
    assert changed(cell, [{"queue": "q", "since": "2027-01-01"}])[
        "entries"][0]["partitions"] == []


def test_limit_is_clamped(cell):
    fill(cell, 3)
    for limit, n in ((0, 1), (-5, 1), (2, 2), (10 ** 9, 3)):
        e = changed(cell, [{"queue": "q", "limit": limit}])["entries"][0]
        assert len(e["partitions"]) == n


def test_entry_errors_replace_the_page(cell):
    cell.push("q", [1])
    body = changed(cell, [
        {"queue": "nope"}, {"queue": "q", "after": "t|1|x"},
        {"queue": "q"}, {"queue": "q", "after": "banana"},
        {"queue": "nope", "after": "banana"},
        {"queue": "q", "since": "2026-01-01", "after": "n|a"},
        {"queue": "nope2"}])
    got = [e.get("error") for e in body["entries"]]
    assert got == ["UNKNOWN_TOPIC_OR_PARTITION", "BAD_CURSOR", None,
                   "BAD_CURSOR", "BAD_CURSOR", "BAD_CURSOR",
                   "UNKNOWN_TOPIC_OR_PARTITION"]
    assert body["entries"][0] == {
        "queue": "nope", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert body["entries"][2]["partitions"][0]["name"] == "Default"


def test_refused_bodies(common):
    def refused(body):
        reply = common.post("/api/v1/partitions/changed", body)
        assert reply.status == 400
        return reply.body["error"]

    assert refused({"entries": [{"queue": "q"}] * 65}) == \
        "bad body: more than 64 entries"
    assert refused({"entries": [{"queue": ""}]}).startswith("bad body: ")
    assert refused({"entries": [{}]}) == \
        "bad body: entries[0].queue is missing"
    assert refused({"entries": [{"queue": "q", "since": "soon"}]}) == \
        "bad body: since is not a timestamp: \"soon\""
    assert refused("{").startswith("bad body: ")


def test_partition_emptied_by_retention_keeps_its_offsets(cell, db):
    cell.push("q", [1, 2, 3])
    db.rows("delete from queen.segments")
    db.rows("update queen.partition_heads set log_start = 3")
    p = changed(cell, [{"queue": "q"}])["entries"][0]["partitions"][0]
    assert (p["lastOffset"], p["logStart"]) == (2, 3)
