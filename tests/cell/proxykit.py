# SPDX-License-Identifier: Apache-2.0
"""
What stands between queend and PostgreSQL: a link that can be slow or be cut,
and one that counts the messages of the protocol and strikes behind the k-th.
"""
import select
import socket
import struct
import threading

from queenlib import Port


class Proxy:
    """TCP in front of a server: may delay, cut, or swallow an answer."""

    def __init__(self, target):
        self.target, self.delay_s = target, 0
        self.cut_after = None       # bytes in a request that arm the cut
        self.cuts = 0
        self.port = Port()
        self.listener = socket.create_server(("127.0.0.1", self.port.number),
                                             backlog=200)
        self.stop = threading.Event()
        self.threads = []
        self._spawn(self._accept)

    def _spawn(self, fn, *args):
        t = threading.Thread(target=fn, args=args, daemon=True)
        self.threads.append(t)
        t.start()

    def _accept(self):
        while not self.stop.is_set():
            if not select.select([self.listener], [], [], 0.1)[0]:
                continue
            one, _ = self.listener.accept()
            try:
                two = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                one.close()
                continue
            for s in (one, two):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._spawn(self._pipe, one, two)

    def _pipe(self, one, two):
        armed = False
        try:
            while not self.stop.is_set():
                ready = select.select([one, two], [], [], 0.1)[0]
                if not ready:
                    continue
                for s in ready:
                    data = s.recv(1 << 20)
                    if not data:
                        return
                    if s is one:
                        if self.cut_after and self.cut_after in data:
                            armed, self.cut_after = True, None
                        if self.delay_s:
                            self.stop.wait(self.delay_s)
                        two.sendall(data)
                    elif armed:
                        # it has committed: that is what it is saying
                        self.cuts += 1
                        return
                    else:
                        one.sendall(data)
        except OSError:
            pass
        finally:
            one.close()
            two.close()

    def close(self):
        self.stop.set()
        for t in self.threads:
            t.join(10)
        self.listener.close()
        self.port.give()


NO_MESSAGE = (80877103, 80877104)   # questions about encryption: one byte


class Side:
    """Bytes of one direction, cut into messages."""

    def __init__(self, typed):
        self.data, self.typed, self.bytes_due = b"", typed, 0

    def next(self):
        """The next whole message, or None."""
        if self.bytes_due:
            n = 1
        else:
            at = 1 if self.typed else 0
            if len(self.data) < at + 4:
                return None
            n = at + struct.unpack_from("!I", self.data, at)[0]
        if len(self.data) < n:
            return None
        self.bytes_due = max(0, self.bytes_due - 1)
        found, self.data = self.data[:n], self.data[n:]
        return found


class StepProxy(Proxy):
    """
    Strikes behind a chosen message.  Messages are counted from the first one
    of the flush that holds the marker, in both directions; `trace` has them as
    (">" to the server or "<", type).  When the moment has come `struck` is
    set, strike(pid) gets the process id of the server's backend, the link is
    cut.  After `ends` times ready the link is left alone: what else goes over
    it is none of the matter.
    """

    def __init__(self, target):
        self.marker, self.after, self.strike, self.pid = (None,) * 4
        self.ends = 0
        self.trace = []
        self.struck, self.cut = threading.Event(), threading.Event()
        super().__init__(target)

    def arm(self, marker, after, strike=None, ends=2):
        self.trace, self.after, self.strike = [], after, strike
        self.ends = ends
        self.struck.clear()
        self.cut.clear()
        self.marker = marker

    def arms(self, batch):
        """True = from this request on messages are counted."""
        if not self.marker or not any(self.marker in x for x in batch):
            return False
        self.marker = None
        return True

    def _pipe(self, one, two):
        link = {"one": one, "two": two, "front": Side(False),
                "back": Side(True), "held": [], "armed": False, "pid": None}
        try:
            while not self.stop.is_set():
                for s in select.select([one, two], [], [], 0.1)[0]:
                    data = s.recv(1 << 20)
                    if not data:
                        return
                    side = link["front" if s is one else "back"]
                    side.data += data
                    if not (self._front(link) if s is one
                            else self._back(link)):
                        return
        except OSError:
            pass
        finally:
            one.close()
            two.close()

    def _front(self, link):
        side = link["front"]
        while True:
            m = side.next()
            if m is None:
                return True
            if not side.typed:
                code = struct.unpack_from("!I", m, 4)[0]
                side.typed = code not in NO_MESSAGE
                link["back"].bytes_due += code in NO_MESSAGE
                link["two"].sendall(m)
                continue
            link["held"].append(m)
            if m[:1] in b"PBDEC":
                continue
            batch, link["held"] = link["held"], []
            if self.arms(batch):
                link["armed"] = True
            if not all(self._pass(link, link["two"], ">", x) for x in batch):
                return False

    def _back(self, link):
        side = link["back"]
        while True:
            m = side.next()
            if m is None:
                return True
            if m[:1] == b"K":
                link["pid"] = struct.unpack_from("!I", m, 5)[0]
            if not self._pass(link, link["one"], "<", m):
                return False

    def _pass(self, link, to, way, m):
        """False = struck, the link is at its end."""
        if link["armed"] and len(self.trace) == self.after:
            self.pid = link["pid"]
            self.struck.set()
            if self.strike:
                self.strike(self.pid)
            self.cut.set()
            return False
        if link["armed"]:
            self.trace.append((way, m[:1].decode()))
            link["armed"] = sum(t == "Z" for _, t in self.trace) < self.ends
        to.sendall(m)
        return True
