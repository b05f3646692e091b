/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first process stays a zombie until child_fini: so long nobody else can
 * get its number, and a signal to the group meets nobody else's processes.
 */
#include "child.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

enum { NOT_RUN = 126 };

void
child_init(struct child *c)
{
	*c = (struct child){ .pid = -1 };
	for (int fd = 0; fd < CHILD_FDS; fd++)
		c->inherits[fd] = fcntl(fd, F_GETFD) >= 0;
}

/* Connections of ours are not the command's. */
static void
hide_descriptors(const struct child *c)
{
	for (int fd = 3; fd < CHILD_FDS; fd++)
		if (!c->inherits[fd] && fcntl(fd, F_GETFD) >= 0)
			fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* ---- the guard ---- */

/* A clock that goes on while the machine sleeps, as leases do. */
static void
set_alarm(int clock, int64_t at_ms)
{
	struct itimerspec t = { .it_value = { .tv_sec = at_ms / 1000,
					.tv_nsec = at_ms % 1000 * 1000000 } };

	timerfd_settime(clock, TFD_TIMER_ABSTIME, &t, NULL);
}

/*
 * Waits for our end, of which a socket tells even after SIGKILL, or for the
 * time that was told last: when it comes, we were stopped.
 */
static void
watch(pid_t group, int leash, int64_t until_ms)
{
	int clock = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
	struct pollfd p[] = { { .fd = leash, .events = POLLIN },
		{ .fd = clock, .events = POLLIN } };
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	setpgid(0, 0);
	prctl(PR_SET_NAME, "queenctl-guard");
	set_alarm(clock, until_ms);
	for (;;) {
		if (poll(p, 2, -1) < 0)
			continue;
		if (!p[0].revents)
			break;
		if (recv(leash, &until_ms, sizeof(until_ms), MSG_WAITALL) !=
			sizeof(until_ms))
			break;
		set_alarm(clock, until_ms);
	}
	kill(-group, SIGKILL);
	_exit(0);
}

static int
start_guard(struct child *c)
{
	int ends[2], code;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return errno;
	c->guard = fork();
	if (c->guard == 0) {
		close(ends[1]);
		watch(c->pid, ends[0], c->until_ms);
	}
	code = c->guard < 0 ? errno : 0;
	close(ends[0]);
	c->leash = ends[1];
	return code;
}

void
child_until(struct child *c, int64_t at_ms)
{
	c->until_ms = at_ms;
	/* a guard that was killed is no reason to fall */
	if (c->guard > 0)
		send(c->leash, &at_ms, sizeof(at_ms),
			MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void
dismiss_guard(struct child *c)
{
	if (c->guard > 0) {
		kill(c->guard, SIGKILL);
		waitpid(c->guard, NULL, 0);
		close(c->leash);
	}
	c->guard = 0;
}

/* ---- the command ---- */

/* Begins when its guard is there, which `go` tells. */
static void
exec_command(char *const argv[], const sigset_t *mask, int go, int report)
{
	int code;
	char c;

	setpgid(0, 0);
	/* the guard does the same for all of the group, if a bit later */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(go, &c, 1) != 1)
		_exit(NOT_RUN);
	if (!client_ignores(SIGINT))
		signal(SIGINT, SIG_DFL);
	if (!client_ignores(SIGTERM))
		signal(SIGTERM, SIG_DFL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execvp(argv[0], argv);
	code = errno;
	if (write(report, &code, sizeof(code)) < 0)
		_exit(NOT_RUN);
	_exit(NOT_RUN);
}

/* Lets it begin; 0, or why it could not. */
static int
let_go(struct child *c, int go, int report)
{
	int code = start_guard(c);

	/* it reads the terminal when we did */
	if (code == 0)
		c->terminal = tcgetpgrp(STDIN_FILENO) == getpgrp() &&
			      tcsetpgrp(STDIN_FILENO, c->pid) == 0;
	if (code == 0 && write(go, "", 1) != 1)
		code = errno;
	if (code == 0 && read(report, &code, sizeof(code)) != sizeof(code))
		code = 0;
	return code;
}

int
child_start(struct child *c, char *const argv[], const sigset_t *mask)
{
	int go[2], report[2], code = 0;

	hide_descriptors(c);
	if (pipe2(go, O_CLOEXEC) != 0)
		return errno;
	if (pipe2(report, O_CLOEXEC) != 0) {
		code = errno;
		close(go[0]);
		close(go[1]);
		return code;
	}
	fflush(stdout);
	c->pid = fork();
	if (c->pid == 0) {
		close(go[1]);
		exec_command(argv, mask, go[0], report[1]);
	}
	code = c->pid < 0 ? errno : 0;
	close(go[0]);
	close(report[1]);
	if (c->pid > 0) {
		setpgid(c->pid, c->pid);
		code = let_go(c, go[1], report[0]);
	}
	close(go[1]);
	close(report[0]);
	return code;
}

void
child_signal(const struct child *c, int signo)
{
	/* a group that is not there yet has only its first process */
	if (kill(-c->pid, signo) != 0)
		kill(c->pid, signo);
}

void
child_poll(struct child *c)
{
	siginfo_t si = { .si_pid = 0 };

	if (c->ended || waitid(P_PID, (id_t)c->pid, &si,
				WEXITED | WNOHANG | WNOWAIT) != 0)
		return;
	c->ended = si.si_pid == c->pid;
	si.si_pid = 0;
	if (!c->ended &&
		waitid(P_PID, (id_t)c->pid, &si, WSTOPPED | WNOHANG) == 0 &&
		si.si_pid == c->pid && c->terminal)
		/* a lease does not stand still, nor does the command */
		child_signal(c, SIGCONT);
}

/* Is this process of /proc one of the group, and not a zombie? */
static bool
runs_in(const char *pid, pid_t group)
{
	char path[64], text[512], state = 'Z';
	long pgrp = 0;
	const char *end;
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	f = fopen(path, "re");
	if (f) {
		n = fread(text, 1, sizeof(text) - 1, f);
		fclose(f);
	}
	text[n] = '\0';
	/* the name, in brackets, may hold anything */
	end = strrchr(text, ')');
	return end && sscanf(end + 1, " %c %*d %ld", &state, &pgrp) == 2 &&
	       pgrp == group && state != 'Z' && state != 'X';
}

bool
child_group_runs(const struct child *c)
{
	DIR *d = opendir("/proc");
	bool found = !d; /* who cannot look must suppose it */
	struct dirent *e;

	while (!found && (e = readdir(d)) != NULL)
		found = isdigit((unsigned char)e->d_name[0]) &&
			runs_in(e->d_name, c->pid);
	if (d)
		closedir(d);
	return found;
}

void
child_fini(struct child *c)
{
	if (c->terminal)
		tcsetpgrp(STDIN_FILENO, getpgrp());
	dismiss_guard(c);
	if (c->pid > 0)
		waitpid(c->pid, &c->status, 0);
	c->pid = -1;
}
