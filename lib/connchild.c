/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child's end.  Its status is one JSON object, of which the parent makes
 * the block that is shown:
 *	phase, since, error, lastError, retryInMs, restarts, errors,
 *	detail {the kind's own members}, metrics {family: number}
 */
#include "connchild.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arena.h"
#include "buf.h"
#include "clk.h"
#include "conndoc.h"
#include "connfault.h"
#include "connpipe.h"
#include "err.h"
#include "exit.h"
#include "jwrite.h"
#include "log.h"
#include "loop.h"

enum {
	TASK_MS = 10000,
	STATUS_MIN_MS = 200, /* rows are the parent's to ration */
	STATUS_MAX_MS = 10000,
	SAME_MS = 60000, /* the same error again is no news for so long */
	LAST_WORDS_MS = 1000,
	UNSENT_MAX_BYTES = 4 << 20, /* to a parent that does not read */
};

struct fault {
	bool is;
	const char *code;
	int64_t at_us;
	char text[CONNFAULT_TEXT_MAX + 1];
};

struct connchild {
	struct loop *loop;
	struct connpipe *pipe;
	struct connchild_face face;
	struct connchild_task task;
	struct buf task_body; /* the task's spans lie in it */
	struct arena arena;
	int64_t grace_ms;
	/* status */
	const char *phase;
	int64_t since_us;
	struct fault error, last;
	int64_t retry_at_ms; /* monotonic; 0 = none */
	uint64_t restarts, errors;
	int64_t sent_ms, due_ms;
	struct loop_timer status, too_late;
	bool stopping, left;
	bool lost; /* announcements were dropped */
	/* log */
	struct fault logged;
	struct log_sampler again;
};

/* ---- status ---- */

static void
write_fault(struct jwrite *w, const char *key, const struct fault *f)
{
	jwrite_key(w, key);
	if (!f->is) {
		jwrite_null(w);
		return;
	}
	jwrite_object(w);
	jwrite_kv_cstr(w, "code", f->code);
	jwrite_kv_cstr(w, "message", f->text);
	jwrite_key(w, "at");
	jwrite_iso_us(w, f->at_us);
	jwrite_end(w);
}

static void
write_status(struct connchild *c, struct buf *b)
{
	int64_t now_ms = clk_mono_ms();
	struct jwrite w;

	jwrite_init(&w, b);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "phase", c->phase);
	jwrite_key(&w, "since");
	jwrite_iso_us(&w, c->since_us);
	write_fault(&w, "error", &c->error);
	write_fault(&w, "lastError", &c->last);
	if (c->retry_at_ms)
		jwrite_kv_i64(&w, "retryInMs",
			c->retry_at_ms > now_ms ? c->retry_at_ms - now_ms : 0);
	jwrite_kv_i64(&w, "restarts", (int64_t)c->restarts);
	jwrite_kv_i64(&w, "errors", (int64_t)c->errors);
	jwrite_key(&w, "detail");
	jwrite_object(&w);
	c->face.write_detail(c->face.arg, &w);
	jwrite_end(&w);
	jwrite_key(&w, "metrics");
	jwrite_object(&w);
	c->face.write_metrics(c->face.arg, &w);
	jwrite_end(&w);
	jwrite_end(&w);
}

static void
plan_status(struct connchild *c, int64_t due_ms)
{
	int64_t now_ms = clk_mono_ms();

	c->due_ms = due_ms > now_ms ? due_ms : now_ms;
	loop_timer_start(&c->status, c->due_ms - now_ms);
}

static bool
is_deaf(const struct connchild *c)
{
	return connpipe_unsent_bytes(c->pipe) > UNSENT_MAX_BYTES;
}

static void
send_status(void *arg)
{
	struct connchild *c = arg;
	struct buf b = BUF_ZERO;

	if (!is_deaf(c)) {
		write_status(c, &b);
		connpipe_send(c->pipe, CONNPIPE_STATUS, buf_span(&b));
		buf_fini(&b);
	}
	c->sent_ms = clk_mono_ms();
	plan_status(c, c->sent_ms + STATUS_MAX_MS);
}

void
connchild_touch(struct connchild *c)
{
	if (!c->left && c->due_ms > c->sent_ms + STATUS_MIN_MS)
		plan_status(c, c->sent_ms + STATUS_MIN_MS);
}

static bool
is_at_work(const char *phase)
{
	return strcmp(phase, "streaming") == 0 ||
	       strcmp(phase, "snapshot") == 0 || strcmp(phase, "running") == 0;
}

static void
set_phase(struct connchild *c, const char *phase)
{
	if (strcmp(c->phase, phase) == 0)
		return;
	c->phase = phase;
	c->since_us = clk_wall_us();
	connchild_touch(c);
}

void
connchild_phase(struct connchild *c, const char *phase)
{
	if (strcmp(c->phase, phase) != 0)
		log_line(LOG_INFO, "connector", "phase",
			"connector=%.*s phase=%s", SPAN_ARG(c->task.name),
			phase);
	set_phase(c, phase);
	if (c->retry_at_ms) {
		c->retry_at_ms = 0;
		connchild_touch(c);
	}
	if (is_at_work(phase))
		connchild_well(c);
}

static void
keep(struct fault *to, const struct connfault *f)
{
	to->is = true;
	to->code = f->code;
	to->at_us = clk_wall_us();
	memcpy(to->text, f->text, sizeof(to->text));
}

static bool
is_same(const struct fault *a, const struct connfault *f)
{
	return a->is && strcmp(a->code, f->code) == 0 &&
	       strcmp(a->text, f->text) == 0;
}

static void
log_fault(struct connchild *c, const char *what, const struct connfault *f)
{
	char tenant[QID_TEXT_MAX];
	uint64_t suppressed;

	if (!is_same(&c->logged, f))
		c->again = (struct log_sampler){ .every_ms = SAME_MS };
	if (!log_sample(&c->again, clk_mono_ms(), &suppressed))
		return;
	keep(&c->logged, f);
	log_line(LOG_WARN, "connector", what,
		"connector=%.*s tenant=%s kind=%s code=%s retryable=%s "
		"error=%s suppressed=%llu",
		SPAN_ARG(c->task.name), qid_text(&c->task.tenant, tenant),
		conndoc_kind_word(c->task.doc->kind), f->code,
		f->retryable ? "true" : "false", log_quote(f->text),
		(unsigned long long)suppressed);
}

void
connchild_complain(struct connchild *c, const struct connfault *f)
{
	keep(&c->error, f);
	c->last = c->error;
	c->errors++;
	log_fault(c, "trouble", f);
	connchild_touch(c);
}

void
connchild_error(
	struct connchild *c, const struct connfault *f, int64_t retry_in_ms)
{
	keep(&c->error, f);
	c->last = c->error;
	c->errors++;
	c->retry_at_ms = retry_in_ms > 0 ? clk_mono_ms() + retry_in_ms : 0;
	log_fault(c, "failed", f);
	set_phase(c, "error");
	connchild_touch(c);
}

void
connchild_note(struct connchild *c, const struct connfault *f)
{
	keep(&c->last, f);
	log_fault(c, "noted", f);
	connchild_touch(c);
}

void
connchild_well(struct connchild *c)
{
	if (!c->error.is)
		return;
	c->error.is = false;
	c->logged.is = false;
	connchild_touch(c);
}

void
connchild_restarted(struct connchild *c)
{
	c->restarts++;
	connchild_touch(c);
}

/* ---- work ---- */

void
connchild_watch(struct connchild *c, int64_t queue_id)
{
	connpipe_send_number(c->pipe, CONNPIPE_WATCH, queue_id);
}

void
connchild_announce(
	struct connchild *c, int64_t queue_id, const int64_t *parts, size_t n)
{
	if (n == 0)
		return;
	if (is_deaf(c)) {
		c->lost = true;
		return;
	}
	if (c->lost)
		connpipe_send_parts(c->pipe, CONNPIPE_ANNOUNCE, 0, NULL, 0);
	c->lost = false;
	connpipe_send_parts(c->pipe, CONNPIPE_ANNOUNCE, queue_id, parts, n);
}

/* ---- the end ---- */

void
connchild_leave(struct connchild *c, bool torn_down)
{
	if (c->left)
		return;
	set_phase(c, torn_down ? "torn_down" : "stopped");
	send_status(c);
	connpipe_send_number(c->pipe, CONNPIPE_LEAVE, torn_down);
	connpipe_flush(c->pipe, LAST_WORDS_MS);
	c->left = true;
	loop_timer_stop(&c->status);
	loop_timer_stop(&c->too_late);
	loop_stop(c->loop);
}

static void
on_too_late(void *arg)
{
	(void)arg;
	_exit(EXIT_INTERNAL);
}

static void
stop(struct connchild *c, int64_t grace_ms)
{
	if (c->stopping || c->left)
		return;
	c->stopping = true;
	loop_timer_start(&c->too_late, grace_ms + LAST_WORDS_MS);
	c->face.on_stop(c->face.arg, grace_ms);
}

static void
on_term(void *arg)
{
	struct connchild *c = arg;

	if (c->stopping)
		_exit(EXIT_INTERNAL); /* the second one means now */
	stop(c, c->grace_ms);
}

/* ---- the pipe ---- */

static void
on_marks(struct connchild *c, struct span body)
{
	int64_t parts[CONNPIPE_PARTS_MAX], queue_id;
	size_t n;

	if (c->face.on_marks && connpipe_read_parts(body, &queue_id, parts, &n))
		c->face.on_marks(c->face.arg, parts, n);
}

static void
on_frame(void *arg, enum connpipe_kind kind, struct span body)
{
	struct connchild *c = arg;
	int64_t grace_ms;

	if (kind == CONNPIPE_MARKS && !c->stopping)
		on_marks(c, body);
	else if (kind == CONNPIPE_STOP && connpipe_read_number(body, &grace_ms))
		stop(c, grace_ms);
}

static void
on_end(void *arg)
{
	struct connchild *c = arg;

	stop(c, c->grace_ms);
}

/* ---- boot ---- */

static int
read_task(struct connchild *c, int fd, struct err *e)
{
	struct connpipe_task t;
	struct conndoc *doc;

	if (connpipe_first(fd, CONNPIPE_TASK, TASK_MS, &c->task_body, e) != 0)
		return -1;
	if (!connpipe_read_task(buf_span(&c->task_body), &t))
		return err_set(e, ERR_INPUT, "the task does not parse");
	if (conndoc_parse_stored(t.doc, &c->arena, &doc, e) != 0)
		return -1;
	c->grace_ms = t.grace_ms;
	c->task = (struct connchild_task){ .tenant = t.tenant,
		.name = t.name,
		.doc = doc,
		.version = t.version,
		.node = t.node,
		.cell_tag = t.cell_tag };
	return 0;
}

struct connchild *
connchild_open(struct loop *l, int fd, const struct connchild_face *face,
	struct err *e)
{
	struct connpipe_events ev = { .on_frame = on_frame, .on_end = on_end };
	struct connchild *c = calloc(1, sizeof(*c));

	BUG(!c);
	if (read_task(c, fd, e) != 0) {
		arena_fini(&c->arena);
		buf_fini(&c->task_body);
		free(c);
		return NULL;
	}
	c->loop = l;
	c->face = *face;
	c->phase = "starting";
	c->since_us = clk_wall_us();
	/* the group's Ctrl-C is the parent's to answer */
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	loop_on_signal(l, SIGTERM, on_term, c);
	loop_timer_init(&c->status, l, send_status, c);
	loop_timer_init(&c->too_late, l, on_too_late, c);
	ev.arg = c;
	c->pipe = connpipe_new(l, fd, &ev);
	plan_status(c, 0);
	return c;
}

void
connchild_set_arg(struct connchild *c, void *arg)
{
	c->face.arg = arg;
}

const struct connchild_task *
connchild_task(const struct connchild *c)
{
	return &c->task;
}

int
connchild_unseal(const struct connchild_task *t, const struct seal *ring,
	struct buf *clear, struct connfault *f)
{
	struct err e = ERR_ZERO;

	if (conndoc_unseal(t->doc, &t->tenant, t->name, ring, clear, &e) == 0)
		return 0;
	return connfault_set(f, "unseal", false, "%s", e.text);
}

void
connchild_free(struct connchild *c)
{
	if (!c)
		return;
	loop_timer_fini(&c->status);
	loop_timer_fini(&c->too_late);
	connpipe_free(c->pipe);
	arena_fini(&c->arena);
	buf_fini(&c->task_body);
	free(c);
}
