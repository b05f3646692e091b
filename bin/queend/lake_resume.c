/* SPDX-License-Identifier: Apache-2.0 */
/* A queue that is held is told how to go on. */
#include <string.h>

#include "admin.h"
#include "hsrv.h"
#include "jspan.h"
#include "jwrite.h"
#include "lake_int.h"
#include "pgpool.h"
#include "s3conf.h"

static const struct pgstmt STMT_RESUME = { "lake_resume",
	"select queen.lake_resume_v1($1, $2, $3, $4)" };

static void
on_resume(struct hsrv_req *r, const PGresult *res)
{
	struct jwrite w;

	if (!pgbin_bool(res, 0, 0)) {
		lake_refuse(r, 404, "queue_unknown",
			"this cluster has no such queue, or that is no name "
			"of a sink");
		return;
	}
	jwrite_init(&w, hsrv_out(r));
	jwrite_object(&w);
	jwrite_kv_str(&w, "cluster", hsrv_param(r, 0));
	jwrite_kv_bool(&w, "requested", true);
	jwrite_end(&w);
	hsrv_reply(r, 200);
}

struct resume {
	struct span queue, sink, prefix;
};

/* One member; false: another type, or none that is known. */
static bool
take_member(struct resume *x, struct span key, const struct jspan_val *v,
	struct arena *a)
{
	struct span *to = span_is(key, "queue")    ? &x->queue
			  : span_is(key, "sink")   ? &x->sink
			  : span_is(key, "prefix") ? &x->prefix
						   : NULL;

	if (to && v->type == JSPAN_NULL)
		return true;
	return to && v->type == JSPAN_STRING && jspan_text(v, a, to) &&
	       !memchr(to->p, '\0', to->n);
}

/* False after having refused. */
static bool
read_resume(struct hsrv_req *r, struct resume *x)
{
	struct jspan_val v;
	struct span key = SPAN_ZERO;
	struct jspan j;

	jspan_open(&j, hsrv_body(r));
	if (!jspan_enter_object(&j)) {
		lake_refuse(r, 400, "invalid", "the body is not an object");
		return false;
	}
	while (jspan_next_key(&j, hsrv_arena(r), &key) && jspan_take(&j, &v))
		if (!take_member(x, key, &v, hsrv_arena(r))) {
			lake_refuse(r, 400, "invalid",
				"%.*s: is not one of the texts queue, sink "
				"and prefix",
				SPAN_ARG(span_clip(key, 64)));
			return false;
		}
	if (j.error || !jspan_end(&j)) {
		lake_refuse(r, 400, "invalid",
			"the body is not JSON: %s at offset %zu", j.error,
			j.error_at);
		return false;
	}
	return true;
}

void
lake_resume(struct hsrv_req *r)
{
	struct resume x = { .sink = SPAN_LIT("default") };
	struct lake *l = lake_begin(r);
	struct pgargs a;

	if (!l || !read_resume(r, &x) || !admin_name(r, "queue", x.queue))
		return;
	if (x.prefix.p && !s3conf_prefix_ok(x.prefix)) {
		lake_refuse(r, 400, "invalid",
			"prefix: is no path without empty, `.` and `..` "
			"segments");
		return;
	}
	l->too_large = "queue: no sink can keep rows for so long a name";
	pgargs_init(&a);
	pgargs_uuid(&a, &l->tenant);
	pgargs_text(&a, x.sink);
	pgargs_text(&a, x.queue);
	if (x.prefix.p)
		pgargs_text(&a, x.prefix);
	else
		pgargs_null(&a);
	lake_call(l, &STMT_RESUME, &a, on_resume);
}
