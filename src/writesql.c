/*-------------------------------------------------------------------------
 *
 * writesql.c
 *	  Text of the statements of conditional writes.
 *
 * Names are quoted and qualified, so nothing depends on search_path; operators
 * are written OPERATOR(schema.op) with their arguments cast to its types, so
 * none that matches better is taken; values are parameters of the columns'
 * own types, one for each column of the new row, in the order of the table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_class.h"
#include "domain.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "writesql.h"

static char *
table_name(Relation rel)
{
	return quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
									  RelationGetRelationName(rel));
}

/* Number of a column's parameter: they stand in the order of the columns. */
static int
param_number(const WriteShape *shape, AttrNumber column)
{
	return bms_member_index(shape->columns, column) + 1;
}

static const char *
column_name(Relation rel, AttrNumber column)
{
	return quote_identifier(NameStr(TupleDescAttr(RelationGetDescr(rel),
												  column - 1)->attname));
}

/* The row as the caller may see it, as jsonb. */
static void
append_stored(StringInfo sql, Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);
	const char *separator = "";

	if (pg_class_aclcheck(RelationGetRelid(rel), GetUserId(),
						  ACL_SELECT) == ACLCHECK_OK)
	{
		appendStringInfoString(sql, "pg_catalog.to_jsonb(t.*)");
		return;
	}
	appendStringInfoString(sql, "(SELECT pg_catalog.to_jsonb(s.*) FROM (SELECT ");
	for (int i = 0; i < desc->natts; i++)
	{
		if (TupleDescAttr(desc, i)->attisdropped || !WriteRequestMaySelect(rel, i + 1))
			continue;
		appendStringInfo(sql, "%st.%s", separator, column_name(rel, i + 1));
		separator = ", ";
	}
	appendStringInfoString(sql, ") AS s)");
}

/* What every statement tells of a row: its version and the row itself. */
static void
append_result(StringInfo sql, const WriteShape *shape, Relation rel)
{
	if (shape->reads_version)
		appendStringInfo(sql, "COALESCE(t.%s, 0)::pg_catalog.int8, ",
						 column_name(rel, shape->version_column));
	else
		appendStringInfoString(sql, "NULL::pg_catalog.int8, ");
	append_stored(sql, rel);
}

static void
append_columns(StringInfo sql, Relation rel, Bitmapset *columns,
			   const char *prefix)
{
	const char *separator = "";

	for (int c = -1; (c = bms_next_member(columns, c)) >= 0;)
	{
		appendStringInfo(sql, "%s%s%s", separator, prefix, column_name(rel, c));
		separator = ", ";
	}
}

static const char *
collation_name(Oid collation)
{
	HeapTuple	tuple = SearchSysCache1(COLLOID, ObjectIdGetDatum(collation));
	Form_pg_collation form;
	const char *name;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for collation %u", collation);
	form = (Form_pg_collation) GETSTRUCT(tuple);
	name = quote_qualified_identifier(get_namespace_name(form->collnamespace),
									  NameStr(form->collname));
	ReleaseSysCache(tuple);
	return name;
}

/*
 * "Both are null, or", in a form that the index serves too.  A row of nulls "is
 * null" as well, but not for an index: so composite values are counted.
 */
static void
append_both_null(StringInfo sql, const char *left, const char *right, Oid type)
{
	if (type_is_rowtype(type))
		appendStringInfo(sql, "(pg_catalog.num_nulls(%s, %s) OPERATOR(pg_catalog.=) 2 OR ",
						 left, right);
	else
		appendStringInfo(sql, "((%s IS NULL AND %s IS NULL) OR ", left, right);
}

/*
 * The condition on one column of the key, in the words of the index: its
 * operator and its collation, so that it finds what the index would refuse.
 */
static void
append_key_column(StringInfo sql, const WriteShape *shape, Relation rel, int i)
{
	const ConflictTarget *target = &shape->target;
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel),
										  target->columns[i] - 1);
	char	   *left = psprintf("t.%s", column_name(rel, att->attnum));
	char	   *right = psprintf("$%d", param_number(shape, att->attnum));
	Oid			type = getBaseType(att->atttypid);

	if (target->nulls_conflict)
		append_both_null(sql, left, right, type);
	if (target->collations[i] != att->attcollation)
		left = psprintf("(%s COLLATE %s)", left,
						collation_name(target->collations[i]));
	generate_operator_clause(sql, DomainUnwrap(left, att->atttypid), type,
							 target->operators[i],
							 DomainUnwrap(right, att->atttypid), type);
	if (target->nulls_conflict)
		appendStringInfoChar(sql, ')');
}

/* An update of a column that foreign keys may point at locks the whole row. */
static const char *
locking_clause(const WriteShape *shape, Relation rel)
{
	Bitmapset  *keys = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_KEY);

	for (int c = -1; (c = bms_next_member(shape->updated, c)) >= 0;)
	{
		if (bms_is_member(c - FirstLowInvalidHeapAttributeNumber, keys))
			return " FOR UPDATE OF t";
	}
	return " FOR NO KEY UPDATE OF t";
}

/*
 * WriteSqlProbe - the statement that looks for the row, and locks it where
 * told.
 *
 * Gives the compared columns, the version and the row.  Like INSERT ... ON
 * CONFLICT it sees a table without its inheritance children, a partitioned one
 * with its partitions.
 */
char *
WriteSqlProbe(const WriteShape *shape, Relation rel, bool lock)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT ");
	append_columns(&sql, rel, shape->compared, "t.");
	if (shape->compared != NULL)
		appendStringInfoString(&sql, ", ");
	append_result(&sql, shape, rel);
	appendStringInfo(&sql, " FROM %s%s AS t WHERE ",
					 rel->rd_rel->relkind == RELKIND_RELATION ? "ONLY " : "",
					 table_name(rel));
	for (int i = 0; i < shape->target.ncolumns; i++)
	{
		if (i > 0)
			appendStringInfoString(&sql, " AND ");
		append_key_column(&sql, shape, rel, i);
	}
	if (lock)
		appendStringInfoString(&sql, locking_clause(shape, rel));
	return sql.data;
}

/*
 * WriteSqlInsert - the statement that inserts the row.
 *
 * With target it names the conflict target, else every constraint counts.  On
 * a conflict it sets the updated columns, or does nothing where there are
 * none.  Gives the version and the row, where it wrote one.
 */
char *
WriteSqlInsert(const WriteShape *shape, Relation rel, bool target,
			   Bitmapset *updated)
{
	StringInfoData sql;
	Bitmapset  *key = NULL;
	const char *separator = " DO UPDATE SET ";

	for (int i = 0; i < shape->target.ncolumns; i++)
		key = bms_add_member(key, shape->target.columns[i]);

	initStringInfo(&sql);
	appendStringInfo(&sql, "INSERT INTO %s AS t (", table_name(rel));
	append_columns(&sql, rel, shape->columns, "");
	appendStringInfoString(&sql, ") VALUES (");
	for (int i = 1; i <= shape->nparams; i++)
		appendStringInfo(&sql, "%s$%d", i > 1 ? ", " : "", i);
	appendStringInfoString(&sql, ") ON CONFLICT");
	if (target)
	{
		appendStringInfoString(&sql, " (");
		append_columns(&sql, rel, key, "");
		appendStringInfoChar(&sql, ')');
	}
	if (updated == NULL)
		appendStringInfoString(&sql, " DO NOTHING");
	for (int c = -1; (c = bms_next_member(updated, c)) >= 0; separator = ", ")
		appendStringInfo(&sql, "%s%s = excluded.%s", separator,
						 column_name(rel, c), column_name(rel, c));
	appendStringInfoString(&sql, " RETURNING ");
	append_result(&sql, shape, rel);
	return sql.data;
}
