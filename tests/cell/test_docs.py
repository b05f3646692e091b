# SPDX-License-Identifier: Apache-2.0
"""
What the README and the manual pages say is so: settings, routes, metrics,
functions and commands are complete, sessions run as printed, and what is
installed is what should be.
"""
import collections
import contextlib
import glob
import os
import re
import shutil
import socket
import subprocess

import pytest

import queenlib
from queenlib import ROOT, binary

MAN = os.path.join(ROOT, "man")
Item = collections.namedtuple("Item", "name dflt words lo hi secret")


def read(*path):
    with open(os.path.join(ROOT, *path)) as f:
        return f.read()


def run(argv, env=None, **kw):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=env, timeout=120, check=False, **kw)


def section(page, title):
    """The mdoc source of a section."""
    text = read("man", page)
    found = re.search(r"^\.Sh %s\n(.*?)(?=^\.Sh |\Z)" % re.escape(title),
                      text, re.M | re.S)
    assert found, "%s has no section %s" % (page, title)
    return found.group(1)


def rendered(page, title):
    """A section as a reader sees it, in lines that are not wrapped."""
    done = run(["mandoc", "-T", "ascii", "-O", "width=200,indent=2",
                os.path.join(MAN, page)])
    assert done.returncode == 0, done.stdout
    text = re.sub(r".\x08", "", done.stdout)
    found = re.search(r"^%s\n(.*?)(?=^\S|\Z)" % re.escape(title), text,
                      re.M | re.S)
    assert found, "%s has no section %s" % (page, title)
    return found.group(1)


# Settings

SERVERS = ["queend", "queen-pgsrc", "queen-pgsink", "queen-s3", "queen-ojs"]
each_server = pytest.mark.parametrize("tool", SERVERS)


def expanded(src):
    """A table of settings with the rows it shares with others."""
    rows = read("lib", "conf_rows.h").replace("\\\n", "\n")
    for name, param, body in re.findall(
            r"^#define (CONF_\w+_ROWS)(?:\((\w+)\))?(.*?)\n\n", rows,
            re.M | re.S):
        def row(use, body=body, param=param):
            if not param:
                return body
            return re.sub(r'" %s "' % param, use.group(1), body)
        src = re.sub(r'\b%s\b(?:\("([^"]*)"\))?' % name, row, src)
    return re.sub(r" +\n", "\n", src)


def settings(tool="queend"):
    """The table of a server's settings, ranges with it."""
    src = read("bin", tool, "conf.c")
    src = expanded(src[src.index("conf_items[] = {"):])
    found = {}
    for kind, name, rest in re.findall(
            r'\b(STR|SECRET|INT|BOOL|WORD)\("(\w+)",(.*?)"\),\n', src, re.S):
        args = [a.strip('"') for a in re.findall(r'"[^"]*"|[^,"\s]+', rest)]
        found[name] = Item(
            name, None if kind == "SECRET" or args[1] == "NULL" else args[1],
            args[2] if kind == "WORD" else None,
            *([a.replace("DAY_MS", "86400000") for a in args[2:4]]
              if kind == "INT" else [None, None]), kind == "SECRET")
    return found, re.findall(r'ACCEPT\("(\w+)"\)', src)


def described(tool="queend"):
    """Variable -> text of its item in ENVIRONMENT."""
    text = section(tool + ".8", "ENVIRONMENT")
    text = text.partition(".Ss Accepted and not needed")[0]
    return {name: " ".join(body.split()) for name, body in re.findall(
        r"^\.It Ev (\w+)\n(.*?)(?=^\.It|^\.El)", text, re.M | re.S)}


@each_server
def test_environment_lists_every_setting_with_default_and_range(tool):
    table, _ = settings(tool)
    page = described(tool)
    assert list(page) == list(table)
    for item in table.values():
        last = "Unset by default" if item.dflt is None \
            else "Default %s" % item.dflt
        if item.lo is not None:
            last += ", range %s to %s" % (item.lo, item.hi)
        assert page[item.name].endswith(" " + last + "."), item.name
        assert page[item.name].startswith("Secret.") == item.secret, item.name
        for word in (item.words or "").split():
            assert re.search(r"\b%s\b" % word, page[item.name]), item.name


@each_server
def test_environment_is_what_the_program_says(tool):
    help_text = run([binary(tool), "--help"], env={})
    assert help_text.returncode == 0
    printed = re.findall(r"^  ([A-Z][A-Z0-9_]+) .*?(?:\[([^]]*)\])?"
                         r"(?: \(or (\w+)_FILE\))?$", help_text.stdout, re.M)
    table, _ = settings(tool)
    assert [(n, d or None, bool(f)) for n, d, f in printed] == \
        [(i.name, i.dflt, i.secret) for i in table.values()]
    check = run([binary(tool), "--check-config"], env={})
    assert check.returncode == 0
    values = dict(line.split("=", 1) for line in check.stdout.splitlines())
    assert list(values) == list(described(tool))
    for item in table.values():
        if item.dflt is not None:
            assert values[item.name] == item.dflt, item.name


@pytest.mark.parametrize("tool", ["queend", "queen-s3"])
def test_names_accepted_and_not_needed_are_listed(tool):
    _, accepted = settings(tool)
    text = section(tool + ".8", "ENVIRONMENT")
    text = text[text.index(".Ss Accepted and not needed"):]
    assert re.findall(r"^\.Ev (\w+)", text, re.M) == accepted


def test_example_environment_names_real_settings():
    known = {name for tool in SERVERS for name in settings(tool)[0]}
    names = re.findall(r"^#?([A-Z][A-Z0-9_]+)=", read("systemd", "queen.env"),
                       re.M)
    assert names and set(names) <= known


# Routes and metrics

@pytest.mark.parametrize("tool", ["queend", "queen-ojs"])
def test_every_route_is_listed(tool):
    src = read("bin", tool, "route.c")
    defines = dict(re.findall(r'^#define (\w+) (.*)$', src, re.M))

    def text(expr):
        return "".join(
            part.strip('"') if part.startswith('"') else text(defines[part])
            for part in re.findall(r'"[^"]*"|\w+', expr))

    table = src[src.index("route_table[] = {"):src.index("};")]
    routes = [(m, text(p)) for m, p in re.findall(
        r"\{ HSRV_(\w+),\s*([^,]+),", table)]
    assert len(routes) == table.count("{ HSRV_") > 40
    page = re.findall(r"^ *(GET|POST|PUT|DELETE) +(/\S+)$",
                      rendered(tool + ".8", "HTTP ROUTES"), re.M)
    assert page == routes


def braces(name):
    """a_{b,c} -> a_b, a_c; a label set is dropped."""
    found = re.search(r"(?<=_)\{([^}]*)\}", name)
    if not found:
        return [re.sub(r"\{.*", "", name)]
    return [made for word in found.group(1).split(",") for made in
            braces(name[:found.start()] + word + name[found.end():])]


def described_families(tool):
    return [made for token in re.findall(
        r"queen_[\w*{},]+", rendered(tool + ".8", "METRICS"))
        for made in braces(token.rstrip(","))]


@pytest.mark.parametrize("tool, kind", [("queen-pgsrc", "source"),
                                        ("queen-pgsink", "sink")])
def test_families_of_a_connectors_tool_are_those_described(
        new_tool, tool, kind):
    table = re.findall(r'\{ "(queen_pg_\w+)"', read("lib", "connmetric.c"))
    other = "sink" if kind == "source" else "source"
    wanted = {name for name in table if "_%s_" % other not in name}
    said = re.findall(r"^# TYPE (\S+)", new_tool(tool).start().get(
        "/metrics").body.decode(), re.M)
    assert set(described_families(tool)) == wanted | set(said)


def test_families_of_the_s3_sink_are_those_described():
    table = re.findall(r'"(queen_\w+)"', read("bin", "queen-s3", "metrics.c"))
    assert set(described_families("queen-s3")) == set(table)


def test_every_metric_family_is_described(cell):
    cell.push("q", [1])
    cell.pop("q", autoAck=True)
    names = described_families("queend")
    patterns = [re.compile(re.escape(n).replace(r"\*", r"\w+") + r"\Z")
                for n in names]
    families = re.findall(r"^# TYPE (\S+)", cell.get(
        "/metrics/prometheus").body.decode(), re.M)
    assert len(families) > 25
    for family in families:
        assert any(p.match(family) for p in patterns), family
    fixed = {n for n in names if "*" not in n}
    source = "".join(read("bin", "queend", name) for name in
                     ("prom.c", "prom_kv.c", "count.c"))
    source += read("lib", "connmetric.c")
    assert {n for n in fixed if n not in source} == set()


# SQL

def test_every_function_is_documented_with_its_signature(db):
    """queen-sql(7) shows each versioned function as the catalogue has it, or
    lists it as internal."""
    wanted = {}
    for name, args, result in db.rows(
            "select proname, pg_get_function_arguments(oid),"
            " pg_get_function_result(oid) from pg_proc where pronamespace ="
            " 'queen'::regnamespace and proname ~ '_v[0-9]+$'"):
        text = "queen.%s(%s) returns %s" % (name, args, result)
        for old, new in (("timestamp with time zone", "timestamptz"),
                         ("integer", "int"), ("TABLE(", "table ("),
                         ("DEFAULT NULL::timestamptz", "default null")):
            text = text.replace(old, new)
        wanted[name] = text
    shown = {}
    for display in re.findall(r"^\.Bd -literal\n(.*?)^\.Ed",
                              read("man", "queen-sql.7"), re.M | re.S):
        found = re.match(r"queen\.(\w+)\(", display)
        if found:
            shown[found.group(1)] = " ".join(display.split())
    internal = set(re.findall(r"^\.Fn (\w+)",
                              section("queen-sql.7", "INTERNAL"), re.M))
    assert set(shown) | internal == set(wanted)
    assert set(shown) & internal == set()
    for name, text in shown.items():
        assert text == wanted[name], name


# Commands

def ctl_help(*words):
    done = run([binary("queenctl"), *words, "--help"], env={"HOME": "/"})
    assert done.returncode == 0, done.stdout
    return done.stdout


def listed(text, title):
    """The words that a block of a help text lists."""
    found = re.search(r"^%s.*:\n((?:  .*\n)+)" % title, text, re.M)
    return re.findall(r"^  ([a-z][a-z0-9-]*)(?: |$)", found.group(1), re.M) \
        if found else []


def flags_of(*words):
    found = re.search(r"^flags:\n((?:  .*\n)+)", ctl_help(*words), re.M)
    return re.findall(r"^ +(?:-\w, )?--([a-z-]+)", found.group(1), re.M) \
        if found else []


def test_every_command_and_flag_is_described():
    """queenctl(1) has exactly the phrases and flags of queenctl --help."""
    top = ctl_help()
    phrases = [(word,) for word in listed(top, "commands")]
    for group in listed(top, "groups"):
        phrases += [(group, word) for word in
                    listed(ctl_help(group), "commands")]
    assert len(phrases) > 40
    page = {}
    for head, body in re.findall(
            r"^\.It Ic (.*)\n((?:(?!\.It Ic|\.Ss|\.Sh).*\n)*)",
            section("queenctl.1", "COMMANDS").replace("\\-", "-"), re.M):
        words = tuple(re.split(r" (?:Ar|Op) ", head)[0].split())
        page[words] = re.findall(r"^\.It (?:Fl \w , )?Fl -([a-z-]+)", body,
                                 re.M)
    assert sorted(page) == sorted(phrases)
    for phrase in phrases:
        assert page[phrase] == flags_of(*phrase), phrase
    found = re.search(r"^flags of every command:\n((?:  .*\n)+)", top, re.M)
    assert re.findall(r"Fl -([a-z-]+)", section(
        "queenctl.1", "GLOBAL FLAGS").replace("\\-", "-")) == \
        re.findall(r"--([a-z-]+)(?= )", found.group(1))


# Sessions

def shell(steps, env, cwd):
    """Runs (command, wanted) steps in one bash; compares what each prints.
    ... in a wanted text stands for anything."""
    mark = "--- end of step ---"
    script = "".join("%s\nprintf '\\n%s\\n'\n" % (command, mark)
                     for command, _ in steps)
    done = run(["bash", "-c", script], env=env, cwd=cwd)
    outputs = done.stdout.split(mark + "\n")
    assert len(outputs) == len(steps) + 1, done.stdout
    for (command, wanted), got in zip(steps, outputs):
        pattern = ".*".join(re.escape(p) for p in wanted.strip().split("..."))
        assert re.fullmatch(pattern, got.strip(), re.S), \
            "%s\nprinted\n%s\nnot\n%s" % (command, got, wanted)


def page_steps(page):
    """$ begins a command, > goes on with it, other lines are its output."""
    steps = []
    for line in rendered(page, "EXAMPLES").splitlines():
        found = re.match(r" +([$>]) (.*)", line)
        if found and found.group(1) == "$":
            steps.append([found.group(2), ""])
        elif found:
            steps[-1][0] += "\n" + found.group(2)
        elif re.match(r" {4,}\S", line) and steps:
            steps[-1][1] += line.strip() + "\n"
    return steps


def readme_steps(n):
    """Of the n-th block: a command, and below it the lines it prints."""
    text = re.findall(r"^```sh\n(.*?)^```", read("README.md"), re.M | re.S)[n]
    steps, command = [], []
    for line in text.splitlines():
        if line.startswith("#> "):
            if command:
                steps.append(("\n".join(command), line[3:]))
            else:
                steps[-1] = (steps[-1][0], steps[-1][1] + "\n" + line[3:])
            command = []
        else:
            command.append(line)
    assert command == []
    return steps


class Fixed:
    """The port the texts name."""
    number = 6632

    def give(self):
        pass


def is_free(number):
    with contextlib.suppress(OSError), socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("0.0.0.0", number))
        return True
    return False


@pytest.fixture
def documented(new_cell, folder):
    """(substitute, env, folder) for a fresh cell on the documented port, or on
    another one where something else uses it."""
    cell = new_cell(_port=Fixed() if is_free(Fixed.number) else None).start()
    env = {"PATH": os.environ["PATH"], "HOME": folder, "LC_ALL": "C.UTF-8",
           "PGHOST": "127.0.0.1", "PGPORT": str(cell.db.server.port.number),
           "PGUSER": "queen", "PGDATABASE": cell.db.name}
    return (cell, lambda steps: [
        (c.replace("localhost:6632", "localhost:%d" % cell.port.number), w)
        for c, w in steps], env, folder)


def test_readme_tour_runs_as_printed(documented):
    _, here, env, folder = documented
    steps = readme_steps(0)
    assert len(steps) == 4
    shell(here(steps), env, folder)


def test_readme_tables_run_as_printed(no_last_cell, folder):
    """The try-out of the connectors, in another folder and on free ports."""
    os.chmod(folder, 0o755)
    ports = [queenlib.Port() for _ in range(4)]
    http, shop, src, sink = (str(p.number) for p in ports)
    env = {"PATH": os.environ["PATH"], "HOME": folder, "LC_ALL": "C.UTF-8",
           "QUEEN_SERVER": "http://127.0.0.1:" + http,
           "QUEEN_PGSRC_LISTEN": "127.0.0.1:" + src,
           "QUEEN_PGSINK_LISTEN": "127.0.0.1:" + sink}
    steps = []
    for command, wanted in readme_steps(1):
        for old, new in (("queenctl up", "queenctl up --port " + http),
                         ("6633", shop), ("/tmp/queen-", folder + "/")):
            command = command.replace(old, new)
        steps.append((command, wanted.replace("/tmp/queen-", folder + "/")
                      .replace("6632", http)))
    try:
        shell(steps, env, ROOT)
    finally:
        for argv in (["tests/demo/shop", "stop", folder + "/shop"],
                     ["build/bin/queenctl", "down", "--dir", folder + "/try"]):
            run(argv, env=env, cwd=ROOT)
        for port in ports:
            port.give()


def test_readme_lake_runs_as_printed(no_last_cell, folder):
    """The try-out of the lake, likewise."""
    os.chmod(folder, 0o755)
    ports = [queenlib.Port() for _ in range(3)]
    http, s3, status = (str(p.number) for p in ports)
    env = {"PATH": os.environ["PATH"], "HOME": folder, "LC_ALL": "C.UTF-8",
           "QUEEN_SERVER": "http://127.0.0.1:" + http,
           "QUEEN_S3_LISTEN": "127.0.0.1:" + status,
           "QUEEN_S3_URL": "http://127.0.0.1:" + status,
           "S3_DIR": folder + "/s3", "S3_PORT": s3}
    steps = [(c.replace("queenctl up", "queenctl up --port " + http)
              .replace("/tmp/queen-", folder + "/"),
              w.replace("/tmp/queen-", folder + "/").replace("6632", http))
             for c, w in readme_steps(2)]
    try:
        shell(steps, env, ROOT)
    finally:
        for argv in (["make", "-s", "s3-stop"],
                     ["build/bin/queenctl", "down", "--dir", folder + "/lake"]):
            run(argv, env=env, cwd=ROOT)
        for port in ports:
            port.give()


def test_readme_jobs_run_as_printed(no_last_cell, folder):
    """The try-out of jobs and streams, likewise."""
    os.chmod(folder, 0o755)
    ports = [queenlib.Port() for _ in range(2)]
    http, ojs = (str(p.number) for p in ports)
    env = {"PATH": os.environ["PATH"], "HOME": folder, "LC_ALL": "C.UTF-8",
           "QUEEN_SERVER": "http://127.0.0.1:" + http,
           "QUEEN_OJS_PORT": ojs,
           "QUEEN_OJS_URL": "http://127.0.0.1:" + ojs}
    steps = [(c.replace("queenctl up", "queenctl up --port " + http)
              .replace("/tmp/queen-", folder + "/"),
              w.replace("/tmp/queen-", folder + "/").replace("6632", http)
              .replace("6634", ojs))
             for c, w in readme_steps(3)]
    try:
        shell(steps, env, ROOT)
    finally:
        run(["build/bin/queenctl", "down", "--dir", folder + "/ojs"], env=env,
            cwd=ROOT)
        for port in ports:
            port.give()


def test_worked_example_of_queen_runs_as_printed(documented):
    _, here, env, folder = documented
    steps = page_steps("queen.7")
    assert len(steps) > 15
    shell(here(steps), env, folder)


def test_examples_of_queen_sql_run_as_printed(documented):
    cell, here, env, folder = documented
    cell.push("orders", [1, 2], partition="c-42")
    steps = page_steps("queen-sql.7")
    assert len(steps) == 5
    shell(here(steps), env, folder)


def test_examples_of_queenctl_run(documented, new_ojs):
    """Against a cell that is there; what starts and stops one, and what needs
    jq or a bucket, is left out."""
    cell, _, env, folder = documented
    ojs = new_ojs().start()
    env.update(PATH=queenlib.BIN + ":" + env["PATH"],
               QUEEN_OJS_URL="http://127.0.0.1:%d" % ojs.port.number,
               QUEEN_SERVER="http://127.0.0.1:%d" % cell.port.number)
    steps = [(command + "; echo status=$?", "...status=0")
             for command, _ in page_steps("queenctl.1")
             if not re.search(r"queenctl (up|down|s3)|jq ", command)]
    assert len(steps) >= 9
    shell([("set -o pipefail", "")] + steps, env, folder)
    # the last one moved the group back
    assert [m["data"] for m in cell.pop("orders", group="billing")] == \
        [{"total": 10}]


@each_server
def test_each_statement_has_a_name_of_its_own(tool):
    """A session knows a prepared statement by its name alone."""
    names = []
    for path in glob.glob(os.path.join(ROOT, "bin", tool, "*.c")):
        names += re.findall(r'struct pgstmt \w+(?:\[\])? = \{\s*'
                            r'(?:\.name = )?"([^"]+)"', read(path))
    assert len(names) == len(set(names)) > 0


def test_readme_is_short():
    assert len(read("README.md").splitlines()) <= 100


def test_readme_names_every_library():
    text = read("README.md")
    pkgs = re.findall(r"^PKGS_(?:lib|queenctl|queen-s3) := (.*)$", read("Makefile"),
                      re.M)
    for pkg in " ".join(pkgs).split():
        name = re.sub(r"(_core|_extra|-0\.1)$", "", pkg)
        assert re.search(r"\b(lib)?%s\b" % re.escape(name), text), pkg


# Pages

def test_pages_refer_to_pages_that_exist():
    for path in glob.glob(os.path.join(MAN, "*.[1-9]")):
        with open(path) as f:
            for name, part in re.findall(r"\.Xr (\S+) (\d)", f.read()):
                assert os.path.exists(os.path.join(
                    MAN, "%s.%s" % (name, part))), (path, name)


def test_every_program_and_unit_has_its_page():
    for path in glob.glob(os.path.join(ROOT, "bin", "*", "main.c")):
        name = path.split("/")[-2]
        assert glob.glob(os.path.join(MAN, name + ".[18]")), name
    for path in glob.glob(os.path.join(ROOT, "systemd", "*")):
        with open(path) as f:
            for name, part in re.findall(r"man:([\w-]+)\((\d)\)", f.read()):
                assert os.path.exists(os.path.join(
                    MAN, "%s.%s" % (name, part))), path


def test_every_library_module_has_a_unit_test():
    """tests/unit/test_hsrv*.c test hsrv.c, hsrv_head.c and so on."""
    tested = {os.path.basename(p)[5:-2] for p in glob.glob(
        os.path.join(ROOT, "tests", "unit", "test_*.c"))}
    for path in glob.glob(os.path.join(ROOT, "lib", "*.c")):
        name = os.path.basename(path)[:-2]
        # the dial is a part of the link, and tested with it
        words = {"pgdial": "pgconn"}.get(name, name).split("_")
        assert any("_".join(words[:n + 1]) in tested
                   for n in range(len(words))), path


# What is installed

UNITS = ["queend.service", "queend@.service", "queen-pgsrc.service",
         "queen-pgsink.service", "queen-s3.service", "queen-ojs.service"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """DESTDIR of `make install`, from a copy: the tree is left alone."""
    where = tmp_path_factory.mktemp("install")
    tree = where / "tree"
    tree.mkdir()
    for name in ("Makefile", "README.md"):
        shutil.copy(os.path.join(ROOT, name), tree)
    for name in ("man", "systemd"):
        shutil.copytree(os.path.join(ROOT, name), tree / name)
    tools = sorted(os.listdir(queenlib.BIN))
    build = tree / "build" / "bin"
    build.mkdir(parents=True)
    for name in tools:
        shutil.copy(binary(name), build)
        (tree / "bin" / name).mkdir(parents=True)
        (tree / "bin" / name / "main.c").touch()
    done = run(["make", "-C", str(tree), "-o", "all", "install",
                "DESTDIR=%s" % (where / "root"), "PREFIX=/usr", "SAN="])
    assert done.returncode == 0, done.stdout
    return where / "root", tools


def test_install_lays_out_exactly_these_files(installed):
    root, tools = installed
    found = sorted("/" + str(p.relative_to(root))
                   for p in root.rglob("*") if not p.is_dir())
    wanted = ["/usr/bin/" + t for t in tools]
    wanted += ["/usr/share/man/man%s/%s" % (p[-1], os.path.basename(p))
               for p in glob.glob(os.path.join(MAN, "*.[1-9]"))]
    wanted += ["/usr/lib/systemd/system/" + u
               for u in ("queen.target", *UNITS)]
    wanted += ["/usr/share/doc/queen/" + d for d in ("README.md", "queen.env")]
    assert found == sorted(wanted)
    for path in root.rglob("*"):
        mode = path.stat().st_mode & 0o777
        assert mode == (0o755 if path.is_dir() or path.parent.name == "bin"
                        else 0o644), path


def test_units_start_the_installed_program(installed):
    root, _ = installed
    units = root / "usr" / "lib" / "systemd" / "system"
    for name in UNITS:
        program = re.split("[@.]", name)[0]
        assert re.search(r"^ExecStart=/usr/bin/%s$" % program,
                         (units / name).read_text(), re.M), name


@pytest.mark.skipif(not shutil.which("systemd-analyze"),
                    reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", ["queen.target", *UNITS])
def test_units_are_valid(installed, unit, tmp_path):
    root, _ = installed
    units = root / "usr" / "lib" / "systemd" / "system"
    for path in units.iterdir():
        (tmp_path / path.name).write_text(re.sub(
            r"^ExecStart=\S+", "ExecStart=" + binary("queend"),
            path.read_text(), flags=re.M))
    name = unit.replace("@.", "@1.")
    if name != unit:
        (tmp_path / name).symlink_to(tmp_path / unit)
    done = run(["systemd-analyze", "verify", "--man=no",
                str(tmp_path / name)],
               env={"PATH": os.environ["PATH"],
                    "SYSTEMD_UNIT_PATH": "%s:" % tmp_path})
    ours = [line for line in done.stdout.splitlines() if "queen" in line]
    assert ours == [] and done.returncode == 0, done.stdout


@pytest.mark.skipif(not shutil.which("systemd-analyze"),
                    reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS)
def test_units_are_closed(unit):
    """Exposure of at most 2.0, of 10."""
    done = run(["systemd-analyze", "security", "--offline=yes",
                "--threshold=20", "--no-pager",
                os.path.join(ROOT, "systemd", unit)])
    score = re.search(r"Overall exposure level .*?: ([0-9.]+)", done.stdout)
    assert score and float(score.group(1)) <= 2.0, done.stdout
    assert done.returncode == 0
