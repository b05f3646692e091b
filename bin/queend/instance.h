/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of this process among those that share a cell, held by a lock on
 * a slot file for as long as the process lives.
 */
#ifndef QUEEND_INSTANCE_H
#define QUEEND_INSTANCE_H

#include <stdint.h>

struct err;

/*
 * name: QUEEN_SERVER_ID or NULL for `<host>-<slot>`, the first free slot.
 * run_dir: folder of the slot files, NULL = /run/queen, the user's runtime
 * folder or a private one in /tmp, the first that can be used.  Returns an
 * allocated name; NULL with ERR_CONFIG when the explicit name is in use or no
 * folder can be written.
 */
char *instance_take(const char *name, const char *run_dir, uint64_t cell_tag,
	struct err *e);

#endif
