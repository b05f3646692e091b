/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a connector may not connect to when private networks are off: a host
 * name is resolved once, every address of it is looked at, and one that is
 * forbidden refuses all.  Connect to the addresses that were looked at, never
 * to the name again.
 */
#ifndef QUEEN_EGRESS_H
#define QUEEN_EGRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct sockaddr;

/*
 * Loopback, private, shared, link-local and unspecified addresses, and IPv6
 * forms of such an IPv4 address; whatever is no IP address.
 */
bool egress_is_private(const struct sockaddr *sa);

enum { EGRESS_ADDRS_MAX = 16 };
struct egress_found {
	bool forbidden;		/* one of all addresses is private */
	int n;			/* 0: does not resolve, or not in time */
	char addr[EGRESS_ADDRS_MAX][INET6_ADDRSTRLEN];
};

typedef void (*egress_fn)(void *arg, const struct egress_found *f);

struct egress;
/*
 * Answers by fn, once and always later, within limit_ms.  host: a name or an
 * address without brackets, copied.  What is returned lives until then.
 */
struct egress *egress_start(struct loop *l, const char *host, int64_t limit_ms,
	egress_fn fn, void *arg);
/* Ends it without an answer. */
void egress_stop(struct egress *g);

#endif
