/* SPDX-License-Identifier: Apache-2.0 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "err.h"

static int
fail(struct err *e, const char *verb, const char *path)
{
	int why = errno;

	err_set(e, ERR_CONFIG, "cannot %s %s: %s", verb, path, strerror(why));
	e->errnum = why;
	return -1;
}

int
file_read(const char *path, size_t max, struct buf *out, struct err *e)
{
	bool std = strcmp(path, "-") == 0;
	int fd = std ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	int rc = 0;

	if (fd < 0)
		return fail(e, "open", path);
	for (;;) {
		char *p = buf_reserve(out, 65536);
		ssize_t n = read(fd, p, 65536);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			rc = fail(e, "read", path);
		if (n <= 0)
			break;
		out->len += (size_t)n;
		if (out->len > max) {
			rc = err_set(e, ERR_CONFIG,
				"%s holds more than %zu bytes", path, max);
			break;
		}
	}
	if (!std)
		close(fd);
	return rc;
}

static int
make_folders(const char *path, struct err *e)
{
	char dir[PATH_MAX];
	int n = snprintf(dir, sizeof(dir), "%s", path);

	if (n < 0 || (size_t)n >= sizeof(dir))
		return err_set(e, ERR_CONFIG, "path too long: %.60s", path);
	for (char *p = dir + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		if (mkdir(dir, 0700) != 0 && errno != EEXIST)
			return fail(e, "make folder", dir);
		*p = '/';
	}
	return 0;
}

static int
write_all(int fd, struct span s)
{
	while (s.n) {
		ssize_t n = write(fd, s.p, s.n);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		s = span_make(s.p + n, s.n - (size_t)n);
	}
	return fsync(fd);
}

int
file_replace(const char *path, struct span content, struct err *e)
{
	char fresh[PATH_MAX];
	int n = snprintf(fresh, sizeof(fresh), "%s.tmp", path);

	if (n < 0 || (size_t)n >= sizeof(fresh))
		return err_set(e, ERR_CONFIG, "path too long: %.60s", path);
	if (make_folders(path, e) != 0)
		return -1;
	/* a left-over may be someone's link or have other rights */
	unlink(fresh);
	int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return fail(e, "make", fresh);
	if (write_all(fd, content) != 0) {
		fail(e, "write", fresh);
		close(fd);
		unlink(fresh);
		return -1;
	}
	close(fd);
	if (rename(fresh, path) != 0)
		return fail(e, "write", path);
	return 0;
}

/* ---- lines ---- */

int
file_lines_open(struct file_lines *l, const char *path, struct err *e)
{
	*l = (struct file_lines){ .max = FILE_LINE_MAX };
	if (strcmp(path, "-") == 0)
		l->f = stdin;
	else
		l->f = fopen(path, "re");
	return l->f ? 0 : fail(e, "open", path);
}

static bool
is_blank(struct span s)
{
	for (size_t i = 0; i < s.n; i++)
		if (!strchr(" \t\r\n", s.p[i]) || !s.p[i])
			return false;
	return true;
}

/* One line, bounded: getline would take whatever comes. */
static int
read_line(struct file_lines *l, size_t *len, struct err *e)
{
	int c;

	*len = 0;
	flockfile(l->f);
	while ((c = getc_unlocked(l->f)) != EOF && c != '\n') {
		if (*len == l->cap) {
			size_t cap = l->cap ? l->cap * 2 : 4096;
			char *p = realloc(l->line, cap);

			BUG(!p);
			l->line = p;
			l->cap = cap;
		}
		l->line[(*len)++] = (char)c;
		if (*len > l->max)
			break;
	}
	funlockfile(l->f);
	if (*len > l->max)
		return err_set(e, ERR_INPUT,
			"line %zu is longer than %zu bytes", l->number + 1,
			l->max);
	if (c == EOF && ferror(l->f))
		return err_set(e, ERR_INPUT, "cannot read line %zu: %s",
			l->number + 1, strerror(errno));
	return c == EOF && *len == 0 ? 0 : 1;
}

int
file_lines_next(struct file_lines *l, struct span *line, struct err *e)
{
	for (;;) {
		size_t n;
		int rc = read_line(l, &n, e);

		if (rc <= 0)
			return rc;
		l->number++;
		*line = span_make(l->line, n);
		if (!is_blank(*line))
			return 1;
	}
}

void
file_lines_close(struct file_lines *l)
{
	if (l->f && l->f != stdin)
		fclose(l->f);
	free(l->line);
	*l = (struct file_lines){ .f = NULL };
}
