/* SPDX-License-Identifier: Apache-2.0 */
/* One record per line, compressed as a stream. */
#ifndef QUEEN_S3_JSONL_H
#define QUEEN_S3_JSONL_H

#include <stdint.h>

#include "s3conf.h"

struct err;
struct object;
struct record;

struct jsonl;
/* out is borrowed.  NULL with ERR_CONFIG: no codec of text. */
struct jsonl *jsonl_new(enum s3_codec c, struct object *out, struct err *e);
int jsonl_add(struct jsonl *j, const struct record *r, struct err *e)
	__attribute__((warn_unused_result));
int jsonl_finish(struct jsonl *j, struct err *e)
	__attribute__((warn_unused_result));
void jsonl_free(struct jsonl *j);

#endif
