/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an answer: bounded, and the same when read again. */
#include <stdint.h>

#include "arena.h"
#include "err.h"
#include "s3xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span text = span_make(data, size);
	struct arena a = ARENA_ZERO;
	struct s3xml x, y;

	s3xml_read(&x, &a, text);
	s3xml_read(&y, &a, text);
	BUG(x.keys_n > S3XML_KEYS_MAX || x.keys_n != y.keys_n);
	for (size_t i = 0; i < x.keys_n; i++)
		BUG(x.keys[i].n > S3XML_VALUE_MAX ||
			!span_eq(x.keys[i], y.keys[i]));
	BUG(x.upload_id.n > S3XML_VALUE_MAX || x.etag.n > S3XML_VALUE_MAX ||
		x.code.n > S3XML_VALUE_MAX || x.message.n > S3XML_VALUE_MAX ||
		x.region.n > S3XML_VALUE_MAX);
	BUG(x.whole && !x.root.n);
	BUG(x.root.n > size || !span_eq(x.root, y.root));
	arena_fini(&a);
	return 0;
}
