/* SPDX-License-Identifier: Apache-2.0 */
/* The settings that have a grammar: lists, the address, the prefix. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "err.h"
#include "jspan.h"
#include "s3conf_int.h"

/* ---- queues ---- */

/* At commas; trims; what is empty is dropped. */
static void
split(struct s3conf_value *v, struct span text)
{
	size_t at = 0;

	for (size_t i = 0; i <= text.n; i++) {
		struct span name;

		if (i < text.n && text.p[i] != ',')
			continue;
		name = span_trim(span_make(text.p + at, i - at));
		at = i + 1;
		if (name.n == 0)
			continue;
		v->list = realloc(v->list, (v->list_n + 1) * sizeof(*v->list));
		BUG(!v->list);
		v->list[v->list_n++] = s3conf_dup(name);
	}
}

static bool
is_known(const struct s3conf *c, const char *queue)
{
	for (size_t i = 0; i < c->queues_n; i++)
		if (strcmp(c->queues[i], queue) == 0)
			return true;
	return false;
}

static const char *
queue_fault(const char *queue)
{
	if (strcmp(queue, "*") == 0)
		return "holds * among names: alone and as a text it is every "
		       "queue";
	if (!jspan_utf8(span_of(queue)))
		return "holds a name that is no text";
	for (const char *p = queue; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return "holds a control character";
	return NULL;
}

int
s3conf_set_queues(struct s3conf_source *s)
{
	struct s3conf_value *v = &s->v[S3CONF_QUEUES];
	struct s3conf *c = s->c;

	if (v->is == S3CONF_TEXT)
		split(v, span_of(v->text));
	if (v->list_n == 0)
		return s3conf_refuse(s, S3CONF_QUEUES, "names no queue");
	if (v->is == S3CONF_TEXT && v->list_n == 1 &&
		strcmp(v->list[0], "*") == 0) {
		c->all_queues = true;
		return 0;
	}
	c->queues = calloc(v->list_n, sizeof(*c->queues));
	BUG(!c->queues);
	for (size_t i = 0; i < v->list_n; i++) {
		const char *fault = queue_fault(v->list[i]);

		if (fault)
			return s3conf_refuse(s, S3CONF_QUEUES, "%s", fault);
		/* twice the same would be two writers of it */
		if (!is_known(c, v->list[i]))
			c->queues[c->queues_n++] =
				s3conf_dup(span_of(v->list[i]));
	}
	return 0;
}

/* ---- endpoint ---- */

static const char *
scheme_of(const char *t)
{
	if (strncasecmp(t, "http://", 7) == 0)
		return "http://";
	if (strncasecmp(t, "https://", 8) == 0)
		return "https://";
	return NULL;
}

/* NULL, or what is wrong with host[:port]. */
static const char *
host_fault(struct span h)
{
	const char *colon = memrchr(h.p, ':', h.n);
	const char *bracket = memrchr(h.p, ']', h.n);
	int64_t port;

	if (colon && (!bracket || colon > bracket)) {
		struct span p =
			span_make(colon + 1, (size_t)(h.p + h.n - colon - 1));

		if (p.n == 0 || p.n > 5 || *p.p == '-' || !span_i64(p, &port) ||
			port < 1 || port > 65535)
			return "has a port that is none of 1 to 65535";
		h.n = (size_t)(colon - h.p);
	}
	if (h.n == 0)
		return "names no host";
	if (h.p[0] == '[' && h.p[h.n - 1] == ']' && h.n > 2)
		h = span_make(h.p + 1, h.n - 2);
	else if (memchr(h.p, ':', h.n))
		return "has a port that is none of 1 to 65535";
	for (size_t i = 0; i < h.n; i++)
		if (!(h.p[i] >= 'a' && h.p[i] <= 'z') &&
			!(h.p[i] >= 'A' && h.p[i] <= 'Z') &&
			!(h.p[i] >= '0' && h.p[i] <= '9') &&
			!strchr("._-:", h.p[i]))
			return "names no host";
	return NULL;
}

int
s3conf_set_endpoint(struct s3conf_source *s)
{
	struct s3conf_value *v = &s->v[S3CONF_ENDPOINT];
	const char *scheme = scheme_of(v->text), *fault;
	struct span h;

	if (strchr(v->text, '@')) {
		/* it may be a password */
		free(v->text);
		v->text = s3conf_dup(SPAN_LIT("(not shown)"));
		return s3conf_refuse(s, S3CONF_ENDPOINT,
			"names a user: the keys are settings of their own");
	}
	if (!scheme)
		return s3conf_refuse(s, S3CONF_ENDPOINT,
			"has no scheme: it begins with http:// or https://");
	h = span_of(v->text + strlen(scheme));
	if (h.n && h.p[h.n - 1] == '/')
		h.n--;
	if (h.n && strpbrk(h.p, "/?#") && strpbrk(h.p, "/?#") < h.p + h.n)
		return s3conf_refuse(s, S3CONF_ENDPOINT,
			"carries a path: it belongs into %s",
			s3conf_key_name(s, S3CONF_PREFIX));
	fault = h.n ? host_fault(h) : "names no host";
	if (fault)
		return s3conf_refuse(s, S3CONF_ENDPOINT, "%s", fault);
	s->c->endpoint = malloc(strlen(scheme) + h.n + 1);
	BUG(!s->c->endpoint);
	memcpy(s->c->endpoint, scheme, strlen(scheme));
	memcpy(s->c->endpoint + strlen(scheme), h.p, h.n);
	s->c->endpoint[strlen(scheme) + h.n] = '\0';
	return 0;
}

/* ---- prefix ---- */

/* The first segment that may not be one; empty p: there is none. */
static struct span
bad_segment(struct span s)
{
	size_t at = 0;

	for (size_t i = 0; i <= s.n; i++) {
		struct span part;

		if (i < s.n && s.p[i] != '/')
			continue;
		part = span_make(s.p + at, i - at);
		if (part.n == 0 || span_is(part, ".") || span_is(part, ".."))
			return part;
		at = i + 1;
	}
	return (struct span)SPAN_ZERO;
}

bool
s3conf_prefix_ok(struct span s)
{
	return s.n > 0 && !bad_segment(s).p;
}

int
s3conf_set_prefix(struct s3conf_source *s)
{
	const struct s3conf_value *v = &s->v[S3CONF_PREFIX];
	struct span t =
		v->is == S3CONF_UNSET ? SPAN_LIT("queen") : span_of(v->text);

	while (t.n && t.p[0] == '/')
		t = span_make(t.p + 1, t.n - 1);
	while (t.n && t.p[t.n - 1] == '/')
		t.n--;
	if (t.n == 0)
		return s3conf_refuse(
			s, S3CONF_PREFIX, "is empty: write it as lake/events");
	if (!s3conf_prefix_ok(t))
		return s3conf_refuse(s, S3CONF_PREFIX,
			"has the segment \"%.*s\", which no path may have: "
			"write it as lake/events",
			SPAN_ARG(bad_segment(t)));
	s->c->prefix = s3conf_dup(t);
	return 0;
}

/* ---- the static list ---- */

enum { RANGE_MAX = 1000000 };

static int
no_list(struct err *e, const char *why, struct span what)
{
	struct span shown = span_clip(what, 64);

	if (!jspan_utf8(what))
		shown = SPAN_LIT("(not UTF-8)");
	return err_set(e, ERR_CONFIG, "QUEEN_S3_PARTITIONS: \"%.*s\" %s",
		SPAN_ARG(shown), why);
}

/* A name, or `from..to`; *n: how many names there are by now. */
static int
add_names(struct span name, int64_t *n, struct err *e)
{
	const char *dots = memmem(name.p, name.n, "..", 2);
	int64_t from, to;

	if (!dots) {
		*n += 1;
		return 0;
	}
	if (!span_i64(span_make(name.p, (size_t)(dots - name.p)), &from) ||
		!span_i64(span_make(dots + 2,
				  (size_t)(name.p + name.n - dots - 2)),
			&to) ||
		from < 0 || to < 0)
		return no_list(e, "is no range of two whole numbers", name);
	if (from > to)
		return no_list(e, "is a range that runs backwards", name);
	if (to - from >= RANGE_MAX || *n + (to - from) >= RANGE_MAX)
		return no_list(e, "names more than 1000000 partitions", name);
	*n += to - from + 1;
	return 0;
}

int
s3conf_refuse_partitions(struct span text, struct err *e)
{
	struct s3conf_value v = { .is = S3CONF_LIST };
	bool in_queue = false;
	int64_t n = 0;
	int rc = 0;

	split(&v, text);
	for (size_t i = 0; i < v.list_n && rc == 0; i++) {
		struct span name = span_of(v.list[i]);
		const char *colon = memchr(name.p, ':', name.n);

		if (colon == name.p) {
			rc = no_list(e, "has no queue before the `:`", name);
			break;
		}
		if (colon) {
			in_queue = true;
			name = span_trim(span_make(colon + 1,
				(size_t)(name.p + name.n - colon - 1)));
		}
		if (!in_queue)
			rc = no_list(e, "stands before any queue", name);
		else if (name.n)
			rc = add_names(name, &n, e);
	}
	if (rc == 0 && n == 0)
		rc = no_list(e, "names no partition", text);
	if (rc == 0)
		rc = err_set(e, ERR_CONFIG,
			"QUEEN_S3_PARTITIONS is not supported: a window closes "
			"against safeTime, which discovery alone answers, so "
			"there is no static list; unset it");
	for (size_t i = 0; i < v.list_n; i++)
		free(v.list[i]);
	free(v.list);
	return rc;
}
