/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the load is compared with, on the same server in the same run.
 *
 *	probe unit CONNINFO CELL	a loop that inserts one ready segment of
 *		CELL and its id row per commit; each line "run MS" on stdin
 *		is answered with the CPU of its backend
 *	probe floor CELL		zstd -1 and back of that segment
 *	probe latency CONNINFO PORT OTHER	one push at a time against one
 *		commit at a time, and push to parked pop on both ports
 *
 * Single thread, blocking: nothing here is in the way of what is measured.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

enum { ROUNDS = 150, RAW_MAX = 4 << 20, PARTS = 32 };

struct segment {
	char *blob, *ids;
	int blob_len, ids_len, n;
	int64_t raw_bytes;
};

static void
die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void
die(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fputs("probe: ", stderr);
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

static double
cpu_us(int pid)
{
	char path[64];
	unsigned long long ns = 0;
	snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	FILE *f = fopen(path, "r");
	if (!f || fscanf(f, "%llu", &ns) != 1)
		die("cannot read %s", path);
	fclose(f);
	return (double)ns / 1000.0;
}

static int
by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static double
median_ms(int64_t *us, int n)
{
	qsort(us, (size_t)n, sizeof(*us), by_value);
	return (double)us[n / 2] / 1000.0;
}

/* ---- the database ---- */

static void
check(PGconn *db, PGresult *r)
{
	if (PQresultStatus(r) != PGRES_COMMAND_OK &&
		PQresultStatus(r) != PGRES_TUPLES_OK)
		die("%s", PQerrorMessage(db));
}

/* As queend sets its sessions up. */
static PGconn *
dial_db(const char *conninfo)
{
	PGconn *db = PQconnectdb(conninfo);
	if (PQstatus(db) != CONNECTION_OK)
		die("%s", PQerrorMessage(db));
	PGresult *r = PQexec(db,
		"set plan_cache_mode = force_generic_plan;"
		"set enable_seqscan = off; set enable_bitmapscan = off;"
		"set jit = off; select octet_length(repeat('x', 16000000))");
	check(db, r);
	PQclear(r);
	return db;
}

static void
prepare(PGconn *db)
{
	PGresult *r = PQprepare(db, "unit",
		"with s as (insert into queen.segments (partition_id,"
		" base_offset, end_offset, created_at, raw_bytes, blob)"
		" values ($1, $2, $2 + $3 - 1, clock_timestamp(), $4, $5))"
		" insert into queen.segment_ids (partition_id, base_offset,"
		" end_offset, created_at, ids)"
		" values ($1, $2, $2 + $3 - 1, clock_timestamp(), $6)",
		6, (const Oid[]){ 20, 20, 20, 23, 17, 17 });
	check(db, r);
	PQclear(r);
}

static void
insert(PGconn *db, const struct segment *s, int64_t part, int64_t base)
{
	int64_t v[3] = { (int64_t)htobe64((uint64_t)part),
		(int64_t)htobe64((uint64_t)base),
		(int64_t)htobe64((uint64_t)s->n) };
	uint32_t raw = htonl((uint32_t)s->raw_bytes);
	const char *value[6] = { (const char *)&v[0], (const char *)&v[1],
		(const char *)&v[2], (const char *)&raw, s->blob, s->ids };
	int len[6] = { 8, 8, 8, 4, s->blob_len, s->ids_len };
	PGresult *r = PQexecPrepared(db, "unit", 6, value, len,
		(const int[]){ 1, 1, 1, 1, 1, 1 }, 1);
	check(db, r);
	PQclear(r);
}

static char *
copy_field(PGresult *r, int col, int *len)
{
	*len = PQgetlength(r, 0, col);
	char *p = need(malloc((size_t)*len + 1));
	memcpy(p, PQgetvalue(r, 0, col), (size_t)*len);
	return p;
}

/* The newest segment of a hundred messages that the load has written. */
static struct segment
borrow_segment(const char *cell)
{
	struct segment s = { .n = 100 };
	PGconn *db = PQconnectdb(cell);
	if (PQstatus(db) != CONNECTION_OK)
		die("%s", PQerrorMessage(db));
	PGresult *r = PQexecParams(db,
		"select s.blob, i.ids, s.raw_bytes::bigint"
		" from queen.segments s join queen.segment_ids i"
		" using (partition_id, base_offset)"
		" where s.end_offset - s.base_offset = 99"
		" order by s.created_at desc limit 1",
		0, NULL, NULL, NULL, NULL, 1);
	check(db, r);
	if (PQntuples(r) != 1)
		die("no segment of 100 messages in the cell");
	s.blob = copy_field(r, 0, &s.blob_len);
	s.ids = copy_field(r, 1, &s.ids_len);
	uint64_t raw;
	memcpy(&raw, PQgetvalue(r, 0, 2), sizeof(raw));
	s.raw_bytes = (int64_t)be64toh(raw);
	PQclear(r);
	PQfinish(db);
	return s;
}

static int
unit(const char *conninfo, const char *cell)
{
	struct segment s = borrow_segment(cell);
	PGconn *db = dial_db(conninfo);
	char line[64];
	int64_t at = 0;
	prepare(db);
	for (int i = 0; i < 200; i++, at++)
		insert(db, &s, at % PARTS, at / PARTS * s.n);
	while (fgets(line, sizeof(line), stdin)) {
		if (strncmp(line, "run ", 4) != 0)
			die("bad command %s", line);
		int64_t until = now_us() + strtol(line + 4, NULL, 10) * 1000;
		int64_t from = at;
		double spent = cpu_us(PQbackendPID(db));
		for (; now_us() < until; at++)
			insert(db, &s, at % PARTS, at / PARTS * s.n);
		printf("{\"messages\":%lld,\"backend_us\":%.0f}\n",
			(long long)((at - from) * s.n),
			cpu_us(PQbackendPID(db)) - spent);
		fflush(stdout);
	}
	PQfinish(db);
	return 0;
}

/* ---- zstd ---- */

static double
own_cpu_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int
zstd_floor(const char *cell)
{
	struct segment s = borrow_segment(cell);
	char *raw = need(malloc(RAW_MAX)), *out = need(malloc(RAW_MAX));
	ZSTD_CCtx *cc = need(ZSTD_createCCtx());
	ZSTD_DCtx *dc = need(ZSTD_createDCtx());
	if (s.blob_len < 3 || s.blob[1] != 1)
		die("the segment is not compressed");
	size_t n = ZSTD_decompressDCtx(
		dc, raw, RAW_MAX, s.blob + 2, (size_t)s.blob_len - 2);
	if (ZSTD_isError(n) || (int64_t)n != s.raw_bytes)
		die("the segment does not unpack");
	double round[9];
	size_t z = 0;
	for (int i = 0; i < 9; i++) {
		double from = own_cpu_us();
		for (int k = 0; k < 300; k++) {
			z = ZSTD_compressCCtx(cc, out, RAW_MAX, raw, n, 1);
			size_t m =
				ZSTD_decompressDCtx(dc, raw, RAW_MAX, out, z);
			if (ZSTD_isError(z) || m != n)
				die("zstd does not come back");
		}
		round[i] = (own_cpu_us() - from) / 300.0 / s.n;
	}
	for (int i = 1; i < 9; i++)
		for (int k = i; k > 0 && round[k] < round[k - 1]; k--) {
			double t = round[k];
			round[k] = round[k - 1];
			round[k - 1] = t;
		}
	printf("{\"us_per_message\":%.3f,\"raw_bytes_per_message\":%.1f,"
	       "\"ratio\":%.2f}\n",
		round[4], (double)n / s.n, (double)n / (double)z);
	return 0;
}

/* ---- latency ---- */

static int
dial_http(int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		die("cannot connect to port %d: %s", port, strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void
ask(int fd, const char *text, size_t len)
{
	if (send(fd, text, len, MSG_NOSIGNAL) != (ssize_t)len)
		die("cannot send: %s", strerror(errno));
}

static void
post(int fd, const char *path, const char *body)
{
	char text[2048];
	int n = snprintf(text, sizeof(text),
		"POST %s HTTP/1.1\r\nHost: bench\r\n"
		"Content-Type: application/json\r\n"
		"Content-Length: %zu\r\n\r\n%s",
		path, strlen(body), body);
	if (n < 0 || (size_t)n >= sizeof(text))
		die("request too large");
	ask(fd, text, (size_t)n);
}

/* Reads one answer into out; its body. */
static const char *
answer(int fd, char *out, size_t cap)
{
	size_t n = 0;
	for (;;) {
		ssize_t got = recv(fd, out + n, cap - n - 1, 0);
		if (got <= 0)
			die("connection closed");
		n += (size_t)got;
		out[n] = '\0';
		const char *body = strstr(out, "\r\n\r\n");
		if (!body)
			continue;
		body += 4;
		if (memcmp(out + 9, "20", 2) != 0)
			die("refused: %s", out);
		const char *len = strstr(out, "Content-Length: ");
		if (!len ||
			n >= (size_t)(body - out) + strtoul(len + 16, NULL, 10))
			return body;
	}
}

static void
take_field(const char *body, const char *key, char *out, size_t cap)
{
	const char *p = strstr(body, key);
	const char *end = p ? strchr(p + strlen(key), '"') : NULL;
	if (!end || (size_t)(end - p) - strlen(key) >= cap)
		die("no %s in %s", key, body);
	snprintf(out, cap, "%.*s", (int)(end - p - (int)strlen(key)),
		p + strlen(key));
}

static int64_t
push_one(int fd, const char *queue, int i)
{
	char body[512], in[4096];
	int64_t from = now_us();
	snprintf(body, sizeof(body),
		"{\"items\":[{\"queue\":\"%s\",\"partition\":\"p\","
		"\"transactionId\":\"%s-%lld-%d\",\"payload\":{\"seq\":%d}}]}",
		queue, queue, (long long)from, i, i);
	post(fd, "/api/v1/push", body);
	if (!strstr(answer(fd, in, sizeof(in)), "\"queued\""))
		die("push: %s", in);
	return now_us() - from;
}

/*
 * A pop parked on `pops`, a push on `pushes`: the time between.  A commit per
 * turn, at the same time, tells what the disk is like.
 */
static void
park_and_push(PGconn *db, const struct segment *s, int pushes, int pops,
	const char *name)
{
	char text[512], in[8192], body[1024];
	char txn[128], part[64], lease[64], queue[64];
	int64_t took[ROUNDS], bare[ROUNDS];
	static int64_t at;
	snprintf(queue, sizeof(queue), "bench_park_%s", name);
	int n = snprintf(text, sizeof(text),
		"GET /api/v1/pop/queue/%s?consumerGroup=bench&batch=10"
		"&wait=true&timeout=20000&subscriptionMode=all HTTP/1.1\r\n"
		"Host: bench\r\n\r\n",
		queue);
	for (int i = -5; i < ROUNDS / 3; i++) {
		ask(pops, text, (size_t)n);
		/* parked: its look at what is there is over */
		nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
		int64_t from = now_us();
		insert(db, s, 1001, at++);
		int64_t commit = now_us() - from;
		from = now_us();
		push_one(pushes, queue, i);
		const char *got = answer(pops, in, sizeof(in));
		if (i >= 0) {
			took[i] = now_us() - from;
			bare[i] = commit;
		}
		take_field(got, "\"transactionId\":\"", txn, sizeof(txn));
		take_field(got, "\"partitionId\":\"", part, sizeof(part));
		take_field(got, "\"leaseId\":\"", lease, sizeof(lease));
		snprintf(body, sizeof(body),
			"{\"consumerGroup\":\"bench\",\"acknowledgments\":"
			"[{\"transactionId\":\"%s\",\"partitionId\":\"%s\","
			"\"leaseId\":\"%s\"}]}",
			txn, part, lease);
		post(pops, "/api/v1/ack/batch", body);
		if (!strstr(answer(pops, in, sizeof(in)), "\"success\":true"))
			die("ack: %s", in);
	}
	printf(",\"pop_%s_p50_ms\":%.3f,\"pop_%s_commit_p50_ms\":%.3f", name,
		median_ms(took, ROUNDS / 3), name, median_ms(bare, ROUNDS / 3));
}

static int
latency(const char *conninfo, int port, int other)
{
	char ids[16] = "0123456789abcde";
	char blob[320];
	struct segment s = { .blob = blob,
		.ids = ids,
		.n = 1,
		.blob_len = sizeof(blob),
		.ids_len = 16,
		.raw_bytes = 318 };
	int64_t bare[ROUNDS], push[ROUNDS];
	PGconn *db = dial_db(conninfo);
	int a = dial_http(port), b = dial_http(other);
	memset(blob, 'x', sizeof(blob));
	prepare(db);
	for (int i = -10; i < ROUNDS; i++) {
		int64_t from = now_us(), t;
		insert(db, &s, 1000, i + 10);
		t = now_us() - from;
		int64_t p = push_one(a, "bench_latency", i);
		if (i >= 0) {
			bare[i] = t;
			push[i] = p;
		}
	}
	printf("{\"commit_p50_ms\":%.3f,\"push_p50_ms\":%.3f",
		median_ms(bare, ROUNDS), median_ms(push, ROUNDS));
	park_and_push(db, &s, a, dial_http(port), "same");
	park_and_push(db, &s, a, b, "other");
	printf("}\n");
	PQfinish(db);
	return 0;
}

int
main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (argc == 4 && !strcmp(argv[1], "unit"))
		return unit(argv[2], argv[3]);
	if (argc == 3 && !strcmp(argv[1], "floor"))
		return zstd_floor(argv[2]);
	if (argc == 5 && !strcmp(argv[1], "latency"))
		return latency(argv[2], (int)strtol(argv[3], NULL, 10),
			(int)strtol(argv[4], NULL, 10));
	fputs("usage: probe unit CONNINFO CELL | floor CELL"
	      " | latency CONNINFO PORT OTHER\n",
		stderr);
	return 2;
}
