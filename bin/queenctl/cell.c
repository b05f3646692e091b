/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a private cell is and whether it runs.  The lock on cell.lock is the
 * truth: it is held exactly as long as the supervisor lives, whatever kills
 * it.
 */
#include "cell.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cell_int.h"
#include "clk.h"
#include "err.h"
#include "span.h"

enum { CELL_PG_MIN = 15, CELL_POLL_US = 20000 };

static int
put_path(char *out, size_t cap, struct err *e, const char *a, const char *b)
{
	int n = snprintf(out, cap, "%s%s", a, b);

	if (n < 0 || (size_t)n >= cap)
		return err_set(
			e, ERR_CONFIG, "path too long: %.60s...%s", a, b);
	return 0;
}

int
cell_path(const struct cell *c, const char *name, char out[CELL_PATH],
	struct err *e)
{
	int n = snprintf(out, CELL_PATH, "%s/%s", c->dir, name);

	if (n < 0 || n >= CELL_PATH)
		return err_set(e, ERR_CONFIG, "path too long: %s", name);
	return 0;
}

static int
default_dir(char out[CELL_PATH], struct err *e)
{
	const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");

	if (geteuid() == 0)
		return put_path(out, CELL_PATH, e, "/var/lib", "/queen/cell");
	if (data && data[0] == '/')
		return put_path(out, CELL_PATH, e, data, "/queen/cell");
	if (home && home[0] == '/')
		return put_path(
			out, CELL_PATH, e, home, "/.local/share/queen/cell");
	return err_set(e, ERR_CONFIG,
		"HOME is not set; name a folder with "
		"--dir");
}

static int
absolute_dir(char out[CELL_PATH], const char *dir, struct err *e)
{
	char cwd[CELL_PATH];

	if (dir[0] == '/')
		return put_path(out, CELL_PATH, e, dir, "");
	if (!getcwd(cwd, sizeof(cwd)))
		return err_errno(e, "cannot tell the current folder");
	int n = snprintf(out, CELL_PATH, "%s/%s", cwd, dir);

	if (n < 0 || n >= CELL_PATH)
		return err_set(e, ERR_CONFIG, "path too long: %s", dir);
	return 0;
}

/* root drops to the first of these that exists. */
static int
choose_user(struct cell *c, struct err *e)
{
	static const char *const names[] = { "queen", "postgres", "nobody" };
	const struct passwd *pw;

	c->as_root = geteuid() == 0;
	if (!c->as_root) {
		pw = getpwuid(geteuid());
		c->uid = geteuid();
		c->gid = getegid();
		snprintf(c->user, sizeof(c->user), "%s",
			pw ? pw->pw_name : "queen");
		return 0;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		pw = getpwnam(names[i]);
		if (!pw || pw->pw_uid == 0)
			continue;
		c->uid = pw->pw_uid;
		c->gid = pw->pw_gid;
		snprintf(c->user, sizeof(c->user), "%s", pw->pw_name);
		return 0;
	}
	return err_set(e, ERR_CONFIG,
		"there is no unprivileged user to run the servers as; create "
		"one: useradd --system queen");
}

/*
 * The socket folder is short whatever DIR is (a socket path holds 107 bytes),
 * and named after DIR so that cells do not meet.
 */
static int
choose_sock(struct cell *c, struct err *e)
{
	const char *run = getenv("XDG_RUNTIME_DIR");
	char base[64];

	if (c->as_root)
		snprintf(base, sizeof(base), "/run/queen");
	else if (run && run[0] == '/' && strlen(run) < 40)
		snprintf(base, sizeof(base), "%s/queen", run);
	else
		snprintf(base, sizeof(base), "/tmp/queen-%u", (unsigned)c->uid);
	int n = snprintf(c->sock, sizeof(c->sock), "%s/cell-%012llx", base,
		(unsigned long long)(span_hash(span_of(c->dir), 0) >> 16));

	if (n < 0 ||
		(size_t)n + sizeof("/.s.PGSQL.65535.lock") > sizeof(c->sock))
		return err_set(e, ERR_CONFIG, "socket path too long: %s", base);
	return 0;
}

int
cell_locate(struct cell *c, const char *dir, struct err *e)
{
	memset(c, 0, sizeof(*c));
	c->port = CELL_PORT_DEFAULT;
	snprintf(c->bind, sizeof(c->bind), "127.0.0.1");
	int rc = dir && *dir ? absolute_dir(c->dir, dir, e)
			     : default_dir(c->dir, e);
	if (rc != 0 || choose_user(c, e) != 0)
		return -1;
	for (size_t n = strlen(c->dir); n > 1 && c->dir[n - 1] == '/'; n--)
		c->dir[n - 1] = '\0';
	return choose_sock(c, e);
}

/* ---- programs ---- */

static bool
is_program(const char *dir, const char *name)
{
	char path[CELL_PATH + 32];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, X_OK) == 0;
}

/* The newest of Debian's version folders. */
static void
search_bindir(char out[CELL_PATH])
{
	static const char root[] = "/usr/lib/postgresql";
	DIR *d = opendir(root);
	const struct dirent *ent;
	long best = 0;

	if (!d)
		return;
	while ((ent = readdir(d))) {
		char path[CELL_PATH];
		long v = strtol(ent->d_name, NULL, 10);
		int n = snprintf(
			path, sizeof(path), "%s/%.16s/bin", root, ent->d_name);

		if (v < CELL_PG_MIN || v <= best || n < 0 ||
			(size_t)n >= sizeof(path))
			continue;
		if (is_program(path, "initdb") &&
			is_program(path, "postgres")) {
			best = v;
			snprintf(out, CELL_PATH, "%s", path);
		}
	}
	closedir(d);
}

/* Ours lie beside queenctl, or in the PATH. */
static int
find_ours(const char *name, char out[CELL_PATH], struct err *e)
{
	char self[CELL_PATH], rest[40];
	const char *path = getenv("PATH");
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	snprintf(rest, sizeof(rest), "/%s", name);
	if (n > 0) {
		self[n] = '\0';
		char *slash = strrchr(self, '/');

		if (slash) {
			*slash = '\0';
			if (is_program(self, name))
				return put_path(out, CELL_PATH, e, self, rest);
		}
	}
	while (path && *path) {
		size_t len = strcspn(path, ":");

		if (len > 0 && len < CELL_PATH) {
			snprintf(self, sizeof(self), "%.*s", (int)len, path);
			if (is_program(self, name))
				return put_path(out, CELL_PATH, e, self, rest);
		}
		path += len + (path[len] == ':');
	}
	return err_set(e, ERR_CONFIG,
		"cannot find %s beside queenctl or in PATH", name);
}

int
cell_find_programs(struct cell *c, struct err *e)
{
	const char *given = getenv("QUEEN_PG_BIN");

	c->bindir[0] = '\0';
	if (given && *given) {
		if (!is_program(given, "initdb") ||
			!is_program(given, "postgres"))
			return err_set(e, ERR_CONFIG,
				"QUEEN_PG_BIN=\"%s\" holds no initdb and "
				"postgres",
				given);
		if (put_path(c->bindir, sizeof(c->bindir), e, given, "") != 0)
			return -1;
	} else {
		search_bindir(c->bindir);
	}
	if (c->bindir[0] == '\0')
		return err_set(e, ERR_CONFIG,
			"cannot find PostgreSQL %d or newer; install it "
			"(apt-get install postgresql), or name the folder of "
			"initdb and postgres in QUEEN_PG_BIN",
			CELL_PG_MIN);
	for (int i = 0; i < CELL_TOOLS; i++)
		if (c->with[i] &&
			find_ours(cell_tools[i].name, c->tool[i], e) != 0)
			return -1;
	return find_ours("queend", c->queend, e);
}

/* ---- whether it runs ---- */

int
cell_lock(const struct cell *c, int *fd, struct err *e)
{
	char path[CELL_PATH], pid[32];

	if (cell_path(c, "cell.lock", path, e) != 0)
		return -1;
	*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (*fd < 0)
		return err_errno(e, "cannot open %s", path);
	if (flock(*fd, LOCK_EX | LOCK_NB) != 0) {
		int why = errno;

		close(*fd);
		*fd = -1;
		errno = why;
		return why == EWOULDBLOCK
			       ? 0
			       : err_errno(e, "cannot lock %s", path);
	}
	int n = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());

	if (ftruncate(*fd, 0) != 0 || pwrite(*fd, pid, (size_t)n, 0) != n)
		return err_errno(e, "cannot write %s", path);
	return 1;
}

static void
read_env(const struct cell *c, struct cell_running *out)
{
	char path[CELL_PATH], line[512];
	struct err e = ERR_ZERO;
	FILE *f;

	if (cell_path(c, "cell.env", path, &e) != 0 || !(f = fopen(path, "re")))
		return;
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		const char *v = strchr(line, '=');

		if (!v)
			continue;
		v++;
#define TAKE(key, field)                                                       \
	if (strncmp(line, key "=", sizeof(key)) == 0)                          \
	snprintf(out->field, sizeof(out->field), "%.*s",                       \
		(int)sizeof(out->field) - 1, v)
		TAKE("QUEEN_SERVER", url);
		TAKE("QUEEN_OJS_URL", ojs_url);
		TAKE("PG_HOST", pg_host);
		TAKE("PG_USER", pg_user);
		TAKE("PG_DATABASE", pg_database);
		TAKE("QUEEN_WITH", with);
#undef TAKE
	}
	fclose(f);
}

bool
cell_is_running(const struct cell *c, struct cell_running *out)
{
	char path[CELL_PATH], text[32] = "";
	struct err e = ERR_ZERO;

	if (cell_path(c, "cell.lock", path, &e) != 0)
		return false;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	close(fd);
	if (!held || n <= 0)
		return false;
	if (out) {
		memset(out, 0, sizeof(*out));
		out->pid = (pid_t)strtol(text, NULL, 10);
		read_env(c, out);
	}
	return true;
}

int
cell_down(struct cell *c, int64_t timeout_ms, struct err *e)
{
	struct cell_running run;
	int64_t until_ms = clk_mono_ms() + timeout_ms;

	if (!cell_is_running(c, &run))
		return 1;
	if (run.pid <= 1 || kill(run.pid, SIGTERM) != 0)
		return err_errno(
			e, "cannot signal the supervisor %ld", (long)run.pid);
	while (cell_is_running(c, NULL)) {
		if (clk_mono_ms() > until_ms)
			return err_set(e, ERR_IO,
				"the cell in %s still runs after %lld s",
				c->dir, (long long)timeout_ms / 1000);
		usleep(CELL_POLL_US);
	}
	return 0;
}

/* ---- the cell used last ---- */

static bool
last_file(char out[CELL_PATH])
{
	const char *home = getenv("HOME");
	struct err e = ERR_ZERO;

	if (geteuid() == 0)
		return put_path(out, CELL_PATH, &e, "/var/lib/queen",
			       "/last-cell") == 0;
	return home && home[0] == '/' &&
	       put_path(out, CELL_PATH, &e, home, "/.queen/last-cell") == 0;
}

bool
cell_last(char dir[CELL_PATH])
{
	char path[CELL_PATH];
	FILE *f;
	bool got = false;

	if (!last_file(path) || !(f = fopen(path, "re")))
		return false;
	if (fgets(dir, CELL_PATH, f)) {
		dir[strcspn(dir, "\n")] = '\0';
		got = dir[0] == '/';
	}
	fclose(f);
	return got;
}

void
cell_remember(const char *dir)
{
	char path[CELL_PATH];
	FILE *f;

	if (!last_file(path))
		return;
	char *slash = strrchr(path, '/');

	*slash = '\0';
	/* root's is on the way to the cell, other users' hold secrets too */
	int rc = geteuid() == 0 ? cell_make_passable(path) : mkdir(path, 0700);

	*slash = '/';
	f = rc == 0 || errno == EEXIST ? fopen(path, "we") : NULL;
	if (!f)
		return; /* a convenience only: --dir and --server still work */
	fprintf(f, "%s\n", dir);
	fclose(f);
}
