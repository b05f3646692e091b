/* SPDX-License-Identifier: Apache-2.0 */
/* The pure side of the beat, for place and its tests. */
#ifndef QUEEN_S3_PLACE_INT_H
#define QUEEN_S3_PLACE_INT_H

#include <stdbool.h>
#include <stdint.h>

/* From the beat of this number, from 1, to the next. */
int64_t place_beat_ms(int beats, int64_t ttl_ms);

struct place_excess {
	int64_t over_since_ms; /* above its share since; -1: it is not */
	bool giving; /* one was given back and nobody has taken it */
	bool released; /* it is not counted as held any more */
	int64_t released_ms;
};

#define PLACE_EXCESS_ZERO { .over_since_ms = -1 }

/* After each change of held or share: is one to be given back now? */
bool place_excess_due(struct place_excess *x, int held, int share,
	int64_t now_ms, int64_t ttl_ms);
void place_excess_gave(struct place_excess *x);
/* One more is not held: while one is being given, it is that one. */
void place_excess_lost(struct place_excess *x, int64_t now_ms);
/* Another node holds the one that was given. */
void place_excess_taken(struct place_excess *x);

#endif
