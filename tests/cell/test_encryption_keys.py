# SPDX-License-Identifier: Apache-2.0
"""Keys: what is refused at boot, and where their bytes are while it runs."""
import subprocess

import pytest

from queenlib import SAN, binary
from sealkit import K1, K2, PAYLOAD, flag, popped, statuses

# hex digits that occur in no text of ours
ODD = "c0ffee5eedbadcab1e" * 4
KEY, OLD = "QUEEN_ENCRYPTION_KEY", "QUEEN_ENCRYPTION_OLD_KEYS"
NOT_A_KEY = " is not a key (expected 64 hex characters)"


def refused(new_cell, env):
    """The one line of a boot that ends with 2; no value is in it."""
    one = new_cell(**env)
    one.start(wait=False)
    assert one.wait_exit() == 2
    text = one.log_text()
    line, = [x for x in text.splitlines() if "FATAL" in x]
    check = subprocess.run([binary("queend"), "--check-config"],
                           env=one.env(), stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, check=False)
    assert check.returncode == 2
    for value in K1, K2, ODD[:16], ODD.upper()[:16]:
        assert value not in text + check.stdout
    return line


BAD = [ODD[:63], ODD[:65], ODD[:63] + "g", ODD[:32] + ":" + ODD[:31],
       ODD[:32], "0x" + ODD[:62], ODD[:62] + " 1", ODD[:63] + "é"]


@pytest.mark.parametrize("value", BAD)
def test_a_bad_key_is_named_and_not_shown(new_cell, value):
    assert refused(new_cell, {KEY: value}).endswith(KEY + NOT_A_KEY)
    assert refused(new_cell, {OLD: "%s,%s" % (K1, value)}).endswith(
        OLD + " (key 2)" + NOT_A_KEY)


@pytest.mark.parametrize("value", [",", K1 + ",", "," + K1, K1 + ",," + K2,
                                   K1 + " " + K2, K1 + ";" + K2])
def test_a_bad_list_is_refused(new_cell, value):
    line = refused(new_cell, {OLD: value})
    assert OLD + " (key " in line and NOT_A_KEY in line


@pytest.mark.parametrize("value", BAD[:3])
def test_a_bad_key_in_a_file(new_cell, folder, value):
    path = folder + "/key"
    with open(path, "w", encoding="utf8") as f:
        f.write(value + "\n")
    assert refused(new_cell, {KEY + "_FILE": path}).endswith(KEY + NOT_A_KEY)
    assert refused(new_cell, {OLD + "_FILE": path}).endswith(
        OLD + " (key 1)" + NOT_A_KEY)


def test_files_that_cannot_be_read_and_both_at_once(new_cell, folder):
    path = folder + "/key"
    line = refused(new_cell, {KEY + "_FILE": path})
    assert KEY in line and "cannot open" in line
    with open(path, "w") as f:
        f.write(K1)
    assert "%s and %s_FILE are both set" % (KEY, KEY) in refused(
        new_cell, {KEY: K1, KEY + "_FILE": path})


@pytest.mark.parametrize("env, place", [
    ({KEY: K1, OLD: K1}, 1), ({KEY: K1, OLD: K2 + "," + K1.upper()}, 2),
    ({OLD: K2 + "," + K2}, 2)])
def test_a_key_named_twice_is_refused(new_cell, env, place):
    assert "%s (key %d) has the key id " % (OLD, place) in refused(
        new_cell, env)


def test_upper_case_and_blanks_are_no_other_key(new_cell, db):
    a = new_cell(**{KEY: "abcdef%s" % ("0" * 58)}).start()
    flag(a, "q")
    a.push("q", [PAYLOAD])
    a.term()
    b = new_cell(**{KEY: " ABCDEF%s\n" % ("0" * 58)}).start()
    assert [m["data"] for m in popped(b)] == [PAYLOAD]


def regions(pid):
    """(start, end, flags) of every readable mapping, but for the shadow of a
    sanitizer."""
    found = []
    with open("/proc/%d/smaps" % pid) as f:
        for line in f:
            head = line.split()
            if line.startswith("VmFlags:"):
                found[-1][2] = head[1:]
            elif not head[0].endswith(":"):
                found.append([*(int(x, 16) for x in head[0].split("-")), []])
    return [r for r in found if "rd" in r[2] and r[1] - r[0] < 1 << 30]


def holders(pid, needle):
    """Flags of the mappings that hold these bytes."""
    found = []
    with open("/proc/%d/mem" % pid, "rb", 0) as f:
        for start, end, flags in regions(pid):
            try:
                f.seek(start)
                if needle in f.read(end - start):
                    found.append(flags)
            except (OSError, ValueError):
                continue  # vvar and its like
    return found


@pytest.mark.amount
@pytest.mark.parametrize("files", [False, True])
def test_key_bytes_lie_in_guarded_memory_alone(new_cell, folder, files):
    new, old = (ODD + ODD)[:64], (ODD + ODD)[3:67]
    env = {KEY: new, OLD: old + "," + K2}
    if files:
        for name in KEY, OLD:
            path = folder + "/" + name
            with open(path, "w") as f:
                f.write(env.pop(name) + "\n")
            env[name + "_FILE"] = path
    one = new_cell(**env).start()
    flag(one, "q")
    assert statuses(one.push("q", [PAYLOAD])) == ["queued"]
    assert [m["data"] for m in popped(one)] == [PAYLOAD]
    pid = one.proc.pid
    for key in new, old:
        # a sanitizer keeps its own copy of the environment, and locks nothing
        assert holders(pid, key.encode()) == [] or SAN and not files
        flags, = holders(pid, bytes.fromhex(key))
        # kept out of dumps, locked, not written
        assert "dd" in flags and "wr" not in flags, flags
        assert "lo" in flags or SAN
    with open("/proc/%d/environ" % pid, "rb") as f:
        env = f.read()
    assert new.encode() not in env and K2.encode() not in env
    assert b"PG_DATABASE=" in env
