/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The publication.  The stream would apply a row filter or a column list and
 * the snapshot would not, so every table is published whole or not at all.  A
 * managed one is made and kept equal to the tables; any other is only looked
 * at, and what it lacks is named together with the statement.
 */
#include "buf.h"
#include "conndoc.h"
#include "connfault.h"
#include "decide.h"
#include "pgquote.h"

#define PUBLISH "publish = 'insert, update, delete, truncate'"
#define VIA_ROOT "publish_via_partition_root = true"

struct judging {
	const struct conndoc_source *want;
	const struct decide_table *t;
	const struct decide_publication *p;
};

/* ---- statements ---- */

/* Children of a plain table are other tables to a publication. */
static void
put_table(struct buf *b, const struct decide_table *t)
{
	if (t->kind == 'r' && t->has_children)
		buf_puts(b, "ONLY ");
	pgquote_table(b, t->schema, t->name);
}

static void
put_tables(struct buf *b, const struct judging *j)
{
	for (size_t i = 0; i < j->want->tables_n; i++) {
		buf_puts(b, i ? ", " : "");
		put_table(b, &j->t[i]);
	}
}

static void
put_alter(struct buf *b, const struct judging *j)
{
	buf_puts(b, "ALTER PUBLICATION ");
	pgquote_ident(b, j->p->name);
	buf_putc(b, ' ');
}

static bool
wants_root(const struct judging *j)
{
	for (size_t i = 0; i < j->want->tables_n; i++)
		if (j->t[i].kind == 'p')
			return true;
	return false;
}

static void
put_create(struct buf *b, const struct judging *j)
{
	buf_puts(b, "CREATE PUBLICATION ");
	pgquote_ident(b, j->p->name);
	buf_puts(b, " FOR TABLE ");
	put_tables(b, j);
	if (wants_root(j))
		buf_puts(b, " WITH (" VIA_ROOT ")");
}

/* ---- what is wrong with it ---- */

static bool
publishes_all(const struct judging *j)
{
	const struct decide_publication *p = j->p;

	return p->inserts && p->updates && p->deletes &&
	       (p->truncates || j->want->on_truncate != CONNDOC_EMIT);
}

/* A column that the stream would leave out. */
static const struct decide_column *
hidden(const struct decide_table *t)
{
	for (size_t i = 0; i < t->columns_n; i++)
		if (!t->columns[i].published && !t->columns[i].generated)
			return &t->columns[i];
	return NULL;
}

static const struct decide_table *
unpublished(const struct judging *j)
{
	for (size_t i = 0; i < j->want->tables_n; i++)
		if (!j->t[i].published)
			return &j->t[i];
	return NULL;
}

static const struct decide_table *
narrowed(const struct judging *j)
{
	for (size_t i = 0; i < j->want->tables_n; i++)
		if (j->t[i].filter.n || hidden(&j->t[i]))
			return &j->t[i];
	return NULL;
}

/* ---- one that is not ours ---- */

static enum decide_publish
refuse(struct connfault *f, struct buf *why)
{
	buf_putc(why, '\0');
	connfault_set(f, "publication", false, "%s", why->p);
	return DECIDE_REFUSE;
}

static void
say_missing(struct buf *b, const struct judging *j)
{
	bool first = true;

	buf_printf(b, "the publication %.*s lacks tables; run ",
		SPAN_ARG(j->p->name));
	put_alter(b, j);
	buf_puts(b, "ADD TABLE ");
	for (size_t i = 0; i < j->want->tables_n; i++) {
		if (j->t[i].published)
			continue;
		buf_puts(b, first ? "" : ", ");
		put_table(b, &j->t[i]);
		first = false;
	}
}

static void
say_narrowed(
	struct buf *b, const struct judging *j, const struct decide_table *t)
{
	buf_printf(b, "the publication %.*s narrows ", SPAN_ARG(j->p->name));
	pgquote_table(b, t->schema, t->name);
	if (t->filter.n)
		buf_printf(b, " by the row filter %.*s", SPAN_ARG(t->filter));
	else
		buf_printf(b, " by a column list without %.*s",
			SPAN_ARG(hidden(t)->name));
	buf_puts(b, ", which the copy of the table would not; run ");
	put_alter(b, j);
	buf_puts(b, "DROP TABLE ");
	put_table(b, t);
	buf_puts(b, "; ");
	put_alter(b, j);
	buf_puts(b, "ADD TABLE ");
	put_table(b, t);
}

static void
say_option(struct buf *b, const struct judging *j, const char *lacks,
	const char *option)
{
	buf_printf(b, "the publication %.*s %s; run ", SPAN_ARG(j->p->name),
		lacks);
	put_alter(b, j);
	buf_printf(b, "SET (%s)", option);
}

static bool
say_fault(struct buf *b, const struct judging *j)
{
	const struct decide_table *t;

	if (!publishes_all(j))
		say_option(
			b, j, "does not publish every kind of change", PUBLISH);
	else if (wants_root(j) && !j->p->via_root)
		say_option(b, j,
			"brings changes of a partitioned table under the names "
			"of its partitions",
			VIA_ROOT);
	else if (unpublished(j))
		say_missing(b, j);
	else if ((t = narrowed(j)) != NULL)
		say_narrowed(b, j, t);
	else
		return false;
	return true;
}

static enum decide_publish
look(const struct judging *j, struct connfault *f)
{
	struct buf b = BUF_ZERO;
	enum decide_publish act = DECIDE_KEEP;

	if (!j->p->found) {
		buf_printf(&b, "the publication %.*s does not exist; run ",
			SPAN_ARG(j->p->name));
		put_create(&b, j);
		act = refuse(f, &b);
	} else if (say_fault(&b, j)) {
		act = refuse(f, &b);
	}
	buf_fini(&b);
	return act;
}

/* ---- a managed one ---- */

static bool
other_tables(const struct judging *j)
{
	if (j->p->schemas || j->p->others)
		return true;
	for (size_t i = 0; i < j->want->tables_n; i++)
		if (!j->t[i].member || j->t[i].listed || j->t[i].filter.n)
			return true;
	return false;
}

static enum decide_publish
keep_equal(const struct judging *j, struct buf *sql)
{
	if (!j->p->found) {
		put_create(sql, j);
		return DECIDE_WRITE;
	}
	if (!publishes_all(j)) {
		put_alter(sql, j);
		buf_puts(sql, "SET (" PUBLISH ");");
	}
	if (wants_root(j) && !j->p->via_root) {
		put_alter(sql, j);
		buf_puts(sql, "SET (" VIA_ROOT ");");
	}
	if (j->p->generated) {
		put_alter(sql, j);
		buf_puts(sql, "SET (publish_generated_columns = none);");
	}
	if (other_tables(j)) {
		put_alter(sql, j);
		buf_puts(sql, "SET TABLE ");
		put_tables(sql, j);
		buf_putc(sql, ';');
	}
	return sql->len ? DECIDE_WRITE : DECIDE_KEEP;
}

enum decide_publish
decide_publication(const struct conndoc_source *want,
	const struct decide_table *t, const struct decide_publication *p,
	struct buf *sql, struct connfault *f)
{
	const struct judging j = { want, t, p };

	if (want->manage_publication && !p->all_tables &&
		keep_equal(&j, sql) == DECIDE_WRITE)
		return DECIDE_WRITE;
	return look(&j, f);
}

void
decide_publication_denied(const struct conndoc_source *want,
	const struct decide_table *t, const struct decide_publication *p,
	struct connfault *f)
{
	const struct judging j = { want, t, p };
	struct buf b = BUF_ZERO;

	buf_printf(&b,
		"%s: the role may not write the publication %.*s; make it the "
		"owner of the tables and give it CREATE on the database, or "
		"set managePublication to false and run as their owner ",
		f->text, SPAN_ARG(p->name));
	if (p->found) {
		put_alter(&b, &j);
		buf_puts(&b, "SET TABLE ");
		put_tables(&b, &j);
	} else {
		put_create(&b, &j);
	}
	refuse(f, &b);
	buf_fini(&b);
}
