/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What we need of the XML an S3 service answers with, and no more of XML than
 * that: elements without elements in them, by their name.  Pure.
 */
#ifndef QUEEN_S3_S3XML_H
#define QUEEN_S3_S3XML_H

#include <stdbool.h>
#include <stddef.h>

#include "span.h"

struct arena;

enum { S3XML_KEYS_MAX = 1000, S3XML_VALUE_MAX = 8192 };

struct s3xml {
	struct span root; /* name of the outermost element; "" when none */
	bool whole; /* it ends, all inside it does, nothing follows */
	/* the first of its name, entities decoded; "" when there is none */
	struct span upload_id, etag, code, message, region;
	bool truncated;
	const struct span *keys;
	size_t keys_n; /* of more keys than the maximum: truncated */
};

/* Values are copies in a; one longer than the maximum is cut. */
void s3xml_read(struct s3xml *x, struct arena *a, struct span text);

#endif
