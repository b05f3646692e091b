/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP requests by libcurl on our loop.  What all of them share is set here:
 * no redirects, no proxy of the environment, https verified, HTTP/1.1.
 */
#ifndef QUEEN_HCLI_H
#define QUEEN_HCLI_H

#include <stdint.h>
#include <curl/curl.h>

struct err;
struct hcli;
struct loop;

struct hcli_conf {
	const char *ca_file;	/* NULL or empty: the distribution's bundle */
	long idle_max;		/* connections kept for later; 0: none */
};

/* rc is CURLE_OK for every status; why is one line, "" then. */
typedef void (*hcli_fn)(void *arg, CURLcode rc, const char *why);

/* Embedded; zeroed before the first use. */
struct hcli_call {
	struct hcli *hcli;
	CURL *easy;		/* NULL: nothing under way */
	hcli_fn fn;
	void *arg;
	char why[CURL_ERROR_SIZE];
};

/* NULL with ERR_BUG when libcurl does not start. */
struct hcli *hcli_new(struct loop *l, const struct hcli_conf *c,
	struct err *e);
/* Every call has ended; not out of one's callback. */
void hcli_free(struct hcli *h);

/*
 * A handle for one request, to set what is particular and hcli_start.  fn
 * runs once, from the loop; it ends the call, having read from easy what it
 * needs.
 */
CURL *hcli_begin(struct hcli *h, struct hcli_call *c, hcli_fn fn, void *arg);
void hcli_start(struct hcli_call *c);
/* Whatever its state; no effect when nothing is under way. */
void hcli_end(struct hcli_call *c);

#endif
