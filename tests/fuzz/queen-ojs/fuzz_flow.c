/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of any bytes, the reader by the first one: configurations of queues,
 * and workflows.  Who refuses says why; who accepts keeps to the limits.
 */
#include <stdint.h>
#include <stdlib.h>

#include "arena.h"
#include "queue.h"
#include "queue_int.h"
#include "workflow_int.h"

enum { ENVELOPE_MAX = 4096, JOBS_MAX = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
refused(const struct problem *p)
{
	if (p->status < 400 || !p->code || !p->message)
		abort();
}

static void
try_conf(struct span s, bool named, struct arena *a)
{
	struct problem p;
	struct queue_conf c;

	if (queue_conf_parse(s, named, a, &c, &p) != 0)
		refused(&p);
	else if (named && !queue_name_ok(c.name))
		abort();
}

static void
try_workflow(struct span s, struct arena *a)
{
	static const struct workflow_limits limits = {
		.envelope_bytes = ENVELOPE_MAX,
		.jobs = JOBS_MAX,
	};
	struct problem p;
	struct workflow_ask k;

	if (workflow_parse(s, &limits, a, 0, &k, &p) != 0)
		refused(&p);
	else if (k.members == 0 || k.n > JOBS_MAX || k.n < k.members ||
		 (k.kind == WORKFLOW_BATCH) != (k.n > k.members))
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arena a = ARENA_ZERO;
	struct span s;

	if (size == 0)
		return 0;
	s = span_make(data + 1, size - 1);
	switch (data[0]) {
	case 'w':
		try_workflow(s, &a);
		break;
	case 'n':
		try_conf(s, true, &a);
		break;
	default:
		try_conf(s, false, &a);
	}
	arena_fini(&a);
	return 0;
}
