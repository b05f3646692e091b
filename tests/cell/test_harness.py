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
