/* SPDX-License-Identifier: Apache-2.0 */
/* What a registration may say. */
#include <stdio.h>

#include "arena.h"
#include "buf.h"
#include "cron_int.h"
#include "job_int.h"
#include "jspan.h"
#include "jwrite.h"

enum { NAME_MAX_BYTES = 255, TEXT_MAX_BYTES = 1000 };

enum { NAME, EXPRESSION, CRON, ZONE, OVERLAP, ENABLED, TEMPLATE, FIELDS };

static const char *const NAMES[FIELDS] = { "name", "expression", "cron",
	"timezone", "overlap_policy", "enabled", "job_template" };
static const char *const OVERLAPS[] = { "skip", "allow", "cancel_previous",
	"enqueue" };

struct reader {
	struct arena *a;
	struct problem *p;
	struct cron_body *c;
	struct jspan_val v[FIELDS];
};

static int
required(struct reader *r, int field, size_t max_bytes, struct span *out)
{
	if (r->v[field].type == JSPAN_NONE)
		return problem_field(r->p, r->a, NAMES[field],
			"`%s` is missing.", NAMES[field]);
	return job_text(&r->v[field], r->a, NAMES[field], max_bytes, out, r->p);
}

static int
read_name(struct reader *r)
{
	struct span *s = &r->c->name;

	if (required(r, NAME, NAME_MAX_BYTES, s) < 0)
		return -1;
	for (size_t i = 0; i < s->n; i++) {
		if ((unsigned char)s->p[i] < ' ' || s->p[i] == 0x7f)
			return problem_field(r->p, r->a, "name",
				"`name` must have no control characters.");
	}
	return 0;
}

static int
read_expression(struct reader *r)
{
	int field = r->v[EXPRESSION].type == JSPAN_NONE &&
				    r->v[CRON].type != JSPAN_NONE
			    ? CRON
			    : EXPRESSION;
	const char *why = NULL;

	if (required(r, field, TEXT_MAX_BYTES, &r->c->expression) < 0)
		return -1;
	if (cron_parse(r->c->expression, &r->c->when, &why))
		return 0;
	return problem_field(r->p, r->a, NAMES[field],
		"`%s` is no cron expression: %s.", NAMES[field], why);
}

static int
read_overlap(struct reader *r)
{
	struct span *s = &r->c->overlap;

	*s = span_of(OVERLAPS[0]);
	if (r->v[OVERLAP].type == JSPAN_NONE)
		return 0;
	if (jspan_text(&r->v[OVERLAP], r->a, s)) {
		for (size_t i = 0; i < sizeof(OVERLAPS) / sizeof(*OVERLAPS);
			i++) {
			if (span_is(*s, OVERLAPS[i]))
				return 0;
		}
	}
	return problem_field(r->p, r->a, NAMES[OVERLAP],
		"`overlap_policy` must be \"skip\", \"allow\", "
		"\"cancel_previous\" or \"enqueue\".");
}

static int
read_own(struct reader *r)
{
	if (read_name(r) < 0 || read_expression(r) < 0 || read_overlap(r) < 0)
		return -1;
	r->c->zone = SPAN_LIT("UTC");
	if (job_text(&r->v[ZONE], r->a, NAMES[ZONE], NAME_MAX_BYTES,
		    &r->c->zone, r->p) < 0)
		return -1;
	r->c->enabled = true;
	return job_flag(
		&r->v[ENABLED], r->a, NAMES[ENABLED], &r->c->enabled, r->p);
}

/* ---- the template ---- */

static bool
is_own(struct span name)
{
	for (int i = 0; i < FIELDS; i++) {
		if (span_is(name, NAMES[i]))
			return true;
	}
	return false;
}

/* What is not ours of a body that is its own template. */
static struct span
flat_template(struct span body, struct arena *a)
{
	struct buf b = BUF_ZERO;
	struct jspan_val key, v;
	struct span name, out;
	struct jspan j;

	buf_putc(&b, '{');
	jspan_open(&j, body);
	jspan_enter_object(&j);
	while (jspan_next_name(&j, &key) && jspan_take(&j, &v)) {
		if (jspan_text(&key, a, &name) && is_own(name))
			continue;
		if (b.len > 1)
			buf_putc(&b, ',');
		buf_put_span(&b, key.raw);
		buf_putc(&b, ':');
		buf_put_span(&b, v.raw);
	}
	buf_putc(&b, '}');
	out = arena_dup(a, buf_span(&b));
	buf_fini(&b);
	return out;
}

/* Each job is another and of its own time. */
static int
refuse_moments(struct reader *r, struct span object)
{
	struct jspan_val v[4] = { { .truth = false } };
	const struct job_field fields[] = {
		{ .name = "id", .v = &v[0] },
		{ .name = "scheduled_at", .v = &v[1] },
		{ .name = "delay_until", .v = &v[2] },
		{ .name = "expires_at", .v = &v[3] },
	};

	if (job_fields(object, r->a, fields, 4, r->p) < 0)
		return -1;
	for (int i = 0; i < 4; i++) {
		if (v[i].type != JSPAN_NONE)
			return problem_field(r->p, r->a, fields[i].name,
				"A template cannot have `%s`: it is the same "
				"for all its jobs.",
				fields[i].name);
	}
	return 0;
}

static int
check_template(struct reader *r, struct span template)
{
	static const char *const shown[] = { "type", "args", "options" };
	struct jspan_val v[3] = { { .truth = false } };
	const struct job_field fields[] = {
		{ .name = shown[0], .v = &v[0] },
		{ .name = shown[1], .v = &v[1] },
		{ .name = shown[2], .v = &v[2] },
	};
	struct buf b = BUF_ZERO;

	if (job_fields(template, r->a, fields, 3, r->p) < 0 ||
		refuse_moments(r, template) < 0 ||
		(v[2].type == JSPAN_OBJECT && refuse_moments(r, v[2].raw) < 0))
		return -1;
	for (int i = 0; i < 3; i++) {
		if (v[i].type == JSPAN_NONE)
			continue;
		buf_printf(&b, "\"%s\":", shown[i]);
		buf_put_span(&b, v[i].raw);
		buf_putc(&b, ',');
	}
	buf_puts(&b, "\"job_template\":");
	buf_put_span(&b, template);
	r->c->shown = arena_dup(r->a, buf_span(&b));
	buf_fini(&b);
	return 0;
}

int
cron_body_parse(struct span body, size_t max_bytes, struct arena *a,
	int64_t now_us, struct cron_body *c, struct problem *p)
{
	struct reader r = { .a = a, .p = p, .c = c };
	struct job_field fields[FIELDS];
	struct span template;

	for (int i = 0; i < FIELDS; i++)
		fields[i] =
			(struct job_field){ .name = NAMES[i], .v = &r.v[i] };
	if (job_fields(body, a, fields, FIELDS, p) < 0 || read_own(&r) < 0)
		return -1;
	if (r.v[TEMPLATE].type == JSPAN_NONE)
		template = flat_template(body, a);
	else if (r.v[TEMPLATE].type == JSPAN_OBJECT)
		template = r.v[TEMPLATE].raw;
	else
		return problem_field(p, a, NAMES[TEMPLATE],
			"`job_template` must be an object.");
	if (job_spec_parse(template, max_bytes, a, now_us, &c->spec, p) < 0)
		return -1;
	return check_template(&r, template);
}
