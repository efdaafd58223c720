/*-------------------------------------------------------------------------
 *
 * life.c
 *	  What belongs to one life of a key, beside its row: checkpoints, external
 *	  calls, history.
 *
 * They go in the same transaction as the row, be it purged, released or used
 * again after it expired: what was collected in two steps could be found by
 * the next life in between.  Whoever ends a life holds the lock on its row, so
 * nobody else is adding to it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "catalog.h"
#include "catalog/indexing.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "life.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* The columns (scope, request_id, life) of a table, and an index on them. */
typedef struct LifeTable
{
	IdemTable	table;
	const char *index;
	AttrNumber	scope;
} LifeTable;

static const LifeTable checkpoints = {
	IDEM_TABLE_CHECKPOINT, "idempotency_checkpoint_pkey", 1
};
static const LifeTable calls = {
	IDEM_TABLE_CALL, "idempotency_call_operation_key", 2
};
static const LifeTable history = {
	IDEM_TABLE_HISTORY, "idempotency_history_life_idx", 1
};

/* Deletes the rows of a life from one table. */
static void
forget_in(const LifeTable *where, const LogRow *row)
{
	Relation	rel = table_open(CatalogTable(where->table), RowExclusiveLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScanKeyData keys[3];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyEntryInitialize(&keys[0], 0, where->scope, BTEqualStrategyNumber,
						   TEXTOID, C_COLLATION_OID, F_TEXTEQ,
						   row->values[LOG_SCOPE]);
	ScanKeyEntryInitialize(&keys[1], 0, where->scope + 1,
						   BTEqualStrategyNumber, TEXTOID, C_COLLATION_OID,
						   F_TEXTEQ, row->values[LOG_REQUEST_ID]);
	ScanKeyInit(&keys[2], where->scope + 2, BTEqualStrategyNumber, F_INT8EQ,
				row->values[LOG_LIFE]);
	scan = systable_beginscan(rel, CatalogIndex(where->index), true, snapshot,
							  3, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		simple_heap_delete(rel, &tuple->t_self);
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
}

/*
 * LifeForget - deletes all that belongs to the life that the row is in; the
 * caller holds the row's lock and is about to delete it or to begin a new life.
 */
void
LifeForget(const LogRow *row)
{
	if (LogRowInt32(row, LOG_STEPS) > 0)
		forget_in(&checkpoints, row);
	if (LogRowInt32(row, LOG_CALLS) > 0)
		forget_in(&calls, row);
	if (LogRowInt32(row, LOG_CHANGES) > 0)
		forget_in(&history, row);
}
