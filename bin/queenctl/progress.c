/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "clk.h"

enum { SHOW_EVERY_MS = 200 };

void
progress_init(struct progress *p, bool quiet, const char *what)
{
	*p = (struct progress){ .on = !quiet && isatty(STDERR_FILENO),
		.what = what,
		.started_ms = clk_mono_ms() };
}

void
progress_show(struct progress *p, int64_t done, int64_t total)
{
	int64_t now_ms = clk_mono_ms();

	if (!p || !p->on || now_ms < p->next_ms)
		return;
	p->next_ms = now_ms + SHOW_EVERY_MS;
	int64_t ms = now_ms - p->started_ms;

	if (total >= 0)
		fprintf(stderr, "\r\033[K%" PRId64 " of %" PRId64 " %s", done,
			total, p->what);
	else
		fprintf(stderr, "\r\033[K%" PRId64 " %s, %" PRId64 "/s", done,
			p->what, ms > 0 ? done * 1000 / ms : 0);
	p->shown = true;
}

void
progress_clear(struct progress *p)
{
	if (!p || !p->shown)
		return;
	fputs("\r\033[K", stderr);
	p->shown = false;
}

void
progress_end(struct progress *p)
{
	progress_clear(p);
}
