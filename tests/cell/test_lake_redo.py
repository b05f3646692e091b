# SPDX-License-Identifier: Apache-2.0
"""Crashes in the middle of a window, and what the log is when the next owner
comes: retention was there, or the queue was deleted and made again.  A reader
finds each record once, or is told that it is gone."""
import itertools

import pytest

from lakecheck import Tree, check
from lakekit import stamp
from queenlib import TENANT
from test_lake_faults import sent_of
from test_lake_queue_crash import HOUR, POINTS, SHAPES, half

QUEUES = ("kept", "anew")
BEFORE = POINTS[:2]                     # of the manifest
PARTS = ("a", "b/ü", "c")
HOUR_US = HOUR * 10**6
SECOND = stamp(HOUR) // HOUR_US


class Case:
    """A sink that dies at one point of its second window, an hour."""

    def __init__(self, new_lake, bucket, queue, point, shape, folder):
        self.queue, self.point = queue, point
        self.name = "%s.%s" % (queue, point)
        self.node = new_lake(
            bucket, QUEEN_S3_QUEUES=queue, QUEEN_S3_SINK=self.name,
            QUEEN_S3_PREFIX=self.name, QUEEN_S3_CHECKPOINT_EVERY="1",
            QUEEN_S3_FORMAT=shape[0], QUEEN_S3_LAYOUT=shape[1])
        self.tree = Tree(str(folder / self.name), bucket, self.name)

    def first_window(self, log):
        """And its checkpoint, which a drain writes."""
        log.await_k(self.name, self.queue, 1, self.node)
        assert self.node.term() == 0
        self.node.extra["QUEEN_S3_CRASH_AT"] = self.point

    def crash(self):
        self.node.await_crash()
        del self.node.extra["QUEEN_S3_CRASH_AT"]

    def check(self, sent):
        return check(self.tree.pull(), self.queue, sent, self.name, lost=True)


def hour(log, queue, n):
    for part in PARTS:
        log.push(queue, part, ['{"n": %d}' % n, "1", "2"], HOUR * n + 10)
        log.push(queue, part, ['"more"', "3"], HOUR * n + 20)


@pytest.mark.parametrize("shape", SHAPES, ids="-".join)
def test_a_crash_and_a_log_that_changed(judge, shape):
    """Acceptance 106, 156, E1: each point with each shape, and in each queue
    with both formats and with both layouts; all of them by make soak."""
    judge(shape, [(QUEUES[(n + half(shape)) % 2], point)
                  for n, point in enumerate(POINTS)])


@pytest.mark.soak
@pytest.mark.parametrize("shape", SHAPES, ids="-".join)
def test_every_crash_and_a_log_that_changed(judge, shape):
    judge(shape, itertools.product(QUEUES, POINTS))


@pytest.fixture
def judge(db, log, bucket, new_lake, tmp_path):
    """judge(shape, of): a sink for each queue and point of these."""
    def run(shape, of):
        die_and_change(db, log, [
            Case(new_lake, bucket, queue, point, shape, tmp_path)
            for queue, point in of])
    return run


def die_and_change(db, log, cases):
    for queue in QUEUES:
        hour(log, queue, 0)
    for case in cases:
        case.node.start()
    for case in cases:
        case.first_window(log)
    for queue in QUEUES:
        hour(log, queue, 1)
    for case in cases:
        case.node.start(wait=False)
    for case in cases:
        case.crash()
    # of the window that was begun a is gone, and half of b
    log.kit.drop_segments(log.part_ids["kept", "a"], 9)
    log.kit.drop_segments(log.part_ids["kept", "b/ü"], 7)
    db.rows("select * from queen.queue_delete_v1(%s, 'anew')", (TENANT,))
    for part in PARTS:
        del log.part_ids["anew", part]
    for queue in QUEUES:
        hour(log, queue, 2)
    for case in cases:
        case.node.start()
    for case in cases:
        log.await_k(case.name, case.queue, 3, case.node)
        sent = sent_of(log, case.queue)
        if case.queue == "anew" and case.point in BEFORE:
            # nobody can know how many there were
            sent = {p: [s for s in one if s.ts // HOUR_US != SECOND]
                    for p, one in sent.items()}
        lake = case.check(sent)
        n = {p: len(found) for p, found in lake.records.items()}
        if case.queue == "kept":
            # told also by who cannot know that they were shipped
            assert lake.lost == {"a": [(5, 9)], "b/ü": [(5, 7)]}
            assert n == ({"a": 10, "b/ü": 12, "c": 15}
                         if case.point in BEFORE else dict.fromkeys(PARTS, 15))
        else:
            assert lake.lost == {}
            assert set(n.values()) == {10 if case.point in BEFORE else 15}
        assert [m["k"] for m in lake.windows] == [1, 2, 3]
