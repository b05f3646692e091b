/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON of a token: header and claims.  A name that stands twice is
 * refused, since two readers could believe different ones.
 */
#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "jwt_int.h"

enum { NAMES_MAX = 128 };

bool
jwt_base64(struct span text, struct arena *a, struct span *out)
{
	unsigned char *p = arena_alloc(a, text.n / 4 * 3 + 3);
	size_t n;

	if (sodium_base642bin(p, text.n / 4 * 3 + 3, text.p ? text.p : "",
		    text.n, NULL, &n, NULL,
		    sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0)
		return false;
	*out = span_make(p, n);
	return true;
}

bool
jwt_object(struct span text, struct arena *a, struct jwt_member *m, size_t n)
{
	struct span names[NAMES_MAX], name;
	size_t names_n = 0;
	struct jspan_val v;
	struct jspan j;

	jspan_open(&j, text);
	if (!jspan_enter_object(&j))
		return false;
	while (jspan_next_key(&j, a, &name)) {
		if (names_n == NAMES_MAX)
			return false;
		for (size_t i = 0; i < names_n; i++)
			if (span_eq(names[i], name))
				return false;
		names[names_n++] = name;
		if (!jspan_take(&j, &v))
			return false;
		/* one claim may serve two purposes */
		for (size_t i = 0; i < n; i++)
			if (m[i].name && *m[i].name && span_is(name, m[i].name))
				m[i].val = v;
	}
	return jspan_end(&j);
}

static bool
text_of(const struct jspan_val *v, struct arena *a, struct span *out)
{
	return v->type == JSPAN_STRING && jspan_text(v, a, out);
}

bool
jwt_head_parse(struct span json, struct arena *a, struct jwt_head *h)
{
	struct jwt_member m[] = { { .name = "alg" }, { .name = "kid" },
		{ .name = "crit" } };

	*h = (struct jwt_head){ .has_kid = false };
	if (!jwt_object(json, a, m, 3) || !text_of(&m[0].val, a, &h->alg))
		return false;
	/* we understand no extension, so a critical one refuses */
	if (m[2].val.type != JSPAN_NONE)
		return false;
	h->has_kid = m[1].val.type != JSPAN_NONE;
	return !h->has_kid || text_of(&m[1].val, a, &h->kid);
}

/* Seconds, rounded down; true and the default when it is absent. */
static bool
date_of(const struct jspan_val *v, struct arena *a, int64_t absent,
	int64_t *out)
{
	double d;

	*out = absent;
	if (v->type == JSPAN_NONE)
		return true;
	if (v->type != JSPAN_NUMBER)
		return false;
	if (jspan_i64(v, out))
		return true;
	d = floor(strtod(arena_cstr(a, v->raw), NULL));
	if (d >= 9.2e18)
		*out = INT64_MAX;
	else if (d <= -9.2e18)
		*out = INT64_MIN;
	else
		*out = (int64_t)d;
	return true;
}

typedef void (*text_fn)(struct span text, void *arg);

/* Hands out the strings of an array; others in it are passed over. */
static void
each_text(const struct jspan_val *v, struct arena *a, text_fn fn, void *arg)
{
	struct jspan_val item;
	struct span text;
	struct jspan j;

	if (v->type != JSPAN_ARRAY)
		return;
	jspan_open(&j, v->raw);
	if (!jspan_enter_array(&j))
		return;
	while (jspan_next_item(&j) && jspan_take(&j, &item))
		if (text_of(&item, a, &text))
			fn(text, arg);
}

struct search {
	struct span want;
	bool found;
};

static void
on_audience(struct span text, void *arg)
{
	struct search *s = arg;

	s->found |= span_eq(text, s->want);
}

static bool
audience_fits(const char *want, const struct jspan_val *v, struct arena *a)
{
	struct search s = { .want = span_of(want) };
	struct span text;

	if (!want || !*want)
		return true;
	if (text_of(v, a, &text))
		on_audience(text, &s);
	else
		each_text(v, a, on_audience, &s);
	return s.found;
}

struct roles {
	const struct jwt_conf *conf;
	unsigned bits;
};

static void
on_role(struct span text, void *arg)
{
	struct roles *r = arg;
	const struct {
		const char *name;
		unsigned bit;
	} map[] = {
		{ r->conf->role_admin, JWT_ADMIN },
		{ r->conf->role_read_write, JWT_READ_WRITE },
		{ r->conf->role_read_only, JWT_READ_ONLY },
		{ r->conf->role_write_only, JWT_WRITE_ONLY },
	};

	/* a role without a name is held by nobody */
	for (size_t i = 0; i < sizeof(map) / sizeof(*map); i++)
		if (text.n > 0 && span_eq(text, span_of(map[i].name)))
			r->bits |= map[i].bit;
}

/* Absent is no subject; a NUL could not be stored. */
static bool
subject_of(const struct jspan_val *v, struct arena *a, struct span *sub)
{
	if (v->type == JSPAN_NONE || v->type == JSPAN_NULL)
		return true;
	return text_of(v, a, sub) &&
	       (sub->n == 0 || !memchr(sub->p, 0, sub->n));
}

static const char *
check_dates(const struct jspan_val *exp, const struct jspan_val *nbf,
	const struct jspan_val *iat, int64_t now_s, int64_t skew_s,
	struct arena *a)
{
	int64_t exp_s, nbf_s, iat_s;

	if (!date_of(exp, a, INT64_MAX, &exp_s) ||
		!date_of(nbf, a, INT64_MIN, &nbf_s) ||
		!date_of(iat, a, INT64_MIN, &iat_s))
		return JWT_BAD_SIGNATURE;
	if (exp_s < now_s - skew_s)
		return "Token has expired";
	if (nbf_s > now_s + skew_s)
		return "Token not yet valid";
	if (iat_s > now_s + skew_s)
		return "Token issued in the future";
	return NULL;
}

const char *
jwt_claims_check(const struct jwt_conf *c, struct span json, int64_t now_s,
	struct arena *a, struct jwt_claims *out)
{
	enum { EXP, NBF, IAT, ISS, AUD, SUB, ROLE, ROLES, MEMBERS };
	struct jwt_member m[MEMBERS] = { { .name = "exp" }, { .name = "nbf" },
		{ .name = "iat" }, { .name = "iss" }, { .name = "aud" },
		{ .name = "sub" }, { .name = c->roles_claim },
		{ .name = c->roles_array_claim } };
	struct roles roles = { .conf = c };
	struct span text;
	const char *why;

	if (!jwt_object(json, a, m, MEMBERS) ||
		!subject_of(&m[SUB].val, a, &out->sub))
		return JWT_BAD_SIGNATURE;
	why = check_dates(
		&m[EXP].val, &m[NBF].val, &m[IAT].val, now_s, c->skew_s, a);
	if (why)
		return why;
	if (c->issuer && *c->issuer &&
		!(text_of(&m[ISS].val, a, &text) && span_is(text, c->issuer)))
		return "Invalid token issuer";
	if (!audience_fits(c->audience, &m[AUD].val, a))
		return "Invalid token audience";
	if (text_of(&m[ROLE].val, a, &text))
		on_role(text, &roles);
	each_text(&m[ROLES].val, a, on_role, &roles);
	out->roles = roles.bits;
	return NULL;
}
