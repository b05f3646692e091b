/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libpq resolves host names by getaddrinfo, which blocks; so a single host
 * name is resolved here and handed over as hostaddr.  Sockets, numeric
 * addresses and comma lists are libpq's own business.  When a name has
 * several addresses each attempt starts at another one, so that an address
 * that swallows packets does not hide the others.
 */
#include "pgdial.h"

#include <event2/dns.h>
#include <event2/event.h>
#include <event2/util.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "buf.h"
#include "loop.h"
#include "pgconn.h"

enum { LIMIT_MS = 5000, ADDRS_MAX = 16 };

/* A look-up outlives its dial when it is cancelled: evdns answers later. */
struct look {
	struct pgdial *dial; /* NULL = cancelled */
	struct loop *loop;
	struct evdns_base *dns;
	struct evdns_getaddrinfo_request *req;
	int failed;
	int n;
	char addr[ADDRS_MAX][INET6_ADDRSTRLEN];
};

struct pgdial {
	struct loop *loop;
	char *conninfo, *app;
	pgdial_fn fn;
	void *arg;

	struct pgdial_words words;
	struct look *look;
	struct buf hosts, addrs; /* comma lists, one host per address */
	PGconn *pg;
	struct event *ev;
	struct loop_timer limit;
	struct loop_timer failed; /* a failure inside pgdial_start */
	struct err why;
	unsigned turn;
	bool guessing; /* the documented password is being tried */
};

static char *
dup(const char *s)
{
	char *d = s != NULL ? strdup(s) : NULL;

	BUG(s != NULL && d == NULL);
	return d;
}

/* ---- words ---- */

int
pgdial_words_init(struct pgdial_words *w, const char *conninfo,
	const char *application_name, struct err *e)
{
	PQconninfoOption *o;
	char *msg = NULL;

	*w = (struct pgdial_words){ .n = 0 };
	w->opts = PQconninfoParse(conninfo, &msg);
	PQfreemem(msg); /* may quote the string, hence a password */
	if (w->opts == NULL)
		return err_set(
			e, ERR_CONFIG, "connection string does not parse");
	for (o = w->opts; o->keyword != NULL; o++)
		if (o->val != NULL)
			pgdial_words_set(w, o->keyword, o->val);
	pgdial_words_set(w, "fallback_application_name",
		application_name != NULL ? application_name : "queen");
	return 0;
}

static int
find(const struct pgdial_words *w, const char *key)
{
	for (int i = 0; i < w->n; i++)
		if (strcmp(w->key[i], key) == 0)
			return i;
	return -1;
}

const char *
pgdial_words_get(const struct pgdial_words *w, const char *key)
{
	int i = find(w, key);

	return i < 0 || w->value[i][0] == '\0' ? NULL : w->value[i];
}

void
pgdial_words_set(struct pgdial_words *w, const char *key, const char *value)
{
	int i = find(w, key);

	if (i < 0) {
		/* one slot stays NULL: the end of the lists */
		BUG(w->n >= PGDIAL_WORDS_MAX - 1);
		i = w->n++;
	}
	w->key[i] = key;
	w->value[i] = value;
}

void
pgdial_words_fini(struct pgdial_words *w)
{
	PQconninfoFree(w->opts);
	*w = (struct pgdial_words){ .n = 0 };
}

/* ---- the attempt ---- */

void
pgdial_no_notice(void *arg, const PGresult *r)
{
	(void)arg;
	(void)r;
}

struct pgdial *
pgdial_new(struct loop *l, const char *conninfo, const char *application_name,
	pgdial_fn fn, void *arg)
{
	struct pgdial *d = calloc(1, sizeof *d);

	BUG(d == NULL);
	d->loop = l;
	d->conninfo = dup(conninfo);
	d->app = dup(application_name);
	d->fn = fn;
	d->arg = arg;
	return d;
}

static void
drop_event(struct pgdial *d)
{
	if (d->ev != NULL)
		event_free(d->ev);
	d->ev = NULL;
}

void
pgdial_stop(struct pgdial *d)
{
	drop_event(d);
	PQfinish(d->pg);
	d->pg = NULL;
	if (d->look != NULL) {
		d->look->dial = NULL;
		if (d->look->req != NULL)
			evdns_getaddrinfo_cancel(d->look->req);
		d->look = NULL;
	}
	pgdial_words_fini(&d->words);
	buf_reset(&d->hosts);
	buf_reset(&d->addrs);
	if (d->limit.loop != NULL) {
		loop_timer_fini(&d->limit);
		loop_timer_fini(&d->failed);
		d->limit.loop = NULL;
	}
}

void
pgdial_free(struct pgdial *d)
{
	if (d == NULL)
		return;
	pgdial_stop(d);
	buf_fini(&d->hosts);
	buf_fini(&d->addrs);
	if (d->conninfo != NULL)
		explicit_bzero(d->conninfo, strlen(d->conninfo));
	free(d->conninfo);
	free(d->app);
	free(d);
}

/* The last thing a step does: fn may free the dial. */
static void
answer(struct pgdial *d, PGconn *conn)
{
	struct err why = d->why;

	d->turn++;
	if (conn != NULL)
		d->pg = NULL;
	pgdial_stop(d);
	d->fn(d->arg, conn, conn != NULL ? NULL : &why);
}

static void
on_limit(void *arg)
{
	struct pgdial *d = arg;

	if (d->look != NULL)
		err_set(&d->why, ERR_DB_RETRY,
			"host name \"%s\" not resolved within %d ms",
			pgdial_words_get(&d->words, "host"), LIMIT_MS);
	else
		err_set(&d->why, ERR_DB_RETRY, "no connection within %d ms",
			LIMIT_MS);
	answer(d, NULL);
}

static void
on_failed(void *arg)
{
	answer(arg, NULL);
}

static void poll_step(struct pgdial *d, PostgresPollingStatusType what);

static void
on_socket(evutil_socket_t fd, short what, void *arg)
{
	struct pgdial *d = arg;

	(void)fd;
	(void)what;
	/* before PQconnectPoll, which may close the socket */
	drop_event(d);
	poll_step(d, PQconnectPoll(d->pg));
}

static void
failed_link(struct pgdial *d)
{
	pgconn_err(&d->why, NULL, d->pg);
	d->why.kind = ERR_DB_RETRY; /* nothing was sent */
}

/* False when not even the first step was possible; why is set then. */
static bool
connect_start(struct pgdial *d)
{
	struct event_base *base = loop_base(d->loop);

	if (d->guessing)
		pgdial_words_set(&d->words, "password", PGDIAL_PASSWORD);
	d->pg = PQconnectStartParams(d->words.key, d->words.value, 0);
	BUG(d->pg == NULL);
	PQsetNoticeReceiver(d->pg, pgdial_no_notice, NULL);
	if (PQstatus(d->pg) == CONNECTION_BAD) {
		failed_link(d);
		return false;
	}
	d->ev = event_new(base, PQsocket(d->pg), EV_WRITE, on_socket, d);
	BUG(d->ev == NULL || event_add(d->ev, NULL) != 0);
	return true;
}

static void
poll_step(struct pgdial *d, PostgresPollingStatusType what)
{
	struct event_base *base = loop_base(d->loop);

	switch (what) {
	case PGRES_POLLING_OK:
		answer(d, d->pg);
		return;
	case PGRES_POLLING_READING:
	case PGRES_POLLING_WRITING:
		d->ev = event_new(base, PQsocket(d->pg),
			what == PGRES_POLLING_READING ? EV_READ : EV_WRITE,
			on_socket, d);
		BUG(d->ev == NULL || event_add(d->ev, NULL) != 0);
		return;
	default:
		break;
	}
	failed_link(d);
	if (PQconnectionNeedsPassword(d->pg) && !d->guessing) {
		d->guessing = true;
		PQfinish(d->pg);
		d->pg = NULL;
		if (connect_start(d))
			return;
	}
	answer(d, NULL);
}

/* ---- names ---- */

/* The one host name that needs resolving, or NULL. */
static const char *
name_of(const struct pgdial_words *w)
{
	const char *host = pgdial_words_get(w, "host");
	struct in6_addr a;

	if (host == NULL || pgdial_words_get(w, "hostaddr") != NULL)
		return NULL;
	if (host[0] == '/' || host[0] == '@' || strchr(host, ',') != NULL)
		return NULL;
	if (inet_pton(AF_INET, host, &a) == 1 ||
		inet_pton(AF_INET6, host, &a) == 1)
		return NULL;
	return host;
}

/* At the end of the turn: a resolver must not be freed in its callback. */
static void
on_looked(void *arg)
{
	struct look *k = arg;
	struct pgdial *d = k->dial;
	const char *host;

	evdns_base_free(k->dns, 0);
	if (d == NULL)
		goto out;
	d->look = NULL;
	host = pgdial_words_get(&d->words, "host");
	if (k->n == 0) {
		err_set(&d->why, ERR_DB_RETRY,
			"could not resolve host name \"%s\": %s", host,
			evutil_gai_strerror(k->failed));
		answer(d, NULL);
		goto out;
	}
	for (int i = 0; i < k->n; i++) {
		buf_printf(&d->hosts, "%s%s", i > 0 ? "," : "", host);
		buf_printf(&d->addrs, "%s%s", i > 0 ? "," : "",
			k->addr[(i + d->turn) % (unsigned)k->n]);
	}
	buf_putc(&d->hosts, '\0');
	buf_putc(&d->addrs, '\0');
	pgdial_words_set(&d->words, "host", d->hosts.p);
	pgdial_words_set(&d->words, "hostaddr", d->addrs.p);
	loop_timer_start(&d->limit, LIMIT_MS);
	if (!connect_start(d))
		answer(d, NULL);
out:
	free(k);
}

static void
on_resolved(int result, struct evutil_addrinfo *res, void *arg)
{
	struct look *k = arg;

	k->req = NULL;
	k->failed = result != 0 ? result : EVUTIL_EAI_NONAME;
	for (struct evutil_addrinfo *ai = result == 0 ? res : NULL;
		ai != NULL && k->n < ADDRS_MAX; ai = ai->ai_next)
		if (getnameinfo(ai->ai_addr, (socklen_t)ai->ai_addrlen,
			    k->addr[k->n], sizeof k->addr[0], NULL, 0,
			    NI_NUMERICHOST) == 0)
			k->n++;
	if (res != NULL)
		evutil_freeaddrinfo(res);
	loop_later(k->loop, on_looked, k);
}

static void
resolve(struct pgdial *d, const char *host)
{
	struct evutil_addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_protocol = IPPROTO_TCP,
		.ai_flags = EVUTIL_AI_ADDRCONFIG,
	};
	struct look *k = calloc(1, sizeof *k);
	struct evdns_getaddrinfo_request *req;

	BUG(k == NULL);
	k->dial = d;
	k->loop = d->loop;
	d->look = k;
	/*
	 * A resolver per dial: dials are rare, and each one sees the
	 * resolv.conf and hosts of its day.
	 */
	k->dns = evdns_base_new(
		loop_base(d->loop), EVDNS_BASE_DISABLE_WHEN_INACTIVE);
	BUG(k->dns == NULL);
	(void)evdns_base_resolv_conf_parse(
		k->dns, DNS_OPTIONS_ALL, "/etc/resolv.conf");
	evdns_base_set_option(k->dns, "timeout:", "1");
	req = evdns_getaddrinfo(k->dns, host, NULL, &hints, on_resolved, k);
	/* on_resolved may have run already; then there is no request */
	if (req != NULL)
		k->req = req;
}

void
pgdial_start(struct pgdial *d)
{
	const char *host;

	BUG(d->limit.loop != NULL);
	loop_timer_init(&d->limit, d->loop, on_limit, d);
	loop_timer_init(&d->failed, d->loop, on_failed, d);
	d->why = (struct err)ERR_ZERO;
	d->guessing = false;
	if (pgdial_words_init(&d->words, d->conninfo, d->app, &d->why) < 0) {
		loop_timer_start(&d->failed, 0);
		return;
	}
	loop_timer_start(&d->limit, LIMIT_MS);
	host = name_of(&d->words);
	if (host != NULL)
		resolve(d, host);
	else if (!connect_start(d))
		loop_timer_start(&d->failed, 0);
}
