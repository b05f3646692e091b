/* SPDX-License-Identifier: Apache-2.0 */
#include "seek.h"

#include <string.h>

#include "client.h"
#include "clk.h"
#include "ctl.h"
#include "jwrite.h"

int
seek_target(struct seek *s, const char *to)
{
	struct err e = ERR_ZERO;

	if (!*to)
		to = "end";
	if (timearg_parse(to, clk_wall_us(), &s->to, &e) != 0)
		return ctl_fail(CTL_USER, "--to %s", e.text);
	if (s->to.kind == TIMEARG_OFFSET && !s->partition)
		return ctl_fail(CTL_USER, "an offset belongs to one partition: "
					  "use partition seek");
	return CTL_OK;
}

int
seek_send(struct ctl *c, const struct seek *s, struct client_reply *r)
{
	struct client_req q = { .method = "POST", .kind = CLIENT_WRITE };
	struct buf path = BUF_ZERO, body = BUF_ZERO;
	char iso[TIMEARG_TEXT];
	struct jwrite w;
	int code;

	buf_puts(&path, "/api/v1/consumer-groups");
	client_segment(&path, s->group);
	buf_puts(&path, "/queues");
	client_segment(&path, s->queue);
	if (s->partition) {
		buf_puts(&path, "/partitions");
		client_segment(&path, s->partition);
	}
	buf_puts(&path, "/seek");
	buf_putc(&path, '\0');
	jwrite_init(&w, &body);
	jwrite_object(&w);
	if (s->to.kind == TIMEARG_END)
		jwrite_kv_bool(&w, "toEnd", true);
	else if (s->to.kind == TIMEARG_OFFSET)
		jwrite_kv_i64(&w, "offset", s->to.offset);
	else
		jwrite_kv_cstr(&w, "timestamp", timearg_text(s->to.at_us, iso));
	jwrite_end(&w);
	q.path = path.p;
	q.body = buf_span(&body);
	code = client_ask(c, &q, r);
	buf_fini(&path);
	buf_fini(&body);
	return code;
}
