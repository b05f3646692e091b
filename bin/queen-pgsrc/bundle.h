/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bundles: whole units from the front of the queue that commit in one
 * transaction of the cell, with the pointer at the cover of the last one.
 * When to send, how much, and what each answer means.  One is in flight.
 */
#ifndef QUEEN_PGSRC_BUNDLE_H
#define QUEEN_PGSRC_BUNDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pointer;
struct pointer_place;
struct unit_queue;

struct bundle_limits {
	size_t messages, bytes;
	int64_t linger_ms;
};

/* ---- planning ---- */

/* Is there something to send, at once?  stream_idle: nothing buffered. */
bool bundle_due(const struct unit_queue *q, const struct bundle_limits *l,
	bool stream_idle, int64_t now_ms);
/* When bundle_due turns true by itself; INT64_MAX: never. */
int64_t bundle_due_at_ms(const struct unit_queue *q,
	const struct bundle_limits *l);
/*
 * Marks the next units in flight and says how many; at least one.  None may
 * be in flight, and the queue not be empty.
 */
size_t bundle_take(struct unit_queue *q, const struct bundle_limits *l);
/* Stop reading the stream? */
bool bundle_backlogged(const struct unit_queue *q,
	const struct bundle_limits *l);

/* ---- settling ---- */

/* What the cell said to begin + one call + commit. */
enum bundle_answer {
	BUNDLE_COMMITTED,	/* and the new version came back */
	BUNDLE_NO_VERSION,	/* committed, version not known */
	BUNDLE_PRECONDITION,	/* the pointer is not at our version */
	BUNDLE_IN_DOUBT,	/* link, timeout: anything may be true */
	BUNDLE_SLOW_DOWN,	/* asked to wait */
	BUNDLE_GONE,		/* a queue or partition went away */
	BUNDLE_UNSEALED,	/* the queue wants sealed payloads */
	BUNDLE_REFUSED,		/* for its content */
};

enum bundle_act {
	BUNDLE_GO_ON,		/* settled: forget the units */
	BUNDLE_READ,		/* read the pointer, waiting for its lock */
	BUNDLE_RESEND,		/* same bytes, after wait_ms */
	BUNDLE_ENSURE,		/* make the names again, then resend */
	BUNDLE_SEAL,		/* load the flag, seal the same, resend */
	BUNDLE_FENCED,		/* code fenced: another owner */
	BUNDLE_STOP,		/* code queen_refused: nothing is skipped */
};

/* One bundle from its first sending to its end. */
struct bundle {
	enum bundle_answer answer;	/* the last one */
	int lost_n;			/* preconditions lost, not applied */
	int64_t wait_ms;		/* before BUNDLE_RESEND */
	int64_t backoff_ms;
	bool sealed;			/* BUNDLE_SEAL was asked once */
};

#define BUNDLE_ZERO { .wait_ms = 0 }

/* asked_ms: how long BUNDLE_SLOW_DOWN asks to wait, 0 = not said. */
enum bundle_act bundle_on_answer(struct bundle *b, enum bundle_answer answer,
	int64_t asked_ms);
/* The pointer could not be read: BUNDLE_READ again, after wait_ms. */
enum bundle_act bundle_on_no_answer(struct bundle *b);
/*
 * After BUNDLE_READ.  found NULL: there is no pointer (version 0), or none that
 * can be read.  held_version is the one the bundle expected, 0: that there be
 * none; cover the place it would have reached.
 */
enum bundle_act bundle_on_pointer(struct bundle *b,
	const struct pointer *found, int64_t found_version,
	const struct pointer *ours, int64_t held_version,
	const struct pointer_place *cover);

#endif
