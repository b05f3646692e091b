# SPDX-License-Identifier: Apache-2.0
"""
Who writes a table under test, and knows what has committed.

Writers  transactions on `ledger` and `pairs`, and what a queue must hold of
         them
"""
import random
import threading

import psycopg2

from queenlib import wait_until
from srckit import number_of

SETTLE_S = 60
GROUPS = ["g%d" % i for i in range(28)] + ["a|b", "c\\d", "\\N", "", "ä 'x'"]
LEDGER = ("create table %s (grp text, id int, n bigint not null, amount"
          " numeric, big bigint, doc jsonb, tags text[], body text,"
          " primary key (grp, id)); alter table %s alter body set storage"
          " external")
PAIRS = ("create table pairs (a text, b text, n bigint not null,"
         " primary key (a, b))")
FIRST_ROWS = ("insert into ledger select 'g' || i %% 28, i, -i, i / 8.0, -i,"
              " jsonb_build_object('i', i), array['x', null, i::text], case"
              " when i %% 300 = 0 then repeat(md5(i::text), 3200) end"
              " from generate_series(1, %d) i")
LARGE = ("insert into ledger (grp, id, n) select 'big' || i %% 16, i, i"
         " from generate_series(1, %d) i")


def literal(text):
    return "null" if text is None else "E'%s'" % text.replace(
        "\\", "\\\\").replace("'", "\\'")


class Writer(threading.Thread):
    """
    Transaction after transaction on groups of its own.  What has committed is
    known: a row of table `done` comes with each.  `made` lists them, each a
    list of what the queue must hold: (queue, partition, op, key, n).
    """

    def __init__(self, far, number, groups, rows, pause_s):
        super().__init__()
        self.far, self.number, self.groups = far, number, groups
        self.rng = random.Random(number)
        self.pause_s, self.over = pause_s, threading.Event()
        self.keys = {g: set() for g in groups}
        for i in range(1, rows + 1):
            if "g%d" % (i % 28) in self.keys:
                self.keys["g%d" % (i % 28)].add(i)
        self.wide = [("g%d" % (i % 28), i) for i in range(300, rows + 1, 300)]
        self.pairs = set()
        self.made, self.fault, self.conn = [], None, None
        self.n = 10 ** 9 * (number + 1)
        self.doubts = 0

    def run(self):
        try:
            while not self.over.wait(self.pause_s):
                self.turn()
        except Exception as e:  # whatever it is, the test must fail
            self.fault = e
        finally:
            if self.conn:
                self.conn.close()

    def turn(self):
        sql, made = [], []
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            text, events = self.rng.choices(
                (self.insert, self.update, self.update_body, self.delete,
                 self.move, self.pair), (30, 30, 5, 12, 18, 5))[0]()
            sql.append(text)
            made += events
        sql.append("insert into done values (%d, %d)"
                   % (self.number, len(self.made)))
        self.commit("; ".join(sql))
        self.made.append(made)

    def commit(self, sql):
        def once():
            try:
                if not self.conn or self.conn.closed:
                    self.conn = self.far.server.connect(self.far.name)
                with self.conn, self.conn.cursor() as cur:
                    cur.execute("select from done where writer = %d and txn"
                                " = %d" % (self.number, len(self.made)))
                    if cur.rowcount == 0:
                        cur.execute(sql)
                return True
            except (psycopg2.OperationalError, psycopg2.InterfaceError):
                self.doubts += 1
                return False
        wait_until(once, SETTLE_S, what="a transaction")

    def serial(self):
        self.n += 1
        return self.n

    def some_key(self):
        """(group, id) that is there, None when there is none."""
        if self.rng.random() < 0.15:
            wide = self.rng.choice(self.wide)
            if wide[1] in self.keys.get(wide[0], ()):
                return wide
        group = self.rng.choice(self.groups)
        ids = self.keys[group]
        return (group, self.rng.choice(sorted(ids))) if ids else None

    def new_key(self, group):
        one = self.rng.randrange(1, 10 ** 6)
        return self.new_key(group) if one in self.keys[group] else one

    def values(self):
        r = self.rng
        return (r.choice(("null", "1.50", "-0.000", "'NaN'", "1e30",
                          "123456789012345678901234567890.123")),
                r.choice(("null", "0", "-9223372036854775808",
                          "9223372036854775807")),
                r.choice(("null", "'{\"a\": [1, {\"b\": null}], \"c\": 1.50}'",
                          "'\"\\u00e4\\\"\"'", "'[null, []]'")),
                r.choice(("null", "'{}'", "array['a,b', null, '\"']",
                          "array[['1', '2'], ['3', '\\']]")),
                "repeat('%x', %d)" % (r.randrange(2 ** 32), r.choice(
                    (0, 400, 12500))) if r.random() < 0.05 else "null")

    def insert(self):
        group = self.rng.choice(self.groups)
        one, n = self.new_key(group), self.serial()
        self.keys[group].add(one)
        return ("insert into ledger values (%s, %d, %d, %s)" % (
            literal(group), one, n, ", ".join(self.values())),
            [("ledger", group, "c", (group, one), n)])

    def change(self, what):
        key = self.some_key()
        if not key:
            return self.insert()
        n = self.serial()
        return ("update ledger set n = %d%s where grp = %s and id = %d" % (
            n, what, literal(key[0]), key[1]),
            [("ledger", key[0], "u", key, n)])

    def update(self):
        amount, big, doc, tags, _ = self.values()
        return self.change(", amount = %s, big = %s, doc = %s, tags = %s" % (
            amount, big, doc, tags))

    def update_body(self):
        return self.change(", body = reverse(body) || 'x'")

    def delete(self):
        key = self.some_key()
        if not key:
            return self.insert()
        self.keys[key[0]].discard(key[1])
        return ("delete from ledger where grp = %s and id = %d" % (
            literal(key[0]), key[1]),
            [("ledger", key[0], "d", key, None)])

    def move(self):
        key = self.some_key()
        if not key:
            return self.insert()
        group = self.rng.choice((key[0], self.rng.choice(self.groups)))
        new, n = (group, self.new_key(group)), self.serial()
        self.keys[key[0]].discard(key[1])
        self.keys[group].add(new[1])
        made = [("ledger", group, "u", new, n)] if group == key[0] else [
            ("ledger", key[0], "d", key, None),
            ("ledger", group, "c", new, n)]
        return ("update ledger set grp = %s, id = %d, n = %d where grp = %s"
                " and id = %d" % (literal(group), new[1], n, literal(key[0]),
                                  key[1]), made)

    def pair(self):
        a, b = (self.rng.choice(("x|y", "z\\", "|", "", "\\N", "p", "q"))
                for _ in range(2))
        a += str(self.number)
        name = "|".join(s.replace("\\", "\\\\").replace("|", "\\|")
                        for s in (a, b))
        old, n = (a, b) in self.pairs, self.serial()
        self.pairs.add((a, b))
        return ("insert into pairs values (%s, %s, %d) on conflict (a, b) do"
                " update set n = excluded.n" % (literal(a), literal(b), n),
                [("pairs", name, "u" if old else "c", (a, b), n)])


class Writers:
    """rows: those that are there already, of FIRST_ROWS."""

    def __init__(self, far, n, rows, pause_s=0.02):
        self.each = [Writer(far, i, GROUPS[i::n], rows, pause_s)
                     for i in range(n)]
        for w in self.each:
            w.start()

    def stop(self):
        for w in self.each:
            w.over.set()
        for w in self.each:
            w.join()
        for w in self.each:
            if w.fault:
                raise w.fault

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def turns(self):
        return sum(len(w.made) for w in self.each)

    def check(self, found):
        """Each change once, in the order of commits, those of one transaction
        together; found: the events of the stream."""
        lists, at, txns = {}, {}, {}
        for e in found:
            p = e.payload
            lists.setdefault((e.queue, e.partition), []).append(
                (p["op"], tuple(p["key"].values()),
                 p["after"] and p["after"]["n"],
                 (number_of(p["lsn"]), p["seq"], p["xid"])))
        for w in self.each:
            last = 0
            for number, made in enumerate(w.made):
                places = []
                for queue, part, op, key, n in made:
                    i = at.setdefault((queue, part), 0)
                    have = lists.get((queue, part), [])
                    assert i < len(have), ("lost", number, queue, part, op,
                                           key, n)
                    assert have[i][:3] == (op, key, n), (
                        queue, part, i, have[i], (op, key, n))
                    at[queue, part] = i + 1
                    places.append(have[i][3])
                lsns = {(lsn, xid) for lsn, _, xid in places}
                assert len(lsns) == 1, (number, places)
                seqs = [seq for _, seq, _ in places]
                assert seqs == sorted(seqs), (number, places)
                assert places[0][0] > last, (number, places)
                last = places[0][0]
                txns.setdefault(last, (w.number, number))
        extra = {k: v[at.get(k, 0):] for k, v in lists.items()
                 if len(v) > at.get(k, 0)}
        assert not extra, "nobody wrote %s" % extra
        assert len(txns) == self.turns()
