/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the engine.  Its files: engine.c what to do next; engine_call.c
 * answers of seeks and fetches; engine_pass.c answers of discovery;
 * engine_close.c where a window ends; engine_table.c partitions and lost
 * ranges; engine_buffer.c records; engine_weight.c their weight by time;
 * engine_plan.c what goes in the order of names.
 *
 * A bound on a partition that is read to its end is not kept: it is `safe`.
 * Each pass asks for all that was written since the window began, and each of
 * its pages was read after its own safeTime was told; so a record that no page
 * named is stamped at or after the least of these, and so is one that comes
 * after a fetch that was issued later.
 */
#ifndef QUEEN_S3_ENGINE_INT_H
#define QUEEN_S3_ENGINE_INT_H

#include "engine.h"

#include "map.h"

enum {
	ENGINE_SLICE = 20000, /* steps of own work per call */
	ENGINE_BUCKETS = 2048, /* of an alignment unit */
	ENGINE_RUN_MAX = 65536, /* bytes a run grows to at once */
	ENGINE_ENTRY_LEAST = 16384, /* entry_bytes */
	ENGINE_CHUNK_LEAST = 16, /* entries of a fetch when few are due */
	ENGINE_QUANTUM_US = 1000000, /* a last write is told that late */
	ENGINE_SHORT = 1000, /* records: read rather than sought */
};

/* ---- records ---- */
/* Records of one answer, in order, packed: head..used of bytes. */
struct engine_run {
	struct engine_run *next;
	int64_t last_us; /* of its newest */
	uint32_t used, cap, head, n;
	char bytes[];
};
/* In front of each; then transaction id and payload, padded to 8. */
struct engine_rec {
	int64_t offset, ts_us;
	uint32_t txn_n, payload_n; /* ENGINE_NULL: none */
};
#define ENGINE_NULL UINT32_MAX

/* ---- partitions ---- */
enum engine_state {
	ENGINE_RESTORED, /* from a checkpoint, not named yet */
	ENGINE_UNKNOWN, /* to be sought: pos is log_start, ts_us the last write */
	ENGINE_SEEKING,
	ENGINE_CAUGHT,
	ENGINE_DUE, /* in the heap of those to read */
	ENGINE_FLYING,
	ENGINE_BLOCKED, /* in the heap of those that cannot be opened */
	ENGINE_DEAD, /* gone; its records still ship */
};
enum { ENGINE_WENT = 1, ENGINE_SHUT = 2, ENGINE_ANSWERED = 4 };
/* One for each partition there is: mind its size. */
struct engine_part {
	int64_t id; /* first: map_is_i64 */
	int64_t pos; /* to be read next */
	int64_t head; /* to be assigned next, as far as known */
	int64_t ts_us; /* no record from pos on is older */
	struct engine_run *first, *last;
	uint32_t heap_at; /* in the heap its state names */
	uint32_t buffered_at; /* 1-based; 0: no records */
	uint32_t all_at;
	uint32_t seen; /* windows committed when it was named last */
	int16_t key_id;
	uint16_t name_n;
	uint8_t state, marks;
	char name[];
};
struct engine_list {
	struct engine_part **a;
	uint32_t n, cap;
};

/* A position of a partition whose id the checkpoint does not tell. */
struct engine_loose {
	int64_t offset;
	size_t n;
	char name[];
};
struct engine_lost {
	int64_t part, from, to;
	size_t n;
	char name[];
};

/* ---- weight by time ---- */
struct engine_weight {
	int64_t ts_us, bytes;
};
struct engine_bucket {
	int64_t no; /* ts_us / width */
	int64_t bytes, min_us;
	struct engine_weight *a;
	uint32_t n, cap;
};

/* ---- calls ---- */
struct engine_call {
	uint32_t id;
	enum engine_what what;
	size_t n;
	struct engine_part **part;
	int64_t low_us; /* the least of their bounds */
};

/* ---- in the order of names ---- */
struct engine_item {
	uint64_t key; /* eight bytes of the name, after what all share */
	struct engine_part *part;
};
enum engine_sorting { ENGINE_COLLECT, ENGINE_KEYS, ENGINE_MERGE, ENGINE_SORTED };
struct engine_sort {
	bool plan, positions; /* in use for */
	enum engine_sorting stage;
	struct engine_item *a, *b; /* b: the other half of a merge */
	size_t n, cap, at;
	size_t common; /* bytes at the front of all names */
	size_t width, lo, i, j, k; /* of the merge */
};
struct engine_cursor {
	struct engine_part *part;
	struct engine_run *run;
	uint32_t at;
};

struct engine {
	struct engine_conf conf;
	int64_t unit_us; /* of alignment, or the longest window */
	bool missing, draining, decided, forced, closing, dropping, dirty;
	bool woken;

	/* the window */
	int64_t committed_k, closed; /* closed: by this run */
	int64_t prev_us; /* its start; STAMP_NONE: no bound, or not known */
	bool has_prev;
	int64_t end_us, start_us; /* closing; start as it is reported */
	int64_t redo_start_us, redo_end_us;
	bool redo;
	int64_t complete_us;
	uint64_t stepped_over;

	/* discovery */
	struct {
		bool running, out, due, full, blind, degraded;
		uint32_t call;
		int64_t since_us, after_us, after_part, min_us, rows, closed;
	} pass;
	uint64_t begun, pages;
	int since_sweep; /* passes */
	int64_t safe_us;
	bool degraded, swept;
	int64_t sweep_closed; /* when the last whole full sweep began */
	int64_t discovered;

	/* partitions */
	struct map parts, loose;
	struct engine_list all, due, blocked, buffered, unknown, dead;
	uint32_t restored_n, seeking_n, look_at;
	struct engine_lost **lost;
	uint32_t lost_n, lost_cap, lost_taken;

	/* records */
	struct engine_bucket *bucket;
	uint32_t bucket_n, bucket_cap, bucket_last;
	struct engine_bucket far;
	int64_t near_us; /* the buckets hold what is older */
	int64_t width_us, bytes;
	struct engine_part *open; /* its last run may grow */
	struct engine_run **open_link; /* what points at that */
	uint32_t drop_at;

	/* calls */
	struct engine_call **call;
	uint32_t call_n, call_cap, call_last;
	uint32_t call_id;
	size_t fetches, seeks, chunk; /* chunk: entries of a fetch */
	int64_t step_part[ENGINE_ENTRIES], step_offset[ENGINE_ENTRIES];

	/* the plan */
	struct engine_sort sort;
	int64_t records, partitions, min_us, max_us;
	size_t plan_at;
	uint32_t group_n, group_cap;
	struct engine_cursor *group;
};

/* ---- engine_table.c ---- */
void *engine_grow(void *a, uint32_t n, uint32_t *cap, size_t size);
void engine_push(struct engine_list *l, struct engine_part *p);
struct engine_part *engine_part_get(const struct engine *e, int64_t id);
struct engine_part *
engine_part_new(struct engine *e, int64_t id, struct span name);
void engine_part_free(struct engine *e, struct engine_part *p);
void engine_part_settle(struct engine *e, struct engine_part *p);
void engine_part_block(struct engine *e, struct engine_part *p);
void engine_part_gone(struct engine *e, struct engine_part *p);
void engine_part_all_gone(struct engine *e); /* no call is out */
/* Frees what is over among the next n of all. */
void engine_part_look(struct engine *e, size_t n);
void engine_part_bury(struct engine *e); /* those gone */
struct engine_part *engine_heap_top(const struct engine_list *h);
struct engine_part *engine_heap_pop(struct engine_list *h);
void engine_heap_take(struct engine_list *h, struct engine_part *p);
void engine_lose(
	struct engine *e, struct engine_part *p, int64_t from, int64_t to);
bool engine_loose_get(
	const struct engine *e, struct span name, int64_t *offset);
void engine_loose_drop(struct engine *e);
void engine_table_fini(struct engine *e);

/* ---- engine_buffer.c ---- */
void engine_buffer_add(
	struct engine *e, struct engine_part *p, const struct record *r);
void engine_buffer_shut(struct engine *e);
/* What is below the window start, a slice; true when it is done. */
bool engine_buffer_drop(struct engine *e);
const struct engine_rec *engine_buffer_first(const struct engine_part *p);
const struct engine_rec *engine_run_rec(const struct engine_run *r, uint32_t at);
uint32_t engine_rec_size(const struct engine_rec *r);
void engine_buffer_free(struct engine_part *p);

/* ---- engine_weight.c ---- */
void engine_weight_init(struct engine *e);
void engine_weight_add(struct engine *e, int64_t ts_us, int64_t bytes);
int64_t engine_weight_below(struct engine *e, int64_t at_us);
bool engine_weight_any_below(const struct engine *e, int64_t at_us);
/* The first stamp with at least target below it; at_us when none is older. */
int64_t engine_weight_cut(struct engine *e, int64_t target, int64_t at_us);
void engine_weight_drop(struct engine *e, int64_t at_us);
int64_t engine_weight_first_us(const struct engine *e);
void engine_weight_fini(struct engine *e);

/* ---- engine_call.c ---- */
uint32_t engine_call_id(struct engine *e);
void engine_call_drop_all(struct engine *e);
void engine_call_seek(struct engine *e, struct engine_step *s);
void engine_call_fetch(struct engine *e, struct engine_step *s);

/* ---- engine_pass.c ---- */
void engine_pass_begin(struct engine *e);
void engine_pass_page(struct engine *e, struct engine_step *s);
bool engine_pass_failed(struct engine *e, uint32_t call);

/* ---- engine_close.c ---- */
int64_t engine_less(int64_t at_us, int64_t us); /* stays STAMP_NONE */
int64_t engine_horizon_us(const struct engine *e);
bool engine_close(struct engine *e);
bool engine_worth(const struct engine *e);

/* ---- engine_plan.c ---- */
void engine_sort_end(struct engine *e);

#endif
