/* SPDX-License-Identifier: Apache-2.0 */
#ifndef QUEENCTL_VERSION_H
#define QUEENCTL_VERSION_H

/* `queenctl <ver> (commit <c>, built <date>)`. */
const char *version_line(void);

#endif
