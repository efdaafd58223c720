/*-------------------------------------------------------------------------
 *
 * statehistory.c
 *	  History of the states of guarded rows.
 *
 * Whoever changes a guarded row has no rights on the history table, so rows
 * are written by the trigger straight into the table, past privileges and row
 * security, under the same lock as an INSERT would take.
 *
 * Times of one row's history increase strictly: changes of one row follow each
 * other under its lock, and within a backend a time is never given twice.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog.h"
#include "catalog/indexing.h"
#include "compat.h"
#include "durability.h"
#include "funcapi.h"
#include "handler.h"
#include "miscadmin.h"
#include "statehistory.h"
#include "tuple.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* Columns of idempotency_machine_history. */
enum
{
	COLUMN_TARGET,
	COLUMN_KEY,
	COLUMN_CHANGED_AT,
	COLUMN_CHANGED_BY,
	COLUMN_MACHINE,
	COLUMN_FROM_STATE,
	COLUMN_TO_STATE,
	COLUMN_REQUEST_SCOPE,
	COLUMN_REQUEST_ID,
	COLUMN_COUNT
};

/*
 * The request that the change belongs to: the one whose handler runs, else the
 * one that this transaction claimed last; NULL where there is none.
 */
static const RequestKey *
request_of_change(void)
{
	const RunningClaim *running = HandlerRunning();

	return running != NULL ? &running->key : DurabilityLastClaim();
}

/* Now, but later than any time this backend gave before. */
static TimestampTz
next_time(void)
{
	static TimestampTz last = 0;

	last = Max(GetCurrentTimestamp(), last + 1);
	return last;
}

/* Values of the key columns as a row literal: what a composite key looks like. */
static char *
key_row_text(Relation rel, Form_pg_index index, HeapTuple tuple)
{
	int			nkeys = index->indnkeyatts;
	TupleDesc	desc = CreateTemplateTupleDesc(nkeys);
	Datum	   *values = palloc(sizeof(Datum) * nkeys);
	bool	   *nulls = palloc(sizeof(bool) * nkeys);
	Datum		row;

	for (int i = 0; i < nkeys; i++)
	{
		AttrNumber	column = index->indkey.values[i];

		TupleDescCopyEntry(desc, i + 1, RelationGetDescr(rel), column);
		values[i] = heap_getattr(tuple, column, RelationGetDescr(rel),
								 &nulls[i]);
	}
	desc = BlessTupleDesc(desc);
	row = HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
	return OidOutputFunctionCall(F_RECORD_OUT, row);
}

/* Text of the primary key, as idem_transition takes it; NULL without one. */
static char *
key_text(Relation rel, HeapTuple tuple)
{
	Oid			index_oid = compat_primary_key_index(rel);
	Relation	index;
	char	   *result;

	if (!OidIsValid(index_oid))
		return NULL;
	index = index_open(index_oid, AccessShareLock);
	if (index->rd_index->indnkeyatts == 1)
	{
		AttrNumber	column = index->rd_index->indkey.values[0];
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), column - 1);
		Oid			output;
		bool		is_varlena;
		bool		isnull;
		Datum		value = heap_getattr(tuple, column, RelationGetDescr(rel),
										 &isnull);

		getTypeOutputInfo(att->atttypid, &output, &is_varlena);
		result = OidOutputFunctionCall(output, value);
	}
	else
		result = key_row_text(rel, index->rd_index, tuple);
	index_close(index, AccessShareLock);
	return result;
}

static void
set_text(Datum *values, bool *nulls, int column, const char *value)
{
	nulls[column] = value == NULL;
	if (value != NULL)
		values[column] = CStringGetTextDatum(value);
}

/*
 * StateHistoryWrite - records that the row new of rel came into a state; from
 * is NULL where it had none before.
 */
void
StateHistoryWrite(const Guard *guard, Relation rel, HeapTuple new,
				  const char *from, const char *to)
{
	Relation	history = table_open(CatalogTable(IDEM_TABLE_MACHINE_HISTORY),
									 RowExclusiveLock);
	Datum		values[COLUMN_COUNT] = {0};
	bool		nulls[COLUMN_COUNT] = {false};
	const RequestKey *request = request_of_change();
	char	   *table = GuardTable(guard);

	set_text(values, nulls, COLUMN_TARGET,
			 table ? table : RelationGetRelationName(rel));
	set_text(values, nulls, COLUMN_KEY, key_text(rel, new));
	values[COLUMN_CHANGED_AT] = TimestampTzGetDatum(next_time());
	set_text(values, nulls, COLUMN_CHANGED_BY,
			 GetUserNameFromId(GetUserId(), true));
	set_text(values, nulls, COLUMN_MACHINE, guard->machine);
	set_text(values, nulls, COLUMN_FROM_STATE, from);
	set_text(values, nulls, COLUMN_TO_STATE, to);
	nulls[COLUMN_REQUEST_SCOPE] = nulls[COLUMN_REQUEST_ID] = true;
	if (request != NULL)
	{
		values[COLUMN_REQUEST_SCOPE] = PointerGetDatum(request->scope);
		values[COLUMN_REQUEST_ID] = PointerGetDatum(request->request_id);
		nulls[COLUMN_REQUEST_SCOPE] = nulls[COLUMN_REQUEST_ID] = false;
	}

	TupleInsert(history, COLUMN_COUNT, values, nulls);
	table_close(history, NoLock);
}
