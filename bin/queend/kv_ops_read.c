/* SPDX-License-Identifier: Apache-2.0 */
/* One KV operation: what was given, by its kind; see kv_ops.h. */
#include <stdarg.h>
#include <stdio.h>

#include "arena.h"
#include "fault.h"
#include "kv_ops_int.h"
#include "kv_value.h"
#include "settings.h"

enum { PAGE_DEFAULT = 100, TTL_MAX_S_DIV_100 = 31536000 };

int
kv_ops_refuse(struct kv_reader *r, const char *reason, const char *fmt, ...)
{
	char what[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return fault_set(r->f, 400, "kv_bad_request", reason,
		"operation %zu: %s", r->at, what);
}

int
kv_ops_refuse_size(struct kv_reader *r, const char *reason, const char *what,
	int64_t limit)
{
	return fault_set(r->f, 413, "payload_too_large", reason,
		"operation %zu: %s has more than %lld bytes", r->at, what,
		(long long)limit);
}

/* ---- texts ---- */

/* A string without NUL, not empty; else refused with reason. */
static int
read_text(struct kv_reader *r, const struct jspan_val *v, const char *what,
	const char *reason, struct span *out)
{
	if (v->type != JSPAN_STRING || !jspan_text(v, r->a, out) ||
		out->n == 0 || memchr(out->p, 0, out->n))
		return kv_ops_refuse(r, reason,
			"%s must be a string that is not empty, without NUL",
			what);
	return 0;
}

static int
read_key(struct kv_reader *r, const struct jspan_val *v, const char *what,
	const char *reason, struct span *out)
{
	if (read_text(r, v, what, reason, out) < 0)
		return -1;
	if (out->n > (size_t)r->conf->kv_max_key_bytes)
		return kv_ops_refuse_size(
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
read_keys(struct kv_reader *r, const struct kv_given *g, struct kv_op *op)
{
	struct jspan_val v;
	struct jspan j;
	size_t cap = 0;

	if (g->keys.type != JSPAN_ARRAY)
		return kv_ops_refuse(r, "kv_bad_request",
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
read_lifetime(struct kv_reader *r, const struct kv_given *g, struct kv_op *op)
{
	bool forever = g->forever.type == JSPAN_BOOL && g->forever.truth;
	bool ttl = g->ttl.type != JSPAN_NONE && g->ttl.type != JSPAN_NULL;

	if (ttl && (g->ttl.type != JSPAN_NUMBER ||
			   !kv_value_integer(g->ttl.raw, &op->ttl_s) ||
			   op->ttl_s < 1 ||
			   op->ttl_s > (int64_t)TTL_MAX_S_DIV_100 * 100))
		return kv_ops_refuse(r, "kv_bad_ttl",
			"ttlSeconds must be an integer from 1 to 3153600000");
	if (ttl == forever)
		return kv_ops_refuse(r, "kv_expiry_not_specified",
			"give either ttlSeconds or forever:true");
	return 0;
}

static int
read_expect(struct kv_reader *r, const struct kv_given *g, struct kv_op *op)
{
	bool must_be_0 = span_is(op->name, "putIfAbsent");

	op->expect = must_be_0 ? 0 : -1;
	if (g->expect.type == JSPAN_NONE)
		return 0;
	if (op->kind != KV_INCR && g->expect.type == JSPAN_NUMBER &&
		kv_value_integer(g->expect.raw, &op->expect) &&
		op->expect >= 0 && (!must_be_0 || op->expect == 0))
		return 0;
	return kv_ops_refuse(r, "kv_bad_expect", "expect must be %s",
		op->kind == KV_INCR ? "absent"
		: must_be_0         ? "0 or absent"
				    : "an integer from 0 up");
}

static int
read_bool(struct kv_reader *r, const struct jspan_val *v, const char *what,
	bool *out)
{
	if (v->type != JSPAN_NONE && v->type != JSPAN_BOOL)
		return kv_ops_refuse(
			r, "kv_bad_request", "%s must be true or false", what);
	*out = v->type == JSPAN_BOOL && v->truth;
	return 0;
}

static int
read_number(struct kv_reader *r, const struct jspan_val *v, const char *what,
	bool needed, struct span *out)
{
	if (!needed && (v->type == JSPAN_NONE || v->type == JSPAN_NULL))
		return 0;
	if (v->type != JSPAN_NUMBER)
		return kv_ops_refuse(
			r, "kv_bad_request", "%s must be a number", what);
	if (v->raw.n > (size_t)r->conf->kv_max_value_bytes)
		return kv_ops_refuse_size(r, "kv_value_too_large", what,
			r->conf->kv_max_value_bytes);
	*out = v->raw;
	return 0;
}

/* ---- the kinds ---- */

static int
read_page(struct kv_reader *r, const struct kv_given *g, struct kv_op *op)
{
	int64_t limit = PAGE_DEFAULT;

	if (r->in_bundle)
		return kv_ops_refuse(r,
			"kv_get_prefix_not_allowed_in_transaction",
			"getPrefix is not for transactions");
	if (g->limit.type != JSPAN_NONE && g->limit.type != JSPAN_NULL &&
		(g->limit.type != JSPAN_NUMBER ||
			!kv_value_clamped(g->limit.raw, &limit)))
		return kv_ops_refuse(
			r, "kv_bad_request", "limit must be an integer");
	if (limit > r->conf->kv_prefix_limit)
		limit = r->conf->kv_prefix_limit;
	op->limit = limit < 1 ? 1 : (int32_t)limit;
	if (g->after.type != JSPAN_NONE && g->after.type != JSPAN_NULL &&
		g->after.raw.n != 2 &&
		read_key(r, &g->after, "after", "kv_bad_request", &op->after) <
			0)
		return -1;
	if (g->after.raw.n == 2 && g->after.type != JSPAN_STRING)
		return kv_ops_refuse(
			r, "kv_bad_request", "after must be a string");
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
read_put(struct kv_reader *r, const struct kv_given *g, struct kv_op *op)
{
	size_t n;

	if (g->value.type == JSPAN_NONE)
		return kv_ops_refuse(r, "kv_bad_request",
			"value is required (null is a value)");
	if (!kv_value_bytes(g->value.raw, &n))
		return kv_ops_refuse(r, "kv_bad_request",
			"value holds \\u0000 or half of a surrogate pair");
	op->value = g->value.raw;
	op->value_bytes = n;
	return read_lifetime(r, g, op);
}

static int
read_incr(struct kv_reader *r, const struct kv_given *g, struct kv_op *op)
{
	if (read_number(r, &g->delta, "delta", true, &op->delta) < 0 ||
		read_number(r, &g->min, "min", false, &op->min) < 0 ||
		read_number(r, &g->max, "max", false, &op->max) < 0)
		return -1;
	op->value_bytes = op->delta.n;
	return read_lifetime(r, g, op);
}

static int
read_kind(struct kv_reader *r, const struct kv_given *g, struct kv_op *op)
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
	return kv_ops_refuse(r, "kv_unknown_op",
		"op must be get, getMany, getPrefix, put, "
		"putIfAbsent, delete or incr");
}

int
kv_ops_read_op(struct kv_reader *r, const struct kv_given *g, struct kv_op *op)
{
	if (read_kind(r, g, op) < 0)
		return -1;
	if (g->ns.type != JSPAN_STRING || !jspan_text(&g->ns, r->a, &op->ns) ||
		!is_namespace(op->ns))
		return kv_ops_refuse(r, "kv_bad_namespace",
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
