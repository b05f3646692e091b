/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus text; a label value may hold any byte. */
#include "metric.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "buf.h"

void
metric_head(struct buf *b, const char *name, const char *type, const char *help)
{
	buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void
put_name(struct buf *b, const char *name, const struct metric_label *labels,
	int n)
{
	buf_puts(b, name);
	for (int i = 0; i < n; i++) {
		buf_putc(b, i == 0 ? '{' : ',');
		buf_puts(b, labels[i].name);
		buf_puts(b, "=\"");
		for (size_t k = 0; k < labels[i].value.n; k++) {
			char c = labels[i].value.p[k];

			if (c == '\n') {
				buf_puts(b, "\\n");
				continue;
			}
			if (c == '"' || c == '\\')
				buf_putc(b, '\\');
			buf_putc(b, c);
		}
		buf_putc(b, '"');
	}
	if (n > 0)
		buf_putc(b, '}');
	buf_putc(b, ' ');
}

void
metric_u64(struct buf *b, const char *name, const struct metric_label *labels,
	int n, uint64_t v)
{
	put_name(b, name, labels, n);
	buf_printf(b, "%" PRIu64 "\n", v);
}

void
metric_f64(struct buf *b, const char *name, const struct metric_label *labels,
	int n, double v)
{
	put_name(b, name, labels, n);
	if (isnan(v))
		buf_puts(b, "NaN\n");
	else if (isinf(v))
		buf_puts(b, v > 0 ? "+Inf\n" : "-Inf\n");
	else
		buf_printf(b, "%.10g\n", v);
}

void
metric_one(struct buf *b, const char *name, const char *type, const char *help,
	uint64_t v)
{
	metric_head(b, name, type, help);
	metric_u64(b, name, NULL, 0, v);
}

uint64_t
metric_resident_bytes(void)
{
	uint64_t pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (!f)
		return 0;
	if (fscanf(f, "%*u %" SCNu64, &pages) != 1)
		pages = 0;
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
