# SPDX-License-Identifier: Apache-2.0
"""The routes of connectors: what is refused and why, what is stored, what is
shown, and that no password is ever seen again."""
import base64
import glob
import json
import os
import re
import uuid

import pytest

import queenlib
from queenlib import wait_until
from sealkit import K1, K2, assert_not_in_the_database, key_id, keyed

API = "/api/v1/connectors"
NIL = "00000000-0000-0000-0000-000000000000"
DEFAULT = "00000000-0000-0000-0000-000000000001"
OTHER = "00000000-0000-0000-0000-00000000000a"
tenants = pytest.mark.cellenv(QUEEN_TENANCY_HEADER="true",
                              QUEEN_KV_TRUSTED_PROXY="true",
                              QUEEN_ENCRYPTION_KEY=K1)
CONNECTION = {"host": "db1", "database": "shop", "user": "cdc"}
SOURCE = {"kind": "source", "connection": CONNECTION, "source": {
    "tables": [{"table": "orders", "queue": "orders"}]}}
SINK = {"kind": "sink", "connection": CONNECTION, "sink": {
    "queue": "orders", "table": "public.copy", "mode": "cdc"}}


def put(cell, name, document, **kw):
    return cell.request("PUT", API + "/" + name, document, **kw)


def stored(cell, name, document):
    reply = put(cell, name, document)
    assert reply.status == 200, reply
    return reply.body


def refused(reply, status, code):
    assert (reply.status, reply.body["error"]) == (status, code), reply
    assert set(reply.body) == {"error", "detail"}
    return reply.body["detail"]


def tenant(who):
    return {"headers": {"x-queen-tenant": who}}


def raw(db, name, who=DEFAULT):
    found = db.rows("select value from queen.kv where tenant = %s and"
                    " namespace = 'queen-pg' and key = %s",
                    (NIL, "conn:%s:%s" % (who, name)))
    return found[0][0] if found else None


def with_(document, **members):
    return dict(json.loads(json.dumps(document)), **members)


def source(**members):
    return with_(SOURCE, source=dict(SOURCE["source"], **members))


def sink(**members):
    return with_(SINK, sink=dict(SINK["sink"], **members))


def connection(**members):
    return with_(SOURCE, connection=dict(CONNECTION, **members))


def report(db, name, node="a", who=DEFAULT, kind="source", age_s=0,
           metrics=None, **status):
    """What a tool on a node says."""
    status.update(name=name, owner=node)
    db.rows("select queen.connector_status_put_v1(%s, %s::uuid[], %s, %s, %s,"
            " %s, clock_timestamp() - %s * interval '1 s')",
            (node, [who], [name], [kind], [json.dumps(status)],
             [json.dumps(metrics or {})], age_s))


def state(db, name, part, value, who=DEFAULT):
    db.rows("select * from queen.kv_put(%s, 'queen-pg', %s, %s, null, null,"
            " now())", (who, "src:%s:%s" % (name, part), json.dumps(value)))


# PUT

@keyed
def test_put_names_the_bad_field_and_stores_nothing(cell, db):
    for document, field in (
            (with_(SOURCE, kind="both"), "kind"),
            (connection(port=0), "connection.port"),
            (source(lingerMs=9000), "source.lingerMs"),
            (source(tables=[{"table": "t", "queue": "q"},
                            {"table": "public.t", "queue": "r"}]),
             "source.tables[1].table"),
            (sink(key=["a", "b c"]), "sink.key[1]"),
            (connection(password="hunter2-geheim", host="a b"),
             "connection.host")):
        detail = refused(put(cell, "x", document), 400, "invalid_connector")
        assert detail.startswith(field + ": ")
        assert "hunter2" not in detail
    assert refused(put(cell, "x", source(lingerMs=9000)), 400,
                   "invalid_connector") == \
        "source.lingerMs: 9000 is outside 0..=5000"
    assert db.value("select count(*) from queen.kv") == 0


@keyed
def test_put_fills_the_defaults_and_answers_what_is_stored(cell, db):
    body = stored(cell, "orders-src", SOURCE)
    at = body.pop("updatedAt")
    assert body == {
        "name": "orders-src", "kind": "source", "enabled": True,
        "connection": dict(CONNECTION, port=5432, sslMode="prefer",
                           connectTimeoutMs=10000, passwordSet=False),
        "source": {
            "tables": [{"table": "orders", "queue": "orders"}],
            "managePublication": True, "snapshot": "initial",
            "snapshotChunkRows": 2000, "maxBundleMessages": 1000,
            "maxBundleBytes": 4194304, "lingerMs": 20,
            "heartbeatSeconds": 10, "onTruncate": "skip"}}
    assert len(at) == 27 and at[-1] == "Z"
    body = stored(cell, "copy", SINK)
    assert body["sink"] == dict(
        SINK["sink"], subscriptionMode="all", batch=500, workers=1,
        leaseSeconds=60, maxAttempts=3, progressTable="queen.sink_progress",
        createProgressTable=True)
    assert "passwordSet" not in raw(db, "copy")["connection"]
    # a read can be put back as it is
    entry = cell.get(API + "/copy").body
    again = stored(cell, "copy", entry)
    assert again.pop("updatedAt") > entry.pop("updatedAt")
    del entry["status"], entry["state"]
    assert again == entry
    # but not under another name
    assert refused(put(cell, "other", entry), 400,
                   "invalid_connector").startswith("name: ")


@keyed
def test_a_password_is_sealed_and_never_seen_again(cell, db):
    secret = "geheim-" + uuid.uuid4().hex
    url = "postgres://cdc:%s%%20x@db1:5433/shop?sslmode=require" % secret
    for document in connection(password=secret), \
            with_(SOURCE, connection={"url": url}):
        reply = put(cell, "x", document)
        assert reply.status == 200, reply
        one, = cell.get(API).body["connectors"]
        for body in reply.body, cell.get(API + "/x").body, one:
            assert body["connection"]["passwordSet"] is True
            assert secret not in json.dumps(body)
            assert not set(body["connection"]) & {
                "password", "passwordSealed", "url"}
    assert one["connection"] == {
        "host": "db1", "port": 5433, "database": "shop", "user": "cdc",
        "sslMode": "require", "connectTimeoutMs": 10000, "passwordSet": True}
    sealed = raw(db, "x")["connection"]["passwordSealed"]
    box = base64.b64decode(sealed, validate=True)
    assert box[:2] == bytes([1, key_id(K1)])
    assert len(box) == 2 + 24 + 16 + len(secret) + 2
    assert_not_in_the_database(db, secret)
    assert secret not in cell.log_text() and sealed not in cell.log_text()


def test_without_a_key_a_password_is_refused_and_an_edit_keeps_it(
        new_cell, db):
    keyless = new_cell()
    keyless.start()
    detail = refused(put(keyless, "x", connection(password="p")), 400,
                     "encryption_required")
    assert detail.startswith("connection.password: ")
    assert "QUEEN_ENCRYPTION_KEY" in detail
    assert raw(db, "x") is None
    with_key = new_cell(QUEEN_ENCRYPTION_KEY=K1)
    with_key.start()
    stored(with_key, "x", connection(password="p"))
    sealed = raw(db, "x")["connection"]["passwordSealed"]
    # on a node without a key; what only queend writes is passed over
    body = stored(keyless, "x", connection(
        passwordSealed="mine", passwordSet=False, host="db2"))
    assert body["connection"]["passwordSet"] is True
    stored(keyless, "x", with_(connection(host="db3"), updatedAt="never",
                               resyncRequestedAt="now", deleting=True))
    kept = raw(db, "x")
    assert kept["connection"]["passwordSealed"] == sealed
    assert kept["connection"]["host"] == "db3"
    assert kept["updatedAt"].startswith("20")
    assert not set(kept) & {"resyncRequestedAt", "deleting"}
    # an empty one removes it, no key needed
    body = stored(keyless, "x", connection(password=""))
    assert body["connection"]["passwordSet"] is False
    assert "passwordSealed" not in raw(db, "x")["connection"]


def test_names_and_bodies_are_checked_before_anything_else(cell):
    for name in "A", "-a", "_a", "a.b", "a" * 49, "%C3%A4", "a%2Fb":
        assert refused(put(cell, name, SOURCE), 400, "bad_connector_name") \
            .startswith("name: ")
        for method, path in (("GET", name), ("DELETE", name),
                             ("POST", name + "/resync")):
            refused(cell.request(method, API + "/" + path), 404,
                    "connector_not_found")
    stored(cell, "a" * 48, SOURCE)
    stored(cell, "0-_", SOURCE)
    for body in b"", b"{", b"{}{}", b'{"kind":"source"} x', b"\xff":
        refused(put(cell, "x", body), 400, "bad_body")
    for body in b"[]", b"null", b'"x"', b"1", b"{}":
        refused(put(cell, "x", body), 400, "invalid_connector")
    fits = json.dumps(SOURCE).ljust(262144)
    assert put(cell, "x", fits).status == 200
    refused(put(cell, "x", fits + " "), 413, "body_too_large")
    assert cell.get(API + "/x").status == 200


def test_a_document_too_large_for_its_row_is_413(new_cell, db):
    cell = new_cell()
    cell.start()
    tables = [{"table": "t%03d_%s" % (i, "x" * 55), "queue": "q" * 128,
               "partitionBy": ["c" * 60]} for i in range(256)]
    detail = refused(put(cell, "x", source(tables=tables)), 413,
                     "document_too_large")
    assert "65536" in detail
    stored(cell, "x", source(tables=tables[:200]))
    small = new_cell(QUEEN_KV_MAX_VALUE_BYTES=300)
    small.start()
    assert "300" in refused(put(small, "y", SOURCE), 413,
                            "document_too_large")
    assert raw(db, "y") is None


def test_the_kind_never_changes_and_writes_do_not_race(cell, db):
    stored(cell, "x", SOURCE)
    detail = refused(put(cell, "x", SINK), 409, "kind_change")
    assert detail.startswith("kind: ")
    assert raw(db, "x")["kind"] == "source"
    call = ("select verdict from queen.connector_put_v1(%s, 'x', %s, %s,"
            " null)")
    version = db.value("select version from queen.connector_list_v1(%s, 'x')",
                       (DEFAULT,))
    text = json.dumps(SOURCE)
    assert db.value(call, (DEFAULT, text, 0)) == 1
    assert db.value(call, (DEFAULT, text, version)) == 0
    assert db.value(call, (DEFAULT, text, version)) == 1
    assert db.value("select queen.connector_delete_v1(%s, 'x', %s, false)",
                    (DEFAULT, version)) == 1
    assert cell.get(API + "/x").status == 200


def test_a_write_that_comes_between_is_a_conflict(cell, db):
    """Many writers of one connector: each answer is the write or 409."""
    import concurrent.futures
    stored(cell, "x", SOURCE)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(
            lambda i: put(cell, "x", source(lingerMs=i)), range(100)))
    won = [r for r in replies if r.status == 200]
    for r in replies:
        if r.status != 200:
            refused(r, 409, "conflict")
    assert won and len({r.body["updatedAt"] for r in won}) == len(won)
    last = max(won, key=lambda r: r.body["updatedAt"]).body
    assert raw(db, "x")["source"]["lingerMs"] == last["source"]["lingerMs"]


@pytest.mark.cellenv(QUEEN_PG_ALLOW_PRIVATE_NETWORKS="False")
def test_private_addresses_are_refused_when_they_are_off(cell, db):
    for host in ("127.0.0.1", "10.1.2.3", "::1", "[fe80::1]", "localhost",
                 "::ffff:192.168.0.1", "64:ff9b::a00:1", "169.254.169.254"):
        detail = refused(put(cell, "x", connection(host=host)), 400,
                         "egress_refused")
        assert detail.startswith("connection.host: ")
        assert "QUEEN_PG_ALLOW_PRIVATE_NETWORKS" in detail
    assert raw(db, "x") is None
    stored(cell, "x", connection(host="8.8.8.8"))
    # one that does not resolve is looked at when it is connected to
    stored(cell, "x", connection(host="no-such-host.invalid"))


def test_private_addresses_are_allowed_by_default(cell):
    assert stored(cell, "x", connection(host="[::1]"))["connection"][
        "host"] == "::1"


@tenants
def test_put_warns_of_what_gets_into_its_way(cell):
    assert "warnings" not in stored(cell, "one", SOURCE)
    body = stored(cell, "two", source(slot="queen_one"))
    assert body["warnings"] == [
        "source.slot: the connector one uses the same slot of the same "
        "database; give each its own"]
    # the host is a name: case does not count, another database does
    assert len(stored(cell, "two", with_(
        source(slot="queen_one"),
        connection=dict(CONNECTION, host="DB1")))["warnings"]) == 1
    assert "warnings" not in stored(cell, "two", with_(
        source(slot="queen_one"),
        connection=dict(CONNECTION, database="shop2")))
    # another tenant's name is not told
    reply = put(cell, "one", SOURCE, **tenant(OTHER))
    assert reply.body["warnings"] == [
        "source.slot: the connector of another tenant uses the same slot of "
        "the same database; give each its own"]
    # a sink into what a source reads into its queue
    body = stored(cell, "copy", sink(table="public.orders"))
    assert [w.split(":")[0] for w in body["warnings"]] == ["sink.table"]
    assert "connector one " in body["warnings"][0]
    body = stored(cell, "one", SOURCE)
    assert [w.split(":")[0] for w in body["warnings"]] == [
        "source.tables", "source.slot"]
    assert "warnings" not in stored(cell, "copy", sink(table="public.orders",
                                                       queue="else"))
    # what an answer adds comes back and is passed over
    assert stored(cell, "two", body | {"name": "two"})


# Reads

@tenants
def test_reads_show_the_callers_connectors_with_their_state(cell, db):
    assert cell.get(API).body == {"connectors": []}
    refused(cell.get(API + "/x"), 404, "connector_not_found")
    for name in "z", "a", "m-1", "m", "m_1":
        stored(cell, name, SINK if name == "m" else SOURCE)
    assert put(cell, "other", SOURCE, **tenant(OTHER)).status == 200
    entries = cell.get(API).body["connectors"]
    assert [e["name"] for e in entries] == ["a", "m", "m-1", "m_1", "z"]
    assert [e["name"] for e in cell.get(API, **tenant(OTHER)).body[
        "connectors"]] == ["other"]
    refused(cell.get(API + "/a", **tenant(OTHER)), 404,
            "connector_not_found")
    for e in entries:
        assert e["status"] == {"phase": "unknown"}
        assert e["state"] == (None if e["name"] == "m" else
                              {"pointer": None, "lease": None})
        assert cell.get(API + "/" + e["name"]).body == e
    state(db, "a", "pointer", {"v": 1, "lsn": "0/1"})
    state(db, "a", "lease", {"node": "n"})
    assert cell.get(API + "/a").body["state"] == {
        "pointer": {"v": 1, "lsn": "0/1"}, "lease": {"node": "n"}}
    # a row that is no connector's is nobody's
    db.rows("insert into queen.kv (tenant, namespace, key, value, version,"
            " created_at, updated_at) select %s, 'queen-pg', k, '1', 1, now(),"
            " now() from unnest(%s) k",
            (NIL, ["conn:%s:Bad Name" % DEFAULT, "conn:x", "other"]))
    assert len(cell.get(API).body["connectors"]) == 5


def test_a_document_of_a_newer_version_is_shown_without_its_password(
        cell, db):
    document = with_(connection(passwordSealed="sealed-text",
                                password="clear", url="postgres://x"),
                     newer={"thing": 1})
    db.rows("select * from queen.connector_put_v1(%s, 'x', %s, 0, null)",
            (DEFAULT, json.dumps(document)))
    body = cell.get(API + "/x").body
    assert body["newer"] == {"thing": 1}
    assert body["connection"] == dict(CONNECTION, passwordSet=True)
    assert "sealed-text" not in json.dumps(body)
    refused(cell.post(API + "/x/resync"), 409, "unreadable_document")
    refused(put(cell, "x", SINK), 409, "kind_change")
    # writing it again by our rules keeps the password
    stored(cell, "x", SOURCE)
    assert raw(db, "x")["connection"]["passwordSealed"] == "sealed-text"
    db.rows("select * from queen.connector_put_v1(%s, 'y', %s, 0, null)",
            (DEFAULT, json.dumps({"kind": "source", "odd": []})))
    assert cell.get(API + "/y").body["odd"] == []
    assert cell.delete(API + "/y").body == {"name": "y", "deleted": True}
    assert raw(db, "y") is None


# DELETE and resync

def test_deletes_remove_a_sink_and_ask_a_source_to_drop_its_slot(cell, db):
    refused(cell.delete(API + "/x"), 404, "connector_not_found")
    stored(cell, "s", SINK)
    assert cell.delete(API + "/s?dropSlot=1").body == {
        "name": "s", "deleted": True}
    assert raw(db, "s") is None
    stored(cell, "x", SOURCE)
    refused(cell.delete(API + "/x?dropSlot=maybe"), 400, "bad_request")
    refused(cell.delete(API + "/x?dropSlot="), 400, "bad_request")
    first = cell.delete(API + "/x")
    assert first.status == 202 and first.body["deleting"] is True
    assert set(first.body) == {"name", "deleting", "detail"}
    asked = raw(db, "x")
    assert asked["deleting"]["dropSlot"] is True
    assert asked["updatedAt"] == asked["deleting"]["requestedAt"]
    # again: the same answer, nothing is written
    assert cell.delete(API + "/x?dropSlot=true").status == 202
    assert raw(db, "x") == asked
    refused(cell.post(API + "/x/resync"), 409, "deleting")
    # an edit takes it back
    stored(cell, "x", SOURCE)
    assert "deleting" not in raw(db, "x")


def test_delete_without_the_slot_says_what_stays(cell, db):
    stored(cell, "my-src", SOURCE)
    for part in "pointer", "lease":
        state(db, "my-src", part, {"v": 1})
        state(db, "my-src2", part, {"v": 1})
    report(db, "my-src", phase="streaming")
    reply = cell.delete(API + "/my-src?dropSlot=false")
    assert reply.status == 200 and reply.body["deleted"] is True
    assert "pg_drop_replication_slot('queen_my_src')" in reply.body["warning"]
    assert 'DROP PUBLICATION IF EXISTS "queen_my_src"' in \
        reply.body["warning"]
    assert [r[0] for r in db.rows("select key from queen.kv order by 1")] == [
        "src:my-src2:lease", "src:my-src2:pointer"]
    assert db.value("select count(*) from queen.connector_status") == 0
    stored(cell, "y", source(slot="own_slot", managePublication=False))
    warning = cell.delete(API + "/y?dropSlot=0").body["warning"]
    assert "'own_slot'" in warning and "PUBLICATION" not in warning


def test_resync_marks_a_source_and_survives_an_edit(cell, db):
    refused(cell.post(API + "/x/resync"), 404, "connector_not_found")
    stored(cell, "x", SOURCE)
    before = raw(db, "x")["updatedAt"]
    reply = cell.post(API + "/x/resync")
    assert reply.status == 202
    at = reply.body["resyncRequestedAt"]
    assert reply.body == {"name": "x", "resyncRequestedAt": at}
    assert raw(db, "x")["resyncRequestedAt"] == at > before
    body = stored(cell, "x", source(lingerMs=0))
    assert body["resyncRequestedAt"] == at
    assert cell.post(API + "/x/resync").body["resyncRequestedAt"] > at
    refused(cell.post(API + "/x/resync", {"from": "end"}), 400, "bad_request")


def test_adopt_and_reset_name_the_cell_and_survive_an_edit(cell, db):
    refused(cell.post(API + "/x/adopt"), 404, "connector_not_found")
    tag = db.value("select lpad(to_hex(tag), 12, '0') from queen.cell")
    for name, document in ("x", SOURCE), ("y", SINK):
        stored(cell, name, document)
        report(db, name, phase="error", error={"code": "cell_changed"})
        for action in "adopt", "reset":
            reply = cell.post("%s/%s/%s" % (API, name, action))
            assert reply.status == 202
            at = reply.body["requestedAt"]
            assert reply.body == {"name": name, "cell": tag,
                                  "requestedAt": at}
            asked = {"action": action, "cell": tag, "requestedAt": at}
            assert raw(db, name)["takeover"] == asked
            body = stored(cell, name, dict(document, takeover=7))
            assert body["takeover"] == asked
    # once it is obeyed, an edit takes the word away
    report(db, "y", phase="running", error=None)
    assert "takeover" not in stored(cell, "y", SINK)
    assert cell.delete(API + "/x").status == 202
    refused(cell.post(API + "/x/reset"), 409, "deleting")


def test_a_word_that_nothing_calls_for_is_refused(cell, db):
    """It would come into force some day, by itself."""
    tag = db.value("select lpad(to_hex(tag), 12, '0') from queen.cell")
    for name, document in ("src", SOURCE), ("snk", SINK):
        stored(cell, name, document)
    state(db, "src", "pointer", {"v": 1, "cell": tag})
    for say in (lambda: None,
                lambda: report(db, "snk", phase="running", error=None,
                               lastError={"code": "cell_changed"}),
                lambda: report(db, "snk", phase="error",
                               error={"code": "no_key"})):
        say()
        for path in "/src/adopt", "/src/reset", "/snk/adopt", "/snk/reset":
            detail = refused(cell.post(API + path), 409, "nothing_to_decide")
            assert "there is nothing to " + path[5:] in detail
    assert "takeover" not in raw(db, "src")
    assert "takeover" not in raw(db, "snk")
    # of a source the pointer tells, while it is paused too
    state(db, "src", "pointer", {"v": 1, "cell": "feedfeedfeed"})
    assert cell.post(API + "/src/adopt").status == 202


def test_resync_of_a_sink_moves_its_group(cell):
    cell.push("orders", [1, 2], partition="p")
    stored(cell, "s", SINK)
    refused(cell.post(API + "/s/resync"), 400, "not_a_source")
    refused(cell.post(API + "/s/resync", {"from": "then"}), 400,
            "bad_request")
    refused(cell.post(API + "/s/resync", {"form": "end"}), 400, "bad_body")
    got = cell.pop("orders", group="pg-s", subscriptionMode="all")
    assert cell.ack(got, group="pg-s")
    assert [m["data"] for m in got] == [1, 2]
    assert cell.pop("orders", group="pg-s", wait="false") == []
    reply = cell.post(API + "/s/resync", {"from": "beginning"})
    assert (reply.status, reply.body) == (202, {"name": "s",
                                                "partitionsUpdated": 1})
    again = wait_until(lambda: cell.pop("orders", group="pg-s"))
    assert [m["data"] for m in again] == [1, 2]
    assert cell.post(API + "/s/resync", {"from": "end"}).status == 202
    stored(cell, "t", sink(queue="none"))
    refused(cell.post(API + "/t/resync", {"from": "end"}), 404,
            "queue_not_found")


def test_the_group_of_a_sink_is_not_moved_behind_its_back(cell):
    groups = "/api/v1/consumer-groups"
    cell.push("orders", [1], partition="p")
    cell.push("other", [1], partition="p")
    stored(cell, "s", SINK)
    stored(cell, "t", sink(consumerGroup="mine"))
    seek = groups + "/%s/queues/%s/seek"
    for group, name in ("pg-s", "s"), ("mine", "t"):
        for reply in (
                cell.post(seek % (group, "orders"), {"toEnd": True}),
                cell.post(groups + "/%s/queues/orders/partitions/p/seek"
                          % group, {"toEnd": True}),
                cell.delete(groups + "/%s" % group),
                cell.delete(groups + "/%s/queues/orders" % group)):
            detail = refused(reply, 409, "connector_group")
            assert "connectors/%s/resync" % name in detail
    assert cell.post(seek % ("pg-s", "other"), {"toEnd": True}).status == 200
    assert cell.post(seek % ("pg-x", "orders"),
                     {"toEnd": True}).status == 200
    assert cell.delete(groups + "/pg-s/queues/other").status == 200
    cell.delete(API + "/t")
    assert cell.post(seek % ("mine", "orders"), {"toEnd": True}).status == 200


# Who may

@tenants
def test_the_internal_tenant_is_refused_on_every_route(cell):
    for method, path in (("GET", ""), ("GET", "/x"), ("PUT", "/x"),
                         ("DELETE", "/x"), ("POST", "/x/resync"),
                         ("POST", "/x/adopt"), ("POST", "/x/reset")):
        reply = cell.request(method, API + path,
                             SOURCE if method == "PUT" else None,
                             **tenant(NIL))
        assert (reply.status, reply.body["error"]) == (403, "forbidden")


def test_without_a_database_the_answer_is_unavailable(cell, pg):
    stored(cell, "x", SOURCE)
    pg.stop("immediate")
    try:
        for call in (lambda: cell.get(API), lambda: cell.get(API + "/x"),
                     lambda: put(cell, "x", SOURCE),
                     lambda: cell.delete(API + "/x"),
                     lambda: cell.post(API + "/x/resync")):
            refused(wait_until(lambda: call()), 503, "unavailable")
        status = cell.get("/status")
        assert (status.status, status.body["pg"]) == (
            200, {"mode": "process", "connectors": None})
    finally:
        pg.start()


# What the tools report

def test_status_is_the_owners_then_the_freshest_and_never_old(cell, db):
    stored(cell, "x", SOURCE)

    def shown():
        return cell.get(API + "/x").body["status"].get("owner")

    assert shown() is None
    report(db, "x", "b", age_s=31)
    assert shown() is None
    report(db, "x", "b", age_s=20)
    assert shown() == "b"
    report(db, "x", "c", age_s=10)
    assert shown() == "c"
    state(db, "x", "lease", {"node": "b"})
    assert shown() == "b"
    report(db, "x", "b", age_s=40)
    assert shown() == "c"
    db.rows("select queen.connector_status_drop_v1('c', %s::uuid[], %s)",
            ([DEFAULT], ["x"]))
    assert cell.get(API + "/x").body["status"] == {"phase": "unknown"}


@tenants
def test_status_of_the_process_lists_the_callers_connectors(cell, db):
    empty = cell.get("/status").body
    assert empty["pg"] == {"mode": "process", "connectors": []}
    stored(cell, "x", SOURCE)
    stored(cell, "y", SINK)
    report(db, "x", phase="streaming")
    report(db, "gone", phase="streaming")
    assert cell.get("/status").body["pg"]["connectors"] == [
        {"name": "x", "owner": "a", "phase": "streaming"},
        {"tenant": DEFAULT, "name": "y", "kind": "sink", "phase": "unknown"}]
    assert cell.get("/status", **tenant(OTHER)).body["pg"][
        "connectors"] == []


def families(cell):
    text = cell.get("/metrics/prometheus").body.decode()
    return [line for line in text.splitlines() if "queen_pg_" in line]


@tenants
def test_metrics_of_connectors(cell, db):
    assert families(cell) == []
    stored(cell, "x", SOURCE)
    assert put(cell, "x", SINK, **tenant(OTHER)).status == 200
    lag, lsn = "queen_pg_source_slot_lag_bytes", "queen_pg_source_pointer_lsn"
    total = "queen_pg_connector_errors_total"
    report(db, "x", "a", metrics={total: 2, lag: 7, lsn: 2 ** 64 - 1,
                                  "queen_pg_made_up": 1, "text": "x"})
    report(db, "x", "b", metrics={total: 3, lag: 9}, age_s=31)
    report(db, "x", "a", who=OTHER, kind="sink", metrics={
        total: 1, "queen_pg_sink_applied_total": 5})
    report(db, "gone", metrics={total: 9})
    assert families(cell) == [
        "# HELP %s WAL of the source behind what it may discard." % lag,
        "# TYPE %s gauge" % lag,
        '%s{connector="x"} 7' % lag,
        "# HELP %s Position up to which the queue holds the source." % lsn,
        "# TYPE %s gauge" % lsn,
        '%s{connector="x"} %d' % (lsn, 2 ** 64 - 1),
        "# HELP queen_pg_sink_applied_total Messages applied to the target.",
        "# TYPE queen_pg_sink_applied_total counter",
        'queen_pg_sink_applied_total{tenant="%s",connector="x"} 5' % OTHER,
        "# HELP %s Errors of connectors." % total,
        "# TYPE %s counter" % total,
        # counters live on while a node is away
        '%s{connector="x"} 5' % total,
        '%s{tenant="%s",connector="x"} 1' % (total, OTHER)]
    assert cell.delete(API + "/x?dropSlot=0").status == 200
    assert [f for f in families(cell) if "tenant" not in f
            and f[0] != "#"] == []


@tenants
def test_a_purge_ends_the_connectors_of_its_tenant(cell, db):
    for who in OTHER, DEFAULT:
        assert put(cell, "x", SOURCE, **tenant(who)).status == 200
        state(db, "x", "pointer", {"v": 1}, who)
        report(db, "x", who=who)
    reply = cell.delete("/api/v1/resources/tenant", **tenant(OTHER))
    assert reply.body["done"] is True
    assert reply.body["rows"]["queen.connector_status"] == 1
    assert reply.body["rows"]["queen.kv"] == 2
    assert cell.get(API, **tenant(OTHER)).body == {"connectors": []}
    assert len(cell.get(API).body["connectors"]) == 1
    assert db.value("select count(*) from queen.connector_status") == 1


def test_a_seal_opens_in_its_place_alone(new_cell, db):
    """Another key seals again; the old text is another's."""
    one = new_cell(QUEEN_ENCRYPTION_KEY=K1)
    one.start()
    stored(one, "x", connection(password="p"))
    first = raw(db, "x")["connection"]["passwordSealed"]
    stored(one, "x", connection(password="p"))
    assert raw(db, "x")["connection"]["passwordSealed"] != first
    one.term()
    two = new_cell(QUEEN_ENCRYPTION_KEY=K2, QUEEN_ENCRYPTION_OLD_KEYS=K1)
    two.start()
    stored(two, "x", connection(password="p"))
    box = base64.b64decode(raw(db, "x")["connection"]["passwordSealed"])
    assert box[1] == key_id(K2)


def test_every_code_and_phase_stands_on_the_page():
    with open(os.path.join(queenlib.ROOT, "man", "queen-connector.5")) as f:
        words = set(re.findall(r"\w+", f.read()))
    found = set()
    for folder in "bin/queen-pgsrc", "bin/queen-pgsink", "lib":
        for path in glob.glob(os.path.join(queenlib.ROOT, folder, "*.c")):
            with open(path) as f:
                text = f.read()
            found.update(re.findall(
                r'connfault_set\(\s*[^,;"]*,\s*"(\w+)"', text))
            found.update(re.findall(
                r'connchild_phase\(\s*[^,;"]*,\s*"(\w+)"', text))
            found.update(re.findall(r'start_say\(\s*s, "(\w+)"', text))
    assert found - words == set()
    assert {"slot_lost", "replica_identity", "connecting",
            "waiting_for_slot", "no_key", "postgres"} <= found
