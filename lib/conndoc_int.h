/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside conndoc: conndoc.c reads shapes by tables of fields, conndoc_rule.c
 * holds the rules, conndoc_url.c folds a URL, conndoc_write.c writes,
 * conndoc_param.c reads parameters, conndoc_seal.c seals.
 */
#ifndef QUEEN_CONNDOC_INT_H
#define QUEEN_CONNDOC_INT_H

#include "conndoc.h"
#include "err.h"

struct jspan;

/* One reading; the first refusal ends it. */
struct conndoc_read {
	struct arena *a;
	struct err *e;
	bool stored;
	struct span url;		/* of a client */
};

enum conndoc_type {
	CONNDOC_TEXT,		/* struct span */
	CONNDOC_INT,		/* int64_t within min..max */
	CONNDOC_BOOL,		/* bool */
	CONNDOC_WORD,		/* an enum: the place in words */
	CONNDOC_TEXTS,		/* struct conndoc_list */
	CONNDOC_OWN,		/* read by itself */
};

/* Who writes a field; what a client only gives back is passed over. */
enum conndoc_side {
	CONNDOC_BOTH,
	CONNDOC_QUEEND,		/* stored; passed over from a client */
	CONNDOC_READS,		/* not stored; passed over from a client */
	CONNDOC_CLIENT,		/* not stored */
};

typedef bool (*conndoc_own_fn)(struct conndoc_read *rd, struct jspan *j,
	struct span path, void *base);

struct conndoc_field {
	const char *name;
	enum conndoc_type type;
	size_t at;		/* offset from the base */
	int64_t min, max;
	const char *const *words;	/* ends with NULL */
	conndoc_own_fn own;
	enum conndoc_side side;
};

extern const char *const conndoc_kinds[], *const conndoc_ssls[],
	*const conndoc_snapshots[], *const conndoc_truncates[],
	*const conndoc_modes[], *const conndoc_starts[],
	*const conndoc_metas[], *const conndoc_takeovers[];

/* Sets the refusal `path: ...` and returns false. */
bool conndoc_refuse(struct conndoc_read *rd, struct span path,
	const char *fmt, ...) __attribute__((format(printf, 3, 4)));
struct span conndoc_at(struct conndoc_read *rd, struct span path, size_t i);

/* One value of the field's type, stored at base + at. */
bool conndoc_value(struct conndoc_read *rd, struct jspan *j,
	struct span path, const struct conndoc_field *f, void *base);
/* One object; *seen gets a bit per field of the table that was there. */
bool conndoc_object(struct conndoc_read *rd, struct jspan *j,
	struct span path, const struct conndoc_field *f, size_t n, void *base,
	uint64_t *seen);

/* conndoc_part.c: the objects below the top */
bool conndoc_read_conn(struct conndoc_read *rd, struct jspan *j,
	struct span path, void *base);
bool conndoc_read_source(struct conndoc_read *rd, struct jspan *j,
	struct span path, void *base);
bool conndoc_read_sink(struct conndoc_read *rd, struct jspan *j,
	struct span path, void *base);

/* Folds rd->url into the connection. */
bool conndoc_fold(struct conndoc_read *rd, struct conndoc_conn *c);

/* Zeroes the clear password. */
void conndoc_wipe_password(struct conndoc_conn *c);

/* The rules; fills what is derived: the parts of qualified names. */
bool conndoc_check(struct conndoc_read *rd, struct conndoc *d);

#endif
