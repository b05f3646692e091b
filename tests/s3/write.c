/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write FORMAT CODEC QUEUE TENANT <records >object: an object without a lake.
 * Records are lines ["partition", offset, "id", ts in us, "payload" or null].
 */
#include <stdio.h>
#include <stdlib.h>

#include "arena.h"
#include "err.h"
#include "format.h"
#include "jspan.h"
#include "object.h"
#include "s3conf.h"

static int
refuse(const char *what)
{
	fprintf(stderr, "write: %s\n", what);
	return 1;
}

static bool
read_text(struct jspan *j, struct arena *a, struct span *out)
{
	struct jspan_val v;

	return jspan_next_item(j) && jspan_take(j, &v) &&
	       v.type == JSPAN_STRING && jspan_text(&v, a, out);
}

static bool
read_number(struct jspan *j, int64_t *out)
{
	struct jspan_val v;

	return jspan_next_item(j) && jspan_take(j, &v) && jspan_i64(&v, out);
}

static bool
read_record(struct span line, struct arena *a, struct record *r)
{
	struct jspan_val v;
	struct jspan j;

	jspan_open(&j, line);
	if (!jspan_enter_array(&j) || !read_text(&j, a, &r->partition) ||
		!read_number(&j, &r->offset) || !read_text(&j, a, &r->txn) ||
		!read_number(&j, &r->ts_us) || !jspan_next_item(&j) ||
		!jspan_take(&j, &v))
		return false;
	r->null = v.type == JSPAN_NULL;
	r->payload = (struct span)SPAN_ZERO;
	return (r->null || jspan_text(&v, a, &r->payload)) &&
	       !jspan_next_item(&j) && jspan_end(&j);
}

static int
put(const struct object *o)
{
	struct span s;

	for (size_t at = 0; (s = object_at(o, at)).n > 0; at += s.n)
		if (fwrite(s.p, 1, s.n, stdout) != s.n)
			return refuse("standard output");
	return fflush(stdout) ? refuse("standard output") : 0;
}

int
main(int argc, char **argv)
{
	struct format_of of = { .format = S3_JSONL };
	struct arena a = ARENA_ZERO;
	struct err e = ERR_ZERO;
	struct format *f;
	struct object o;
	struct record r;
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	int rc;

	if (argc != 5 || !s3conf_format_of(span_of(argv[1]), &of.format) ||
		!s3conf_codec_of(span_of(argv[2]), &of.codec))
		return refuse("FORMAT CODEC QUEUE TENANT");
	of.queue = span_of(argv[3]);
	of.tenant = span_of(argv[4]);
	object_init(&o);
	f = format_new(&of, &o, &e);
	if (!f)
		return refuse(e.text);
	while ((n = getline(&line, &cap, stdin)) > 0) {
		if (!read_record(span_make(line, (size_t)n), &a, &r))
			return refuse("a record that is none");
		if (format_add(f, &r, &e) < 0)
			return refuse(e.text);
		arena_reset(&a);
	}
	while ((rc = format_finish(f, &e)) == 1)
		;
	rc = rc < 0 ? refuse(e.text) : put(&o);
	format_free(f);
	object_fini(&o);
	arena_fini(&a);
	free(line);
	return rc;
}
