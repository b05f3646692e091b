/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The S3 sink of a tenant: its document written whole, or the members given
 * over what is stored.  Its secret comes from a file, the environment or the
 * terminal, and is zeroed once it is sent.
 */
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "client.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "file.h"
#include "jwrite.h"
#include "out.h"
#include "secret.h"
#include "yamldoc.h"

#define SECRET_ENV "QUEEN_S3_SECRET_KEY"

/* The members of a document that have flags. */
static const struct {
	const char *flag, *member;
	enum cmd_type type;
} members[] = {
	{ "queues", "queues", CMD_STR },
	{ "endpoint", "endpoint", CMD_STR },
	{ "region", "region", CMD_STR },
	{ "bucket", "bucket", CMD_STR },
	{ "access-key", "accessKey", CMD_STR },
	{ "prefix", "prefix", CMD_STR },
	{ "path-style", "pathStyle", CMD_BOOL },
	{ "sse", "sse", CMD_STR },
	{ "sse-kms-key-id", "sseKmsKeyId", CMD_STR },
	{ "format", "format", CMD_STR },
	{ "compression", "compression", CMD_STR },
	{ "parquet-codec", "parquetCodec", CMD_STR },
	{ "layout", "layout", CMD_STR },
	{ "align", "align", CMD_STR },
	{ "start", "start", CMD_STR },
	{ "target-mb", "targetMb", CMD_INT },
	{ "max-window-ms", "maxWindowMs", CMD_INT },
	{ "sink", "sink", CMD_STR },
};
enum { MEMBERS = sizeof(members) / sizeof(members[0]) };

/* ---- requests ---- */

/* Known once the target is. */
static const char *
cluster(const struct ctl *c, const struct cmd_call *a)
{
	const char *typed = cmd_str(a, "cluster");

	return typed ? typed : c->target.tenant ? c->target.tenant : "default";
}

static const char *
s3_path(const struct ctl *c, const struct cmd_call *a, const char *rest,
	struct buf *path)
{
	buf_puts(path, "/api/cp/clusters");
	client_segment(path, cluster(c, a));
	buf_puts(path, "/s3");
	buf_puts(path, rest);
	buf_putc(path, '\0');
	return path->p;
}

static int
ask(struct ctl *c, const struct cmd_call *a, const char *method,
	const char *rest, struct span body, struct client_reply *r)
{
	bool reads = strcmp(method, "GET") == 0;
	struct client_req q = { .method = method,
		.kind = reads ? CLIENT_READ : CLIENT_WRITE,
		.body = body };
	struct buf path = BUF_ZERO;
	int code = ctl_target(c);

	if (code != 0)
		return code;
	q.path = s3_path(c, a, rest, &path);
	code = client_ask(c, &q, r);
	buf_fini(&path);
	return code;
}

/* What is stored; an empty body when nothing is. */
static int
stored(struct ctl *c, const struct cmd_call *a, struct client_reply *r)
{
	struct client_req q = { .method = "GET" };
	struct buf path = BUF_ZERO;
	struct err e = ERR_ZERO;
	int code = ctl_target(c);

	if (code != 0)
		return code;
	q.path = s3_path(c, a, "", &path);
	code = client_send(c, &q, r);
	buf_fini(&path);
	if (code == 0 && r->status == 404 &&
		doc_check(buf_span(&r->body), &e) == 0 &&
		strcmp(doc_str(buf_span(&r->body), "error", "", &c->arena),
			"s3_unset") == 0) {
		buf_reset(&r->body);
		return CTL_OK;
	}
	if (code == 0)
		code = client_check(r);
	if (code == 0 && doc_check(buf_span(&r->body), &e) != 0)
		code = ctl_fail(CTL_SERVER, "the answer is %s", e.text);
	return code;
}

/* ---- the document ---- */

struct set {
	struct ctl *c;
	const struct cmd_call *a;
	struct span config; /* what the flags are laid over; may be empty */
	bool enabled, flags; /* flags: the command has those of members */
	int documents;
};

static bool
has_flag(const struct set *s, struct span member)
{
	for (int i = 0; s->flags && i < MEMBERS; i++)
		if (span_is(member, members[i].member))
			return cmd_typed(s->a, members[i].flag);
	return false;
}

/* An empty text is none: the default holds again. */
static void
write_flag(const struct cmd_call *a, int i, struct jwrite *w)
{
	const char *flag = members[i].flag, *member = members[i].member;

	if (members[i].type == CMD_BOOL)
		jwrite_kv_bool(w, member, cmd_bool(a, flag));
	else if (members[i].type == CMD_INT)
		jwrite_kv_i64(w, member, cmd_int(a, flag));
	else if (*cmd_str(a, flag))
		jwrite_kv_cstr(w, member, cmd_str(a, flag));
}

static void
write_sink(const struct set *s, struct span secret, struct buf *out)
{
	struct jspan_val v;
	struct span key;
	struct jwrite w;
	struct jspan j;

	jwrite_init(&w, out);
	jwrite_object(&w);
	if (s->config.n) {
		jspan_open(&j, s->config);
		jspan_enter_object(&j);
		while (jspan_next_key(&j, &s->c->arena, &key) &&
			jspan_take(&j, &v)) {
			if (span_is(key, "enabled") || has_flag(s, key))
				continue;
			jwrite_key_span(&w, key);
			jwrite_raw(&w, v.raw);
		}
	}
	for (int i = 0; s->flags && i < MEMBERS; i++)
		if (cmd_typed(s->a, members[i].flag))
			write_flag(s->a, i, &w);
	jwrite_kv_bool(&w, "enabled", s->enabled);
	/* enough for every escape: a buffer that grows would leave it behind */
	buf_reserve(out, 6 * secret.n + 64);
	if (secret.n)
		jwrite_kv_str(&w, "secretKey", secret);
	jwrite_end(&w);
}

/* Settings, or what `get` has shown. */
static int
on_document(void *arg, struct span doc, struct err *e)
{
	struct set *s = arg;
	struct arena *a = &s->c->arena;
	struct jspan_val v;

	if (doc_val(doc).type == JSPAN_NULL)
		return 0;
	if (s->documents++)
		return err_set(e, ERR_INPUT, "there is more than one document");
	if (doc_val(doc).type != JSPAN_OBJECT)
		return err_set(e, ERR_INPUT, "expected a mapping");
	if (doc_get(doc, SPAN_LIT("secretKey"), a, &v))
		return err_set(e, ERR_INPUT,
			"secretKey: give it with --secret-file or in "
			"" SECRET_ENV);
	s->enabled =
		!doc_path(doc, "enabled", a, &v) || doc_true(doc, "enabled", a);
	if (doc_path(doc, "enabled", a, &v) && v.type != JSPAN_BOOL)
		return err_set(e, ERR_INPUT, "enabled: is not a boolean");
	if (doc_get(doc, SPAN_LIT("config"), a, &v) && v.type == JSPAN_OBJECT)
		doc = v.raw;
	s->config = arena_dup(a, doc);
	return 0;
}

static int
read_file(struct set *s, const char *file)
{
	struct buf text = BUF_ZERO;
	struct err e = ERR_ZERO;
	int code = CTL_OK;

	if (file_read(file, FILE_SMALL_BYTES, &text, &e) != 0)
		code = ctl_fail_err(&e);
	else if (yamldoc_read(buf_span(&text), on_document, s, &e) != 0)
		code = ctl_fail(CTL_USER, "%s: %s", file, e.text);
	else if (s->documents == 0)
		code = ctl_fail(CTL_USER, "%s: there is no document", file);
	buf_fini(&text);
	return code;
}

/* ---- the secret ---- */

/* Empty when none is given: the stored one stays. */
static int
find_secret(const struct cmd_call *a, bool first, struct buf *out)
{
	static const char what[] = "secret access key";
	const char *file = cmd_str(a, "secret-file");
	const char *text = getenv(SECRET_ENV);
	struct err e = ERR_ZERO;
	int rc = 0;

	if (!file && !(text && *text))
		file = getenv(SECRET_ENV "_FILE");
	if (file && *file)
		rc = secret_read(file, what, out, &e);
	else if (text && *text)
		buf_put_span(out, span_trim(span_of(text)));
	else if (first && secret_can_ask())
		rc = secret_ask(what, out, &e);
	if (rc == 0 && file && *file && out->len == 0)
		rc = err_set(&e, ERR_INPUT, "%s holds no secret", file);
	if (rc == 0 && first && out->len == 0)
		rc = err_set(&e, ERR_INPUT,
			"no sink is stored yet, so its secret key is needed: "
			"in --secret-file or " SECRET_ENV);
	return rc == 0 ? CTL_OK : ctl_fail_err(&e);
}

/* ---- set ---- */

static int
store(struct set *s, struct span secret, const char *done)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct buf body = BUF_ZERO;
	int code;

	write_sink(s, secret, &body);
	code = ask(s->c, s->a, "PUT", "", buf_span(&body), &r);
	if (code == 0 && ctl_wants_answer(s->c))
		code = out_print(s->c, buf_span(&r.body), NULL);
	else if (code == 0)
		ctl_say(s->c, "%s the S3 sink of %s", done,
			cluster(s->c, s->a));
	buf_wipe(&body);
	buf_fini(&r.body);
	return code;
}

static void
take_stored(struct set *s, struct span view)
{
	struct jspan_val v;

	if (doc_path(view, "config", &s->c->arena, &v))
		s->config = v.raw;
	s->enabled = doc_true(view, "enabled", &s->c->arena);
}

int
cmd_s3_set(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct set s = { .c = c, .a = a, .enabled = true, .flags = true };
	const char *file = cmd_str(a, "file");
	const char *from = cmd_str(a, "secret-file");
	struct buf secret = BUF_ZERO;
	int code;

	if (file && from && strcmp(file, "-") == 0 && strcmp(from, "-") == 0)
		return ctl_fail(CTL_USER,
			"--file and --secret-file cannot both be stdin");
	code = file ? read_file(&s, file) : CTL_OK;
	if (code == 0)
		code = stored(c, a, &r);
	if (code == 0 && !file && r.body.len)
		take_stored(&s, buf_span(&r.body));
	if (code == 0)
		code = find_secret(a, r.body.len == 0, &secret);
	if (code == 0)
		code = store(&s, buf_span(&secret), "stored");
	buf_wipe(&secret);
	buf_fini(&r.body);
	return code;
}

/* ---- the others ---- */

static int
set_enabled(struct ctl *c, const struct cmd_call *a, bool enabled)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct set s = { .c = c, .a = a };
	int code = ask(c, a, "GET", "", (struct span)SPAN_ZERO, &r);

	if (code == 0)
		take_stored(&s, buf_span(&r.body));
	if (code == 0 && s.enabled == enabled) {
		code = CTL_NOTHING;
	} else if (code == 0) {
		s.enabled = enabled;
		code = store(&s, (struct span)SPAN_ZERO,
			enabled ? "enabled" : "disabled");
	}
	buf_fini(&r.body);
	return code;
}

int
cmd_s3_enable(struct ctl *c, const struct cmd_call *a)
{
	return set_enabled(c, a, true);
}

int
cmd_s3_disable(struct ctl *c, const struct cmd_call *a)
{
	return set_enabled(c, a, false);
}

int
cmd_s3_get(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	int code = ask(c, a, "GET", "", (struct span)SPAN_ZERO, &r);

	if (code == 0)
		code = out_print(c, buf_span(&r.body), NULL);
	buf_fini(&r.body);
	return code;
}

int
cmd_s3_delete(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	int code;

	if (!cmd_confirmed(a, "delete an S3 sink"))
		return CTL_USER;
	code = ask(c, a, "DELETE", "", (struct span)SPAN_ZERO, &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	if (code == 0 && !doc_true(buf_span(&r.body), "removed", &c->arena))
		code = CTL_NOTHING;
	else if (code == 0 && !ctl_wants_answer(c))
		ctl_say(c, "deleted the S3 sink of %s", cluster(c, a));
	buf_fini(&r.body);
	return code;
}

int
cmd_s3_resume(struct ctl *c, const struct cmd_call *a)
{
	struct client_reply r = { .body = BUF_ZERO };
	const char *prefix = cmd_str(a, "prefix");
	struct buf body = BUF_ZERO;
	struct jwrite w;
	int code;

	if (cmd_bool(a, "newest") == (prefix != NULL))
		return ctl_fail(CTL_USER,
			"how to go on? either --newest, from the newest window "
			"in the bucket, or --prefix with a new place");
	jwrite_init(&w, &body);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "queue", a->arg[0]);
	jwrite_kv_cstr(&w, "sink", cmd_str(a, "sink"));
	if (prefix)
		jwrite_kv_cstr(&w, "prefix", prefix);
	jwrite_end(&w);
	code = ask(c, a, "POST", "/resume", buf_span(&body), &r);
	if (code == 0 && ctl_wants_answer(c))
		code = out_print(c, buf_span(&r.body), NULL);
	else if (code == 0)
		ctl_say(c, "resume of \"%s\" is asked for", a->arg[0]);
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}
