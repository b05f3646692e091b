/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening what is no sealed payload: 16 bytes of message id, then the box.
 * Nothing may open that was not sealed, and a failure may append nothing;
 * what is sealed here must come back, and not under another id.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "err.h"
#include "qid.h"
#include "seal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct seal *
ring(void)
{
	static struct seal *s;
	struct err e = ERR_ZERO;
	char hex[65];

	/* random: no input can hold what opens */
	for (int i = 0; !s && i < 64; i++)
		hex[i] = "0123456789abcdef"[rand() & 15];
	hex[64] = 0;
	if (!s && seal_new(hex, NULL, &s, &e) != 0)
		abort();
	return s;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seal *s = ring();
	struct buf box = BUF_ZERO, out = BUF_ZERO;
	struct err e = ERR_ZERO;
	struct span text;
	struct qid id;

	if (size < sizeof(id.b))
		return 0;
	memcpy(id.b, data, sizeof(id.b));
	text = span_make(data + sizeof(id.b), size - sizeof(id.b));
	buf_put_span(&box, text);
	if (seal_open(s, &id, text, &out, &e) == 0 || out.len != 0)
		abort();
	if (box.len) /* with the key that is loaded */
		box.p[0] = (char)seal_key_id(s);
	if (seal_open(s, &id, buf_span(&box), &out, &e) == 0 || out.len != 0)
		abort();
	buf_reset(&box);
	seal_box(s, &id, text, &box);
	id.b[15] ^= 1;
	if (seal_open(s, &id, buf_span(&box), &out, &e) == 0)
		abort();
	id.b[15] ^= 1;
	if (seal_open(s, &id, buf_span(&box), &out, &e) != 0 ||
		!span_eq(buf_span(&out), text))
		abort();
	buf_fini(&box);
	buf_fini(&out);
	return 0;
}
