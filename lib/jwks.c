/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl's multi interface on our loop: curl says which sockets and which
 * timer it wants watched, we tell it what became ready.  Every fetch has a
 * fresh handle and leaves no connection behind, so between fetches there is
 * nothing to watch.
 */
#include "jwks.h"

#include <curl/curl.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "clk.h"
#include "err.h"
#include "jwt.h"
#include "log.h"
#include "loop.h"
#include "span.h"

struct jwks {
	struct loop *loop;
	char *url, *host, *ca_file;
	int64_t refresh_ms, timeout_ms;

	CURLM *multi;
	CURL *easy; /* the fetch under way, NULL between */
	struct loop_timer curl_timer, refresh_timer;
	struct buf body;
	char curl_error[CURL_ERROR_SIZE];
	int64_t attempt_ms;

	struct jwt_keys *keys;
	struct jwks_wait *waiting, *ready;
	struct jwks_stats stats;
	bool failing;
};

static void on_done(struct jwks *j, CURLcode rc);

/* ---- curl on the loop ---- */

/* What curl finished while it was told something. */
static void
reap(struct jwks *j)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(j->multi, &left)) != NULL)
		if (m->msg == CURLMSG_DONE)
			on_done(j, m->data.result);
}

static void
on_socket(evutil_socket_t fd, short what, void *arg)
{
	struct jwks *j = arg;
	int running, mask = 0;

	if (what & EV_READ)
		mask |= CURL_CSELECT_IN;
	if (what & EV_WRITE)
		mask |= CURL_CSELECT_OUT;
	curl_multi_socket_action(j->multi, fd, mask, &running);
	reap(j);
}

static void
on_curl_timer(void *arg)
{
	struct jwks *j = arg;
	int running;

	curl_multi_socket_action(j->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	reap(j);
}

/* curl: watch this socket for that; slot is what we remembered with it. */
static int
watch_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *slot)
{
	struct jwks *j = arg;
	struct event *ev = slot;
	short flags = EV_PERSIST;

	(void)easy;
	if (ev)
		event_free(ev);
	if (what == CURL_POLL_REMOVE) {
		curl_multi_assign(j->multi, fd, NULL);
		return 0;
	}
	if (what & CURL_POLL_IN)
		flags |= EV_READ;
	if (what & CURL_POLL_OUT)
		flags |= EV_WRITE;
	ev = event_new(loop_base(j->loop), fd, flags, on_socket, j);
	BUG(!ev || event_add(ev, NULL) != 0);
	curl_multi_assign(j->multi, fd, ev);
	return 0;
}

static int
watch_timer(CURLM *multi, long after_ms, void *arg)
{
	struct jwks *j = arg;

	(void)multi;
	if (after_ms < 0)
		loop_timer_stop(&j->curl_timer);
	else
		loop_timer_start(&j->curl_timer, after_ms);
	return 0;
}

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
set_options(struct jwks *j, CURL *c)
{
	curl_easy_setopt(c, CURLOPT_URL, j->url);
	curl_easy_setopt(c, CURLOPT_HTTPGET, 1L);
	curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)j->timeout_ms);
	curl_easy_setopt(c, CURLOPT_MAXFILESIZE, (long)JWT_DOCUMENT_MAX_BYTES);
	curl_easy_setopt(c, CURLOPT_FORBID_REUSE, 1L);
	curl_easy_setopt(c, CURLOPT_USERAGENT, "queen/" QUEEN_VERSION);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, j->curl_error);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, j);
	/* the settings are all there is: no proxy out of the environment */
	curl_easy_setopt(c, CURLOPT_PROXY, "");
	if (j->ca_file) {
		curl_easy_setopt(c, CURLOPT_CAINFO, j->ca_file);
		/* or the distribution's folder would be trusted as well */
		curl_easy_setopt(c, CURLOPT_CAPATH, NULL);
	}
#if LIBCURL_VERSION_NUM >= 0x075700
	/* or giving up on a slow name server would wait for it */
	curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L);
#endif
}

static void
drop_fetch(struct jwks *j)
{
	if (!j->easy)
		return;
	curl_multi_remove_handle(j->multi, j->easy);
	curl_easy_cleanup(j->easy);
	j->easy = NULL;
	buf_fini(&j->body);
}

static void
begin(struct jwks *j)
{
	j->attempt_ms = clk_mono_ms();
	j->stats.fetches++;
	j->curl_error[0] = '\0';
	loop_timer_stop(&j->refresh_timer);
	j->easy = curl_easy_init();
	BUG(!j->easy);
	set_options(j, j->easy);
	/* curl now asks for a timer; all else happens from the loop */
	BUG(curl_multi_add_handle(j->multi, j->easy) != CURLM_OK);
}

static int
take_keys(struct jwks *j, CURLcode rc, struct err *e)
{
	struct jwt_keys *keys;
	long status = 0;

	if (rc != CURLE_OK)
		return err_set(e, ERR_IO, "%s",
			j->curl_error[0] ? j->curl_error
					 : curl_easy_strerror(rc));
	curl_easy_getinfo(j->easy, CURLINFO_RESPONSE_CODE, &status);
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
on_done(struct jwks *j, CURLcode rc)
{
	size_t before_n = jwt_keys_count(j->keys);
	bool is_first = !j->keys;
	struct err e = ERR_ZERO;
	struct jwks_wait *w;
	int got = take_keys(j, rc, &e);

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
on_refresh(void *arg)
{
	struct jwks *j = arg;

	if (!j->easy)
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
	struct jwks *j;
	char *host;

	*out = NULL;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return err_set(e, ERR_BUG, "libcurl does not start");
	if (check_url(c->url, &host, e) != 0) {
		curl_global_cleanup();
		return -1;
	}
	j = calloc(1, sizeof(*j));
	BUG(!j || !host);
	j->loop = l;
	j->host = host;
	j->url = strdup(c->url);
	if (c->ca_file && *c->ca_file)
		j->ca_file = strdup(c->ca_file);
	j->refresh_ms = (c->refresh_s > 1 ? c->refresh_s : 1) * 1000;
	j->timeout_ms = c->timeout_ms > 1 ? c->timeout_ms : 1;
	j->multi = curl_multi_init();
	BUG(!j->url || !j->multi);
	curl_multi_setopt(j->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
	curl_multi_setopt(j->multi, CURLMOPT_SOCKETDATA, j);
	curl_multi_setopt(j->multi, CURLMOPT_TIMERFUNCTION, watch_timer);
	curl_multi_setopt(j->multi, CURLMOPT_TIMERDATA, j);
	loop_timer_init(&j->curl_timer, l, on_curl_timer, j);
	loop_timer_init(&j->refresh_timer, l, on_refresh, j);
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
	curl_multi_cleanup(j->multi);
	loop_timer_fini(&j->curl_timer);
	loop_timer_fini(&j->refresh_timer);
	jwt_keys_free(j->keys);
	free(j->url);
	free(j->host);
	free(j->ca_file);
	free(j);
	curl_global_cleanup();
}

const struct jwt_keys *
jwks_keys(const struct jwks *j)
{
	return j->keys;
}

bool
jwks_refetch(struct jwks *j, struct jwks_wait *w)
{
	if (!j->easy) {
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
