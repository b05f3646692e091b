/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus text exposition format 0.0.4. */
#ifndef QUEEN_METRIC_H
#define QUEEN_METRIC_H

#include <stdint.h>

#include "span.h"

struct buf;
struct metric_label {
	const char *name;
	struct span value;	/* escaped by the writer */
};

/* `# HELP` and `# TYPE`; type is "counter" or "gauge". */
void metric_head(struct buf *b, const char *name, const char *type,
	const char *help);
void metric_u64(struct buf *b, const char *name,
	const struct metric_label *labels, int n, uint64_t v);
void metric_f64(struct buf *b, const char *name,
	const struct metric_label *labels, int n, double v);
/* A family of one, without labels: head and value. */
void metric_one(struct buf *b, const char *name, const char *type,
	const char *help, uint64_t v);

/* Resident set of this process; 0 when the system does not tell. */
uint64_t metric_resident_bytes(void);

#endif
