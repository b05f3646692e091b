/* SPDX-License-Identifier: Apache-2.0 */
/* Requests by operation and status, in that order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "metric.h"
#include "s3_int.h"

struct s3_counts {
	struct s3_count {
		enum s3_op op;
		int code;
		uint64_t n;
	} * v;
	size_t n, cap;
};

struct s3_counts *
s3_counts_new(void)
{
	struct s3_counts *c = calloc(1, sizeof(*c));

	BUG(!c);
	return c;
}

void
s3_counts_free(struct s3_counts *c)
{
	if (c)
		free(c->v);
	free(c);
}

static struct s3_count *
insert(struct s3_counts *c, size_t at)
{
	if (c->n == c->cap) {
		c->cap = c->cap ? 2 * c->cap : 16;
		c->v = realloc(c->v, c->cap * sizeof(*c->v));
		BUG(!c->v);
	}
	memmove(&c->v[at + 1], &c->v[at], (c->n++ - at) * sizeof(*c->v));
	return &c->v[at];
}

void
s3_counts_add(struct s3_counts *c, enum s3_op op, int code)
{
	size_t i = 0;

	if (!c)
		return;
	while (i < c->n &&
		(c->v[i].op < op || (c->v[i].op == op && c->v[i].code < code)))
		i++;
	if (i == c->n || c->v[i].op != op || c->v[i].code != code)
		*insert(c, i) = (struct s3_count){ op, code, 0 };
	c->v[i].n++;
}

void
s3_counts_write(const struct s3_counts *c, struct buf *b,
	const struct metric_label *labels, int n)
{
	struct metric_label *all = calloc((size_t)n + 2, sizeof(*all));
	char code[12];

	BUG(!all);
	for (int i = 0; i < n; i++)
		all[i] = labels[i];
	for (size_t i = 0; i < c->n; i++) {
		snprintf(code, sizeof(code), "%d", c->v[i].code);
		all[n] = (struct metric_label){ "op",
			span_of(s3_op_name(c->v[i].op)) };
		all[n + 1] = (struct metric_label){ "code", span_of(code) };
		metric_u64(
			b, "queen_s3_s3_requests_total", all, n + 2, c->v[i].n);
	}
	free(all);
}
