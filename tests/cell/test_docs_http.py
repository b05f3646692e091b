# SPDX-License-Identifier: Apache-2.0
"""
queen-http(7) has every route with its level, every field and parameter that is
read, every member and word that is answered; its examples run as printed.
"""
import glob
import json
import os
import re

from queenlib import ROOT
from test_docs import documented, page_steps, read, shell  # noqa: F401

PAGE = "queen-http.7"
LEVELS = {"PUBLIC": "public", "READ": "read", "WRITE": "write",
          "READ_WRITE": "read-write", "ADMIN": "admin"}
# they read and write no JSON of a route
NOT_ROUTES = ("conf.c", "main.c", "prom.c", "prom_kv.c", "ctx.c", "count.c",
              "flags.c")
TENANT = "00000000-0000-0000-0000-000000000001"


def page():
    return read("man", PAGE).replace("\\-", "-").replace("\\(dq", '"')


def words():
    """What a reader can find: every word of the page."""
    return set(re.findall(r"\w+", page()))


def routes():
    src = read("bin", "queend", "route.c")
    defines = dict(re.findall(r'^#define (\w+) (.*)$', src, re.M))

    def text(expr):
        return "".join(
            part.strip('"') if part.startswith('"') else text(defines[part])
            for part in re.findall(r'"[^"]*"|\w+', expr))

    table = src[src.index("route_table[] = {"):src.index("};")]
    found = re.findall(
        r"\{ HSRV_(\w+),\s*([^,]+),\s*\w+,\s*GATE_(\w+) \}", table)
    assert len(found) == table.count("{ HSRV_") > 40
    return [(method, text(path), LEVELS[level])
            for method, path, level in found]


def sources():
    for path in sorted(glob.glob(os.path.join(ROOT, "bin", "queend", "*.c"))):
        if os.path.basename(path) not in NOT_ROUTES:
            with open(path) as f:
                yield os.path.basename(path), f.read()


def test_every_route_stands_there_with_its_level():
    heads = re.findall(r"^\.Ss (GET|POST|PUT|DELETE) (\S+) \((\S+)\)$", page(),
                       re.M)
    assert sorted(heads) == sorted(routes())


def test_every_field_that_is_read_is_named():
    known = words()
    seen = set()
    for name, src in sources():
        fields = re.findall(r'\bspan_is\(key, "(\w+)"\)', src)
        fields += re.findall(r'\bFIELD\("(\w+)"', src)
        fields += re.findall(r'\{ "(\w+)", offsetof\(', src)
        fields += re.findall(
            r'\b(?:hsrv_query|admin_query_(?!page)\w+)\(\s*r,\s*"(\w+)"', src)
        fields += re.findall(r'\bget_\w+\(get, src, "(\w+)"', src)
        fields += re.findall(r'\bget\(src, "(\w+)"', src)
        options = re.search(r"option_names\[\] = \{(.*?)\}", src, re.S)
        fields += re.findall(r'"(\w+)"', options.group(1)) if options else []
        assert set(fields) - known == set(), name
        seen.update(fields)
    # the patterns still find what there is
    assert {"acknowledgments", "requiredLeases", "minBytes", "since", "delta",
            "payloadZstd", "toEnd", "traceNames", "includeExpired", "timeout",
            "subscriptionFrom", "deleteMetadata", "minLagSeconds",
            "retentionSinkHold", "groupBy", "budgetMs"} <= seen


def test_every_member_that_is_written_is_named():
    known = words()
    seen = set()
    for name, src in sources():
        keys = set(re.findall(r'\bjwrite_(?:key|kv_\w+)\(\s*&?\w+, "(\w+)"',
                              src))
        keys |= set(re.findall(r'\\"(\w+)\\":', src))
        assert keys - known == set(), name
        seen |= keys
    assert {"message_id", "noop", "partitionsClaimed", "highWatermark",
            "safeTimeDegraded", "kvReason", "deliverAt", "dlqRowRemoved",
            "quotaHot"} <= seen


def test_every_reason_of_rows_and_timers_is_named():
    known = words()
    for name, src in sources():
        if re.match(r"(kv|timer|ops|txn)", name):
            # what is quoted alone in an argument, and no statement
            found = set(re.findall(
                r'"((?:kv|timers?)_[a-z_0-9]+|feature_gated|rate_limited|'
                r'payload_too_large|encryption_required)"', src))
            found -= set(re.findall(r'"(\w+)",\s*"select', src))
            found -= {"kv_", "timers_"}  # what reasons begin with
            assert found - known == set(), name


def members(value, found):
    """Names of members; those under the names of queues are data."""
    if isinstance(value, dict):
        for key, inner in value.items():
            found.add(key)
            members(inner, found)
    elif isinstance(value, list):
        for inner in value:
            members(inner, found)
    return found


def calls(p, lease):
    """A call of every route that answers JSON composed in SQL."""
    cg = "/api/v1/consumer-groups"
    res = "/api/v1/resources"
    yield "POST", "/api/v1/configure", {"queue": "a.b"}
    for path in ("/queues", "/queues/a.b", "/queues/a.b/depth", "/overview",
                 "/namespaces", "/tasks"):
        yield "GET", res + path, None
    for path in ("", "/lagging?minLagSeconds=0"):
        yield "GET", cg + path, None
    yield "POST", cg + "/g/subscription", {
        "subscriptionTimestamp": "2026-01-01"}
    yield "POST", "/api/v1/traces", {
        "transactionId": "t", "partitionId": p, "data": 1, "traceNames": "n"}
    for path in ("/names", "/by-name/n", "/%s/t" % p):
        yield "GET", "/api/v1/traces" + path, None
    yield "GET", "/api/v1/messages?queue=a.b", None
    yield "GET", "/api/v1/messages/%s/t" % p, None
    for path in ("", "/queues", "/queues/a.b", "/analytics"):
        yield "GET", "/api/v1/status" + path, None
    for path in ("queue-lag", "queue-ops", "retention?groupBy=queue"):
        yield "GET", "/api/v1/analytics/" + path, None
    yield "POST", "/api/v1/ack", {"transactionId": "t", "partitionId": p,
                                  "leaseId": lease, "consumerGroup": "g",
                                  "status": "dlq"}
    yield "GET", "/api/v1/dlq", None
    yield "DELETE", res + "/queues/a.b", None


def test_every_member_that_is_answered_is_named(cell):
    cell.push("a.b", [None, None], ids=["t", "u"])
    first = cell.pop("a.b", group="g", subscriptionMode="all", batch=1)[0]
    known = words()
    for method, path, body in calls(first["partitionId"], first["leaseId"]):
        reply = cell.request(method, path, body)
        assert reply.status in (200, 201), (path, reply)
        found = members(reply.body, set())
        assert found or path.startswith("/api/v1/analytics/queue-lag"), path
        assert found - known == set(), path
    stats = cell.get("/api/v1/analytics/postgres-stats").body
    assert set(stats) <= known
    # of the purge only the names of tables are not listed
    done = cell.delete("/api/v1/resources/tenant?allowDefaultTenant=true")
    assert set(done.body) | set(done.body["queues"]) <= known
    assert done.body["tenant"] == TENANT


def test_defaults_and_ranges_of_options_are_those_of_the_database(db):
    """The list of options says each default and each bound that refuses."""
    text = page()
    text = text[text.index("Options, with the default"):]
    text = text[:text.index("\n.El")]
    items = {}
    for heads, body in re.findall(r"^\.It Li (.*)\n((?:(?!\.It).*\n?)*)", text,
                                  re.M):
        for name in heads.split(" , "):
            items[name] = body
    rules = db.rows("select name, kind, lo, hi, dflt::text"
                    " from queen.queue_option_rules()")
    assert sorted(items) == sorted(r[0] for r in rules)
    for name, kind, low, high, dflt in rules:
        value = json.loads(dflt)
        told = {False: "false", True: "true", "": "empty"}.get(value) \
            if not isinstance(value, int) or isinstance(value, bool) \
            else str(value)
        assert re.search(r"\b%s\b" % told, items[name]), name
        if kind == "int" and high < 2 ** 31 - 1:
            assert "%d to %d" % (low, high) in items[name], name


def test_limits_are_those_of_the_code():
    text = " ".join(page().split())
    fetch = read("bin", "queend", "fetch_body.h")
    body = read("bin", "queend", "body.h")
    for src, name, said in (
            (fetch, "FETCH_ENTRIES_MAX", "array of objects, at most %s."),
            (fetch, "FETCH_BYTES_MAX", "integer, 1048576, 1 to %s"),
            (fetch, "FETCH_WAIT_MAX_MS", "integer, 0, to %s:"),
            (fetch, "CHANGED_ENTRIES_MAX", "array of objects, at most %s;"),
            (fetch, "CHANGED_LIMIT_MAX", "integer, %s, 1 to"),
            (body, "BODY_LIST_MAX", "a list in it %s elements"),
            (read("bin", "queend", "pop_query.h"), "POP_BATCH_DEFAULT",
             "integer, %s, at least 1: messages"),
            (read("bin", "queend", "pop_query.h"), "POP_TIMEOUT_MAX_MS",
             "0 to %s, above which"),
            (read("bin", "queend", "admin.h"), "ADMIN_PAGE_MAX",
             "at most %s; 0 means the default"),
            (read("bin", "queend", "tenant.c"), "BUDGET_MAX_MS",
             "integer, 5000, 0 to %s")):
        number = re.search(r"\b%s = (\d+)" % name, src).group(1)
        assert said % number in text, name


def test_examples_run_as_printed(documented):  # noqa: F811
    _, here, env, folder = documented
    steps = page_steps(PAGE)
    assert len(steps) > 15
    shell(here(steps), env, folder)
