/*-------------------------------------------------------------------------
 *
 * check.c
 *	  The trigger functions of guards.
 *
 * State guard: an AFTER ROW trigger.  It sees the row as it was really
 * written, whatever BEFORE triggers made of it, so nothing needs to be checked
 * earlier; and a statement that leaves the state alone does not even queue an
 * event, by the trigger's WHEN clause.
 *
 * Version guard: a BEFORE ROW trigger, last by its name, sets the version; an
 * AFTER ROW trigger, which by its WHEN clause is queued only for a version that
 * is not what it should be, has the last word.
 *
 * Both take an update that moves a row to another partition for what it is
 * (move.c); for that they also follow deletions on partitioned tables.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "compat.h"
#include "errors.h"
#include "fmgr.h"
#include "guard.h"
#include "move.h"
#include "statehistory.h"
#include "utils/builtins.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(idem_guard_state_check);
PG_FUNCTION_INFO_V1(idem_guard_version_set);
PG_FUNCTION_INFO_V1(idem_guard_version_check);

/* The trigger's data, if it is called as the right kind of trigger. */
static TriggerData *
trigger_data(FunctionCallInfo fcinfo, const char *function, bool before)
{
	TriggerData *data = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		!TRIGGER_FIRED_FOR_ROW(data->tg_event) ||
		TRIGGER_FIRED_BEFORE(data->tg_event) != before)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be called as a row trigger of a guard",
						function)));
	return data;
}

static void
refuse_foreign_trigger(TriggerData *data)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("trigger \"%s\" of table \"%s\" is not one that a guard function made",
					data->tg_trigger->tgname,
					RelationGetRelationName(data->tg_relation)),
			 errhint("Drop it, and use idem_guard_state or idem_guard_version.")));
}

/* Says why a row may not begin in this state. */
static void
report_no_beginning(const Guard *guard, const Machine *machine, Relation rel,
					const char *state)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 state ?
			 errmsg("state \"%s\" is not an initial state", state) :
			 errmsg("a row must begin in an initial state"),
			 errdetail("Initial states of machine \"%s\": %s.", guard->machine,
					   MachineInitialList(machine)),
			 errhint("Insert the row in an initial state."),
			 errtablecol(rel, guard->state_column)));
}

/* Says why a row may not go from one state to another. */
static void
report_no_step(const Guard *guard, const Machine *machine, Relation rel,
			   const char *from, const char *to)
{
	int			state = MachineState(machine, from);
	char	   *next = MachineNextList(machine, state);

	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ILLEGAL_TRANSITION),
			 to ?
			 errmsg("illegal transition from state \"%s\" to \"%s\"", from, to) :
			 errmsg("illegal transition from state \"%s\" to no state", from),
			 state < 0 ?
			 errdetail("Machine \"%s\" has no state \"%s\".", guard->machine, from) :
			 *next ?
			 errdetail("Next states of \"%s\" in machine \"%s\": %s.", from,
					   guard->machine, next) :
			 errdetail("State \"%s\" of machine \"%s\" is final.", from,
					   guard->machine),
			 errhint("Read the row again and decide anew, or use idem_transition."),
			 errtablecol(rel, guard->state_column)));
}

/*
 * Judges a row that came from one state (NULL for none) into another.  A row
 * without a state has not begun yet: an initial state is its next one.
 */
static void
judge_state(const Guard *guard, Relation rel, HeapTuple new, bool is_new,
			const char *from, const char *to)
{
	const Machine *machine;

	if (!is_new && from == NULL && to == NULL)
		return;
	if (from != NULL && to != NULL && strcmp(from, to) == 0)
		return;

	machine = GuardMachine(guard);
	if (from == NULL)
	{
		if (to == NULL || !MachineBeginsIn(machine, MachineState(machine, to)))
			report_no_beginning(guard, machine, rel, to);
	}
	else if (to == NULL || !MachineAllows(machine, MachineState(machine, from),
										  MachineState(machine, to)))
		report_no_step(guard, machine, rel, from, to);

	if (guard->history)
		StateHistoryWrite(guard, rel, new, from, to);
}

/*
 * Servers before 15.5 and 16.1 fire AFTER UPDATE for a row that MERGE has moved
 * to another partition, without a new version of it.  The move was a deletion
 * and an insertion, which are judged as such.
 */
static bool
is_no_update(const TriggerData *data)
{
	return TRIGGER_FIRED_BY_UPDATE(data->tg_event) && data->tg_newtuple == NULL;
}

/*
 * idem_guard_state_check - AFTER ROW trigger of a state guard.
 */
Datum
idem_guard_state_check(PG_FUNCTION_ARGS)
{
	TriggerData *data = trigger_data(fcinfo, "idem_guard_state_check", false);
	Relation	rel = data->tg_relation;
	TupleDesc	desc = RelationGetDescr(rel);
	const Guard *guard = GuardFind(rel);
	HeapTuple	old = data->tg_trigtuple;

	if (guard->state_column == InvalidAttrNumber)
		refuse_foreign_trigger(data);
	if (is_no_update(data))
		return PointerGetDatum(NULL);

	if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		judge_state(guard, rel, data->tg_newtuple, false,
					GuardState(guard, desc, old),
					GuardState(guard, desc, data->tg_newtuple));
	else if (TRIGGER_FIRED_BY_INSERT(data->tg_event))
	{
		char	   *from = NULL;
		bool		moved = rel->rd_rel->relispartition &&
			MoveArrive(MOVE_STATE, old, &from, NULL);

		judge_state(guard, rel, old, !moved, from, GuardState(guard, desc, old));
	}
	else if (MoveIsDeparture(old))
		MoveDepart(MOVE_STATE, old, GuardState(guard, desc, old), 0);
	return PointerGetDatum(NULL);
}

/* Reads an integer column of any width; a null is nothing yet, 0. */
static int64
integer_value(HeapTuple tuple, TupleDesc desc, AttrNumber column, Oid type,
			  bool *isnull)
{
	Datum		value = heap_getattr(tuple, column, desc, isnull);

	if (*isnull)
		return 0;
	switch (type)
	{
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		default:
			return DatumGetInt64(value);
	}
}

/* A version number as a value of the column. */
static Datum
version_datum(Oid type, int64 version)
{
	switch (type)
	{
		case INT2OID:
			return Int16GetDatum((int16) version);
		case INT4OID:
			return Int32GetDatum((int32) version);
		default:
			return Int64GetDatum(version);
	}
}

/* The version after this one; an error where the column's type has no more. */
static int64
next_version(const Guard *guard, Relation rel, int64 version)
{
	int64		last = guard->version_type == INT2OID ? PG_INT16_MAX :
		guard->version_type == INT4OID ? PG_INT32_MAX : PG_INT64_MAX;

	if (version >= last)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("version is out of range"),
				 errhint("Change the column to a wider type."),
				 errtablecol(rel, guard->version_column)));
	return version + 1;
}

/* Says that a version is not the next one. */
static void
report_version(const Guard *guard, Relation rel, int64 expected, bool isnull,
			   int64 version)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_STALE_VERSION),
			 isnull ?
			 errmsg("version of a row must not be null") :
			 errmsg("version " INT64_FORMAT " is not the next version of the row",
					version),
			 errdetail("The next version is " INT64_FORMAT ".", expected),
			 errhint("Leave the version column alone or add one to it."),
			 errtablecol(rel, guard->version_column)));
}

static HeapTuple
set_version(const Guard *guard, Relation rel, HeapTuple tuple, int64 version)
{
	int			column = guard->version_column;
	Datum		value = version_datum(guard->version_type, version);
	bool		isnull = false;

	return heap_modify_tuple_by_cols(tuple, RelationGetDescr(rel), 1, &column,
									 &value, &isnull);
}

/* The new row of an update with its version set. */
static HeapTuple
advance_version(const Guard *guard, TriggerData *data)
{
	Relation	rel = data->tg_relation;
	TupleDesc	desc = RelationGetDescr(rel);
	HeapTuple	new = data->tg_newtuple;
	bool		old_null;
	bool		new_null;
	int64		before = integer_value(data->tg_trigtuple, desc,
									   guard->version_column,
									   guard->version_type, &old_null);
	int64		given = integer_value(new, desc, guard->version_column,
									  guard->version_type, &new_null);
	int64		next = next_version(guard, rel, before);

	if ((new_null && !old_null) || (given != before && given != next))
		report_version(guard, rel, next, new_null, given);
	if (rel->rd_rel->relispartition)
		MoveExpect(rel, data->tg_trigtuple, next);
	if (given == next)
		return new;
	return set_version(guard, rel, new, next);
}

/* The row of an insertion with its version set. */
static HeapTuple
begin_version(const Guard *guard, TriggerData *data)
{
	Relation	rel = data->tg_relation;
	HeapTuple	new = data->tg_trigtuple;
	int64		version = 1;
	bool		isnull;
	int64		given = integer_value(new, RelationGetDescr(rel),
									  guard->version_column,
									  guard->version_type, &isnull);

	if (rel->rd_rel->relispartition && MoveExpected(&version) &&
		(isnull || given != version))
		report_version(guard, rel, version, isnull, given);
	if (!isnull && given == version)
		return new;
	return set_version(guard, rel, new, version);
}

/*
 * idem_guard_version_set - BEFORE ROW trigger of a version guard.
 *
 * It does not name the column itself, so it stays behind where the column is
 * dropped with all that depends on it, and then does nothing.
 */
Datum
idem_guard_version_set(PG_FUNCTION_ARGS)
{
	TriggerData *data = trigger_data(fcinfo, "idem_guard_version_set", true);
	const Guard *guard = GuardFind(data->tg_relation);

	if (TRIGGER_FIRED_BY_DELETE(data->tg_event))
		refuse_foreign_trigger(data);
	if (guard->version_column == InvalidAttrNumber)
		return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(data->tg_event) ?
							   data->tg_newtuple : data->tg_trigtuple);
	if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		return PointerGetDatum(advance_version(guard, data));
	return PointerGetDatum(begin_version(guard, data));
}

/*
 * idem_guard_version_check - AFTER ROW trigger of a version guard.
 */
Datum
idem_guard_version_check(PG_FUNCTION_ARGS)
{
	TriggerData *data = trigger_data(fcinfo, "idem_guard_version_check", false);
	Relation	rel = data->tg_relation;
	const Guard *guard = GuardFind(rel);
	HeapTuple	old = data->tg_trigtuple;
	HeapTuple	new = old;
	int64		before = 0;
	int64		after;
	bool		isnull;

	if (guard->version_column == InvalidAttrNumber)
		refuse_foreign_trigger(data);

	if (is_no_update(data))
		return PointerGetDatum(NULL);

	if (!TRIGGER_FIRED_BY_INSERT(data->tg_event))
		before = integer_value(old, RelationGetDescr(rel),
							   guard->version_column, guard->version_type,
							   &isnull);
	if (TRIGGER_FIRED_BY_DELETE(data->tg_event))
	{
		if (MoveIsDeparture(old))
			MoveDepart(MOVE_VERSION, old, NULL, before);
		return PointerGetDatum(NULL);
	}
	if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		new = data->tg_newtuple;
	else if (rel->rd_rel->relispartition)
		(void) MoveArrive(MOVE_VERSION, new, NULL, &before);

	after = integer_value(new, RelationGetDescr(rel), guard->version_column,
						  guard->version_type, &isnull);
	if (isnull || after != before + 1)
		report_version(guard, rel, before + 1, isnull, after);
	return PointerGetDatum(NULL);
}
