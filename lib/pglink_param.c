/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libpq is told and what it says.  Every parameter is given, because each
 * that is not would be looked for in PG* variables and in files of the home
 * directory; those that must be none name a file that cannot exist.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "conndoc.h"
#include "err.h"
#include "pglink_int.h"

#define NO_FILE "/dev/null/none"
#define BUNDLE "/etc/ssl/certs/ca-certificates.crt"

/* ---- the environment ---- */

void
pglink_env_hide(struct pglink_env *v)
{
	size_t n = 0, kept = 0;

	v->was = environ;
	while (environ && environ[n])
		n++;
	v->less = calloc(n + 1, sizeof(*v->less));
	BUG(!v->less);
	for (size_t i = 0; i < n; i++)
		if (strncmp(environ[i], "PG", 2) != 0)
			v->less[kept++] = environ[i];
	environ = v->less;
}

void
pglink_env_back(struct pglink_env *v)
{
	environ = v->was;
	free(v->less);
}

/* ---- parameters ---- */

static void
put_setting(struct buf *b, const char *setting)
{
	buf_puts(b, b->len > 0 ? " -c " : "-c ");
	for (; *setting; setting++) {
		if (*setting == '\\' || *setting == ' ')
			buf_putc(b, '\\');
		buf_putc(b, *setting);
	}
}

/*
 * They win over what the role and the database are set to.  Catalogues name
 * types, and quote_all_identifiers would dress them.
 */
char *
pglink_param_options(const char *const *settings)
{
	static const char *const always[] = { "TimeZone=UTC", "DateStyle=ISO",
		"IntervalStyle=postgres", "extra_float_digits=3",
		"bytea_output=hex", "quote_all_identifiers=off",
		"default_transaction_read_only=off" };
	struct buf b = BUF_ZERO;

	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		put_setting(&b, always[i]);
	for (; settings && *settings; settings++)
		put_setting(&b, *settings);
	buf_putc(&b, '\0');
	return b.p;
}

/* The certificate as a file that only this process can name. */
static int
keep_pem(struct pglink *k, char *path, size_t path_n, struct connfault *why)
{
	struct span pem = k->conn->ssl_root_cert;

	if (k->pem_fd < 0) {
		k->pem_fd = memfd_create("pg-root", MFD_CLOEXEC);
		while (k->pem_fd >= 0 && pem.n > 0) {
			ssize_t n = write(k->pem_fd, pem.p, pem.n);

			if (n <= 0)
				break;
			pem = span_make(pem.p + n, pem.n - (size_t)n);
		}
		if (k->pem_fd < 0 || pem.n > 0)
			return connfault_set(
				why, "io", true, "cannot keep sslRootCert");
	}
	snprintf(path, path_n, "/proc/self/fd/%d", k->pem_fd);
	return 0;
}

/* libpq 15 knows no system store: the distribution's bundle is named. */
static int
root_cert(struct pglink *k, char *path, size_t path_n, struct connfault *why)
{
	const char *file = NO_FILE;

	if (k->conn->ssl == CONNDOC_VERIFY_FULL) {
		if (k->conn->ssl_root_cert.n > 0)
			return keep_pem(k, path, path_n, why);
		file = k->ca_file && *k->ca_file ? k->ca_file : BUNDLE;
	}
	snprintf(path, path_n, "%s", file);
	return 0;
}

static char *
text_of(struct span s)
{
	char *t = strndup(s.n ? s.p : "", s.n);

	BUG(!t);
	return t;
}

/* The same for every link. */
static const char *const fixed[][2] = {
	{ "client_encoding", "UTF8" },
	{ "sslcert", NO_FILE },
	{ "sslkey", NO_FILE },
	{ "sslcrl", NO_FILE },
	{ "sslcompression", "0" },
	{ "sslsni", "1" },
	{ "ssl_min_protocol_version", "TLSv1.2" },
	{ "gssencmode", "disable" },
	{ "channel_binding", "prefer" },
	{ "target_session_attrs", "any" },
	{ "passfile", NO_FILE },
	{ "keepalives", "1" },
	{ "keepalives_idle", "30" },
	{ "keepalives_interval", "10" },
	{ "keepalives_count", "3" },
	{ "tcp_user_timeout", "60000" },
};
enum { FIXED = sizeof(fixed) / sizeof(fixed[0]), OWN = 11 };

static PGconn *
start(const char *const own[OWN][2])
{
	const char *keys[FIXED + OWN + 1], *values[FIXED + OWN + 1];
	struct pglink_env env;
	size_t n = 0;
	PGconn *pg;

	for (size_t i = 0; i < FIXED; i++, n++) {
		keys[n] = fixed[i][0];
		values[n] = fixed[i][1];
	}
	for (size_t i = 0; i < OWN; i++, n++) {
		keys[n] = own[i][0];
		values[n] = own[i][1];
	}
	keys[n] = values[n] = NULL;
	pglink_env_hide(&env);
	/* a database's name is never taken for a connection string */
	pg = PQconnectStartParams(keys, values, 0);
	pglink_env_back(&env);
	BUG(!pg);
	return pg;
}

PGconn *
pglink_param_start(struct pglink *k, struct connfault *why)
{
	bool repl = k->use == PGLINK_REPLICATION;
	char *host, *user, *database, *password;
	char ca[4096], port[8];
	PGconn *pg;

	if (root_cert(k, ca, sizeof(ca), why) < 0)
		return NULL;
	snprintf(port, sizeof(port), "%u", (unsigned)k->conn->port & 0xffff);
	host = text_of(k->conn->host);
	user = text_of(k->conn->user);
	database = text_of(k->conn->database);
	password = text_of(k->password);
	pg = start((const char *const[OWN][2]){
		{ "host", host },
		{ "hostaddr", k->found.addr[k->at] },
		{ "port", port },
		{ "user", user },
		{ "password", password },
		{ "dbname", database },
		{ "application_name", k->app },
		{ "options", k->options },
		{ "replication", repl ? "database" : "" },
		{ "sslmode", conndoc_ssl_word(k->conn->ssl) },
		{ "sslrootcert", ca },
	});
	explicit_bzero(password, strlen(password));
	free(password);
	free(database);
	free(user);
	free(host);
	return pg;
}

/* ---- faults ---- */

/*
 * libpq 15 gives a refusal as text alone, but in its long form the text has
 * the SQLSTATE: `SEVERITY:  28P01: password ...`.
 */
static const char *
find_state(const char *text)
{
	for (const char *p = text; (p = strstr(p, ":  ")) != NULL; p++) {
		const char *s = p + 3;

		if (strspn(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 &&
			strncmp(s + 5, ": ", 2) == 0)
			return s;
	}
	return NULL;
}

/* Up to the next part of a message, which may have several lines. */
static struct span
part_of(const char *p)
{
	static const char *const labels[] = {
		"\nDETAIL:  ", "\nHINT:  ", "\nCONTEXT:  ", "\nLOCATION:  "
	};
	size_t n = strlen(p);

	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
		const char *end = strstr(p, labels[i]);

		if (end && (size_t)(end - p) < n)
			n = (size_t)(end - p);
	}
	return span_make(p, n);
}

static struct span
labelled(const char *text, const char *label)
{
	const char *p = strstr(text, label);

	return p ? part_of(p + strlen(label)) : (struct span)SPAN_ZERO;
}

static void
server_fault(struct pglink *k, const char *said, struct connfault *why)
{
	/* of several attempts in one dial the first is the one to know */
	const char *next = strstr(said, "\nconnection to server ");
	char *one = strndup(said, next ? (size_t)(next - said) : strlen(said));
	struct span message, detail, hint;
	char state[6] = { 0 };
	bool pooler;

	BUG(!one);
	memcpy(state, said, 5);
	message = span_trim(part_of(one));
	detail = span_trim(labelled(one, "\nDETAIL:  "));
	hint = span_trim(labelled(one, "\nHINT:  "));
	/* a protocol violation: it knows a parameter of ours not */
	pooler = strcmp(state, "08P01") == 0;
	connfault_set(why, "postgres", connfault_is_transient(state),
		"%.*s%s%.*s%s%s%.*s%s", SPAN_ARG(message), detail.n ? " (" : "",
		SPAN_ARG(detail), detail.n ? ")" : "", hint.n ? ". " : "",
		SPAN_ARG(hint),
		!pooler ? ""
		: k->use == PGLINK_REPLICATION
			? ". If this is a connection pooler, which cannot "
			  "carry replication: connect directly to PostgreSQL"
			: ". If this is a connection pooler: connect directly "
			  "to PostgreSQL");
	memcpy(why->sqlstate, state, sizeof(state));
	free(one);
}

/* The reason alone: what stands before it names the host. */
static const char *
reason_of(const char *said)
{
	const char *p = strstr(said, " failed: ");

	return p ? p + strlen(" failed: ") : said;
}

static bool
has(const char *text, const char *words)
{
	return strstr(text, words) != NULL;
}

void
pglink_param_fault(struct pglink *k, struct connfault *why)
{
	const char *said = PQerrorMessage(k->pg), *state = find_state(said);
	const char *mode = conndoc_ssl_word(k->conn->ssl);
	const char *reason = reason_of(said);

	if (state)
		server_fault(k, state, why);
	else if (PQconnectionNeedsPassword(k->pg))
		connfault_set(why, "postgres", false,
			"the server asks for a password: set "
			"connection.password");
	else if (has(reason, "server does not support SSL"))
		connfault_set(why, "postgres", false,
			"the server offers no TLS and sslMode is %s: turn ssl "
			"on in the server, or set sslMode to prefer",
			mode);
	else if (has(reason, "certificate") || has(reason, "SSL error: "))
		connfault_set(why, "postgres", false,
			"TLS failed with sslMode %s: %s", mode, said);
	else
		connfault_set(why, "postgres", true, "%s", said);
}
