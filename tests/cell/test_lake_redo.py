# SPDX-License-Identifier: Apache-2.0
"""Crashes in the middle of a window, and what the log is when the next owner
comes: retention was there, or the queue was deleted and made again.  A reader
finds each record once, or is told that it is gone."""
import pytest

from lakecheck import Tree, check
from lakekit import Objects, stamp
from queenlib import TENANT, wait_until
from test_lake_faults import sent_of
from test_lake_queue_crash import HOUR, POINTS, SHAPES, fill

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
        self.bucket = bucket
        self.tree = Tree(str(folder / self.name), bucket, self.name)

    def objects(self):
        return Objects(self.bucket, self.name, self.queue)

    def first_window(self):
        key = self.objects().side_below + "checkpoint/0000000001.json.zst"
        wait_until(lambda: self.bucket.get(key), every_s=0.2)
        assert self.node.term() == 0
        self.node.extra["QUEEN_S3_CRASH_AT"] = self.point

    def crash(self):
        self.node.await_crash()
        del self.node.extra["QUEEN_S3_CRASH_AT"]
        self.left = set(self.objects().data)

    def check(self, sent):
        self.tree.pull()
        lake = check(self.tree, self.queue, sent, self.name, lost=True)
        assert self.left <= set(self.objects().data)
        return lake


def hour(log, queue, n):
    for part in PARTS:
        log.push(queue, part, ['{"n": %d}' % n, "1", "2"], HOUR * n + 10)
        log.push(queue, part, ['"more"', "3"], HOUR * n + 20)


@pytest.mark.parametrize("shape", SHAPES, ids="-".join)
def test_a_crash_and_a_log_that_changed(db, log, bucket, new_lake, shape,
                                        tmp_path):
    """Acceptance 106, 156, E1."""
    cases = [Case(new_lake, bucket, queue, point, shape, tmp_path)
             for queue in ("kept", "anew") for point in POINTS]
    for queue in "kept", "anew":
        hour(log, queue, 0)
    for case in cases:
        case.node.start()
    for case in cases:
        case.first_window()
    for queue in "kept", "anew":
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
    for queue in "kept", "anew":
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
