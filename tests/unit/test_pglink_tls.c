/* SPDX-License-Identifier: Apache-2.0 */
/* TLS with real certificates: whom each sslMode takes for the server. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buf.h"
#include "pglink_fix.h"

static char dir[80]; /* within the server's, which goes at the end */
static struct buf ca, other, both;

/* ca signs the server's certificate for localhost, other signs nothing. */
static const char make_certificates[] =
	"set -e; mkdir \"$1\"; cd \"$1\"; ec='-newkey ec -pkeyopt "
	"ec_paramgen_curve:prime256v1 -nodes';"
	"for n in ca other; do"
	" openssl req -x509 $ec -keyout $n.key -out $n.crt -days 30 -subj "
	"/CN=$n;"
	"done;"
	"openssl req -new $ec -keyout server.key -out server.csr -subj "
	"/CN=localhost;"
	"echo subjectAltName=DNS:localhost >ext;"
	"openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key "
	"-CAcreateserial -days 30 -extfile ext -out server.crt;"
	"cat other.crt ca.crt >both.crt;"
	"cp server.crt server.key \"$2\";"
	"chmod 600 \"$2\"/server.key; chmod 644 \"$2\"/server.crt";

static void
run_script(const char *data)
{
	int status, null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	pid_t pid = fork();

	if (pid == 0) {
		dup2(null, 2);
		execlp("sh", "sh", "-c", make_certificates, "sh", dir, data,
			(char *)NULL);
		_exit(127);
	}
	close(null);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void
read_file(struct buf *b, const char *name)
{
	char path[112];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "r");
	assert_non_null(f);
	b->len += fread(buf_reserve(b, 16384), 1, 16384, f);
	fclose(f);
	assert_true(b->len > 0);
}

static int
group_setup(void **state)
{
	char data[96], path[112];
	PGconn *c;

	(void)state;
	pgserver_init(&server);
	snprintf(dir, sizeof(dir), "%s/tls", server.dir);
	snprintf(data, sizeof(data), "%s/data", server.dir);
	run_script(data);
	snprintf(path, sizeof(path), "%s/server.key", data);
	if (geteuid() == 0)
		assert_int_equal(chown(path, server.uid, server.gid), 0);
	read_file(&ca, "ca.crt");
	read_file(&other, "other.crt");
	read_file(&both, "both.crt");
	c = pgserver_connect(&server, "postgres");
	pgserver_value(c, "alter system set ssl = on");
	pgserver_value(
		c, "create role guarded login replication password 'pw'");
	PQfinish(c);
	pgserver_stop(&server);
	pgserver_start(&server);
	return 0;
}

static int
group_teardown(void **state)
{
	(void)state;
	pgserver_fini(&server);
	buf_fini(&ca);
	buf_fini(&other);
	buf_fini(&both);
	return 0;
}

static void
is_encrypted(struct fix *f, const char *yes)
{
	dial_up(f);
	value_is(f,
		"select ssl::text from pg_stat_ssl where pid ="
		" pg_backend_pid()",
		yes);
}

static void
test_verify_full_with_a_certificate(void **state)
{
	struct fix *f = *state;

	f->conn.ssl = CONNDOC_VERIFY_FULL;
	f->conn.host = SPAN_LIT("localhost");
	f->conn.ssl_root_cert = buf_span(&ca);
	is_encrypted(f, "true");
	f->conn.ssl_root_cert = buf_span(&both);
	is_encrypted(f, "true");
	f->conn.ssl_root_cert = buf_span(&other);
	refused(f, "postgres", false,
		"TLS failed with sslMode verify-full: connection to server");
	assert_non_null(strstr(f->why.text, "certificate verify failed"));
	/* the right one of another name */
	f->conn.ssl_root_cert = buf_span(&ca);
	f->conn.host = SPAN_LIT("127.0.0.1");
	refused(f, "postgres", false, "does not match host name \"127.0.0.1\"");
}

static void
test_verify_full_by_the_system(void **state)
{
	struct fix *f = *state;
	char path[112];

	snprintf(path, sizeof(path), "%s/ca.crt", dir);
	f->conn.ssl = CONNDOC_VERIFY_FULL;
	f->conn.host = SPAN_LIT("localhost");
	setenv("PGSSLROOTCERT", path, 1);
	refused(f, "postgres", false, "certificate");
	unsetenv("PGSSLROOTCERT");
	f->conf.ca_file = path;
	is_encrypted(f, "true");
	/* it replaces the system's, a certificate in the document replaces it */
	f->conn.ssl_root_cert = buf_span(&other);
	refused(f, "postgres", false, "certificate verify failed");
}

static void
test_other_modes_take_any_certificate(void **state)
{
	struct fix *f = *state;
	char path[112];

	/* a root certificate somewhere does not make them stricter */
	snprintf(path, sizeof(path), "%s/other.crt", dir);
	setenv("PGSSLROOTCERT", path, 1);
	setenv("PGSSLMODE", "disable", 1);
	f->conn.ssl = CONNDOC_REQUIRE;
	is_encrypted(f, "true");
	f->conn.ssl = CONNDOC_PREFER;
	is_encrypted(f, "true");
	setenv("PGSSLMODE", "require", 1);
	f->conn.ssl = CONNDOC_DISABLE;
	is_encrypted(f, "false");
	unsetenv("PGSSLMODE");
	unsetenv("PGSSLROOTCERT");
}

static void
test_refusals_behind_tls(void **state)
{
	struct fix *f = *state;

	f->conn.user = SPAN_LIT("guarded");
	f->conf.password = SPAN_LIT("wrong-5d0c");
	f->conn.ssl = CONNDOC_REQUIRE;
	refused(f, "postgres", false, "28P01: ");
	/* here libpq tries once more without TLS */
	f->conn.ssl = CONNDOC_PREFER;
	refused(f, "postgres", false, "28P01: ");
	assert_null(strstr(f->why.text, "5d0c"));
	assert_null(strstr(f->why.text, "connection to server"));
	f->conf.password = SPAN_LIT("pw");
	f->conf.use = PGLINK_REPLICATION;
	is_encrypted(f, "true");
}

static bool
four_came(struct fix *f)
{
	return f->answers >= 4;
}

static void
test_big_values_both_ways(void **state)
{
	enum { BIG = 5000000 };
	struct fix *f = *state;
	char *big = memset(malloc(BIG), 'x', BIG);
	struct pglink_param p = { span_make(big, BIG) };

	f->conn.ssl = CONNDOC_REQUIRE;
	f->conf.use = PGLINK_PIPELINE;
	dial_up(f);
	f->answers = 0;
	for (int i = 0; i < 4; i++) {
		pglink_exec(f->k, "echo", "select $1 || 'y'", &p, 1, on_answer,
			&f->a[i]);
		pglink_sync(f->k);
	}
	run_until(f, four_came);
	for (int i = 0; i < 4; i++)
		assert_int_equal(f->a[i].bytes, BIG + 1);
	free(big);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		LINK_TEST(test_verify_full_with_a_certificate),
		LINK_TEST(test_verify_full_by_the_system),
		LINK_TEST(test_other_modes_take_any_certificate),
		LINK_TEST(test_refusals_behind_tls),
		LINK_TEST(test_big_values_both_ways),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
