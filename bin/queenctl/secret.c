/* SPDX-License-Identifier: Apache-2.0 */
#include "secret.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "buf.h"
#include "client.h"
#include "err.h"

enum { SECRET_MAX = 65536 };

bool
secret_can_ask(void)
{
	return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

/* Without stdio, whose buffers nobody wipes. */
static int
read_all(int fd, bool line, const char *path, struct buf *out, struct err *e)
{
	char *p = buf_reserve(out, SECRET_MAX + 1);

	while (out->len <= SECRET_MAX) {
		ssize_t n = read(fd, p + out->len, SECRET_MAX + 1 - out->len);

		if (n < 0 && errno == EINTR && client_interrupted())
			return err_set(e, ERR_CONFIG, "interrupted");
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, ERR_CONFIG, "cannot read %s: %s",
				path, strerror(errno));
		if (n == 0)
			break;
		out->len += (size_t)n;
		if (line && memchr(p, '\n', out->len))
			break;
	}
	if (out->len > SECRET_MAX)
		return err_set(e, ERR_CONFIG, "%s holds more than %d bytes",
			path, SECRET_MAX);
	return 0;
}

static void
trim(struct buf *b)
{
	struct span s = span_trim(buf_span(b));

	if (s.n)
		memmove(b->p, s.p, s.n);
	b->len = s.n;
}

int
secret_ask(const char *what, struct buf *out, struct err *e)
{
	sigset_t block, before;
	struct termios t, quiet;
	int rc;

	if (tcgetattr(STDIN_FILENO, &t) != 0)
		return err_set(e, ERR_CONFIG, "cannot ask for the %s: %s", what,
			strerror(errno));
	quiet = t;
	quiet.c_lflag &= ~(tcflag_t)ECHO;
	quiet.c_lflag |= ECHONL;
	/* whatever ends the question, the terminal echoes again */
	client_catch_signals();
	sigemptyset(&block);
	sigaddset(&block, SIGTSTP);
	sigprocmask(SIG_BLOCK, &block, &before);
	/* before the question: what is typed behind it counts */
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
	fprintf(stderr, "%s: ", what);
	rc = read_all(STDIN_FILENO, true, "the terminal", out, e);
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &t);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (rc == 0)
		trim(out);
	return rc;
}

int
secret_read(const char *path, const char *what, struct buf *out, struct err *e)
{
	bool std = strcmp(path, "-") == 0;
	int fd, rc;

	if (std && secret_can_ask())
		return secret_ask(what, out, e);
	fd = std ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, ERR_CONFIG, "cannot open %s: %s", path,
			strerror(errno));
	rc = read_all(fd, false, path, out, e);
	if (!std)
		close(fd);
	if (rc == 0)
		trim(out);
	return rc;
}
