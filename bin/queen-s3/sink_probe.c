/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the bucket answer?  HEAD of the prefix.  What it refuses with, and
 * whether it is the bucket that is not there, only the text of another answer
 * says: the same is asked by GET.
 */
#include <stdio.h>

#include "backoff.h"
#include "buf.h"
#include "clk.h"
#include "sink_int.h"

typedef struct s3_req *
ask_fn(struct s3 *s, struct span key, s3_fn fn, void *arg);

enum {
	FIRST_MS = 1000,
	WAIT_MAX_MS = 60000,
	QUIET_MS = 30000,
	EVERY_MS = 30000, /* while it answers */
};

static void
note(struct sink *s, bool ok)
{
	uint64_t suppressed;

	s->bad_bucket.every_ms = QUIET_MS;
	if (ok && (!s->checked || !s->reachable))
		log_line(LOG_INFO, "queen-s3", "the bucket answers",
			"%sbucket=%s endpoint=%s", s->x.log_tenant,
			s->s3conf.bucket, s->s3conf.endpoint);
	if (!ok && log_sample(&s->bad_bucket, clk_mono_ms(), &suppressed))
		log_line(LOG_WARN, "queen-s3", "the bucket does not answer",
			"%sbucket=%s endpoint=%s error=%s suppressed=%llu",
			s->x.log_tenant, s->s3conf.bucket, s->s3conf.endpoint,
			log_quote(s->bucket_error),
			(unsigned long long)suppressed);
	s->checked = true;
	s->reachable = ok;
	s->checked_us = clk_wall_us();
}

static void
again(struct sink *s, bool ok)
{
	s->probe_wait_ms =
		ok ? 0
		   : backoff_next_ms(s->probe_wait_ms, FIRST_MS, WAIT_MAX_MS);
	loop_timer_start(&s->probe_timer, ok ? EVERY_MS : s->probe_wait_ms);
}

/* Last words of a start that the bucket ends, with what may mend it. */
static void
put_why(const struct sink *s, const struct s3_error *e, char *text, size_t n)
{
	char rights[160] = "";

	if (e && e->status == 403)
		snprintf(rights, sizeof(rights),
			"; the key needs s3:PutObject, s3:GetObject and "
			"s3:ListBucket on %.60s/*",
			s->s3conf.prefix);
	snprintf(text, n, "bucket %s at %s: %s%s%s", s->s3conf.bucket,
		s->s3conf.endpoint, s->bucket_error, rights,
		s->s3conf.path_style ? ""
				     : "; most gateways need "
				       "QUEEN_S3_PATH_STYLE=true");
}

/* Absent is as good as there: nothing is written yet. */
static void
on_answer(void *arg, const struct s3_answer *a, const struct s3_error *e)
{
	struct sink *s = arg;
	sink_probe_fn fn = s->probe_fn;
	char text[700];

	(void)a;
	s->probing = NULL;
	s->probe_fn = NULL;
	snprintf(s->bucket_error, sizeof(s->bucket_error), "%s",
		e ? e->text : "");
	note(s, !e);
	if (s->phase != SINK_STOPPING)
		again(s, !e);
	if (fn) {
		put_why(s, e, text, sizeof(text));
		fn(s->probe_arg, !e, text);
		return;
	}
	if (!e)
		sink_bucket_answers(s);
}

static void
ask(struct sink *s, ask_fn *how, s3_fn fn)
{
	struct buf key = BUF_ZERO;

	buf_printf(&key, "%s/", s->s3conf.prefix);
	s->probing = how(s->x.s3, buf_span(&key), fn, s);
	buf_fini(&key);
}

static void
on_head(void *arg, const struct s3_answer *a, const struct s3_error *e)
{
	struct sink *s = arg;

	if (e ? e->status >= 300 && e->status < 500
	      : a->absent && !s->reachable)
		ask(s, s3_peek, on_answer);
	else
		on_answer(s, a, e);
}

void
sink_probe_again(void *arg)
{
	struct sink *s = arg;

	if (!s->probing)
		ask(s, s3_head, on_head);
}

void
sink_probe(struct sink *s, sink_probe_fn fn, void *arg)
{
	s->probe_fn = fn;
	s->probe_arg = arg;
	sink_probe_again(s);
}

void
sink_probe_free(struct sink *s)
{
	if (s->probing)
		s3_cancel(s->probing);
	loop_timer_fini(&s->probe_timer);
}
