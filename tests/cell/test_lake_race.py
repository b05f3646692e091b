# SPDX-License-Identifier: Apache-2.0
"""Writers that keep their transactions open while windows close over them."""
import random
import threading
import time

import pytest

from lakecheck import Damage, Sent, Tree, check
from lakekit import frame
from lakeload import clock, settled
from loadkit import Workers

from sqlkit import Kit
from test_lake_e2e import shape

CLOCK = """
create or replace function queen.safe_time_v1(p_guard_ms int, p_floor_ms int)
returns table (safe_time timestamptz, degraded boolean)
language sql volatile as $$ select clock_timestamp(), false $$
"""


class Writers:
    """Each pushes a segment or two to partitions of its own and of all, and
    commits a while later, or not at all."""

    def __init__(self, db, n, longest_s):
        self.db, self.n, self.longest_s = db, n, longest_s
        self.sent, self.lock = {}, threading.Lock()
        kit = Kit(db.connect())
        queue = kit.queue("q")
        self.parts = {"w%d" % i: kit.part(queue, "w%d" % i)
                      for i in range(n)}

    def run(self, seconds):
        end = time.monotonic() + seconds
        with Workers() as w:
            for i in range(self.n):
                w.start(self.write, i, end)
            w.join()

    def write(self, who, end):
        rng = random.Random(who)
        kit = Kit(self.db.connect(autocommit=False))
        part, sent = "w%d" % who, []
        while time.monotonic() < end:
            ids = ["%s-%d" % (part, len(sent) + i)
                   for i in range(rng.randrange(1, 4))]
            more = [Sent(i, '{"id": "%s"}' % i) for i in ids]
            frames = b"".join(frame(s.txn, s.payload) for s in more)
            kit.push(self.parts[part], ids=ids, raw=len(frames),
                     blob=b"\x01\x00" + frames)
            time.sleep(rng.choice((0, rng.random() * self.longest_s)))
            if rng.random() < 0.1:
                kit.conn.rollback()
                continue
            kit.conn.commit()
            sent += more
        with self.lock:
            self.sent[part] = sent


def race(db, bucket, new_lake, tmp_path, longest_s, seconds):
    node = new_lake(bucket, **shape("s", ["q"])).start()
    writers = Writers(db, 20, longest_s)
    writers.run(seconds)
    settled(node, ["q"], clock(db))
    tree = Tree(str(tmp_path / "s"), bucket, "s").pull()
    lake = check(tree, "q", writers.sent, "s")
    # windows of a second: they went on between the writers
    assert len(lake.windows) >= seconds / (longest_s + 2)


def test_transactions_open_over_windows_lose_nothing(
        db, bucket, new_lake, tmp_path):
    race(db, bucket, new_lake, tmp_path, 3, 9)


@pytest.mark.soak
def test_long_transactions_open_over_windows_lose_nothing(
        db, bucket, new_lake, tmp_path):
    race(db, bucket, new_lake, tmp_path, 8, 45)


def test_with_the_clock_for_safe_time_the_loss_is_seen(
        db, bucket, new_lake, tmp_path):
    """What the other tests would see: the fault is planted, and found."""
    db.rows(CLOCK)
    with pytest.raises(Damage, match="^(missing|lost) "):
        race(db, bucket, new_lake, tmp_path, 3, 6)
