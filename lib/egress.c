/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses and names of connectors.  A look-up that is given up lives on until
 * evdns has answered it; what it finds then is dropped.
 */
#include "egress.h"

#include <event2/dns.h>
#include <event2/util.h>
#include <netdb.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "err.h"
#include "loop.h"

struct egress {
	struct loop *loop;
	struct evdns_base *dns;
	struct evdns_getaddrinfo_request *req;
	struct loop_timer limit;
	struct egress_found found;
	egress_fn fn; /* NULL = answered or stopped */
	void *arg;
};

static bool
private_v4(uint32_t ip)
{
	static const struct {
		uint32_t net;
		int bits;
	} nets[] = {
		{ 0x00000000, 8 },
		{ 0x7f000000, 8 },
		{ 0x0a000000, 8 },
		{ 0xac100000, 12 },
		{ 0xc0a80000, 16 },
		{ 0x64400000, 10 },
		{ 0xa9fe0000, 16 },
	};

	for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++)
		if ((ip ^ nets[i].net) >> (32 - nets[i].bits) == 0)
			return true;
	return false;
}

static bool
private_v6(const uint8_t b[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	static const uint8_t compatible[12] = { 0 };
	static const uint8_t nat64[12] = { 0x00, 0x64, 0xff, 0x9b };

	/* :: and ::1 are compatible forms of 0.0.0.0/8 */
	if (memcmp(b, mapped, 12) == 0 || memcmp(b, compatible, 12) == 0 ||
		memcmp(b, nat64, 12) == 0)
		return private_v4((uint32_t)b[12] << 24 |
				  (uint32_t)b[13] << 16 | (uint32_t)b[14] << 8 |
				  b[15]);
	return (b[0] == 0xfe && (b[1] & 0x80) != 0) || (b[0] & 0xfe) == 0xfc;
}

bool
egress_is_private(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET) {
		struct sockaddr_in v4;

		memcpy(&v4, sa, sizeof(v4));
		return private_v4(ntohl(v4.sin_addr.s_addr));
	}
	if (sa->sa_family == AF_INET6) {
		struct sockaddr_in6 v6;

		memcpy(&v6, sa, sizeof(v6));
		return private_v6(v6.sin6_addr.s6_addr);
	}
	return true;
}

/* ---- names ---- */

static void
answer(struct egress *g)
{
	egress_fn fn = g->fn;

	g->fn = NULL;
	if (fn)
		fn(g->arg, &g->found);
}

/* At the end of the turn: a resolver must not be freed in its callback. */
static void
on_looked(void *arg)
{
	struct egress *g = arg;

	evdns_base_free(g->dns, 0);
	loop_timer_fini(&g->limit);
	answer(g);
	free(g);
}

static void
on_resolved(int result, struct evutil_addrinfo *res, void *arg)
{
	struct egress *g = arg;
	struct egress_found *f = &g->found;

	g->req = NULL;
	for (struct evutil_addrinfo *ai = result == 0 ? res : NULL; ai;
		ai = ai->ai_next) {
		f->forbidden = f->forbidden || egress_is_private(ai->ai_addr);
		if (f->n < EGRESS_ADDRS_MAX &&
			getnameinfo(ai->ai_addr, (socklen_t)ai->ai_addrlen,
				f->addr[f->n], sizeof(f->addr[0]), NULL, 0,
				NI_NUMERICHOST) == 0)
			f->n++;
	}
	if (res)
		evutil_freeaddrinfo(res);
	loop_later(g->loop, on_looked, g);
}

static void
give_up(struct egress *g)
{
	if (g->req)
		evdns_getaddrinfo_cancel(g->req);
}

static void
on_limit(void *arg)
{
	struct egress *g = arg;

	answer(g);
	give_up(g);
}

struct egress *
egress_start(struct loop *l, const char *host, int64_t limit_ms, egress_fn fn,
	void *arg)
{
	struct evutil_addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_protocol = IPPROTO_TCP,
	};
	struct evdns_getaddrinfo_request *req;
	struct egress *g = calloc(1, sizeof(*g));

	if (!g)
		abort();
	*g = (struct egress){ .loop = l, .fn = fn, .arg = arg };
	loop_timer_init(&g->limit, l, on_limit, g);
	loop_timer_start(&g->limit, limit_ms);
	/* each look-up sees the resolv.conf and hosts of its day */
	g->dns = evdns_base_new(loop_base(l), EVDNS_BASE_DISABLE_WHEN_INACTIVE);
	BUG(g->dns == NULL);
	(void)evdns_base_resolv_conf_parse(
		g->dns, DNS_OPTIONS_ALL, "/etc/resolv.conf");
	evdns_base_set_option(g->dns, "timeout:", "1");
	req = evdns_getaddrinfo(g->dns, host, NULL, &hints, on_resolved, g);
	/* on_resolved may have run already; then there is no request */
	if (req)
		g->req = req;
	return g;
}

void
egress_stop(struct egress *g)
{
	g->fn = NULL;
	give_up(g);
}
