# SPDX-License-Identifier: Apache-2.0
"""What a batch costs does not grow with the log, nor with a transaction that
is held open; counted by the server, with and without statistics."""
import pytest

from sqlkit import at
from streamkit import NOTHING, OK, log, values  # noqa: F401

pytestmark = pytest.mark.allpg
POOLED = ("set plan_cache_mode = force_generic_plan; set enable_seqscan = off;"
          " set enable_bitmapscan = off; set jit = off; select 1")


def reads(log):
    """(rows by whole scans, entries of indexes) of the log's big tables."""
    log.rows("select pg_stat_force_next_flush()")
    return log.rows(
        "select (select sum(seq_tup_read)::int from pg_stat_user_tables where"
        " schemaname = %s and relname like 'stream_events%%'), (select"
        " sum(idx_tup_read)::int from pg_stat_user_indexes where schemaname ="
        " %s and relname like 'stream_events%%')", log.schema, log.schema)[0]


@pytest.mark.parametrize("pooled", [False, True])
def test_a_batch_reads_what_it_holds(db, log, pooled):
    if pooled:
        log.rows(POOLED)
    log.rows("update queen.ojs_streams set segment_started_at = %s"
             " returning 1", at(0))
    log.configure(retention_ms=2000)
    for turn in range(20):
        log.append(*range(1000))
        log.got()
        if turn == 9:
            log.step(3, at(1))
    held = log.beside(db, autocommit=False)
    held.append("held")
    for _ in range(10):
        log.append(*range(1000))
        log.got()
    for analyzed in (False, True):
        if analyzed:
            log.table("analyze {}.stream_events; select 1")
        before = reads(log)
        log.append(*range(10))
        batch = log.receive()
        assert values(batch) == list(range(10))
        log.receive()
        assert log.nack(batch, seq=batch.messages[3].seq).verdict == OK
        assert log.ack(batch).verdict == OK
        assert log.receive().head.verdict == NOTHING
        assert log.info()["events"] >= 30000
        after = reads(log)
        assert after[0] == before[0]
        assert after[1] - before[1] < 200
    held.conn.commit()
    before = reads(log)
    assert log.got() == ["held"]
    after = reads(log)
    assert after[0] == before[0] and after[1] - before[1] < 100
