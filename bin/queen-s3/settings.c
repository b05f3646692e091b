/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings judged in the order that names the mistake best: numbers of the
 * node with their ranges, the table, the sink, and what only this tool knows.
 */
#include "settings.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "boot.h"
#include "buf.h"
#include "err.h"
#include "jspan.h"
#include "log.h"
#include "span.h"

enum { INSTANCE_MAX = 200 };

static const struct crash_word {
	const char *name;
	enum settings_crash at;
} crash_words[] = {
	{ "never", CRASH_NEVER },
	{ "after_intent", CRASH_AFTER_INTENT },
	{ "mid_upload", CRASH_MID_UPLOAD },
	{ "after_upload", CRASH_AFTER_UPLOAD },
	{ "before_commit", CRASH_BEFORE_COMMIT },
	{ "after_commit", CRASH_AFTER_COMMIT },
	{ "off", CRASH_NEVER },
	{ "none", CRASH_NEVER },
};

const char *
settings_crash_name(enum settings_crash c)
{
	return crash_words[c].name;
}

void
settings_crash(const struct settings *s, enum settings_crash at)
{
	if (s->crash_at != at || at == CRASH_NEVER)
		return;
	log_line(LOG_ERROR, "queen-s3", "QUEEN_S3_CRASH_AT: here",
		"crash_at=%s", settings_crash_name(at));
	abort();
}

/* ---- texts ---- */

static char *
dup_text(struct span s)
{
	char *p = strndup(s.p ? s.p : "", s.n);

	BUG(!p);
	return p;
}

/* What a text of a setting is replaced with; takes it over. */
static void
give(char **at, char *value)
{
	free(*at);
	*at = value;
}

static char **
text_of(struct settings *s, const struct conf_item *i)
{
	return (char **)((char *)s + i->at);
}

static bool
is_ours(const struct conf_item *i)
{
	return strncmp(i->name, "QUEEN_S3_", 9) == 0;
}

/* Blank is not set, and what is set is trimmed. */
static void
trim_texts(struct settings *s)
{
	for (size_t k = 0; k < conf_items_n; k++) {
		const struct conf_item *i = &conf_items[k];
		char **at = text_of(s, i);
		struct span t;

		if (i->type != CONF_STR || i->secret || !is_ours(i) || !*at)
			continue;
		t = span_trim(span_of(*at));
		if (t.n)
			give(at, dup_text(t));
		else
			give(at, i->dflt ? dup_text(span_of(i->dflt)) : NULL);
	}
}

/* Before the table looks, which does not say what the number is for. */
static int
check_number(const struct conf_item *i, struct err *e)
{
	struct span t = span_trim(span_of(getenv(i->name)));
	int64_t n;

	if (t.n == 0)
		return 0;
	if (!span_i64(t, &n))
		return err_set(e, ERR_CONFIG,
			"%s=%.*s is not a whole number. It is %s, in %" PRId64
			"..=%" PRId64,
			i->name,
			SPAN_ARG(jspan_utf8(t) ? span_clip(t, 64)
					       : SPAN_LIT("(not UTF-8)")),
			i->help, i->min, i->max);
	if (n < i->min || n > i->max)
		return err_set(e, ERR_CONFIG,
			"%s=%" PRId64 " is outside %" PRId64 "..=%" PRId64
			". It is %s",
			i->name, n, i->min, i->max, i->help);
	return 0;
}

static int
load_table(struct settings *s, struct err *e)
{
	for (size_t k = 0; k < conf_items_n; k++)
		if (conf_items[k].type == CONF_INT && is_ours(&conf_items[k]) &&
			check_number(&conf_items[k], e) < 0)
			return -1;
	if (conf_load(conf_items, conf_items_n, s, e) < 0)
		return -1;
	trim_texts(s);
	return 0;
}

/* ---- the sink ---- */

/* A secret may have come from a file. */
static const char *
get(void *arg, const char *name)
{
	struct settings *s = arg;

	if (strcmp(name, "QUEEN_S3_SECRET_KEY") == 0)
		return s->text.secret_key;
	return getenv(name);
}

/* The id of a key is no secret, and still not for every log. */
static void
hide(char **id)
{
	struct buf b = BUF_ZERO;

	if (!*id)
		return;
	s3conf_put_id(&b, *id);
	give(id, dup_text(buf_span(&b)));
	buf_fini(&b);
}

/* What is printed is what is in force, spelled once. */
static void
respell(struct settings *s)
{
	struct settings_text *t = &s->text;
	const struct s3conf *c = &s->sink;
	struct buf b = BUF_ZERO;

	s3conf_put_start(c, &b);
	give(&t->start, dup_text(buf_span(&b)));
	buf_fini(&b);
	if (t->sse)
		give(&t->sse, dup_text(span_of(s3conf_sse_name(c->sse))));
	give(&t->endpoint, dup_text(span_of(c->endpoint)));
	give(&t->prefix, dup_text(span_of(c->prefix)));
	give(&t->path_style,
		dup_text(span_of(c->path_style ? "true" : "false")));
	give(&t->format, dup_text(span_of(s3conf_format_name(c->format))));
	give(&t->compression,
		dup_text(span_of(s3conf_codec_name(c->text_codec))));
	give(&t->parquet_codec,
		dup_text(span_of(s3conf_codec_name(c->parquet_codec))));
	give(&t->layout, dup_text(span_of(s3conf_layout_name(c->layout))));
	give(&t->align, dup_text(span_of(s3conf_align_name(c->align))));
	hide(&t->access_key);
	hide(&t->kms_key_id);
}

static int
load_sink(struct settings *s, struct err *e)
{
	int rc = s3conf_from_env(&s->sink, get, s, e);

	if (rc < 0)
		return -1;
	s->has_sink = rc == 0;
	if (s->has_sink)
		respell(s);
	return 0;
}

/* ---- of this tool alone ---- */

static bool
ends_so(const char *name, const char *host)
{
	size_t n = strlen(name), h = strlen(host);

	return n >= h && strcmp(name + n - h, host) == 0 &&
	       (n == h || name[n - h - 1] == '/');
}

char *
settings_instance(const char *given, const char *server_id, const char *host,
	bool *generated)
{
	struct buf b = BUF_ZERO;
	uint64_t random;
	char *out;

	*generated = false;
	if (given && *given) {
		buf_puts(&b, given);
		if (host && *host && !ends_so(given, host))
			buf_printf(&b, "/%s", host);
	} else if (server_id && *server_id) {
		buf_puts(&b, server_id);
	} else if (host && *host) {
		buf_puts(&b, host);
	} else {
		randombytes_buf(&random, sizeof(random));
		buf_printf(&b, "s3-%016" PRIx64, random);
		*generated = true;
	}
	out = dup_text(buf_span(&b));
	buf_fini(&b);
	return out;
}

static int
load_instance(struct settings *s, struct err *e)
{
	const char *name =
		s->text.instance ? "QUEEN_S3_INSTANCE" : "QUEEN_SERVER_ID";
	struct span id = span_trim(span_of(s->server_id));
	char host[65] = "", *server_id = dup_text(id);
	const char *h = host;

	if (gethostname(host, sizeof(host) - 1) < 0 || !host[0])
		h = getenv("HOSTNAME");
	s->instance = settings_instance(
		s->text.instance, server_id, h, &s->instance_generated);
	free(server_id);
	if (strlen(s->instance) > INSTANCE_MAX)
		return err_set(e, ERR_CONFIG, "%s is longer than %d bytes",
			name, INSTANCE_MAX);
	if (!jspan_utf8(span_of(s->instance)))
		return err_set(e, ERR_CONFIG, "%s is no text", name);
	for (const char *p = s->instance; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return err_set(e, ERR_CONFIG,
				"%s holds a control character", name);
	if (!s->instance_generated)
		give(&s->text.instance, dup_text(span_of(s->instance)));
	return 0;
}

static int
load_crash(struct settings *s, struct err *e)
{
	const char *t = s->text.crash_at;

	for (size_t i = 0; i < sizeof(crash_words) / sizeof(crash_words[0]);
		i++)
		if (strcasecmp(crash_words[i].name, t) == 0) {
			s->crash_at = crash_words[i].at;
			give(&s->text.crash_at,
				dup_text(span_of(
					settings_crash_name(s->crash_at))));
			return 0;
		}
	return err_set(e, ERR_CONFIG,
		"QUEEN_S3_CRASH_AT=%.40s is not one of never (off, none), "
		"after_intent, mid_upload, after_upload, before_commit, "
		"after_commit. It is where the process aborts, for tests",
		t);
}

static int
check_listen(const struct settings *s, struct err *e)
{
	char host[BOOT_HOST_MAX];
	int64_t port;

	if (boot_listen(s->listen, host, &port))
		return 0;
	return err_set(e, ERR_CONFIG,
		"QUEEN_S3_LISTEN=%.100s is not host:port with a port of 1 to "
		"65535. It is where health and metrics are served, as "
		"127.0.0.1:9333",
		s->listen);
}

int
settings_load(struct settings *s, struct err *e)
{
	*s = (struct settings){ .has_sink = false };
	if (load_table(s, e) < 0 || load_sink(s, e) < 0 ||
		load_instance(s, e) < 0 || load_crash(s, e) < 0 ||
		check_listen(s, e) < 0) {
		settings_fini(s);
		return -1;
	}
	if (s->text.log_format && strcasecmp(s->text.log_format, "json") == 0)
		s->log_json = true;
	return 0;
}

static void
wipe(char *secret)
{
	if (secret)
		sodium_memzero(secret, strlen(secret));
}

void
settings_wipe(struct settings *s)
{
	wipe(s->encryption_key);
	wipe(s->encryption_old_keys);
	wipe(s->text.secret_key);
	for (size_t k = 0; k < conf_items_n; k++)
		if (conf_items[k].secret)
			wipe(getenv(conf_items[k].name));
}

void
settings_fini(struct settings *s)
{
	conf_fini(conf_items, conf_items_n, s);
	s3conf_fini(&s->sink);
	free(s->instance);
	s->instance = NULL;
	s->has_sink = false;
}

/* ---- the line of the boot ---- */

static const char *
quoted(const char *text)
{
	return text[0] == '\0' || strpbrk(text, " \"\\") ? log_quote(text)
							 : text;
}

void
settings_boot_line(const struct settings *s, const struct s3conf *c,
	const char *tenant, const char *pg, struct buf *out)
{
	buf_printf(out, "version=%s tenant=%s instance=%s%s", QUEEN_VERSION,
		tenant, quoted(s->instance),
		s->instance_generated ? "(generated)" : "");
	buf_printf(out, " partitions=discovery pg=%s", quoted(pg));
	s3conf_line(c, out);
	buf_printf(out,
		" checkpoint_every=%" PRId64 " memory_mb=%" PRId64
		" fetch_concurrency=%" PRId64 " discovery_interval_ms=%" PRId64
		" safe_guard_ms=%" PRId64 " lease_ttl_ms=%" PRId64
		" multipart_threshold_mb=%" PRId64 " listen=%s crash_at=%s",
		s->checkpoint_every, s->memory_mb, s->fetch_concurrency,
		s->discovery_interval_ms, s->safe_guard_ms, s->lease_ttl_ms,
		s->multipart_threshold_mb, s->listen,
		settings_crash_name(s->crash_at));
}
