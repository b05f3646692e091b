# SPDX-License-Identifier: Apache-2.0
"""
queen-ojs(8) has every field and parameter that is read, every member that is
answered, every error code with its statuses, every metric; its examples run as
printed.
"""
import glob
import os
import re

from queenlib import BIN, ROOT
from test_docs import described_families, page_steps, read, rendered, shell

PAGE = "queen-ojs.8"
# they read and write no JSON of a route
NOT_ROUTES = ("conf.c", "main.c", "ctx.c", "route.c", "level.c", "sweep.c",
              "call.c", "when.c")
# inside policies as the database wants them; nobody sees these
INTERNAL = {"coefficient", "dead", "initial_ms", "max_ms", "on", "period_ms",
            "stop", "strategy"}


def words():
    """What a reader can find: every word of the page."""
    return set(re.findall(r"\w+", read("man", PAGE).replace("\\-", "-")))


def sources():
    for path in sorted(glob.glob(os.path.join(ROOT, "bin", "queen-ojs",
                                              "*.c"))):
        if os.path.basename(path) not in NOT_ROUTES:
            with open(path) as f:
                yield os.path.basename(path), f.read()


def test_every_field_that_is_read_is_named():
    known = words()
    seen = set()
    for name, src in sources():
        fields = re.findall(r'\bspan_is\((?:key|name), "(\w+)"\)', src)
        fields += re.findall(r'\.(?:key|name) = "(\w+)"(?!,\s*\.sql)', src)
        fields += re.findall(r'\[\w+\] = \{ "(\w+)"', src)
        fields += re.findall(r'\{ "(\w+)", (?:&|read_|take_)', src)
        fields += re.findall(r'\bread_names\(r, "(\w+)"', src)
        names = re.search(r"\bNAMES\[\w*\] = \{(.*?)\};", src, re.S)
        fields += re.findall(r'"(\w+)"', names.group(1)) if names else []
        fields += re.findall(r'\bhsrv_query\(\s*r, "(\w+)"', src)
        statements = re.findall(r'\.name = "(\w+)",\s*\.sql', src)
        fields = set(fields) - set(statements)
        assert fields - known == set(), name
        seen |= fields
    # the patterns still find what there is
    assert {"args", "rate_limit", "backoff_coefficient", "args_keys",
            "callbacks", "job_template", "dead_letter_retention",
            "from_tick", "dead_interval_ms", "retry_after", "older_than",
            "worker_id", "requeue", "job_types"} <= seen


def test_every_member_that_is_answered_is_named():
    known = words()
    seen = set()
    for name, src in sources():
        keys = set(re.findall(
            r'\bj?write_\w+\(\s*&?[\w>-]+, "(\w+)"', src))
        keys |= set(re.findall(r'\\"(\w+)\\":', src))
        keys |= set(re.findall(r'\bput_\w+\(&?\w+, "(\w+)"', src))
        keys -= INTERNAL
        assert keys - known == set(), name
        seen |= keys
    assert {"acknowledged", "jobs_lost", "deduplicated", "computed_at",
            "pagination", "redelivered", "dead_letter_id",
            "first_error", "unique_job_strength"} <= seen


def test_every_error_code_is_listed_with_each_status():
    src = read("bin", "queen-ojs", "reply.c")
    table = src[src.index("codes[] = {"):]
    codes = re.findall(r'\{ "(\w+)"', table[:table.index("};")])
    assert len(codes) > 10
    text = rendered(PAGE, "ERROR CODES")
    listed = dict(re.findall(r"^ +([a-z_]+) +(\d{3}(?:, \d{3})?) ", text,
                             re.M))
    assert list(listed) == codes
    sent = {}
    for _, body in sources():
        for status, code in re.findall(
                r'\b(\d{3}),\s*"([a-z_]+)",', body):
            if code in listed:
                sent.setdefault(code, set()).add(status)
    for code, statuses in sent.items():
        said = set(listed[code].split(", "))
        if code == "invalid_payload":
            said.add("422")
        if code == "invalid_request":
            said.add("405")
        assert statuses <= said, code


def test_families_are_those_described():
    table = re.findall(r'"(queen_ojs_\w+)"',
                       read("bin", "queen-ojs", "status.c"))
    assert len(table) > 15
    assert set(described_families("queen-ojs")) == set(table)


def test_examples_run_as_printed(new_ojs, folder):
    one = new_ojs().start()
    steps = page_steps(PAGE)
    assert len(steps) == 8
    shell([(c.replace("localhost:6634", "127.0.0.1:%d" % one.port.number), w)
           for c, w in steps],
          {"PATH": BIN + ":" + os.environ["PATH"], "HOME": folder,
           "LC_ALL": "C.UTF-8"}, folder)
