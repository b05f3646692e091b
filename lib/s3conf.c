/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of a sink as one value: from the environment, freed, and as
 * part of a line of the log.
 */
#include "s3conf.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "clk.h"
#include "err.h"
#include "jspan.h"
#include "log.h"
#include "s3conf_int.h"

char *
s3conf_dup(struct span s)
{
	char *p = malloc(s.n + 1);

	BUG(!p);
	if (s.n)
		memcpy(p, s.p, s.n);
	p[s.n] = '\0';
	return p;
}

void
s3conf_source_fini(struct s3conf_source *s)
{
	for (int k = 0; k < S3CONF_KEYS; k++) {
		struct s3conf_value *v = &s->v[k];

		if (v->text && k == S3CONF_SECRET_KEY)
			sodium_memzero(v->text, strlen(v->text));
		free(v->text);
		for (size_t i = 0; i < v->list_n; i++)
			free(v->list[i]);
		free(v->list);
		*v = (struct s3conf_value){ .is = S3CONF_UNSET };
	}
}

void
s3conf_fini(struct s3conf *c)
{
	if (c->secret_key)
		sodium_memzero(c->secret_key, strlen(c->secret_key));
	for (size_t i = 0; i < c->queues_n; i++)
		free(c->queues[i]);
	free(c->queues);
	free(c->endpoint);
	free(c->region);
	free(c->bucket);
	free(c->access_key);
	free(c->secret_key);
	free(c->prefix);
	free(c->kms_key_id);
	*c = (struct s3conf){ .all_queues = false };
}

/* ---- the environment ---- */

/* What alone cannot be: the list of queues turns the sink on. */
static int
without_queues(struct s3conf_source *s)
{
	for (int k = 0; k < S3CONF_KEYS; k++)
		if (s->v[k].is != S3CONF_UNSET)
			return err_set(s->e, ERR_CONFIG,
				"%s is set, but %s is not, which turns the "
				"sink of the environment on: set it, or unset "
				"the other to run the sinks of tenants alone",
				s3conf_key_name(s, (enum s3conf_key)k),
				s3conf_key_name(s, S3CONF_QUEUES));
	return 1;
}

static void
read_env(struct s3conf_source *s, s3conf_get_fn get, void *arg)
{
	for (int k = 0; k < S3CONF_KEYS; k++) {
		const char *name = s3conf_key_name(s, (enum s3conf_key)k);
		struct span t = span_trim(span_of(get(arg, name)));

		if (t.n == 0)
			continue;
		s->v[k].is = S3CONF_TEXT;
		s->v[k].text = s3conf_dup(t);
	}
}

int
s3conf_from_env(struct s3conf *c, s3conf_get_fn get, void *arg, struct err *e)
{
	struct s3conf_source s = { .c = c, .e = e };
	struct span fixed = span_trim(span_of(get(arg, "QUEEN_S3_PARTITIONS")));
	int rc;

	*c = (struct s3conf){ .all_queues = false };
	if (fixed.n)
		return s3conf_refuse_partitions(fixed, e);
	read_env(&s, get, arg);
	if (s.v[S3CONF_QUEUES].is == S3CONF_UNSET)
		rc = without_queues(&s);
	else
		rc = s3conf_apply(&s);
	s3conf_source_fini(&s);
	if (rc != 0)
		s3conf_fini(c);
	return rc;
}

/* ---- the line of the log ---- */

void
s3conf_put_id(struct buf *b, const char *id)
{
	size_t n = strlen(id);
	const char *end = n > 4 ? id + n - 4 : "";

	/* whole characters, also of an id that is refused for what it has */
	while (((unsigned char)*end & 0xc0) == 0x80)
		end++;
	buf_puts(b, "\xe2\x80\xa6");
	buf_puts(b, jspan_utf8(span_of(end)) ? end : "");
}

/* Quoted where a space would end it. */
static void
put(struct buf *b, const char *key, const char *value)
{
	buf_printf(b, " %s=%s", key,
		value[0] == '\0' || strpbrk(value, " \"\\") ? log_quote(value)
							    : value);
}

static void
put_queues(struct buf *b, const struct s3conf *c)
{
	struct buf list = BUF_ZERO;

	if (c->all_queues)
		buf_putc(&list, '*');
	for (size_t i = 0; i < c->queues_n; i++)
		buf_printf(&list, "%s%s", i ? "," : "", c->queues[i]);
	buf_putc(&list, '\0');
	put(b, "queues", list.p);
	buf_fini(&list);
}

static void
put_sse(struct buf *b, const struct s3conf *c)
{
	const char *name = s3conf_sse_name(c->sse);

	buf_printf(b, " sse=%s", name ? name : "none");
	if (c->kms_key_id) {
		buf_putc(b, '(');
		s3conf_put_id(b, c->kms_key_id);
		buf_putc(b, ')');
	}
}

void
s3conf_put_start(const struct s3conf *c, struct buf *b)
{
	char iso[CLK_ISO_MAX];

	switch (c->start) {
	case S3_LATEST:
		buf_puts(b, "latest");
		break;
	case S3_EARLIEST:
		buf_puts(b, "earliest");
		break;
	case S3_TIMESTAMP:
		buf_printf(b, "timestamp:%s", clk_iso_us(c->start_us, iso));
	}
}

void
s3conf_line(const struct s3conf *c, struct buf *out)
{
	put(out, "sink", c->sink);
	put_queues(out, c);
	put(out, "s3", c->endpoint);
	put(out, "bucket", c->bucket);
	put(out, "prefix", c->prefix);
	put(out, "region", c->region);
	put(out, "addressing", c->path_style ? "path" : "virtual-host");
	put_sse(out, c);
	put(out, "format", s3conf_format_name(c->format));
	put(out, "compression", s3conf_codec_name(s3conf_codec(c)));
	put(out, "layout", s3conf_layout_name(c->layout));
	put(out, "align", s3conf_align_name(c->align));
	buf_printf(out, " target_mb=%" PRId64 " max_window_ms=%" PRId64,
		c->target_mb, c->max_window_ms);
	buf_puts(out, " start=");
	s3conf_put_start(c, out);
}
