/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads KV operations and checks all of them before anything is sent: shape,
 * then the number of operations and keys, then sizes; see kv_ops.h.
 */
#include "kv_ops.h"

#include <stdarg.h>
#include <stdio.h>

#include "arena.h"
#include "ctx.h"
#include "fault.h"
#include "jspan.h"
#include "kv_value.h"
#include "map.h"
#include "ops_body.h"
#include "settings.h"

enum {
	BUNDLE_OPS = 64,
	BUNDLE_KEYS = 256,
	PAGE_DEFAULT = 100,
	TTL_MAX_S_DIV_100 = 31536000
};

struct reader {
	const struct settings *conf;
	struct arena *a;
	struct kv_ops *o;
	struct fault *f;
	bool in_bundle;
	size_t at; /* operation being read, for messages */
};

/* What was given, before the kind of the operation is known. */
struct given {
	struct jspan_val op, ns, key, prefix, keys, value, ttl, forever, expect,
		required, delta, min, max, after, limit, keys_only;
};

static const struct {
	const char *name;
	size_t at;
} fields[] = {
#define FIELD(name, member)                                                    \
	{                                                                      \
		name, offsetof(struct given, member)                           \
	}
	FIELD("op", op),
	FIELD("ns", ns),
	FIELD("namespace", ns),
	FIELD("key", key),
	FIELD("prefix", prefix),
	FIELD("keys", keys),
	FIELD("value", value),
	FIELD("ttlSeconds", ttl),
	FIELD("forever", forever),
	FIELD("expect", expect),
	FIELD("required", required),
	FIELD("delta", delta),
	FIELD("min", min),
	FIELD("max", max),
	FIELD("after", after),
	FIELD("limit", limit),
	FIELD("keysOnly", keys_only),
};

static int refuse(struct reader *r, const char *reason, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int
refuse(struct reader *r, const char *reason, const char *fmt, ...)
{
	char what[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return fault_set(r->f, 400, "kv_bad_request", reason,
		"operation %zu: %s", r->at, what);
}

static int
refuse_size(
	struct reader *r, const char *reason, const char *what, int64_t limit)
{
	return fault_set(r->f, 413, "payload_too_large", reason,
		"operation %zu: %s has more than %lld bytes", r->at, what,
		(long long)limit);
}

/* ---- texts ---- */

/* A string without NUL, not empty; else refused with reason. */
static int
read_text(struct reader *r, const struct jspan_val *v, const char *what,
	const char *reason, struct span *out)
{
	if (v->type != JSPAN_STRING || !jspan_text(v, r->a, out) ||
		out->n == 0 || memchr(out->p, 0, out->n))
		return refuse(r, reason,
			"%s must be a string that is not empty, without NUL",
			what);
	return 0;
}

static int
read_key(struct reader *r, const struct jspan_val *v, const char *what,
	const char *reason, struct span *out)
{
	if (read_text(r, v, what, reason, out) < 0)
		return -1;
	if (out->n > (size_t)r->conf->kv_max_key_bytes)
		return refuse_size(
			r, "kv_key_too_large", what, r->conf->kv_max_key_bytes);
	return 0;
}

static bool
is_namespace(struct span s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
			    (i > 0 && (c == '.' || c == '_' || c == '-'))))
			return false;
	}
	return s.n >= 1 && s.n <= 64;
}

bool
kv_ops_is_namespace(struct span s)
{
	return is_namespace(s);
}

static int
read_keys(struct reader *r, const struct given *g, struct kv_op *op)
{
	struct jspan_val v;
	struct jspan j;
	size_t cap = 0;

	if (g->keys.type != JSPAN_ARRAY)
		return refuse(r, "kv_bad_request",
			"keys must be an array of strings");
	jspan_open(&j, g->keys.raw);
	jspan_enter_array(&j);
	while (jspan_next_item(&j) && jspan_take(&j, &v)) {
		op->keys = arena_grown(
			r->a, op->keys, op->keys_n, &cap, sizeof(*op->keys));
		if (read_key(r, &v, "keys", "kv_bad_key",
			    &op->keys[op->keys_n]) < 0)
			return -1;
		op->keys_n++;
	}
	return 0;
}

/* ---- what the kinds share ---- */

static int
read_lifetime(struct reader *r, const struct given *g, struct kv_op *op)
{
	bool forever = g->forever.type == JSPAN_BOOL && g->forever.truth;
	bool ttl = g->ttl.type != JSPAN_NONE && g->ttl.type != JSPAN_NULL;

	if (ttl && (g->ttl.type != JSPAN_NUMBER ||
			   !kv_value_integer(g->ttl.raw, &op->ttl_s) ||
			   op->ttl_s < 1 ||
			   op->ttl_s > (int64_t)TTL_MAX_S_DIV_100 * 100))
		return refuse(r, "kv_bad_ttl",
			"ttlSeconds must be an integer from 1 to 3153600000");
	if (ttl == forever)
		return refuse(r, "kv_expiry_not_specified",
			"give either ttlSeconds or forever:true");
	return 0;
}

static int
read_expect(struct reader *r, const struct given *g, struct kv_op *op)
{
	bool must_be_0 = span_is(op->name, "putIfAbsent");

	op->expect = must_be_0 ? 0 : -1;
	if (g->expect.type == JSPAN_NONE)
		return 0;
	if (op->kind != KV_INCR && g->expect.type == JSPAN_NUMBER &&
		kv_value_integer(g->expect.raw, &op->expect) &&
		op->expect >= 0 && (!must_be_0 || op->expect == 0))
		return 0;
	return refuse(r, "kv_bad_expect", "expect must be %s",
		op->kind == KV_INCR ? "absent"
		: must_be_0         ? "0 or absent"
				    : "an integer from 0 up");
}

static int
read_bool(struct reader *r, const struct jspan_val *v, const char *what,
	bool *out)
{
	if (v->type != JSPAN_NONE && v->type != JSPAN_BOOL)
		return refuse(
			r, "kv_bad_request", "%s must be true or false", what);
	*out = v->type == JSPAN_BOOL && v->truth;
	return 0;
}

static int
read_number(struct reader *r, const struct jspan_val *v, const char *what,
	bool needed, struct span *out)
{
	if (!needed && (v->type == JSPAN_NONE || v->type == JSPAN_NULL))
		return 0;
	if (v->type != JSPAN_NUMBER)
		return refuse(r, "kv_bad_request", "%s must be a number", what);
	if (v->raw.n > (size_t)r->conf->kv_max_value_bytes)
		return refuse_size(r, "kv_value_too_large", what,
			r->conf->kv_max_value_bytes);
	*out = v->raw;
	return 0;
}

/* ---- the kinds ---- */

static int
read_page(struct reader *r, const struct given *g, struct kv_op *op)
{
	int64_t limit = PAGE_DEFAULT;

	if (r->in_bundle)
		return refuse(r, "kv_get_prefix_not_allowed_in_transaction",
			"getPrefix is not for transactions");
	if (g->limit.type != JSPAN_NONE && g->limit.type != JSPAN_NULL &&
		(g->limit.type != JSPAN_NUMBER ||
			!kv_value_clamped(g->limit.raw, &limit)))
		return refuse(r, "kv_bad_request", "limit must be an integer");
	if (limit > r->conf->kv_prefix_limit)
		limit = r->conf->kv_prefix_limit;
	op->limit = limit < 1 ? 1 : (int32_t)limit;
	if (g->after.type != JSPAN_NONE && g->after.type != JSPAN_NULL &&
		g->after.raw.n != 2 &&
		read_key(r, &g->after, "after", "kv_bad_request", &op->after) <
			0)
		return -1;
	if (g->after.raw.n == 2 && g->after.type != JSPAN_STRING)
		return refuse(r, "kv_bad_request", "after must be a string");
	if (g->keys_only.type != JSPAN_NULL &&
		read_bool(r, &g->keys_only, "keysOnly", &op->keys_only) < 0)
		return -1;
	return read_key(r, &g->prefix, "prefix",
		g->prefix.type == JSPAN_STRING && g->prefix.raw.n > 2
			? "kv_bad_key"
			: "kv_prefix_required",
		&op->key);
}

static int
read_put(struct reader *r, const struct given *g, struct kv_op *op)
{
	size_t n;

	if (g->value.type == JSPAN_NONE)
		return refuse(r, "kv_bad_request",
			"value is required (null is a value)");
	if (!kv_value_bytes(g->value.raw, &n))
		return refuse(r, "kv_bad_request",
			"value holds \\u0000 or half of a surrogate pair");
	op->value = g->value.raw;
	op->value_bytes = n;
	return read_lifetime(r, g, op);
}

static int
read_incr(struct reader *r, const struct given *g, struct kv_op *op)
{
	if (read_number(r, &g->delta, "delta", true, &op->delta) < 0 ||
		read_number(r, &g->min, "min", false, &op->min) < 0 ||
		read_number(r, &g->max, "max", false, &op->max) < 0)
		return -1;
	op->value_bytes = op->delta.n;
	return read_lifetime(r, g, op);
}

static int
read_kind(struct reader *r, const struct given *g, struct kv_op *op)
{
	static const struct {
		const char *name;
		enum kv_kind kind;
	} kinds[] = { { "get", KV_GET }, { "getMany", KV_GET_MANY },
		{ "getPrefix", KV_GET_PREFIX }, { "put", KV_PUT },
		{ "putIfAbsent", KV_PUT }, { "delete", KV_DELETE },
		{ "incr", KV_INCR } };

	if (g->op.type == JSPAN_STRING && jspan_text(&g->op, r->a, &op->name))
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
			if (span_is(op->name, kinds[i].name)) {
				op->kind = kinds[i].kind;
				return 0;
			}
	return refuse(r, "kv_unknown_op",
		"op must be get, getMany, getPrefix, put, "
		"putIfAbsent, delete or incr");
}

static int
read_op(struct reader *r, const struct given *g, struct kv_op *op)
{
	if (read_kind(r, g, op) < 0)
		return -1;
	if (g->ns.type != JSPAN_STRING || !jspan_text(&g->ns, r->a, &op->ns) ||
		!is_namespace(op->ns))
		return refuse(r, "kv_bad_namespace",
			"ns must match [a-z0-9][a-z0-9._-]{0,63}");
	op->expect = -1;
	if (op->kind == KV_GET_MANY)
		return read_keys(r, g, op);
	if (op->kind == KV_GET_PREFIX)
		return read_page(r, g, op);
	if (read_key(r, &g->key, "key", "kv_bad_key", &op->key) < 0)
		return -1;
	if (op->kind == KV_GET)
		return 0;
	if (read_expect(r, g, op) < 0 ||
		read_bool(r, &g->required, "required", &op->required) < 0)
		return -1;
	return op->kind == KV_PUT    ? read_put(r, g, op)
	       : op->kind == KV_INCR ? read_incr(r, g, op)
				     : 0;
}

static int
take_fields(struct reader *r, struct jspan *j, struct given *g)
{
	struct jspan_val v;
	struct span name;

	if (jspan_peek(j) != JSPAN_OBJECT && !j->error)
		return refuse(r, "kv_bad_request", "must be an object");
	jspan_enter_object(j);
	while (jspan_next_key(j, r->a, &name)) {
		if (!jspan_take(j, &v))
			break;
		if (ops_body_names_tenant(name))
			return refuse(r, "kv_tenant_not_an_input",
				"the tenant is that of the request");
		for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
			if (span_is(name, fields[i].name))
				memcpy((char *)g + fields[i].at, &v, sizeof(v));
	}
	return 0;
}

/* ---- the whole ---- */

static bool
same_key(const void *item, const void *key)
{
	const struct kv_op *a = item, *b = key;

	return span_eq(a->key, b->key) && span_eq(a->ns, b->ns);
}

/* A key is written once in a call: which one would win? */
static int
check_twice(struct reader *r)
{
	struct map seen = MAP_ZERO;
	int rc = 0;

	for (size_t i = 0; i < r->o->n && rc == 0; i++) {
		struct kv_op *op = &r->o->v[i];
		uint64_t h;

		if (op->kind < KV_PUT)
			continue;
		r->at = i;
		h = map_hash_span(op->key);
		if (map_get(&seen, h, same_key, op))
			rc = fault_set(r->f, 400, "kv_bad_request",
				"kv_duplicate_key_in_call",
				"operation %zu writes a key that an earlier "
				"one writes",
				i);
		else
			map_put(&seen, h, op);
	}
	map_fini(&seen);
	return rc;
}

static int
check_sums(struct reader *r)
{
	struct kv_ops *o = r->o;
	int64_t max = r->in_bundle ? BUNDLE_KEYS : r->conf->kv_max_keys;

	for (size_t i = 0; i < o->n; i++) {
		const struct kv_op *op = &o->v[i];

		o->keys += op->kind == KV_GET_MANY     ? (int64_t)op->keys_n
			   : op->kind == KV_GET_PREFIX ? op->limit
						       : 1;
		o->writes += op->kind >= KV_PUT;
		if (op->kind == KV_PUT || op->kind == KV_INCR) {
			o->rows++;
			o->bytes += (int64_t)op->value_bytes;
		}
		o->required = o->required || op->required;
	}
	if (o->keys > max)
		return fault_set(r->f, 400, "kv_bad_request",
			"kv_too_many_keys",
			"%lld keys in one call, at most %lld",
			(long long)o->keys, (long long)max);
	for (size_t i = 0; i < o->n; i++) {
		r->at = i;
		if (o->v[i].value_bytes > (size_t)r->conf->kv_max_value_bytes)
			return refuse_size(r, "kv_value_too_large", "value",
				r->conf->kv_max_value_bytes);
	}
	return check_twice(r);
}

static int
bad_json(struct reader *r, const struct jspan *j)
{
	return fault_set(r->f, 400, "kv_bad_request", "kv_bad_body",
		"%s at offset %zu", j->error, j->error_at);
}

/* Counts first: what is too much is not looked at. */
static int
check_count(struct reader *r, struct span json)
{
	size_t max = r->in_bundle ? BUNDLE_OPS : (size_t)r->conf->kv_max_ops;
	struct jspan_val v;
	struct jspan j;
	size_t n = 0;

	jspan_open(&j, json);
	if (jspan_peek(&j) != JSPAN_ARRAY && !j.error)
		return fault_set(r->f, 400, "kv_bad_request", "kv_bad_body",
			"operations must be an array of operations");
	jspan_enter_array(&j);
	while (jspan_next_item(&j) && jspan_take(&j, &v))
		n++;
	if (j.error || !jspan_end(&j))
		return bad_json(r, &j);
	if (n > max)
		return fault_set(r->f, 400, "kv_bad_request", "kv_too_many_ops",
			"%zu operations in one call, at most %zu", n, max);
	r->o->v = arena_zalloc(r->a, (n + 1) * sizeof(*r->o->v));
	return 0;
}

int
kv_ops_parse(struct span json, bool in_bundle, const struct ctx *x,
	struct arena *a, struct kv_ops *o, struct fault *f)
{
	struct reader r = { x->conf, a, o, f, in_bundle, 0 };
	struct jspan j;

	memset(o, 0, sizeof(*o));
	memset(f, 0, sizeof(*f));
	if (check_count(&r, json) < 0)
		return -1;
	jspan_open(&j, json);
	jspan_enter_array(&j);
	while (jspan_next_item(&j)) {
		struct given g;

		memset(&g, 0, sizeof(g));
		if (take_fields(&r, &j, &g) < 0 ||
			read_op(&r, &g, &o->v[o->n]) < 0)
			return -1;
		r.at = ++o->n;
	}
	if (j.error)
		return bad_json(&r, &j);
	return check_sums(&r);
}
