/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vector files: three columns between tabs, `#` comments.  The bytes column
 * knows \r \n \t \\ \xNN and *N{...}, which repeats (and nests).
 */
#ifndef QUEEN_TEST_HSRV_VECTORS_H
#define QUEEN_TEST_HSRV_VECTORS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "span.h"

struct vector {
	const char *verdict;
	const char *text;
	struct buf bytes;	/* owned by struct vectors */
};

struct vectors {
	FILE *f;
	char *row;
	size_t room;
	int line;
	struct buf bytes;
};

/* Consumes up to the end or an unmatched '}'. */
static inline void
vectors_part(struct span *in, struct buf *out)
{
	while (in->n && *in->p != '}') {
		char c = *in->p;
		size_t used = 1;

		if (c == '\\' && in->n > 3 && in->p[1] == 'x') {
			char digits[3] = { in->p[2], in->p[3], '\0' };

			buf_putc(out, (char)strtol(digits, NULL, 16));
			used = 4;
		} else if (c == '\\' && in->n > 1) {
			c = in->p[1];
			buf_putc(out, c == 'r' ? '\r' : c == 'n' ? '\n' :
				c == 't' ? '\t' : c);
			used = 2;
		} else if (c == '*' && in->n > 1 && in->p[1] >= '0' &&
			in->p[1] <= '9' && memchr(in->p, '{', in->n)) {
			char *end;
			long n = strtol(in->p + 1, &end, 10);
			struct buf part = BUF_ZERO;

			used = (size_t)(end + 1 - in->p);
			*in = span_make(in->p + used, in->n - used);
			vectors_part(in, &part);
			while (n-- > 0)
				buf_put_span(out, buf_span(&part));
			buf_fini(&part);
			used = 1;
		} else {
			buf_putc(out, c);
		}
		*in = span_make(in->p + used, in->n - used);
	}
}

static inline void
vectors_unescape(struct span in, struct buf *out)
{
	vectors_part(&in, out);
}

static inline void
vectors_open(struct vectors *v, const char *path)
{
	memset(v, 0, sizeof(*v));
	v->f = fopen(path, "r");
	if (!v->f) {
		perror(path);
		abort();
	}
}

static inline bool
vectors_next(struct vectors *v, struct vector *x)
{
	char *text, *bytes;

	do {
		if (getline(&v->row, &v->room, v->f) < 0)
			return false;
		v->line++;
		v->row[strcspn(v->row, "\n")] = '\0';
	} while (v->row[0] == '#' || v->row[0] == '\0');
	text = strchr(v->row, '\t');
	bytes = text ? strchr(text + 1, '\t') : NULL;
	if (!bytes) {
		fprintf(stderr, "line %d: not three columns\n", v->line);
		abort();
	}
	*text++ = *bytes++ = '\0';
	buf_reset(&v->bytes);
	vectors_unescape(span_of(bytes), &v->bytes);
	x->verdict = v->row;
	x->text = text;
	x->bytes = v->bytes;
	return true;
}

static inline void
vectors_close(struct vectors *v)
{
	fclose(v->f);
	free(v->row);
	buf_fini(&v->bytes);
}

#endif
