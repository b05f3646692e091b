/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only file that knows commit and date, so that only it is made again
 * when they change.
 */
#include "version.h"

#ifndef QUEEN_COMMIT
#define QUEEN_COMMIT "unknown"
#endif
#ifndef QUEEN_BUILT
#define QUEEN_BUILT "unknown"
#endif

const char *
version_line(void)
{
	return "queenctl " QUEEN_VERSION " (commit " QUEEN_COMMIT
	       ", built " QUEEN_BUILT ")";
}
