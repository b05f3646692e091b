/* SPDX-License-Identifier: Apache-2.0 */
/* One reader for both families; see ops_body.h. */
#include "ops_body.h"

#include "arena.h"
#include "hsrv.h"
#include "jspan.h"

bool
ops_body_names_tenant(struct span member)
{
	return span_is(member, "tenant") || span_is(member, "tenantId") ||
	       span_is(member, "_tenant");
}

enum ops_body
ops_body_read(struct hsrv_req *r, struct span *ops, const char **why)
{
	struct arena *a = hsrv_arena(r);
	struct jspan_val v, given = { .type = JSPAN_NONE };
	struct jspan j;
	struct span key;

	jspan_open(&j, hsrv_body(r));
	if (jspan_peek(&j) == JSPAN_ARRAY) {
		*ops = hsrv_body(r);
		return OPS_BODY_GOOD;
	}
	if (jspan_enter_object(&j))
		while (jspan_next_key(&j, a, &key) && jspan_take(&j, &v)) {
			if (ops_body_names_tenant(key)) {
				*why = "the tenant is that of the request";
				return OPS_BODY_TENANT;
			}
			if (span_is(key, "operations"))
				given = v;
		}
	if (j.error || !jspan_end(&j)) {
		*why = arena_cstr(
			a, arena_printf(a, "%s at offset %zu",
				   j.error ? j.error : "unexpected value",
				   j.error_at));
		return OPS_BODY_BAD;
	}
	if (given.type != JSPAN_ARRAY) {
		*why = "operations must be an array of operations";
		return OPS_BODY_BAD;
	}
	*ops = given.raw;
	return OPS_BODY_GOOD;
}
