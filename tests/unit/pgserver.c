/* SPDX-License-Identifier: Apache-2.0 */
#include "pgserver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <signal.h>
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NOBODY = 65534, TRIES = 600 };

static void
die(const char *what)
{
	fprintf(stderr, "pgserver: %s: %s\n", what, strerror(errno));
	exit(1);
}

static char chosen[256]; /* empty: the distribution's */

bool
pgserver_choose(const char *version)
{
	char rel[64], *bin = NULL;

	chosen[0] = '\0';
	if (!version)
		return true;
	snprintf(rel, sizeof rel, "build/pg/%s/bin", version);
	bin = realpath(rel, NULL);
	snprintf(chosen, sizeof chosen, "%s", bin ? bin : "");
	free(bin);
	return chosen[0] != '\0';
}

static void
find_bin(struct pgserver *s)
{
	glob_t g;

	if (chosen[0] != '\0') {
		snprintf(s->bin, sizeof s->bin, "%s", chosen);
		return;
	}
	if (glob("/usr/lib/postgresql/*/bin", 0, NULL, &g) != 0)
		die("no /usr/lib/postgresql/*/bin");
	snprintf(s->bin, sizeof s->bin, "%s", g.gl_pathv[g.gl_pathc - 1]);
	globfree(&g);
}

static bool
port_is_free(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	bool ok;

	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	ok = bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
	close(fd);
	return ok;
}

/*
 * Below the ephemeral range, and ours as long as this process lives: by the
 * locks that the cell tests take.
 */
static int
free_port(void)
{
	char path[96];

	snprintf(path, sizeof path, "/tmp/queen-test-ports-%d", (int)getuid());
	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		die(path);
	for (int i = 0; i < TRIES; i++) {
		int port = 12000 + (int)randombytes_uniform(20000), fd;

		snprintf(path, sizeof path, "/tmp/queen-test-ports-%d/%d",
			(int)getuid(), port);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0)
			die(path);
		if (flock(fd, LOCK_EX | LOCK_NB) == 0 && port_is_free(port))
			return port;
		close(fd);
	}
	die("no free port");
	return 0;
}

static void
nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000000 }, NULL);
}

/*
 * PostgreSQL refuses to run as root, and finds its other programs by the path
 * in argv[0], which is put there from the bare name.
 */
static pid_t
spawn(const struct pgserver *s, const char **argv)
{
	char path[320], log[96];
	pid_t pid = fork();
	int fd;

	if (pid < 0)
		die("fork");
	if (pid > 0)
		return pid;
	snprintf(path, sizeof path, "%s/%s", s->bin, argv[0]);
	snprintf(log, sizeof log, "%s/log", s->dir);
	if (geteuid() == 0 && (setresgid(s->gid, s->gid, s->gid) != 0 ||
				      setresuid(s->uid, s->uid, s->uid) != 0))
		_exit(126);
	/* after setresuid, which clears it */
	prctl(PR_SET_PDEATHSIG, SIGQUIT);
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
	if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0 || chdir(s->dir) != 0)
		_exit(126);
	setenv("LC_ALL", "C", 1);
	argv[0] = path;
	execv(path, (char *const *)(uintptr_t)argv);
	_exit(127);
}

static void
print_log(const struct pgserver *s)
{
	char path[96], line[512];
	FILE *f;

	snprintf(path, sizeof path, "%s/log", s->dir);
	f = fopen(path, "r");
	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		fprintf(stderr, "%s", line);
	if (f != NULL)
		fclose(f);
}

static void
put_file(const struct pgserver *s, const char *name, const char *mode,
	const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof path, "%s/data/%s", s->dir, name);
	f = fopen(path, mode);
	if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0)
		die(path);
}

static void
make_data(const struct pgserver *s, const char *data)
{
	const char *argv[] = { "initdb", "--no-sync", "-D", data, "-U",
		"postgres", "-A", "trust", "-E", "UTF8", "--locale=C", NULL };
	int status;

	if (waitpid(spawn(s, argv), &status, 0) < 0 || status != 0) {
		print_log(s);
		die("initdb");
	}
}

static int
on_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static bool
remove_tree(const char *path)
{
	return nftw(path, on_entry, 16, FTW_DEPTH | FTW_PHYS) == 0;
}

static bool
copy_tree(const char *from, const char *to)
{
	char command[1024];

	snprintf(command, sizeof command, "cp -a '%s' '%s'", from, to);
	return system(command) == 0;
}

/* initdb takes longest of a start: what it makes is kept in build/, copied. */
static void
make_or_copy_data(const struct pgserver *s, const char *data)
{
	char kept[320], new[328], lock[328];
	int fd;

	snprintf(kept, sizeof kept, "build/pgdata/unit-%d%s", (int)s->uid,
		s->bin);
	for (char *p = kept + strlen("build/pgdata/"); *p != '\0'; p++)
		*p = *p == '/' ? '-' : *p;
	snprintf(new, sizeof new, "%s.new", kept);
	snprintf(lock, sizeof lock, "%s.lock", kept);
	if (mkdir("build/pgdata", 0755) != 0 && errno != EEXIST) {
		make_data(s, data); /* not run from the root of the source */
		return;
	}
	fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_EX) != 0)
		die(lock);
	if (access(kept, F_OK) == 0) {
		if (!copy_tree(kept, data))
			die(kept);
	} else {
		make_data(s, data);
		remove_tree(new); /* of one that was killed */
		if (!copy_tree(data, new) || rename(new, kept) != 0)
			die(new);
	}
	close(fd);
}

/* In memory when there is room. */
static const char *
home(void)
{
	struct statvfs fs;
	const char *shm = "/dev/shm";

	if (access(shm, W_OK) != 0 || statvfs(shm, &fs) != 0 ||
		(uint64_t)fs.f_bavail * fs.f_frsize < (uint64_t)1 << 32)
		return "/tmp";
	return shm;
}

void
pgserver_init(struct pgserver *s)
{
	char data[80];

	memset(s, 0, sizeof *s);
	find_bin(s);
	s->uid = geteuid() == 0 ? NOBODY : geteuid();
	s->gid = geteuid() == 0 ? NOBODY : getegid();
	snprintf(s->dir, sizeof s->dir, "%s/queen-unit-XXXXXX", home());
	if (mkdtemp(s->dir) == NULL)
		die("mkdtemp");
	if (geteuid() == 0 && chown(s->dir, s->uid, s->gid) != 0)
		die("chown");
	snprintf(data, sizeof data, "%s/data", s->dir);
	make_or_copy_data(s, data);
	put_file(s, "pg_hba.conf", "w",
		"host all guarded 127.0.0.1/32 scram-sha-256\n"
		"local all all trust\nhost all all 127.0.0.1/32 trust\n");
	put_file(s, "postgresql.conf", "a",
		"fsync = off\nlisten_addresses = '127.0.0.1'\n"
		"shared_buffers = '16MB'\nautovacuum = off\n"
		"max_connections = 40\nlc_messages = 'C'\n");
	s->port = free_port();
	snprintf(s->conninfo, sizeof s->conninfo,
		"host=127.0.0.1 port=%d user=postgres dbname=postgres "
		"gssencmode=disable sslmode=disable",
		s->port);
	pgserver_start(s);
}

void
pgserver_start(struct pgserver *s)
{
	char data[80], port[16];
	const char *argv[] = { "postgres", "-D", data, "-p", port, "-k", s->dir,
		NULL };

	snprintf(data, sizeof data, "%s/data", s->dir);
	snprintf(port, sizeof port, "%d", s->port);
	s->pid = spawn(s, argv);
	for (int i = 0; i < TRIES; i++) {
		if (PQping(s->conninfo) == PQPING_OK)
			return;
		if (waitpid(s->pid, NULL, WNOHANG) == s->pid)
			break;
		nap();
	}
	print_log(s);
	die("the server does not start");
}

void
pgserver_stop(struct pgserver *s)
{
	if (s->pid > 0) {
		kill(s->pid, SIGQUIT);
		waitpid(s->pid, NULL, 0);
	}
	s->pid = 0;
}

void
pgserver_fini(struct pgserver *s)
{
	pgserver_stop(s);
	if (!remove_tree(s->dir))
		die("cannot remove the folder");
}

PGconn *
pgserver_connect(const struct pgserver *s, const char *database)
{
	char info[320];
	PGconn *c;

	snprintf(info, sizeof info, "%s dbname=%s", s->conninfo, database);
	c = PQconnectdb(info);
	if (PQstatus(c) != CONNECTION_OK) {
		fprintf(stderr, "pgserver: %s\n", PQerrorMessage(c));
		exit(1);
	}
	return c;
}

static PGresult *
run(PGconn *c, const char *sql)
{
	PGresult *r = PQexec(c, sql);
	ExecStatusType st = PQresultStatus(r);

	if (st != PGRES_TUPLES_OK && st != PGRES_COMMAND_OK) {
		fprintf(stderr, "pgserver: %.200s: %s\n", sql,
			PQerrorMessage(c));
		exit(1);
	}
	return r;
}

void
pgserver_run(PGconn *c, const char *sql)
{
	PQclear(run(c, sql));
}

const char *
pgserver_value(PGconn *c, const char *sql)
{
	static char value[256];
	PGresult *r = run(c, sql);

	snprintf(value, sizeof value, "%s",
		PQntuples(r) > 0 ? PQgetvalue(r, 0, 0) : "");
	PQclear(r);
	return value;
}
