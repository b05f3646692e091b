/* SPDX-License-Identifier: Apache-2.0 */
/* Consumer groups: lag, seek, replay, delete. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "out.h"
#include "progress.h"
#include "seek.h"

#define API "/api/v1"

enum { FOLLOW_EVERY_MS = 500 };

int
cmd_group_list(struct ctl *c, const struct cmd_call *a)
{
	int64_t min_s = cmd_int(a, "min-seconds");
	struct buf path = BUF_ZERO;

	if (min_s < 0 || min_s > INT32_MAX)
		return ctl_fail(CTL_USER,
			"--min-seconds %" PRId64 " is out of "
			"range",
			min_s);
	buf_puts(&path, API "/consumer-groups");
	if (min_s > 0)
		buf_printf(&path, "/lagging?minLagSeconds=%" PRId64, min_s);
	return cmd_get_print(c, &path, a->phrase->view);
}

/* A seek with its confirmation `WORD cg=.. queue=.. to=..`. */
static int
seek_and_tell(struct ctl *c, const struct seek *s, const char *word,
	const char *to, bool dry)
{
	struct client_reply r = { .body = BUF_ZERO };
	int code = CTL_OK;

	if (!dry)
		code = seek_send(c, s, &r);
	if (code == 0 && !dry && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		ctl_say(c, "%s%s cg=%s queue=%s%s%s to=%s",
			dry ? "[dry-run] would have " : "", word, s->group,
			s->queue, s->partition ? " partition=" : "",
			s->partition ? s->partition : "", *to ? to : "end");
	buf_fini(&r.body);
	return code;
}

int
cmd_group_seek(struct ctl *c, const struct cmd_call *a)
{
	struct seek s = { .group = a->arg[0], .queue = a->arg[1] };
	const char *to = cmd_str(a, "to");
	int code;

	if (!to)
		return ctl_fail(CTL_USER, "where to? --to end, beginning or a "
					  "time");
	code = seek_target(&s, to);
	return code ? code
		    : seek_and_tell(
			      c, &s, "sought", to, cmd_bool(a, "dry-run"));
}

int
cmd_partition_seek(struct ctl *c, const struct cmd_call *a)
{
	struct seek s = { .group = cmd_str(a, "cg"),
		.queue = a->arg[0],
		.partition = a->arg[1] };
	const char *to = cmd_str(a, "to");
	int code;

	if (!s.group)
		return ctl_fail(CTL_USER, "which group? --cg GROUP");
	code = seek_target(&s, to);
	return code ? code : seek_and_tell(c, &s, "sought", to, false);
}

/* ---- replay ---- */

/* Messages the group has not consumed; -1 on failure. */
static int64_t
backlog(struct ctl *c, const struct seek *s, int *code)
{
	struct client_req q = { .method = "GET" };
	struct client_reply r = { .body = BUF_ZERO };
	struct buf path = BUF_ZERO;
	int64_t n = -1;

	buf_puts(&path, API "/resources/queues");
	client_segment(&path, s->queue);
	buf_puts(&path, "/depth");
	client_query(&path, "group", s->group);
	buf_putc(&path, '\0');
	q.path = path.p;
	*code = client_ask(c, &q, &r);
	if (*code == 0)
		n = doc_i64(buf_span(&r.body), "effectivePending|pending", -1,
			&c->arena);
	buf_fini(&path);
	buf_fini(&r.body);
	return n;
}

static int
watch(struct ctl *c, const struct seek *s, bool follow)
{
	struct progress p;
	int64_t total = -1, left;
	int code;

	progress_init(&p, c->quiet, "messages delivered again");
	if (!p.on && !follow)
		return CTL_OK;
	for (;;) {
		left = backlog(c, s, &code);
		if (code != 0 || left < 0)
			break;
		if (left > total)
			total = left; /* pushes go on meanwhile */
		progress_show(&p, total - left, total);
		if (left == 0 || !follow || client_interrupted())
			break;
		client_sleep_ms(FOLLOW_EVERY_MS);
	}
	progress_end(&p);
	if (code == 0 && p.on && !follow)
		fprintf(stderr, "%" PRId64 " messages will be delivered\n",
			left < 0 ? 0 : left);
	return client_interrupted() ? CTL_OK : code;
}

int
cmd_replay(struct ctl *c, const struct cmd_call *a)
{
	struct seek s = { .group = cmd_str(a, "cg"), .queue = a->arg[0] };
	const char *to = cmd_str(a, "to");
	bool dry = cmd_bool(a, "dry-run");
	int code;

	if (!s.queue)
		return ctl_fail(CTL_USER, "which queue? queenctl replay QUEUE "
					  "--cg GROUP --to WHERE");
	if (!s.group || !to)
		return ctl_fail(CTL_USER, "replay needs --cg GROUP and --to "
					  "WHERE (end, beginning or a time)");
	if ((code = seek_target(&s, to)) != 0)
		return code;
	code = seek_and_tell(c, &s, "replayed", to, dry);
	if (code == 0 && !dry)
		code = ctl_flush(CTL_OK);
	if (code == 0 && !dry)
		code = watch(c, &s, cmd_bool(a, "follow"));
	return code;
}

/* ---- delete, refresh ---- */

int
cmd_group_delete(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = { .method = "DELETE", .kind = CLIENT_WRITE };
	struct client_reply r = { .body = BUF_ZERO };
	const char *queue = cmd_str(a, "queue");
	struct buf path = BUF_ZERO;
	int code;

	if (!cmd_confirmed(a, "delete a group's positions"))
		return CTL_USER;
	buf_puts(&path, API "/consumer-groups");
	client_segment(&path, a->arg[0]);
	if (queue) {
		buf_puts(&path, "/queues");
		client_segment(&path, queue);
	}
	client_query(&path, "deleteMetadata",
		cmd_bool(a, "metadata") ? "true" : "false");
	buf_putc(&path, '\0');
	q.path = path.p;
	code = client_ask(c, &q, &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		ctl_say(c, "deleted \"%s\"", a->arg[0]);
	buf_fini(&path);
	buf_fini(&r.body);
	return code;
}

int
cmd_group_refresh(struct ctl *c, const struct cmd_call *a)
{
	struct client_req q = { .method = "POST",
		.path = API "/stats/refresh",
		.kind = CLIENT_WRITE };
	struct client_reply r = { .body = BUF_ZERO };
	int code = client_ask(c, &q, &r);

	(void)a;
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		ctl_say(c, "refreshed");
	buf_fini(&r.body);
	return code;
}
