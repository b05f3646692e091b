/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of a sink from a document: a JSON object of known fields. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "arena.h"
#include "buf.h"
#include "err.h"
#include "jspan.h"
#include "s3conf_int.h"

struct reader {
	struct jspan j;
	struct arena a;
	struct s3conf_source s;
};

/* Settings of the node, which no tenant has. */
static const char *
node_setting(struct span field)
{
	static const char *const names[][2] = {
		{ "memoryMb", "QUEEN_S3_MEMORY_MB" },
		{ "fetchConcurrency", "QUEEN_S3_FETCH_CONCURRENCY" },
		{ "discoveryIntervalMs", "QUEEN_S3_DISCOVERY_INTERVAL_MS" },
		{ "safeGuardMs", "QUEEN_S3_SAFE_GUARD_MS" },
		{ "leaseTtlMs", "QUEEN_S3_LEASE_TTL_MS" },
		{ "multipartThresholdMb", "QUEEN_S3_MULTIPART_THRESHOLD_MB" },
		{ "checkpointEvery", "QUEEN_S3_CHECKPOINT_EVERY" },
		{ "instance", "QUEEN_S3_INSTANCE" },
		{ "crashAt", "QUEEN_S3_CRASH_AT" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (span_is(field, names[i][0]))
			return names[i][1];
	return NULL;
}

static bool
is_secret(struct span field)
{
	for (size_t i = 0; i + 6 <= field.n; i++)
		if (strncasecmp(field.p + i, "secret", 6) == 0)
			return true;
	return false;
}

/* A field that is none: never with its value. */
static int
refuse_field(struct reader *r, struct span field)
{
	const char *node = node_setting(field);
	struct span shown = span_clip(field, 40);
	struct buf b = BUF_ZERO;
	bool plain = true;

	for (size_t i = 0; i < shown.n; i++)
		plain = plain && (unsigned char)shown.p[i] >= 0x20 &&
			shown.p[i] != 0x7f;
	if (!plain)
		shown = SPAN_LIT("(a control character)");
	if (node)
		return err_set(r->s.e, ERR_INPUT,
			"%.*s is of the node, not of a sink: %s sets it",
			SPAN_ARG(shown), node);
	if (is_secret(field))
		return err_set(r->s.e, ERR_INPUT,
			"%.*s is no field of the settings: the secret goes "
			"beside them, as secretKey",
			SPAN_ARG(shown));
	s3conf_put_fields(&b);
	err_set(r->s.e, ERR_INPUT, "%.*s is no field; there are %.*s",
		SPAN_ARG(shown), SPAN_ARG(buf_span(&b)));
	buf_fini(&b);
	return -1;
}

static void
give_text(struct s3conf_value *v, struct span t)
{
	t = span_trim(t);
	if (t.n == 0)
		return;
	v->is = S3CONF_TEXT;
	v->text = s3conf_dup(t);
}

static int
take_list(struct reader *r, struct s3conf_value *v)
{
	struct jspan_val item;
	struct span t;

	v->is = S3CONF_LIST;
	if (!jspan_enter_array(&r->j))
		return 0;
	while (jspan_next_item(&r->j) && jspan_take(&r->j, &item)) {
		if (!jspan_text(&item, &r->a, &t) || memchr(t.p, '\0', t.n)) {
			v->is = S3CONF_OTHER;
			v->text = s3conf_dup(item.raw);
			return s3conf_refuse(&r->s, S3CONF_QUEUES,
				"is an item that is no text: a list holds "
				"names of queues");
		}
		t = span_trim(t);
		if (t.n == 0)
			continue;
		v->list = realloc(v->list, (v->list_n + 1) * sizeof(*v->list));
		BUG(!v->list);
		v->list[v->list_n++] = s3conf_dup(t);
	}
	return 0;
}

static int
take_value(struct reader *r, enum s3conf_key k)
{
	struct s3conf_value *v = &r->s.v[k];
	struct jspan_val val;
	struct span t;

	if (v->is != S3CONF_UNSET)
		return s3conf_refuse(&r->s, k, "is there twice");
	if (k == S3CONF_QUEUES && jspan_peek(&r->j) == JSPAN_ARRAY)
		return take_list(r, v);
	if (!jspan_take(&r->j, &val) || val.type == JSPAN_NULL)
		return 0;
	if (val.type != JSPAN_STRING) {
		v->is = S3CONF_OTHER;
		v->text = s3conf_dup(val.raw);
		return 0;
	}
	if (!jspan_text(&val, &r->a, &t) || memchr(t.p, '\0', t.n)) {
		jspan_fail(&r->j, "a text that is none");
		return 0;
	}
	give_text(v, t);
	return 0;
}

static int
read_doc(struct reader *r)
{
	static const char *const types[] = { "nothing", "null", "a boolean",
		"a number", "a text", "a list" };
	enum jspan_type type = jspan_peek(&r->j);
	struct span field;

	if (!r->j.error && type != JSPAN_OBJECT)
		return err_set(r->s.e, ERR_INPUT,
			"the settings are an object, not %s", types[type]);
	jspan_enter_object(&r->j);
	while (jspan_next_key(&r->j, &r->a, &field)) {
		enum s3conf_key k = s3conf_key_of(field);

		if (k == S3CONF_KEYS)
			return refuse_field(r, field);
		if (take_value(r, k) < 0)
			return -1;
	}
	if (!jspan_end(&r->j))
		return err_set(r->s.e, ERR_INPUT,
			"the settings are no JSON: %s at byte %zu", r->j.error,
			r->j.error_at);
	return 0;
}

int
s3conf_from_doc(struct s3conf *c, struct span doc, struct err *e)
{
	struct reader r = { .s = { .doc = true, .c = c, .e = e } };
	int rc;

	*c = (struct s3conf){ .all_queues = false };
	if (doc.n > S3CONF_DOC_MAX)
		return err_set(e, ERR_INPUT,
			"the settings are larger than %d bytes",
			S3CONF_DOC_MAX);
	jspan_open(&r.j, doc);
	rc = read_doc(&r);
	if (rc == 0)
		rc = s3conf_apply(&r.s);
	if (rc < 0)
		s3conf_fini(c);
	s3conf_source_fini(&r.s);
	arena_fini(&r.a);
	return rc;
}
