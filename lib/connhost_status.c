/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status block of a unit, made of what its process said last and what the
 * parent knows; and its counters, which outlive the process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "clk.h"
#include "connhost_int.h"
#include "jspan.h"
#include "jwrite.h"

/* ---- the word of a process ---- */

struct word {
	struct span phase, since, error, last, retry, detail, metrics;
	int64_t restarts, errors;
};

static void
take_member(struct word *w, struct span key, const struct jspan_val *v)
{
	static const struct {
		const char *key;
		size_t at;
	} spans[] = {
		{ "phase", offsetof(struct word, phase) },
		{ "since", offsetof(struct word, since) },
		{ "error", offsetof(struct word, error) },
		{ "lastError", offsetof(struct word, last) },
		{ "retryInMs", offsetof(struct word, retry) },
		{ "detail", offsetof(struct word, detail) },
		{ "metrics", offsetof(struct word, metrics) },
	};

	for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++)
		if (span_is(key, spans[i].key) && v->type != JSPAN_NULL)
			memcpy((char *)w + spans[i].at, &v->raw,
				sizeof(v->raw));
	if (span_is(key, "restarts") && !jspan_i64(v, &w->restarts))
		w->restarts = 0;
	if (span_is(key, "errors") && !jspan_i64(v, &w->errors))
		w->errors = 0;
}

/* Empty when it has said nothing; spans are raw JSON. */
static struct word
read_word(const struct unit *u, struct arena *a)
{
	struct word w = { .restarts = 0 };
	struct jspan_val v;
	struct span key;
	struct jspan j;

	jspan_open(&j, buf_span(&u->status));
	if (u->status.len == 0 || !jspan_enter_object(&j))
		return w;
	while (jspan_next_key(&j, a, &key) && jspan_take(&j, &v))
		take_member(&w, key, &v);
	return w;
}

/* ---- counters ---- */

static void
take_metrics(struct unit *u, struct span json, struct arena *a)
{
	struct jspan_val v;
	struct span key;
	struct jspan j;

	jspan_open(&j, json);
	if (json.n == 0 || !jspan_enter_object(&j))
		return;
	while (jspan_next_key(&j, a, &key) && jspan_take(&j, &v)) {
		int i = connmetric_find(key);

		if (i < 0 || v.type != JSPAN_NUMBER || v.raw.p[0] == '-')
			continue;
		u->has[i] = true;
		u->now[i] = strtoull(arena_cstr(a, v.raw), NULL, 10);
	}
}

static int
errors_at(void)
{
	return connmetric_find(SPAN_LIT("queen_pg_connector_errors_total"));
}

static int
owner_at(void)
{
	return connmetric_find(SPAN_LIT("queen_pg_connector_owner"));
}

/* Phases of one that does the work, not of one that waits its turn. */
static bool
is_owner(struct span phase)
{
	static const char *const words[] = { "connecting", "waiting_for_slot",
		"snapshot", "streaming", "running" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (phase.n == strlen(words[i]) + 2 &&
			memcmp(phase.p + 1, words[i], phase.n - 2) == 0)
			return true;
	return false;
}

void
connhost_status_heard(struct unit *u)
{
	struct arena a = ARENA_ZERO;
	struct word w = read_word(u, &a);

	take_metrics(u, w.metrics, &a);
	u->now[errors_at()] = (uint64_t)w.errors;
	u->now[owner_at()] = is_owner(w.phase);
	u->has[owner_at()] = true;
	if (w.last.n > 0) {
		buf_reset(&u->last_error);
		buf_put_span(&u->last_error, w.last);
	}
	arena_fini(&a);
	connhost_row_touch(u);
}

void
connhost_status_settle(struct unit *u)
{
	struct arena a = ARENA_ZERO;
	struct word w = read_word(u, &a);

	if (u->heard)
		u->restarts += (uint64_t)w.restarts;
	arena_fini(&a);
	u->heard = false;
	for (int i = 0; i < CONNMETRIC_N; i++) {
		u->base[i] = u->forget || !connmetric_is_counter(i)
				     ? 0
				     : u->base[i] + u->now[i];
		u->now[i] = 0;
		u->has[i] &= !u->forget &&
			     (connmetric_is_counter(i) || i == owner_at());
	}
	if (u->forget)
		u->errors = 0;
	u->forget = false;
}

uint64_t
connhost_status_metric(const struct unit *u, int i, bool *has)
{
	uint64_t v = u->base[i] + u->now[i];

	*has = u->has[i] || i == errors_at();
	return i == errors_at() ? v + u->errors : v;
}

/* ---- errors of the parent ---- */

void
connhost_status_error(struct unit *u, const char *code, const char *text)
{
	char tenant[QID_TEXT_MAX];
	struct jwrite w;

	buf_reset(&u->error);
	jwrite_init(&w, &u->error);
	jwrite_object(&w);
	jwrite_kv_cstr(&w, "code", code);
	jwrite_kv_cstr(&w, "message", text);
	jwrite_key(&w, "at");
	jwrite_iso_us(&w, clk_wall_us());
	jwrite_end(&w);
	buf_reset(&u->last_error);
	buf_put_span(&u->last_error, buf_span(&u->error));
	u->errors++;
	connhost_row_touch(u);
	log_line(LOG_WARN, "connectors", "failed",
		"connector=%.*s tenant=%s code=%s retryable=%s error=%s",
		SPAN_ARG(u->name), qid_text(&u->tenant, tenant), code,
		u->want == UNIT_RUN ? "true" : "false", log_quote(text));
}

/* ---- the block ---- */

static void
write_raw(struct jwrite *w, const char *key, struct span json)
{
	jwrite_key(w, key);
	if (json.n > 0)
		jwrite_raw(w, json);
	else
		jwrite_null(w);
}

static void
write_members(struct jwrite *w, struct span json, struct arena *a)
{
	struct jspan_val v;
	struct span key;
	struct jspan j;

	jspan_open(&j, json);
	if (json.n == 0 || !jspan_enter_object(&j))
		return;
	while (jspan_next_key(&j, a, &key) && jspan_take(&j, &v)) {
		jwrite_key_span(w, key);
		jwrite_raw(w, v.raw);
	}
}

static void
write_state(struct unit *u, const struct word *word, struct jwrite *w)
{
	int64_t now_ms = clk_mono_ms();

	if (u->heard) {
		write_raw(w, "phase", word->phase);
		write_raw(w, "since", word->since);
		write_raw(w, "error", word->error);
		if (word->retry.n > 0)
			write_raw(w, "retryInMs", word->retry);
		return;
	}
	jwrite_kv_cstr(w, "phase", u->phase);
	jwrite_key(w, "since");
	jwrite_iso_us(w, u->since_us);
	write_raw(w, "error", buf_span(&u->error));
	if (u->state == UNIT_WAITS && u->again_ms > now_ms)
		jwrite_kv_i64(w, "retryInMs", u->again_ms - now_ms);
}

void
connhost_status_write(struct unit *u, struct buf *b)
{
	struct arena a = ARENA_ZERO;
	struct word word = read_word(u, &a);
	uint64_t restarts = u->crashes + u->restarts;
	struct jwrite w;

	if (u->heard)
		restarts += (uint64_t)word.restarts;
	jwrite_init(&w, b);
	jwrite_object(&w);
	jwrite_key(&w, "tenant");
	jwrite_qid(&w, &u->tenant);
	jwrite_kv_str(&w, "name", u->name);
	jwrite_kv_cstr(&w, "kind",
		u->kind_known ? conndoc_kind_word(u->host->conf.kind) : NULL);
	jwrite_kv_i64(&w, "generation", u->generation);
	jwrite_kv_i64(&w, "restarts", (int64_t)restarts);
	write_state(u, &word, &w);
	write_members(&w, word.detail, &a);
	write_raw(&w, "lastError", buf_span(&u->last_error));
	jwrite_end(&w);
	arena_fini(&a);
}

void
connhost_status_metrics(const struct unit *u, struct buf *b)
{
	struct jwrite w;
	char text[24];
	bool has;

	jwrite_init(&w, b);
	jwrite_object(&w);
	for (int i = 0; i < CONNMETRIC_N; i++) {
		uint64_t v = connhost_status_metric(u, i, &has);

		if (!has)
			continue;
		/* a position may be above int64_t */
		snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
		jwrite_kv_raw(&w, connmetric_table[i].name, span_of(text));
	}
	jwrite_end(&w);
}
