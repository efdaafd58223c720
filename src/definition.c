/*-------------------------------------------------------------------------
 *
 * definition.c
 *	  Reading and replacing rows of the extension's definition tables.
 *
 * A definition table (scopes, providers, machines) has one text column as its
 * primary key, in first place.  Definitions are few, change rarely and are
 * read by every backend through caches of its own, so writers lock each other
 * out for the rest of their transaction (ShareRowExclusiveLock; readers are
 * not hindered) and announce the change with a relcache message, which
 * reaches other sessions with the commit and the own session at once.
 *
 * Rows are read with the latest snapshot, not with the transaction's: a
 * policy that was changed is in force also for a transaction that is older.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog.h"
#include "catalog/indexing.h"
#include "catalog/pg_collation.h"
#include "commands/trigger.h"
#include "definition.h"
#include "miscadmin.h"
#include "tuple.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(idem_definition_changed);

/*
 * DefinitionOpen - opens a definition table for writing; refused in a
 * read-only transaction.  The lock stays until the transaction ends.
 */
Relation
DefinitionOpen(Oid table)
{
	PreventCommandIfReadOnly("a change of an idempotency definition");
	return table_open(table, ShareRowExclusiveLock);
}

/*
 * DefinitionClose - closes a definition table and keeps its lock.
 */
void
DefinitionClose(Relation rel)
{
	table_close(rel, NoLock);
}

/*
 * DefinitionFind - the row with this key as it is now, copied into the current
 * memory context, or NULL.
 */
HeapTuple
DefinitionFind(Relation rel, Datum key)
{
	ScanKeyData skey;
	SysScanDesc scan;
	HeapTuple	tuple;
	Snapshot	snapshot = CatalogFreshSnapshot(rel);

	ScanKeyEntryInitialize(&skey, 0, 1, BTEqualStrategyNumber, TEXTOID,
						   C_COLLATION_OID, F_TEXTEQ, key);
	scan = systable_beginscan(rel, CatalogPrimaryKey(rel), true, snapshot,
							  1, &skey);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	return tuple;
}

/*
 * DefinitionIsSame - is each of the first natts columns of the row (or NULL for
 * none) already what it is to be?
 */
bool
DefinitionIsSame(Relation rel, HeapTuple old, int natts, Datum *values,
				 bool *nulls)
{
	TupleDesc	desc = RelationGetDescr(rel);

	if (old == NULL)
		return false;
	for (int i = 0; i < natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		bool		isnull;
		Datum		value = heap_getattr(old, i + 1, desc, &isnull);

		if (isnull != nulls[i])
			return false;
		if (!isnull && !datum_image_eq(value, values[i], att->attbyval,
									   att->attlen))
			return false;
	}
	return true;
}

/*
 * DefinitionWrite - makes the row of the first column's key what the values
 * say; old is its present version (of DefinitionFind) or NULL.  Writes nothing
 * where nothing differs, then false.
 */
bool
DefinitionWrite(Relation rel, HeapTuple old, int natts, Datum *values,
				bool *nulls)
{
	if (DefinitionIsSame(rel, old, natts, values, nulls))
		return false;

	if (old != NULL)
		TupleUpdate(rel, &old->t_self, natts, values, nulls);
	else
		TupleInsert(rel, natts, values, nulls);
	CacheInvalidateRelcache(rel);
	CommandCounterIncrement();
	return true;
}

/*
 * DefinitionIsThere - is the row of the first column's key what the values say?
 * Looks without a lock that would stop others, or be stopped: applications
 * define what they need at every start.
 */
bool
DefinitionIsThere(Oid table, int natts, Datum *values, bool *nulls)
{
	Relation	rel = table_open(table, AccessShareLock);
	bool		same = DefinitionIsSame(rel, DefinitionFind(rel, values[0]),
										natts, values, nulls);

	table_close(rel, AccessShareLock);
	return same;
}

/*
 * DefinitionDelete - removes a row that DefinitionFind returned.
 */
void
DefinitionDelete(Relation rel, HeapTuple old)
{
	CatalogTupleDelete(rel, &old->t_self);
	CacheInvalidateRelcache(rel);
	CommandCounterIncrement();
}

/*
 * idem_definition_changed - trigger of the definition tables, for changes that
 * come past the functions: a restore, or an owner's own UPDATE.
 */
Datum
idem_definition_changed(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be called as a trigger",
						"idem_definition_changed")));
	CacheInvalidateRelcache(trigdata->tg_relation);
	PG_RETURN_POINTER(NULL);
}
