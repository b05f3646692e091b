/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads KV operations and checks all of them before anything is sent: shape,
 * then the number of operations and keys, then sizes; see kv_ops.h.
 */
#include "kv_ops.h"

#include "arena.h"
#include "ctx.h"
#include "fault.h"
#include "jspan.h"
#include "kv_ops_int.h"
#include "map.h"
#include "ops_body.h"
#include "settings.h"

enum { BUNDLE_OPS = 64, BUNDLE_KEYS = 256 };

static const struct {
	const char *name;
	size_t at;
} fields[] = {
#define FIELD(name, member)                                                    \
	{                                                                      \
		name, offsetof(struct kv_given, member)                        \
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

static int
take_fields(struct kv_reader *r, struct jspan *j, struct kv_given *g)
{
	struct jspan_val v;
	struct span name;

	if (jspan_peek(j) != JSPAN_OBJECT && !j->error)
		return kv_ops_refuse(r, "kv_bad_request", "must be an object");
	jspan_enter_object(j);
	while (jspan_next_key(j, r->a, &name)) {
		if (!jspan_take(j, &v))
			break;
		if (ops_body_names_tenant(name))
			return kv_ops_refuse(r, "kv_tenant_not_an_input",
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
check_twice(struct kv_reader *r)
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
check_sums(struct kv_reader *r)
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
			return kv_ops_refuse_size(r, "kv_value_too_large",
				"value", r->conf->kv_max_value_bytes);
	}
	return check_twice(r);
}

static int
bad_json(struct kv_reader *r, const struct jspan *j)
{
	return fault_set(r->f, 400, "kv_bad_request", "kv_bad_body",
		"%s at offset %zu", j->error, j->error_at);
}

/* Counts first: what is too much is not looked at. */
static int
check_count(struct kv_reader *r, struct span json)
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
	struct kv_reader r = { x->conf, a, o, f, in_bundle, 0 };
	struct jspan j;

	memset(o, 0, sizeof(*o));
	memset(f, 0, sizeof(*f));
	if (check_count(&r, json) < 0)
		return -1;
	jspan_open(&j, json);
	jspan_enter_array(&j);
	while (jspan_next_item(&j)) {
		struct kv_given g;

		memset(&g, 0, sizeof(g));
		if (take_fields(&r, &j, &g) < 0 ||
			kv_ops_read_op(&r, &g, &o->v[o->n]) < 0)
			return -1;
		r.at = ++o->n;
	}
	if (j.error)
		return bad_json(&r, &j);
	return check_sums(&r);
}
