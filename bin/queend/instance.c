/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slot files: `<run dir>/queend-<cell tag>-<name>.slot`, locked with flock(2)
 * for the life of the process, so a slot frees itself when its holder dies.
 * The descriptor is left open on purpose and never given to a child.
 */
#include "instance.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "err.h"

enum { INSTANCE_SLOTS = 256, INSTANCE_NAME_MAX = 128 };

/* A folder of ours: made when missing, refused when another owns it. */
static bool
dir_usable(const char *dir)
{
	struct stat st;

	if (mkdir(dir, 0700) != 0 && errno != EEXIST)
		return false;
	if (lstat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
		return false;
	return access(dir, W_OK | X_OK) == 0 &&
	       (st.st_uid == geteuid() || geteuid() == 0 ||
		       (st.st_mode & S_IWOTH) == 0);
}

static int
choose_dir(const char *given, char *out, size_t cap, struct err *e)
{
	const char *list = getenv("RUNTIME_DIRECTORY");
	const char *user = getenv("XDG_RUNTIME_DIR");

	if (given && *given) {
		snprintf(out, cap, "%s", given);
		if (dir_usable(out))
			return 0;
		return err_set(e, ERR_CONFIG,
			"QUEEN_RUN_DIR=\"%s\" is not a folder this user can write",
			given);
	}
	if (list && *list) {
		snprintf(out, cap, "%.*s", (int)strcspn(list, ":"), list);
		if (dir_usable(out))
			return 0;
	}
	if (geteuid() == 0) {
		snprintf(out, cap, "/run/queen");
		if (dir_usable(out))
			return 0;
	}
	if (user && *user) {
		snprintf(out, cap, "%s/queen", user);
		if (dir_usable(out))
			return 0;
	}
	snprintf(out, cap, "/tmp/queen-%u", (unsigned)geteuid());
	if (dir_usable(out))
		return 0;
	return err_set(e, ERR_CONFIG,
		"no folder for slot files: set QUEEN_RUN_DIR to one this user "
		"can write");
}

/* 0 = locked, 1 = in use, -1 = cannot. */
static int
lock_slot(const char *dir, uint64_t cell_tag, const char *name, struct err *e)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/queend-%012" PRIx64 "-%s.slot",
		dir, cell_tag, name);

	if (n < 0 || (size_t)n >= sizeof(path))
		return err_set(e, ERR_CONFIG, "the slot file name is too long");
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return err_errno(e, "cannot open slot file %s", path);
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	int why = errno;

	close(fd);
	if (why == EWOULDBLOCK)
		return 1;
	errno = why;
	return err_errno(e, "cannot lock slot file %s", path);
}

static bool
name_fits(const char *name)
{
	size_t n = strlen(name);

	return n >= 1 && n <= INSTANCE_NAME_MAX && name[0] != '.' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz"
			    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static char *
take_named(const char *dir, const char *name, uint64_t cell_tag, struct err *e)
{
	if (!name_fits(name)) {
		err_set(e, ERR_CONFIG,
			"QUEEN_SERVER_ID must be 1 to %d of A-Z a-z 0-9 . _ -",
			INSTANCE_NAME_MAX);
		return NULL;
	}
	int rc = lock_slot(dir, cell_tag, name, e);

	if (rc == 1)
		err_set(e, ERR_CONFIG,
			"QUEEN_SERVER_ID=\"%s\" is in use by another process",
			name);
	return rc == 0 ? strdup(name) : NULL;
}

static char *
take_free(const char *dir, uint64_t cell_tag, struct err *e)
{
	char host[65] = "queen", name[INSTANCE_NAME_MAX];

	if (gethostname(host, sizeof(host) - 1) != 0 || !name_fits(host))
		snprintf(host, sizeof(host), "queen");
	host[strcspn(host, ".")] = '\0';
	for (int slot = 1; slot <= INSTANCE_SLOTS; slot++) {
		snprintf(name, sizeof(name), "%s-%d", host, slot);
		int rc = lock_slot(dir, cell_tag, name, e);

		if (rc <= 0)
			return rc == 0 ? strdup(name) : NULL;
	}
	err_set(e, ERR_CONFIG, "all %d slots of this host are in use",
		INSTANCE_SLOTS);
	return NULL;
}

char *
instance_take(
	const char *name, const char *run_dir, uint64_t cell_tag, struct err *e)
{
	char dir[PATH_MAX];

	if (choose_dir(run_dir, dir, sizeof(dir), e) != 0)
		return NULL;
	if (name && *name)
		return take_named(dir, name, cell_tag, e);
	return take_free(dir, cell_tag, e);
}
