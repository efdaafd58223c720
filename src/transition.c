/*-------------------------------------------------------------------------
 *
 * transition.c
 *	  Steps of guarded rows: idem_transition.
 *
 * The states of a call:
 *
 * 1. One UPDATE whose condition holds where the step is to be applied: the
 *	  row's key, a state that a step leads from, the expected version.  Where
 *	  several sessions make a step of one row at once, the row's lock puts them
 *	  in line: the first one updates, and the others find the condition false
 *	  when the lock comes to them.  A single row is locked, so nothing can
 *	  deadlock.
 * 2. Where that updates nothing, the row is read (by a new snapshot in READ
 *	  COMMITTED) and judged.  A repeat ends here and writes nothing.
 * 3. Where the judgement is that the step should have been applied, the row
 *	  changed between the two: it is locked, judged and updated again.  What is
 *	  locked cannot change any more.
 *
 * A read-only transaction begins with 2: it gets its answer, unless that is to
 * make the step, which the server refuses in 3.
 *
 * In REPEATABLE READ and above, the server raises 40001 in 1 or 3 where the
 * row was changed by a transaction that the snapshot does not see.
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
#include "machine.h"
#include "result.h"
#include "target.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(idem_transition);

static const ResultColumn transition_columns[] = {
	{"outcome", TEXTOID},
	{"state", TEXTOID},
	{"version", INT8OID},
};

static ResultType transition_result = {transition_columns, lengthof(transition_columns), NULL};

/* Parameters of the statements. */
enum
{
	PARAMETER_TO_STATE = 1,		/* as a value of the column */
	PARAMETER_SOURCES,			/* text[]: states that the step leads from */
	PARAMETER_FROM_NONE,		/* boolean: also from no state */
	PARAMETER_VERSION,			/* bigint: expected version or NULL */
	PARAMETER_CHANGES			/* jsonb */
};

/* What is asked for. */
typedef struct Step
{
	char	   *to;
	char	   *from;			/* NULL: not asked */
	bool		has_version;
	int64		version;
	Jsonb	   *changes;		/* NULL: none */
} Step;

/* The row as it was found or written. */
typedef struct Row
{
	char	   *state;			/* NULL for a row without a state */
	bool		has_version;
	int64		version;
} Row;

static void
append_state(StringInfo sql, const Target *target, const Guard *guard)
{
	appendStringInfo(sql, "(t.%s)::pg_catalog.text COLLATE pg_catalog.\"C\"",
					 TargetColumnName(target, guard->state_column));
}

/* State and version, as read_row expects them. */
static void
append_row(StringInfo sql, const Target *target, const Guard *guard)
{
	append_state(sql, target, guard);
	if (guard->version_column != InvalidAttrNumber)
		appendStringInfo(sql, ", COALESCE(t.%s, 0)::pg_catalog.int8",
						 TargetColumnName(target, guard->version_column));
	else
		appendStringInfoString(sql, ", NULL::pg_catalog.int8");
}

static void
update_statement(StringInfo sql, const Target *target, const Guard *guard)
{
	appendStringInfoString(sql, "UPDATE ");
	TargetAppendName(sql, target);
	appendStringInfo(sql, " SET %s = $%d",
					 TargetColumnName(target, guard->state_column),
					 target->nkeys + PARAMETER_TO_STATE);
	if (target->ncolumns > 0)
	{
		appendStringInfoString(sql, ", ");
		TargetAppendAssignments(sql, target);
		appendStringInfoString(sql, " FROM ");
		TargetAppendChanges(sql, target, PARAMETER_CHANGES);
	}
	appendStringInfoString(sql, " WHERE ");
	TargetAppendKeyCondition(sql, target);
	appendStringInfoString(sql, " AND (");
	append_state(sql, target, guard);
	appendStringInfo(sql, " OPERATOR(pg_catalog.=) ANY ($%d)"
					 " OR ($%d AND t.%s IS NULL))",
					 target->nkeys + PARAMETER_SOURCES,
					 target->nkeys + PARAMETER_FROM_NONE,
					 TargetColumnName(target, guard->state_column));
	if (guard->version_column != InvalidAttrNumber)
		appendStringInfo(sql, " AND ($%d IS NULL OR"
						 " COALESCE(t.%s, 0) OPERATOR(pg_catalog.=) $%d)",
						 target->nkeys + PARAMETER_VERSION,
						 TargetColumnName(target, guard->version_column),
						 target->nkeys + PARAMETER_VERSION);
	appendStringInfoString(sql, " RETURNING ");
	append_row(sql, target, guard);
}

static void
read_statement(StringInfo sql, const Target *target, const Guard *guard)
{
	appendStringInfoString(sql, "SELECT ");
	append_row(sql, target, guard);
	appendStringInfoString(sql, " FROM ");
	TargetAppendName(sql, target);
	appendStringInfoString(sql, " WHERE ");
	TargetAppendKeyCondition(sql, target);
}

static void
lock_statement(StringInfo sql, const Target *target, const Guard *guard)
{
	read_statement(sql, target, guard);
	appendStringInfoString(sql, " FOR NO KEY UPDATE");
}

/* Runs a statement and takes its row; false where there is none. */
static bool
run(Target *target, TargetStatement statement, Row *row)
{
	HeapTuple	tuple;
	TupleDesc	desc;
	Datum		version;
	bool		isnull;

	if (TargetRun(target, statement) == 0)
		return false;
	tuple = SPI_tuptable->vals[0];
	desc = SPI_tuptable->tupdesc;
	row->state = SPI_getvalue(tuple, desc, 1);
	version = SPI_getbinval(tuple, desc, 2, &isnull);
	row->has_version = !isnull;
	row->version = isnull ? 0 : DatumGetInt64(version);
	return true;
}

/* The outcome for a row as it was read; "applied": the step is to be made. */
static const char *
judge(const Machine *machine, const Step *step, const Row *row)
{
	int			to = MachineState(machine, step->to);
	int			present = row->state ? MachineState(machine, row->state) : -1;
	bool		legal = row->state ? MachineAllows(machine, present, to) :
		MachineBeginsIn(machine, to);

	if (row->state != NULL && strcmp(row->state, step->to) == 0)
	{
		if (!step->has_version || step->version == row->version ||
			(row->version > 0 && step->version == row->version - 1))
			return "already";
		return "stale";
	}
	if (step->has_version && step->version != row->version)
		return "stale";
	if (step->from != NULL &&
		(row->state == NULL || strcmp(row->state, step->from) != 0))
		return MachineRunsThrough(machine, present, to) ? "already" : "stale";
	if (legal)
		return "applied";
	return MachineRunsThrough(machine, present, to) ? "already" : "rejected";
}

/*
 * Sets the parameters that say from where the step may be made; false where
 * the machine has no such step at all.  A step from the state to itself is
 * none: the row is there already.
 */
static bool
set_sources(Target *target, const Machine *machine, const Step *step)
{
	int			to = MachineState(machine, step->to);
	Datum	   *sources = palloc(sizeof(Datum) * machine->nstates);
	int			count = 0;
	bool		from_none = step->from == NULL && MachineBeginsIn(machine, to);

	for (int s = 0; s < machine->nstates; s++)
	{
		if (s != to && MachineAllows(machine, s, to) &&
			(step->from == NULL || strcmp(step->from, machine->state[s]) == 0))
			sources[count++] = CStringGetTextDatum(machine->state[s]);
	}
	TargetSetParameter(target, PARAMETER_SOURCES, TEXTARRAYOID,
					   PointerGetDatum(construct_array(sources, count, TEXTOID,
													   -1, false, TYPALIGN_INT)),
					   false);
	TargetSetParameter(target, PARAMETER_FROM_NONE, BOOLOID,
					   BoolGetDatum(from_none), false);
	return count > 0 || from_none;
}

/*
 * Sets the other parameters.  The new state is made a value of the column's
 * type only where the step is possible: an enum may lack what the machine
 * lacks too.
 */
static void
set_parameters(Target *target, const Guard *guard, const Step *step,
			   bool possible)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(target->rel),
										  guard->state_column - 1);
	Datum		to = 0;

	if (possible)
		to = TargetColumnValue(target, guard->state_column, step->to);
	TargetSetParameter(target, PARAMETER_TO_STATE, att->atttypid, to, !possible);
	TargetSetParameter(target, PARAMETER_VERSION, INT8OID,
					   Int64GetDatum(step->version), !step->has_version);
	TargetSetParameter(target, PARAMETER_CHANGES, JSONBOID,
					   PointerGetDatum(step->changes), step->changes == NULL);
}

/* Is the row now in the state that it was sent to? */
static void
check_arrived(const Target *target, const Step *step, const Row *row)
{
	if (row->state == NULL || strcmp(row->state, step->to) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
				 errmsg("update of table \"%s\" led to another state",
						RelationGetRelationName(target->rel)),
				 errhint("Look for a trigger that changes the state.")));
}

/* Makes the step, or says why not; row is filled unless "not_found". */
static const char *
make_step(Target *target, const Step *step, Row *row)
{
	const Guard *guard = TargetGuard(target);
	bool		possible = set_sources(target, GuardMachine(guard), step);

	set_parameters(target, guard, step, possible);
	for (int attempt = 0; attempt < 2; attempt++)
	{
		const char *outcome;

		if (attempt > 0)
		{
			/*
			 * What the caller may read but not write is not there to be
			 * written.
			 */
			if (!run(target, lock_statement, row))
			{
				memset(row, 0, sizeof(Row));
				return "not_found";
			}
			outcome = judge(GuardMachine(TargetGuard(target)), step, row);
			if (strcmp(outcome, "applied") != 0)
				return outcome;

			/* The machine may have been defined anew since. */
			possible = set_sources(target, GuardMachine(TargetGuard(target)),
								   step);
			set_parameters(target, TargetGuard(target), step, possible);
		}
		if (possible && (attempt > 0 || !XactReadOnly) &&
			run(target, update_statement, row))
		{
			check_arrived(target, step, row);
			return "applied";
		}
		if (attempt == 0)
		{
			if (!run(target, read_statement, row))
				return "not_found";
			outcome = judge(GuardMachine(TargetGuard(target)), step, row);
			if (strcmp(outcome, "applied") != 0)
				return outcome;
		}
	}
	ereport(ERROR,
			(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
			 errmsg("update of table \"%s\" was suppressed",
					RelationGetRelationName(target->rel)),
			 errhint("Look for a trigger that returns NULL.")));
	return NULL;
}

/* Takes the arguments after target and key. */
static void
read_arguments(FunctionCallInfo fcinfo, Step *step)
{
	static const char *const required[] = {"target", "key", "to_state"};

	for (int i = 0; i < lengthof(required); i++)
	{
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not be null", required[i])));
	}
	step->to = text_to_cstring(PG_GETARG_TEXT_PP(2));
	step->from = PG_ARGISNULL(3) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(3));
	step->has_version = !PG_ARGISNULL(4);
	step->version = step->has_version ? PG_GETARG_INT64(4) : 0;
	step->changes = PG_ARGISNULL(5) ? NULL : PG_GETARG_JSONB_P(5);
}

/* Checks that the table's guards fit what is asked for. */
static void
check_guards(const Target *target, const Step *step)
{
	const Guard *guard = TargetGuard(target);

	if (guard->state_column == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has no state guard",
						RelationGetRelationName(target->rel)),
				 errhint("Attach one with idem_guard_state.")));
	if (step->has_version && guard->version_column == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has no version guard",
						RelationGetRelationName(target->rel)),
				 errhint("Attach one with idem_guard_version, or leave out expected_version.")));
	for (int i = 0; i < target->ncolumns; i++)
	{
		if (target->columns[i] == guard->state_column)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("changes must not set the state column %s",
							TargetColumnName(target, guard->state_column)),
					 errhint("Say the new state with to_state.")));
	}
}

/*
 * idem_transition - makes a step of a guarded row, or tells why not.
 */
Datum
idem_transition(PG_FUNCTION_ARGS)
{
	Target		target;
	Step		step;
	Row			row = {0};
	const char *outcome;
	Datum		values[3] = {0};
	bool		nulls[3] = {false};

	if (ResultIsDone(fcinfo))
		return ResultEnd(fcinfo);

	read_arguments(fcinfo, &step);
	TargetOpen(&target, PG_GETARG_OID(0));
	if (step.changes != NULL)
		TargetSetColumns(&target, step.changes);
	check_guards(&target, &step);
	TargetSetKey(&target, text_to_cstring(PG_GETARG_TEXT_PP(1)));

	SPI_connect();
	outcome = make_step(&target, &step, &row);
	if (row.state != NULL)
	{
		Size		size = strlen(row.state) + 1;

		row.state = memcpy(SPI_palloc(size), row.state, size);
	}
	SPI_finish();
	relation_close(target.rel, NoLock);

	values[0] = CStringGetTextDatum(outcome);
	nulls[1] = row.state == NULL;
	if (row.state != NULL)
		values[1] = CStringGetTextDatum(row.state);
	nulls[2] = !row.has_version;
	values[2] = Int64GetDatum(row.version);
	return ResultRow(fcinfo, &transition_result, values, nulls);
}
