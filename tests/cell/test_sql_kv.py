# SPDX-License-Identifier: Apache-2.0
"""queen.kv_*: what an operation does to a key, at one instant, under locks."""
import json
import threading
import uuid

import psycopg2
import pytest

from queenlib import TENANT, rows, wait_until
from sqlkit import at

OPS = {"get": 0, "getMany": 1, "getPrefix": 2, "put": 3, "delete": 4, "incr": 5}
NOW = at(1000)
CALL = ("select * from queen.kv_apply_v1(%s, %s, %s, %s::smallint[], %s::text[],"
        " %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::boolean[],"
        " %s::text[], %s::text[], %s::text[], %s::text[], %s::int[],"
        " %s::boolean[], %s::int[], %s::text[], %s)")


class Kv:
    """Calls of kv_apply_v1 on one connection."""

    def __init__(self, conn, tenant=TENANT):
        self.conn, self.tenant = conn, tenant

    def raw(self, ops, now=NOW, bundle=False, budget=None):
        """ops: dicts as on the wire, ns "n" by default; the rows."""
        def column(name, default=None):
            return [o.get(name, default) for o in ops]

        many = [(i, key) for i, o in enumerate(ops, 1)
                for key in o.get("keys", ())]
        values = [json.dumps(o["value"]) if "value" in o else None
                  for o in ops]
        return rows(self.conn, CALL, (
            self.tenant, bundle, budget,
            [OPS.get(o["op"], 9) for o in ops], column("ns", "n"),
            [o.get("key", o.get("prefix")) for o in ops],
            [o.get("text", v) for o, v in zip(ops, values)],
            column("expect"), column("ttl"), column("required", False),
            [None if "delta" not in o else str(o["delta"]) for o in ops],
            [None if "min" not in o else str(o["min"]) for o in ops],
            [None if "max" not in o else str(o["max"]) for o in ops],
            column("after"), column("limit"), column("keysOnly", False),
            [i for i, _ in many], [k for _, k in many], now))

    def __call__(self, op, key=None, now=NOW, **fields):
        """One operation on one key: (verdict, reason, value, version)."""
        found = self.raw([dict(fields, op=op, key=key)], now)
        assert [r[:2] for r in found] == [(1, 0)]
        _, _, verdict, reason, back, value, version, _, _ = found[0]
        assert back == key
        return (verdict, reason, value and json.loads(value), version)

    def row(self, key):
        """(value, expires_at, created_at, updated_at) as stored."""
        found = rows(self.conn, "select value, expires_at, created_at,"
                     " updated_at from queen.kv where tenant = %s and"
                     " namespace = 'n' and key = %s", (self.tenant, key))
        return found[0] if found else None


@pytest.fixture
def kv(db):
    return Kv(db.connect())


def test_put(kv):
    v, reason, value, first = kv("put", "a", value={"x": 1})
    assert (v, reason, value) == (0, None, {"x": 1}) and first > 0
