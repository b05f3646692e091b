/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unique policy.  What the key is made of is put into one object and
 * written canonically; the database brings that text to NFC and hashes it.
 */
#include "unique.h"

#include "arena.h"
#include "buf.h"
#include "jcs.h"
#include "job.h"
#include "jspan.h"
#include "jwrite.h"
#include "when.h"

enum { NAMES_MAX = 32 };

struct names {
	struct span s[NAMES_MAX];
	size_t n;
};

struct policy {
	bool queue, args, meta; /* dimensions, besides the type */
	struct names args_keys, meta_keys; /* n = 0: none given */
	int64_t period_ms; /* 0 = none */
	bool states[JOB_HELD]; /* when given */
	bool states_given;
	struct span on;
};

struct reader {
	struct arena *a;
	struct problem *p;
	struct policy *u;
	struct names texts; /* of the array read last */
};

static int
no(const struct reader *r, const char *field, const char *what)
{
	return problem_field(r->p, r->a, field, "`unique.%s` %s.", field, what);
}

/* ---- members ---- */

/* An array of names into r->texts. */
static int
take_texts(struct reader *r, const char *field, const struct jspan_val *v)
{
	struct names *t = &r->texts;
	struct jspan_val item;
	struct jspan j;

	t->n = 0;
	if (v->type != JSPAN_ARRAY)
		return no(r, field, "must be an array of strings");
	jspan_open(&j, v->raw);
	for (jspan_enter_array(&j); jspan_next_item(&j); t->n++) {
		if (t->n == NAMES_MAX)
			return no(r, field, "may hold 32 strings");
		if (!jspan_take(&j, &item) ||
			!jspan_text(&item, r->a, &t->s[t->n]) ||
			t->s[t->n].n == 0)
			return no(r, field,
				"must hold strings that are not empty");
	}
	return t->n > 0 ? 0 : no(r, field, "must not be empty");
}

static int
take_keys(struct reader *r, const char *field, const struct jspan_val *v)
{
	if (take_texts(r, field, v) < 0)
		return -1;
	for (size_t i = 0; i < r->texts.n; i++) {
		struct span s = r->texts.s[i];

		if (span_is(s, "queue"))
			r->u->queue = true;
		else if (span_is(s, "args"))
			r->u->args = true;
		else if (span_is(s, "meta"))
			r->u->meta = true;
		else if (!span_is(s, "type"))
			return no(r, field,
				"may hold \"type\", \"queue\", \"args\" and "
				"\"meta\"");
	}
	return 0;
}

static int
take_args_keys(struct reader *r, const char *field, const struct jspan_val *v)
{
	if (take_texts(r, field, v) < 0)
		return -1;
	r->u->args = true;
	r->u->args_keys = r->texts;
	return 0;
}

static int
take_meta_keys(struct reader *r, const char *field, const struct jspan_val *v)
{
	if (take_texts(r, field, v) < 0)
		return -1;
	r->u->meta = true;
	r->u->meta_keys = r->texts;
	return 0;
}

static int
state_of(struct span name)
{
	for (int i = 0; i < JOB_HELD; i++) {
		if (span_is(name, job_state_name(i)))
			return i;
	}
	return -1;
}

static int
take_states(struct reader *r, const char *field, const struct jspan_val *v)
{
	if (take_texts(r, field, v) < 0)
		return -1;
	r->u->states_given = true;
	for (size_t i = 0; i < r->texts.n; i++) {
		int state = state_of(r->texts.s[i]);

		if (state < 0)
			return no(
				r, field, "names a state that does not exist");
		r->u->states[state] = true;
	}
	return 0;
}

static int
take_period(struct reader *r, const char *field, const struct jspan_val *v)
{
	struct span text;

	if (!jspan_text(v, r->a, &text) ||
		!when_duration(text, &r->u->period_ms) || r->u->period_ms <= 0)
		return no(r, field, "must be a duration above zero");
	return 0;
}

static int
take_on(struct reader *r, const char *field, const struct jspan_val *v)
{
	static const char *const names[] = { "reject", "ignore", "replace",
		"replace_except_schedule" };
	struct span text;

	if (jspan_text(v, r->a, &text)) {
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
			if (span_is(text, names[i])) {
				r->u->on = text;
				return 0;
			}
		}
	}
	return no(r, field,
		"must be \"reject\", \"ignore\", \"replace\" or "
		"\"replace_except_schedule\"");
}

static const struct {
	const char *name;
	int (*take)(
		struct reader *r, const char *field, const struct jspan_val *v);
} MEMBERS[] = {
	{ "keys", take_keys },
	{ "key", take_keys },
	{ "args_keys", take_args_keys },
	{ "meta_keys", take_meta_keys },
	{ "period", take_period },
	{ "states", take_states },
	{ "on_conflict", take_on },
};

static int
take_member(struct reader *r, struct span name, const struct jspan_val *v)
{
	if (v->type == JSPAN_NULL)
		return 0;
	for (size_t i = 0; i < sizeof(MEMBERS) / sizeof(*MEMBERS); i++) {
		if (span_is(name, MEMBERS[i].name))
			return MEMBERS[i].take(r, MEMBERS[i].name, v);
	}
	return 0;
}

static int
read_policy(struct span raw, struct reader *r)
{
	struct jspan_val v;
	struct span name;
	struct jspan j;

	jspan_open(&j, raw);
	if (!jspan_enter_object(&j))
		return problem_field(
			r->p, r->a, "unique", "`unique` must be an object.");
	while (jspan_next_key(&j, r->a, &name)) {
		if (!jspan_take(&j, &v))
			break;
		if (take_member(r, name, &v) < 0)
			return -1;
	}
	if (!jspan_end(&j))
		return problem_field(
			r->p, r->a, "unique", "`unique`: %s.", j.error);
	if (r->u->meta && !r->u->meta_keys.n)
		return no(r, "meta_keys", "is required with \"meta\" in keys");
	return 0;
}

/* ---- the key ---- */

static bool
listed(const struct names *keys, struct span name)
{
	for (size_t i = 0; i < keys->n; i++) {
		if (span_eq(keys->s[i], name))
			return true;
	}
	return false;
}

/* The members of an object that are asked for, as they stand. */
static void
put_chosen(struct jwrite *w, struct span object, const struct names *keys,
	struct arena *a)
{
	struct jspan_val v;
	struct span name;
	struct jspan j;

	jwrite_object(w);
	jspan_open(&j, object);
	if (object.n > 0 && jspan_enter_object(&j)) {
		while (jspan_next_key(&j, a, &name) && jspan_take(&j, &v)) {
			if (!listed(keys, name))
				continue;
			jwrite_key_span(w, name);
			jwrite_raw(w, v.raw);
		}
	}
	jwrite_end(w);
}

/* The first object among the arguments; n = 0: there is none. */
static struct span
first_object(struct span args)
{
	struct jspan_val v;
	struct jspan j;

	jspan_open(&j, args);
	for (jspan_enter_array(&j); jspan_next_item(&j);) {
		if (!jspan_take(&j, &v))
			break;
		if (v.type == JSPAN_OBJECT)
			return v.raw;
	}
	return (struct span)SPAN_ZERO;
}

static void
put_args(struct jwrite *w, const struct policy *u, struct span args,
	struct arena *a)
{
	struct span object =
		u->args_keys.n ? first_object(args) : (struct span)SPAN_ZERO;

	jwrite_key(w, "args");
	/* With no object to choose from, all of it tells jobs apart. */
	if (object.n)
		put_chosen(w, object, &u->args_keys, a);
	else
		jwrite_raw(w, args.n ? args : SPAN_LIT("[]"));
}

static int
canonical(const struct reader *r, const struct unique_of *of, struct buf *out)
{
	const char *why = NULL;
	struct buf b = BUF_ZERO;
	struct jwrite w;
	int rc = 0;

	jwrite_init(&w, &b);
	jwrite_object(&w);
	jwrite_kv_str(&w, "type", of->type);
	if (r->u->queue)
		jwrite_kv_str(&w, "queue", of->queue);
	if (r->u->args)
		put_args(&w, r->u, of->args, r->a);
	if (r->u->meta) {
		jwrite_key(&w, "meta");
		put_chosen(&w, of->meta, &r->u->meta_keys, r->a);
	}
	jwrite_end(&w);
	if (!jcs_put(out, buf_span(&b), r->a, &why))
		rc = problem_field(r->p, r->a, "unique",
			"what unique is made of has no canonical form: %s.",
			why);
	buf_fini(&b);
	return rc;
}

static void
put_policy(const struct policy *u, struct span key, struct buf *out)
{
	struct jwrite w;

	jwrite_init(&w, out);
	jwrite_object(&w);
	jwrite_kv_str(&w, "key", key);
	jwrite_key(&w, "period_ms");
	if (u->period_ms)
		jwrite_i64(&w, u->period_ms);
	else
		jwrite_null(&w);
	jwrite_key(&w, "states");
	jwrite_array(&w);
	for (int i = 0; i < JOB_HELD; i++) {
		if (u->states_given ? u->states[i] : i <= JOB_PENDING)
			jwrite_i64(&w, i);
	}
	jwrite_end(&w);
	jwrite_kv_str(&w, "on", u->on);
	jwrite_end(&w);
}

int
unique_parse(struct span raw, const struct unique_of *of, struct arena *a,
	struct span *out, struct problem *p)
{
	struct policy u = { .on = SPAN_LIT("reject") };
	struct reader r = { .a = a, .p = p, .u = &u };
	struct buf key = BUF_ZERO, text = BUF_ZERO;
	int rc = -1;

	if (read_policy(raw, &r) < 0 || canonical(&r, of, &key) < 0)
		goto out;
	put_policy(&u, buf_span(&key), &text);
	*out = arena_dup(a, buf_span(&text));
	rc = 0;
out:
	buf_fini(&key);
	buf_fini(&text);
	return rc;
}

bool
unique_rejects(struct span policy)
{
	struct span end =
		SPAN_LIT("\"on\":\"reject\"}"); /* as put_policy has it */

	return policy.n > end.n &&
	       memcmp(policy.p + policy.n - end.n, end.p, end.n) == 0;
}
