/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load on one queend: producers push prebuilt messages, consumers long-poll,
 * check and acknowledge them.  One thread on epoll, requests patched in place,
 * so that the machine's cores stay with the programs that are weighed.
 *
 *	load PORT QUEUE PRODUCERS CONSUMERS PARTITIONS PER_PUSH SPREAD POP WIDTH
 *
 * A push carries PER_PUSH messages, to SPREAD partitions.  A producer owns
 * its partitions, so the order of its sends is the order they must come in.
 * Each line "run MS" on stdin pushes for MS milliseconds, waits until all of
 * it is popped and acknowledged, and answers with one JSON line.  A message
 * lost, repeated or out of order, or a refused request, ends the process.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	VARIANTS = 4, /* different requests per producer */
	TXN_LEN = 26, /* p00001-0000000001-89abcdef */
	HIST_SUB = 64,
	HIST_N = 40 * HIST_SUB,
	AHEAD = 2, /* requests of a producer not popped yet */
	DRAIN_MS = 60000,
	IDS_LEN = 36
};

/* Where in a request the parts of one message are. */
struct slot {
	uint32_t part, txn, seq;
};

struct request {
	char *text;
	size_t len;
	struct slot *slots;
};

enum role { PRODUCER, CONSUMER };
enum phase { IDLE, PUSHING, POPPING, ACKING };

struct conn {
	int fd;
	enum role role;
	enum phase phase;
	bool want_write;
	int64_t sent_us;
	const char *out;
	size_t out_len, out_at;
	char *in;
	size_t in_len, in_cap;
	/* producer */
	struct request req[VARIANTS];
	int variant, index, parts_n, part_at;
	int64_t ahead; /* messages not popped yet */
	/* consumer */
	char *ack;
	size_t ack_len, ack_cap;
	int acked_n;
};

struct hist {
	uint64_t n, count[HIST_N];
};

struct load {
	int ep, port;
	const char *queue;
	int producers, consumers, parts, per_push, spread, pop_n, width;
	struct conn *conns;
	char pop[512];
	size_t pop_len;
	int64_t *pushed, *popped; /* next sequence number of a partition */
	int64_t *sent_us; /* parts rings of ring entries */
	int ring;
	int64_t pushed_n, popped_n, acked_n, pushes, pops, busy;
	int64_t until_us, last_us;
	bool running, told;
	struct hist push, e2e;
};

static void
die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void producer_go(struct load *l, struct conn *c);

static void
die(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fputs("load: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

static void *
need(void *p)
{
	if (!p)
		die("out of memory");
	return p;
}

static int64_t
now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static uint64_t
mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* ---- histogram: 64 steps per power of two ---- */

static void
hist_add(struct hist *h, int64_t us)
{
	uint64_t v = us > 0 ? (uint64_t)us : 0;
	unsigned i = (unsigned)v;
	if (v >= HIST_SUB) {
		unsigned e = 63 - (unsigned)__builtin_clzll(v) - 5;
		i = e * (HIST_SUB / 2) + (unsigned)(v >> e);
	}
	h->count[i < HIST_N ? i : HIST_N - 1]++;
	h->n++;
}

static double
hist_ms(const struct hist *h, double share)
{
	uint64_t want = (uint64_t)((double)h->n * share), seen = 0;
	for (unsigned i = 0; i < HIST_N; i++) {
		seen += h->count[i];
		if (seen <= want)
			continue;
		if (i < HIST_SUB)
			return i / 1000.0;
		unsigned e = i / (HIST_SUB / 2) - 1;
		uint64_t v = (uint64_t)(i - e * (HIST_SUB / 2)) << e;
		return (double)v / 1000.0;
	}
	return 0;
}

/* ---- requests ---- */

static void
put_digits(char *at, int width, int64_t v)
{
	for (int i = width - 1; i >= 0; i--, v /= 10)
		at[i] = (char)('0' + v % 10);
}

static int64_t
get_digits(const char *at, int width)
{
	int64_t v = 0;
	for (int i = 0; i < width; i++) {
		if (at[i] < '0' || at[i] > '9')
			return -1;
		v = v * 10 + at[i] - '0';
	}
	return v;
}

/* pPPPPP-SSSSSSSSSS-HHHHHHHH: partition, sequence number, and eight
 * hexadecimal digits that zstd cannot guess. */
static void
put_txn(char *at, int part, int64_t seq)
{
	static const char hex[] = "0123456789abcdef";
	uint64_t h = mix((uint64_t)part << 40 ^ (uint64_t)seq);
	at[0] = 'p';
	put_digits(at + 1, 5, part);
	at[6] = '-';
	put_digits(at + 7, 10, seq);
	at[17] = '-';
	for (int i = 18; i < TXN_LEN; i++, h >>= 4)
		at[i] = hex[h & 15];
}

static void
build_request(struct load *l, struct request *r, uint64_t seed)
{
	size_t cap = (size_t)l->per_push * 512 + 1024;
	char *body = need(malloc(cap));
	size_t n = (size_t)snprintf(body, cap, "{\"items\":[");
	r->slots = need(calloc((size_t)l->per_push, sizeof(*r->slots)));
	for (int i = 0; i < l->per_push; i++) {
		uint64_t h = mix(seed * 1000003 + (uint64_t)i);
		struct slot *s = &r->slots[i];
		n += (size_t)snprintf(body + n, cap - n,
			"%s{\"queue\":\"%s\",\"partition\":\"", i ? "," : "",
			l->queue);
		s->part = (uint32_t)n;
		n += (size_t)snprintf(
			body + n, cap - n, "p00000\",\"transactionId\":\"");
		s->txn = (uint32_t)n;
		n += (size_t)snprintf(body + n, cap - n,
			"%*s\",\"payload\":{\"seq\":1", TXN_LEN, "");
		s->seq = (uint32_t)n;
		n += (size_t)snprintf(body + n, cap - n,
			"0000000000,\"order\":\"ord_%016llx\",\"status\":\"%s\","
			"\"amount\":%llu.%02llu,\"currency\":\"EUR\",\"items\":"
			"[{\"sku\":\"SKU-%05llu\",\"qty\":%llu},"
			"{\"sku\":\"SKU-%05llu\",\"qty\":1}],\"createdAt\":"
			"\"2026-01-%02lluT%02llu:%02llu:00.000Z\",\"channel\":"
			"\"web\",\"note\":\"leave at the door\"}}",
			(unsigned long long)mix(h), h & 1 ? "paid" : "open",
			(unsigned long long)(h >> 8) % 900,
			(unsigned long long)(h >> 20) % 100,
			(unsigned long long)(h >> 30) % 99999,
			(unsigned long long)(h >> 47) % 9,
			(unsigned long long)(h >> 15) % 99999,
			1 + (unsigned long long)(h >> 50) % 28,
			(unsigned long long)(h >> 40) % 24,
			(unsigned long long)(h >> 10) % 60);
	}
	n += (size_t)snprintf(body + n, cap - n, "]}");
	if (n >= cap)
		die("request larger than expected");
	r->text = need(malloc(n + 256));
	int head = snprintf(r->text, 256,
		"POST /api/v1/push HTTP/1.1\r\nHost: bench\r\n"
		"Content-Type: application/json\r\n"
		"Content-Length: %zu\r\n\r\n",
		n);
	memcpy(r->text + head, body, n);
	r->len = (size_t)head + n;
	for (int i = 0; i < l->per_push; i++) {
		r->slots[i].part += (uint32_t)head;
		r->slots[i].txn += (uint32_t)head;
		r->slots[i].seq += (uint32_t)head;
	}
	free(body);
}

/* ---- sockets ---- */

static void
dial(struct load *l, struct conn *c)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)l->port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int one = 1;
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof(to)))
		die("cannot connect to port %d: %s", l->port, strerror(errno));
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (fcntl(c->fd, F_SETFL, O_NONBLOCK) < 0)
		die("cannot set a socket up: %s", strerror(errno));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };
	if (epoll_ctl(l->ep, EPOLL_CTL_ADD, c->fd, &ev) < 0)
		die("epoll: %s", strerror(errno));
}

static void
flush_out(struct load *l, struct conn *c)
{
	while (c->out_at < c->out_len) {
		ssize_t n = send(c->fd, c->out + c->out_at,
			c->out_len - c->out_at, MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0)
			die("connection lost in a request: %s",
				strerror(errno));
		c->out_at += (size_t)n;
	}
	bool want = c->out_at < c->out_len;
	if (want != c->want_write) {
		struct epoll_event ev = { .data.ptr = c,
			.events = EPOLLIN | (want ? EPOLLOUT : 0) };
		if (epoll_ctl(l->ep, EPOLL_CTL_MOD, c->fd, &ev) < 0)
			die("epoll: %s", strerror(errno));
		c->want_write = want;
	}
}

static void
send_request(struct load *l, struct conn *c, const char *text, size_t len)
{
	c->out = text;
	c->out_len = len;
	c->out_at = 0;
	flush_out(l, c);
}

/* ---- producers ---- */

/* The k-th partition of a producer, scattered over all of them. */
static int
own_part(const struct load *l, const struct conn *c, int k)
{
	return c->index + l->producers * (int)(k * INT64_C(7919) % c->parts_n);
}

static bool
has_room(const struct load *l, const struct conn *c)
{
	if (c->ahead + l->per_push > (int64_t)AHEAD * l->per_push)
		return false;
	int each = l->per_push / l->spread;
	for (int i = 0; i < l->spread; i++) {
		int p = own_part(l, c, c->part_at + i);
		if (l->pushed[p] + each - l->popped[p] > l->ring)
			return false;
	}
	return true;
}

static void
producer_go(struct load *l, struct conn *c)
{
	int64_t t = now_us();
	if (l->running && t >= l->until_us)
		l->running = false;
	if (!l->running || !has_room(l, c)) {
		c->phase = IDLE;
		return;
	}
	struct request *r = &c->req[c->variant];
	c->variant = (c->variant + 1) % VARIANTS;
	for (int i = 0; i < l->per_push; i++) {
		struct slot *s = &r->slots[i];
		int p = own_part(l, c, c->part_at + i % l->spread);
		int64_t seq = l->pushed[p]++;
		put_digits(r->text + s->part + 1, 5, p);
		put_txn(r->text + s->txn, p, seq);
		put_digits(r->text + s->seq, 10, seq);
		l->sent_us[(int64_t)p * l->ring + seq % l->ring] = t;
	}
	c->part_at = (c->part_at + l->spread) % c->parts_n;
	c->ahead += l->per_push;
	l->pushed_n += l->per_push;
	l->pushes++;
	l->busy++;
	c->sent_us = t;
	c->phase = PUSHING;
	send_request(l, c, r->text, r->len);
}

static void
wake_producers(struct load *l)
{
	if (!l->running)
		return;
	for (int i = 0; i < l->producers; i++)
		if (l->conns[i].phase == IDLE)
			producer_go(l, &l->conns[i]);
}

/* Finds needle, first where it was found last time relative to from. */
static const char *
seek(const char *from, const char *end, const char *needle, size_t n,
	size_t *hint)
{
	if ((size_t)(end - from) >= *hint + n &&
		memcmp(from + *hint, needle, n) == 0)
		return from + *hint + n;
	const char *p = memmem(from, (size_t)(end - from), needle, n);
	if (!p)
		return NULL;
	*hint = (size_t)(p - from);
	return p + n;
}

#define SEEK(from, end, text, hint)                                            \
	seek(from, end, text, sizeof(text) - 1, hint)

static void
on_pushed(struct load *l, struct conn *c, int status, const char *body,
	const char *end)
{
	size_t hint = 0;
	if (status != 201)
		die("push: status %d %.*s", status, (int)(end - body), body);
	const char *at = body;
	for (int i = 0; i < l->per_push; i++) {
		at = SEEK(at, end, "\"status\":\"queued\"", &hint);
		if (!at)
			die("push: not all queued: %.300s", body);
	}
	hist_add(&l->push, now_us() - c->sent_us);
	l->busy--;
	producer_go(l, c);
}

/* ---- consumers ---- */

static void
consumer_go(struct load *l, struct conn *c)
{
	c->phase = POPPING;
	send_request(l, c, l->pop, l->pop_len);
}

static void
ack_add(struct conn *c, const char *text, size_t n)
{
	if (c->ack_len + n > c->ack_cap) {
		c->ack_cap = (c->ack_len + n) * 2 + 4096;
		c->ack = need(realloc(c->ack, c->ack_cap));
	}
	memcpy(c->ack + c->ack_len, text, n);
	c->ack_len += n;
}

#define ACK_ADD(c, text) ack_add(c, text, sizeof(text) - 1)

static void
check_message(
	struct load *l, const char *txn, const char *seq_text, int64_t now)
{
	char want[TXN_LEN];
	int64_t p = get_digits(txn + 1, 5), seq = get_digits(txn + 7, 10);
	if (p < 0 || p >= l->parts || seq < 0)
		die("pop: foreign message %.*s", TXN_LEN, txn);
	put_txn(want, (int)p, seq);
	if (memcmp(want, txn, TXN_LEN) != 0 || get_digits(seq_text, 10) != seq)
		die("pop: message %.*s came back changed", TXN_LEN, txn);
	if (seq != l->popped[p])
		die("pop: %s in partition %lld: %lld, expected %lld",
			seq < l->popped[p] ? "repeat" : "gap", (long long)p,
			(long long)seq, (long long)l->popped[p]);
	l->popped[p]++;
	l->popped_n++;
	l->conns[p % l->producers].ahead--;
	hist_add(&l->e2e, now - l->sent_us[p * l->ring + seq % l->ring]);
}

enum { ACK_HEAD = 160 };

static void
on_popped(struct load *l, struct conn *c, int status, const char *body,
	const char *end)
{
	static size_t h_txn, h_data, h_part, h_lease, h_first;
	if (status == 204) {
		consumer_go(l, c);
		return;
	}
	if (status != 200)
		die("pop: status %d %.*s", status, (int)(end - body), body);
	int64_t t = now_us();
	char head[ACK_HEAD] = "";
	c->ack_len = 0;
	c->acked_n = 0;
	ack_add(c, head, ACK_HEAD); /* its place; filled in at the end */
	ACK_ADD(c, "{\"consumerGroup\":\"bench\",\"acknowledgments\":[");
	const char *at = SEEK(body, end, "\"messages\":[", &h_first);
	while (at) {
		const char *txn = SEEK(at, end, "\"transactionId\":\"", &h_txn);
		if (!txn)
			break;
		const char *seq =
			SEEK(txn, end, "\"data\":{\"seq\":1", &h_data);
		const char *part =
			seq ? SEEK(seq, end, "\"partitionId\":\"", &h_part)
			    : NULL;
		const char *lease =
			part ? SEEK(part, end, "\"leaseId\":\"", &h_lease)
			     : NULL;
		if (!lease || lease + IDS_LEN > end)
			die("pop: message without its fields: %.600s", at);
		check_message(l, txn, seq, t);
		if (c->acked_n++ > 0)
			ACK_ADD(c, ",");
		ACK_ADD(c, "{\"transactionId\":\"");
		ack_add(c, txn, TXN_LEN);
		ACK_ADD(c, "\",\"partitionId\":\"");
		ack_add(c, part, IDS_LEN);
		ACK_ADD(c, "\",\"leaseId\":\"");
		ack_add(c, lease, IDS_LEN);
		ACK_ADD(c, "\",\"status\":\"completed\"}");
		at = lease + IDS_LEN;
	}
	if (c->acked_n == 0)
		die("pop: nothing in %.300s", body);
	ACK_ADD(c, "]}");
	int n = snprintf(head, sizeof(head),
		"POST /api/v1/ack/batch HTTP/1.1\r\nHost: bench\r\n"
		"Content-Type: application/json\r\n"
		"Content-Length: %zu\r\n\r\n",
		c->ack_len - ACK_HEAD);
	memcpy(c->ack + ACK_HEAD - n, head, (size_t)n);
	c->phase = ACKING;
	l->pops++;
	l->busy++;
	send_request(
		l, c, c->ack + ACK_HEAD - n, c->ack_len - ACK_HEAD + (size_t)n);
	wake_producers(l);
}

static void
on_acked(struct load *l, struct conn *c, int status, const char *body,
	const char *end)
{
	size_t hint = 0;
	if (status != 200)
		die("ack: status %d %.*s", status, (int)(end - body), body);
	const char *at = body;
	for (int i = 0; i < c->acked_n; i++) {
		at = SEEK(at, end, "\"success\":true", &hint);
		if (!at)
			die("ack: not all done: %.300s", body);
	}
	l->acked_n += c->acked_n;
	l->busy--;
	consumer_go(l, c);
}

/* ---- answers ---- */

/* The length of the whole answer at the front of the buffer, 0 = not all
 * there yet. */
static size_t
answer_len(struct conn *c, int *status, size_t *head_len)
{
	const char *p = memmem(c->in, c->in_len, "\r\n\r\n", 4);
	if (!p)
		return 0;
	*head_len = (size_t)(p + 4 - c->in);
	*status = (int)get_digits(c->in + 9, 3);
	if (*status == 204)
		return *head_len;
	const char *q = memmem(c->in, *head_len, "\r\nContent-Length: ", 18);
	if (!q)
		die("answer without a length: %.200s", c->in);
	size_t len = *head_len + strtoul(q + 18, NULL, 10);
	return c->in_len >= len ? len : 0;
}

static void
on_readable(struct load *l, struct conn *c)
{
	for (;;) {
		if (c->in_cap - c->in_len < 65536)
			c->in = need(realloc(c->in, c->in_cap += 131072));
		ssize_t n = recv(
			c->fd, c->in + c->in_len, c->in_cap - c->in_len - 1, 0);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0)
			die("connection closed: %s",
				n ? strerror(errno) : "end");
		c->in_len += (size_t)n;
		c->in[c->in_len] = '\0';
		if (c->in_len < c->in_cap - 1)
			break;
	}
	int status = 0;
	size_t head = 0, len = answer_len(c, &status, &head);
	if (!len)
		return;
	if (len != c->in_len)
		die("more than one answer");
	const char *body = c->in + head, *end = c->in + len;
	l->last_us = now_us();
	c->in_len = 0;
	switch (c->phase) {
	case PUSHING:
		on_pushed(l, c, status, body, end);
		break;
	case POPPING:
		on_popped(l, c, status, body, end);
		break;
	case ACKING:
		on_acked(l, c, status, body, end);
		break;
	case IDLE:
		die("answer without a request");
	}
}

/* ---- rounds ---- */

static int64_t
own_cpu_us(void)
{
	struct rusage r;
	getrusage(RUSAGE_SELF, &r);
	return (int64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000 +
	       r.ru_utime.tv_usec + r.ru_stime.tv_usec;
}

static void
turn(struct load *l, int wait_ms)
{
	struct epoll_event ev[128];
	int n = epoll_wait(l->ep, ev, 128, wait_ms);
	for (int i = 0; i < n; i++) {
		struct conn *c = ev[i].data.ptr;
		if (!c) {
			l->told = true;
			continue;
		}
		if (ev[i].events & EPOLLOUT)
			flush_out(l, c);
		if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			on_readable(l, c);
	}
}

static void
run(struct load *l, int64_t ms)
{
	int64_t began = now_us(), cpu = own_cpu_us();
	int64_t pushed = l->pushed_n, pushes = l->pushes, pops = l->pops;
	memset(&l->push, 0, sizeof(l->push));
	memset(&l->e2e, 0, sizeof(l->e2e));
	l->until_us = began + ms * 1000;
	l->running = true;
	wake_producers(l);
	while (l->running || l->busy || l->acked_n < l->pushed_n) {
		turn(l, 20);
		int64_t t = now_us();
		if (l->running && t >= l->until_us)
			l->running = false;
		if (t > l->until_us + (int64_t)DRAIN_MS * 1000)
			die("lost: pushed %lld, popped %lld, acked %lld",
				(long long)l->pushed_n, (long long)l->popped_n,
				(long long)l->acked_n);
	}
	int64_t took = l->last_us - began;
	printf("{\"messages\":%lld,\"pushes\":%lld,\"pops\":%lld,"
	       "\"wall_us\":%lld,\"client_us\":%lld,"
	       "\"push_p50_ms\":%.3f,\"push_p99_ms\":%.3f,"
	       "\"e2e_p50_ms\":%.3f,\"e2e_p99_ms\":%.3f}\n",
		(long long)(l->pushed_n - pushed),
		(long long)(l->pushes - pushes), (long long)(l->pops - pops),
		(long long)took, (long long)(own_cpu_us() - cpu),
		hist_ms(&l->push, 0.5), hist_ms(&l->push, 0.99),
		hist_ms(&l->e2e, 0.5), hist_ms(&l->e2e, 0.99));
	fflush(stdout);
}

static void
set_up(struct load *l)
{
	int n = l->producers + l->consumers;
	l->ep = epoll_create1(EPOLL_CLOEXEC);
	l->conns = need(calloc((size_t)n, sizeof(*l->conns)));
	l->pushed = need(calloc((size_t)l->parts, sizeof(*l->pushed)));
	l->popped = need(calloc((size_t)l->parts, sizeof(*l->popped)));
	l->ring = l->per_push / l->spread * 64;
	l->sent_us = need(calloc(
		(size_t)l->parts * (size_t)l->ring, sizeof(*l->sent_us)));
	l->pop_len = (size_t)snprintf(l->pop, sizeof(l->pop),
		"GET /api/v1/pop/queue/%s?consumerGroup=bench&batch=%d"
		"&partitions=%d&wait=true&timeout=30000&leaseSeconds=60"
		"&subscriptionMode=all HTTP/1.1\r\nHost: bench\r\n\r\n",
		l->queue, l->pop_n, l->width);
	int each = l->parts / l->producers;
	for (int i = 0; i < n; i++) {
		struct conn *c = &l->conns[i];
		c->role = i < l->producers ? PRODUCER : CONSUMER;
		dial(l, c);
		if (c->role == CONSUMER) {
			consumer_go(l, c);
			continue;
		}
		c->index = i;
		c->parts_n = each;
		for (int v = 0; v < VARIANTS; v++)
			build_request(
				l, &c->req[v], (uint64_t)(i * VARIANTS + v));
	}
}

int
main(int argc, char **argv)
{
	static struct load l;
	int *const number[] = { &l.producers, &l.consumers, &l.parts,
		&l.per_push, &l.spread, &l.pop_n, &l.width };
	if (argc != 10) {
		fputs("usage: load PORT QUEUE PRODUCERS CONSUMERS PARTITIONS"
		      " PER_PUSH SPREAD POP WIDTH\n",
			stderr);
		return 2;
	}
	l.port = (int)strtol(argv[1], NULL, 10);
	l.queue = argv[2];
	for (int i = 0; i < 7; i++) {
		*number[i] = (int)strtol(argv[3 + i], NULL, 10);
		if (*number[i] < 1)
			die("bad number %s", argv[3 + i]);
	}
	if (l.parts < l.producers || l.per_push % l.spread ||
		l.parts / l.producers < l.spread || l.parts > 99999)
		die("the numbers do not fit together");
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	set_up(&l);
	char line[64];
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };
	if (epoll_ctl(l.ep, EPOLL_CTL_ADD, STDIN_FILENO, &ev) < 0)
		die("epoll: %s", strerror(errno));
	for (;;) {
		/* parked pops that time out are answered while we wait */
		for (l.told = false; !l.told;)
			turn(&l, -1);
		ssize_t n = read(STDIN_FILENO, line, sizeof(line) - 1);
		if (n <= 0)
			return n < 0;
		line[n] = '\0';
		if (strncmp(line, "run ", 4) != 0)
			die("bad command %s", line);
		run(&l, strtol(line + 4, NULL, 10));
	}
}
