# SPDX-License-Identifier: Apache-2.0
"""POST /configure: the 21 options, merge and replace, casts and refusals."""
import re

from queenlib import wait_until

DEFAULTS = {
    "leaseTime": 300, "retryLimit": 3, "deadLetterQueue": True,
    "dlqAfterMaxRetries": True, "delayedProcessing": 0, "windowBuffer": 0,
    "minPopWaitTime": 0, "retentionEnabled": False, "retentionSeconds": 0,
    "completedRetentionSeconds": 0, "maxWaitTimeSeconds": 0,
    "encryptionEnabled": False, "dedupWindowSeconds": 3600,
    "retentionSinkHold": "", "retentionSinkHoldMaxSeconds": 604800,
    "priority": 0, "ttl": 3600, "maxSize": 0, "retryDelay": 1000}
INTS = [k for k, v in DEFAULTS.items() if type(v) is int]
BOOLS = [k for k, v in DEFAULTS.items() if type(v) is bool]
OTHER = {
    "leaseTime": 120, "retryLimit": 0, "deadLetterQueue": False,
    "dlqAfterMaxRetries": False, "delayedProcessing": 7, "windowBuffer": 8,
    "minPopWaitTime": 60000, "retentionEnabled": True,
    "retentionSeconds": 86400, "completedRetentionSeconds": 3600,
    "maxWaitTimeSeconds": 99, "encryptionEnabled": True,
    "dedupWindowSeconds": 0, "retentionSinkHold": "sink-1._A",
    "retentionSinkHoldMaxSeconds": 60, "priority": -5, "ttl": 1,
    "maxSize": 2147483647, "retryDelay": 2}
UUID8 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-"
                   r"[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def configure(cell, body, status=200):
    reply = cell.post("/api/v1/configure", body)
    assert reply.status == status, (body, reply.body)
    return reply.body


def options(cell, queue="q"):
    reply = cell.get("/api/v1/resources/queues/" + queue)
    assert reply.status == 200
    return reply.body["options"]


def test_create_answers_the_whole_effective_row(cell):
    body = configure(cell, {"queue": "q", "options": {}})
    assert UUID8.fullmatch(body.pop("queueId"))
    assert body == {"configured": True, "partitionId": None, "queue": "q",
                    "namespace": "", "task": "", "storage": "segments",
                    "options": DEFAULTS}
    assert options(cell) == dict(DEFAULTS, namespace="", task="")


def test_every_option_is_stored_and_echoed_in_each_request_form(cell):
    assert set(OTHER) == set(DEFAULTS)
    body = configure(cell, {"queue": "a", "options": OTHER})
    assert body["options"] == OTHER
    body = configure(cell, dict(OTHER, queue="b"))
    assert body["options"] == OTHER
    assert options(cell, "b") == dict(OTHER, namespace="", task="")
    body = configure(cell, {"queue": "c", "options": {
        k: str(v).lower() if type(v) is bool else str(v)
        for k, v in OTHER.items()}})
    assert body["options"] == OTHER


def test_labels_beside_and_inside_options(cell):
    for sent, want in (
            ({"namespace": "n", "task": "t", "options": {}}, ("n", "t")),
            ({"namespace": "n", "options": {"namespace": "i", "task": "j"}},
             ("n", "j")),
            ({"namespace": "", "options": {"namespace": "i"}}, ("i", "j")),
            ({"namespace": None, "task": None, "options": {}}, ("i", "j")),
            ({"namespace": "", "task": None}, ("", ""))):
        body = configure(cell, dict(sent, queue="q"))
        assert (body["namespace"], body["task"]) == want, sent


def test_merge_keeps_and_replace_restores(cell):
    cell.push("ns.task.x", [1])
    body = configure(cell, {"queue": "ns.task.x",
                            "options": {"retryLimit": 9}})
    assert (body["namespace"], body["task"]) == ("ns", "task")
    assert body["options"] == dict(DEFAULTS, leaseTime=60, retryLimit=9)
    body = configure(cell, {"queue": "ns.task.x", "mode": None,
                            "options": {"retryLimit": None, "ttl": 5}})
    assert body["options"] == dict(DEFAULTS, leaseTime=60, ttl=5)
    body = configure(cell, {"queue": "ns.task.x", "mode": "merge",
                            "options": {"replace": True, "maxSize": 1}})
    assert body["options"] == dict(DEFAULTS, leaseTime=60, ttl=5, maxSize=1)
    body = configure(cell, {"queue": "ns.task.x", "mode": "replace",
                            "options": {"priority": 1}})
    assert (body["namespace"], body["task"]) == ("", "")
    assert body["options"] == dict(DEFAULTS, priority=1)


def test_null_options_and_unknown_keys_are_ignored(cell):
    body = configure(cell, {"queue": "q", "options": None, "ttl": 4,
                            "nope": {"x": [1]}})
    assert body["options"] == dict(DEFAULTS, ttl=4)
    body = configure(cell, '{"queue":"q","options":{"nope":"\\u0000\\ud800",'
                     '"huge":1e999999,"ttl":6}}')
    assert body["options"] == dict(DEFAULTS, ttl=6)


def test_values_that_do_not_cast_are_refused_and_nothing_is_written(cell):
    configure(cell, {"queue": "q", "options": OTHER})
    bad = [(k, v, "%s must be an integer, got %s" % (k, got))
           for k in INTS for v, got in (
               ("abc", "'abc'"), ("", "''"), (True, "true"), (1.5, "1.5"),
               ([1], "an array"), ({}, "an object"), ("1.5", "'1.5'"))]
    bad += [(k, v, "%s must be a boolean, got %s" % (k, got))
            for k in BOOLS for v, got in (
                ("abc", "'abc'"), ("", "''"), (2, "2"), ([1], "an array"),
                ({}, "an object"))]
    bad += [(k, v, "%s must be a string, got %s" % (k, got))
            for k in ("namespace", "task") for v, got in (
                (1, "1"), (True, "true"), ([1], "an array"),
                ({}, "an object"))]
    with_conn = cell.http()
    for name, value, text in bad:
        for queue in ("q", "fresh"):
            reply = cell.post("/api/v1/configure", {
                "queue": queue, "options": {"ttl": 77, name: value}},
                conn=with_conn)
            assert (reply.status, reply.body) == (
                400, {"error": text, "invalid": name})
    with_conn.close()
    assert options(cell) == dict(OTHER, namespace="", task="")
    assert cell.get("/api/v1/resources/queues/fresh").status == 404


def test_ranges(cell):
    big = 2147483647
    for name, lo, hi in (
            ("leaseTime", 1, 604800), ("retryLimit", 0, 1000000),
            ("delayedProcessing", 0, big), ("windowBuffer", 0, big),
            ("retentionSinkHoldMaxSeconds", 60, 31536000),
            ("retentionSeconds", -big - 1, big), ("priority", -big - 1, big),
            ("ttl", -big - 1, big)):
        for good in (lo, hi):
            body = configure(cell, {"queue": "q", "options": {name: good}})
            assert body["options"][name] == good
        for wrong in (lo - 1, hi + 1, 10 ** 30):
            assert configure(cell, {"queue": "q", "options": {name: wrong}},
                             400) == {
                "error": "%s must be between %d and %d, got %d"
                % (name, lo, hi, wrong), "invalid": name}
    for name, sent, want in (
            ("minPopWaitTime", -1, 0), ("minPopWaitTime", 60001, 60000),
            ("dedupWindowSeconds", -5, 0), ("leaseTime", 1e2, 100)):
        body = configure(cell, {"queue": "q", "options": {name: sent}})
        assert body["options"][name] == want


def test_the_sink_hold_is_refused_not_clamped(cell):
    for value, got in (("a b", "'a b'"), ("x" * 65, "'%s'" % ("x" * 64)),
                       ("ü", "'ü'"), (5, "5")):
        assert configure(cell, {"queue": "q", "options": {
            "retentionSinkHold": value}}, 400) == {
                "error": "retentionSinkHold must match [A-Za-z0-9._-]{0,64}, "
                         "got " + got, "invalid": "retentionSinkHold"}
    assert configure(cell, {"queue": "q", "options": {
        "retentionSinkHoldMaxSeconds": 10}}, 400) == {
            "error": "retentionSinkHoldMaxSeconds must be between 60 and "
                     "31536000, got 10",
            "invalid": "retentionSinkHoldMaxSeconds"}
    assert cell.get("/api/v1/resources/queues/q").status == 404


def test_labels_that_cannot_be_stored_are_refused(cell):
    for text, what in (
            ('"a\\u0000b"', "namespace holds a NUL character"),
            ('"\\ud800"', "namespace holds half of a surrogate pair"),
            ('"%s"' % ("x" * 1025), "namespace must be at most 1024 bytes"),
            ('"%s"' % ("x" * 9000), "namespace must be at most 1024 bytes")):
        assert configure(
            cell, '{"queue":"q","options":{"namespace":%s}}' % text, 400) == {
                "error": what, "invalid": "namespace"}
    body = configure(cell, {"queue": "q", "namespace": "ü" * 512})
    assert body["namespace"] == "ü" * 512


def test_bad_bodies(cell):
    for body, text in (
            (b"", None), (b"{", None), (b"[]", None), (b"7", None),
            (b'{"queue":"q"} x', None), (b'{"queue":"\xff"}', None),
            ("{}", "bad body: queue is required"),
            ('{"queue":null}', "bad body: queue is required"),
            ('{"queue":5}', "bad body: queue must be a string"),
            ('{"queue":["q"]}', "bad body: queue must be a string"),
            ('{"queue":""}', "bad body: queue is empty"),
            ('{"queue":"%s"}' % ("x" * 1025),
             "bad body: queue is longer than 1024 bytes"),
            ('{"queue":"a\\nb"}', "bad body: queue holds a control character"),
            ('{"queue":"a\\u0000b"}',
             "bad body: queue holds a control character"),
            ('{"queue":"\\ud800"}',
             "bad body: queue holds half of a surrogate pair"),
            ('{"queue":"q","options":[]}',
             "bad body: options must be an object"),
            ('{"queue":"q","options":"x"}',
             "bad body: options must be an object"),
            ('{"queue":"q","mode":"Replace"}',
             'mode must be "merge" or "replace", got "Replace"'),
            ('{"queue":"q","mode":1}',
             'mode must be "merge" or "replace", got 1'),
            ('{"queue":"q","mode":{"a":1}}',
             'mode must be "merge" or "replace", got {"a":1}')):
        reply = cell.post("/api/v1/configure", body)
        assert reply.status == 400, body
        assert list(reply.body) == ["error"]
        if text is None:
            assert re.fullmatch(r"bad body: .+ at offset \d+",
                                reply.body["error"]), (body, reply.body)
        else:
            assert reply.body["error"] == text
    assert cell.get("/api/v1/resources/queues").body == {"queues": []}


def test_the_last_of_a_repeated_key_counts(cell):
    body = configure(cell, '{"queue":"x","queue":"q","options":{"ttl":1},'
                     '"options":{"ttl":2,"ttl":3}}')
    assert body["queue"] == "q"
    assert body["options"] == dict(DEFAULTS, ttl=3)


def test_a_change_counts_for_the_next_pop_on_every_process(cells):
    one, two = cells(2)
    one.push("q", [1, 2])
    assert two.pop("q", group="g", subscriptionMode="all", batch=1)
    configure(one, {"queue": "q", "options": {"leaseTime": 1}})
    assert wait_until(lambda: two.pop("q", group="h", batch=1,
                                      subscriptionMode="all"))
    # that lease lasts a second, not the minute the queue was made with
    assert wait_until(lambda: two.pop("q", group="h", batch=1))


def test_names_with_anything_printable(cell):
    name = 'a/b "ü" \\ %2F €'
    body = configure(cell, {"queue": name})
    assert body["queue"] == name
    reply = cell.get("/api/v1/resources/queues")
    assert [q["name"] for q in reply.body["queues"]] == [name]
