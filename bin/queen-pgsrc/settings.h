/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of queen-pgsrc are those of every connector; conf.c has the table. */
#ifndef QUEEN_PGSRC_SETTINGS_H
#define QUEEN_PGSRC_SETTINGS_H

#include <stddef.h>

#include "conf.h"
#include "connhost.h"

extern const struct conf_item conf_items[];
extern const size_t conf_items_n;

#endif
