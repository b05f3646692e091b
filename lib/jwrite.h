/* SPDX-License-Identifier: Apache-2.0 */
/* JSON written straight into a buffer; commas by themselves. */
#ifndef QUEEN_JWRITE_H
#define QUEEN_JWRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "span.h"

struct buf;
struct qid;

/* Borrows the buffer.  Nesting up to 64. */
struct jwrite {
	struct buf *b;
	uint64_t filled;	/* bit per level: a member was written */
	uint64_t objects;	/* bit per level: an object, not an array */
	int depth;
	bool keyed;		/* a key waits for its value */
};

void jwrite_init(struct jwrite *w, struct buf *b);
void jwrite_object(struct jwrite *w);
void jwrite_array(struct jwrite *w);
void jwrite_end(struct jwrite *w);		/* closes the innermost */
void jwrite_key(struct jwrite *w, const char *key); /* plain ASCII key */
void jwrite_key_span(struct jwrite *w, struct span key);
void jwrite_str(struct jwrite *w, struct span s);	/* escaped */
void jwrite_raw(struct jwrite *w, struct span json);	/* verbatim JSON */
void jwrite_i64(struct jwrite *w, int64_t v);
void jwrite_f64(struct jwrite *w, double v, int decimals);
void jwrite_bool(struct jwrite *w, bool v);
void jwrite_null(struct jwrite *w);
void jwrite_qid(struct jwrite *w, const struct qid *q);
void jwrite_iso_us(struct jwrite *w, int64_t at_us);
void jwrite_iso_ms(struct jwrite *w, int64_t at_us);
/* A string, quotes and all, for other writers. */
void jwrite_quoted(struct buf *b, struct span s);

/* key + value in one call, for objects. */
void jwrite_kv_str(struct jwrite *w, const char *key, struct span s);
void jwrite_kv_cstr(struct jwrite *w, const char *key, const char *s);
void jwrite_kv_i64(struct jwrite *w, const char *key, int64_t v);
void jwrite_kv_bool(struct jwrite *w, const char *key, bool v);
void jwrite_kv_null(struct jwrite *w, const char *key);
void jwrite_kv_raw(struct jwrite *w, const char *key, struct span json);

#endif
