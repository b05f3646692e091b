/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How hard the database is pressed, as this process sees it: calls that wait
 * for a connection.  The one measure by which work that can wait is left.
 */
#ifndef QUEEND_PRESSURE_H
#define QUEEND_PRESSURE_H

struct ctx;
struct pgpool_stats;

enum pressure {
	PRESSURE_NONE,
	PRESSURE_SOME,		/* dead rows are left where they are */
	PRESSURE_HIGH,		/* usage is not measured either */
};

enum pressure pressure_now(const struct ctx *x);
/* Pure. */
enum pressure pressure_of(const struct pgpool_stats *s);

#endif
