/*-------------------------------------------------------------------------
 *
 * update.c
 *	  Writes on condition of a version: idem_update.
 *
 * Like idem_transition (see transition.c for the states of a call and who
 * wins): one UPDATE under the condition that the row still has the expected
 * version; where that changes nothing, the row is read to tell why.  A repeat
 * of an update that took effect finds its own values at the next version.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "result.h"
#include "target.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/typcache.h"

PG_FUNCTION_INFO_V1(idem_update);

static const ResultColumn update_columns[] = {
	{"outcome", TEXTOID},
	{"version", INT8OID},
};

static ResultType update_result = {update_columns, lengthof(update_columns), NULL};

/* Parameters of the statements. */
enum
{
	PARAMETER_VERSION = 1,		/* bigint: expected version */
	PARAMETER_CHANGES			/* jsonb */
};

static void
append_version(StringInfo sql, const Target *target, const Guard *guard)
{
	appendStringInfo(sql, "COALESCE(t.%s, 0)::pg_catalog.int8",
					 TargetColumnName(target, guard->version_column));
}

static void
update_statement(StringInfo sql, const Target *target, const Guard *guard)
{
	appendStringInfoString(sql, "UPDATE ");
	TargetAppendName(sql, target);
	appendStringInfoString(sql, " SET ");
	TargetAppendAssignments(sql, target);
	appendStringInfoString(sql, " FROM ");
	TargetAppendChanges(sql, target, PARAMETER_CHANGES);
	appendStringInfoString(sql, " WHERE ");
	TargetAppendKeyCondition(sql, target);
	appendStringInfoString(sql, " AND ");
	append_version(sql, target, guard);
	appendStringInfo(sql, " OPERATOR(pg_catalog.=) $%d RETURNING ",
					 target->nkeys + PARAMETER_VERSION);
	append_version(sql, target, guard);
}

/* The version, then each changed column as it is and as it is to be. */
static void
read_statement(StringInfo sql, const Target *target, const Guard *guard)
{
	appendStringInfoString(sql, "SELECT ");
	append_version(sql, target, guard);
	for (int i = 0; i < target->ncolumns; i++)
	{
		const char *name = TargetColumnName(target, target->columns[i]);

		appendStringInfo(sql, ", t.%s, r.%s", name, name);
	}
	appendStringInfoString(sql, " FROM ");
	TargetAppendName(sql, target);
	appendStringInfoString(sql, ", ");
	TargetAppendChanges(sql, target, PARAMETER_CHANGES);
	appendStringInfoString(sql, " WHERE ");
	TargetAppendKeyCondition(sql, target);
}

static void
lock_statement(StringInfo sql, const Target *target, const Guard *guard)
{
	read_statement(sql, target, guard);
	appendStringInfoString(sql, " FOR NO KEY UPDATE OF t");
}

/*
 * Is one value the other?  Numbers and JSON by their value; strings, whose
 * equality may be looser than identity, byte by byte.
 */
static bool
is_same(Form_pg_attribute att, Datum a, Datum b)
{
	TypeCacheEntry *type;
	char		category;
	bool		preferred;

	if (datum_image_eq(a, b, att->attbyval, att->attlen))
		return true;
	get_type_category_preferred(getBaseType(att->atttypid), &category,
								&preferred);
	if (category != TYPCATEGORY_NUMERIC && getBaseType(att->atttypid) != JSONBOID)
		return false;
	type = lookup_type_cache(att->atttypid, TYPECACHE_EQ_OPR_FINFO);
	return OidIsValid(type->eq_opr_finfo.fn_oid) &&
		DatumGetBool(FunctionCall2Coll(&type->eq_opr_finfo, att->attcollation,
									   a, b));
}

/* Does the row that was read have all the new values? */
static bool
has_values(const Target *target)
{
	HeapTuple	tuple = SPI_tuptable->vals[0];
	TupleDesc	desc = SPI_tuptable->tupdesc;

	for (int i = 0; i < target->ncolumns; i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(target->rel),
											  target->columns[i] - 1);
		bool		isnull[2];
		Datum		present = SPI_getbinval(tuple, desc, 2 * i + 2, &isnull[0]);
		Datum		wanted = SPI_getbinval(tuple, desc, 2 * i + 3, &isnull[1]);

		if (isnull[0] != isnull[1])
			return false;
		if (!isnull[0] && !is_same(att, present, wanted))
			return false;
	}
	return true;
}

static int64
returned_version(void)
{
	bool		isnull;

	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
									   SPI_tuptable->tupdesc, 1, &isnull));
}

/*
 * Reads the row and says what it means that it was not updated; NULL where it
 * should have been.
 */
static const char *
judge(Target *target, TargetStatement statement, int64 expected,
	  int64 *version)
{
	if (TargetRun(target, statement) == 0)
		return "not_found";
	*version = returned_version();
	if (*version == expected)
		return NULL;
	if (expected < PG_INT64_MAX && *version == expected + 1 &&
		has_values(target))
		return "unchanged";
	return "stale";
}

/* Updates the row, or says why not; version is set unless "not_found". */
static const char *
update_row(Target *target, int64 expected, int64 *version)
{
	const char *outcome;

	if (XactReadOnly || TargetRun(target, update_statement) == 0)
	{
		outcome = judge(target, read_statement, expected, version);
		if (outcome != NULL)
			return outcome;
		outcome = judge(target, lock_statement, expected, version);
		if (outcome != NULL)
			return outcome;
		if (TargetRun(target, update_statement) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
					 errmsg("update of table \"%s\" was suppressed",
							RelationGetRelationName(target->rel)),
					 errhint("Look for a trigger that returns NULL.")));
	}
	*version = returned_version();
	return "applied";
}

static void
require_arguments(FunctionCallInfo fcinfo)
{
	static const char *const required[] = {
		"target", "key", "expected_version", "changes"
	};

	for (int i = 0; i < lengthof(required); i++)
	{
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not be null", required[i])));
	}
}

/* Opens the table and sets key and changes. */
static void
open_target(FunctionCallInfo fcinfo, Target *target)
{
	Jsonb	   *changes = PG_GETARG_JSONB_P(3);

	TargetOpen(target, PG_GETARG_OID(0));
	if (TargetGuard(target)->version_column == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has no version guard",
						RelationGetRelationName(target->rel)),
				 errhint("Attach one with idem_guard_version.")));
	TargetSetColumns(target, changes);
	if (target->ncolumns == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("changes must name at least one column")));
	TargetSetKey(target, text_to_cstring(PG_GETARG_TEXT_PP(1)));
	TargetSetParameter(target, PARAMETER_VERSION, INT8OID, PG_GETARG_DATUM(2),
					   false);
	TargetSetParameter(target, PARAMETER_CHANGES, JSONBOID,
					   PointerGetDatum(changes), false);
}

/*
 * idem_update - changes columns of a row that still has the expected version.
 */
Datum
idem_update(PG_FUNCTION_ARGS)
{
	Target		target;
	const char *outcome;
	int64		version = 0;
	Datum		values[2];
	bool		nulls[2] = {false};

	if (ResultIsDone(fcinfo))
		return ResultEnd(fcinfo);

	require_arguments(fcinfo);
	open_target(fcinfo, &target);

	SPI_connect();
	outcome = update_row(&target, PG_GETARG_INT64(2), &version);
	SPI_finish();
	relation_close(target.rel, NoLock);

	values[0] = CStringGetTextDatum(outcome);
	values[1] = Int64GetDatum(version);
	nulls[1] = strcmp(outcome, "not_found") == 0;
	return ResultRow(fcinfo, &update_result, values, nulls);
}
