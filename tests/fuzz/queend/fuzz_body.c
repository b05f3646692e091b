/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of push, ack and transaction: whatever the bytes, the reader ends,
 * a refusal has a text that is UTF-8, and what it took is inside its bounds.
 */
#include <stdint.h>
#include <stdlib.h>

#include "arena.h"
#include "body.h"
#include "jspan.h"
#include "name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check(bool holds)
{
	if (!holds)
		abort();
}

static void
check_refusal(const struct err *e)
{
	check(e->kind == ERR_INPUT);
	check(jspan_utf8(span_of(e->text)));
	check(span_of(e->text).n > 10);
}

static void
check_name(struct span s)
{
	check(s.n <= NAME_MAX_BYTES && jspan_utf8(s));
	for (size_t i = 0; i < s.n; i++)
		check((unsigned char)s.p[i] >= 0x20);
}

static void
check_push(const struct body_push *p)
{
	const char *what;
	size_t at;

	check_name(p->queue);
	check_name(p->partition);
	check_name(p->txn);
	check(p->queue.n > 0 && p->partition.n > 0);
	check(jspan_valid(p->payload, &what, &at));
}

static void
check_ack(const struct body_ack *k)
{
	check_name(k->group);
	check(jspan_utf8(k->error) && jspan_utf8(k->txn));
	for (size_t i = 0; i < k->error.n; i++)
		check(k->error.p[i] != '\0');
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span body = span_make(data, size), group;
	struct arena a = ARENA_ZERO;
	struct err e = ERR_ZERO;
	struct body_push *pushes;
	struct body_ack one, *acks;
	struct body_txn txn;
	size_t n;

	if (body_parse_push(body, &a, &pushes, &n, &e) != 0)
		check_refusal(&e);
	else
		for (size_t i = 0; i < n; i++)
			check_push(&pushes[i]);
	if (body_parse_ack(body, &a, &group, &one, &e) != 0)
		check_refusal(&e);
	else
		check_ack(&one);
	if (body_parse_ack_batch(body, &a, &group, &acks, &n, &e) != 0)
		check_refusal(&e);
	else
		for (size_t i = 0; i < n; i++)
			check_ack(&acks[i]);
	if (body_parse_txn(body, &a, &txn, &e) != 0)
		check_refusal(&e);
	else
		for (size_t i = 0; i < txn.ops_n; i++) {
			for (size_t k = 0; k < txn.ops[i].n; k++)
				check_push(&txn.ops[i].items[k]);
			if (!txn.ops[i].is_push)
				check_ack(&txn.ops[i].ack);
		}
	arena_fini(&a);
	return 0;
}
