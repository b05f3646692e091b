/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tools beside queend in a private cell, and the key they share with it:
 * passwords of connectors and secrets of S3 sinks are stored under it.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cell_int.h"
#include "err.h"
#include "span.h"

enum { KEY_BYTES = 32, KEY_TEXT = 2 * KEY_BYTES + 1, HOST_MAX = 256 };

const struct cell_tool cell_tools[CELL_TOOLS] = {
	{ "pgsrc", "queen-pgsrc", "QUEEN_PGSRC_LISTEN", "127.0.0.1:9334" },
	{ "pgsink", "queen-pgsink", "QUEEN_PGSINK_LISTEN", "127.0.0.1:9335" },
	{ "s3", "queen-s3", "QUEEN_S3_LISTEN", "127.0.0.1:9333" },
	{ "ojs", "queen-ojs", "QUEEN_OJS_PORT", "6634" },
};

/* ---- the list ---- */

static int
find_tool(struct span word)
{
	for (int i = 0; i < CELL_TOOLS; i++)
		if (span_is(word, cell_tools[i].word))
			return i;
	return -1;
}

int
cell_with(struct cell *c, const char *list, struct err *e)
{
	while (list && *list) {
		size_t n = strcspn(list, ",");
		struct span word = span_trim(span_make(list, n));
		int tool = find_tool(word);

		if (tool < 0)
			return err_set(e, ERR_CONFIG,
				"--with: \"%.*s\" is no tool; there are pgsrc, "
				"pgsink, s3 and ojs",
				(int)(word.n < 60 ? word.n : 60), word.p);
		c->with[tool] = true;
		list += n + (list[n] == ',');
	}
	return 0;
}

void
cell_with_write(const struct cell *c, char *out, size_t cap)
{
	size_t n = 0;

	out[0] = '\0';
	for (int i = 0; i < CELL_TOOLS && n < cap; i++)
		if (c->with[i])
			n += (size_t)snprintf(out + n, cap - n, "%s%s",
				n ? "," : "", cell_tools[i].word);
}

bool
cell_with_has(const char *list, int tool)
{
	struct cell c = { .port = 0 };
	struct err e = ERR_ZERO;

	return cell_with(&c, list, &e) == 0 && c.with[tool];
}

/* ---- the key ---- */

/* Does the operator bring one? */
static bool
key_is_given(void)
{
	const char *key = getenv("QUEEN_ENCRYPTION_KEY");
	const char *file = getenv("QUEEN_ENCRYPTION_KEY_FILE");

	return (key && *key) || (file && *file);
}

static int
write_key(const struct cell *c, const char *path, struct err *e)
{
	unsigned char raw[KEY_BYTES];
	char text[KEY_TEXT + 1];
	int rc = 0, fd;

	if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
		return err_errno(e, "cannot make a key");
	for (int i = 0; i < KEY_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", raw[i]);
	text[KEY_TEXT - 1] = '\n';
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
		0600);
	if (fd < 0)
		rc = err_errno(e, "cannot make %s", path);
	else if (write(fd, text, KEY_TEXT) != KEY_TEXT || fsync(fd) != 0 ||
		 (c->as_root && fchown(fd, c->uid, c->gid) != 0))
		rc = err_errno(e, "cannot write %s", path);
	if (fd >= 0)
		close(fd);
	explicit_bzero(raw, sizeof(raw));
	explicit_bzero(text, sizeof(text));
	return rc;
}

int
cell_with_key(const struct cell *c, struct err *e)
{
	char path[CELL_PATH], fresh[CELL_PATH];
	bool wanted = false;

	for (int i = 0; i < CELL_TOOLS; i++)
		wanted |= c->with[i];
	if (!wanted || key_is_given())
		return 0;
	if (cell_path(c, "key", path, e) != 0 ||
		cell_path(c, "key.new", fresh, e) != 0)
		return -1;
	if (access(path, F_OK) == 0)
		return 0;
	if (write_key(c, fresh, e) != 0)
		return -1;
	/* the folder is not synced: what a crash takes had sealed nothing */
	return rename(fresh, path) == 0
		       ? 0
		       : err_errno(e, "cannot move %s to %s", fresh, path);
}

void
cell_with_env(const struct cell *c)
{
	char path[CELL_PATH];
	struct err e = ERR_ZERO;

	if (!key_is_given() && cell_path(c, "key", path, &e) == 0 &&
		access(path, F_OK) == 0)
		setenv("QUEEN_ENCRYPTION_KEY_FILE", path, 1);
}

/* ---- the listeners ---- */

/* False when there is none; what does not parse the tool itself refuses. */
static bool
listener(const struct cell *c, int tool, char host[HOST_MAX], const char **port)
{
	const struct cell_tool *t = &cell_tools[tool];
	const char *text = getenv(t->listen_env);
	const char *colon;
	size_t n;

	if (!text || (!*text && !strchr(t->listen, ':')))
		text = t->listen;
	if (!strchr(t->listen, ':')) {
		/* beside queend; 0 is a port that nobody knows before */
		snprintf(host, HOST_MAX, "%s", c->bind);
		*port = text;
		return strcmp(text, "0") != 0;
	}
	colon = strrchr(text, ':');
	n = colon ? (size_t)(colon - text) : 0;
	if (n > 2 && text[0] == '[' && text[n - 1] == ']') {
		text++;
		n -= 2;
	}
	if (n == 0 || n >= HOST_MAX)
		return false;
	snprintf(host, HOST_MAX, "%.*s", (int)n, text);
	*port = colon + 1;
	return true;
}

/*
 * Our listeners share their port with others of the same user, so somebody
 * else on it would not be noticed: a plain bind() is refused.
 */
static bool
is_taken(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE,
		.ai_socktype = SOCK_STREAM };
	struct addrinfo *list;
	bool taken = false;
	int on = 1;

	if (getaddrinfo(host, port, &hints, &list) != 0)
		return false;
	int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		taken = bind(fd, list->ai_addr, list->ai_addrlen) != 0 &&
			errno == EADDRINUSE;
		close(fd);
	}
	freeaddrinfo(list);
	return taken;
}

int
cell_with_check(const struct cell *c, struct err *e)
{
	char host[HOST_MAX];
	const char *port;

	for (int i = 0; i < CELL_TOOLS; i++)
		if (c->with[i] && listener(c, i, host, &port) &&
			is_taken(host, port))
			return err_set(e, ERR_IO,
				"port %.5s of %.60s is in use by another "
				"program; set %s to another, or to nothing",
				port, host, cell_tools[i].listen_env);
	return 0;
}

/* One that a client can ask. */
static const char *
reachable(const char *host)
{
	return strcmp(host, "0.0.0.0") == 0 ? "127.0.0.1" : host;
}

bool
cell_with_answers(const struct cell *c, int tool)
{
	char host[HOST_MAX];
	const char *port;

	return !listener(c, tool, host, &port) ||
	       cell_answers(reachable(host), port);
}

void
cell_with_ojs_url(const struct cell *c, char *out, size_t cap)
{
	int tool = find_tool(SPAN_LIT("ojs"));
	char host[HOST_MAX];
	const char *port;

	out[0] = '\0';
	if (c->with[tool] && listener(c, tool, host, &port))
		snprintf(out, cap, "http://%s:%s", reachable(host), port);
}
