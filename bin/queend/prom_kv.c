/* SPDX-License-Identifier: Apache-2.0 */
/* Families of kv and of what limits refuse. */
#include "prom_kv.h"

#include "buf.h"
#include "ctx.h"
#include "kv_sweep.h"
#include "kvlimit.h"
#include "metric.h"

static const char *const op_names[KVLIMIT_OPS] = { "get", "getMany",
	"getPrefix", "put", "delete", "incr" };
static const char *const result_names[KVLIMIT_RESULTS] = { "applied",
	"rejected", "error" };
static const char *const read_whys[KVLIMIT_WHYS] = {
	[KVLIMIT_RATE] = "rate_limited",
	[KVLIMIT_QUOTA] = "quota",
	[KVLIMIT_POOL] = "pool",
	[KVLIMIT_DISABLED] = "disabled",
};
static const char *const schedule_whys[KVLIMIT_WHYS] = {
	[KVLIMIT_RATE] = "rate_limited",
	[KVLIMIT_QUOTA] = "quota",
	[KVLIMIT_POOL] = "unavailable",
	[KVLIMIT_DISABLED] = "disabled",
	[KVLIMIT_GATED] = "gated",
	[KVLIMIT_HORIZON] = "horizon",
	[KVLIMIT_SHAPE] = "shape",
	[KVLIMIT_SIZE] = "payload_too_large",
};

static void
write_whys(struct buf *b, const char *name, const char *const *whys,
	const uint64_t *v)
{
	for (int i = 0; i < KVLIMIT_WHYS; i++) {
		struct metric_label l = { "reason", SPAN_ZERO };

		if (!whys[i])
			continue;
		l.value = span_of(whys[i]);
		metric_u64(b, name, &l, 1, v[i]);
	}
}

void
prom_kv_write(struct buf *b, struct ctx *x)
{
	struct kvlimit_stats s;
	int64_t unpruned, lag_ms;

	kvlimit_stats(x->kvlimit, &s);
	kv_sweep_stats(x->kv_sweep, &unpruned, &lag_ms);
	metric_head(
		b, "queen_kv_ops_total", "counter", "KV operations by result.");
	for (int op = 0; op < KVLIMIT_OPS; op++)
		for (int i = 0; i < KVLIMIT_RESULTS; i++) {
			struct metric_label l[2] = {
				{ "op", span_of(op_names[op]) },
				{ "result", span_of(result_names[i]) },
			};

			metric_u64(b, "queen_kv_ops_total", l, 2, s.ops[op][i]);
		}
	metric_head(b, "queen_kv_read_rejected_total", "counter",
		"KV reads refused.");
	write_whys(
		b, "queen_kv_read_rejected_total", read_whys, s.reads_refused);
	metric_head(b, "queen_timers_schedule_rejected_total", "counter",
		"Timer schedules refused.");
	write_whys(b, "queen_timers_schedule_rejected_total", schedule_whys,
		s.schedules_refused);
	metric_head(b, "queen_kv_expired_not_pruned", "gauge",
		"Dead KV rows the last sweep left, capped.");
	metric_u64(
		b, "queen_kv_expired_not_pruned", NULL, 0, (uint64_t)unpruned);
	metric_head(b, "queen_kv_expiry_lag_seconds", "gauge",
		"Age of the oldest of them.");
	metric_f64(b, "queen_kv_expiry_lag_seconds", NULL, 0,
		(double)lag_ms / 1000.0);
}
