/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A value of any type and any text: two bytes choose the type, the rest is
 * the text.  What comes out is one JSON value, behind what was there before.
 */
#include <stdint.h>
#include <stdlib.h>

#include "buf.h"
#include "jspan.h"
#include "value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct value_type json = { .kind = VALUE_JSON };
	static const struct value_type jsons = { VALUE_ARRAY, ',', &json };
	static const struct value_type nested = { VALUE_ARRAY, ',', &jsons };
	const struct value_type *t;
	const char *what = "";
	struct buf b = BUF_ZERO;
	struct span text;
	size_t at;

	if (size < 2)
		return 0;
	t = value_builtin((uint32_t)data[0] << 8 | data[1]);
	text = span_make(data + 2, size - 2);
	/* the decoder has refused the others */
	if (!jspan_utf8(text))
		return 0;
	buf_putc(&b, ' ');
	value_write(&b, t ? t : &nested, text);
	/* only a json column may nest deeper than the scanner counts */
	if (!jspan_valid(buf_span(&b), &what, &at) &&
		!span_is(span_of(what), "nested too deep"))
		abort();
	if (b.p[0] != ' ')
		abort();
	buf_fini(&b);
	return 0;
}
