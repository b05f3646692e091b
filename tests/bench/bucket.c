/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What queen-s3 is weighed with.
 *
 *	bucket serve KEEP	an S3 server that takes all and holds nothing;
 *		says its port.  Whatever is put below a dt= is appended to the
 *		file KEEP, unless that is "-"
 *	bucket zstd FILE	each line on stdin is answered with what zstd -1
 *		of the file costs, as a stream and in one shot
 *
 * Bodies are dropped in the kernel, and a thread each keeps connections apart:
 * the server is never what is waited for.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

enum { HEAD_MAX = 64 << 10, PIECE = 256 << 10 };

static int keep = -1;

static void
die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void
die(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fputs("bucket: ", stderr);
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

/* ---- the server ---- */

struct link {
	int fd;
	size_t n; /* of what was read ahead */
	char b[HEAD_MAX + 1];
};

/* The head of the next request, ended by NUL in b; its size, 0 at the end. */
static size_t
head(struct link *l)
{
	for (;;) {
		char *end = memmem(l->b, l->n, "\r\n\r\n", 4);
		if (end) {
			end[3] = '\0';
			return (size_t)(end - l->b) + 4;
		}
		ssize_t got = l->n < HEAD_MAX ? recv(l->fd, l->b + l->n,
							HEAD_MAX - l->n, 0)
					      : 0;
		if (got <= 0)
			return 0;
		l->n += (size_t)got;
	}
}

static void
say(int fd, const char *text, size_t n)
{
	while (n > 0) {
		ssize_t put = send(fd, text, n, MSG_NOSIGNAL);
		if (put <= 0)
			return;
		text += put;
		n -= (size_t)put;
	}
}

static void
put_kept(const char *p, size_t n)
{
	if (write(keep, p, n) != (ssize_t)n)
		die("cannot keep: %s", strerror(errno));
}

/* False when it does not come. */
static bool
body(struct link *l, size_t n, bool kept)
{
	size_t ahead = l->n < n ? l->n : n;
	if (kept)
		put_kept(l->b, ahead);
	memmove(l->b, l->b + ahead, l->n -= ahead);
	n -= ahead;
	char *room = kept ? need(malloc(PIECE)) : NULL;
	while (n > 0) {
		ssize_t got = recv(l->fd, room, n < PIECE ? n : PIECE,
			kept ? 0 : MSG_TRUNC);
		if (got <= 0)
			break;
		if (kept)
			put_kept(room, (size_t)got);
		n -= (size_t)got;
	}
	free(room);
	return n == 0;
}

static void
answer(int fd, const char *method, const char *target)
{
	const char *text = "", *status = "200 OK";
	char out[1024];
	if (!strcmp(method, "POST") && strstr(target, "?uploads"))
		text = "<InitiateMultipartUploadResult><UploadId>1</UploadId>"
		       "</InitiateMultipartUploadResult>";
	else if (!strcmp(method, "POST"))
		text = "<CompleteMultipartUploadResult><ETag>\"gone\"</ETag>"
		       "</CompleteMultipartUploadResult>";
	else if (strcmp(method, "PUT") != 0)
		status = "404 Not Found";
	if (!strcmp(method, "GET"))
		text = "<Error><Code>NoSuchKey</Code></Error>";
	int n = snprintf(out, sizeof(out),
		"HTTP/1.1 %s\r\nETag: \"gone\"\r\nContent-Length: %zu\r\n\r\n"
		"%s",
		status, strlen(text), text);
	say(fd, out, (size_t)n);
}

static void *
serve_link(void *arg)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct link *l = arg;
	char method[8], target[4096];
	size_t n;

	while ((n = head(l)) > 0) {
		const char *len = strcasestr(l->b, "\r\nContent-Length:");
		bool asks = strcasestr(l->b, "\r\nExpect:");
		size_t size = len ? strtoul(len + 17, NULL, 10) : 0;
		if (sscanf(l->b, "%7s %4095s", method, target) != 2)
			break;
		memmove(l->b, l->b + n, l->n -= n);
		if (asks)
			say(l->fd, go_on, sizeof(go_on) - 1);
		if (!body(l, size, keep >= 0 && strstr(target, "/dt%3D")))
			break;
		answer(l->fd, method, target);
	}
	close(l->fd);
	free(l);
	return NULL;
}

static int
serve(const char *path)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (strcmp(path, "-") != 0 &&
		(keep = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
			 0600)) < 0)
		die("cannot open %s: %s", path, strerror(errno));
	if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) || listen(fd, 64) ||
		getsockname(fd, (struct sockaddr *)&at, &len))
		die("cannot listen: %s", strerror(errno));
	printf("%d\n", ntohs(at.sin_port));
	fflush(stdout);
	for (;;) {
		struct link *l = need(calloc(1, sizeof(*l)));
		pthread_t t;
		if ((l->fd = accept(fd, NULL, NULL)) < 0)
			die("cannot accept: %s", strerror(errno));
		setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (pthread_create(&t, NULL, serve_link, l))
			die("no thread");
		pthread_detach(t);
	}
}

/* ---- zstd ---- */

static double
own_cpu_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static size_t
stream(ZSTD_CCtx *c, const char *p, size_t n, char *out)
{
	size_t piece = ZSTD_CStreamInSize(), made = 0, left;
	ZSTD_outBuffer to = { out, ZSTD_CStreamOutSize(), 0 };

	for (size_t at = 0; at < n; at += piece) {
		bool last = at + piece >= n;
		ZSTD_inBuffer in = { p + at, last ? n - at : piece, 0 };
		do {
			to.pos = 0;
			left = ZSTD_compressStream2(c, &to, &in,
				last ? ZSTD_e_end : ZSTD_e_continue);
			if (ZSTD_isError(left))
				die("zstd: %s", ZSTD_getErrorName(left));
			made += to.pos;
		} while (in.pos < in.size || (last && left > 0));
	}
	return made;
}

static char *
contents(const char *path, size_t *n)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		die("cannot open %s: %s", path, strerror(errno));
	char *p = need(malloc((size_t)st.st_size));
	for (*n = 0; *n < (size_t)st.st_size;) {
		ssize_t got = read(fd, p + *n, (size_t)st.st_size - *n);
		if (got <= 0)
			die("cannot read %s", path);
		*n += (size_t)got;
	}
	close(fd);
	return p;
}

static int
zstd(const char *path)
{
	size_t n, made;
	char *p = contents(path, &n), line[64];
	char *out = need(malloc(ZSTD_compressBound(n)));
	ZSTD_CCtx *c = need(ZSTD_createCCtx());

	ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, 1);
	memset(out, 1, ZSTD_compressBound(n));
	while (fgets(line, sizeof(line), stdin)) {
		double from = own_cpu_us();
		made = stream(c, p, n, out);
		double streamed = own_cpu_us() - from;
		from = own_cpu_us();
		size_t z = ZSTD_compress2(c, out, ZSTD_compressBound(n), p, n);
		if (ZSTD_isError(z))
			die("zstd: %s", ZSTD_getErrorName(z));
		printf("{\"stream_us\":%.0f,\"one_shot_us\":%.0f,"
		       "\"bytes\":%zu,\"packed_bytes\":%zu}\n",
			streamed, own_cpu_us() - from, n, made);
		fflush(stdout);
	}
	free(p);
	free(out);
	ZSTD_freeCCtx(c);
	return 0;
}

int
main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "zstd"))
		return zstd(argv[2]);
	fputs("usage: bucket serve KEEP | zstd FILE\n", stderr);
	return 2;
}
