/*-------------------------------------------------------------------------
 *
 * upsert.c
 *	  idem_upsert: inserts a row, or updates the one with its key.
 *
 * The row found is judged, by its values and by the version that the caller
 * expects; expecting version 0 is expecting no row.
 *
 *	row found					without a version	version expected
 *	none						insert				0: insert, else stale
 *	same values					unchanged			this or the one this very
 *													update makes: unchanged,
 *													else stale
 *	other values				update				this: update, else stale
 *
 * A row to be updated is locked and judged once more, so that of several
 * callers with the same expected version one updates and the others see its
 * row: a repeat finds its own values there, a rival does not.
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

PG_FUNCTION_INFO_V1(idem_upsert);

static const ResultColumn upsert_columns[] = {
	{"outcome", TEXTOID},
	{"version", INT8OID},
	{"stored", JSONBOID},
};

static ResultType upsert_result = {upsert_columns, lengthof(upsert_columns), NULL};

/* A version that the caller expects, if it does. */
typedef struct Expected
{
	bool		given;
	int64		version;
} Expected;

/* The outcome where the row found decides it, NULL where it must be updated. */
static const char *
judge(const WriteRow *row, const Expected *expected)
{
	bool		same = row->differs == NULL;

	if (!expected->given ||
		(row->has_version && row->version == expected->version))
		return same ? "unchanged" : NULL;
	if (same && row->has_version && row->version - 1 == expected->version)
		return "unchanged";
	return "stale";
}

/* Turns until the row is written or decides; returns the outcome. */
static const char *
upsert_row(WritePlan *plan, const WriteRequest *request,
		   const Expected *expected, WriteRow *row)
{
	WriteValues values;
	const char *outcome;
	bool		may_insert = !expected->given || expected->version == 0;
	bool		blind = may_insert && WritePlanInsertsFirst();

	WritePlanRead(plan, request->rel, request->new_row, &values);
	for (int round = 0; round < WRITE_ROUNDS; round++)
	{
		CHECK_FOR_INTERRUPTS();
		if (blind || !WritePlanProbe(plan, &values, false, row))
		{
			if (!may_insert)
				return "stale";
			if (WritePlanInsert(plan, &values, round == 0, row))
				return "inserted";
			blind = false;
			continue;
		}
		if ((outcome = judge(row, expected)) != NULL)
			return outcome;
		if (!WritePlanProbe(plan, &values, true, row))
			continue;
		if ((outcome = judge(row, expected)) != NULL)
			return outcome;
		if (WritePlanUpdate(plan, &values, row))
			return "updated";
		break;					/* the row is locked: it was no race */
	}
	WritePlanGiveUp(request->rel);
}

/* Reads and checks the expected version. */
static void
take_expected(FunctionCallInfo fcinfo, int arg, Expected *expected)
{
	expected->given = !PG_ARGISNULL(arg);
	expected->version = expected->given ? PG_GETARG_INT64(arg) : 0;
	if (expected->version < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("expected_version must not be negative"),
				 errhint("Pass the version that was read, or 0 for a row that must not exist yet.")));
}

static void
require_version_guard(WritePlan *plan, const WriteRequest *request)
{
	if (plan->shape.version_column == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has no version guard",
						RelationGetRelationName(request->rel)),
				 errhint("Attach one with idem_guard_version, or leave expected_version out.")));
	if (!plan->shape.reads_version)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for the version column of table \"%s\"",
						RelationGetRelationName(request->rel))));
}

/*
 * idem_upsert - inserts a row, or updates named columns of the one with its
 * key where they differ.  Runs with the caller's rights.
 */
Datum
idem_upsert(PG_FUNCTION_ARGS)
{
	WriteRequest request = {.upsert = true};
	WriteRow	row = {0};
	WritePlan  *plan;
	Expected	expected;
	const char *volatile outcome = NULL;
	Datum		values[3] = {0};
	bool		nulls[3] = {false, false, false};

	if (ResultIsDone(fcinfo))
		return ResultEnd(fcinfo);

	take_expected(fcinfo, 3, &expected);
	WriteRequestTake(fcinfo, 4, &request);
	if (!PG_ARGISNULL(2))
		request.update_columns = PG_GETARG_ARRAYTYPE_P(2);
	plan = WriteCacheAcquire(&request);
	PG_TRY();
	{
		if (expected.given)
			require_version_guard(plan, &request);
		outcome = upsert_row(plan, &request, &expected, &row);
	}
	PG_FINALLY();
	{
		WriteCacheRelease(plan);
	}
	PG_END_TRY();

	values[0] = CStringGetTextDatum(outcome);
	nulls[1] = !row.has_version;
	values[1] = Int64GetDatum(row.version);
	nulls[2] = !row.has_stored;
	values[2] = row.stored;
	table_close(request.rel, NoLock);
	return ResultRow(fcinfo, &upsert_result, values, nulls);
}
