# SPDX-License-Identifier: Apache-2.0
"""
The settings of queen-s3 as the program takes them: one line and status 2 for
what is wrong, and no secret in anything it prints.  No server is needed.
"""
import subprocess

import pytest

from queenlib import binary

SMALLEST = {
    "QUEEN_S3_QUEUES": "orders", "QUEEN_S3_BUCKET": "my-lake",
    "QUEEN_S3_ENDPOINT": "https://s3.example.com",
    "QUEEN_S3_REGION": "us-east-1", "QUEEN_S3_ACCESS_KEY": "AKIAEXAMPLE",
    "QUEEN_S3_SECRET_KEY": "s3cr3t-of-the-key",
}


def run(*args, **env):
    env = {k: v for k, v in {**SMALLEST, **env}.items() if v is not None}
    done = subprocess.run([binary("queen-s3"), *args], env=env, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60, check=False)
    assert "s3cr3t" not in done.stdout + done.stderr
    return done


@pytest.mark.parametrize("name, value, says", [
    ("QUEEN_S3_QUEUES", None, "QUEEN_S3_ENDPOINT is set, but QUEEN_S3_QUEUES"),
    ("QUEEN_S3_QUEUES", ",", "names no queue"),
    ("QUEEN_S3_ENDPOINT", None, "QUEEN_S3_ENDPOINT is not set: it is"),
    ("QUEEN_S3_ENDPOINT", "https://h/lake", "carries a path"),
    ("QUEEN_S3_ENDPOINT", "https://my-lake.h", "begins with the bucket"),
    ("QUEEN_S3_REGION", " ", "QUEEN_S3_REGION is not set: it is"),
    ("QUEEN_S3_BUCKET", "a/b", "no slash, no space"),
    ("QUEEN_S3_ACCESS_KEY", None, "QUEEN_S3_ACCESS_KEY is not set"),
    ("QUEEN_S3_SECRET_KEY", None, "QUEEN_S3_SECRET_KEY is not set"),
    ("QUEEN_S3_PREFIX", "a/../b", 'has the segment ".."'),
    ("QUEEN_S3_PATH_STYLE", "maybe", "true/false, 1/0, yes/no, on/off"),
    ("QUEEN_S3_SSE", "des", "AES256, aws:kms (kms)"),
    ("QUEEN_S3_SSE_KMS_KEY_ID", "beef", "would be ignored"),
    ("QUEEN_S3_FORMAT", "csv", "jsonl (json, ndjson), parquet"),
    ("QUEEN_S3_COMPRESSION", "lz4", "QUEEN_S3_PARQUET_CODEC"),
    ("QUEEN_S3_PARQUET_CODEC", "gzip", "zstd (zst), snappy (snap)"),
    ("QUEEN_S3_LAYOUT", "flat", "merged, per-partition"),
    ("QUEEN_S3_ALIGN", "week", "hour (hourly), day (daily), none (off)"),
    ("QUEEN_S3_START", "soon", "latest (now, end), earliest (beginning)"),
    ("QUEEN_S3_TARGET_MB", "0", "is outside 1..=5120"),
    ("QUEEN_S3_MAX_WINDOW_MS", "5m", "in 100..=86400000"),
    ("QUEEN_S3_SINK", "a:b", "1 to 64 of"),
    ("QUEEN_S3_PARTITIONS", "q:0..9", "discovery alone answers"),
    ("QUEEN_S3_MEMORY_MB", "0", "is outside 1..=1048576"),
    ("QUEEN_S3_CHECKPOINT_EVERY", "x", "in 1..=100000"),
    ("QUEEN_S3_CRASH_AT", "noon", "after_intent, mid_upload"),
    ("QUEEN_S3_LISTEN", "here", "as 127.0.0.1:9333"),
    ("QUEEN_LOG_JSON", "maybe", "is not a boolean"),
    ("QUEEN_S3_SECRET_KEY_FILE", "/nowhere", "are both set"),
    ("QUEEN_ENCRYPTION_KEY", "00", "QUEEN_ENCRYPTION_KEY"),
])
def test_a_wrong_setting_is_one_line_and_status_2(name, value, says):
    done = run(**{name: value})
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and done.stdout == ""
    assert len(lines) == 1 and name in lines[0] and says in lines[0]


def test_what_is_printed_can_be_set_again():
    done = run("--check-config", QUEEN_S3_FORMAT="NDJSON",
               QUEEN_S3_LAYOUT="perpartition", QUEEN_S3_TARGET_MB=" 7 ",
               QUEEN_S3_START="now",
               QUEEN_S3_PREFIX="/lake/", QUEEN_S3_SSE="kms",
               QUEEN_S3_SSE_KMS_KEY_ID="1234-deadbeef")
    assert done.returncode == 0 and done.stderr == ""
    values = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert values["QUEEN_S3_FORMAT"] == "jsonl"
    assert values["QUEEN_S3_LAYOUT"] == "per-partition"
    assert values["QUEEN_S3_TARGET_MB"] == "7"
    assert values["QUEEN_S3_PREFIX"] == "lake"
    assert values["QUEEN_S3_START"] == "latest"
    assert values["QUEEN_S3_SSE"] == "aws:kms"
    assert values["QUEEN_S3_SSE_KMS_KEY_ID"] == "\u2026beef"
    assert values["QUEEN_S3_ACCESS_KEY"] == "\u2026MPLE"
    assert values["QUEEN_S3_SECRET_KEY"] == "<set:17 chars>"
    plain = {name: value for name, value in values.items()
             if name.startswith("QUEEN_S3_") and value[0] not in "<\u2026"}
    again = run("--check-config", **plain)
    assert again.returncode == 0
    assert plain.items() <= dict(
        line.split("=", 1) for line in again.stdout.splitlines()).items()


def test_names_that_nobody_knows_are_one_warning(tmp_path):
    """With that of queenctl and that of a file of a secret, which are."""
    path = tmp_path / "old"
    path.write_text("ab" * 32)
    done = run(QUEEN_S3_PATH_STILE="true", QUEEN_S3_FORMAT_FILE="/f",
               QUEEN_S3_URL="http://127.0.0.1:9333", PG_HOST=str(tmp_path),
               QUEEN_ENCRYPTION_OLD_KEYS_FILE=str(path))
    assert done.returncode == 3
    warned, = [line for line in done.stderr.splitlines()
               if "there are no such settings" in line]
    names = warned.split("names=")[1].strip('"').split(",")
    assert sorted(names) == ["QUEEN_S3_FORMAT_FILE", "QUEEN_S3_PATH_STILE"]
    done = run("--check-config", QUEEN_S3_PATH_STILE="true")
    assert done.returncode == 0 and "STILE" not in done.stdout
    assert 'no such settings names="QUEEN_S3_PATH_STILE"' in done.stderr


def test_names_of_other_versions_are_one_warning(tmp_path):
    """And the database that is not there is status 3, told without secrets,
    however much is logged."""
    done = run(QUEEN_URL="http://localhost:6632", QUEEN_TOKEN="s3cr3t",
               QUEEN_S3_EMBEDDED="true", QUEEN_S3_BIN="/bin/true",
               RUST_LOG="trace", PG_HOST=str(tmp_path),
               PG_PASSWORD="s3cr3t", QUEEN_S3_SSE="kms",
               QUEEN_S3_SSE_KMS_KEY_ID="1234-deadbeef",
               QUEEN_ENCRYPTION_KEY="ab" * 32)
    assert done.returncode == 3
    warned = [line for line in done.stderr.splitlines() if "not needed" in
              line]
    assert len(warned) == 1
    assert "names=QUEEN_URL,QUEEN_TOKEN,QUEEN_S3_EMBEDDED,QUEEN_S3_BIN" in \
        warned[0]
    assert "QUEEN_ENCRYPTION_KEY=\"<set:64 chars>\"" in done.stderr
    assert "deadbeef" not in done.stderr and "abab" not in done.stderr
