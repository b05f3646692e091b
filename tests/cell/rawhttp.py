# SPDX-License-Identifier: Apache-2.0
"""
HTTP by hand: bytes out, whatever comes back in.  For requests that a proper
client library refuses to send.
"""
import contextlib
import json
import socket
import time

ANSWER_S = 20


class Raw:
    """One connection to a cell."""

    def __init__(self, cell, timeout=ANSWER_S):
        self.sock = socket.create_connection(
            ("127.0.0.1", cell.port.number), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.left = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        """False when the other side has closed already."""
        try:
            self.sock.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def end(self):
        """We send nothing more."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def _more(self):
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            return False
        self.left += data
        return bool(data)

    def answer(self):
        """(status, headers, body) of the next answer, None when closed."""
        while b"\r\n\r\n" not in self.left:
            if not self._more():
                assert self.left == b"", self.left
                return None
        head, self.left = self.left.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        want = int(headers.get("content-length", 0))
        while len(self.left) < want:
            if not self._more():
                raise AssertionError("an answer cut off: %r" % head)
        body, self.left = self.left[:want], self.left[want:]
        return status, headers, body

    def closed(self):
        """True once the other side has closed; extra bytes are a fault."""
        while self._more():
            pass
        assert self.left == b"", self.left
        return True


def exchange(cell, data, end=False, timeout=ANSWER_S):
    """Sends data on a connection of its own: the answer, or None."""
    with Raw(cell, timeout) as raw:
        raw.send(data)
        if end:
            raw.end()
        return raw.answer()


def request(method, path, body=None, *headers):
    """The bytes of a proper request."""
    lines = ["%s %s HTTP/1.1" % (method, path), "Host: h", *headers]
    if body is not None:
        lines.append("Content-Length: %d" % len(body))
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def error_of(answer):
    """The text of a JSON error; anything else is a failure."""
    assert answer is not None, "closed without an answer"
    status, headers, body = answer
    assert status >= 400, answer
    assert headers["content-type"].startswith("application/json"), answer
    text = json.loads(body)["error"]
    assert isinstance(text, str) and text, answer
    return text


def alive(cell):
    """The process runs and serves the next request."""
    assert cell.proc.poll() is None, "ended with %s" % cell.proc.poll()
    start = time.monotonic()
    reply = cell.post("/api/v1/push", {"items": [
        {"queue": "alive", "payload": 1}]})
    assert reply.status == 201 and reply.body[0]["status"] == "queued", reply
    assert time.monotonic() - start < ANSWER_S
