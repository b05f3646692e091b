/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short words for a table of settings; for a tool's conf.c alone, which says
 * by CONF_OF what struct the fields are of.
 */
#ifndef QUEEN_CONF_TABLE_H
#define QUEEN_CONF_TABLE_H

#include <stddef.h>

#include "conf.h"

#define AT(field) offsetof(CONF_OF, field)

#define STR(nm, field, def, grp, hlp)                                          \
	{                                                                      \
		.name = nm, .type = CONF_STR, .at = AT(field), .dflt = def,    \
		.group = grp, .help = hlp                                      \
	}
#define SECRET(nm, field, grp, hlp)                                            \
	{                                                                      \
		.name = nm, .type = CONF_STR, .at = AT(field), .secret = true, \
		.group = grp, .help = hlp                                      \
	}
#define INT(nm, field, def, lo, hi, grp, hlp)                                  \
	{                                                                      \
		.name = nm, .type = CONF_INT, .at = AT(field), .dflt = def,    \
		.min = lo, .max = hi, .group = grp, .help = hlp                \
	}
#define BOOL(nm, field, def, grp, hlp)                                         \
	{                                                                      \
		.name = nm, .type = CONF_BOOL, .at = AT(field), .dflt = def,   \
		.group = grp, .help = hlp                                      \
	}
#define WORD(nm, field, def, set, grp, hlp)                                    \
	{                                                                      \
		.name = nm, .type = CONF_WORD, .at = AT(field), .dflt = def,   \
		.words = set, .group = grp, .help = hlp                        \
	}
#define ACCEPT(nm)                                                             \
	{                                                                      \
		.name = nm, .type = CONF_ACCEPT                                \
	}

#endif
