/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apply: queues and groups as a manifest says.  The whole stream is checked
 * before the first document is sent; each is then sent by itself, so what was
 * applied before a server error stays.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "client.h"
#include "cmds.h"
#include "ctl.h"
#include "doc.h"
#include "file.h"
#include "jwrite.h"
#include "seek.h"
#include "yamldoc.h"

enum { KIND_UNKNOWN, KIND_QUEUE, KIND_GROUP };

static const char queue_keys[] = "kind name namespace task config";
static const char group_keys[] = "kind name queue seek-to";
static const char option_keys[] =
	"namespace task leaseTime retryLimit deadLetterQueue "
	"dlqAfterMaxRetries delayedProcessing windowBuffer minPopWaitTime "
	"retentionEnabled retentionSeconds completedRetentionSeconds "
	"maxWaitTimeSeconds encryptionEnabled dedupWindowSeconds "
	"retentionSinkHold retentionSinkHoldMaxSeconds priority ttl maxSize "
	"retryDelay";

struct apply {
	struct ctl *c;
	bool dry;
	int documents, applied;
	int code; /* exit code of the first failure */
};

/* ---- checks ---- */

/* Equal but for case, dashes and underscores. */
static bool
is_spelling(const char *word, size_t n, const char *typed)
{
	size_t i = 0;

	for (;; typed++) {
		while (*typed == '-' || *typed == '_')
			typed++;
		while (i < n && (word[i] == '-' || word[i] == '_'))
			i++;
		if (i == n || !*typed)
			return i == n && !*typed;
		if (strncasecmp(&word[i++], typed, 1) != 0)
			return false;
	}
}

static int
refuse_key(const struct apply *p, const char *keys, const char *typed)
{
	for (const char *k = keys; *k; k += strspn(k, " ")) {
		size_t n = strcspn(k, " ");

		if (is_spelling(k, n, typed))
			return ctl_fail(CTL_USER,
				"document %d: \"%s\" is "
				"spelled \"%.*s\"",
				p->documents, typed, (int)n, k);
		k += n;
	}
	return ctl_fail(CTL_USER,
		"document %d: unknown key \"%s\"; there are: "
		"%s",
		p->documents, typed, keys);
}

static int
check_keys(struct apply *p, struct span object, const char *keys)
{
	struct arena *a = &p->c->arena;
	struct jspan_val v;
	struct jspan j;
	struct span key;

	jspan_open(&j, object);
	if (jspan_peek(&j) != JSPAN_OBJECT || !jspan_enter_object(&j))
		return ctl_fail(CTL_USER, "document %d: expected a mapping",
			p->documents);
	while (jspan_next_key(&j, a, &key) && jspan_take(&j, &v)) {
		const char *typed = arena_cstr(a, key);

		if (!cmd_is_word(keys, typed))
			return refuse_key(p, keys, typed);
	}
	return CTL_OK;
}

static int
kind_of(const char *kind)
{
	if (strcasecmp(kind, "Queue") == 0)
		return KIND_QUEUE;
	if (strcasecmp(kind, "ConsumerGroup") == 0 ||
		strcasecmp(kind, "cg") == 0)
		return KIND_GROUP;
	return KIND_UNKNOWN;
}

static int
check_group(struct apply *p, struct span doc)
{
	const char *to = doc_str(doc, "seek-to", NULL, &p->c->arena);
	struct seek s = { .partition = NULL };

	if (!doc_str(doc, "queue", NULL, &p->c->arena))
		return ctl_fail(CTL_USER,
			"document %d: a ConsumerGroup needs "
			"its queue",
			p->documents);
	return to ? seek_target(&s, to) : CTL_OK;
}

static int
check_doc(struct apply *p, struct span doc, int kind, const char *word)
{
	struct jspan_val v;
	int code;

	if (kind == KIND_UNKNOWN)
		return ctl_fail(CTL_USER,
			"document %d: unknown kind \"%s\"; "
			"there are Queue and ConsumerGroup",
			p->documents, word);
	code = check_keys(p, doc, kind == KIND_QUEUE ? queue_keys : group_keys);
	if (code != 0)
		return code;
	if (kind == KIND_GROUP)
		return check_group(p, doc);
	if (doc_path(doc, "config", &p->c->arena, &v))
		return check_keys(p, v.raw, option_keys);
	return CTL_OK;
}

/* ---- sending ---- */

static void
write_queue(struct apply *p, struct span doc, const char *name, struct buf *b)
{
	static const char *const labels[] = { "namespace", "task" };
	struct arena *a = &p->c->arena;
	struct jspan_val config, v;
	struct jwrite w;
	struct jspan j;
	struct span key;

	jwrite_init(&w, b);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "queue", name);
	jwrite_kv_cstr(&w, "mode", "replace");
	jwrite_key(&w, "options");
	jwrite_object(&w);
	for (size_t i = 0; i < 2; i++)
		if (doc_path(doc, labels[i], a, &v))
			jwrite_kv_raw(&w, labels[i], v.raw);
	if (doc_path(doc, "config", a, &config)) {
		jspan_open(&j, config.raw);
		if (jspan_enter_object(&j))
			while (jspan_next_key(&j, a, &key) &&
				jspan_take(&j, &v)) {
				jwrite_key_span(&w, key);
				jwrite_raw(&w, v.raw);
			}
	}
	jwrite_end(&w);
	jwrite_end(&w);
}

static int
apply_queue(struct apply *p, struct span doc, const char *name)
{
	struct client_req q = { .method = "POST",
		.path = "/api/v1/configure",
		.kind = CLIENT_WRITE };
	struct client_reply r = { .body = BUF_ZERO };
	struct buf body = BUF_ZERO;
	int code;

	write_queue(p, doc, name, &body);
	q.body = buf_span(&body);
	code = client_ask(p->c, &q, &r);
	buf_fini(&body);
	buf_fini(&r.body);
	return code;
}

static int
apply_group(struct apply *p, struct span doc, const char *name)
{
	struct client_reply r = { .body = BUF_ZERO };
	struct seek s = { .group = name,
		.queue = doc_str(doc, "queue", "", &p->c->arena) };
	int code =
		seek_target(&s, doc_str(doc, "seek-to", "end", &p->c->arena));

	if (code == 0)
		code = seek_send(p->c, &s, &r);
	buf_fini(&r.body);
	return code;
}

static int
apply_doc(struct apply *p, struct span doc, int kind, const char *name)
{
	static const char *const words[] = {
		[KIND_QUEUE] = "Queue", [KIND_GROUP] = "ConsumerGroup"
	};
	int code = CTL_OK;

	if (kind == KIND_GROUP &&
		!doc_str(doc, "seek-to", NULL, &p->c->arena)) {
		ctl_say(p->c, "[skip] ConsumerGroup \"%s\" has no seek-to",
			name);
		return CTL_OK;
	}
	if (!p->dry)
		code = kind == KIND_QUEUE ? apply_queue(p, doc, name)
					  : apply_group(p, doc, name);
	if (code != 0)
		return code;
	p->applied++;
	ctl_say(p->c, "%s %s \"%s\"",
		p->dry ? "[dry-run] would apply" : "applied", words[kind],
		name);
	return CTL_OK;
}

/* ---- the stream, twice ---- */

static int
document(struct apply *p, struct span doc, bool send, struct err *e)
{
	struct arena *a = &p->c->arena;
	const char *word, *name;
	int kind;

	p->documents++;
	if (doc_val(doc).type == JSPAN_NULL)
		return 0;
	if (doc_val(doc).type != JSPAN_OBJECT) {
		p->code = ctl_fail(CTL_USER, "document %d: expected a mapping",
			p->documents);
		return err_set(e, ERR_INPUT, "not a mapping");
	}
	word = doc_str(doc, "kind", "Queue", a);
	name = doc_str(doc, "name", NULL, a);
	kind = kind_of(word);
	if (!name || !*name) {
		if (send)
			ctl_say(p->c, "[skip] document %d has no name",
				p->documents);
		return 0;
	}
	p->code = send ? apply_doc(p, doc, kind, name)
		       : check_doc(p, doc, kind, word);
	return p->code ? err_set(e, ERR_INPUT, "told already") : 0;
}

static int
on_check(void *arg, struct span doc, struct err *e)
{
	return document(arg, doc, false, e);
}

static int
on_apply(void *arg, struct span doc, struct err *e)
{
	return document(arg, doc, true, e);
}

int
cmd_apply(struct ctl *c, const struct cmd_call *a)
{
	struct apply p = { .c = c, .dry = cmd_bool(a, "dry-run") };
	const char *file = cmd_str(a, "file");
	struct buf text = BUF_ZERO;
	struct err e = ERR_ZERO;
	int code = CTL_OK;

	if (!file)
		return ctl_fail(CTL_USER, "which manifest? name it with "
					  "--file");
	if (file_read(file, FILE_SMALL_BYTES, &text, &e) != 0) {
		code = ctl_fail_err(&e);
	} else if (yamldoc_read(buf_span(&text), on_check, &p, &e) != 0) {
		code = p.code ? p.code
			      : ctl_fail(CTL_USER, "%s: %s", file, e.text);
	} else {
		p.documents = 0;
		if (yamldoc_read(buf_span(&text), on_apply, &p, &e) != 0)
			code = p.code;
		else if (p.applied == 0)
			code = CTL_NOTHING;
	}
	buf_fini(&text);
	return code;
}
