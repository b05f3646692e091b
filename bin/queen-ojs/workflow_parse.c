/* SPDX-License-Identifier: Apache-2.0 */
/* What a client asks for: jobs of one kind of workflow, each an envelope. */
#include "workflow_int.h"

#include "arena.h"
#include "jspan.h"

/* What the body holds, as sent; raw.p NULL = absent. */
struct body {
	struct jspan_val type, name, jobs, callbacks;
	const char *jobs_key;
};

struct parse {
	const struct workflow_limits *limits;
	struct arena *arena;
	int64_t now_us;
	struct workflow_ask *ask;
	size_t cap;
	struct problem *problem;
};

static const struct {
	const char *name;
	const char *key; /* of its jobs */
} kinds[WORKFLOW_KINDS] = {
	[WORKFLOW_CHAIN] = { "chain", "steps" },
	[WORKFLOW_GROUP] = { "group", "jobs" },
	[WORKFLOW_BATCH] = { "batch", "jobs" },
};

static const char *const role_names[WORKFLOW_ROLES] = {
	[WORKFLOW_STEP] = "step",
	[WORKFLOW_JOB] = "job",
	[WORKFLOW_COMPLETE] = "on_complete",
	[WORKFLOW_SUCCESS] = "on_success",
	[WORKFLOW_FAILURE] = "on_failure",
};

const char *
workflow_kind_name(enum workflow_kind k)
{
	return kinds[k].name;
}

const char *
workflow_role_name(enum workflow_role role)
{
	return role_names[role];
}

/* ---- the body ---- */

static bool
set(const struct jspan_val *v)
{
	return v->type != JSPAN_NONE && v->type != JSPAN_NULL;
}

static bool
read_body(struct span body, struct arena *a, struct body *b, struct problem *p)
{
	struct jspan j;
	struct jspan_val v;
	struct span key;

	*b = (struct body){ .jobs_key = NULL };
	jspan_open(&j, body);
	if (jspan_enter_object(&j))
		while (jspan_next_key(&j, a, &key) && jspan_take(&j, &v)) {
			if (span_is(key, "type"))
				b->type = v;
			else if (span_is(key, "name"))
				b->name = v;
			else if (span_is(key, "callbacks"))
				b->callbacks = v;
			else if (set(&v) && span_is(key, "steps")) {
				b->jobs = v;
				b->jobs_key = "steps";
			} else if (set(&v) && span_is(key, "jobs")) {
				b->jobs = v;
				b->jobs_key = "jobs";
			}
		}
	if (!j.error && jspan_end(&j))
		return true;
	problem_set(p, a, 400, "invalid_payload", NULL,
		"The body is no JSON object: %s.", j.error);
	return false;
}

static int
read_kind(const struct parse *x, const struct jspan_val *v)
{
	struct span s;

	if (v->type == JSPAN_STRING && jspan_text(v, x->arena, &s))
		for (int k = 0; k < WORKFLOW_KINDS; k++)
			if (span_is(s, kinds[k].name)) {
				x->ask->kind = (enum workflow_kind)k;
				return 0;
			}
	return problem_field(x->problem, x->arena, "type",
		"`type` must be `chain`, `group` or `batch`.");
}

/* The database stores no NUL in a text. */
static bool
name_ok(struct span s)
{
	return s.n == 0 ||
	       (s.n <= WORKFLOW_NAME_MAX && memchr(s.p, '\0', s.n) == NULL);
}

static int
read_name(const struct parse *x, const struct jspan_val *v)
{
	if (!set(v))
		return 0;
	if (v->type != JSPAN_STRING ||
		!jspan_text(v, x->arena, &x->ask->name) ||
		!name_ok(x->ask->name))
		return problem_field(x->problem, x->arena, "name",
			"`name` must be a text of at most %d bytes.",
			WORKFLOW_NAME_MAX);
	return 0;
}

/* ---- one job ---- */

/* A workflow in the place of a job would run as a job of that type. */
static int
check_shape(const struct parse *x, struct span raw)
{
	struct jspan j;
	struct jspan_val v;
	struct span key;

	jspan_open(&j, raw);
	if (jspan_peek(&j) != JSPAN_OBJECT || !jspan_enter_object(&j))
		return 0;
	while (jspan_next_key(&j, x->arena, &key) && jspan_take(&j, &v))
		if (span_is(key, "steps") || span_is(key, "jobs") ||
			span_is(key, "callbacks") || span_is(key, "depends_on"))
			return problem_set(x->problem, x->arena, 422,
				"unsupported", NULL,
				"A workflow holds plain jobs: `%.*s` inside a "
				"job is not supported.",
				SPAN_ARG(key));
	return 0;
}

/* Says which of the jobs it is, besides what is wrong with it. */
static int
place_problem(const struct parse *x, enum workflow_role role, size_t index)
{
	struct problem *p = x->problem;
	const char *comma = p->details.n ? "," : "";

	if (role == WORKFLOW_STEP || role == WORKFLOW_JOB)
		p->details = arena_printf(x->arena, "%.*s%s\"index\":%zu",
			SPAN_ARG(p->details), comma, index);
	else
		p->details = arena_printf(x->arena, "%.*s%s\"callback\":\"%s\"",
			SPAN_ARG(p->details), comma, role_names[role]);
	return -1;
}

static int
add(struct parse *x, struct span raw, enum workflow_role role)
{
	struct workflow_ask *k = x->ask;
	size_t roles_cap = x->cap;

	if (k->n == x->limits->jobs)
		return problem_field(x->problem, x->arena, kinds[k->kind].key,
			"A workflow has at most %zu jobs.", x->limits->jobs);
	k->roles = arena_grown(
		x->arena, k->roles, k->n, &roles_cap, sizeof(*k->roles));
	k->specs = arena_grown(
		x->arena, k->specs, k->n, &x->cap, sizeof(*k->specs));
	if (check_shape(x, raw) != 0 ||
		job_spec_parse(raw, x->limits->envelope_bytes, x->arena,
			x->now_us, &k->specs[k->n], x->problem) != 0)
		return place_problem(x, role, k->n);
	k->roles[k->n++] = role;
	return 0;
}

/* ---- the jobs ---- */

static int
read_jobs(struct parse *x, const struct body *b)
{
	struct workflow_ask *k = x->ask;
	const char *key = b->jobs_key ? b->jobs_key : kinds[k->kind].key;
	struct jspan j;
	struct jspan_val v;
	enum workflow_role role =
		k->kind == WORKFLOW_CHAIN ? WORKFLOW_STEP : WORKFLOW_JOB;

	if (b->jobs.type != JSPAN_ARRAY)
		return problem_field(x->problem, x->arena, key,
			"`%s` must be an array of jobs.", key);
	jspan_open(&j, b->jobs.raw);
	if (jspan_enter_array(&j))
		while (jspan_next_item(&j) && jspan_take(&j, &v))
			if (add(x, v.raw, role) != 0)
				return -1;
	k->members = k->n;
	if (k->n == 0)
		return problem_field(x->problem, x->arena, key,
			"`%s` must hold at least one job.", key);
	return 0;
}

static int
read_callback(struct parse *x, struct span key, const struct jspan_val *v)
{
	for (int i = WORKFLOW_COMPLETE; i < WORKFLOW_ROLES; i++)
		if (span_is(key, role_names[i])) {
			for (size_t n = x->ask->members; n < x->ask->n; n++)
				if (x->ask->roles[n] == (enum workflow_role)i)
					return problem_field(x->problem,
						x->arena, role_names[i],
						"`%s` is there twice.",
						role_names[i]);
			return set(v) ? add(x, v->raw, (enum workflow_role)i)
				      : 0;
		}
	key = span_clip(key, 64);
	return problem_field(x->problem, x->arena, arena_cstr(x->arena, key),
		"There is no callback `%.*s`.", SPAN_ARG(key));
}

static int
read_callbacks(struct parse *x, const struct jspan_val *callbacks)
{
	struct jspan j;
	struct jspan_val v;
	struct span key;

	if (x->ask->kind != WORKFLOW_BATCH)
		return set(callbacks) ? problem_field(x->problem, x->arena,
						"callbacks",
						"Only a batch has `callbacks`.")
				      : 0;
	if (callbacks->type == JSPAN_OBJECT) {
		jspan_open(&j, callbacks->raw);
		if (jspan_enter_object(&j))
			while (jspan_next_key(&j, x->arena, &key) &&
				jspan_take(&j, &v))
				if (read_callback(x, key, &v) != 0)
					return -1;
	}
	if (x->ask->n == x->ask->members)
		return problem_field(x->problem, x->arena, "callbacks",
			"`callbacks` must hold at least one of `on_complete`, "
			"`on_success` and `on_failure`.");
	return 0;
}

int
workflow_parse(struct span body, const struct workflow_limits *l,
	struct arena *a, int64_t now_us, struct workflow_ask *k,
	struct problem *p)
{
	struct parse x = { .limits = l, .arena = a, .now_us = now_us };
	struct body b;

	*k = (struct workflow_ask){ .n = 0 };
	x.ask = k;
	x.problem = p;
	if (!read_body(body, a, &b, p) || read_kind(&x, &b.type) != 0 ||
		read_name(&x, &b.name) != 0 || read_jobs(&x, &b) != 0 ||
		read_callbacks(&x, &b.callbacks) != 0)
		return -1;
	k->id = qid_new();
	return 0;
}
