/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a host name to a session: the name is looked up once, all its addresses
 * are judged, then they are tried one by one, each for connectTimeoutMs.  A
 * refusal that would not pass by itself ends it, another address is the same
 * server.
 */
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "conndoc.h"
#include "err.h"
#include "pglink_int.h"

enum { APP_MAX = 63 };

static void
forget_socket(struct pglink *k)
{
	if (k->rd)
		event_free(k->rd);
	k->rd = NULL;
}

void
pglink_dial_end(struct pglink *k)
{
	forget_socket(k);
	if (k->look)
		egress_stop(k->look);
	k->look = NULL;
	if (k->pem_fd >= 0)
		close(k->pem_fd);
	k->pem_fd = -1;
	free(k->app);
	free(k->options);
	k->app = k->options = NULL;
	k->conn = NULL;
	k->password = (struct span)SPAN_ZERO;
	loop_timer_stop(&k->limit);
}

static void dial_address(struct pglink *k);

/* On to the next address, when it could do better. */
static void
failed(struct pglink *k, const struct connfault *why)
{
	forget_socket(k);
	PQfinish(k->pg);
	k->pg = NULL;
	if (why->retryable && k->at + 1 < k->found.n) {
		k->at++;
		dial_address(k);
	} else {
		pglink_lose(k, why);
	}
}

/*
 * Some poolers drop what they do not know instead of refusing it; values would
 * then come in whatever form the role is set to.
 */
static bool
settings_hold(struct pglink *k, struct connfault *why)
{
	static const char *const want[][2] = { { "TimeZone", "UTC" },
		{ "DateStyle", "ISO" }, { "IntervalStyle", "postgres" },
		{ "client_encoding", "UTF8" } };

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		const char *is = PQparameterStatus(k->pg, want[i][0]);

		if (is && strncmp(is, want[i][1], strlen(want[i][1])) == 0)
			continue;
		connfault_set(why, "postgres", false,
			"the session has %s %s instead of %s: this is a "
			"connection pooler that drops start-up options, "
			"connect directly to PostgreSQL",
			want[i][0], is ? is : "unset", want[i][1]);
		return false;
	}
	return true;
}

static void
connected(struct pglink *k)
{
	struct connfault why;

	if (!settings_hold(k, &why)) {
		pglink_lose(k, &why);
		return;
	}
	pglink_dial_end(k);
	pglink_came_up(k);
}

static void on_socket(evutil_socket_t fd, short what, void *arg);

static void
wait_for(struct pglink *k, short what)
{
	k->rd = event_new(
		loop_base(k->loop), PQsocket(k->pg), what, on_socket, k);
	BUG(!k->rd || event_add(k->rd, NULL) != 0);
}

static void
on_socket(evutil_socket_t fd, short what, void *arg)
{
	struct pglink *k = arg;
	PostgresPollingStatusType next;
	struct connfault why;
	struct pglink_env env;

	(void)fd;
	(void)what;
	pglink_enter(k);
	/* before PQconnectPoll, which may close the socket */
	forget_socket(k);
	pglink_env_hide(&env);
	next = PQconnectPoll(k->pg);
	pglink_env_back(&env);
	if (next == PGRES_POLLING_OK) {
		connected(k);
	} else if (next == PGRES_POLLING_FAILED) {
		pglink_param_fault(k, &why);
		failed(k, &why);
	} else {
		wait_for(k, next == PGRES_POLLING_READING ? EV_READ : EV_WRITE);
	}
	pglink_leave(k);
}

static void
swallow(void *arg, const PGresult *r)
{
	(void)arg;
	(void)r;
}

static void
dial_address(struct pglink *k)
{
	struct connfault why;

	k->state = PGLINK_DIALLING;
	loop_timer_start(&k->limit, k->conn->connect_timeout_ms);
	k->pg = pglink_param_start(k, &why);
	if (!k->pg) {
		pglink_lose(k, &why);
		return;
	}
	/* what the server says by the way libpq would print */
	PQsetNoticeReceiver(k->pg, swallow, NULL);
	PQsetErrorVerbosity(k->pg, PQERRORS_VERBOSE);
	if (PQstatus(k->pg) == CONNECTION_BAD) {
		pglink_param_fault(k, &why);
		failed(k, &why);
		return;
	}
	wait_for(k, EV_WRITE);
}

void
pglink_dial_late(struct pglink *k)
{
	struct connfault why;

	connfault_set(&why, "postgres", true,
		"no connection to %.*s (%s) within connectTimeoutMs (%lld ms)",
		SPAN_ARG(k->conn->host), k->found.addr[k->at],
		(long long)k->conn->connect_timeout_ms);
	failed(k, &why);
}

/* ---- the name ---- */

static void
on_found(void *arg, const struct egress_found *f)
{
	struct pglink *k = arg;
	struct connfault why;

	k->look = NULL;
	k->found = *f;
	pglink_enter(k);
	if (f->n == 0) {
		connfault_set(&why, "postgres", true,
			"host name \"%.*s\" does not resolve, or not within "
			"connectTimeoutMs (%lld ms)",
			SPAN_ARG(k->conn->host),
			(long long)k->conn->connect_timeout_ms);
		pglink_lose(k, &why);
	} else if (f->forbidden && !k->allow_private) {
		connfault_set(&why, "egress", false,
			"\"%.*s\" has an address in a private network: use a "
			"public one, or set "
			"QUEEN_PG_ALLOW_PRIVATE_NETWORKS=true",
			SPAN_ARG(k->conn->host));
		pglink_lose(k, &why);
	} else {
		dial_address(k);
	}
	pglink_leave(k);
}

void
pglink_dial_start(struct pglink *k, const struct pglink_conf *c)
{
	struct span app = span_clip(span_of(c->application_name), APP_MAX);
	char host[256];

	k->conn = c->conn;
	k->password = c->password;
	k->ca_file = c->ca_file;
	k->allow_private = c->allow_private;
	k->app = strndup(app.n ? app.p : "", app.n);
	BUG(!k->app || c->conn->host.n >= sizeof(host));
	k->options = pglink_param_options(c->settings);
	memcpy(host, c->conn->host.p, c->conn->host.n);
	host[c->conn->host.n] = '\0';
	k->look = egress_start(
		k->loop, host, c->conn->connect_timeout_ms, on_found, k);
}
