/* SPDX-License-Identifier: Apache-2.0 */
/* The level of a path by its form alone: for paths that have no route. */
#ifndef QUEEN_OJS_LEVEL_H
#define QUEEN_OJS_LEVEL_H

#include "gate.h"

enum gate_level level_of(enum hsrv_method m, struct span path);

#endif
