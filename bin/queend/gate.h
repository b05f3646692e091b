/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may ask what: tokens, levels of routes and the tenant header, decided
 * from the head of a request alone.  A token whose key is not known keeps its
 * request while the keys are fetched; its body is not read meanwhile.
 */
#ifndef QUEEND_GATE_H
#define QUEEND_GATE_H

#include <stdbool.h>

#include "hsrv.h"
#include "span.h"

struct err;
struct gate;
struct loop;
struct settings;

/* ERR_CONFIG for settings that must end the boot; settings are borrowed. */
int gate_new(const struct settings *s, struct gate **out, struct err *e)
	__attribute__((warn_unused_result));
/* Begins to fetch keys, where there are any to fetch. */
int gate_start(struct gate *g, struct loop *l, struct err *e)
	__attribute__((warn_unused_result));
/* Lets go of the requests it keeps: before the server is freed. */
void gate_stop(struct gate *g);
void gate_free(struct gate *g);

/* The gate of hsrv_conf; the context of the server is a struct ctx. */
bool gate_ask(struct hsrv_req *r, int level);

/* The level of a path by its form alone: for paths that have no route. */
int gate_level(enum hsrv_method m, struct span path);
/* True when a comma list of JWT_SKIP_PATHS lets the path by. */
bool gate_skips(const char *list, struct span path);
/* The roles (bits of enum jwt_role) one of which a level asks for; 0 = none. */
unsigned gate_roles(int level);

#endif
