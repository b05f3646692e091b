# SPDX-License-Identifier: Apache-2.0
"""The bucket the other tests stand on behaves like S3, and the gate in front
of it refuses and fails as it says."""
import base64
import hashlib
import re
import time
import urllib.parse

import pytest

import s3kit
from s3kit import S3Error, authorization, request

PART = 5 << 20


def md5(body):
    return base64.b64encode(hashlib.md5(body).digest()).decode()


def code(reply):
    found = re.search(rb"<Code>(\w+)</Code>", reply.body)
    return found and found[1].decode()


def tag(reply):
    return reply.headers["etag"].strip('"')


def complete(*tags):
    return ("<CompleteMultipartUpload>%s</CompleteMultipartUpload>" % "".join(
        "<Part><PartNumber>%d</PartNumber><ETag>&quot;%s&quot;</ETag></Part>"
        % (n + 1, t) for n, t in enumerate(tags))).encode()


def test_objects_behave_as_in_s3(bucket, new_gate):
    """Acceptance 153: names, digests, absent ones, pages of a list."""
    gate = new_gate(bucket)

    def call(method, key="", query=(), body=b"", **headers):
        return request(gate.endpoint, method, "/%s/%s" % (bucket.name, key),
                       query, body, {k.replace("_", "-"): v
                                     for k, v in headers.items()})
    key = "a/dt=2026-01-01/é &+%41.x"
    reply = call("PUT", key, body=b"hello", content_md5=md5(b"hello"))
    assert (reply.status, tag(reply)) == (200, hashlib.md5(
        b"hello").hexdigest())
    assert call("GET", key).body == b"hello"
    reply = call("HEAD", key)
    assert (reply.status, reply.headers["content-length"], reply.body) == (
        200, "5", b"")
    reply = call("PUT", key, body=b"bye", content_md5=md5(b"hello"))
    assert (reply.status, code(reply)) == (400, "BadDigest")
    assert (call("HEAD", "none").status, call("HEAD", "none").body) == (
        404, b"")
    reply = call("GET", "none")
    assert (reply.status, code(reply)) == (404, "NoSuchKey")
    for n in range(5):
        assert call("PUT", "b/%d" % n, body=b"").status == 200
    pages, after = [], ""
    while True:
        body = call("GET", query={"list-type": "2", "max-keys": "2",
                                  "prefix": "b/", "start-after": after}).body
        pages.append(re.findall(rb"<Key>(.*?)</Key>", body))
        if b"<IsTruncated>true" not in body:
            break
        after = pages[-1][-1].decode()
    assert pages == [[b"b/0", b"b/1"], [b"b/2", b"b/3"], [b"b/4"]]
    assert len(gate.refused()) == 1


def test_uploads_in_parts_behave_as_in_s3(bucket, new_gate):
    """Acceptance 153: the tag of parts, too small a part, a part that is not
    there, an upload that is gone; answers that are lost and false."""
    gate = new_gate(bucket)
    key, path = "m/x", "/%s/m/x" % bucket.name

    def call(method, query, body=b""):
        return request(gate.endpoint, method, path, query, body)

    def upload():
        return re.search(rb"<UploadId>(.*?)</UploadId>", call(
            "POST", {"uploads": ""}).body)[1].decode()

    def part(n, body, uid):
        return tag(call("PUT", {"partNumber": str(n), "uploadId": uid}, body))

    big, end = b"a" * PART, b"end"
    uid = upload()
    tags = [part(1, big, uid), part(2, end, uid)]
    assert bucket.uploads() == [key] and bucket.keys() == []
    reply = call("POST", {"uploadId": uid}, complete(tags[0], tags[0]))
    assert (reply.status, code(reply)) == (400, "InvalidPart")
    # the answer says no while nothing was done, then it does not come
    gate.fault("false:@1:POST:uploadId=", "lost:@2:POST:uploadId=")
    reply = call("POST", {"uploadId": uid}, complete(*tags))
    assert (reply.status, code(reply)) == (200, "InternalError")
    assert bucket.keys() == []
    with pytest.raises(OSError):
        call("POST", {"uploadId": uid}, complete(*tags))
    gate.clear()
    entry, = bucket.list()
    assert entry.etag == hashlib.md5(b"".join(
        bytes.fromhex(t) for t in tags)).hexdigest() + "-2"
    assert bucket.get(key) == big + end and bucket.uploads() == []
    uid = upload()
    tags = [part(1, end, uid), part(2, big, uid)]
    reply = call("POST", {"uploadId": uid}, complete(*tags))
    assert (reply.status, code(reply)) == (400, "EntityTooSmall")
    assert call("DELETE", {"uploadId": uid}).status == 204
    reply = call("POST", {"uploadId": uid}, complete(*tags))
    assert (reply.status, code(reply)) == (404, "NoSuchUpload")
    assert bucket.get(key) == big + end


def test_faults_come_as_they_are_asked_for(bucket, new_gate, monkeypatch):
    """And a signature that is not right is refused."""
    gate = new_gate(bucket, "500:@2:PUT")
    path = "/%s/k" % bucket.name

    def put():
        return request(gate.endpoint, "PUT", path, body=b"1")

    assert [put().status for _ in range(3)] == [200, 500, 200]
    gate.retry_after(7)
    gate.fault("503:@1")
    reply = put()
    assert (reply.status, code(reply), reply.headers["retry-after"]) == (
        503, "SlowDown", "7")
    gate.clear()
    gate.skew(1000)
    assert code(put()) == "RequestTimeTooSkewed"
    gate.skew(0)
    for fault in "drop:1", "lost:1":
        gate.fault(fault)
        with pytest.raises(OSError):
            put()
        gate.clear()
    gate.fault("cut:1:GET")
    bucket.put("k", b"x" * 100)
    with pytest.raises(Exception, match="IncompleteRead"):
        request(gate.endpoint, "GET", path)
    gate.clear()
    gate.stall_for(0.2)
    gate.fault("stall:1")
    start = time.monotonic()
    assert request(gate.endpoint, "GET", path).body == b"x" * 100
    assert time.monotonic() - start >= 0.2
    gate.clear()
    # what was signed is not what is sent
    monkeypatch.setattr(s3kit, "authorization", lambda m, p, *rest:
                        authorization(m, urllib.parse.unquote(p) + "?", *rest))
    assert code(put()) == "SignatureDoesNotMatch"
    with pytest.raises(S3Error):
        bucket.call("GET")
