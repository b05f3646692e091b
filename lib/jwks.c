/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fetch, a period, and who waits.  A fetch leaves no connection behind, so
 * between fetches there is nothing.
 */
#include "jwks.h"

#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "clk.h"
#include "err.h"
#include "hcli.h"
#include "jwt.h"
#include "log.h"
#include "loop.h"
#include "span.h"

struct jwks {
	struct hcli *hcli;
	char *url, *host;
	int64_t refresh_ms, timeout_ms;

	struct hcli_call fetch;
	struct loop_timer refresh_timer;
	struct buf body;
	int64_t attempt_ms;

	struct jwt_keys *keys;
	struct jwks_wait *waiting, *ready;
	struct jwks_stats stats;
	bool failing;
};

/* ---- one fetch ---- */

static size_t
on_body(char *p, size_t one, size_t n, void *arg)
{
	struct jwks *j = arg;

	(void)one; /* always 1 */
	if (n > JWT_DOCUMENT_MAX_BYTES - j->body.len)
		return 0; /* ends the fetch */
	buf_put(&j->body, p, n);
	return n;
}

static void
drop_fetch(struct jwks *j)
{
	hcli_end(&j->fetch);
	buf_fini(&j->body);
}

static int
take_keys(struct jwks *j, CURLcode rc, const char *why, struct err *e)
{
	struct jwt_keys *keys;
	long status = 0;

	if (rc != CURLE_OK)
		return err_set(e, ERR_IO, "%s", why);
	curl_easy_getinfo(j->fetch.easy, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200)
		return err_set(e, ERR_IO, "status %ld", status);
	if (jwt_keys_parse(buf_span(&j->body), &keys, e) != 0)
		return -1;
	jwt_keys_free(j->keys);
	j->keys = keys;
	return 0;
}

/* Transitions are told once, in both directions. */
static void
tell(struct jwks *j, int rc, size_t before_n, bool is_first,
	const struct err *e)
{
	size_t n = jwt_keys_count(j->keys);

	if (rc != 0 && !j->failing)
		log_line(LOG_WARN, "jwks", "cannot fetch the keys of tokens",
			"host=%s keys=%zu error=%s", j->host, n,
			log_quote(e->text));
	else if (rc == 0 && (j->failing || is_first || n != before_n))
		log_line(LOG_INFO, "jwks", "fetched the keys of tokens",
			"host=%s keys=%zu", j->host, n);
}

static void
add_wait(struct jwks_wait **list, struct jwks_wait *w)
{
	w->next = *list;
	if (w->next)
		w->next->link = &w->next;
	w->link = list;
	*list = w;
}

static void
on_done(void *arg, CURLcode rc, const char *why)
{
	struct jwks *j = arg;
	size_t before_n = jwt_keys_count(j->keys);
	bool is_first = !j->keys;
	struct err e = ERR_ZERO;
	struct jwks_wait *w;
	int got = take_keys(j, rc, why, &e);

	drop_fetch(j);
	tell(j, got, before_n, is_first, &e);
	j->failing = got != 0;
	j->stats.failures += j->failing;
	loop_timer_start(&j->refresh_timer, j->refresh_ms);

	/* A callback may cancel others, and wait again for the next fetch. */
	while ((w = j->waiting) != NULL) {
		jwks_cancel(w);
		add_wait(&j->ready, w);
	}
	while ((w = j->ready) != NULL) {
		jwks_cancel(w);
		w->fn(w->arg);
	}
}

static void
begin(struct jwks *j)
{
	CURL *c = hcli_begin(j->hcli, &j->fetch, on_done, j);

	j->attempt_ms = clk_mono_ms();
	j->stats.fetches++;
	loop_timer_stop(&j->refresh_timer);
	curl_easy_setopt(c, CURLOPT_URL, j->url);
	curl_easy_setopt(c, CURLOPT_HTTPGET, 1L);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)j->timeout_ms);
	curl_easy_setopt(c, CURLOPT_MAXFILESIZE, (long)JWT_DOCUMENT_MAX_BYTES);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, j);
	hcli_start(&j->fetch);
}

static void
on_refresh(void *arg)
{
	struct jwks *j = arg;

	if (!j->fetch.easy)
		begin(j);
}

/* ---- the outside ---- */

/* The host, for the log: the whole URL may hold a password. */
static int
check_url(const char *url, char **host, struct err *e)
{
	CURLU *u = curl_url();
	char *scheme = NULL, *name = NULL;
	int rc = 0;

	*host = NULL;
	BUG(!u);
	if (curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK ||
		curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
		curl_url_get(u, CURLUPART_HOST, &name, 0) != CURLUE_OK ||
		(strcmp(scheme, "https") != 0 && strcmp(scheme, "http") != 0))
		rc = err_set(
			e, ERR_CONFIG, "JWT_JWKS_URL is no http or https URL");
	else if (strcmp(scheme, "http") == 0)
		log_line(LOG_WARN, "jwks",
			"keys of tokens fetched in clear can be forged: use "
			"https",
			"host=%s", name);
	if (rc == 0)
		*host = strdup(name);
	curl_free(scheme);
	curl_free(name);
	curl_url_cleanup(u);
	return rc;
}

int
jwks_new(struct loop *l, const struct jwks_conf *c, struct jwks **out,
	struct err *e)
{
	struct hcli_conf curl = { .ca_file = c->ca_file };
	struct jwks *j;
	char *host;

	*out = NULL;
	if (check_url(c->url, &host, e) != 0)
		return -1;
	j = calloc(1, sizeof(*j));
	BUG(!j || !host);
	j->host = host;
	j->refresh_ms = (c->refresh_s > 1 ? c->refresh_s : 1) * 1000;
	j->timeout_ms = c->timeout_ms > 1 ? c->timeout_ms : 1;
	j->url = strdup(c->url);
	BUG(!j->url);
	loop_timer_init(&j->refresh_timer, l, on_refresh, j);
	j->hcli = hcli_new(l, &curl, e);
	if (!j->hcli) {
		jwks_free(j);
		return -1;
	}
	*out = j;
	return 0;
}

void
jwks_start(struct jwks *j)
{
	on_refresh(j);
}

void
jwks_free(struct jwks *j)
{
	if (!j)
		return;
	while (j->waiting)
		jwks_cancel(j->waiting);
	drop_fetch(j);
	hcli_free(j->hcli);
	loop_timer_fini(&j->refresh_timer);
	jwt_keys_free(j->keys);
	free(j->url);
	free(j->host);
	free(j);
}

const struct jwt_keys *
jwks_keys(const struct jwks *j)
{
	return j->keys;
}

bool
jwks_refetch(struct jwks *j, struct jwks_wait *w)
{
	if (!j->fetch.easy) {
		if (j->stats.fetches > 0 &&
			clk_mono_ms() - j->attempt_ms < JWKS_THROTTLE_MS)
			return false;
		begin(j);
	}
	BUG(w->link);
	add_wait(&j->waiting, w);
	return true;
}

void
jwks_cancel(struct jwks_wait *w)
{
	if (!w->link)
		return;
	*w->link = w->next;
	if (w->next)
		w->next->link = w->link;
	w->next = NULL;
	w->link = NULL;
}

void
jwks_stats(const struct jwks *j, struct jwks_stats *out)
{
	*out = j->stats;
	out->keys_n = jwt_keys_count(j->keys);
}
