/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queen-pgsink: what the parent of this node's sinks (lib/connhost) has to know of
 * them, and the process of one.
 */
#include "boot.h"
#include "connchild.h"
#include "connhost.h"
#include "ctx.h"
#include "err.h"
#include "exit.h"
#include "loop.h"
#include "settings.h"
#include "sink.h"

static void
on_stop(void *arg, int64_t grace_ms)
{
	sink_stop(arg, grace_ms);
}

static int
run(const struct connhost_settings *conf, const char *conninfo,
	const struct seal *seal)
{
	struct ctx x = { .conf = conf, .conninfo = conninfo, .seal = seal };
	struct connchild_face face = { .write_detail = sink_write_detail,
		.write_metrics = sink_write_metrics,
		.on_marks = sink_on_marks,
		.on_stop = on_stop };
	struct err e = ERR_ZERO;
	struct sink *s;

	x.loop = loop_new();
	x.child = connchild_open(x.loop, CONNHOST_FD, &face, &e);
	if (!x.child) {
		loop_free(x.loop);
		return boot_fatal(EXIT_INTERNAL, e.text);
	}
	x.task = connchild_task(x.child);
	s = sink_new(&x);
	connchild_set_arg(x.child, s);
	loop_run(x.loop);
	sink_free(s);
	connchild_free(x.child);
	loop_free(x.loop);
	return EXIT_CLEAN;
}

int
main(int argc, char **argv)
{
	struct connhost_tool t = { .kind = CONNDOC_SINK,
		.name = "queen-pgsink",
		.purpose =
			"Writes queues into tables of PostgreSQL databases, exactly\n"
			"once. It is configured by the environment\n"
			"alone; see queen-pgsink(8).\n",
		.listen_name = "QUEEN_PGSINK_LISTEN",
		.items = conf_items,
		.items_n = conf_items_n,
		.child = run };

	return connhost_main(&t, argc, argv);
}
