# SPDX-License-Identifier: Apache-2.0
"""
Short names for the SQL functions of the cell, for tests that talk to the
database alone.  Message ids are made from text as `mid` does.
"""
import datetime
import hashlib

from queenlib import TENANT, rows

UTC = datetime.timezone.utc


def mid(text):
    """16 bytes that stand for a transaction id."""
    return hashlib.md5(text.encode()).digest()


def at(seconds):
    """A moment counted from the start of 2026."""
    return datetime.datetime(2026, 1, 1, tzinfo=UTC) \
        + datetime.timedelta(seconds=seconds)


class Kit:
    """The calls, on one connection."""

    def __init__(self, conn, tenant=TENANT):
        self.conn, self.tenant = conn, tenant
        self.serial = 0

    def rows(self, sql, *args):
        return rows(self.conn, sql, args or None)

    def value(self, sql, *args):
        found = self.rows(sql, *args)
        return found[0][0] if found else None

    def queue(self, name):
        return self.value("select id from queen.queue_resolve_v1("
                          "%s, %s, true)", self.tenant, [name])

    def parts(self, queue, names):
        """Partition ids, created when missing, in the order of names."""
        found = self.rows("select id from queen.partitions_ensure_v1("
                          "%s, %s, %s) order by ord",
                          self.tenant, [queue] * len(names), list(names))
        return [r[0] for r in found]

    def part(self, queue, name):
        return self.parts(queue, [name])[0]

    def group(self, queue, name, mode="all", start=None, now=None):
        return self.value("select id from queen.group_register_v1(%s, %s, %s,"
                          " %s, %s::timestamptz[], array[false], %s)",
                          self.tenant, [queue], [name], [mode], [start], now)

    def push(self, part, n=1, now=None, raw=None, blob=None, key=None,
             ids=None):
        """Pushes one segment of n messages; its base offset."""
        if ids is None:
            ids = []
            for _ in range(n):
                self.serial += 1
                ids.append("%s-%d" % (id(self), self.serial))
        found = self.rows(
            "select verdict, base from queen.push_v1(%s, %s, %s,"
            " %s::bytea[], %s, %s::smallint[], %s::bytea[],"
            " array[null]::bigint[], array[null]::timestamptz[],"
            " '{}', '{}', '{}', '{}', %s)",
            self.tenant, [part], [len(ids)],
            [b"".join(mid(i) for i in ids)],
            [raw if raw is not None else 100 * len(ids)], [key],
            [blob if blob is not None else b"\x01\x00" + b"x" * 10], now)
        assert len(found) == 1 and found[0][0] == 0, found
        return found[0][1]

    def pop(self, parts, group, no, budget=1000, secs=60, auto=False,
            now=None):
        """Claims candidate partitions; all columns of pop_v1's rows."""
        return self.rows(
            "select req, cand, verdict, base, skip, take, last, attempt"
            " from queen.pop_v1(%s, %s::bigint[], %s, %s, %s, %s, %s,"
            " %s::bigint[], %s::bigint[], '{}'::smallint[], %s)",
            self.tenant, [no], [secs], [budget], [0], [auto],
            [1] * len(parts), list(parts), [group] * len(parts), now)

    def cursor(self, group, part):
        """(committed, batch_end, lease_no, retries) or None."""
        found = self.rows(
            "select committed, batch_end, lease_no, retries"
            " from queen.consumers where group_id = %s and partition_id = %s"
            " order by gen desc limit 1", group, part)
        return found[0] if found else None

    def drop_segments(self, part, upto):
        """What a retention step leaves behind: nothing up to an offset."""
        self.rows("with d as (delete from queen.segments"
                  " where partition_id = %s and end_offset <= %s)"
                  " update queen.partition_heads set log_start = %s"
                  " where id = %s", part, upto, upto + 1, part)
