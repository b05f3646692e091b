# SPDX-License-Identifier: Apache-2.0
"""The routes of the S3 sinks of tenants: what is refused and why, what is
stored and shown, and that no secret is ever seen again."""
import json

import pytest

from queenlib import wait_until
from sealkit import K1, assert_not_in_the_database, keyed

NIL = "00000000-0000-0000-0000-000000000000"
DEFAULT = "00000000-0000-0000-0000-000000000001"
A, B = ("00000000-0000-0000-0000-0000000000%s" % x for x in ("aa", "bb"))
SECRET = "Wirsing/Kohl+4711=="
DOC = {"queues": "orders", "endpoint": "https://s3.test", "region": "r1",
       "bucket": "lake", "accessKey": "AK"}
FIRST = dict(DOC, secretKey=SECRET)
tenants = pytest.mark.cellenv(QUEEN_TENANCY_HEADER="true",
                              QUEEN_KV_TRUSTED_PROXY="true",
                              QUEEN_ENCRYPTION_KEY=K1)


def path(who="default"):
    return "/api/cp/clusters/%s/s3" % who


def put(cell, document, who="default", **kw):
    return cell.request("PUT", path(who), document, **kw)


def stored(cell, document, who="default", **kw):
    reply = put(cell, document, who, **kw)
    assert reply.status == 200, reply
    return reply.body


def refused(reply, status, code):
    assert (reply.status, reply.body["error"]) == (status, code), reply
    assert set(reply.body) == {"error", "detail"}
    return reply.body["detail"]


def as_(who):
    return {"headers": {"x-queen-tenant": who}}


def row(db, who=DEFAULT):
    found = db.rows("select value from queen.kv where tenant = %s and"
                    " namespace = 'queen-s3' and key = %s",
                    (NIL, "sink:" + who))
    return found[0][0] if found else None


@keyed
def test_a_sink_is_stored_shown_and_removed_without_its_secret(cell, db):
    assert refused(cell.get(path()), 404, "s3_unset") == \
        "this cluster has no S3 sink"
    document = dict(
        DOC, queues=["orders", "clicks"], prefix="a/b", pathStyle=True,
        sse="aws:kms", sseKmsKeyId="key-1", format="parquet",
        compression="gzip", parquetCodec="snappy", layout="per-partition",
        align="day", start="timestamp:2026-01-02T03:04:05Z", targetMb=64,
        maxWindowMs="60000", sink="lake")
    view = stored(cell, dict(document, secretKey=SECRET, enabled=None))
    at = view.pop("updatedAt")
    assert view == {"cluster": "default", "tenant": DEFAULT, "enabled": True,
                    "config": document, "secretKeySet": True}
    assert cell.get(path()).body == dict(view, updatedAt=at)
    first = row(db)
    assert set(first) == {"cluster", "enabled", "config", "secret"}
    # without secret and without change nothing is written
    assert stored(cell, document)["updatedAt"] == at
    assert stored(cell, dict(document, secretKey=None))["updatedAt"] == at
    # the same secret again is written again: so a rotated one is noticed
    view = stored(cell, dict(document, secretKey=SECRET))
    assert view["updatedAt"] > at
    second = row(db)
    assert second.pop("secret") != first.pop("secret") and second == first
    # a change keeps the secret
    at, sealed = view["updatedAt"], row(db)["secret"]
    view = stored(cell, dict(DOC, enabled=False))
    assert (view["enabled"], view["config"]) == (False, DOC)
    assert view["updatedAt"] > at and row(db)["secret"] == sealed
    for removed in True, False:
        reply = cell.delete(path())
        assert (reply.status, reply.body) == (
            200, {"cluster": "default", "removed": removed})
    refused(cell.get(path()), 404, "s3_unset")
    # the one that was removed took its secret along
    assert refused(put(cell, DOC), 400, "invalid") == \
        "secretKey: must come with the first write of a sink"
    assert row(db) is None
    stored(cell, FIRST)
    assert_not_in_the_database(db, SECRET)
    assert SECRET not in cell.log_text()


@keyed
def test_what_is_refused_names_its_field_and_is_not_stored(cell, db):
    at = stored(cell, FIRST)["updatedAt"]
    other = dict(FIRST, bucket="other")
    text = json.dumps(other)
    for body, words in (
            (dict(other, endpoint="s3.test"), "endpoint"),
            (dict(other, endpoint="https://s3.test/x"), "endpoint"),
            (dict(other, bucket="a/b"), "bucket"),
            (dict(other, region=None), "region"),
            (dict(other, accessKey=" "), "accessKey"),
            (dict(other, prefix="a//b"), "prefix"),
            (dict(other, queues=[]), "queues"),
            (dict(other, queues=["a", 1]), "queues"),
            (dict(other, queues=["a", "*"]), "queues"),
            (dict(other, targetMb="x"), "targetMb"),
            (dict(other, maxWindowMs=99), "maxWindowMs"),
            (dict(other, pathStyle="maybe"), "pathStyle"),
            (dict(other, format="csv"), "format"),
            (dict(other, sseKmsKeyId="k"), "sseKmsKeyId"),
            (dict(other, sink="a b"), "sink"),
            (dict(other, start="yesterday"), "start"),
            (dict(other, enabled="yes"), "enabled: is not a boolean"),
            (dict(other, secretKey=""), "secretKey: is not a string of 1 to"),
            (dict(other, secretKey="s" * 4097), "secretKey: "),
            (dict(other, secretKey="a\0b"), "secretKey: "),
            (dict(other, secretKey=[SECRET]), "secretKey: "),
            (dict(other, secret=SECRET),
             "secret is no field of the settings: the secret goes beside"),
            (dict(other, secretAccessKey=SECRET), "secretAccessKey is no "),
            (dict(other, partitions="q:0..1"), "partitions is no field; "),
            (dict(other, memoryMb=1), "QUEEN_S3_MEMORY_MB sets it"),
            (dict(other, region="r\0"), "a text that is none"),
            (text[:-1] + ', "buc\\u006bet": "x"}', 'bucket="other" is there twice'),
            (text[:-1] + ', "secretKey": "t"}', "secretKey: is there twice"),
            (text[:-1] + ', "enabled": true, "enabled": false}',
             "enabled: is there twice"),
            (text[:-1] + ', "\\ud800": 1}', "the body is not JSON"),
            (text + "1", "the body is not JSON: trailing data"),
            (text[:-1], "the body is not JSON"),
            ("[1]", "the settings are an object, not a list"),
            ("null", "the settings are an object, not null"),
            ("", "the settings are an object, not nothing"),
            # the space behind each comma counts, which the database adds
            (json.dumps(dict(other, queues=["a%05d" % i for i in
                                            range(3300)]),
                        separators=(",", ":")), "have more than 32768 bytes")):
        reply = put(cell, body.encode() if isinstance(body, str) else body)
        detail = refused(reply, 400, "invalid")
        assert words in detail, (body, detail)
        assert SECRET not in detail and "QUEEN_S3_BUCKET" not in detail
    assert refused(put(cell, dict(other, region="r" * 65536)), 413,
                   "invalid") == "a sink has at most 65536 bytes"
    view = cell.get(path()).body
    assert (view["updatedAt"], view["config"]) == (at, DOC)
    # as much as there may be; what is kept is what was allowed
    many = dict(DOC, queues=["a%05d" % i for i in range(2900)])
    assert stored(cell, many)["config"] == many
    assert SECRET not in cell.log_text()


def test_without_a_key_no_secret_is_stored(cell, db):
    assert "QUEEN_ENCRYPTION_KEY" in refused(
        put(cell, FIRST), 409, "encryption_required")
    assert row(db) is None
    # the document is judged first
    refused(put(cell, dict(FIRST, bucket="")), 400, "invalid")
    assert "secretKey: must come" in refused(put(cell, DOC), 400, "invalid")


@keyed
def test_clusters_without_tenants(cell):
    for who in DEFAULT, "default":
        assert stored(cell, FIRST, who)["cluster"] == who
    for who, status, code in ((A, 409, "system_tenant"),
                              (NIL, 409, "system_tenant"),
                              ("acme", 404, "cluster_unknown"),
                              (A[:-1], 404, "cluster_unknown")):
        for reply in (cell.get(path(who)), put(cell, FIRST, who),
                      cell.delete(path(who)),
                      cell.post(path(who) + "/resume", {"queue": "q"})):
            refused(reply, status, code)


@tenants
def test_a_tenant_sees_its_own_sink_alone(cell, db):
    view = stored(cell, FIRST, A, **as_(A))
    assert (view["cluster"], view["tenant"]) == (A, A)
    # who runs the cell names any of them, by either spelling of the id
    assert cell.get(path(A.upper())).body == view
    stored(cell, dict(FIRST, bucket="b"), B)
    cell.post("/api/v1/configure", {"queue": "q"}, **as_(B))
    for reply in (cell.get(path(B), **as_(A)), put(cell, FIRST, B, **as_(A)),
                  cell.delete(path(B), **as_(A)),
                  cell.get(path(), **as_(A)),
                  cell.post(path(B) + "/resume", {"queue": "q"}, **as_(A))):
        refused(reply, 404, "cluster_unknown")
    refused(cell.post(path(A) + "/resume", {"queue": "q"}, **as_(A)), 404,
            "queue_unknown")
    refused(cell.get(path()), 404, "s3_unset")
    refused(cell.get(path(NIL)), 409, "system_tenant")
    assert row(db, B)["config"]["bucket"] == "b"
    # the rows are out of reach of key/value calls, whoever asks
    for headers in {}, as_(A), as_(B):
        assert cell.get("/api/v1/kv/queen-s3/sink:" + A,
                        **headers).body["found"] is False
    assert cell.delete(path(A), **as_(A)).body["removed"] is True
    assert row(db, B) is not None


@keyed
def test_resume_leaves_a_word_for_the_one_who_holds_the_queue(cell, db):
    at = path() + "/resume"

    def said(queue, sink="default"):
        value = db.value(
            "select value from queen.kv where tenant = %s and namespace ="
            " 'queen-s3' and key = %s", (DEFAULT, "s3:%s:%s:resume"
                                         % (sink, queue)))
        assert value.pop("atMs") > 10**12
        return value
    long = "€" * 60
    for name in "q", "a/b", long:
        cell.post("/api/v1/configure", {"queue": name})
    for body, queue, sink, want in (
            ({"queue": "q"}, "q", "default", {"resume": "newest"}),
            ({"queue": "q", "sink": None, "prefix": "new/lake"}, "q",
             "default", {"resume": "prefix", "prefix": "new/lake"}),
            ({"queue": "a/b", "sink": "lake", "prefix": None}, "a%2Fb",
             "lake", {"resume": "newest"})):
        reply = cell.post(at, body)
        assert (reply.status, reply.body) == (
            200, {"cluster": "default", "requested": True})
        assert said(queue, sink) == want
    for body, status, code, words in (
            ({"queue": "none"}, 404, "queue_unknown", "no such queue"),
            ({"queue": "q", "sink": "a b"}, 404, "queue_unknown", "a sink"),
            ({"queue": "q", "prefix": "a//b"}, 400, "invalid", "prefix: "),
            ({"queue": "q", "prefix": ""}, 400, "invalid", "prefix: "),
            ({"queue": "q", "prefix": 1}, 400, "invalid", "prefix: "),
            ({"queue": "q", "newest": True}, 400, "invalid", "newest: "),
            ({"queue": long}, 400, "invalid", "queue: "),
            ([1], 400, "invalid", "not an object"),
            (b'{"queue": "q"', 400, "invalid", "the body is not JSON")):
        assert words in refused(cell.post(at, body), status, code)
    reply = cell.post(at, {})
    assert reply.status == 400 and "queue" in json.dumps(reply.body)


@keyed
def test_without_a_database_the_answer_is_unavailable(cell, pg):
    at = stored(cell, FIRST)["updatedAt"]
    pg.stop("immediate")
    try:
        for call in (lambda: cell.get(path()), lambda: put(cell, FIRST),
                     lambda: cell.delete(path()),
                     lambda: cell.post(path() + "/resume", {"queue": "q"})):
            refused(wait_until(lambda: call()), 503, "unavailable")
    finally:
        pg.start()
    view = wait_until(lambda: (r := cell.get(path())).status == 200 and r.body)
    assert view["updatedAt"] == at
    assert SECRET not in cell.log_text()
