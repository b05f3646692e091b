/* SPDX-License-Identifier: Apache-2.0 */
/* up and down: a private cell, and how to reach it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "buf.h"
#include "cell.h"
#include "cmds.h"
#include "ctl.h"
#include "jwrite.h"
#include "out.h"

enum { DOWN_MS = 120000 };

static void
write_with(struct jwrite *w, const char *list)
{
	jwrite_key(w, "with");
	jwrite_array(w);
	while (*list) {
		size_t n = strcspn(list, ",");

		jwrite_str(w, span_make(list, n));
		list += n + (list[n] == ',');
	}
	jwrite_end(w);
}

static int
answer_up(struct ctl *c, const struct cell *cell,
	const struct cell_running *run, bool reused, bool detached)
{
	struct buf b = BUF_ZERO;
	struct jwrite w;
	int code;

	jwrite_init(&w, &b);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "url", run->url);
	if (run->ojs_url[0])
		jwrite_kv_cstr(&w, "ojsUrl", run->ojs_url);
	jwrite_kv_cstr(&w, "dir", cell->dir);
	jwrite_kv_i64(&w, "pid", run->pid);
	jwrite_kv_bool(&w, "reused", reused);
	jwrite_kv_bool(&w, "detached", reused || detached);
	write_with(&w, run->with);
	jwrite_key(&w, "postgres");
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "host", run->pg_host);
	jwrite_kv_cstr(&w, "user", run->pg_user);
	jwrite_kv_cstr(&w, "database", run->pg_database);
	jwrite_end(&w);
	jwrite_end(&w);
	code = out_print(c, buf_span(&b), NULL);
	buf_fini(&b);
	return ctl_flush(code);
}

/* A cell that runs stays where it listens, whatever was typed. */
static bool
other_port(const struct cmd_call *a, const char *url)
{
	const char *colon = strrchr(url, ':');

	return cmd_typed(a, "port") && colon &&
	       strtoll(colon + 1, NULL, 10) != cmd_int(a, "port");
}

static int
tell_up(struct ctl *c, const struct cmd_call *a, const struct cell *cell,
	bool reused, bool detached)
{
	struct cell_running run;

	if (!cell_is_running(cell, &run))
		return ctl_fail(CTL_SERVER,
			"the cell in %s went down again; "
			"see %s/log",
			cell->dir, cell->dir);
	if (ctl_wants_answer(c))
		return answer_up(c, cell, &run, reused, detached);
	ctl_say(c, "%s: %s",
		reused ? "the cell is up already" : "the cell is up", run.url);
	if (reused && other_port(a, run.url))
		ctl_say(c, "note:     it keeps its port; for another one, stop "
			   "it first");
	for (int i = 0; reused && i < CELL_TOOLS; i++)
		if (cell->with[i] && !cell_with_has(run.with, i))
			ctl_say(c,
				"note:     it runs without %s; to start it "
				"too, stop the cell first",
				cell_tools[i].name);
	if (run.with[0])
		ctl_say(c, "with:     %s", run.with);
	if (run.ojs_url[0])
		ctl_say(c, "ojs:      %s", run.ojs_url);
	ctl_say(c, "data:     %s", cell->dir);
	ctl_say(c, "database: psql -h %s -U %s %s", run.pg_host, run.pg_user,
		run.pg_database);
	if (reused || detached)
		ctl_say(c, "stop it:  queenctl down --dir %s", cell->dir);
	else
		ctl_say(c, "stop it:  Ctrl-C, or queenctl down --dir %s",
			cell->dir);
	return ctl_flush(CTL_OK);
}

int
cmd_up(struct ctl *c, const struct cmd_call *a)
{
	const char *bind = cmd_str(a, "bind");
	bool detach = cmd_bool(a, "detach"), reused;
	int64_t port = cmd_int(a, "port");
	struct err e = ERR_ZERO;
	pid_t supervisor = 0;
	struct cell cell;
	int code;

	if (port < 1 || port > 65535)
		return ctl_fail(
			CTL_USER, "--port %" PRId64 " is out of range", port);
	if (cell_locate(&cell, cmd_str(a, "dir"), &e) != 0 ||
		cell_with(&cell, cmd_str(a, "with"), &e) != 0)
		return ctl_fail_err(&e);
	if (strlen(bind) >= sizeof(cell.bind))
		return ctl_fail(CTL_USER, "--bind is too long");
	snprintf(cell.bind, sizeof(cell.bind), "%s", bind);
	cell.port = (int)port;
	if (cell_up(&cell, detach, &reused, &supervisor, &e) != 0)
		return ctl_fail_err(&e);
	cell_remember(cell.dir);
	code = tell_up(c, a, &cell, reused, detach);
	if (reused || detach || code != 0)
		return code;
	return cell_wait(supervisor) == 0 ? CTL_OK : CTL_SERVER;
}

int
cmd_down(struct ctl *c, const struct cmd_call *a)
{
	const char *dir = cmd_str(a, "dir");
	struct err e = ERR_ZERO;
	char last[CELL_PATH];
	struct cell cell;
	int rc;

	if (!dir && cell_last(last))
		dir = last;
	if (cell_locate(&cell, dir, &e) != 0)
		return ctl_fail_err(&e);
	rc = cell_down(&cell, DOWN_MS, &e);
	if (rc < 0)
		return ctl_fail_err(&e);
	if (rc == 1) {
		if (!ctl_wants_answer(c))
			ctl_say(c, "no cell runs in %s", cell.dir);
		return CTL_NOTHING;
	}
	if (ctl_wants_answer(c)) {
		struct buf b = BUF_ZERO;
		struct jwrite w;
		int code;

		jwrite_init(&w, &b);
		jwrite_object(&w);
		jwrite_kv_bool(&w, "stopped", true);
		jwrite_kv_cstr(&w, "dir", cell.dir);
		jwrite_end(&w);
		code = out_print(c, buf_span(&b), NULL);
		buf_fini(&b);
		return code;
	}
	ctl_say(c, "the cell in %s is down", cell.dir);
	return CTL_OK;
}
