# SPDX-License-Identifier: Apache-2.0
"""
The lake in readers that are not ours: DuckDB over the tree of each format and
codec, hyparquet over the files.  One process reads it all, once per run.
"""
import fcntl
import hashlib
import json
import os
import random
import subprocess
from urllib.parse import quote

import pytest

import queenlib

T0 = 1788516000000000                   # 2026-09-04T10:00Z
HOUR = 3600 * 10**6
LINES = {"none": "jsonl", "zstd": "jsonl.zst", "gzip": "jsonl.gz"}
PAGES = ("zstd", "snappy")
TENANTS = ("00000000-0000-0000-0000-000000000001",
           "7d4f8f3e-1c1b-4f0e-9a55-0d9a3a0c1c77")
QUEUES = ("orders", "caffè = 50%/x")
PAYLOADS = (
    None, "null", "-0", "0", '""', "[]", "{}", "true", "1E+400", "-1e-400",
    "123456789012345678901234567890", "1.500", '{"a":1,"a":2}',
    '{ "b" :\t1.500 , "a":12345678901234567890 }', '[1,\r\n 2,\n3]\r',
    '"caffè 🐝 \u2028 \u0085 \x7f"', r'"\u0000 \" \\ \/ \ud83d\udc1d"',
    '{"k":"%s"}' % ("x" * 4096), '["%s"]' % ("é" * 150000))
# cut at 64 bytes they sort before, and behind, what they stand for
LONG = ("a" * 63 + "é", "é" * 40, "é" * 31 + "a" * 9, "z" * 64 + "1")
BIG = 100001


def awkward(seed, hour):
    """Records of one window, in the order of the lake."""
    rng = random.Random(seed)
    parts = ["", "p-1", 'a"b\\c\n', "\x01\x1f\x7f", "caffè\u2028", "🐝"]
    out = []
    for part in sorted(parts + list(LONG), key=lambda p: p.encode()):
        ts, offset = T0 + hour * HOUR + rng.randrange(1000), rng.randrange(50)
        for payload in rng.sample(PAYLOADS, 7):
            out.append((part, offset, "id-%d\"\t🐝" % rng.randrange(10**9),
                        ts, payload))
            offset, ts = offset + 1, ts + rng.choice((0, 0, 1, 999))
    return out


def many():
    """One record more than a row group holds, of its own partition."""
    return [("p-%04d" % (i // 100), i % 100, "t-%d" % i, T0 + i * 10,
             None if i % 7 == 0 else '{"n":%d}' % i)
            for i in range(BIG - 1)] + [("zz", 7, "t-last", T0 + HOUR, "1")]


def odd():
    """More names than a dictionary holds, wide steps, nothing but NULL."""
    rng = random.Random(5)
    return [("%04d" % i * 250, rng.randrange(-2**63, 2**63), "",
             rng.randrange(-2**50, 2**50), None) for i in range(1300)]


def stamp(us):
    return "2026-09-04T%02d:%02d:%02d.%06dZ" % (
        us // HOUR % 24, us // 60000000 % 60, us // 1000000 % 60,
        us % 1000000)


def line(record):
    part, offset, txn, ts, payload = record
    name = [json.dumps(s, ensure_ascii=False) for s in (part, txn)]
    return '{"partition":%s,"offset":%d,"transactionId":%s,"ts":"%s",' \
        '"payload":%s}' % (
            name[0], offset, name[1], stamp(ts), "null" if payload is None
            else payload.replace("\n", " ").replace("\r", " "))


def as_read(record):
    part, offset, txn, ts, payload = record
    return [part, str(offset), txn, str(ts), payload]


def told(records):
    return "".join(json.dumps(r) + "\n" for r in records).encode()


class Lake:
    """The trees, and what is asked of them."""

    def __init__(self, root):
        self.root, self.asked, self.windows = str(root), {}, []
        for n, (tenant, queue, hour) in enumerate(
                (t, q, h) for t in TENANTS for q in QUEUES for h in (0, 1)):
            self.windows.append((tenant, queue, hour, awkward(n, hour)))
        self.big, self.odd = many(), odd()
        self.big_lines = "\n".join(map(line, self.big)).encode()

    def write(self):
        big = told(self.big)
        for fmt, codec, ext in [("jsonl", *c) for c in LINES.items()] + [
                ("parquet", c, "parquet") for c in PAGES]:
            for tenant, queue, hour, records in self.windows:
                self.object(fmt, codec, queue, tenant, told(records),
                            self.path(fmt, codec, ext, tenant, queue, hour))
            self.object(fmt, codec, "big", TENANTS[0], big,
                        self.big_path(fmt, codec))
            if fmt == "parquet":
                self.object(fmt, codec, "odd", TENANTS[0], told(self.odd),
                            self.odd_path(codec))

    def path(self, fmt, codec, ext, tenant, queue, hour):
        return "%s/%s-%s/tenant=%s/queue=%s/dt=2026-09-04/hour=%02d/w.%s" % (
            self.root, fmt, codec, tenant, quote(queue, safe=""), 10 + hour,
            ext)

    def big_path(self, fmt, codec):
        return "%s/big-%s-%s" % (self.root, fmt, codec)

    def odd_path(self, codec):
        return "%s/odd-%s" % (self.root, codec)

    def object(self, fmt, codec, queue, tenant, records, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        tool = os.path.join(queenlib.BUILD, "s3", "write")
        with open(path, "wb") as out:
            subprocess.run(
                [tool, fmt, codec, queue, tenant], check=True, stdout=out,
                input=records)

    def tree(self, fmt, codec, ext):
        return "%s/%s-%s/tenant=*/queue=*/dt=*/hour=*/*.%s" % (
            self.root, fmt, codec, ext)

    def lines(self, codec, what, columns=True):
        """SQL over the tree of one codec of lines."""
        named = ", columns={partition: 'VARCHAR', \"offset\": 'BIGINT', " \
            "\"transactionId\": 'VARCHAR', ts: 'TIMESTAMPTZ', " \
            "payload: 'JSON'}, format='newline_delimited'"
        return "select %s from %s('%s', compression='%s', " \
            "hive_partitioning=true%s)" % (
                what, "read_json" if columns else "read_ndjson_objects",
                self.tree("jsonl", codec, LINES[codec]),
                "uncompressed" if codec == "none" else codec,
                named if columns else "")

    def pages(self, codec, what, where="true"):
        return "select %s from read_parquet('%s', hive_partitioning=true) " \
            "where %s order by all" % (
                what, self.tree("parquet", codec, "parquet"), where)

    def ask(self, name, **request):
        self.asked[name] = request

    def answers(self):
        done = subprocess.run(
            ["node", os.path.join(queenlib.ROOT, "tests", "s3", "read.mjs")],
            input="".join(json.dumps(r) + "\n" for r in
                          self.asked.values()).encode(),
            stdout=subprocess.PIPE, check=True, timeout=300)
        return done.stdout.decode()


KEYS = "tenant, queue, dt, hour"
ROW = "partition, \"offset\", transaction_id, epoch_us(ts), payload"
TEXT = "concat_ws('|', partition, \"offset\", transaction_id, " \
    "epoch_us(ts), coalesce(payload, '-'))"


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        base = base.parent              # of all workers
    lake = Lake(base / "lake")
    questions(lake)
    with open(base / "lake.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answers = base / "lake.answers"
        if not answers.exists():
            lake.write()
            answers.write_text(lake.answers(), encoding="utf-8")
    got = answers.read_text(encoding="utf-8").rstrip("\n").split("\n")
    assert len(got) == len(lake.asked)
    lake.got = dict(zip(lake.asked, map(json.loads, got)))
    return lake


def questions(lake):
    for codec in LINES:
        lake.ask(("lines", codec), sql=lake.lines(
            codec, KEYS + ", json", columns=False))
        lake.ask(("columns", codec), sql=lake.lines(
            codec, "partition, \"offset\", \"transactionId\", epoch_us(ts), "
            "payload"))
        lake.ask(("big lines", codec), sql=(
            "select count(*), md5(string_agg(json, chr(10))) from "
            "read_ndjson_objects('%s', compression='%s')" % (
                lake.big_path("jsonl", codec),
                "uncompressed" if codec == "none" else codec)))
    for codec in PAGES:
        big = lake.big_path("parquet", codec)
        lake.ask(("pages", codec), sql=lake.pages(codec, KEYS + ", " + ROW))
        lake.ask(("hour", codec), sql="explain " + lake.pages(
            codec, "count(*)", "hour = '11' and queue = 'orders'"))
        for name in LONG:
            lake.ask(("long", codec, name), sql=lake.pages(
                codec, "count(*)", "partition = '%s'" % name))
        lake.ask(("big", codec), sql=(
            "select count(*), count(payload), md5(string_agg(%s, chr(10))) "
            "from read_parquet('%s')" % (TEXT, big)))
        for name, where in (
                ("zz", "partition = 'zz'"), ("p", "partition = 'p-0420'"),
                ("none", "partition > 'p-0999' and partition < 'zz'"),
                ("ts", "epoch_us(ts) >= 0 and ts between "
                 "'2026-09-04 10:00:00.5Z' and '2026-09-04 10:00:00.600009Z'"),
                ("offset", '"offset" > 98')):
            lake.ask(("where", codec, name), sql=(
                "select count(*) from read_parquet('%s') where %s" % (
                    big, where)))
        lake.ask(("cost", codec), sql=(
            "explain (analyze, format json) select min(payload) from "
            "read_parquet('%s') where partition = 'zz'" % big))
        lake.ask(("groups", codec), sql=(
            "select row_group_id, path_in_schema, type, row_group_num_rows, "
            "num_values, encodings, compression, stats_null_count, "
            "stats_min_value, stats_max_value from parquet_metadata('%s')"
            % big))
        lake.ask(("file", codec), sql=(
            "select created_by, num_rows, num_row_groups, format_version "
            "from parquet_file_metadata('%s')" % big))
        lake.ask(("pairs", codec), sql=(
            "select decode(key), decode(value) from "
            "parquet_kv_metadata('%s')" % lake.path(
                "parquet", codec, "parquet", TENANTS[1], QUEUES[1], 0)))
        lake.ask(("schema", codec), sql=(
            "select name, type, repetition_type, converted_type, duckdb_type "
            "from parquet_schema('%s')" % big))
        for n, (tenant, queue, hour, _) in enumerate(lake.windows):
            lake.ask(("other", codec, n), parquet=lake.path(
                "parquet", codec, "parquet", tenant, queue, hour))
        for name in LONG:
            lake.ask(("other long", codec, name), parquet=lake.path(
                "parquet", codec, "parquet", *lake.windows[0][:3]),
                filter={"partition": {"$eq": name}})
        lake.ask(("odd", codec), sql="select %s from read_parquet('%s')" % (
            ROW, lake.odd_path(codec)))
        lake.ask(("other odd", codec), parquet=lake.odd_path(codec))
        lake.ask(("odd pages", codec), sql=(
            "select encodings, stats_min_value, stats_max_value, "
            "stats_null_count from parquet_metadata('%s') "
            "where column_id in (0, 4) order by column_id"
            % lake.odd_path(codec)))
        lake.ask(("other big", codec), parquet=big, digest=True)
        lake.ask(("other zz", codec), parquet=big,
                 filter={"ts": {"$gt": {"i64": str(T0 + HOUR - 1)}}})


def with_keys(lake, make):
    return [[tenant, queue, "2026-09-04", str(10 + hour)] + make(r)
            for tenant, queue, hour, records in lake.windows
            for r in records]


def by_name(rows, n=4):
    """In the order of the names of files, records in theirs."""
    return sorted(rows, key=lambda r: [
        quote(k, safe="").encode() for k in r[:n]])


@pytest.mark.parametrize("codec", LINES)
def test_duckdb_reads_the_lines(lake, codec):
    want = by_name(with_keys(lake, lambda r: [line(r)]))
    assert lake.got["lines", codec]["rows"] == want
    # with columns named; a value of JSON comes back without its spaces
    got = lake.got["columns", codec]["rows"]
    want = by_name(with_keys(lake, as_read))
    assert [r[:4] for r in got] == [r[4:8] for r in want]
    for (*_, read), (*_, written) in zip(got, want):
        if written in (None, "null"):
            assert read is None
        else:
            assert json.loads(read) == json.loads(written)


@pytest.mark.parametrize("codec", PAGES)
def test_duckdb_reads_the_pages(lake, codec):
    def key(row):
        return [c.encode() for c in row[:5]] + [int(row[5])]
    want = sorted(with_keys(lake, as_read), key=key)
    assert sorted(lake.got["pages", codec]["rows"], key=key) == want


@pytest.mark.parametrize("codec", PAGES)
def test_hyparquet_reads_the_pages(lake, codec):
    for n, (*_, records) in enumerate(lake.windows):
        assert lake.got["other", codec, n]["rows"] == [
            as_read(r) for r in records]


@pytest.mark.parametrize("codec", LINES)
def test_a_hundred_thousand_lines(lake, codec):
    assert lake.got["big lines", codec]["rows"] == [
        [str(BIG), hashlib.md5(lake.big_lines).hexdigest()]]


@pytest.mark.parametrize("codec", PAGES)
def test_two_row_groups(lake, codec):
    rows = [as_read(r) for r in lake.big]
    text = "\n".join("|".join(r[:4] + [r[4] or "-"]) for r in rows)
    there = sum(r[4] is not None for r in rows)
    assert lake.got["big", codec]["rows"] == [
        [str(BIG), str(there), hashlib.md5(text.encode()).hexdigest()]]
    text = "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in rows)
    other = lake.got["other big", codec]
    assert (other["n"], other["sha256"]) == (
        BIG, hashlib.sha256(text.encode()).hexdigest())


@pytest.mark.parametrize("codec", PAGES)
def test_a_full_dictionary_wide_steps_and_no_payload(lake, codec):
    want = [as_read(r) for r in lake.odd]
    assert lake.got["odd", codec]["rows"] == want
    assert lake.got["other odd", codec]["rows"] == want
    assert lake.got["odd pages", codec]["rows"] == [
        ["PLAIN, PLAIN_DICTIONARY", "0000" * 16, "1299" * 15 + "129:", "0"],
        ["PLAIN, RLE", None, None, "1300"]]


@pytest.mark.parametrize("codec", PAGES)
def test_the_footer_as_duckdb_sees_it(lake, codec):
    got = lake.got
    assert got["file", codec]["rows"] == [["queen-s3", str(BIG), "2", "1"]]
    assert got["pairs", codec]["rows"] == [
        ["queen.envelope", "1"], ["queen.queue", QUEUES[1]],
        ["queen.tenant", TENANTS[1]]]
    assert [r[:5] for r in got["schema", codec]["rows"]] == [
        ["queen_record", None, None, None, None],
        ["partition", "BYTE_ARRAY", "REQUIRED", "UTF8", "VARCHAR"],
        ["offset", "INT64", "REQUIRED", None, "BIGINT"],
        ["transaction_id", "BYTE_ARRAY", "REQUIRED", "UTF8", "VARCHAR"],
        ["ts", "INT64", "REQUIRED", "TIMESTAMP_MICROS",
         "TIMESTAMP WITH TIME ZONE"],
        ["payload", "BYTE_ARRAY", "OPTIONAL", "UTF8", "VARCHAR"]]
    nulls = sum(r[4] is None for r in lake.big)
    delta, dictionary = "DELTA_BINARY_PACKED", "PLAIN, PLAIN_DICTIONARY"
    text, number = "BYTE_ARRAY", "INT64"
    want = []
    for group, rows, stats in (
            ("0", "100000", (
                ("0", "p-0000", "p-0999"), ("0", "0", "99"),
                ("0", "t-0", "t-99999"),
                ("0", "2026-09-04 10:00:00+00",
                 "2026-09-04 10:00:00.99999+00"),
                (str(nulls), '{"n":10000}', '{"n":9}'))),
            ("1", "1", (
                ("0", "zz", "zz"), ("0", "7", "7"),
                ("0", "t-last", "t-last"),
                ("0", "2026-09-04 11:00:00+00", "2026-09-04 11:00:00+00"),
                ("0", "1", "1")))):
        for (name, kind, encodings), stat in zip((
                ("partition", text, dictionary), ("offset", number, delta),
                ("transaction_id", text, "PLAIN"), ("ts", number, delta),
                ("payload", text, "PLAIN, RLE")), stats):
            want.append([group, name, kind, rows, rows, encodings,
                         codec.upper(), *stat])
    assert got["groups", codec]["rows"] == want


@pytest.mark.parametrize("codec", PAGES)
def test_filters_find_what_is_there_and_skip_the_rest(lake, codec):
    got = lake.got
    for name, want in ("zz", 1), ("p", 100), ("none", 0), ("offset", 1000), \
            ("ts", 10001):
        assert got["where", codec, name]["rows"] == [[str(want)]], name
    # bounds of row groups: the first one was not read
    plan = json.loads(got["cost", codec]["rows"][0][1])
    assert 0 < plan["total_bytes_read"] < 10000
    size = os.path.getsize(lake.big_path("parquet", codec))
    assert size > 100000
    other = got["other zz", codec]
    assert other["rows"] == [as_read(lake.big[-1])]
    # the end of the file is fetched first, up to 512 KiB
    assert other["read"] - min(size, 1 << 19) < 1000
    # keys of the tree: other files were not opened
    plan = got["hour", codec]["rows"][0][1]
    assert "Scanning Files: 2/8" in plan


@pytest.mark.parametrize("codec", PAGES)
def test_names_longer_than_their_bounds_are_found(lake, codec):
    windows = [[as_read(r) for r in records] for *_, records in lake.windows]
    for name in LONG:
        assert lake.got["long", codec, name]["rows"] == [[str(sum(
            r[0] == name for w in windows for r in w))]]
        assert lake.got["other long", codec, name]["rows"] == [
            r for r in windows[0] if r[0] == name]
