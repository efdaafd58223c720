/*-------------------------------------------------------------------------
 *
 * insert.c
 *	  idem_insert: inserts a row unless its key is there.
 *
 * States of the key: absent, in flight (inserted or deleted by an uncommitted
 * transaction), there.  A probe that finds the row answers from it and writes
 * nothing.  Where it finds none, the insert decides: it waits for one in
 * flight, and if that one commits the next probe sees it.  So of any number of
 * callers exactly one inserts, and each other one answers from a committed
 * row.  A row that goes away between insert and probe makes another turn.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "result.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "writecache.h"

PG_FUNCTION_INFO_V1(idem_insert);

static const ResultColumn insert_columns[] = {
	{"outcome", TEXTOID},
	{"differs", TEXTARRAYOID},
	{"stored", JSONBOID},
};

static ResultType insert_result = {insert_columns, lengthof(insert_columns), NULL};

/* The names of columns, in the order of the table, as text[]. */
static Datum
column_names(Relation rel, Bitmapset *columns)
{
	Datum	   *names = (Datum *) palloc(bms_num_members(columns) * sizeof(Datum));
	int			count = 0;

	for (int c = -1; (c = bms_next_member(columns, c)) >= 0;)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), c - 1);

		names[count++] = CStringGetTextDatum(NameStr(att->attname));
	}
	return PointerGetDatum(construct_array(names, count, TEXTOID, -1, false,
										   TYPALIGN_INT));
}

/* Turns until the row is inserted or found; returns the outcome. */
static const char *
insert_row(WritePlan *plan, const WriteRequest *request, WriteRow *row)
{
	WriteValues values;
	bool		blind = WritePlanInsertsFirst();

	WritePlanRead(plan, request->rel, request->new_row, &values);
	for (int round = 0; round < WRITE_ROUNDS; round++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!blind && WritePlanProbe(plan, &values, false, row))
			return row->differs == NULL ? "exists" : "differs";
		if (WritePlanInsert(plan, &values, round == 0, row))
			return "inserted";
		blind = false;
	}
	WritePlanGiveUp(request->rel);
}

/*
 * idem_insert - inserts a row, or tells whether the one with its key is the
 * same.  Runs with the caller's rights.
 */
Datum
idem_insert(PG_FUNCTION_ARGS)
{
	WriteRequest request = {0};
	WriteRow	row = {0};
	WritePlan  *plan;
	const char *volatile outcome = NULL;
	Datum		values[3] = {0};
	bool		nulls[3] = {false, false, false};

	if (ResultIsDone(fcinfo))
		return ResultEnd(fcinfo);

	WriteRequestTake(fcinfo, 2, &request);
	plan = WriteCacheAcquire(&request);
	PG_TRY();
	{
		outcome = insert_row(plan, &request, &row);
	}
	PG_FINALLY();
	{
		WriteCacheRelease(plan);
	}
	PG_END_TRY();

	values[0] = CStringGetTextDatum(outcome);
	nulls[1] = row.differs == NULL;
	if (!nulls[1])
		values[1] = column_names(request.rel, row.differs);
	nulls[2] = !row.has_stored;
	values[2] = row.stored;
	table_close(request.rel, NoLock);
	return ResultRow(fcinfo, &insert_result, values, nulls);
}
