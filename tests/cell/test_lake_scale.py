# SPDX-License-Identifier: Apache-2.0
"""A great many partitions, each with a record in the window: what memory that
takes, what an idle queue asks for, and what a restart reads again."""
import re

import pytest

from lakekit import Objects, frame, plain
from queenlib import DEADLINE_S, wait_until
from sqlkit import Kit

PAYLOAD = '{"n":"%08d","note":"leave at the door, ring twice"}'
WEIGHT = 64 + len("customer-00000000-orders" "txn-00000000" + PAYLOAD % 0)
STEP_MS = 100  # discovery, and the longest window
BASE_MIB, PART_BYTES = 64, 256


def fill(db, queue, n):
    """n partitions whose names are not in the order of their ids, with one
    record each, all of one tenth of a second."""
    whole = frame("txn-%08d" % 0, PAYLOAD % 0)
    front, length = whole[:5], whole[21:23]
    a, b = (PAYLOAD % 0).split("0" * 8)
    db.rows("""
with p as (insert into queen.partitions (queue_id, name, created_at)
	select %s, 'customer-' || lpad((i * 7919 %% 1000003)::text, 8, '0')
		|| '-orders', now() - interval '5 min'
	from generate_series(1::bigint, %s) i returning id, queue_id),
h as (insert into queen.partition_heads (id, queue_id, last_at, last_write_at,
		oldest_live_at)
	select id, queue_id, now() - interval '1 min',
		date_trunc('second', now() - interval '1 min'),
		now() - interval '1 min' from p)
insert into queen.segments (partition_id, base_offset, end_offset, created_at,
	raw_bytes, blob)
select id, 0, 0, now() - interval '1 min' + id %% 100 * interval '1 ms', %s,
	'\\x0100'::bytea || %s || decode(md5(id::text), 'hex') || %s
	|| convert_to('txn-' || n || %s || n || %s, 'UTF8')
from (select id, lpad(id::text, 8, '0') n from p) x""", (
        Kit(db.connect()).queue(queue), n, len(whole), front, length, a, b))
    db.rows("analyze queen.partitions, queen.partition_heads, queen.segments")


def calls(db, name):
    """How often a function was called, as far as its sessions have told."""
    return db.value("select coalesce(sum(calls), 0)::int from"
                    " pg_stat_user_functions where funcname = %s", (name,))


def peak_bytes(node):
    with open("/proc/%d/status" % node.proc.pid) as f:
        return int(re.search(r"VmHWM:\s+(\d+) kB", f.read())[1]) * 1024


FETCHES = 'queen_s3_fetch_calls_total{queue="many",result="ok"}'


def check_peak(node, memory_mb, n, object_bytes):
    limit = ((BASE_MIB + memory_mb) << 20) + PART_BYTES * n + object_bytes
    peak = peak_bytes(node)
    print("%d partitions: %d MiB of %d" % (n, peak >> 20, limit >> 20))
    assert peak < limit


def check_idle(db):
    """An empty page per step and no more, but for a sweep now and then."""
    def now():
        return calls(db, "changed_ids"), db.value("select clock_timestamp()")
    asked, start = now()
    wait_until(lambda: calls(db, "changed_ids") >= asked + 20)
    more, end = now()
    # sessions tell of their calls once a second
    steps = ((end - start).total_seconds() + 1) * 1000 / STEP_MS
    assert more - asked <= 2 * steps


def check_lines(here, n):
    data, = here.data
    lines = plain(data, here.data[data]).split("\n")
    assert lines.pop() == ""
    names = [line[14:38] for line in lines]
    assert len(names) == n and names == sorted(set(names))


@pytest.mark.parametrize("n", [50000, pytest.param(
    10**6, marks=pytest.mark.soak)])
def test_a_record_in_each_of_many_partitions(db, log, bucket, new_lake, n):
    db.server.admin("alter database %s set track_functions = 'pl'" % db.name)
    fill(db, "many", n)
    memory_mb = (WEIGHT * n >> 20) + 1
    env = {"QUEUES": "many", "ALIGN": "none", "MEMORY_MB": memory_mb,
           "TARGET_MB": 5120, "CHECKPOINT_EVERY": 1, "MAX_WINDOW_MS": STEP_MS,
           "DISCOVERY_INTERVAL_MS": STEP_MS}
    env = {"QUEEN_S3_" + k: str(v) for k, v in env.items()}
    node = new_lake(bucket, **env).start()
    wait_until(lambda: node.queue("many").get("k") == 1, DEADLINE_S + n / 5e3)
    wait_until(lambda: node.metrics().get(
        'queen_s3_checkpoint_age_windows{queue="many"}') == 0)
    here = Objects(bucket, "queen", "many")
    window, = here.windows()
    assert (window.manifest["records"], window.manifest["partitions"]) == (n, n)
    check_peak(node, memory_mb, n, window.manifest["bytes"])
    check_lines(here, n)
    fetched = node.metrics()[FETCHES]
    assert fetched <= n // 1024 + 64
    check_idle(db)
    node.term()

    # a restart knows where all of them are: what is new alone is read
    wait_until(lambda: calls(db, "fetch_parts_v1") == fetched)
    again = new_lake(bucket, **env).start()
    again.await_queue("many", state="filling")
    log.push("many", db.value("select max(name) from queen.partitions"),
             [PAYLOAD % n])
    again.await_queue("many", k=2)
    window = Objects(bucket, "queen", "many").windows()[1]
    assert window.manifest["records"] == 1
    assert again.metrics()[FETCHES] == 1
    check_peak(again, memory_mb, n, window.manifest["bytes"])
    again.term()
    assert calls(db, "offsets_at_v1") == 0
