# SPDX-License-Identifier: Apache-2.0
"""What the fixtures promise."""
import os
import sys

import pytest

import queenlib

sys.path.insert(0, os.path.join(queenlib.ROOT, "tests"))
import acceptance_check  # noqa: E402


@pytest.mark.allpg
def test_server_has_the_asked_version(pg, pg_version):
    major = int(pg.psql("-c", "show server_version_num")) // 10000
    if pg_version == "dist":
        assert major >= 15
    else:
        assert major == int(pg_version)


def test_databases_are_fresh_clones_with_schema(pg):
    a, b = pg.new_db(), pg.new_db()
    try:
        a.rows("insert into queen.flags (key, value) values ('x', '1')")
        assert a.value("select count(*) from queen.flags") == 1
        assert b.value("select count(*) from queen.flags") == 0
        assert b.value("select tag from queen.cell") == 0x5eed00c0ffee
    finally:
        a.drop()
        b.drop()


def test_server_survives_a_crash(pg, db):
    db.rows("insert into queen.flags (key, value) values ('x', '1')")
    pg.stop("immediate")
    pg.start()
    assert db.value("select count(*) from queen.flags") == 1


@pytest.mark.durable
def test_durable_server_has_fsync_on(pg):
    assert pg.psql("-c", "show fsync") == "on"


def test_other_servers_have_fsync_off(pg):
    assert pg.psql("-c", "show fsync") == "off"


def test_missing_version_fails_with_its_remedy():
    with pytest.raises(AssertionError, match="run tests/fetch-postgres"):
        queenlib.pg_bin("9")


def test_server_does_not_run_as_root(pg):
    assert os.stat("/proc/%d" % pg.pid()).st_uid != 0


def test_ports_are_not_given_twice():
    a, b = queenlib.Port(), queenlib.Port()
    try:
        assert a.number != b.number
    finally:
        a.give()
        b.give()


def test_wait_until_fails_at_its_deadline():
    with pytest.raises(AssertionError, match="not within 0.1 s: rain"):
        queenlib.wait_until(lambda: False, 0.1, "rain")


def test_wait_until_returns_the_value():
    assert queenlib.wait_until(lambda: 7) == 7


def test_acceptance_names_what_did_not_pass():
    results = {"test_a.py::test_x": "passed",
               "test_a.py::test_y[17]": "passed",
               "test_a.py::test_y[18]": "failed",
               "test_a.py::test_z": "skipped",
               "unit:test_buf:test_grow": "passed",
               "unit:test_buf:test_cut": "failed"}
    assert acceptance_check.check([
        "# comment\n", "\n",
        "a.md\t1\ttest_a.py::test_x unit:test_buf:test_grow\t\n",
        "a.md\t2\ttests/cell/test_a.py::test_y[17]\t\n",
        "a.md\t3\t\tcomes with timers\n",
        "a.md\t4\t-\tcomes with timers\n"], results) == []
    assert acceptance_check.check([
        "a.md\t1\ttest_a.py::test_y test_a.py::test_z\t\n",
        "a.md\t2\ttest_a.py::test unit:test_buf:test_cut\t\n",
        "a.md\t3\t-\t\n", "a.md 4\n"], results) == [
            "acceptance.tsv:1: test_a.py::test_y failed",
            "acceptance.tsv:1: test_a.py::test_z skipped",
            "acceptance.tsv:2: test_a.py::test did not run",
            "acceptance.tsv:2: unit:test_buf:test_cut failed",
            "acceptance.tsv:3: a.md 3 has neither test nor reason",
            "acceptance.tsv:4: 1 fields instead of 4"]


def test_acceptance_reads_reports_and_tap(tmp_path):
    report = tmp_path / "test-report.tsv"
    report.write_text("tests/cell/test_a.py::test_x[a/b]\tpassed\n")
    assert acceptance_check.read_cell(str(report)) == {
        "test_a.py::test_x[a/b]": "passed"}
    (tmp_path / "test" / "queend").mkdir(parents=True)
    (tmp_path / "test" / "queend" / "test_m.log").write_text(
        "1..3\nok 1 - test_one\nnot ok 2 - test_two\n"
        "ok 3 - test_three # SKIP no reason\nnoise\n")
    assert acceptance_check.read_unit(str(tmp_path / "test")) == {
        "unit:test_m:test_one": "passed", "unit:test_m:test_two": "failed",
        "unit:test_m:test_three": "skipped"}


def test_cell_helpers_push_pop_and_ack(cell):
    results = cell.push("q", [{"n": 1}, {"n": 2}], partition="a",
                        ids=["x", "y"])
    assert [r["status"] for r in results] == ["queued", "queued"]
    messages = cell.pop("q", partition="a", batch=10)
    assert [m["transactionId"] for m in messages] == ["x", "y"]
    assert [a["success"] for a in cell.ack(messages)] == [True, True]
    assert cell.pop("q", partition="a") == []


def test_a_killed_cell_starts_again_on_its_port(cell):
    port = cell.port.number
    assert cell.kill9() == -9
    cell.start()
    assert cell.port.number == port
    assert cell.restart().get("/health").status == 200
    assert cell.term() == 0


def test_findings_of_sanitizers_fail_the_test(new_cell):
    one = new_cell()
    with open(one.log, "w") as f:
        f.write("x.c:1:2: runtime error: signed integer overflow\n")
    with pytest.raises(AssertionError, match="sanitizer findings"):
        one.close()
    os.unlink(one.log)


def test_an_end_unasked_fails_the_test(cell):
    os.kill(cell.proc.pid, 9)
    queenlib.wait_until(lambda: cell.proc.poll() is not None)
    with pytest.raises(AssertionError, match="ended by itself: -9"):
        cell.close()
    cell.expected_end = True


def test_cells_share_a_database(cells):
    a, b = cells(2)
    assert a.port.number != b.port.number
    a.push("q", [1], ids=["x"])
    assert b.push("q", [1], ids=["x"])[0]["status"] == "duplicate"
