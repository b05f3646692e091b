/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock: runs a command while holding a lease.  The command never runs on when
 * the lease may be another's: without a renewal it is ended before the lease
 * is, by a clock of this machine that was read before each renewal was sent.
 *
 * Signals are blocked throughout and taken in wait_signal() alone, so nothing
 * interrupts a request; none of them lasts longer than REQUEST_MS.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "child.h"
#include "client.h"
#include "cmds.h"
#include "ctl.h"
#include "lock.h"

enum {
	REQUEST_MS = 2000,
	TTL_MIN_MS = 3000,
	TTL_MAX_MS = 86400000,
	POLL_MIN_MS = 50, /* while another holds it */
	POLL_MAX_MS = 1000,
	LOOK_MS = 20, /* whether a group is gone */
	RETRY_MS = 100, /* after an answer that was none */
	GIVE_MS = 5000, /* for giving it back */
	NOT_FOUND = 127,
	NOT_RUN = 126,
	BY_SIGNAL = 128, /* as shells do */
};

struct run {
	struct lock lock;
	struct child child;
	char *const *argv;
	sigset_t taken, before;
	int64_t grace_ms, margin_ms;
	int64_t renew_at_ms, kill_at_ms;
	bool stopping, killed;
	int signal; /* that ended the wait for the lock */
};

/* The next signal within ms, 0 = none came. */
static int
wait_signal(const struct run *r, int64_t ms)
{
	struct timespec t = { .tv_sec = ms / 1000,
		.tv_nsec = ms % 1000 * 1000000 };
	int signo;

	if (ms < 0)
		t = (struct timespec){ .tv_sec = 0 };
	signo = sigtimedwait(&r->taken, NULL, &t);
	return signo > 0 ? signo : 0;
}

static void
block_signals(struct run *r)
{
	static const int list[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD,
		SIGTTOU };

	/* children must not vanish unseen */
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&r->taken);
	/* blocked, one that is ignored would come all the same */
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		if (!client_ignores(list[i]))
			sigaddset(&r->taken, list[i]);
	sigprocmask(SIG_BLOCK, &r->taken, &r->before);
}

/* ---- taking it ---- */

/* Pauses before the next try; false when a signal ends the wait. */
static bool
pause_ms(struct run *r, int64_t ms)
{
	int signo = wait_signal(r, ms);

	if (signo == 0 || signo == SIGCHLD || signo == SIGTTOU)
		return true;
	r->signal = signo;
	return false;
}

/* Spreads those who wait, so that they do not come all at once. */
static int64_t
jittered(int64_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return ms / 2 + (t.tv_nsec / 1000 + getpid()) % (ms / 2 + 1);
}

/*
 * LOCK_MINE; LOCK_HELD = not within wait_ms (-1 = for ever) or a signal came;
 * LOCK_REFUSED; LOCK_UNSURE = there was no answer, within wait_ms or, when that
 * is for ever, at the first try: it may be the wrong server.
 */
static enum lock_verdict
take(struct run *r, int64_t wait_ms)
{
	int64_t until_ms = lock_now_ms() + wait_ms, poll_ms = POLL_MIN_MS;
	enum lock_verdict v = lock_take(&r->lock, REQUEST_MS);
	bool reached = v == LOCK_HELD;

	for (;;) {
		if (v == LOCK_MINE || v == LOCK_REFUSED ||
			(v == LOCK_UNSURE && !reached && wait_ms < 0 &&
				r->lock.status != 429 && !r->lock.version))
			return v;
		int64_t left = until_ms - lock_now_ms();

		if (wait_ms >= 0 && left <= 0 && !r->lock.version)
			return v == LOCK_UNSURE && !reached ? v : LOCK_HELD;
		int64_t ms = jittered(v == LOCK_UNSURE ? RETRY_MS : poll_ms);

		if (!pause_ms(r, wait_ms >= 0 && left < ms ? left : ms))
			return LOCK_HELD;
		poll_ms = poll_ms * 2 > POLL_MAX_MS ? POLL_MAX_MS : poll_ms * 2;
		/* looking takes no lock in the database, taking does */
		v = r->lock.version ? LOCK_MINE
				    : lock_look(&r->lock, REQUEST_MS);
		reached = reached || v == LOCK_HELD || v == LOCK_MINE;
		if (v == LOCK_MINE)
			v = lock_take(&r->lock, REQUEST_MS);
	}
}

/* ---- the command ---- */

/* Later than we do it ourselves, and before the lease may be another's. */
static int64_t
guard_at_ms(const struct run *r)
{
	return r->lock.ends_ms - r->margin_ms / 2;
}

static int
start(struct run *r)
{
	char token[24];

	snprintf(token, sizeof(token), "%" PRId64, r->lock.token);
	setenv("QUEEN_LOCK_NAMESPACE", r->lock.ns, 1);
	setenv("QUEEN_LOCK_NAME", r->lock.name, 1);
	setenv("QUEEN_LOCK_TOKEN", token, 1);
	child_until(&r->child, guard_at_ms(r));
	return child_start(&r->child, r->argv, &r->before);
}

/* The lease is lost or will be: the command has to end. */
static void
stop(struct run *r, int64_t within_ms)
{
	r->stopping = true;
	r->kill_at_ms = lock_now_ms() + within_ms;
	child_signal(&r->child, SIGTERM);
	child_signal(&r->child, SIGCONT);
}

static void
renew(struct run *r)
{
	int64_t now = lock_now_ms();
	int64_t left = r->lock.ends_ms - r->grace_ms - r->margin_ms - now;
	enum lock_verdict v =
		lock_renew(&r->lock, left < REQUEST_MS ? left : REQUEST_MS);

	if (v == LOCK_MINE) {
		r->renew_at_ms = now + r->lock.ttl_ms / 3;
		child_until(&r->child, guard_at_ms(r));
	} else if (v != LOCK_HELD) {
		/* others may use up what the tenant may write: be there often */
		r->renew_at_ms = lock_now_ms() + jittered(RETRY_MS);
	}
	if (v != LOCK_HELD)
		return;
	snprintf(r->lock.note, sizeof(r->lock.note),
		"its row is gone or another's");
	r->lock.version = 0;
	stop(r, r->grace_ms);
}

/*
 * Is there anything to wait for?  A command that ends by itself may leave
 * others behind; after the lease none of the group may go on.
 */
static bool
goes_on(struct run *r)
{
	child_poll(&r->child);
	if (!r->child.ended)
		return true;
	return r->stopping && !r->killed && child_group_runs(&r->child);
}

static void
keep(struct run *r)
{
	r->renew_at_ms = r->lock.ends_ms - r->lock.ttl_ms * 2 / 3;
	while (goes_on(r)) {
		int64_t now = lock_now_ms();
		int64_t give_up = r->lock.ends_ms - r->grace_ms - r->margin_ms;
		int64_t next = r->stopping ? r->kill_at_ms : r->renew_at_ms;

		if (r->stopping && now >= r->kill_at_ms && !r->killed) {
			child_signal(&r->child, SIGKILL);
			r->killed = true;
			continue;
		} else if (!r->stopping && now >= give_up) {
			stop(r, r->lock.ends_ms - r->margin_ms - now);
			continue;
		} else if (!r->stopping && now >= r->renew_at_ms) {
			renew(r);
			continue;
		}
		if (!r->stopping && give_up < next)
			next = give_up;
		if (r->child.ended && next > now + LOOK_MS)
			next = now + LOOK_MS; /* nobody tells of these */
		int signo =
			wait_signal(r, r->killed ? POLL_MAX_MS : next - now);

		if (signo && signo != SIGCHLD && signo != SIGTTOU)
			child_signal(&r->child, signo);
	}
	if (r->stopping)
		child_signal(&r->child, SIGKILL);
	child_fini(&r->child);
}

/* ---- giving it back ---- */

static void
give(struct run *r)
{
	int64_t until_ms = lock_now_ms() + GIVE_MS;
	enum lock_verdict v;

	if (r->lock.ends_ms < until_ms)
		until_ms = r->lock.ends_ms;
	while (r->lock.version) {
		v = lock_give(&r->lock, REQUEST_MS);
		if (v == LOCK_MINE || v == LOCK_HELD)
			return;
		if (v == LOCK_REFUSED || lock_now_ms() >= until_ms)
			break;
		wait_signal(r, jittered(RETRY_MS));
	}
	if (r->lock.version)
		ctl_fail(0, "\"%s\" is not given back, its lease runs out: %s",
			r->lock.name, r->lock.note);
}

/* Without the command: a put whose answer was lost may have made it ours. */
static void
leave(struct run *r)
{
	if (r->lock.version == 0 && r->lock.status == 0)
		lock_look(&r->lock, REQUEST_MS);
	if (r->lock.version)
		give(r);
}

/* Was the lease lost, and why?  Before giving it back has its own news. */
static void
note_loss(struct run *r, char note[LOCK_NOTE])
{
	bool late = lock_now_ms() >= guard_at_ms(r);

	/* the guard did it while we could not */
	if (!r->stopping && late && WIFSIGNALED(r->child.status) &&
		WTERMSIG(r->child.status) == SIGKILL)
		r->stopping = true;
	snprintf(note, LOCK_NOTE, "%s",
		r->lock.note[0] ? r->lock.note
		: late          ? "it was not renewed in time"
				: "it could not be renewed");
}

static int
hold(struct run *r)
{
	char note[LOCK_NOTE];
	int error = start(r);

	if (error != 0) {
		child_fini(&r->child);
		give(r);
		return ctl_fail(error == ENOENT ? NOT_FOUND : NOT_RUN,
			"cannot run %s: %s", r->argv[0], strerror(error));
	}
	keep(r);
	note_loss(r, note);
	give(r);
	if (r->stopping)
		return ctl_fail(CTL_SERVER,
			"the lease of \"%s\" was lost and the command ended: "
			"%s",
			r->lock.name, note);
	return WIFSIGNALED(r->child.status)
		       ? BY_SIGNAL + WTERMSIG(r->child.status)
		       : WEXITSTATUS(r->child.status);
}

/* ---- the phrase ---- */

static int
check(const struct cmd_call *a)
{
	int64_t ttl = cmd_int(a, "ttl"), grace = cmd_int(a, "grace");
	int64_t held = cmd_int(a, "held-code");

	if (ttl < TTL_MIN_MS || ttl > TTL_MAX_MS || ttl % 1000)
		return ctl_fail(CTL_USER,
			"--ttl is in whole seconds, from 3 s to 1 day");
	if (cmd_typed(a, "grace") && (grace < 0 || grace > ttl / 3))
		return ctl_fail(
			CTL_USER, "--grace is at most a third of --ttl");
	if (held < 0 || held > 255)
		return ctl_fail(CTL_USER, "--held-code is from 0 to 255");
	if (cmd_typed(a, "wait") && cmd_bool(a, "no-wait"))
		return ctl_fail(CTL_USER, "either --wait or --no-wait");
	return CTL_OK;
}

int
cmd_lock(struct ctl *c, const struct cmd_call *a)
{
	struct run r = { .argv = a->rest };
	int64_t ttl = cmd_int(a, "ttl"), wait_ms = -1;
	int code = check(a);

	if (code == 0)
		code = ctl_target(c);
	if (code != 0)
		return code;
	if (cmd_bool(a, "no-wait"))
		wait_ms = 0;
	else if (cmd_typed(a, "wait"))
		wait_ms = cmd_int(a, "wait");
	r.grace_ms = cmd_int(a, "grace");
	if (r.grace_ms > ttl / 3)
		r.grace_ms = ttl / 3;
	r.margin_ms = ttl / 20;
	child_init(&r.child);
	block_signals(&r);
	lock_init(
		&r.lock, c, cmd_str(a, "namespace"), a->arg[0], ttl, r.argv[0]);
	switch (take(&r, wait_ms)) {
	case LOCK_MINE:
		code = hold(&r);
		break;
	case LOCK_HELD:
		code = (int)cmd_int(a, "held-code");
		leave(&r);
		break;
	default:
		code = ctl_fail(lock_code(&r.lock), "cannot lock \"%s\": %s",
			r.lock.name, r.lock.note);
		leave(&r);
	}
	lock_fini(&r.lock);
	sigprocmask(SIG_SETMASK, &r.before, NULL);
	if (r.signal) {
		signal(r.signal, SIG_DFL);
		raise(r.signal);
	}
	return code;
}
