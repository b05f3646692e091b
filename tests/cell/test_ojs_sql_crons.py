# SPDX-License-Identifier: Apache-2.0
"""
Crons in the database: when they are due, in zones whose clocks are moved,
against a walk minute by minute in Python; and how they become jobs, with time
moved by the caller.
"""
import datetime
import threading
import uuid
import zoneinfo

import pytest

from queenlib import TENANT, rows
from sqlkit import Kit

UTC = datetime.timezone.utc
MINUTE = datetime.timedelta(minutes=1)
ALL = (range(60), range(24), range(1, 32), range(1, 13), range(7))


def utc(*when):
    return datetime.datetime(*when, tzinfo=UTC)


def bits(numbers):
    return sum(1 << n for n in numbers)


class Expr:
    """Fields as sets; None = a star."""

    def __init__(self, minutes=None, hours=None, days=None, months=None,
                 weekdays=None):
        given = minutes, hours, days, months, weekdays
        self.sets = [set(a if g is None else g) for g, a in zip(given, ALL)]
        self.any_day, self.any_weekday = days is None, weekdays is None
        self.args = tuple(bits(s) for s in self.sets) + (
            self.any_day, self.any_weekday)

    def matches(self, local):
        minutes, hours, days, months, weekdays = self.sets
        day = local.day in days
        weekday = local.isoweekday() % 7 in weekdays
        both = self.any_day or self.any_weekday
        return local.minute in minutes and local.hour in hours \
            and local.month in months \
            and (day and weekday if both else day or weekday)

    def walk(self, zone, start, end):
        """All moments due after start, up to end."""
        found, at = [], start.replace(second=0, microsecond=0) + MINUTE
        zone = zoneinfo.ZoneInfo(zone)
        while at <= end:
            local = at.astimezone(zone)
            # what a clock shows twice counts the first time
            if not local.fold and self.matches(local):
                found.append(at)
            at += MINUTE
        return found


def chain(conn, expr, zone, start, end):
    return [r[0] for r in rows(conn, """
        with recursive f(at) as (
            select queen.cron_next(%s, %s, %s, %s, %s, %s, %s, %s, %s)
            union all
            select queen.cron_next(%s, %s, %s, %s, %s, %s, %s, %s, at)
            from f where at <= %s)
        select at from f where at <= %s""",
        expr.args + (zone, start) + expr.args + (zone, end, end))]


# The days around both moves of the clocks in 2026; half an hour at Lord Howe.
MOVES = [
    ("Europe/Rome", utc(2026, 3, 28, 20), utc(2026, 10, 24, 20)),
    ("America/New_York", utc(2026, 3, 8, 2), utc(2026, 10, 31, 23)),
    ("Australia/Lord_Howe", utc(2026, 10, 3, 10), utc(2026, 4, 4, 10)),
]
EXPRESSIONS = [
    Expr([30], [2]), Expr([30], [1]), Expr(range(0, 60, 15), range(4)),
    Expr([0, 59]), Expr([5, 45], [2, 3], weekdays=[0]), Expr(),
]


@pytest.mark.allpg
def test_clocks_that_are_moved(db):
    conn = db.connect()
    for zone, spring, autumn in MOVES:
        for start in spring, autumn:
            end = start + datetime.timedelta(hours=9)
            for expr in EXPRESSIONS[:-1]:
                assert chain(conn, expr, zone, start, end) \
                    == expr.walk(zone, start, end), (zone, expr.sets)
    # every minute, over the hours that matter alone
    for zone, spring, autumn in MOVES:
        for start in spring, autumn:
            start += datetime.timedelta(hours=3, minutes=40, seconds=17)
            end = start + datetime.timedelta(hours=3)
            expr = EXPRESSIONS[-1]
            found = chain(conn, expr, zone, start, end)
            assert found == expr.walk(zone, start, end), zone


def test_hours_that_come_never_and_twice(db):
    conn = db.connect()
    # 02:30 in Rome: not on 29 March, once on 25 October
    assert chain(conn, Expr([30], [2]), "Europe/Rome", utc(2026, 3, 28),
                 utc(2026, 3, 31)) == [
        utc(2026, 3, 28, 1, 30), utc(2026, 3, 30, 0, 30)]
    assert chain(conn, Expr([30], [2]), "Europe/Rome", utc(2026, 10, 24),
                 utc(2026, 10, 27)) == [
        utc(2026, 10, 24, 0, 30), utc(2026, 10, 25, 0, 30),
        utc(2026, 10, 26, 1, 30)]
    # from inside the second 02 o'clock the first one is past
    assert chain(conn, Expr([30], [2]), "Europe/Rome",
                 utc(2026, 10, 25, 1, 10), utc(2026, 10, 26, 12)) == [
        utc(2026, 10, 26, 1, 30)]
    # a day that Samoa left out, and one that a zone of odd minutes has
    assert chain(conn, Expr([0], [12]), "Pacific/Apia",
                 utc(2011, 12, 28, 23), utc(2011, 12, 31)) == [
        utc(2011, 12, 29, 22), utc(2011, 12, 30, 22)]
    assert chain(conn, Expr([0], [0]), "Asia/Kathmandu",
                 utc(2026, 1, 1), utc(2026, 1, 2)) == [
        utc(2026, 1, 1, 18, 15)]


def test_month_ends_and_leap_days(db):
    conn = db.connect()

    def days(expr, start, end, zone="UTC"):
        return [str(at.date()) for at in chain(conn, expr, zone, start, end)]

    assert days(Expr([0], [0], [31]), utc(2026, 1, 1), utc(2026, 12, 31)) == [
        "2026-01-31", "2026-03-31", "2026-05-31", "2026-07-31", "2026-08-31",
        "2026-10-31", "2026-12-31"]
    assert days(Expr([0], [0], [29], [2]), utc(2026, 1, 1),
                utc(2041, 1, 1)) == [
        "2028-02-29", "2032-02-29", "2036-02-29", "2040-02-29"]
    # over a century without a leap day, and the longest wait of all
    assert days(Expr([0], [0], [29], [2]), utc(2096, 3, 1),
                utc(2105, 1, 1)) == ["2104-02-29"]
    monday = Expr([0], [0], [29], [2], [1])
    monday.args = monday.args[:-1] + (True,)
    assert days(monday, utc(2072, 3, 1), utc(2113, 1, 1)) == ["2112-02-29"]
    # either the 13th or a Friday; both when one began with a star
    thirteen = Expr([0], [0], [13], None, [5])
    assert days(thirteen, utc(2026, 2, 1), utc(2026, 2, 28)) == [
        "2026-02-06", "2026-02-13", "2026-02-20", "2026-02-27"]
    thirteen.args = thirteen.args[:-2] + (False, True)
    assert days(thirteen, utc(2026, 1, 1), utc(2026, 12, 31)) == [
        "2026-02-13", "2026-03-13", "2026-11-13"]
    # exactly when it is due it is not due again
    assert chain(conn, Expr([0], [0], [1]), "UTC", utc(2026, 1, 1),
                 utc(2026, 2, 1)) == [utc(2026, 2, 1)]
    # what cannot come does not loop for ever
    assert chain(conn, Expr([0], [0], [30], [2]), "UTC", utc(2026, 1, 1),
                 utc(2090, 1, 1)) == []


# ---- crons and their jobs ----

class Crons(Kit):
    """Registrations and firings, at minutes of one morning."""

    def __init__(self, db):
        super().__init__(db.connect())

    @staticmethod
    def at(minutes, seconds=0):
        return utc(2026, 5, 1, 8) + datetime.timedelta(
            minutes=minutes, seconds=seconds)

    def put(self, name="c", now=0, expr=None, overlap="skip", zone="UTC",
            enabled=True, queue="q", due=None, uniq=None, text="* * * * *"):
        expr = expr or Expr()
        return self.rows(
            "select verdict, created, next_at from queen.cron_put_v1(%s, %s,"
            " %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, '\"x\":1',"
            " %s::uuid[], array['t.x'], array[%s], array['\"args\":[]'],"
            " array[0::smallint], array[3], %s::timestamptz[], array[false],"
            " array[null::timestamptz], array[null::bigint],"
            " array[null::bigint], array[null::text], array[%s::text],"
            " array[null::text], %s)",
            self.tenant, name, text, zone, *expr.args, overlap, enabled,
            [str(uuid.uuid4())], queue, [due], uniq, self.at(now))[0]

    def fire(self, minutes, seconds=0, limit=100):
        return self.rows("select became, more from queen.crons_fire_v1("
                         "%s, %s)", limit, self.at(minutes, seconds))

    def jobs(self):
        return self.rows("select state, (created_at - %s)::text from"
                         " queen.jobs order by seq", self.at(0))

    def end(self, state=5):
        """The newest job ends."""
        self.rows("update queen.jobs set state = %s, ended_at = now()"
                  " where seq = (select max(seq) from queen.jobs)"
                  " returning 1", state)

    def get(self, name="c"):
        return self.rows("select next_at, last_at, last_job from"
                         " queen.cron_get_v1(%s, %s)", self.tenant, name)


@pytest.fixture(name="crons")
def crons_of_db(db):
    return Crons(db)


def test_registration(crons):
    assert crons.put(now=0) == (0, True, crons.at(1))
    # the same again leaves what is due; another expression does not
    assert crons.put(now=5) == (0, False, crons.at(1))
    assert crons.put(now=5, text="*  * * * *") == (0, False, crons.at(6))
    assert crons.put(now=5, zone="Europe/Rome",
                     text="*  * * * *")[1] is False
    crons.put(now=7, enabled=False)
    assert crons.fire(9) == []
    assert crons.put(now=9) == (0, False, crons.at(10))
    for zone in ("Europe/Roma", "europe/rome", "EST5EDT4", "UTC+3", "+02:00",
                 "posix/Europe/Rome", "Factory", "localtime", "Foo/Bar3", ""):
        assert crons.put("z", zone=zone)[0] == 1, zone
    for zone in "UTC", "Etc/GMT+3", "Asia/Kolkata", "America/Indiana/Knox":
        assert crons.put("z", zone=zone)[0] == 0, zone
    assert [r[1] for r in crons.rows(
        "select total, name from queen.cron_list_v1(%s, null, 0, 10)",
        TENANT)] == [None, "c", "z"]
    assert crons.rows(
        "select total, name from queen.cron_list_v1(%s, 'c', 0, 10)",
        TENANT) == [(2, None), (None, "z")]
    assert crons.value("select name from queen.cron_delete_v1(%s, 'z')",
                       TENANT) == "z"
    assert crons.value("select name from queen.cron_delete_v1(%s, 'z')",
                       TENANT) is None
    assert crons.get("z") == []


def test_one_firing_after_a_pause(crons):
    crons.put("a", overlap="allow")
    crons.put("b", overlap="allow", expr=Expr([30]), text="30 * * * *")
    assert crons.fire(0, 59) == []
    assert crons.fire(1) == [(1, False)]
    assert crons.fire(1, 59) == []
    # nobody looked for an hour
    assert crons.fire(60, 30) == [(2, False)]
    assert crons.fire(60, 31) == []
    assert crons.get("a")[0][:2] == (crons.at(61), crons.at(60, 30))
    assert crons.get("b")[0][0] == crons.at(90)
    assert crons.fire(61) == [(1, False)]
    ids = [r[0] for r in crons.rows("select id from queen.jobs")]
    assert len(set(ids)) == 4
    assert {uuid.UUID(str(i)).version for i in ids} == {7}
    assert crons.rows("select type, doc, created_at from queen.jobs"
                      " order by seq limit 1") == [
        ("t.x", '"args":[]', crons.at(1))]


def test_more_than_the_limit(crons):
    for i in range(5):
        crons.put("c%d" % i, queue="q%d" % (i % 2))
    assert sorted(crons.fire(1, limit=3)) == [(1, True), (2, True)]
    assert sorted(crons.fire(1, limit=3)) == [(1, False), (1, False)]
    assert crons.fire(1, limit=3) == []
    # all of a full pass were skipped: there is more all the same
    assert crons.fire(2, limit=3) == [(0, True)]


@pytest.mark.parametrize("state", [0, 1, 2, 3, 4])
def test_skip_while_the_previous_job_has_not_ended(crons, state):
    crons.put()
    crons.fire(1)
    crons.end(state)
    assert crons.fire(2) == []
    assert len(crons.jobs()) == 1
    crons.end(7)
    assert crons.fire(3) == [(1, False)]


def test_allow_and_cancel_previous(crons):
    crons.put(overlap="allow")
    for minute in 1, 2:
        assert crons.fire(minute) == [(1, False)]
    assert [j[0] for j in crons.jobs()] == [0, 0]
    crons.put(overlap="cancel_previous")
    assert crons.fire(3) == [(1, False)]
    assert crons.fire(4) == [(1, False)]
    assert [j[0] for j in crons.jobs()] == [0, 6, 6, 0]
    crons.end()
    assert crons.fire(5) == [(1, False)]
    assert [j[0] for j in crons.jobs()] == [0, 6, 6, 5, 0]


def test_enqueue_owes_one_job(crons):
    crons.put(overlap="enqueue")
    crons.fire(1)
    for minute in 2, 3, 4:
        assert crons.fire(minute) == []
    # shown is when the expression is due, not when somebody looks again
    assert crons.get()[0][:2] == (crons.at(5), crons.at(1))
    assert crons.fire(4, 30) == []
    crons.end()
    assert crons.fire(4, 31) == [(1, False)]
    assert crons.fire(4, 40) == []
    crons.end()
    assert crons.fire(4, 50) == []
    assert crons.fire(5) == [(1, False)]
    assert [j[1] for j in crons.jobs()] == ["00:01:00", "00:04:31", "00:05:00"]
    # what is owed is forgotten with the policy
    crons.fire(6)
    crons.put(now=6, overlap="skip")
    crons.end()
    assert crons.fire(6, 30) == []


def test_what_makes_no_job(crons):
    # a template whose unique policy finds the previous job
    crons.put(overlap="allow", uniq='{"key":"k","period_ms":null,"states":[0],'
              '"on":"reject"}')
    assert crons.fire(1) == [(1, False)]
    assert crons.fire(2) == []
    assert len(crons.jobs()) == 1
    assert crons.get()[0][:2] == (crons.at(3), crons.at(1))
    crons.end()
    assert crons.fire(3) == [(1, False)]
    # a zone that the server has lost ends its cron, not the others
    crons.put("d")
    crons.rows("update queen.ojs_crons set zone = 'Foo/Bar' where name = 'c'"
               " returning 1")
    crons.end()
    assert crons.fire(10) == [(2, False)]
    assert crons.get()[0][0] is None


def test_one_of_two_fires(db, crons):
    for i in range(20):
        crons.put("c%d" % i, overlap="allow")
    # the maker of a queue is waited for, so it is there already
    crons.rows("select queue_id from queen.ojs_queue_ensure(%s, '{q}')",
               TENANT)
    crons.rows("select set_config('lock_timeout', '10s', false)")
    # who comes while another fires takes the rest, and waits for nobody
    other = db.connect(autocommit=False)
    assert rows(other, "select became from queen.crons_fire_v1(7, %s)",
                (crons.at(1),)) == [(7,)]
    assert crons.fire(1) == [(13, False)]
    other.commit()
    assert crons.fire(1) == []

    fired, ready = [], threading.Barrier(2)

    def work(conn):
        for minute in range(2, 12):
            ready.wait(30)
            fired.append(rows(conn, "select became from"
                              " queen.crons_fire_v1(50, %s)",
                              (crons.at(minute),)))

    threads = [threading.Thread(target=work, args=(db.connect(),))
               for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # a pass may have found nothing; the next one makes up for it once
    for minute in 12, 13:
        crons.fire(minute)
    made = crons.rows("select created_at, count(*) from queen.jobs"
                      " group by 1 order by 1")
    assert sum(n[0] for found in fired for n in found) \
        == sum(n for at, n in made if crons.at(1) < at < crons.at(12))
    assert all(n <= 20 for _, n in made)
    assert made[-2:] == [(crons.at(12), 20), (crons.at(13), 20)]


@pytest.mark.allpg
def test_what_is_not_due_is_not_read(crons):
    """Generic plans, made while the table is small, hold when it is not."""
    for option in ("plan_cache_mode = force_generic_plan",
                   "enable_seqscan = off", "enable_bitmapscan = off"):
        crons.rows("set " + option)

    def reads():
        crons.rows("select pg_stat_force_next_flush()")
        return crons.rows(
            "select (select sum(seq_tup_read) from pg_stat_user_tables"
            " where relname in ('ojs_crons', 'jobs')), (select"
            " sum(idx_tup_read) from pg_stat_user_indexes"
            " where relname in ('ojs_crons', 'jobs'))")[0]

    def calls():
        yield "fire", lambda: crons.fire(2)
        yield "get", crons.get
        yield "put", lambda: crons.put("c", now=3)
        yield "page", lambda: crons.rows(
            "select name from queen.cron_list_v1(%s, 'n5', 0, 5)", TENANT)
        yield "delete", lambda: crons.rows(
            "select name from queen.cron_delete_v1(%s, 'c')", TENANT)

    crons.put("c")
    crons.fire(1)
    for _, call in calls():
        call()
    crons.put("c")
    crons.rows("with k as materialized (select * from queen.ojs_crons)"
               " insert into queen.ojs_crons select tenant, 'n' || i, queue,"
               " expression, zone, minutes, hours, days, months, weekdays,"
               " any_day, any_weekday, overlap, enabled, shown, template,"
               " created_at, changed_at, next_at, look_at + interval '1 h'"
               " from k, generate_series(1, 2000) i")
    for name, call in calls():
        before = reads()
        call()
        after = reads()
        # the number of all is counted, which is what a page begins with
        assert after[0] == before[0], name
        assert after[1] - before[1] <= (2100 if name == "page" else 12), name


def test_one_that_fails_is_in_nobodys_way(crons):
    """It is looked at again in a minute."""
    for name in "bad", "good":
        crons.put(name, now=0)
    crons.rows("update queen.ojs_crons set template.uniq = 'no json'"
               " where name = 'bad' returning 1")
    assert crons.fire(1) == [(1, False)]
    assert crons.rows("select name, look_at = %s from queen.ojs_crons"
                      " order by 1", crons.at(2)) == [
        ("bad", True), ("good", True)]
    crons.rows("update queen.ojs_crons set template.uniq = null returning 1")
    crons.end()
    assert crons.fire(2) == [(2, False)]
