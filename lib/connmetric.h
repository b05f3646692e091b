/* SPDX-License-Identifier: Apache-2.0 */
/* The metric families of connectors, in the order they are shown in. */
#ifndef QUEEN_CONNMETRIC_H
#define QUEEN_CONNMETRIC_H

#include <stdbool.h>

#include "span.h"

enum { CONNMETRIC_N = 12 };

struct connmetric {
	const char *name, *type, *help;
};
extern const struct connmetric connmetric_table[CONNMETRIC_N];

/* Its number in the table; -1 = none of ours. */
int connmetric_find(struct span name);
bool connmetric_is_counter(int i);

#endif
