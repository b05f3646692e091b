# SPDX-License-Identifier: Apache-2.0
"""POST /api/v1/ack and /ack/batch: shape, words, errors, and what moves."""
import json
import threading
import uuid

import pytest

from queenlib import wait_until

ONE, BATCH = "/api/v1/ack", "/api/v1/ack/batch"
KEYS = ["index", "transactionId", "success", "error", "leaseReleased", "dlq",
        "noop"]
BAD_LEASE = "invalid or expired lease"
COMMITTED = ("already committed: the cursor moved past this message before"
             " this ack")
UNRESOLVABLE = ("unresolvable: transaction not in the ack window (hash purged"
                " or never pushed); if leased, the message redelivers")


def fill(cell, n, queue="q", partition="p", prefix="t"):
    ids = ["%s%d" % (prefix, i) for i in range(n)]
    cell.push(queue, list(range(n)), partition=partition, ids=ids)
    return ids


def pop(cell, n=100, queue="q", **kw):
    # the first of a pushed batch may still be on its way to the ring
    return wait_until(lambda: cell.pop(queue, batch=n, **kw))


def ack(cell, *items, group=None, path=BATCH):
    body = {"acknowledgments": list(items)}
    if group:
        body["consumerGroup"] = group
    reply = cell.post(path, body)
    assert reply.status == 200, reply
    assert [r["index"] for r in reply.body] == list(range(len(items)))
    assert [r["transactionId"] for r in reply.body] == [
        i.get("transactionId", "") for i in items]
    return reply.body


def of(message, status=None, error=None, lease=True):
    made = {"transactionId": message["transactionId"],
            "partitionId": message["partitionId"]}
    if lease:
        made["leaseId"] = message["leaseId"]
    if status is not None:
        made["status"] = status
    if error is not None:
        made["error"] = error
    return made


def consumer(db, queue="q", group="__QUEUE_MODE__"):
    return db.row(
        "select c.committed, c.batch_end, c.retries from queen.consumers c"
        " join queen.groups g on g.id = c.group_id join queen.queues q"
        " on q.id = g.queue_id where q.name = %s and g.name = %s"
        " order by c.gen desc limit 1", (queue, group))


def good(released=False, noop=False, dlq=False):
    return (True, None, released, dlq, noop)


def bad(error):
    return (False, error, False, False, False)


def told(answers):
    return [tuple(a[k] for k in KEYS[2:]) for a in answers]


def configure(cell, queue, **options):
    reply = cell.post("/api/v1/configure",
                      {"queue": queue, "options": options})
    assert reply.status in (200, 201), reply


# Shape

def test_single_ack_answers_an_array_with_exactly_these_keys(cell):
    fill(cell, 1)
    m = pop(cell)[0]
    reply = cell.post(ONE, of(m))
    assert reply.status == 200
    assert reply.body == [{
        "index": 0, "transactionId": "t0", "success": True, "error": None,
        "leaseReleased": True, "dlq": False, "noop": False}]
    assert list(reply.body[0]) == KEYS


def test_batch_answers_in_request_order_over_partitions(cell):
    for p in range(4):
        fill(cell, 3, partition="p%d" % p, prefix="p%d-" % p)
    messages = pop(cell, partitions=4)
    while len(messages) < 12:
        messages += pop(cell, partitions=4)
    shuffled = messages[::2] + messages[1::2]
    answers = ack(cell, *[of(m) for m in shuffled])
    assert told(answers) == [good(released=True)] * 12


def test_null_is_absent_and_unknown_keys_are_ignored(cell):
    fill(cell, 1)
    m = pop(cell)[0]
    reply = cell.post(ONE, {**of(m), "error": None, "consumerGroup": None,
                            "status": None, "x": [1]})
    assert told(reply.body) == [good(released=True)]


def test_empty_batch_answers_an_empty_array(common):
    assert ack(common) == []


@pytest.mark.parametrize("path,body,text", [
    (ONE, "", "bad body: unexpected end at offset 0"),
    (ONE, "[]", "bad body: it must be a JSON object"),
    (ONE, '{"transactionId":1}', "bad body: transactionId must be a string"),
    (ONE, '{"consumerGroup":[]}', "bad body: consumerGroup must be a string"),
    (BATCH, "{}", "bad body: acknowledgments is required"),
    (BATCH, '{"acknowledgments":{}}',
     "bad body: acknowledgments must be an array"),
    (BATCH, '{"acknowledgments":[{},7]}',
     "bad body: acknowledgments[1] must be an object"),
    (BATCH, '{"acknowledgments":[{"leaseId":7}]}',
     "bad body: acknowledgments[0].leaseId must be a string"),
    (BATCH, '{"acknowledgments":[{"status":1}]}',
     "bad body: acknowledgments[0].status must be a string"),
    (BATCH, '{"acknowledgments":[{"error":{}}]}',
     "bad body: acknowledgments[0].error must be a string"),
])
def test_a_wrong_shape_is_400(common, path, body, text):
    reply = common.post(path, body)
    assert (reply.status, reply.body) == (400, {"error": text})


# Errors per item

def test_partition_ids_that_are_none_of_ours(cell, db):
    fill(cell, 1)
    m = pop(cell)[0]
    queue_id = cell.get("/api/v1/resources/queues/q").body.get("id")
    foreign = "00000000-0001" + m["partitionId"][13:]
    ids = ["", "nope", str(uuid.uuid4()), m["partitionId"][:-1],
           m["partitionId"] + "0", foreign]
    if queue_id:
        ids.append(queue_id)
    answers = ack(cell, *[{**of(m), "partitionId": i} for i in ids], of(m))
    assert told(answers) == [bad("invalid partitionId")] * len(ids) + [
        good(released=True)]


def test_a_partition_that_is_not_there_has_no_consumer(cell, db):
    fill(cell, 1)
    m = pop(cell)[0]
    unknown = m["partitionId"][:-4] + "ffff"
    assert told(ack(cell, {**of(m), "partitionId": unknown})) == [
        bad("consumer not found")]


def test_a_group_without_cursor_has_no_consumer(cell):
    fill(cell, 1)
    m = pop(cell)[0]
    assert told(ack(cell, of(m), group="stranger")) == [
        bad("consumer not found")]
    # per-item groups are not read
    assert told(ack(cell, {**of(m), "consumerGroup": "stranger"})) == [
        good(released=True)]


def test_lease_ids_that_are_not_the_live_holder(cell):
    fill(cell, 2)
    m = pop(cell)[0]
    other = m["leaseId"][:-4] + ("0000" if m["leaseId"][-4:] != "0000"
                                 else "1111")
    answers = ack(cell, {**of(m), "leaseId": "nope"},
                  {**of(m), "leaseId": str(uuid.UUID(int=7))},
                  {**of(m), "leaseId": other})
    assert told(answers) == [bad(BAD_LEASE)] * 3
    assert told(ack(cell, of(m))) == [good()]


def test_an_empty_or_absent_lease_id_is_lease_less(cell, db):
    fill(cell, 3)
    a, b, c = pop(cell)
    assert told(ack(cell, of(a, lease=False))) == [good()]
    assert told(ack(cell, {**of(b), "leaseId": ""})) == [good()]
    assert told(ack(cell, {**of(c), "leaseId": None})) == [
        good(released=True)]
    assert consumer(db) == (2, None, 0)


def test_ids_that_resolve_nowhere(cell):
    fill(cell, 2)
    a, b = pop(cell)
    answers = ack(cell, {**of(a), "transactionId": "other"},
                  {**of(a), "transactionId": ""},
                  {**of(a), "transactionId": "x" * 70000}, of(a))
    assert told(answers) == [bad(UNRESOLVABLE)] * 3 + [good()]
    assert told(ack(cell, of(b), {**of(b), "transactionId": "z",
                                  "status": "failed"})) == [
        good(released=True), bad(UNRESOLVABLE)]


def test_above_the_batch_end_is_unresolvable(cell):
    fill(cell, 3)
    m = pop(cell, 2)[0]
    assert told(ack(cell, {**of(m), "transactionId": "t2"})) == [
        bad(UNRESOLVABLE)]


def test_below_the_cursor_completed_is_a_noop_and_a_nack_too_late(cell):
    fill(cell, 3)
    a, b, c = pop(cell)
    assert told(ack(cell, of(b))) == [good()]
    assert told(ack(cell, of(a), of(b))) == [good(noop=True)] * 2
    for word in ("failed", "retry", "dlq", "nack"):
        assert told(ack(cell, of(a, word))) == [bad(COMMITTED)]
    assert told(ack(cell, of(c))) == [good(released=True)]


def test_a_repeated_ack_under_the_lease_before_is_a_noop(cell):
    fill(cell, 2)
    messages = pop(cell)
    assert told(cell.ack(messages)) == [good(released=True)] * 2
    assert told(cell.ack(messages)) == [good(noop=True)] * 2
    assert told(ack(cell, of(messages[0], "failed"))) == [bad(BAD_LEASE)]


# What moves

def test_acking_the_last_completes_the_batch(cell, db):
    fill(cell, 5)
    messages = pop(cell)
    assert told(ack(cell, of(messages[4]))) == [good(released=True)]
    assert consumer(db) == (4, None, 0)


def test_acking_the_middle_completes_what_is_before(cell, db):
    fill(cell, 5)
    messages = pop(cell)
    assert told(ack(cell, of(messages[2]))) == [good()]
    assert consumer(db) == (2, 4, 0)


@pytest.mark.parametrize("word", [None, "completed", "success", "acked",
                                  "ok"])
def test_words_that_complete(common, own_name, word):
    fill(common, 1, own_name)
    m, = pop(common, queue=own_name)
    assert told(ack(common, of(m, word))) == [good(released=True)]
    assert consumer(common.db, own_name) == (0, None, 0)


@pytest.mark.parametrize("word", ["failed", "", "FAILED", "nack", "OK",
                                  "Completed"])
def test_any_other_word_fails(common, own_name, word):
    fill(common, 1, own_name)
    m, = pop(common, queue=own_name)
    assert told(ack(common, of(m, word))) == [good(released=True)]
    assert consumer(common.db, own_name) == (-1, None, 1)


def test_retry_is_free(cell, db):
    fill(cell, 2)
    for attempt in range(1, 6):
        a, b = pop(cell)
        assert a["deliveryAttempt"] == attempt
        assert told(ack(cell, of(a, "retry"), of(b))) == [
            good(released=True)] * 2
        assert consumer(db) == (-1, None, 0)


def test_the_lowest_signal_wins_over_later_completed_ones(cell, db):
    fill(cell, 5)
    m = pop(cell)
    answers = ack(cell, of(m[0]), of(m[1], "failed"), of(m[2]), of(m[3]),
                  of(m[4]))
    assert told(answers) == [good(released=True)] * 5
    assert consumer(db) == (0, None, 1)
    assert [x["transactionId"] for x in pop(cell)] == [
        "t1", "t2", "t3", "t4"]


def test_nacked_work_wakes_a_parked_pop(cell):
    fill(cell, 1)
    m = pop(cell)[0]
    got = []
    t = threading.Thread(target=lambda: got.extend(
        cell.pop("q", wait=True, wait_ms=20000)))
    t.start()
    wait_until(lambda: cell.get("/health").status == 200)
    assert told(ack(cell, of(m, "failed"))) == [good(released=True)]
    t.join(10)
    assert [x["transactionId"] for x in got] == ["t0"]


def test_groups_do_not_touch_each_other(cell, db):
    fill(cell, 2)
    one = pop(cell, group="one", subscriptionMode="all")
    two = pop(cell, group="two", subscriptionMode="all")
    assert told(cell.ack(one, group="one")) == [good(released=True)] * 2
    assert told(cell.ack(one, group="two")) == [bad(BAD_LEASE)] * 2
    assert told(cell.ack(two, group="two")) == [good(released=True)] * 2


def test_one_request_may_name_several_leases_and_partitions(cell):
    fill(cell, 2, partition="a", prefix="a")
    fill(cell, 2, partition="b", prefix="b")
    one = pop(cell, partition="a")
    two = pop(cell, partition="b")
    assert one[0]["leaseId"] != two[0]["leaseId"]
    stale = {**of(two[1]), "leaseId": one[0]["leaseId"]}
    assert told(ack(cell, of(one[0]), of(two[0]), of(one[1]), stale)) == [
        good(released=True), good(), good(released=True), bad(BAD_LEASE)]


def test_acks_reach_another_queend(cells):
    a, b = cells(2)
    fill(a, 3)
    messages = pop(a)
    assert told(b.ack(messages[:2])) == [good()] * 2
    assert told(b.ack(messages[2:])) == [good(released=True)]


def test_an_id_stored_twice_takes_its_occurrences_in_turn(cell, db):
    configure(cell, "q", dedupWindowSeconds=0)
    for i in ["a", "b", "a"]:
        cell.push("q", [i], partition="p", ids=[i])
    m = pop(cell, 10)
    while len(m) < 3:
        m = pop(cell, 10)
    assert told(ack(cell, *[of(x) for x in m])) == [good(released=True)] * 3
    assert consumer(db) == (2, None, 0)


# Dead letters

def dead(db):
    return db.rows("select group_name, message_offset, error, retries, frame"
                   " is not null from queen.dead_letters"
                   " order by message_offset")


def test_dlq_files_at_once_and_says_so_for_that_item_only(cell, db):
    fill(cell, 3)
    m = pop(cell)
    answers = ack(cell, of(m[0]), of(m[1], "dlq", "smtp 451"), of(m[2]))
    assert told(answers) == [good(released=True),
                             good(released=True, dlq=True),
                             good(released=True)]
    assert dead(db) == [("__QUEUE_MODE__", 1, "smtp 451", 0, True)]
    assert [x["transactionId"] for x in pop(cell)] == ["t2"]


def test_a_spent_budget_files_the_head(cell, db):
    configure(cell, "q", retryLimit=2)
    fill(cell, 2)
    for left in (True, True, False):
        m = pop(cell)
        answers = ack(cell, of(m[0], "failed", "no luck"), of(m[1]))
        assert told(answers) == [
            good(released=True, dlq=not left), good(released=True)]
    assert dead(db) == [("__QUEUE_MODE__", 0, "no luck", 2, True)]
    assert consumer(db) == (0, None, 0)


def test_with_dead_lettering_off_the_head_is_dropped(cell, db):
    configure(cell, "q", retryLimit=0, deadLetterQueue=False,
              dlqAfterMaxRetries=False)
    fill(cell, 2)
    m = pop(cell)
    assert told(ack(cell, of(m[0], "failed"))) == [good(released=True)]
    assert dead(db) == []
    assert consumer(db) == (0, None, 0)


@pytest.mark.parametrize("items,reason", [
    ([("t1", "dlq", None), ("t0", "completed", "first")], "first"),
    ([("t0", "completed", "first"), ("t1", "dlq", "own")], "own"),
    ([("t1", "dlq", "")], "Retries exhausted"),
    ([("t1", "dlq", "a\0b")], "a b"),
    ([("t1", "dlq", "\u00e9\U0001f600")], "\u00e9\U0001f600"),
])
def test_the_reason_of_a_dead_letter(cell, db, items, reason):
    fill(cell, 2)
    m = {x["transactionId"]: x for x in pop(cell)}
    ack(cell, *[of(m[t], s, e) for t, s, e in items])
    assert [d[2] for d in dead(db)] == [reason]


def test_the_frame_is_cut_from_a_long_segment(cell, db):
    payloads = [{"n": i, "x": "y" * 300} for i in range(500)]
    cell.push("q", payloads, partition="p",
              ids=["t%d" % i for i in range(500)])
    m = pop(cell, 500)
    answers = ack(cell, of(m[321], "dlq"))
    assert answers[0]["dlq"] is True
    listed = cell.get("/api/v1/dlq?queue=q").body["messages"]
    assert [(x["transactionId"], x["data"]) for x in listed] == [
        ("t321", payloads[321])]


def test_a_removed_message_is_filed_with_null_data(cell, db):
    fill(cell, 2)
    m = pop(cell)
    db.rows("delete from queen.segments")
    answers = ack(cell, of(m[0], "dlq"))
    assert told(answers) == [good(released=True, dlq=True)]
    assert dead(db) == [("__QUEUE_MODE__", 0, "Retries exhausted", 0, False)]


def test_a_frame_that_cannot_be_read_does_not_stop_the_lane(cell, db):
    fill(cell, 2)
    m = pop(cell)
    db.rows("update queen.segments set blob = '\\x0107aa'")
    assert told(ack(cell, of(m[0], "dlq"))) == [
        good(released=True, dlq=True)]
    assert dead(db)[0][4] is False
    assert "cannot be read" in cell.log_text()


def test_many_dead_letters_in_one_request(cell, db):
    for p in range(40):
        fill(cell, 2, partition="p%d" % p, prefix="p%d-" % p)
    m = []
    while len(m) < 80:
        m += pop(cell, 200, partitions=50)
    heads = [x for x in m if x["transactionId"].endswith("-0")]
    answers = ack(cell, *[of(x, "dlq") for x in heads])
    assert told(answers) == [good(released=True, dlq=True)] * 40
    assert len(dead(db)) == 40


# Conflation, seek, faults

def test_a_clean_ack_of_a_conflated_lease_tells_what_it_skipped(cell, db):
    fill(cell, 5)
    m = pop(cell, group="g", subscriptionMode="all", conflation=True)
    assert [x["transactionId"] for x in m] == ["t4"]
    answers = cell.ack(m, group="g")
    assert answers == [{
        "index": 0, "transactionId": "t4", "success": True, "error": None,
        "leaseReleased": True, "dlq": False, "noop": False, "conflated": 4}]
    assert consumer(db, group="g") == (4, None, 0)


def test_a_queue_wide_seek_ends_the_lease(cell):
    fill(cell, 3)
    m = pop(cell, group="g", subscriptionMode="all")
    reply = cell.post("/api/v1/consumer-groups/g/queues/q/seek",
                      {"timestamp": "2020-01-01T00:00:00Z"})
    assert reply.status == 200, reply
    answers = told(cell.ack(m, group="g"))
    assert answers in ([bad("consumer not found")] * 3, [bad(BAD_LEASE)] * 3)
    again = pop(cell, group="g")
    assert told(cell.ack(again, group="g")) == [good(released=True)] * 3


def test_without_database_every_item_says_so(cell, pg):
    fill(cell, 2)
    m = pop(cell)
    pg.stop("immediate")
    errors = {a["error"] for a in cell.ack(m)}
    assert errors <= {"pool",
                      "ack flush failed; lease will expire and redeliver"}
    assert None not in errors
    pg.start()

    def acked():
        answers = cell.ack(m)
        return answers if answers[0]["success"] else None

    assert [a["success"] for a in wait_until(acked)] == [True, True]


def test_concurrent_acks_of_many_partitions_are_all_told_right(cell, db):
    for p in range(60):
        fill(cell, 2, partition="p%d" % p, prefix="p%d-" % p)
    m = []
    while len(m) < 120:
        m += pop(cell, 200, partitions=60)
    parts = {}
    for x in m:
        parts.setdefault(x["partitionId"], []).append(x)
    faults = []

    def run(messages):
        try:
            first, second = messages
            assert told(ack(cell, of(first))) == [good()]
            assert told(ack(cell, of(second))) == [good(released=True)]
        except AssertionError as e:
            faults.append(e)

    threads = [threading.Thread(target=run, args=(v,))
               for v in parts.values()]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults, faults
    assert db.value("select count(*) from queen.consumers"
                    " where committed = 1 and batch_end is null") == 60


def test_answers_are_valid_json_whatever_the_ids(cell):
    fill(cell, 1)
    m = pop(cell)[0]
    odd = 'a"b\\c\u0001\u2028\U0001f600'
    conn = cell.http()
    conn.request("POST", ONE, json.dumps({**of(m), "transactionId": odd}))
    answer = json.loads(conn.getresponse().read())
    conn.close()
    assert answer[0]["transactionId"] == odd
