# SPDX-License-Identifier: Apache-2.0
"""Only the database's clock decides how long a key lives: the clock of the
host queend runs on may jump while it runs."""
import os
import re
import subprocess
import time
import uuid

import pytest

from kvkit import Kv, kill
from queenlib import ROOT, SAN, wait_until

DAY_S = 86400
# what a process reads as the time of day, moved by the seconds in a file
SHIM = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long
jump_s(void)
{
	long s = 0;
	FILE *f = fopen(JUMP, "r");

	if (f) {
		if (fscanf(f, "%ld", &s) != 1)
			s = 0;
		fclose(f);
	}
	return s;
}

int
clock_gettime(clockid_t id, struct timespec *t)
{
	int rc = (int)syscall(SYS_clock_gettime, id, t);

	if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
		t->tv_sec += jump_s();
	return rc;
}

int
gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	struct timespec s;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &s);
	t->tv_sec = s.tv_sec;
	t->tv_usec = s.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *out)
{
	struct timespec s;

	clock_gettime(CLOCK_REALTIME, &s);
	if (out)
		*out = s.tv_sec;
	return s.tv_sec;
}
"""


@pytest.fixture
def jumpy(new_cell, folder):
    """A cell whose clock .jump(seconds) moves."""
    source, shim, jump = (os.path.join(folder, n)
                          for n in ("shim.c", "shim.so", "jump"))
    with open(source, "w") as f:
        f.write(SHIM)
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2",
                    '-DJUMP="%s"' % jump, "-o", shim, source], check=True)
    cell = new_cell(
        LD_PRELOAD=shim, QUEEN_KV_EXPIRE_EVERY_MS=20,
        **({"ASAN_OPTIONS": "detect_leaks=1:exitcode=99:"
            "verify_asan_link_order=0"} if SAN else {})).start()

    def move(seconds):
        with open(jump + ".new", "w") as f:
            f.write(str(seconds))
        os.rename(jump + ".new", jump)

    cell.jump = move
    return cell


def believes_s(cell):
    """What the process takes for the time, by an id it makes; ids never go
    back, so ask once."""
    made = cell.push("q", [1])[0]["message_id"]
    return (uuid.UUID(made).int >> 80) / 1000


def left_s(cell, db, key):
    """Seconds until the key ends, by the database's clock."""
    got = Kv(cell).one("get", key)
    return db.value("select extract(epoch from %s::timestamptz - now())"
                    "::float", (got["expiresAt"],)) if got["found"] else None


def swept(db):
    """A dead row goes: the sweep has run since."""
    db.rows("insert into queen.kv (tenant, namespace, key, value, version,"
            " expires_at, created_at, updated_at) values (%s, 'n', 'dead',"
            " '1', 1, now(), now(), now()) returning 1", (str(uuid.uuid4()),))
    wait_until(lambda: db.value("select count(*) from queen.kv"
                                " where key = 'dead'") == 0, what="the sweep")


@pytest.mark.parametrize("jump_s", [2 * DAY_S, -2 * DAY_S])
def test_jumps_of_the_hosts_clock_do_not_matter(jumpy, db, jump_s):
    kv = Kv(jumpy)
    kv.put("before", 1, ttlSeconds=3600)
    kv.put("ended", 1, ttlSeconds=3600)
    kill(db, "ended")
    jumpy.jump(jump_s)
    assert abs(believes_s(jumpy) - time.time() - jump_s) < 600
    swept(db)
    assert kv.one("get", "ended")["found"] is False
    assert 3000 < left_s(jumpy, db, "before") <= 3600
    assert kv.one("putIfAbsent", "before", value=2, ttlSeconds=60)[
        "reason"] == "exists"
    kv.put("after", 1, ttlSeconds=3600)
    assert 3000 < left_s(jumpy, db, "after") <= 3600
    assert kv.one("incr", "c", delta=1, ttlSeconds=3600)["applied"] is True
    jumpy.jump(0)
    swept(db)
    assert [left_s(jumpy, db, k) is not None
            for k in ("before", "after", "c")] == [True] * 3
    kill(db, "after")
    assert kv.one("get", "after")["found"] is False


def test_no_code_of_keys_reads_a_clock_of_the_day():
    """What measures waits and rates is the monotonic one."""
    folder = os.path.join(ROOT, "bin", "queend")
    seen = set()
    for name in os.listdir(folder):
        if re.match(r"kv.*\.c$", name):
            with open(os.path.join(folder, name)) as f:
                seen |= set(re.findall(
                    r"\b(clk_\w+|time|gettimeofday|clock_gettime)\s*\(",
                    f.read()))
    assert seen <= {"clk_mono_ms"}
