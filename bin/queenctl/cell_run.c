/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds a private cell up.  The supervisor waits for signals and nothing
 * else: a child that dies is started again, with a pause that grows; SIGTERM
 * ends the tools first, then queend, then PostgreSQL.  Should the supervisor
 * itself be killed, the kernel tells the children (PDEATHSIG).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cell_int.h"
#include "clk.h"
#include "err.h"
#include "exit.h"
#include "log.h"

enum {
	RUN_BOOT_MS = 120000, /* recovery after a crash takes time */
	RUN_POLL_US = 20000,
	RUN_PAUSE_MIN_MS = 200,
	RUN_PAUSE_MAX_MS = 10000,
	RUN_STOP_QUEEND_MS = 20000,
	RUN_STOP_TOOL_MS = 130000, /* above every default grace */
	RUN_LOG_MAX_BYTES = 16 << 20,
};

struct child {
	const char *name;
	const char *path; /* NULL: postgres */
	int number; /* of a tool */
	pid_t pid; /* 0 = not running */
	int64_t started_ms, again_ms, pause_ms;
	off_t log_from; /* where its log of this start begins */
};

struct run {
	struct cell *c;
	struct child postgres, queend, tool[CELL_TOOLS];
	int lock_fd, ready_fd;
	bool stopping;
};

static bool
log_path(const struct cell *c, const char *name, char out[CELL_PATH])
{
	char rel[64];
	struct err e = ERR_ZERO;

	snprintf(rel, sizeof(rel), "log/%s.log", name);
	return cell_path(c, rel, out, &e) == 0;
}

/* Appends to DIR/log/NAME.log; a large one of before moves aside. */
static void
redirect_output(const struct cell *c, const char *name)
{
	char path[CELL_PATH], old[CELL_PATH + 8];
	struct stat st;

	if (!log_path(c, name, path))
		return;
	if (stat(path, &st) == 0 && st.st_size > RUN_LOG_MAX_BYTES) {
		snprintf(old, sizeof(old), "%s.1", path);
		rename(path, old);
	}
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0640);

	if (fd < 0)
		return;
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	close(fd);
}

/* In the child: its own group, so that Ctrl-C reaches the supervisor alone. */
static void
prepare_child(const struct cell *c, const char *name, int death_signal)
{
	sigset_t none;

	setpgid(0, 0);
	cell_become_user(c);
	prctl(PR_SET_PDEATHSIG, death_signal);
	if (getppid() == 1)
		_exit(1); /* the supervisor went before the line above */
	redirect_output(c, name);
	int null = open("/dev/null", O_RDONLY);

	if (null >= 0)
		dup2(null, STDIN_FILENO);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (chdir("/") != 0)
		_exit(126);
}

static void
exec_postgres(const struct cell *c, const struct child *ch)
{
	char path[CELL_PATH + 16], data[CELL_PATH];
	struct err e = ERR_ZERO;

	if (cell_path(c, "data", data, &e) != 0)
		_exit(126);
	prepare_child(c, ch->name, SIGINT); /* fast shutdown */
	snprintf(path, sizeof(path), "%s/postgres", c->bindir);
	/* by its path: a bare name it would look up in PATH, to find itself */
	execl(path, path, "-D", data, "-k", c->sock, (char *)NULL);
	_exit(127);
}

/* What ours are told beside the environment of `up`. */
static void
set_environment(const struct cell *c)
{
	static const char *const cleared[] = { "QUEEN_PG_CONNINFO",
		"PG_PASSWORD", "PG_PORT", "PG_USE_SSL", "PG_DB", "PGSERVICE",
		"PGPASSWORD", "PGOPTIONS", "NOTIFY_SOCKET", "JOURNAL_STREAM" };
	char port[16];

	for (size_t i = 0; i < sizeof(cleared) / sizeof(cleared[0]); i++)
		unsetenv(cleared[i]);
	snprintf(port, sizeof(port), "%d", c->port);
	setenv("PORT", port, 1);
	setenv("QUEEN_BIND_ADDR", c->bind, 1);
	setenv("QUEEN_RUN_DIR", c->sock, 1);
	setenv("PG_HOST", c->sock, 1);
	setenv("PG_USER", "queen", 1);
	setenv("PG_DATABASE", CELL_DATABASE, 1);
	cell_with_env(c);
}

/* One of ours. */
static void
exec_ours(const struct cell *c, const struct child *ch)
{
	char folder[CELL_PATH], name[32];
	char *argv[] = { name, NULL };

	/*
	 * Opened while we may: a checkout below root's home is closed to the
	 * user the servers run as, the program in it is not.
	 */
	snprintf(name, sizeof(name), "%s", ch->name);
	snprintf(folder, sizeof(folder), "%s", ch->path);
	*strrchr(folder, '/') = '\0';
	int folder_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int file_fd = open(ch->path, O_PATH | O_CLOEXEC);

	prepare_child(c, ch->name, SIGTERM);
	set_environment(c);
	execveat(folder_fd, name, argv, environ, 0); /* keeps its name in ps */
	execveat(file_fd, "", argv, environ, AT_EMPTY_PATH);
	fprintf(stderr, "cannot run %s as user %s: %s\n", ch->path, c->user,
		strerror(errno));
	_exit(127);
}

static int
start_child(struct run *r, struct child *ch, struct err *e)
{
	char path[CELL_PATH];
	struct stat st;

	ch->log_from = log_path(r->c, ch->name, path) && stat(path, &st) == 0 &&
				       st.st_size <= RUN_LOG_MAX_BYTES
			       ? st.st_size
			       : 0;
	pid_t pid = fork();

	if (pid < 0)
		return err_errno(e, "cannot fork");
	if (pid == 0) {
		if (ch->path)
			exec_ours(r->c, ch);
		else
			exec_postgres(r->c, ch);
	}
	ch->pid = pid;
	ch->started_ms = clk_mono_ms();
	return 0;
}

/* True when the child ended; its status is reported once. */
static bool
reap(struct child *ch)
{
	int status;

	if (ch->pid == 0 || waitpid(ch->pid, &status, WNOHANG) != ch->pid)
		return false;
	if (WIFSIGNALED(status))
		log_line(LOG_WARN, "cell", "a server was killed",
			"name=%s signal=%d", ch->name, WTERMSIG(status));
	else
		log_line(LOG_INFO, "cell", "a server ended",
			"name=%s status=%d", ch->name, WEXITSTATUS(status));
	ch->pid = 0;
	return true;
}

static bool
postgres_answers(const struct cell *c, const struct child *ch)
{
	(void)ch;

	const char *keys[] = { "host", "user", "dbname", NULL };
	const char *vals[] = { c->sock, "queen", "postgres", NULL };

	return PQpingParams(keys, vals, 0) == PQPING_OK;
}

/* Ours listen when they are ready, so a connection is enough. */
bool
cell_answers(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list;
	bool ok = false;

	if (getaddrinfo(host, port, &hints, &list) != 0)
		return false;
	int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0)
		ok = connect(fd, list->ai_addr, list->ai_addrlen) == 0;
	if (fd >= 0)
		close(fd);
	freeaddrinfo(list);
	return ok;
}

static bool
queend_answers(const struct cell *c, const struct child *ch)
{
	char port[16];

	(void)ch;
	snprintf(port, sizeof(port), "%d", c->port);
	return cell_answers(
		strcmp(c->bind, "0.0.0.0") == 0 ? "127.0.0.1" : c->bind, port);
}

static bool
tool_answers(const struct cell *c, const struct child *ch)
{
	return cell_with_answers(c, ch->number);
}

/* What its log says of this start last, a fatal line rather than another. */
static void
last_words(const struct cell *c, const struct child *ch, char *out, size_t cap)
{
	char path[CELL_PATH], line[512];
	bool fatal = false;
	FILE *f;

	out[0] = '\0';
	if (!log_path(c, ch->name, path) || !(f = fopen(path, "re")))
		return;
	fseeko(f, ch->log_from, SEEK_SET);
	while (fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, "FATAL:");

		line[strcspn(line, "\n")] = '\0';
		if (!line[0] || (fatal && !at))
			continue;
		fatal |= at != NULL;
		snprintf(out, cap, "%.*s", (int)cap - 1, at ? at : line);
	}
	fclose(f);
}

static int
wait_for(struct run *r, struct child *ch,
	bool (*ready)(const struct cell *, const struct child *), struct err *e)
{
	int64_t until_ms = clk_mono_ms() + RUN_BOOT_MS;
	char words[160];

	while (!ready(r->c, ch)) {
		if (reap(ch)) {
			last_words(r->c, ch, words, sizeof(words));
			return err_set(e, ERR_IO,
				"%s ended at start; see %s/log/%s.log%s%s",
				ch->name, r->c->dir, ch->name,
				words[0] ? ": " : "", words);
		}
		if (clk_mono_ms() > until_ms)
			return err_set(e, ERR_IO,
				"%s is not ready after %d s; see "
				"%s/log/%s.log",
				ch->name, RUN_BOOT_MS / 1000, r->c->dir,
				ch->name);
		usleep(RUN_POLL_US);
	}
	return 0;
}

/* The user of the cell, who may be less than we are, binds ports from here. */
static int
first_free_port(void)
{
	FILE *f = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");
	int port = 1024;

	if (f && fscanf(f, "%d", &port) != 1)
		port = 1024;
	if (f)
		fclose(f);
	return port;
}

/*
 * Another program on the port would look like queend answering, and queend
 * shares its port with others: a plain bind() tells before anything is made.
 */
static int
check_port(const struct cell *c, struct err *e)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE,
		.ai_socktype = SOCK_STREAM };
	struct addrinfo *list, *a;
	int on = 1, why = 0;
	bool some = false;
	char port[16];

	snprintf(port, sizeof(port), "%d", c->port);
	int rc = getaddrinfo(c->bind, port, &hints, &list);

	if (rc != 0)
		return err_set(e, ERR_CONFIG, "cannot resolve --bind %s: %s",
			c->bind, gai_strerror(rc));
	for (a = list; a && why != EADDRINUSE; a = a->ai_next) {
		int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		if (a->ai_family == AF_INET6 && list->ai_next)
			setsockopt(
				fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
		if (bind(fd, a->ai_addr, a->ai_addrlen) != 0)
			why = errno;
		else
			some = true;
		close(fd);
	}
	freeaddrinfo(list);
	if (why == EADDRINUSE)
		return err_set(e, ERR_IO,
			"port %d of %s is in use by another program; choose "
			"another with --port",
			c->port, c->bind);
	/* a name may stand for addresses that this machine has not */
	if (some && why == EADDRNOTAVAIL)
		why = 0;
	if (why == EADDRNOTAVAIL)
		return err_set(e, ERR_CONFIG,
			"--bind %s is no address of this machine", c->bind);
	if (why == EACCES || (c->as_root && c->port < first_free_port()))
		return err_set(e, ERR_CONFIG,
			"user %s may not listen on port %d; choose one from "
			"%d on with --port",
			c->user, c->port, first_free_port());
	errno = why;
	return why ? err_errno(e, "cannot listen on %s", c->bind) : 0;
}

static int
boot(struct run *r, struct err *e)
{
	struct cell *c = r->c;

	if (check_port(c, e) != 0 || cell_find_programs(c, e) != 0 ||
		cell_make(c, e) != 0 || cell_with_key(c, e) != 0)
		return -1;
	if (start_child(r, &r->postgres, e) != 0 ||
		wait_for(r, &r->postgres, postgres_answers, e) != 0 ||
		cell_make_database(c, e) != 0)
		return -1;
	r->queend.path = c->queend;
	if (start_child(r, &r->queend, e) != 0 ||
		wait_for(r, &r->queend, queend_answers, e) != 0)
		return -1;
	for (int i = 0; i < CELL_TOOLS; i++) {
		if (!c->with[i])
			continue;
		r->tool[i] = (struct child){ .name = cell_tools[i].name,
			.path = c->tool[i],
			.number = i };
		if (start_child(r, &r->tool[i], e) != 0 ||
			wait_for(r, &r->tool[i], tool_answers, e) != 0)
			return -1;
	}
	return cell_write_env(c, e);
}

static void
wait_for_end(struct child *ch, int64_t patience_ms)
{
	int64_t until_ms = clk_mono_ms() + patience_ms;

	while (ch->pid != 0 && !reap(ch)) {
		if (clk_mono_ms() > until_ms)
			kill(ch->pid, SIGKILL);
		usleep(RUN_POLL_US);
	}
}

static void
stop_child(struct child *ch, int signo, int64_t patience_ms)
{
	if (ch->pid != 0)
		kill(ch->pid, signo);
	wait_for_end(ch, patience_ms);
}

static void
stop_all(struct run *r)
{
	for (int i = 0; i < CELL_TOOLS; i++)
		if (r->tool[i].pid != 0)
			kill(r->tool[i].pid, SIGTERM);
	for (int i = 0; i < CELL_TOOLS; i++)
		wait_for_end(&r->tool[i], RUN_STOP_TOOL_MS);
	stop_child(&r->queend, SIGTERM, RUN_STOP_QUEEND_MS);
	/* never SIGKILL by the clock: a checkpoint may take its time */
	stop_child(&r->postgres, SIGINT, INT64_MAX / 2);
}

static void
schedule(struct child *ch)
{
	int64_t now_ms = clk_mono_ms();

	if (now_ms - ch->started_ms > RUN_PAUSE_MAX_MS || ch->pause_ms == 0)
		ch->pause_ms = RUN_PAUSE_MIN_MS;
	else if (ch->pause_ms < RUN_PAUSE_MAX_MS)
		ch->pause_ms *= 2;
	ch->again_ms = now_ms + ch->pause_ms;
}

static void
keep_up(struct run *r, struct child *ch)
{
	struct err e = ERR_ZERO;

	if (reap(ch))
		schedule(ch);
	if (ch->pid != 0 || clk_mono_ms() < ch->again_ms)
		return;
	log_line(LOG_INFO, "cell", "starting a server again", "name=%s",
		ch->name);
	if (start_child(r, ch, &e) != 0) {
		log_line(LOG_WARN, "cell", "cannot start a server", "error=%s",
			log_quote(e.text));
		schedule(ch);
	}
}

static void
tell(struct run *r, const char *line)
{
	if (r->ready_fd < 0)
		return;
	/* the parent may have gone; that changes nothing for the cell */
	ssize_t n = write(r->ready_fd, line, strlen(line));

	(void)n;
	close(r->ready_fd);
	r->ready_fd = -1;
}

int
cell_supervise(struct cell *c, int ready_fd)
{
	struct run r = { .c = c,
		.ready_fd = ready_fd,
		.lock_fd = -1,
		.postgres = { .name = "postgres" },
		.queend = { .name = "queend" } };
	const struct timespec tick = { .tv_nsec = 100000000 };
	struct err e = ERR_ZERO;
	char text[300];
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	int locked = cell_lock(c, &r.lock_fd, &e);

	if (locked == 0)
		err_set(&e, ERR_CONFIG,
			"another queenctl is starting the "
			"cell in %s",
			c->dir);
	if (locked != 1 || boot(&r, &e) != 0) {
		snprintf(text, sizeof(text), "failed %s\n", e.text);
		tell(&r, text);
		stop_all(&r);
		return EXIT_INTERNAL;
	}
	log_line(LOG_INFO, "cell", "up", "dir=%s port=%d", log_quote(c->dir),
		c->port);
	tell(&r, "ready\n");
	while (!r.stopping) {
		int sig = sigtimedwait(&set, NULL, &tick);

		if (sig == SIGTERM || sig == SIGINT)
			r.stopping = true;
		else if (!r.stopping) {
			keep_up(&r, &r.postgres);
			keep_up(&r, &r.queend);
			for (int i = 0; i < CELL_TOOLS; i++)
				if (c->with[i])
					keep_up(&r, &r.tool[i]);
		}
	}
	log_line(LOG_INFO, "cell", "stopping", "dir=%s", log_quote(c->dir));
	stop_all(&r);
	return EXIT_CLEAN;
}

/* In the forked supervisor. */
static void
become_supervisor(struct cell *c, bool detach, int ready_fd, pid_t parent)
{
	if (detach) {
		struct err e = ERR_ZERO;
		char log[CELL_PATH];
		int null = open("/dev/null", O_RDWR);

		setsid();
		if (null >= 0) {
			dup2(null, STDIN_FILENO);
			dup2(null, STDOUT_FILENO);
			dup2(null, STDERR_FILENO);
		}
		if (cell_path(c, "log", log, &e) == 0 && access(log, W_OK) == 0)
			redirect_output(c, "supervisor");
	} else {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(EXIT_INTERNAL);
		setpgid(0, 0);
	}
	log_init(detach ? "info" : "warn", false);
	_exit(cell_supervise(c, ready_fd));
}

/* The one line of the supervisor; empty when it died without a word. */
static void
read_line(int fd, char *out, size_t cap)
{
	size_t len = 0;

	while (len < cap - 1) {
		ssize_t n = read(fd, out + len, cap - 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	out[len] = '\0';
	out[strcspn(out, "\n")] = '\0';
}

int
cell_up(struct cell *c, bool detach, bool *was_up, pid_t *supervisor,
	struct err *e)
{
	char line[320];
	int fds[2];

	*was_up = cell_is_running(c, NULL);
	if (*was_up)
		return 0;
	/* the lock file must have a place before the supervisor takes it */
	if (cell_find_programs(c, e) != 0 || check_port(c, e) != 0 ||
		cell_with_check(c, e) != 0 || cell_make(c, e) != 0)
		return -1;
	if (pipe2(fds, O_CLOEXEC) != 0)
		return err_errno(e, "cannot make a pipe");
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		return err_errno(e, "cannot fork");
	if (pid == 0) {
		close(fds[0]);
		become_supervisor(c, detach, fds[1], parent);
	}
	close(fds[1]);
	*supervisor = pid;
	read_line(fds[0], line, sizeof(line));
	close(fds[0]);
	if (strcmp(line, "ready") == 0) {
		cell_remember(c->dir);
		return 0;
	}
	cell_wait(pid);
	return err_set(e, ERR_IO, "%s",
		strncmp(line, "failed ", 7) == 0 ? line + 7
						 : "the supervisor died");
}

static pid_t waited_for; /* for the handler of cell_wait alone */

static void
pass_signal(int signo)
{
	int saved = errno;

	kill(waited_for, signo);
	errno = saved;
}

int
cell_wait(pid_t supervisor)
{
	struct sigaction sa = { .sa_handler = pass_signal };
	int status;

	waited_for = supervisor;
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	while (waitpid(supervisor, &status, 0) < 0)
		if (errno != EINTR)
			return EXIT_INTERNAL;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_INTERNAL;
}
