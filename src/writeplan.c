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
 * row security, triggers and constraints are the server's own.
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

#include "access/xact.h"
#include "compat.h"
#include "isolation.h"
#include "miscadmin.h"
#include "rowequal.h"
#include "utils/datum.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "writeplan.h"
#include "writesql.h"

static void
prepare(WritePlan *plan, SPIPlanPtr *slot, const char *sql)
{
	SPIPlanPtr	prepared = SPI_prepare(sql, plan->shape.nparams, plan->param_types);

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
	WriteShape *shape = &plan->shape;

	SPI_connect();
	prepare(plan, &plan->insert, WriteSqlInsert(shape, rel, true, NULL));
	if (rel->rd_rel->relkind == RELKIND_RELATION && !shape->target.any_deferrable)
		prepare(plan, &plan->insert_any, WriteSqlInsert(shape, rel, false, NULL));
	if (shape->updated != NULL)
	{
		prepare(plan, &plan->update,
				WriteSqlInsert(shape, rel, true, shape->updated));
		prepare(plan, &plan->lock, WriteSqlProbe(shape, rel, true));
	}
	prepare(plan, &plan->probe, WriteSqlProbe(shape, rel, false));
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

	WriteRequestShape(request, &plan->shape);
	plan->param_types = (Oid *) palloc(plan->shape.nparams * sizeof(Oid));
	for (int i = 0, c = -1; (c = bms_next_member(plan->shape.columns, c)) >= 0; i++)
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
	if (plan->shape.target.nulls_conflict)
		return;
	for (int i = 0; i < plan->shape.target.ncolumns; i++)
	{
		AttrNumber	column = plan->shape.target.columns[i];

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
	values->params = (Datum *) palloc(plan->shape.nparams * sizeof(Datum));
	values->param_nulls = (char *) palloc(plan->shape.nparams);

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
	for (int i = 0, c = -1; (c = bms_next_member(plan->shape.columns, c)) >= 0; i++)
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

	for (int c = -1; (c = bms_next_member(plan->shape.compared, c)) >= 0;)
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
	{
		/* One that others have deleted, and one that this transaction made. */
		IsolationCheck();
		elog(ERROR, "conditional write met %llu rows with one key",
			 (unsigned long long) SPI_processed);
	}
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
	SPIPlanPtr	statement = plan->insert;

	if (first && plan->insert_any != NULL)
		statement = plan->insert_any;
	return run(plan, statement, values, false, row);
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
				 errdetail("Its policies hide a row with this key from the caller or do not let it be updated, or a trigger suppressed the write or changed its key.")));
	triggers = rel->trigdesc;
	if (triggers != NULL &&
		(triggers->trig_insert_before_row || triggers->trig_update_before_row))
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("a trigger of table \"%s\" suppressed the write or changed its key",
						table),
				 errhint("Give the key as the table's BEFORE triggers leave it; they must not return NULL for this row.")));
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not write to table \"%s\" because of concurrent changes", table),
			 errhint("Try the call again.")));
}
