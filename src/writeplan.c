/*-------------------------------------------------------------------------
 *
 * writeplan.c
 *	  Statements of conditional writes to one table.
 *
 * A request (a table, the columns of the new row, its conflict target, the
 * columns to update) has these statements:
 *
 *	probe		SELECT ... WHERE key			reads only
 *	lock		SELECT ... WHERE key FOR UPDATE
 *	insert any	INSERT ... ON CONFLICT DO NOTHING RETURNING ...
 *	insert		INSERT ... ON CONFLICT (key) DO NOTHING RETURNING ...
 *	update		INSERT ... ON CONFLICT (key) DO UPDATE ... RETURNING ...
 *
 * They run through SPI as the caller: privileges on the table and its columns,
 * row security, triggers and constraints are the server's own.  Names are
 * quoted and qualified, operators are written OPERATOR(schema.op), and values
 * are parameters of the columns' own types.
 *
 * The races: the probe sees a committed row or none.  An insert that meets
 * another one in flight waits for it and returns nothing where that one
 * commits; the caller probes again.  Before an update the row is locked and
 * judged once more, so the update meets the very row it was decided on and
 * cannot turn into an insert, nor can it be mistaken for one.
 *
 * The first insert names no conflict target.  While REINDEX CONCURRENTLY has
 * two indexes for one constraint, a lost race may show in the one that the
 * server did not take for the target, and raises 23505; without a target each
 * index is asked.  A conflict on another constraint makes that insert return
 * nothing as well; then the next turn, which names the target, raises the
 * error.  Where the table has a deferrable constraint the server refuses an
 * insert without a target, so there, and for partitioned tables whose
 * partitions may have one, the target is always named.
 *
 * In REPEATABLE READ and above the server raises its own 40001 where the
 * deciding row is not in the snapshot.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/sysattr.h"
#include "access/xact.h"
#include "catalog.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "compat.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "rowequal.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/syscache.h"
#include "writeplan.h"

/* Opens the table; its lock stays until the transaction ends. */
static Relation
open_target(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (rel->rd_rel->relkind != RELKIND_RELATION &&
		rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", RelationGetRelationName(rel)),
				 errhint("Only ordinary and partitioned tables have unique constraints.")));
	return rel;
}

/*
 * WriteRequestTake - reads the arguments that all conditional writes have: the
 * table first, the new row second, the conflict columns where told.
 *
 * Opens the table, for the caller to close with NoLock.  Raises 22004 for a
 * missing table or row, 42P01 where there is no such relation and 42809 where
 * it is no table.
 */
void
WriteRequestTake(FunctionCallInfo fcinfo, int conflict_argument,
				 WriteRequest *request)
{
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be NULL",
						PG_ARGISNULL(0) ? "target" : "new_row")));
	request->new_row = PG_GETARG_JSONB_P(1);
	if (!PG_ARGISNULL(conflict_argument))
		request->conflict_columns = PG_GETARG_ARRAYTYPE_P(conflict_argument);
	request->rel = open_target(PG_GETARG_OID(0));
}

/* ---- what the request means ---- */

/* Finds the column that a trigger's WHEN condition speaks of. */
static bool
find_condition_column(Node *node, AttrNumber *column)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		*column = ((Var *) node)->varattno;
		return true;
	}
	return expression_tree_walker(node, find_condition_column, column);
}

/*
 * The column that a version guard on the table counts in, or 0: it stands in
 * the WHEN condition of the guard's trigger.  Works on a copy of the triggers,
 * since the catalog lookups may rebuild the table's cache entry.
 */
static AttrNumber
version_guard_column(Relation rel)
{
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];
		char	   *name = get_func_name(trigger->tgfoid);
		AttrNumber	column = 0;

		if (name == NULL || strcmp(name, "idem_version_guard") != 0 ||
			get_func_namespace(trigger->tgfoid) != CatalogSchema() ||
			trigger->tgqual == NULL)
			continue;
		find_condition_column(stringToNode(trigger->tgqual), &column);
		if (column > 0)
			return column;
	}
	return 0;
}

/* Columns named in an array argument; each must be in the new row. */
static Bitmapset *
named_columns(Relation rel, ArrayType *names, Bitmapset *given,
			  const char *argument)
{
	Bitmapset  *columns = NULL;
	Datum	   *elems;
	bool	   *nulls;
	int			nelems;

	deconstruct_array(names, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR,
					  &elems, &nulls, &nelems);
	for (int i = 0; i < nelems; i++)
	{
		AttrNumber	column;

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not contain NULL", argument)));
		column = RowJsonColumn(rel, NameStr(*DatumGetName(elems[i])));
		if (!bms_is_member(column, given))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
					 errmsg("column \"%s\" of %s is not in the new row",
							NameStr(*DatumGetName(elems[i])), argument),
					 errhint("Give the new row a value for each column named there.")));
		columns = bms_add_member(columns, column);
	}
	return columns;
}

/* Chooses the conflict target of a request. */
static void
choose_target(WritePlan *plan, const WriteRequest *request)
{
	Bitmapset  *wanted = NULL;

	if (request->conflict_columns != NULL)
	{
		wanted = named_columns(request->rel, request->conflict_columns,
							   plan->columns, "conflict_columns");
		if (wanted == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
					 errmsg("conflict_columns must not be empty")));
	}
	ConflictChoose(request->rel, plan->columns, wanted, &plan->target);
}

/*
 * Chooses the columns that an update sets: the ones asked for, else all of the
 * new row but the key and the version, which counts itself.
 */
static void
choose_updated(WritePlan *plan, const WriteRequest *request)
{
	if (!request->upsert)
		return;
	if (request->update_columns != NULL)
	{
		plan->updated = named_columns(request->rel, request->update_columns,
									  plan->columns, "update_columns");
		return;
	}
	plan->updated = bms_copy(plan->columns);
	for (int i = 0; i < plan->target.ncolumns; i++)
		plan->updated = bms_del_member(plan->updated, plan->target.columns[i]);
	if (plan->version_column > 0)
		plan->updated = bms_del_member(plan->updated, plan->version_column);
	if (bms_is_empty(plan->updated))
		plan->updated = NULL;
}

/* ---- the text of the statements ---- */

/* Number of a column's parameter: they stand in the order of the columns. */
static int
param_number(WritePlan *plan, AttrNumber column)
{
	return bms_member_index(plan->columns, column) + 1;
}

static const char *
column_name(Relation rel, AttrNumber column)
{
	return quote_identifier(NameStr(TupleDescAttr(RelationGetDescr(rel),
												  column - 1)->attname));
}

static bool
may_select(Relation rel, AttrNumber column)
{
	Oid			relid = RelationGetRelid(rel);

	return pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK ||
		pg_attribute_aclcheck(relid, column, GetUserId(), ACL_SELECT) == ACLCHECK_OK;
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
		if (TupleDescAttr(desc, i)->attisdropped || !may_select(rel, i + 1))
			continue;
		appendStringInfo(sql, "%st.%s", separator, column_name(rel, i + 1));
		separator = ", ";
	}
	appendStringInfoString(sql, ") AS s)");
}

/* What every statement tells of a row: its version and the row itself. */
static void
append_result(StringInfo sql, WritePlan *plan, Relation rel)
{
	if (plan->reads_version)
		appendStringInfo(sql, "t.%s::pg_catalog.int8, ",
						 column_name(rel, plan->version_column));
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
 * The condition on one column of the key, in the words of the index: its
 * operator and its collation, so that it finds what the index would refuse.
 */
static void
append_key_column(StringInfo sql, WritePlan *plan, Relation rel, int i)
{
	ConflictTarget *target = &plan->target;
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel),
										  target->columns[i] - 1);
	char	   *left = psprintf("t.%s", column_name(rel, att->attnum));
	char	   *right = psprintf("$%d", param_number(plan, att->attnum));

	if (target->nulls_conflict)
		appendStringInfo(sql, "(pg_catalog.num_nulls(%s, %s) OPERATOR(pg_catalog.=) 2 OR ",
						 left, right);
	if (target->collations[i] != att->attcollation)
		left = psprintf("(%s COLLATE %s)", left,
						collation_name(target->collations[i]));
	generate_operator_clause(sql, left, att->atttypid, target->operators[i],
							 right, att->atttypid);
	if (target->nulls_conflict)
		appendStringInfoChar(sql, ')');
}

/*
 * The statements that look for the row.  Like INSERT ... ON CONFLICT they see
 * a table without its inheritance children, a partitioned one with its
 * partitions.
 */
static char *
probe_sql(WritePlan *plan, Relation rel, const char *table, const char *locking)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT ");
	append_columns(&sql, rel, plan->compared, "t.");
	if (plan->compared != NULL)
		appendStringInfoString(&sql, ", ");
	append_result(&sql, plan, rel);
	appendStringInfo(&sql, " FROM %s%s AS t WHERE ",
					 rel->rd_rel->relkind == RELKIND_RELATION ? "ONLY " : "",
					 table);
	for (int i = 0; i < plan->target.ncolumns; i++)
	{
		if (i > 0)
			appendStringInfoString(&sql, " AND ");
		append_key_column(&sql, plan, rel, i);
	}
	appendStringInfoString(&sql, locking);
	return sql.data;
}

static char *
insert_sql(WritePlan *plan, Relation rel, const char *table, bool target,
		   Bitmapset *updated)
{
	StringInfoData sql;
	Bitmapset  *key = NULL;
	const char *separator = " DO UPDATE SET ";

	for (int i = 0; i < plan->target.ncolumns; i++)
		key = bms_add_member(key, plan->target.columns[i]);

	initStringInfo(&sql);
	appendStringInfo(&sql, "INSERT INTO %s AS t (", table);
	append_columns(&sql, rel, plan->columns, "");
	appendStringInfoString(&sql, ") VALUES (");
	for (int i = 1; i <= plan->nparams; i++)
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
	append_result(&sql, plan, rel);
	return sql.data;
}

/* ---- preparing ---- */

/* An update of a column that foreign keys may point at locks the whole row. */
static const char *
locking_clause(WritePlan *plan, Relation rel)
{
	Bitmapset  *keys = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_KEY);

	for (int c = -1; (c = bms_next_member(plan->updated, c)) >= 0;)
	{
		if (bms_is_member(c - FirstLowInvalidHeapAttributeNumber, keys))
			return " FOR UPDATE OF t";
	}
	return " FOR NO KEY UPDATE OF t";
}

static void
prepare(WritePlan *plan, SPIPlanPtr *slot, const char *sql)
{
	SPIPlanPtr	prepared = SPI_prepare(sql, plan->nparams, plan->param_types);

	if (prepared == NULL)
		elog(ERROR, "SPI_prepare failed: %s",
			 SPI_result_code_string(SPI_result));
	if (SPI_keepplan(prepared) != 0)
		elog(ERROR, "SPI_keepplan failed");
	*slot = prepared;
}

/*
 * Prepares all statements at once, the inserting ones first: what the server
 * refuses in them (a value for a generated column, say) is refused whether
 * the row is there already or not.
 */
static void
prepare_statements(WritePlan *plan, Relation rel)
{
	char	   *table;

	table = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
									   RelationGetRelationName(rel));
	SPI_connect();
	prepare(plan, &plan->insert, insert_sql(plan, rel, table, true, NULL));
	if (rel->rd_rel->relkind == RELKIND_RELATION && !plan->target.any_deferrable)
		prepare(plan, &plan->insert_any, insert_sql(plan, rel, table, false, NULL));
	if (plan->updated != NULL)
	{
		prepare(plan, &plan->update, insert_sql(plan, rel, table, true, plan->updated));
		prepare(plan, &plan->lock,
				probe_sql(plan, rel, table, locking_clause(plan, rel)));
	}
	prepare(plan, &plan->probe, probe_sql(plan, rel, table, ""));
	SPI_finish();
}

/*
 * WritePlanBuild - fills a plan, zeroed but for its memory context, for a
 * request of the current user.
 *
 * Raises 22023, 22004, 42703 and 42P10 for requests that make no sense.  On an
 * error what was prepared so far is to be freed with WritePlanFree.
 */
void
WritePlanBuild(WritePlan *plan, const WriteRequest *request)
{
	Relation	rel = request->rel;
	MemoryContext old = MemoryContextSwitchTo(plan->context);

	plan->columns = RowJsonColumns(rel, request->new_row);
	choose_target(plan, request);
	plan->version_column = request->upsert ? version_guard_column(rel) : 0;
	plan->reads_version = plan->version_column > 0 &&
		may_select(rel, plan->version_column);
	choose_updated(plan, request);
	plan->compared = request->upsert ? plan->updated : plan->columns;

	plan->nparams = bms_num_members(plan->columns);
	plan->param_types = (Oid *) palloc(plan->nparams * sizeof(Oid));
	for (int i = 0, c = -1; (c = bms_next_member(plan->columns, c)) >= 0; i++)
		plan->param_types[i] = TupleDescAttr(RelationGetDescr(rel), c - 1)->atttypid;

	RowJsonPrepare(&plan->reader, rel, plan->context);
	MemoryContextSwitchTo(old);
	prepare_statements(plan, rel);
}

/*
 * WritePlanFree - frees a plan, also one that was built in part only.
 */
void
WritePlanFree(WritePlan *plan)
{
	SPIPlanPtr	statements[] = {plan->probe, plan->lock, plan->insert_any,
	plan->insert, plan->update};

	for (int i = 0; i < lengthof(statements); i++)
	{
		if (statements[i] != NULL)
			SPI_freeplan(statements[i]);
	}
	MemoryContextDelete(plan->context);
}

/* ---- running ---- */

/*
 * A key with a NULL in it is never found again: a retry would insert twice.
 * Where the column forbids NULL the server says so itself.
 */
static void
check_key(WritePlan *plan, Relation rel, WriteValues *values)
{
	if (plan->target.nulls_conflict)
		return;
	for (int i = 0; i < plan->target.ncolumns; i++)
	{
		AttrNumber	column = plan->target.columns[i];

		if (values->column_nulls[column - 1] &&
			!TupleDescAttr(RelationGetDescr(rel), column - 1)->attnotnull)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("conflict column \"%s\" of table \"%s\" must not be NULL",
							NameStr(TupleDescAttr(RelationGetDescr(rel), column - 1)->attname),
							RelationGetRelationName(rel)),
					 errdetail("NULLs are distinct from each other, so the row would be inserted again on each call.")));
	}
}

/*
 * WritePlanRead - reads the values of a new row, in the current memory
 * context.
 *
 * Raises the errors of the types' input functions, and 22004 where the row's
 * key has a NULL in it.  After an error half way the reader may have learnt a
 * type in part only: the plan is then not used again.
 */
void
WritePlanRead(WritePlan *plan, Relation rel, Jsonb *new_row,
			  WriteValues *values)
{
	int			natts = plan->reader.desc->natts;

	values->columns = (Datum *) palloc(natts * sizeof(Datum));
	values->column_nulls = (bool *) palloc(natts * sizeof(bool));
	values->params = (Datum *) palloc(plan->nparams * sizeof(Datum));
	values->param_nulls = (char *) palloc(plan->nparams);

	PG_TRY();
	{
		RowJsonRead(&plan->reader, new_row, values->columns,
					values->column_nulls);
	}
	PG_CATCH();
	{
		plan->broken = true;
		PG_RE_THROW();
	}
	PG_END_TRY();
	check_key(plan, rel, values);
	for (int i = 0, c = -1; (c = bms_next_member(plan->columns, c)) >= 0; i++)
	{
		values->params[i] = values->columns[c - 1];
		values->param_nulls[i] = values->column_nulls[c - 1] ? 'n' : ' ';
	}
}

/* Takes version and row out of the statement's result, at the given columns. */
static void
take_result(WriteRow *row, MemoryContext context, int at)
{
	HeapTuple	tuple = SPI_tuptable->vals[0];
	TupleDesc	desc = SPI_tuptable->tupdesc;
	bool		isnull;
	Datum		value;

	value = SPI_getbinval(tuple, desc, at, &isnull);
	row->has_version = !isnull;
	row->version = isnull ? 0 : DatumGetInt64(value);

	value = SPI_getbinval(tuple, desc, at + 1, &isnull);
	row->has_stored = !isnull;
	if (!isnull)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		row->stored = datumCopy(value, false, -1);
		MemoryContextSwitchTo(old);
	}
}

/* Compares the row found with the new one; returns how many columns it read. */
static int
compare_result(WritePlan *plan, WriteValues *values, WriteRow *row,
			   MemoryContext context)
{
	int			at = 0;

	for (int c = -1; (c = bms_next_member(plan->compared, c)) >= 0;)
	{
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[0],
										  SPI_tuptable->tupdesc, ++at, &isnull);

		if (!RowEqualColumn(TupleDescAttr(plan->reader.desc, c - 1),
							values->columns[c - 1],
							values->column_nulls[c - 1], value, isnull))
		{
			MemoryContext old = MemoryContextSwitchTo(context);

			row->differs = bms_add_member(row->differs, c);
			MemoryContextSwitchTo(old);
		}
	}
	return at;
}

/*
 * Runs one of the statements, each with a snapshot of its own; true where it
 * gave the row.  What it tells of the row goes into the caller's memory; where
 * there is none, nothing of an earlier answer stays.
 */
static bool
run(WritePlan *plan, SPIPlanPtr statement, WriteValues *values, bool compare,
	WriteRow *row)
{
	MemoryContext caller = CurrentMemoryContext;
	int			rc;
	bool		found;

	memset(row, 0, sizeof(*row));
	SPI_connect();
	rc = SPI_execute_plan(statement, values->params, values->param_nulls,
						  false, 0);
	if (rc != SPI_OK_SELECT && rc != SPI_OK_INSERT_RETURNING)
		elog(ERROR, "conditional write failed: %s", SPI_result_code_string(rc));
	if (SPI_processed > 1)
		elog(ERROR, "conditional write met %llu rows with one key",
			 (unsigned long long) SPI_processed);
	found = SPI_processed == 1;
	if (found)
	{
		int			at = compare ? compare_result(plan, values, row, caller) : 0;

		take_result(row, caller, at + 1);
	}
	SPI_finish();
	return found;
}

/*
 * WritePlanInsertsFirst - is it better to insert without looking first?
 *
 * In SERIALIZABLE it is: looking for a row that is not there locks its place in
 * the index, and then inserts of different keys fail each other.  The price is
 * that a repeat evaluates defaults and BEFORE triggers.
 */
bool
WritePlanInsertsFirst(void)
{
	return IsolationIsSerializable() && !XactReadOnly;
}

/*
 * WritePlanProbe - looks for the row with the new one's key and compares it.
 *
 * With lock the row stays as it is until the transaction ends, also where the
 * caller then writes nothing.  Returns false where no such row is visible.
 */
bool
WritePlanProbe(WritePlan *plan, WriteValues *values, bool lock, WriteRow *row)
{
	return run(plan, lock ? plan->lock : plan->probe, values, true, row);
}

/*
 * WritePlanInsert - inserts the row, unless its key is there already: then
 * false, and nothing is written.
 *
 * The first insert of a call also returns false for a conflict on another
 * constraint; a later one raises 23505 for it.
 */
bool
WritePlanInsert(WritePlan *plan, WriteValues *values, bool first,
				WriteRow *row)
{
	return run(plan, first && plan->insert_any != NULL ? plan->insert_any : plan->insert,
			   values, false, row);
}

/*
 * WritePlanUpdate - updates the row that WritePlanProbe has locked.
 *
 * Returns false where a trigger has suppressed the update.
 */
bool
WritePlanUpdate(WritePlan *plan, WriteValues *values, WriteRow *row)
{
	return run(plan, plan->update, values, false, row);
}

/*
 * WritePlanGiveUp - raises the error for a row that could neither be written
 * nor be found, with the reason as far as it can be told.
 */
void
WritePlanGiveUp(Relation rel)
{
	const char *table = RelationGetRelationName(rel);
	TriggerDesc *triggers;

	if (check_enable_rls(RelationGetRelid(rel), InvalidOid, true) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("row-level security of table \"%s\" stands between the caller and the row", table),
				 errdetail("A row with this key exists, but the policies do not let the caller see it, or do not let it be updated.")));
	triggers = rel->trigdesc;
	if (triggers != NULL &&
		(triggers->trig_insert_before_row || triggers->trig_update_before_row))
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("a trigger of table \"%s\" suppressed the write", table),
				 errhint("The table's BEFORE triggers must not return NULL for this row.")));
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not write to table \"%s\" because of concurrent changes", table),
			 errhint("Try the call again.")));
}
