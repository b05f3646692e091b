# SPDX-License-Identifier: Apache-2.0
"""Leases: exclusive, renewed by id, over by time."""
import datetime
import re

import pytest

from queenlib import wait_until

STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")


def extend(cell, lease, body=None):
    return cell.post("/api/v1/lease/%s/extend" % lease, body)


def expiries(db):
    return [r[0] for r in db.rows(
        "select expires_at from queen.consumers where batch_end is not null"
        " order by partition_id")]


def parse(text):
    return datetime.datetime.strptime(
        text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(
            tzinfo=datetime.timezone.utc)


def test_extend_answers_exact_keys(cell, db):
    cell.push("q", [1])
    lease = cell.pop("q", leaseSeconds=5)[0]["leaseId"]
    reply = extend(cell, lease, {"seconds": 120})
    assert reply.status == 200
    assert list(reply.body) == ["leaseId", "success", "renewed",
                                "newExpiresAt", "expiresAt",
                                "lease_expires_at"]
    b = reply.body
    assert (b["leaseId"], b["success"], b["renewed"]) == (lease, True, 1)
    assert STAMP.match(b["expiresAt"])
    assert b["newExpiresAt"] == b["expiresAt"] == b["lease_expires_at"]
    assert parse(b["expiresAt"]) == expiries(db)[0]


@pytest.mark.parametrize("body, seconds", [
    (None, 60), ("", 60), ("{", 60), ("[]", 60), ({}, 60),
    ({"seconds": None}, 60), ({"seconds": "x"}, 60), ({"seconds": 1.5}, 60),
    ({"seconds": 0}, 1), ({"seconds": -7}, 1), ({"seconds": 90}, 90),
])
def test_seconds_are_read_leniently(common, own_name, body, seconds):
    common.push(own_name, [1])
    lease = common.pop(own_name, leaseSeconds=1)[0]["leaseId"]
    reply = extend(common, lease, body)
    now = common.db.value("select clock_timestamp()")
    assert (reply.status, reply.body["renewed"]) == (200, 1)
    left = (parse(reply.body["expiresAt"]) - now).total_seconds()
    assert seconds - 1.5 < left <= seconds


def test_extend_never_shortens(cell, db):
    cell.push("q", [1])
    lease = cell.pop("q", leaseSeconds=100)[0]["leaseId"]
    before = expiries(db)
    assert extend(cell, lease, {"seconds": 5}).body["renewed"] == 1
    assert expiries(db) == before


def test_extend_renews_every_partition_of_the_pop(cell, db):
    for p in "abc":
        cell.push("q", [p], partition=p)
    got = cell.pop("q", partitions=3, leaseSeconds=5)
    assert len({m["leaseId"] for m in got}) == 1
    assert extend(cell, got[0]["leaseId"], {"seconds": 50}).body[
        "renewed"] == 3
    now = db.value("select clock_timestamp()")
    assert all((t - now).total_seconds() > 40 for t in expiries(db))
    cell.ack([m for m in got if m["partition"] == "a"])
    assert extend(cell, got[0]["leaseId"]).body["renewed"] == 2


def test_expired_unknown_and_foreign_leases_renew_nothing(cell):
    cell.push("q", [1])
    got = cell.pop("q", leaseSeconds=1)
    none = {"success": False, "renewed": 0, "newExpiresAt": None,
            "expiresAt": None, "lease_expires_at": None}
    wait_until(lambda: cell.pop("q", leaseSeconds=30) != [],
               what="the lease to expire")
    for lease in (got[0]["leaseId"], "x", "00000000-0000-0000-0000-0000000",
                  "0198f2c1-9a7b-7000-8000-000000000000", "%20"):
        reply = extend(cell, lease)
        assert reply.status == 200
        assert {k: v for k, v in reply.body.items()
                if k != "leaseId"} == none


def test_released_lease_renews_nothing(cell):
    cell.push("q", [1])
    got = cell.pop("q")
    cell.ack(got)
    assert extend(cell, got[0]["leaseId"]).body["renewed"] == 0


def test_expiry_redelivers_and_counts_the_attempt(cell):
    cell.push("q", [1, 2])
    assert cell.pop("q", leaseSeconds=1)[0]["deliveryAttempt"] == 1
    for attempt in (2, 3):
        got = cell.pop("q", leaseSeconds=1, wait=True)
        assert [m["data"] for m in got] == [1, 2]
        assert {m["deliveryAttempt"] for m in got} == {attempt}


def test_lease_seconds_default_to_the_queue(cell, db):
    cell.post("/api/v1/configure",
              {"queue": "q", "options": {"leaseTime": 300}})
    cell.push("q", [1])
    cell.pop("q", leaseSeconds=0)
    left = (expiries(db)[0] - db.value("select clock_timestamp()"))
    assert 295 < left.total_seconds() <= 300


def test_a_pop_of_another_group_has_its_own_lease(cell):
    cell.push("q", [1])
    a = cell.pop("q", group="a", subscriptionMode="all")
    b = cell.pop("q", group="b", subscriptionMode="all")
    assert a[0]["leaseId"] != b[0]["leaseId"]
    cell.ack(a, group="a")
    assert extend(cell, b[0]["leaseId"]).body["renewed"] == 1
