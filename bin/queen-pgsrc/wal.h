/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Positions in the write-ahead log, and the frames around a logical stream:
 * what the walsender puts into CopyData, and the status update it wants back.
 * A status update names two positions and no third: what was received, and
 * what is committed in the cell.  The second alone lets the server forget, so
 * there is no way to confirm what is not stored.
 */
#ifndef QUEEN_PGSRC_WAL_H
#define QUEEN_PGSRC_WAL_H

#include <stdbool.h>
#include <stdint.h>

#include "span.h"

struct err;

enum { WAL_LSN_MAX = 18, WAL_STATUS_BYTES = 34 };

/* `16/B374D848`, NUL-terminated; returns out. */
char *wal_lsn_text(uint64_t lsn, char out[WAL_LSN_MAX]);
/* One to eight hex digits on either side of one slash; false otherwise. */
bool wal_lsn_parse(struct span s, uint64_t *lsn);

/* Microseconds since 2000 as the server sends them -> since 1970, clamped. */
int64_t wal_time_us(int64_t pg_us);

enum wal_frame_kind { WAL_DATA, WAL_KEEPALIVE };

struct wal_frame {
	enum wal_frame_kind kind;
	uint64_t start_lsn;	/* WAL_DATA: of what it holds; 0 = none */
	uint64_t end_lsn;	/* end of WAL at the server */
	bool reply_now;		/* WAL_KEEPALIVE: silence ends the link */
	struct span data;	/* WAL_DATA: one pgoutput message */
};

/* ERR_IO when it is neither frame, short, or too long. */
int wal_frame_parse(struct span copy_data, struct wal_frame *f, struct err *e)
	__attribute__((warn_unused_result, nonnull));

/*
 * write = the later of the two, flush = apply = committed.  now_us is wall
 * clock.
 */
void wal_status_write(char out[WAL_STATUS_BYTES], uint64_t received_lsn,
	uint64_t committed_lsn, int64_t now_us);

#endif
