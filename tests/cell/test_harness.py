# SPDX-License-Identifier: Apache-2.0
"""What the fixtures promise."""
import os

import pytest

import queenlib


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
