# SPDX-License-Identifier: Apache-2.0
"""What others do to a connector's tables while it runs."""
from queenlib import wait_until


def test_a_table_that_is_no_longer_published_is_told(src, far):
    far.run("create table kept (id int primary key, n int)",
            "create table made (id int primary key)",
            "create publication mine for table kept, made")
    ours = src("ours", [("kept", "kept"), ("made", "made")], snapshot="never")
    theirs = src("theirs", [("kept", "kept2"), ("made", "made2")],
                 snapshot="never", publication="mine",
                 managePublication=False)
    for one in ours, theirs:
        one.await_phase("streaming")
    # as a migration does; a column more is no change of a publication
    far.run("alter table kept add more int",
            "drop table made; create table made (id int primary key)",
            "insert into made values (1)")
    wait_until(lambda: (ours.status()["lastError"] or {}).get("code"))
    error = ours.status()["lastError"]
    assert error["code"] == "publication"
    assert "public.made" in error["message"]
    assert error["message"].endswith("queenctl connector resync ours")
    s = theirs.await_phase("error", error="publication")
    ours.await_phase("streaming")
    far.run("insert into made values (2)", "insert into kept values (1)")
    ours.until(lambda found: [(e.queue, e.payload["key"]["id"])
                              for e in found] == [("kept", 1), ("made", 2)])
    if "ADD TABLE" not in s["error"]["message"]:
        theirs.change()
        s = wait_until(lambda: next((
            s for s in [theirs.status()]
            if "ADD TABLE" in (s["error"] or {}).get("message", "")), None))
    far.run(s["error"]["message"].split("run ")[1])
    theirs.change()
    theirs.until(lambda found: [e.payload["key"]["id"] for e in found
                                if e.queue == "kept2"] == [1])


def test_what_a_sink_needs_is_looked_at_again_at_once(sinks, far):
    """The batch at hand does not wait for the end of its lease."""
    made = sinks("made", "upsert", leaseSeconds=600)
    made.push([{"id": 1}])
    made.await_rows([(1, None)])
    far.run("drop table queen.sink_progress")
    made.push([{"id": 2}])
    made.await_rows([(1, None), (2, None)])
    block = made.await_status(phase="running", error=None)
    assert block["lastError"]["code"] == "progress_table"
    assert block["dlq"] == 0
    # one whose key is gone cannot be relied on
    far.run("alter table queen.sink_progress drop constraint"
            " sink_progress_pkey")
    made.push([{"id": 3}])
    block = made.await_error("progress_table", "sink_progress")
    assert block["dlq"] == 0


def test_a_second_connector_on_a_slot_leaves_it_when_it_is_deleted(src, far):
    far.run("create table t (id int primary key)")
    share = dict(slot="shared", publication="shared", snapshot="never")
    first = src("first", [("t", "first")], **share)
    first.await_phase("streaming")
    second = src("second", [("t", "second")], **share)
    second.await_phase("waiting_for_slot")
    second.tool_.put("second", second.document, stamp="delete")
    wait_until(lambda: not second.tool_.version("second"))
    far.run("insert into t values (1)")
    first.until(lambda found: len(found) == 1)
    s = first.status()
    assert (s["phase"], s["restarts"], s["lastError"]) == (
        "streaming", 0, None)
    # its own goes all the same
    first.tool_.put("first", first.document, stamp="delete")
    wait_until(lambda: not first.tool_.version("first"))
    assert not far.slots()
    assert far.rows("select pubname from pg_publication") == []


def test_a_column_that_a_target_gains_is_filled_soon(sinks, far):
    gains = sinks("gains", "upsert")
    gains.push([{"id": 1, "more": 7}])
    gains.await_rows([(1, None)])
    far.run("alter table gains add more int")
    ids = iter(range(2, 1000))

    def filled():
        gains.push([{"id": next(ids), "more": 7}])
        return far.value("select count(*) from gains where more = 7")
    wait_until(filled, deadline_s=10)


def test_a_prepared_transaction_that_holds_a_slot_up_is_named(src, far):
    far.run("create table t (id int primary key)")
    conn = far.connect(autocommit=False)
    with conn.cursor() as cur:
        cur.execute("insert into t values (1)")
        cur.execute("prepare transaction 'held'")
    conn.close()
    try:
        one = src("slow", [("t", "t")])
        wait_until(lambda: "prepared" in one.status().get("doing", ""))
        assert "pg_prepared_xacts" in one.status()["doing"]
    finally:
        far.run("commit prepared 'held'")
    one.await_phase("streaming")
    far.run("insert into t values (2)")
    one.check("t")
