# SPDX-License-Identifier: Apache-2.0
"""
Buckets for the tests of queen-s3, on a real S3 server.

s3_server   the server of this worker (S3Server), started when first asked
new_bucket  new_bucket() -> a fresh Bucket on it
bucket      one of them
new_gate    new_gate(bucket, "503:3:PUT", ...) -> a Gate in front of it, which
            checks every signature and makes the faults asked for (tests/s3/gate
            --help); faults can be changed while it runs

Bucket and Gate have env(), what queen-s3 is told of them, and document(), the
same as the members of a tenant's document.  What a bucket holds is read by a
client that shares nothing with the product.
"""
import base64
import collections
import contextlib
import datetime
import hashlib
import hmac
import http.client
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import xml.etree.ElementTree as tree

import pytest

import queenlib
from queenlib import DEADLINE_S, wait_until

S3 = os.path.join(queenlib.ROOT, "tests", "s3")
ACCESS, SECRET, REGION = "AKIDQUEENTEST", "s3cret/S3+Key", "us-east-1"

Entry = collections.namedtuple("Entry", "key size etag")
Line = collections.namedtuple("Line", "method target status code fault")


class S3Error(Exception):
    def __init__(self, reply):
        super().__init__("%d %s" % (reply.status, reply.body[:300]))
        self.status = reply.status


# ---- signed requests ----

def quote(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-._~")


def authorization(method, path, query, headers, digest, when):
    """Path and query as they are sent; every header is signed."""
    names = ";".join(sorted(headers))
    request = "\n".join(
        [method, path, query,
         "".join("%s:%s\n" % (n, headers[n]) for n in sorted(headers)),
         names, digest])
    scope = "%s/%s/s3/aws4_request" % (when[:8], REGION)
    to_sign = "\n".join(["AWS4-HMAC-SHA256", when, scope,
                         hashlib.sha256(request.encode()).hexdigest()])
    key = ("AWS4" + SECRET).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return "AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%s" % (
        ACCESS, scope, names,
        hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest())


def request(endpoint, method, path, query=(), body=b"", headers=None):
    """One signed request; path is not encoded yet."""
    host = urllib.parse.urlsplit(endpoint).netloc
    path = quote(path, "/")
    query = "&".join("%s=%s" % (quote(k), quote(v))
                     for k, v in sorted(dict(query).items()))
    when = datetime.datetime.now(datetime.timezone.utc).strftime(
        "%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-date": when,
               "x-amz-content-sha256": digest, **(headers or {})}
    headers["authorization"] = authorization(method, path, query, headers,
                                             digest, when)
    conn = http.client.HTTPConnection(host, timeout=DEADLINE_S)
    try:
        conn.request(method, path + ("?" + query if query else ""),
                     body, headers)
        got = conn.getresponse()
        return queenlib.Reply(got.status, got.headers, got.read())
    finally:
        conn.close()


# ---- the server ----

def home():
    """A folder on a file system that keeps user.* attributes."""
    for parent in tempfile.gettempdir(), queenlib.BUILD:
        path = tempfile.mkdtemp(prefix="queen-s3-", dir=parent)
        with contextlib.suppress(OSError):
            os.setxattr(path, b"user.queen.check", b"1")
            return path
        os.rmdir(path)
    raise AssertionError("no file system with user.* attributes")


class S3Server:
    def __init__(self):
        self.dir = home()
        self.log = os.path.join(self.dir, "log")
        self.serial = 0
        done = subprocess.run(
            [os.path.join(S3, "server"), "start", self.dir, "0", ACCESS,
             SECRET], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        if done.returncode != 0:
            shutil.rmtree(self.dir, ignore_errors=True)
            raise AssertionError("the S3 server did not start: "
                                 + done.stderr)
        self.endpoint = done.stdout.strip()

    def new_bucket(self):
        self.serial += 1
        return Bucket(self.endpoint, "lake%d" % self.serial)

    def close(self):
        """Ends exactly the process that was started."""
        subprocess.run([os.path.join(S3, "server"), "stop", self.dir],
                       stdin=subprocess.DEVNULL, timeout=60, check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


def facts(endpoint, name):
    return {"endpoint": endpoint, "region": REGION, "bucket": name,
            "accessKey": ACCESS, "pathStyle": True}


def env_of(endpoint, name):
    return {"QUEEN_S3_ENDPOINT": endpoint, "QUEEN_S3_REGION": REGION,
            "QUEEN_S3_BUCKET": name, "QUEEN_S3_ACCESS_KEY": ACCESS,
            "QUEEN_S3_SECRET_KEY": SECRET, "QUEEN_S3_PATH_STYLE": "true"}


class Bucket:
    def __init__(self, endpoint, name):
        self.endpoint, self.name = endpoint, name
        self.kept = {}
        self.call("PUT")

    def env(self):
        return env_of(self.endpoint, self.name)

    def document(self):
        """Without the secret, which travels beside it (SECRET)."""
        return facts(self.endpoint, self.name)

    def call(self, method, key="", query=(), body=b"", headers=None):
        """The reply, if it is a success."""
        path = "/" + self.name + ("/" + key if key else "")
        reply = request(self.endpoint, method, path, query, body, headers)
        if reply.status >= 300:
            raise S3Error(reply)
        return reply

    def get(self, key):
        """The bytes of an object, None when there is none."""
        try:
            return self.call("GET", key).body
        except S3Error as e:
            if e.status != 404:
                raise
            return None

    def read(self, entry):
        """The bytes of what was listed, asked for again if its ETag changed;
        None when it is gone."""
        etag, body = self.kept.get(entry.key, (None, None))
        if etag != entry.etag:
            try:
                reply = self.call("GET", entry.key)
            except S3Error as e:
                if e.status != 404:
                    raise
                return None
            body = reply.body
            self.kept[entry.key] = reply.headers["etag"].strip('"'), body
        return body

    def put(self, key, body):
        md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
        self.call("PUT", key, body=body, headers={"content-md5": md5})

    def delete(self, key):
        self.call("DELETE", key)

    def list(self, prefix=""):
        """Every object below, in the order of keys."""
        found, after = [], ""
        while True:
            reply = self.call("GET", query={
                "list-type": "2", "max-keys": "1000", "prefix": prefix,
                **({"start-after": after} if after else {})})
            # a control character in a key makes no well-formed answer
            root = tree.fromstring(reply.body)
            space = root.tag[:-len("ListBucketResult")]
            for e in root.findall(space + "Contents"):
                found.append(Entry(
                    e.findtext(space + "Key"), int(e.findtext(space + "Size")),
                    e.findtext(space + "ETag").strip('"')))
            if root.findtext(space + "IsTruncated") != "true":
                return found
            after = found[-1].key

    def keys(self, prefix=""):
        return [e.key for e in self.list(prefix)]

    def uploads(self):
        """Keys of multipart uploads that are neither complete nor aborted."""
        root = tree.fromstring(self.call("GET", query={"uploads": ""}).body)
        return [e.text for e in root.iter() if e.tag.endswith("}Key")
                or e.tag == "Key"]

    def copy_to(self, folder, prefix=""):
        """The objects as files below folder, keys as they are; the keys."""
        keys = self.keys(prefix)
        for key in keys:
            path = os.path.normpath(os.path.join(folder, key))
            assert path.startswith(os.path.abspath(folder) + os.sep), key
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(self.get(key))
        return keys

    def await_keys(self, pattern, n=1):
        """The keys that match, once there are n of them."""
        def there():
            found = [k for k in self.keys() if re.search(pattern, k)]
            return found if len(found) >= n else None
        # a listing costs the server as much as an upload
        return wait_until(there, what="%d keys like %s" % (n, pattern),
                          every_s=0.1)


# ---- the gate ----

class Gate:
    """In front of a bucket.  lines: what it saw so far."""

    def __init__(self, bucket, faults, port=0):
        self.bucket, self.lines = bucket, []
        self.answers = queue.Queue()
        self.proc = subprocess.Popen(
            [sys.executable, os.path.join(S3, "gate"), "--control", str(port),
             bucket.endpoint, ACCESS, SECRET, REGION]
            + [a for f in faults for a in ("--fault", f)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = self.proc.stdout.readline().split()[-1]
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.proc.stdout:
            word = line.split()
            if word[0] in ("ok", "refused:"):
                self.answers.put(line.strip())
            else:
                self.lines.append(Line(word[0], word[1], int(word[2]),
                                       *word[3:]))

    def _order(self, *words):
        self.proc.stdin.write(" ".join(words) + "\n")
        self.proc.stdin.flush()
        said = self.answers.get(timeout=DEADLINE_S)
        assert said == "ok", said

    def env(self):
        return env_of(self.endpoint, self.bucket.name)

    def document(self):
        return facts(self.endpoint, self.bucket.name)

    def fault(self, *faults):
        """More of them, beside those there are."""
        for one in faults:
            self._order("fault", one)

    def clear(self):
        self._order("clear")

    def skew(self, seconds):
        self._order("skew", str(seconds))

    def stall_for(self, seconds):
        """How late the fault `stall` is."""
        self._order("stall", str(seconds))

    def retry_after(self, seconds):
        """What 503 and 429 say, 0 = nothing."""
        self._order("retry-after", str(seconds))

    def seen(self, method=None, text="", **fields):
        """Its lines so far that are so: seen("PUT", "/dt=", fault="lost")."""
        return [n for n in list(self.lines)
                if method in (None, n.method) and text in n.target
                and all(getattr(n, k) == v for k, v in fields.items())]

    def await_seen(self, n, method=None, text="", **fields):
        return wait_until(
            lambda: len(f := self.seen(method, text, **fields)) >= n and f,
            what="%d requests %s %s %s; seen: %s" % (
                n, method, text, fields, self.lines[-10:]))

    def refused(self):
        """Requests S3 would have refused for their form or signature."""
        return [n for n in list(self.lines)
                if n.status in (400, 403, 501) and n.fault == "-"]

    def close(self):
        if self.proc.stdin.closed:
            return
        self.proc.stdin.close()  # which ends it
        try:
            self.proc.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
        self.reader.join(DEADLINE_S)
        self.proc.stdout.close()


# ---- fixtures ----

@pytest.fixture(scope="session")
def s3_server():
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def new_bucket(s3_server, keep_log):
    keep_log("the S3 server", s3_server.log)
    return s3_server.new_bucket


@pytest.fixture
def bucket(new_bucket):
    return new_bucket()


@pytest.fixture
def new_gate():
    made = []

    def make(bucket, *faults, port=0):
        made.append(Gate(bucket, faults, port))
        return made[-1]

    yield make
    for gate in made:
        gate.close()
