/* SPDX-License-Identifier: Apache-2.0 */
/* What comes before the loop: it may block, and it may end the process. */
#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "boot.h"
#include "connhost_int.h"
#include "schema.h"
#include "sealproof.h"

enum { NODE_MAX = 128 };

char *
connhost_node(const char *server_id, struct err *e)
{
	char host[65] = "", text[QID_TEXT_MAX];
	struct qid id = qid_new();

	if (server_id && server_id[0]) {
		if (strlen(server_id) > NODE_MAX) {
			err_set(e, ERR_CONFIG,
				"QUEEN_SERVER_ID is longer than %d bytes",
				NODE_MAX);
			return NULL;
		}
		return strdup(server_id);
	}
	if (gethostname(host, sizeof(host) - 1) == 0 && host[0])
		return strdup(host);
	return strdup(qid_text(&id, text));
}

/*
 * Two processes of one name would take each other for an earlier life of
 * theirs and a source's lease from each other.  A socket without a file is
 * held as long as the process lives, and gone with it.
 */
static int
hold_name(const struct connhost_conf *c, const PGconn *pg, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	unsigned char hash[16];
	char who[512];
	int n = snprintf(who, sizeof(who), "%s/%s/%s:%s/%s", c->tool, c->node,
		PQhost(pg), PQport(pg), PQdb(pg));
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_errno(e, "cannot open a socket");
	if (n >= (int)sizeof(who))
		n = (int)sizeof(who) - 1;
	crypto_generichash(hash, sizeof(hash), (const unsigned char *)who,
		(unsigned long long)n, NULL, 0);
	snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "queen/");
	sodium_bin2hex(
		a.sun_path + 7, 2 * sizeof(hash) + 1, hash, sizeof(hash));
	if (bind(fd, (struct sockaddr *)&a,
		    offsetof(struct sockaddr_un, sun_path) + 7 +
			    2 * sizeof(hash)) == 0)
		return 0; /* left open for the life of the process */
	if (errno == EADDRINUSE)
		err_set(e, ERR_CONFIG,
			"QUEEN_SERVER_ID=\"%s\" is in use by another %s of "
			"this cell on this machine; give each its own",
			c->node, c->tool);
	else
		err_errno(e, "cannot hold the name of this node");
	close(fd);
	return -1;
}

int
connhost_meet(const struct connhost_conf *c, char tag[CONNHOST_TAG_MAX],
	struct err *e)
{
	struct schema_cell cell;
	PGconn *pg;
	int rc;

	pg = boot_open(c->conninfo, c->tool, e);
	if (!pg)
		return -1;
	rc = hold_name(c, pg, e);
	if (rc == 0)
		rc = boot_schema(pg, &cell, e);
	if (rc == 0)
		rc = sealproof_check(c->seal, pg, e);
	PQfinish(pg);
	if (rc == 0)
		snprintf(tag, CONNHOST_TAG_MAX, "%012" PRIx64,
			cell.tag & UINT64_C(0xffffffffffff));
	return rc;
}
