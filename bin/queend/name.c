/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of names; see name.h. */
#include "name.h"

#include "jspan.h"

const char *
name_fault(struct span name, bool utf8, int *control)
{
	*control = -1;
	if (!name.n)
		return "is empty";
	if (name.n > NAME_MAX_BYTES)
		return "is longer than 1024 bytes";
	if (!utf8 && !jspan_utf8(name))
		return "is not UTF-8";
	for (size_t i = 0; i < name.n; i++) {
		unsigned char c = (unsigned char)name.p[i];

		if (c < 0x20 || c == 0x7f) {
			*control = c;
			return "holds a control character";
		}
	}
	return NULL;
}

int
name_check(struct span name, const char *what, struct err *e)
{
	int control;
	const char *fault = name_fault(name, false, &control);

	if (!fault)
		return 0;
	if (control >= 0)
		return err_set(e, ERR_INPUT, "%s %s (0x%02x)", what, fault,
			(unsigned)control);
	return err_set(e, ERR_INPUT, "%s %s", what, fault);
}
