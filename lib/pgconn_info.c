/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes before a link: the conninfo from the settings, the synchronous
 * link of boot, and libpq's failures as errors.  No text made here repeats a
 * password or a parameter: of a server's error only the primary message is
 * taken, never DETAIL, CONTEXT or the statement.
 */
#include "pgconn.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "buf.h"
#include "clk.h"
#include "pgdial.h"

const char *const pgconn_session_sql =
	"set plan_cache_mode = force_generic_plan;"
	"set enable_seqscan = off;"
	"set enable_bitmapscan = off;"
	"set jit = off;"
	"set idle_in_transaction_session_timeout = '5s';"
	"set default_transaction_isolation = 'read committed';"
	"set timezone = 'UTC';"
	"set client_min_messages = 'warning'";

/*
 * The conversion allocates 4 MB, touches one and frees it: from then on glibc
 * keeps 8 MB of the backend's heap top between calls.
 */
const char *const pgconn_heap_sql =
	"select octet_length(convert_to("
	"repeat(repeat('x', 1000), 1000), 'LATIN1'))";

/* ---- errors ---- */

/* One line out of libpq's several: runs of white space become a space. */
static void
squeeze(const char *from, char *to, size_t cap)
{
	size_t n = 0;

	for (; *from != '\0' && n + 1 < cap; from++) {
		bool white = strchr(" \t\r\n", *from) != NULL;

		if (!white)
			to[n++] = *from;
		else if (n > 0 && to[n - 1] != ' ')
			to[n++] = ' ';
	}
	if (n > 0 && to[n - 1] == ' ')
		n--;
	to[n] = '\0';
}

int
pgconn_err(struct err *e, const PGresult *res, const PGconn *conn)
{
	const char *state = NULL, *text = NULL;
	char line[sizeof e->text];

	if (res != NULL) {
		state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
		text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);
		if (text == NULL && state == NULL)
			text = PQresultErrorMessage(res);
	}
	if ((text == NULL || text[0] == '\0') && conn != NULL)
		text = PQerrorMessage(conn);
	squeeze(text != NULL ? text : "", line, sizeof line);
	err_set(e, err_kind_of_sqlstate(state), "%s",
		line[0] != '\0' ? line : "connection lost");
	snprintf(e->sqlstate, sizeof e->sqlstate, "%s",
		state != NULL ? state : "");
	return -1;
}

/* ---- conninfo ---- */

static void
emit(struct buf *b, const char *key, const char *value)
{
	buf_printf(b, "%s%s='", b->len > 0 ? " " : "", key);
	for (; *value != '\0'; value++) {
		if (*value == '\'' || *value == '\\')
			buf_putc(b, '\\');
		buf_putc(b, *value);
	}
	buf_putc(b, '\'');
}

static const char *
value_of(const PQconninfoOption *o, const char *key)
{
	for (; o != NULL && o->keyword != NULL; o++)
		if (strcmp(o->keyword, key) == 0)
			return o->val != NULL && o->val[0] != '\0' ? o->val
								   : NULL;
	return NULL;
}

static const char *
env(const char *name)
{
	const char *v = getenv(name);

	return v != NULL && v[0] != '\0' ? v : NULL;
}

static bool
has(const char *s)
{
	return s != NULL && s[0] != '\0';
}

/*
 * What libpq finds by itself: PG* variables and the service file.  A service
 * named in the string is looked up by naming it in the environment for the
 * length of the call; there is no other way to ask.
 */
static PQconninfoOption *
found_by_libpq(const char *service)
{
	char *before = NULL;
	PQconninfoOption *o;

	if (service != NULL) {
		if (getenv("PGSERVICE") != NULL)
			before = strdup(getenv("PGSERVICE"));
		setenv("PGSERVICE", service, 1);
	}
	o = PQconndefaults();
	if (service != NULL) {
		if (before != NULL)
			setenv("PGSERVICE", before, 1);
		else
			unsetenv("PGSERVICE");
		free(before);
	}
	return o;
}

/*
 * Takes over from libpq's findings what a dial must know in advance (a host
 * name is resolved without libpq), and with a service everything it says.
 */
static void
emit_found(struct buf *b, const PQconninfoOption *given,
	const PQconninfoOption *found, bool service)
{
	static const char *const ours[] = { "service", "gssencmode",
		"client_encoding", "keepalives_idle", "keepalives_interval",
		"keepalives_count", "tcp_user_timeout" };
	bool hosted = value_of(given, "host") != NULL ||
		      value_of(given, "hostaddr") != NULL;

	for (const PQconninfoOption *o = found; o && o->keyword; o++) {
		bool host = strncmp(o->keyword, "host", 4) == 0;
		bool skip = !has(o->val) || value_of(given, o->keyword);

		for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
			skip |= strcmp(o->keyword, ours[i]) == 0;
		if (skip || (host && hosted))
			continue;
		if (host || service)
			emit(b, o->keyword, o->val);
	}
}

/* Links that died silently are noticed within about a minute. */
static void
emit_common(struct buf *b, const PQconninfoOption *given)
{
	static const char *const dflt[][2] = {
		/* a KDC look-up would block the loop */
		{ "gssencmode", "disable" },
		{ "keepalives_idle", "30" },
		{ "keepalives_interval", "10" },
		{ "keepalives_count", "3" },
		{ "tcp_user_timeout", "30000" },
	};

	for (size_t i = 0; i < sizeof dflt / sizeof *dflt; i++)
		if (value_of(given, dflt[i][0]) == NULL)
			emit(b, dflt[i][0], dflt[i][1]);
	emit(b, "client_encoding", "UTF8");
}

/* The certificate as a file that only this process can name. */
static int
emit_pem(struct buf *b, const char *pem, struct err *e)
{
	int fd = memfd_create("pg-root", MFD_CLOEXEC);
	size_t n = strlen(pem), at = 0;
	char path[64];

	if (fd < 0)
		return err_errno(e, "cannot keep PG_SSL_ROOT_CERT");
	while (at < n) {
		ssize_t w = write(fd, pem + at, n - at);

		if (w <= 0) {
			err_errno(e, "cannot keep PG_SSL_ROOT_CERT");
			close(fd);
			return -1;
		}
		at += (size_t)w;
	}
	/* stays open: libpq reads it at every dial */
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	emit(b, "sslrootcert", path);
	return 0;
}

static int
emit_tls(
	struct buf *b, const struct pgconn_conf *c, bool service, struct err *e)
{
	static const char bundle[] = "/etc/ssl/certs/ca-certificates.crt";

	if (!c->use_ssl) {
		if (!service && env("PGSSLMODE") == NULL)
			emit(b, "sslmode", "disable");
		return 0;
	}
	emit(b, "sslmode", c->reject_unauthorized ? "verify-full" : "require");
	if (!c->reject_unauthorized)
		return 0;
	if (has(c->ssl_root_cert))
		return emit_pem(b, c->ssl_root_cert, e);
	/* libpq 15 knows no system store; name it unless one is set up */
	if (!service && env("PGSSLROOTCERT") == NULL) {
		char own[4096];
		const char *home = env("HOME");

		snprintf(own, sizeof own, "%s/.postgresql/root.crt",
			home != NULL ? home : "");
		if (access(own, R_OK) != 0 && access(bundle, R_OK) == 0)
			emit(b, "sslrootcert", bundle);
	}
	return 0;
}

/* The PG_* settings; a service in charge gets no default of ours. */
static int
emit_settings(struct buf *b, const struct pgconn_conf *c, bool service,
	const PQconninfoOption *found, struct err *e)
{
	if (has(c->host))
		emit(b, "host", c->host);
	else if (!service && value_of(found, "host") == NULL &&
		 value_of(found, "hostaddr") == NULL)
		emit(b, "host", "localhost");
	if (c->port > 0) {
		char port[24];

		snprintf(port, sizeof port, "%lld", (long long)c->port);
		emit(b, "port", port);
	}
	if (has(c->user))
		emit(b, "user", c->user);
	else if (!service && env("PGUSER") == NULL)
		emit(b, "user", "postgres");
	if (has(c->password))
		emit(b, "password", c->password);
	if (has(c->database))
		emit(b, "dbname", c->database);
	else if (!service && env("PGDATABASE") == NULL)
		emit(b, "dbname", "postgres");
	return emit_tls(b, c, service, e);
}

char *
pgconn_info(const struct pgconn_conf *c, struct err *e)
{
	struct buf b = BUF_ZERO;
	PQconninfoOption *given = NULL, *found = NULL;
	char *msg = NULL;
	const char *service;
	bool from_string = has(c->conninfo);
	int r = -1;

	if (from_string) {
		given = PQconninfoParse(c->conninfo, &msg);
		PQfreemem(msg); /* may quote the string, hence a password */
		if (given == NULL) {
			err_set(e, ERR_CONFIG,
				"QUEEN_PG_CONNINFO is not a connection string");
			goto out;
		}
	}
	service = value_of(given, "service");
	found = found_by_libpq(service);
	if (service == NULL)
		service = env("PGSERVICE");
	if (from_string) {
		for (PQconninfoOption *o = given; o->keyword != NULL; o++)
			if (has(o->val) &&
				strcmp(o->keyword, "client_encoding") != 0)
				emit(&b, o->keyword, o->val);
	} else {
		if (emit_settings(&b, c, service != NULL, found, e) < 0)
			goto out;
		buf_putc(&b, '\0');
		given = PQconninfoParse(b.p, NULL);
		BUG(given == NULL);
		b.len--;
	}
	emit_found(&b, given, found, service != NULL);
	emit_common(&b, given);
	buf_putc(&b, '\0');
	r = 0;
out:
	PQconninfoFree(given);
	PQconninfoFree(found);
	if (r < 0)
		buf_fini(&b);
	return b.p;
}

/* ---- the synchronous link ---- */

static int
poll_until(PGconn *conn, int64_t deadline_ms, struct err *e)
{
	PostgresPollingStatusType what = PGRES_POLLING_WRITING;

	for (;;) {
		struct pollfd p = { .fd = PQsocket(conn),
			.events = what == PGRES_POLLING_READING ? POLLIN
								: POLLOUT };
		int64_t left = deadline_ms - clk_mono_ms();

		if (left <= 0)
			return err_set(e, ERR_IO,
				"no answer from the database in time");
		if (poll(&p, 1, left > 1000 ? 1000 : (int)left) < 0 &&
			errno != EINTR)
			return err_errno(e, "poll");
		if (p.revents == 0)
			continue;
		what = PQconnectPoll(conn);
		if (what == PGRES_POLLING_OK)
			return 0;
		if (what == PGRES_POLLING_FAILED) {
			pgconn_err(e, NULL, conn);
			e->kind = ERR_IO;
			return -1;
		}
	}
}

/* libpq 15 shows no SQLSTATE of a refused connection, only its words. */
static bool
was_refused(PGconn *conn, const struct err *e)
{
	static const char *const words[] = { "authentication failed",
		"no pg_hba.conf entry", "no password supplied", "role \"",
		"permission denied for database" };

	if (PQconnectionNeedsPassword(conn))
		return true;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strstr(e->text, words[i]) != NULL)
			return true;
	return false;
}

/* One attempt; NULL on failure, *asked then tells whether for a password. */
static PGconn *
attempt(const struct pgdial_words *w, int64_t deadline_ms, bool *asked,
	struct err *e)
{
	PGconn *conn = PQconnectStartParams(w->key, w->value, 0);

	BUG(conn == NULL);
	PQsetNoticeReceiver(conn, pgdial_no_notice, NULL);
	if (PQstatus(conn) == CONNECTION_BAD) {
		pgconn_err(e, NULL, conn);
		e->kind = ERR_IO;
	} else if (poll_until(conn, deadline_ms, e) == 0) {
		return conn;
	}
	*asked = PQconnectionNeedsPassword(conn) == 1;
	if (was_refused(conn, e))
		e->kind = ERR_AUTH;
	PQfinish(conn);
	return NULL;
}

PGconn *
pgconn_open_sync(const char *conninfo, const char *application_name,
	int64_t timeout_ms, struct err *e)
{
	int64_t deadline_ms = clk_mono_ms() + timeout_ms;
	struct pgdial_words w;
	PGconn *conn;
	PGresult *r;
	bool asked = false;

	if (pgdial_words_init(&w, conninfo, application_name, e) < 0)
		return NULL;
	conn = attempt(&w, deadline_ms, &asked, e);
	if (conn == NULL && asked) {
		pgdial_words_set(&w, "password", PGDIAL_PASSWORD);
		conn = attempt(&w, deadline_ms, &asked, e);
	}
	pgdial_words_fini(&w);
	if (conn == NULL)
		return NULL;
	r = PQexec(conn, pgconn_session_sql);
	if (PQresultStatus(r) != PGRES_COMMAND_OK) {
		pgconn_err(e, r, conn);
		PQfinish(conn);
		conn = NULL;
	}
	PQclear(r);
	return conn;
}
