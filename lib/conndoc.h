/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The document of a PostgreSQL connector: read strictly (an unknown field is
 * refused at every level), checked by one set of rules on every side, written
 * in one canonical form with all defaults, shown without its secrets.
 *
 * Every refusal is ERR_INPUT and its text `path.of.the.field: what is wrong
 * and what to write instead`; it never repeats a password or a URL.
 */
#ifndef QUEEN_CONNDOC_H
#define QUEEN_CONNDOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "span.h"

struct arena;
struct buf;
struct err;
struct jwrite;
struct qid;
struct seal;

enum {
	CONNDOC_NAME_MAX = 48,
	CONNDOC_TABLES_MAX = 256,
	CONNDOC_IDENT_MAX = 63
};

enum conndoc_kind { CONNDOC_SOURCE, CONNDOC_SINK };
enum conndoc_ssl { CONNDOC_DISABLE, CONNDOC_PREFER, CONNDOC_REQUIRE,
	CONNDOC_VERIFY_FULL };
enum conndoc_by { CONNDOC_BY_KEY, CONNDOC_BY_SINGLE, CONNDOC_BY_COLUMNS };
enum conndoc_snapshot { CONNDOC_INITIAL, CONNDOC_NEVER };
enum conndoc_truncate { CONNDOC_SKIP, CONNDOC_EMIT };
enum conndoc_mode { CONNDOC_APPEND, CONNDOC_UPSERT, CONNDOC_CDC, CONNDOC_SQL };
enum conndoc_start { CONNDOC_ALL, CONNDOC_NEW };
/*
 * What to do with a position that another cell wrote (the cell was restored):
 * nothing but stop with code `cell_changed`, go on from it, or start over.
 */
enum conndoc_takeover { CONNDOC_STAY, CONNDOC_ADOPT, CONNDOC_RESET };

/* An absent text or list has n = 0; p tells an absent list from an empty one. */
struct conndoc_list {
	struct span *p;
	size_t n;
};

struct conndoc_conn {
	struct span host, database, user;	/* host without brackets */
	struct span password;			/* clear; never stored */
	bool password_given;			/* by the client, maybe empty */
	struct span password_sealed;
	struct span ssl_root_cert;		/* PEM */
	enum conndoc_ssl ssl;
	int64_t port, connect_timeout_ms;
};

struct conndoc_name {		/* a qualified name, its two identifiers */
	struct span text;	/* as the document spells it */
	struct span schema, name;
};

struct conndoc_table {
	struct conndoc_name table;
	struct span queue;
	enum conndoc_by by;
	bool by_given;		/* partitionBy stands in the document */
	struct conndoc_list columns;	/* CONNDOC_BY_COLUMNS */
};

struct conndoc_source {
	struct conndoc_table *tables;
	size_t tables_n;
	struct span slot, publication;	/* conndoc_slot, conndoc_publication */
	bool manage_publication;
	enum conndoc_snapshot snapshot;
	enum conndoc_truncate on_truncate;
	int64_t snapshot_chunk_rows, max_bundle_messages, max_bundle_bytes;
	int64_t linger_ms, heartbeat_s;
};

/* Columns the sink fills beside the payload's; n = 0: not wanted. */
enum conndoc_meta { CONNDOC_META_PARTITION, CONNDOC_META_PARTITION_ID,
	CONNDOC_META_OFFSET, CONNDOC_META_TXN, CONNDOC_META_CREATED_AT,
	CONNDOC_META_PAYLOAD, CONNDOC_METAS };

struct conndoc_sink {
	struct span queue;
	struct conndoc_name table;
	enum conndoc_mode mode;
	struct span consumer_group;	/* conndoc_group */
	enum conndoc_start start;	/* subscriptionMode */
	struct conndoc_list key;	/* n = 0: found in the target */
	struct span statement;		/* sql */
	struct conndoc_list params;	/* sql; see conndoc_param */
	bool metadata_given;
	struct span metadata[CONNDOC_METAS];
	int64_t batch, workers, lease_s, max_attempts;
	struct conndoc_name progress_table;
	bool create_progress_table;
};

struct conndoc {
	enum conndoc_kind kind;
	bool enabled;
	struct conndoc_conn conn;
	struct conndoc_source source;	/* of the kind that it is */
	struct conndoc_sink sink;
	/* queend's own; n = 0 absent */
	struct span updated_at, resync_requested_at;
	bool deleting, drop_slot;
	struct span delete_requested_at;
	/* Counts in the cell of this tag alone; conndoc_takeover_in. */
	enum conndoc_takeover takeover;
	struct span takeover_cell, takeover_requested_at;
};

/* [a-z0-9][a-z0-9_-]{0,47} */
bool conndoc_name_ok(struct span name);

/*
 * Where documents lie: namespace queen-pg of the internal tenant, one key each,
 * `conn:<tenant>:<name>`.  False for a key that is none.
 */
bool conndoc_key_parse(struct span key, struct qid *tenant,
	struct span *name);

/*
 * A document as a client sends it: what queend alone writes is passed over,
 * url is folded into the fields.  name: of the path; a `name` that says
 * another is refused.  *out and all in it live in the arena, spans also in
 * json.  Secrets lie there in the clear: conndoc_wipe when done.
 */
int conndoc_parse(struct span json, struct span name, struct arena *a,
	struct conndoc **out, struct err *e)
	__attribute__((warn_unused_result));
/* A document as it is stored: the same rules, and queend's own fields. */
int conndoc_parse_stored(struct span json, struct arena *a,
	struct conndoc **out, struct err *e)
	__attribute__((warn_unused_result));
/* Zeroes the clear password. */
void conndoc_wipe(struct conndoc *d);

/*
 * The members of the canonical form, all defaults filled in, into an open
 * object: as it is stored (a clear password is BUG), or as it is shown, with
 * passwordSet instead of the password.
 */
enum conndoc_form { CONNDOC_STORED, CONNDOC_SHOWN };
void conndoc_write(const struct conndoc *d, enum conndoc_form form,
	struct jwrite *w);
/*
 * The members of any stored document, also one that does not parse, into an
 * open object: password, passwordSealed and url are left out, passwordSet
 * comes in.  What is no object writes nothing.
 */
void conndoc_write_redacted(struct jwrite *w, struct span json,
	struct arena *a);

/* As given, else `queen_<name>` with _ for -.  name: of the connector. */
struct span conndoc_slot(const struct conndoc_source *d, struct span name,
	struct arena *a);
struct span conndoc_publication(const struct conndoc_source *d,
	struct span name, struct arena *a);
/* As given, else `pg-<name>`. */
struct span conndoc_group(const struct conndoc_sink *d, struct span name,
	struct arena *a);

/*
 * Seals the clear password into password_sealed and wipes it; place and kind
 * are part of the seal.  BUG without a key that seals.
 */
void conndoc_seal(struct conndoc *d, const struct qid *tenant,
	struct span name, const struct seal *s, struct arena *a);
/*
 * Appends the clear password, nothing when there is none.  ERR_DB_DATA says
 * which key is missing or that it belongs to another place; the code is
 * `unseal`.  The caller zeroes it after use.
 */
int conndoc_unseal(const struct conndoc *d, const struct qid *tenant,
	struct span name, const struct seal *s, struct buf *out, struct err *e)
	__attribute__((warn_unused_result));

/* ---- sink.params ---- */
enum conndoc_param_kind { CONNDOC_PARAM_PATH, CONNDOC_PARAM_META };
struct conndoc_step {
	bool is_index;
	struct span key;
	int64_t index;
};
struct conndoc_param {
	enum conndoc_param_kind kind;
	enum conndoc_meta meta;
	struct conndoc_step *steps;	/* none: the whole payload */
	size_t steps_n;
};
/* False with *why, a literal, when the text is none. */
bool conndoc_param_parse(struct span text, struct arena *a,
	struct conndoc_param *out, const char **why);

/* What the document asks for in the cell of this tag. */
enum conndoc_takeover conndoc_takeover_in(const struct conndoc *d,
	struct span cell_tag);

/* The words of the enums, as the document spells them. */
const char *conndoc_kind_word(enum conndoc_kind k);
const char *conndoc_ssl_word(enum conndoc_ssl s);
const char *conndoc_mode_word(enum conndoc_mode m);

#endif
