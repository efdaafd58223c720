/*-------------------------------------------------------------------------
 *
 * guard.c
 *	  Which guards a table has.
 *
 * A guard is nothing but its triggers: they alone come along through a dump of
 * the table's schema, are copied to new partitions, and go with the table.  So
 * all that is known of a guard is in them.  The machine and whether there is a
 * history are arguments of the triggers.  The column is the one that the WHEN
 * clauses of the checks read: the server adapts the clause when the column is renamed
 * or stands elsewhere in a partition, dumps it with the present name, and
 * keeps the column from being dropped.
 *
 * What the triggers of a table say is kept per backend until a relcache
 * message about the table.  A Guard stays where it is in memory for the life
 * of the backend; its contents change only in GuardFind.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupdesc.h"
#include "catalog.h"
#include "catalog/partition.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "compat.h"
#include "guard.h"
#include "nodes/primnodes.h"
#include "optimizer/optimizer.h"
#include "rewrite/prs2lock.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/reltrigger.h"

static TableCache guards = {
	.name = "idempotency guards",.entry_size = sizeof(Guard)
};

/* The column that a trigger's WHEN clause reads, 0 where it reads none. */
static AttrNumber
column_of_clause(const Trigger *trigger)
{
	Bitmapset  *columns = NULL;
	Node	   *clause;
	int			column;

	if (trigger->tgqual == NULL)
		return InvalidAttrNumber;
	clause = stringToNode(trigger->tgqual);
	pull_varattnos(clause, PRS2_NEW_VARNO, &columns);
	pull_varattnos(clause, PRS2_OLD_VARNO, &columns);
	column = bms_next_member(columns, -1);
	bms_free(columns);
	if (column < 0)
		return InvalidAttrNumber;
	return column + FirstLowInvalidHeapAttributeNumber;
}

static void
read_state_trigger(Guard *guard, Relation rel, const Trigger *trigger)
{
	AttrNumber	column = column_of_clause(trigger);
	bool		is_varlena;

	if (column <= 0 || trigger->tgnargs < 1)
		return;
	guard->state_column = column;
	strlcpy(guard->machine, trigger->tgargs[0], sizeof(guard->machine));
	guard->history = trigger->tgnargs > 1 &&
		strcmp(trigger->tgargs[1], "history") == 0;
	guard->state_type = getBaseType(TupleDescAttr(RelationGetDescr(rel),
												  column - 1)->atttypid);
	getTypeOutputInfo(guard->state_type, &guard->state_output, &is_varlena);
}

static void
read_version_trigger(Guard *guard, Relation rel, const Trigger *trigger)
{
	AttrNumber	column = column_of_clause(trigger);

	if (column <= 0)
		return;
	guard->version_column = column;
	guard->version_type = getBaseType(TupleDescAttr(RelationGetDescr(rel),
													column - 1)->atttypid);
}

/* Reads the triggers of a table that are ours. */
static void
read_triggers(Guard *guard, Relation rel)
{
	TriggerDesc *triggers;
	Oid			schema;

	guard->state_column = InvalidAttrNumber;
	guard->version_column = InvalidAttrNumber;
	guard->root = RelationGetRelid(rel);
	if (rel->trigdesc == NULL)
		return;

	/* A copy, since the relcache may be rebuilt by what is looked up below. */
	triggers = CopyTriggerDesc(rel->trigdesc);
	if (rel->rd_rel->relispartition)
	{
		List	   *ancestors = get_partition_ancestors(guard->root);

		/* A partition that is being detached has none. */
		if (ancestors != NIL)
			guard->root = llast_oid(ancestors);
	}
	schema = CatalogSchema();
	for (int i = 0; i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];
		char	   *function;

		if (trigger->tgisinternal ||
			get_func_namespace(trigger->tgfoid) != schema)
			continue;
		function = get_func_name(trigger->tgfoid);
		if (function == NULL)
			continue;
		if (strcmp(function, "idem_guard_state_check") == 0)
			read_state_trigger(guard, rel, trigger);
		else if (strcmp(function, "idem_guard_version_check") == 0)
			read_version_trigger(guard, rel, trigger);
		pfree(function);
	}
	FreeTriggerDesc(triggers);
}

/*
 * GuardFind - the guards of a table that the caller has opened and locked.
 *
 * For a writer the lock means that no trigger comes or goes while they are
 * read.  A message that arrives meanwhile makes the next call read again.
 */
const Guard *
GuardFind(Relation rel)
{
	Guard	   *guard;
	bool		found;
	uint64		messages;

	if (!TableCacheIsThere(&guards))
		TableCacheCreate(&guards);
	guard = (Guard *) TableCacheFind(&guards, RelationGetRelid(rel), &found);
	if (likely(guard->entry.valid))
		return guard;

	messages = guards.messages;
	read_triggers(guard, rel);
	TableCacheSetValid(&guards, &guard->entry, messages);
	return guard;
}

/*
 * GuardState - the state of a row as text, palloc'd; NULL for a null.
 */
char *
GuardState(const Guard *guard, TupleDesc desc, HeapTuple tuple)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, guard->state_column, desc, &isnull);
	char	   *state;

	if (isnull)
		return NULL;
	if (guard->state_type == TEXTOID || guard->state_type == VARCHAROID)
		return TextDatumGetCString(value);

	state = OidOutputFunctionCall(guard->state_output, value);
	if (guard->state_type == BPCHAROID)
	{
		int			length = strlen(state);

		while (length > 0 && state[length - 1] == ' ')
			state[--length] = '\0';
	}
	return state;
}

/*
 * GuardTable - the qualified and quoted name of the guarded table, for a
 * partition that of the whole table; palloc'd, NULL where the table went away.
 */
char *
GuardTable(const Guard *guard)
{
	char	   *name = get_rel_name(guard->root);
	char	   *schema = get_namespace_name(get_rel_namespace(guard->root));

	if (name == NULL || schema == NULL)
		return NULL;
	return quote_qualified_identifier(schema, name);
}

/*
 * GuardMachine - the machine of a state guard as it is now; valid like a
 * result of MachineGet.  An error where it is not defined: a guard that
 * cannot judge lets nothing pass.
 */
const Machine *
GuardMachine(const Guard *guard)
{
	const Machine *machine = MachineGet(guard->machine);

	if (machine == NULL)
	{
		char	   *table = GuardTable(guard);

		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("machine \"%s\" is not defined", guard->machine),
				 table ? errdetail("It guards the states of table %s.", table) : 0,
				 errhint("Define it with idem_machine, or take the guard off with idem_unguard.")));
	}
	return machine;
}
