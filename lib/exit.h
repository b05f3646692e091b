/* SPDX-License-Identifier: Apache-2.0 */
/* Exit codes of the servers; queenctl keeps a table of its own. */
#ifndef QUEEN_EXIT_H
#define QUEEN_EXIT_H

enum {
	EXIT_CLEAN = 0,		/* stopped as asked */
	EXIT_INTERNAL = 1,	/* could not listen, or failed inside */
	EXIT_CONFIG = 2,	/* a setting is wrong */
	EXIT_DEPENDENCY = 3,	/* database unreachable at boot */
};

#endif
