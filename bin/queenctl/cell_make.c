/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes what a private cell needs and has not: folders, a data directory, a
 * database.  Every step may be repeated: initdb works beside the place and is
 * moved there when it is whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cell_int.h"
#include "err.h"

enum { CELL_OUTPUT = 512 };

/*
 * Settings a cell starts with; the operator may edit postgresql.conf later.
 * The socket folder is the only door: nobody but its owner can enter it.
 */
static const char cell_settings[] = "\n"
				    "# --- queen ---\n"
				    "listen_addresses = ''\n"
				    "unix_socket_permissions = 0700\n"
				    "max_connections = 300\n"
				    "wal_level = logical\n"
				    "shared_buffers = 256MB\n"
				    "max_wal_size = 4GB\n"
				    "wal_compression = on\n"
				    "checkpoint_timeout = 15min\n"
				    "autovacuum_naptime = 15s\n"
				    "log_line_prefix = '%m [%p] %q%a '\n"
				    "timezone = 'UTC'\n"
				    "log_timezone = 'UTC'\n";

void
cell_become_user(const struct cell *c)
{
	if (!c->as_root)
		return;
	if (initgroups(c->user, c->gid) != 0 || setgid(c->gid) != 0 ||
		setuid(c->uid) != 0)
		_exit(126);
	setenv("HOME", c->dir, 1);
	setenv("USER", c->user, 1);
	setenv("LOGNAME", c->user, 1);
	unsetenv("XDG_RUNTIME_DIR"); /* root's; not ours any more */
}

int
cell_make_passable(const char *path)
{
	if (mkdir(path, 0755) != 0)
		return errno == EEXIST ? 0 : -1;
	/* others run root's cells, whatever root hides by habit */
	return geteuid() == 0 ? chmod(path, 0755) : 0;
}

/* mkdir -p; folders on the way are for everyone to pass. */
static int
make_way(const char *dir, struct err *e)
{
	char path[CELL_PATH];

	snprintf(path, sizeof(path), "%s", dir);
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (cell_make_passable(path) != 0)
			return err_errno(e,
				"cannot make folder %s (choose another with "
				"--dir)",
				path);
		*p = '/';
	}
	return 0;
}

static int
make_owned(const struct cell *c, const char *path, mode_t mode, struct err *e)
{
	struct stat st;

	if (mkdir(path, mode) != 0 && errno != EEXIST)
		return err_errno(e,
			"cannot make folder %s (choose another with --dir)",
			path);
	if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode))
		return err_set(e, ERR_CONFIG, "%s is not a folder", path);
	if (c->as_root && st.st_uid != c->uid &&
		lchown(path, c->uid, c->gid) != 0)
		return err_errno(e, "cannot give %s to %s", path, c->user);
	if (!c->as_root && st.st_uid != c->uid)
		return err_set(e, ERR_CONFIG,
			"%s belongs to another user; choose "
			"another folder with --dir",
			path);
	return 0;
}

/* Runs argv as the user of the cell; the tail of its output goes into e. */
static int
run_as_user(const struct cell *c, char *const argv[], struct err *e)
{
	char out[CELL_OUTPUT] = "", piece[256];
	size_t len = 0;
	int fds[2], status;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return err_errno(e, "cannot make a pipe");
	pid_t pid = fork();

	if (pid < 0)
		return err_errno(e, "cannot fork");
	if (pid == 0) {
		cell_become_user(c);
		dup2(fds[1], STDOUT_FILENO);
		dup2(fds[1], STDERR_FILENO);
		if (chdir("/") != 0)
			_exit(126);
		execv(argv[0], argv);
		_exit(127);
	}
	close(fds[1]);
	for (ssize_t n; (n = read(fds[0], piece, sizeof(piece))) > 0;) {
		size_t take = (size_t)n;

		if (len + take >= sizeof(out)) {
			size_t drop = len + take - sizeof(out) + 1;

			if (drop > len)
				drop = len;
			memmove(out, out + drop, len - drop);
			len -= drop;
		}
		memcpy(out + len, piece, take);
		len += take;
		out[len] = '\0';
	}
	close(fds[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	for (char *p = out; *p; p++)
		if (*p == '\n')
			*p = ' ';
	return err_set(e, ERR_IO, "%s failed: %.200s", argv[0], out);
}

/* The first folder on the way to dir that the user of the cell cannot pass. */
static bool
find_barrier(const struct cell *c, const char *dir, char path[CELL_PATH])
{
	char test[] = "/usr/bin/test", flag[] = "-x";
	char *argv[] = { test, flag, path, NULL };
	struct err why = ERR_ZERO;

	snprintf(path, CELL_PATH, "%s", dir);
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (run_as_user(c, argv, &why) != 0)
			return true;
		*p = '/';
	}
	return false;
}

/* Can the user of the cell get there?  Not below root's home, for example. */
static int
check_reach(const struct cell *c, struct err *e)
{
	char test[] = "/usr/bin/test", flag[] = "-w", path[CELL_PATH];
	char *argv[] = { test, flag, path, NULL }, barrier[CELL_PATH];
	struct err why = ERR_ZERO;
	bool found;

	if (!c->as_root)
		return 0;
	if (cell_path(c, "log", path, e) != 0)
		return -1;
	if (run_as_user(c, argv, &why) == 0)
		return 0;
	found = find_barrier(c, path, barrier);
	rmdir(path); /* what this run made, and nothing was put into */
	rmdir(c->dir);
	if (found)
		return err_set(e, ERR_CONFIG,
			"user %s cannot reach %s: %s is closed to others; open "
			"it (chmod a+x) or choose another folder with --dir",
			c->user, c->dir, barrier);
	return err_set(e, ERR_CONFIG,
		"user %s cannot write to %s; choose another folder with --dir",
		c->user, c->dir);
}

static int
append_settings(const char *data, struct err *e)
{
	char path[CELL_PATH + 32];

	snprintf(path, sizeof(path), "%s/postgresql.conf", data);
	FILE *f = fopen(path, "ae");

	if (!f)
		return err_errno(e, "cannot open %s", path);
	bool bad = fputs(cell_settings, f) < 0;

	bad |= fclose(f) != 0;
	return bad ? err_errno(e, "cannot write %s", path) : 0;
}

static int
make_data(const struct cell *c, const char *data, struct err *e)
{
	char fresh[CELL_PATH], initdb[CELL_PATH + 16], rm[] = "/bin/rm";
	char recursive[] = "-rf", d[] = "-D", u[] = "-U", name[] = "queen";
	char local[] = "--auth-local=trust", host[] = "--auth-host=reject";
	char enc[] = "--encoding=UTF8", loc[] = "--locale=C.UTF-8";
	char quiet[] = "--no-instructions";

	if (cell_path(c, "data.new", fresh, e) != 0)
		return -1;
	snprintf(initdb, sizeof(initdb), "%s/initdb", c->bindir);
	char *clear[] = { rm, recursive, fresh, NULL };
	char *make[] = { initdb, d, fresh, u, name, local, host, enc, loc,
		quiet, NULL };

	if (access(fresh, F_OK) == 0 && run_as_user(c, clear, e) != 0)
		return -1;
	if (make_owned(c, fresh, 0700, e) != 0 ||
		run_as_user(c, make, e) != 0 || append_settings(fresh, e) != 0)
		return -1;
	if (rename(fresh, data) != 0)
		return err_errno(e, "cannot move %s to %s", fresh, data);
	return 0;
}

int
cell_make(const struct cell *c, struct err *e)
{
	char data[CELL_PATH], log[CELL_PATH], sock_base[sizeof(c->sock)];

	if (cell_path(c, "data", data, e) != 0 ||
		cell_path(c, "log", log, e) != 0)
		return -1;
	snprintf(sock_base, sizeof(sock_base), "%s", c->sock);
	*strrchr(sock_base, '/') = '\0';
	if (make_way(c->dir, e) != 0 || make_owned(c, c->dir, 0755, e) != 0 ||
		make_owned(c, log, 0755, e) != 0 || check_reach(c, e) != 0 ||
		make_way(c->sock, e) != 0 ||
		make_owned(c, c->sock, 0700, e) != 0)
		return -1;
	if (access(data, F_OK) == 0)
		return 0;
	return make_data(c, data, e);
}

int
cell_make_database(const struct cell *c, struct err *e)
{
	const char *keys[] = { "host", "user", "dbname", NULL };
	const char *vals[] = { c->sock, "queen", "postgres", NULL };
	PGconn *pg = PQconnectdbParams(keys, vals, 0);
	PGresult *res = NULL;
	int rc = 0;

	if (PQstatus(pg) != CONNECTION_OK) {
		rc = err_set(e, ERR_IO, "cannot connect to the new server: %s",
			PQerrorMessage(pg));
		goto out;
	}
	res = PQexec(pg,
		"select 1 from pg_database where datname = '" CELL_DATABASE
		"'");
	if (PQresultStatus(res) == PGRES_TUPLES_OK && PQntuples(res) == 1)
		goto out;
	PQclear(res);
	res = PQexec(pg, "create database " CELL_DATABASE
			 " encoding 'UTF8' template template0");
	if (PQresultStatus(res) != PGRES_COMMAND_OK)
		rc = err_set(e, ERR_IO, "cannot create the database: %s",
			PQerrorMessage(pg));
out:
	PQclear(res);
	PQfinish(pg);
	return rc;
}

int
cell_write_env(const struct cell *c, struct err *e)
{
	char path[CELL_PATH], fresh[CELL_PATH];

	if (cell_path(c, "cell.env", path, e) != 0 ||
		cell_path(c, "cell.env.new", fresh, e) != 0)
		return -1;
	FILE *f = fopen(fresh, "we");
	char with[64], ojs[300];

	if (!f)
		return err_errno(e, "cannot open %s", fresh);
	cell_with_write(c, with, sizeof(with));
	cell_with_ojs_url(c, ojs, sizeof(ojs));
	fprintf(f,
		"QUEEN_SERVER=http://%s:%d\nPG_HOST=%s\nPG_USER=queen\n"
		"PG_DATABASE=" CELL_DATABASE "\nQUEEN_WITH=%s\n"
		"QUEEN_OJS_URL=%s\n",
		strcmp(c->bind, "0.0.0.0") == 0 ? "127.0.0.1" : c->bind,
		c->port, c->sock, with, ojs);
	if (fclose(f) != 0 || rename(fresh, path) != 0)
		return err_errno(e, "cannot write %s", path);
	return 0;
}
