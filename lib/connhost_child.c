/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process of a unit: this program again, with nothing open but descriptor
 * 3 and stderr, told by the kernel when we are gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clk.h"
#include "connhost_int.h"

enum {
	DUMB_MS = 30000, /* to the first word of a process */
};

/* ---- what it tells ---- */

static void
on_status(struct unit *u, struct span body)
{
	bool first = !u->heard;

	buf_reset(&u->status);
	buf_put_span(&u->status, body);
	u->heard = true;
	connhost_status_heard(u);
	if (!first)
		return;
	u->host->booting--;
	if (u->state == UNIT_RUNS)
		loop_timer_stop(&u->timer);
	connhost_unit_next(u->host);
}

static void
on_frame(void *arg, enum connpipe_kind kind, struct span body)
{
	struct unit *u = arg;
	int64_t v;

	switch (kind) {
	case CONNPIPE_STATUS:
		on_status(u, body);
		break;
	case CONNPIPE_WATCH:
		if (connpipe_read_number(body, &v))
			connhost_work_watch(u, v);
		break;
	case CONNPIPE_ANNOUNCE:
		connhost_work_announce(u, body);
		break;
	case CONNPIPE_LEAVE:
		u->left = connpipe_read_number(body, &v);
		u->torn_down = u->left && v == 1;
		break;
	default:
		break;
	}
}

/* It is about to end; one that does not is ended. */
static void
on_end(void *arg)
{
	struct unit *u = arg;

	if (u->state == UNIT_RUNS)
		loop_timer_start(&u->timer, u->host->conf.grace_ms);
}

/* ---- start ---- */

static void
silence(int fd, int flags)
{
	int null = open("/dev/null", flags);

	if (null >= 0)
		dup2(null, fd);
}

/* In the new process; all signals are blocked. */
static void
become(const struct unit *u, pid_t parent, int fd)
{
	char name[64], word[] = CONNHOST_CHILD, who[CONNDOC_NAME_MAX + 1];
	/* the name is for those who look at the list of processes */
	char *argv[] = { name, word, who, NULL };
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(EXIT_FAILURE); /* gone before the line above */
	signal(SIGTERM, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
	/* the group's Ctrl-C is the parent's to answer */
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	if (fd == CONNHOST_FD)
		fcntl(fd, F_SETFD, 0);
	else if (dup2(fd, CONNHOST_FD) < 0)
		_exit(EXIT_FAILURE);
	close_range(CONNHOST_FD + 1, ~0U, 0);
	silence(STDIN_FILENO, O_RDONLY);
	silence(STDOUT_FILENO, O_WRONLY);
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	snprintf(name, sizeof(name), "%s", u->host->conf.tool);
	snprintf(who, sizeof(who), "%.*s", SPAN_ARG(u->name));
	execv("/proc/self/exe", argv);
	_exit(EXIT_FAILURE);
}

/*
 * Signals are blocked over the fork: a handler that runs in the new process
 * would write into the loop that both still have.
 */
static pid_t
fork_quietly(const struct unit *u, int fd)
{
	sigset_t all, before;
	pid_t parent = getpid(), pid;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid = fork();
	if (pid == 0)
		become(u, parent, fd);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return pid;
}

static void
send_task(struct unit *u)
{
	const struct connhost_conf *c = &u->host->conf;
	struct connpipe_task t = { .tenant = u->tenant,
		.version = u->version,
		.grace_ms = c->grace_ms,
		.name = u->name,
		.node = span_of(c->node),
		.cell_tag = span_of(c->cell_tag),
		.doc = buf_span(&u->doc) };
	struct buf b = BUF_ZERO;

	connpipe_write_task(&b, &t);
	connpipe_send(u->pipe, CONNPIPE_TASK, buf_span(&b));
	buf_fini(&b);
}

int
connhost_child_start(struct unit *u, struct err *e)
{
	struct connpipe_events ev = {
		.on_frame = on_frame, .on_end = on_end, .arg = u
	};
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
		return err_errno(e, "cannot make a pair of sockets");
	u->pid = fork_quietly(u, fds[1]);
	close(fds[1]);
	if (u->pid < 0) {
		u->pid = 0;
		close(fds[0]);
		return err_errno(e, "cannot start a process");
	}
	u->pipe = connpipe_new(u->host->loop, fds[0], &ev);
	u->heard = u->left = u->torn_down = false;
	u->state = UNIT_RUNS;
	u->started_ms = clk_mono_ms();
	u->host->children++;
	u->host->booting++;
	loop_timer_start(&u->timer, DUMB_MS);
	connhost_unit_phase(u, "starting");
	log_line(LOG_INFO, "connectors", "started", "connector=%.*s pid=%ld",
		SPAN_ARG(u->name), (long)u->pid);
	send_task(u);
	return 0;
}

/* ---- stop ---- */

void
connhost_child_stop(struct unit *u, int64_t grace_ms)
{
	if (u->state == UNIT_RUNS)
		connpipe_send_number(u->pipe, CONNPIPE_STOP, grace_ms);
	u->state = UNIT_STOPS;
	loop_timer_start(&u->timer, grace_ms);
}

void
connhost_child_kill(struct unit *u)
{
	log_line(LOG_WARN, "connectors", "a process is killed",
		"connector=%.*s pid=%ld reason=%s", SPAN_ARG(u->name),
		(long)u->pid, u->state == UNIT_STOPS ? "grace" : "silence");
	kill(u->pid, SIGKILL);
}

static void
ended(struct unit *u, int status)
{
	struct connhost *h = u->host;
	char how[128];

	connpipe_drain(u->pipe);
	connpipe_free(u->pipe);
	u->pipe = NULL;
	u->pid = 0;
	h->children--;
	if (!u->heard)
		h->booting--;
	connhost_work_watch(u, 0);
	if (WIFSIGNALED(status))
		snprintf(how, sizeof(how),
			"the process of the connector was ended by signal %d",
			WTERMSIG(status));
	else
		snprintf(how, sizeof(how),
			"the process of the connector ended with status %d",
			WEXITSTATUS(status));
	log_line(LOG_INFO, "connectors", "ended", "connector=%.*s how=%s",
		SPAN_ARG(u->name), log_quote(how));
	connhost_unit_ended(u, how);
}

void
connhost_child_reap(void *host)
{
	struct connhost *h = host;
	struct unit *u;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		TAILQ_FOREACH (u, &h->list, link)
			if (u->pid == pid)
				break;
		if (u)
			ended(u, status);
	}
	connhost_unit_next(h);
}
