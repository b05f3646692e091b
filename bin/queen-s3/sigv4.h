/* SPDX-License-Identifier: Apache-2.0 */
/* AWS Signature Version 4, Authorization header, service s3.  Pure. */
#ifndef QUEEN_S3_SIGV4_H
#define QUEEN_S3_SIGV4_H

#include <stddef.h>
#include <stdint.h>

#include "span.h"

struct buf;

struct sigv4_key {
	const char *access, *secret, *region;
};
struct sigv4_pair {
	struct span name, value; /* header names in lower case */
};
struct sigv4_request {
	const char *method;
	struct span path; /* as on the wire, encoded once */
	struct span query; /* as sigv4_query writes it, and as on the wire */
	/* all that are sent and to be signed, host and x-amz-* among them */
	const struct sigv4_pair *headers;
	size_t headers_n;
	const char *payload_sha256_hex;
	int64_t at_us; /* of x-amz-date */
};
enum { SIGV4_DATE_MAX = 17 }; /* 20260904T100000Z */
char *sigv4_date(int64_t at_us, char out[SIGV4_DATE_MAX]);
/* Appends every byte but A-Z a-z 0-9 - . _ ~ and, if asked, / as %XX. */
void sigv4_encode(struct buf *b, struct span s, int keep_slash);
/*
 * Appends the canonical query string, which is the one to send: pairs of plain
 * names and values, in any order.
 */
void sigv4_query(struct buf *b, const struct sigv4_pair *q, size_t n);
/* Appends the value of the Authorization header. */
void sigv4_sign(struct buf *b, const struct sigv4_key *k,
	const struct sigv4_request *r);

#endif
