/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines.  A line leaves in one write(2), so lines of several processes on
 * one descriptor do not mix.  The filter is set once at boot; it is the only
 * state, because a log that had to be passed around would not be used.
 */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clk.h"

enum { TARGETS_MAX = 16, LINE_BYTES = 4096, QUOTES = 4, QUOTE_BYTES = 512 };

static struct {
	enum log_level level;
	bool json;
	bool journal; /* stderr is systemd's: priority instead of time */
	int targets_n;
	struct {
		char name[24];
		enum log_level level;
	} targets[TARGETS_MAX];
} state = { .level = LOG_INFO };

static const struct {
	const char *word; /* in a filter */
	const char *shown;
	int priority; /* syslog's */
} levels[] = {
	[LOG_ERROR] = { "error", "ERROR", 3 },
	[LOG_WARN] = { "warn", "WARN", 4 },
	[LOG_INFO] = { "info", "INFO", 6 },
	[LOG_DEBUG] = { "debug", "DEBUG", 7 },
	[LOG_TRACE] = { "trace", "TRACE", 7 },
};

static bool
level_of(const char *s, size_t n, enum log_level *out)
{
	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		if (strlen(levels[i].word) == n &&
			strncasecmp(s, levels[i].word, n) == 0) {
			*out = (enum log_level)i;
			return true;
		}
	}
	return false;
}

static bool
parse_filter(const char *s)
{
	while (*s) {
		size_t n = strcspn(s, ",");
		const char *eq = memchr(s, '=', n);

		if (eq) {
			size_t name_n = (size_t)(eq - s);
			int i = state.targets_n;

			if (i == TARGETS_MAX || name_n == 0 ||
				name_n >= sizeof(state.targets[i].name) ||
				!level_of(eq + 1, n - name_n - 1,
					&state.targets[i].level))
				return false;
			memcpy(state.targets[i].name, s, name_n);
			state.targets[i].name[name_n] = '\0';
			state.targets_n++;
		} else if (!level_of(s, n, &state.level)) {
			return false;
		}
		s += n;
		if (*s == ',')
			s++;
	}
	return true;
}

/* systemd names the device and inode of the stream it gave us. */
static bool
stderr_is_journal(void)
{
	const char *v = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	if (!v || sscanf(v, "%llu:%llu", &dev, &ino) != 2)
		return false;
	return fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev &&
	       st.st_ino == ino;
}

void
log_init(const char *filter, bool json)
{
	memset(&state, 0, sizeof(state));
	state.level = LOG_INFO;
	state.json = json;
	state.journal = stderr_is_journal();
	if (filter && !parse_filter(filter)) {
		state.level = LOG_INFO;
		state.targets_n = 0;
	}
}

bool
log_on(enum log_level level, const char *target)
{
	for (int i = 0; i < state.targets_n; i++)
		if (strcmp(state.targets[i].name, target) == 0)
			return level <= state.targets[i].level;
	return level <= state.level;
}

/* ---- a line of fixed size; what does not fit is cut ---- */

struct line {
	char b[LINE_BYTES];
	size_t n;
};

static void
put(struct line *l, const char *s, size_t n)
{
	size_t room = sizeof(l->b) - 8 - l->n; /* 8: closing and newline */

	if (n > room)
		n = room;
	memcpy(l->b + l->n, s, n);
	l->n += n;
}

static void
puts_line(struct line *l, const char *s)
{
	put(l, s, strlen(s));
}

/* The inside of a JSON string; also used for quoted values in text. */
static size_t
escape(char *out, size_t cap, const char *s, size_t n)
{
	size_t o = 0;

	for (size_t i = 0; i < n && o + 7 < cap; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c == '"' || c == '\\') {
			out[o++] = '\\';
			out[o++] = (char)c;
		} else if (c < 0x20 || c == 0x7f) {
			o += (size_t)snprintf(out + o, cap - o, "\\u%04x", c);
		} else {
			out[o++] = (char)c;
		}
	}
	return o;
}

const char *
log_quote(const char *text)
{
	static char ring[QUOTES][QUOTE_BYTES];
	static unsigned next;
	char *out = ring[next++ % QUOTES];
	size_t n;

	if (!text)
		text = "";
	out[0] = '"';
	n = 1 + escape(out + 1, QUOTE_BYTES - 2, text, strlen(text));
	out[n] = '"';
	out[n + 1] = '\0';
	return out;
}

static void
put_json_string(struct line *l, const char *s, size_t n)
{
	char tmp[LINE_BYTES];

	put(l, "\"", 1);
	put(l, tmp, escape(tmp, sizeof(tmp), s, n));
	put(l, "\"", 1);
}

/* Length of the value at s: quoted as log_quote does, or up to a space. */
static size_t
value_len(const char *s)
{
	size_t n = 1;

	if (*s != '"')
		return strcspn(s, " ");
	while (s[n] && s[n] != '"')
		n += s[n] == '\\' && s[n + 1] ? 2 : 1;
	return s[n] ? n + 1 : n;
}

static bool
is_number(const char *s, size_t n)
{
	size_t i = n > 0 && s[0] == '-' ? 1 : 0, whole = i;

	while (i < n && s[i] >= '0' && s[i] <= '9')
		i++;
	if (i == whole || (s[whole] == '0' && i > whole + 1))
		return false;
	if (i < n && s[i] == '.') {
		size_t frac = ++i;

		while (i < n && s[i] >= '0' && s[i] <= '9')
			i++;
		if (i == frac)
			return false;
	}
	return i == n;
}

static void
put_json_pairs(struct line *l, const char *kv)
{
	while (*kv) {
		size_t n, key = strcspn(kv, "= ");

		if (*kv == ' ') {
			kv++;
			continue;
		}
		put(l, ",", 1);
		put_json_string(l, kv, key);
		kv += key;
		if (*kv == '=')
			kv++;
		n = value_len(kv);
		put(l, ":", 1);
		if (is_number(kv, n) ||
			(n >= 2 && kv[0] == '"' && kv[n - 1] == '"'))
			put(l, kv, n);
		else if ((n == 4 && memcmp(kv, "true", 4) == 0) ||
			 (n == 5 && memcmp(kv, "false", 5) == 0))
			put(l, kv, n);
		else
			put_json_string(l, kv, n);
		kv += n;
	}
}

static void
put_json(struct line *l, enum log_level level, const char *target,
	const char *message, const char *kv)
{
	char at[CLK_ISO_MAX];

	puts_line(l, "{\"timestamp\":\"");
	puts_line(l, clk_iso_us(clk_wall_us(), at));
	puts_line(l, "\",\"level\":\"");
	puts_line(l, levels[level].shown);
	puts_line(l, "\",\"target\":");
	put_json_string(l, target, strlen(target));
	puts_line(l, ",\"message\":");
	put_json_string(l, message, strlen(message));
	put_json_pairs(l, kv);
	/* A cut line is still one object when the cut falls in no string. */
	l->b[l->n++] = '}';
}

static void
put_text(struct line *l, enum log_level level, const char *target,
	const char *message, const char *kv)
{
	char at[CLK_ISO_MAX], head[64];

	if (state.journal)
		snprintf(head, sizeof(head), "<%d>%s ", levels[level].priority,
			levels[level].shown);
	else
		snprintf(head, sizeof(head), "%s %5s ",
			clk_iso_us(clk_wall_us(), at), levels[level].shown);
	puts_line(l, head);
	puts_line(l, target);
	puts_line(l, "  ");
	puts_line(l, message);
	if (*kv) {
		put(l, " ", 1);
		puts_line(l, kv);
	}
}

void
log_line(enum log_level level, const char *target, const char *message,
	const char *kv, ...)
{
	int saved = errno;
	char pairs[LINE_BYTES - 512] = "";
	struct line l;

	if (!log_on(level, target))
		return;
	if (kv) {
		va_list ap;

		va_start(ap, kv);
		vsnprintf(pairs, sizeof(pairs), kv, ap);
		va_end(ap);
	}
	/* One event, one line, whatever a value holds. */
	for (char *p = pairs; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = ' ';
	l.n = 0;
	if (state.json)
		put_json(&l, level, target, message, pairs);
	else
		put_text(&l, level, target, message, pairs);
	l.b[l.n++] = '\n';
	/* Nobody to tell when stderr is gone. */
	if (write(STDERR_FILENO, l.b, l.n) < 0)
		(void)0;
	errno = saved;
}

bool
log_sample(struct log_sampler *s, int64_t now_ms, uint64_t *suppressed)
{
	if (now_ms < s->next_ms) {
		s->suppressed++;
		return false;
	}
	*suppressed = s->suppressed;
	s->suppressed = 0;
	s->next_ms = now_ms + s->every_ms;
	return true;
}
