#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
acceptance_check BUILD: every test named in tests/acceptance.tsv ran in the
last full run and passed.

acceptance.tsv, tab-separated, # begins a comment:
    source file, line or section, test ids (separated by blanks), reason
A test id is test_file.py::test_name of tests/cell, with or without [case]
(without: all of its cases), or unit:test_module:test_name.  A line without
test ids, or with - in their place, carries a reason why there is none.

Reads BUILD/test-report.tsv (tests/cell/conftest.py) and the TAP logs of the
unit tests below BUILD/tests (tests/run-unit); leaves BUILD/acceptance.sum.
"""
import glob
import os
import re
import sys

TAP = re.compile(r"^(not )?ok \d+ - (\S+)(.*)$")


def short(nodeid):
    """test_file.py::test_name[case], without folders."""
    return nodeid[nodeid.rfind("/", 0, nodeid.find("::") + 1) + 1:]


def read_cell(path):
    results = {}
    with open(path) as f:
        for line in f:
            nodeid, outcome = line.rstrip("\n").rsplit("\t", 1)
            results[short(nodeid)] = outcome
    return results


def read_unit(folder):
    results = {}
    for log in glob.glob(os.path.join(folder, "**", "test_*.log"),
                         recursive=True):
        module = os.path.basename(log)[:-len(".log")]
        with open(log, errors="replace") as f:
            for line in f:
                m = TAP.match(line)
                if m:
                    results["unit:%s:%s" % (module, m.group(2))] = (
                        "skipped" if "# SKIP" in m.group(3).upper()
                        else "failed" if m.group(1) else "passed")
    return results


def cases(test, results):
    """The results of a test id, of all its cases when it names none."""
    if test in results:
        return [results[test]]
    return [v for k, v in results.items() if k.startswith(test + "[")]


def check(lines, results):
    """What is wrong, one text each."""
    faults = []
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\n")
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split("\t")
        where = "acceptance.tsv:%d" % number
        if len(fields) != 4:
            faults.append("%s: %d fields instead of 4"
                          % (where, len(fields)))
            continue
        source, section, tests, reason = fields
        tests = "" if tests.strip() == "-" else tests
        if not tests.split() and not reason.strip():
            faults.append("%s: %s %s has neither test nor reason"
                          % (where, source, section))
        for test in tests.split():
            found = cases(short(test), results)
            if not found:
                faults.append("%s: %s did not run" % (where, test))
            elif set(found) != {"passed"}:
                faults.append("%s: %s %s" % (where, test, ", ".join(
                    sorted(set(found) - {"passed"}))))
    return faults


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: acceptance_check BUILD")
    build = sys.argv[1]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "acceptance.tsv")
    if not os.path.exists(path):
        print("acceptance: no tests/acceptance.tsv, nothing to check")
        return
    results = read_unit(os.path.join(build, "tests"))
    try:
        results.update(read_cell(os.path.join(build, "test-report.tsv")))
    except OSError as e:
        sys.exit("acceptance: %s: run `make cell` first" % e)
    with open(path) as f:
        lines = f.readlines()
    faults = check(lines, results)
    for fault in faults:
        print(fault)
    print("acceptance: %d faults" % len(faults))
    with open(os.path.join(build, "acceptance.sum"), "w") as f:
        f.write("0 1 0\n" if faults else "1 0 0\n")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
