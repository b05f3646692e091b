/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl's multi interface on our loop: curl says which sockets and which
 * timer it wants watched, we tell it what became ready.  An idle connection
 * is not watched.
 */
#include "hcli.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "loop.h"

struct hcli {
	struct loop *loop;
	CURLM *multi;
	struct loop_timer timer;
	char *ca_file;
	long idle_max;
};

/* What curl finished while it was told something. */
static void
reap(struct hcli *h)
{
	CURLMsg *m;
	int left;

	/* A callback may begin and end others: what curl has is read anew. */
	while ((m = curl_multi_info_read(h->multi, &left)) != NULL) {
		CURLcode rc = m->data.result;
		struct hcli_call *c = NULL;
		char *private = NULL;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &private);
		c = (struct hcli_call *)(void *)private;
		if (rc == CURLE_OK)
			c->why[0] = '\0';
		else if (!c->why[0])
			strncat(c->why, curl_easy_strerror(rc),
				sizeof(c->why) - 1);
		c->fn(c->arg, rc, c->why);
	}
}

static void
on_socket(evutil_socket_t fd, short what, void *arg)
{
	struct hcli *h = arg;
	int running, mask = 0;

	if (what & EV_READ)
		mask |= CURL_CSELECT_IN;
	if (what & EV_WRITE)
		mask |= CURL_CSELECT_OUT;
	curl_multi_socket_action(h->multi, fd, mask, &running);
	reap(h);
}

static void
on_timer(void *arg)
{
	struct hcli *h = arg;
	int running;

	curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	reap(h);
}

/* curl: watch this socket for that; slot is what we remembered with it. */
static int
watch_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *slot)
{
	struct hcli *h = arg;
	struct event *ev = slot;
	short flags = EV_PERSIST;

	(void)easy;
	if (ev)
		event_free(ev);
	if (what == CURL_POLL_REMOVE) {
		curl_multi_assign(h->multi, fd, NULL);
		return 0;
	}
	if (what & CURL_POLL_IN)
		flags |= EV_READ;
	if (what & CURL_POLL_OUT)
		flags |= EV_WRITE;
	ev = event_new(loop_base(h->loop), fd, flags, on_socket, h);
	BUG(!ev || event_add(ev, NULL) != 0);
	curl_multi_assign(h->multi, fd, ev);
	return 0;
}

static int
watch_timer(CURLM *multi, long after_ms, void *arg)
{
	struct hcli *h = arg;

	(void)multi;
	if (after_ms < 0)
		loop_timer_stop(&h->timer);
	else
		loop_timer_start(&h->timer, after_ms);
	return 0;
}

struct hcli *
hcli_new(struct loop *l, const struct hcli_conf *c, struct err *e)
{
	struct hcli *h;

	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		err_set(e, ERR_BUG, "libcurl does not start");
		return NULL;
	}
	h = calloc(1, sizeof(*h));
	BUG(!h);
	h->loop = l;
	h->idle_max = c->idle_max;
	if (c->ca_file && *c->ca_file) {
		h->ca_file = strdup(c->ca_file);
		BUG(!h->ca_file);
	}
	h->multi = curl_multi_init();
	BUG(!h->multi);
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, watch_timer);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
	if (h->idle_max > 0)
		curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, h->idle_max);
	loop_timer_init(&h->timer, l, on_timer, h);
	return h;
}

void
hcli_free(struct hcli *h)
{
	if (!h)
		return;
	curl_multi_cleanup(h->multi);
	loop_timer_fini(&h->timer);
	free(h->ca_file);
	free(h);
	curl_global_cleanup();
}

CURL *
hcli_begin(struct hcli *h, struct hcli_call *c, hcli_fn fn, void *arg)
{
	CURL *easy = curl_easy_init();

	BUG(!easy || c->easy);
	*c = (struct hcli_call){
		.hcli = h, .easy = easy, .fn = fn, .arg = arg
	};
	curl_easy_setopt(easy, CURLOPT_PRIVATE, c);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, c->why);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "queen/" QUEEN_VERSION);
	curl_easy_setopt(
		easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	/* the settings are all there is: no proxy out of the environment */
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	if (h->idle_max == 0)
		curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
	if (h->ca_file) {
		curl_easy_setopt(easy, CURLOPT_CAINFO, h->ca_file);
		/* or the distribution's folder would be trusted as well */
		curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
	}
#if LIBCURL_VERSION_NUM >= 0x075700
	/* or giving up on a slow name server would wait for it */
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
	return easy;
}

void
hcli_start(struct hcli_call *c)
{
	/* curl now asks for a timer; all else happens from the loop */
	BUG(curl_multi_add_handle(c->hcli->multi, c->easy) != CURLM_OK);
}

void
hcli_end(struct hcli_call *c)
{
	if (!c->easy)
		return;
	/* refused for one that was never started: that is as good */
	curl_multi_remove_handle(c->hcli->multi, c->easy);
	curl_easy_cleanup(c->easy);
	c->easy = NULL;
}
