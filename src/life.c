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
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog.h"
#include "catalog/indexing.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "life.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* The columns (scope, request_id, life) of a table, and an index on them. */
typedef struct LifePlace
{
	IdemTable	table;
	const char *index;
	AttrNumber	scope;			/* the other two follow it */
} LifePlace;

static const LifePlace places[] = {
	[LIFE_CHECKPOINTS] = {IDEM_TABLE_CHECKPOINT,
	"idempotency_checkpoint_pkey", 1},
	[LIFE_CALLS] = {IDEM_TABLE_CALL, "idempotency_call_operation_key", 2},
	[LIFE_HISTORY] = {IDEM_TABLE_HISTORY, "idempotency_history_life_idx", 1},
};

/*
 * LifeBeginScan - begins to read a life in one table; with snapshot NULL as it
 * is now, others' commits and our own changes included.
 *
 * Rows that are only ever inserted need no snapshot for that: none can be passed
 * while it moves.  So reading them takes no predicate lock in SERIALIZABLE, in
 * which steps of different keys, on one page of the index, would conflict.  Who
 * reads so holds the key's row, or is about to write it.
 */
void
LifeBeginScan(LifeScan *scan, LifeTable table, LOCKMODE lockmode,
			  const RequestKey *key, int64 life, Snapshot snapshot)
{
	const LifePlace *place = &places[table];
	ScanKeyData keys[3];

	ScanKeyEntryInitialize(&keys[0], 0, place->scope, BTEqualStrategyNumber,
						   TEXTOID, C_COLLATION_OID, F_TEXTEQ,
						   PointerGetDatum(key->scope));
	ScanKeyEntryInitialize(&keys[1], 0, place->scope + 1,
						   BTEqualStrategyNumber, TEXTOID, C_COLLATION_OID,
						   F_TEXTEQ, PointerGetDatum(key->request_id));
	ScanKeyInit(&keys[2], place->scope + 2, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(life));

	scan->rel = table_open(CatalogTable(place->table), lockmode);
	if (snapshot != NULL)
		scan->snapshot = RegisterSnapshot(snapshot);
	else if (table == LIFE_CALLS)
		scan->snapshot = CatalogFreshSnapshot(scan->rel);
	else
		scan->snapshot = RegisterSnapshot(SnapshotSelf);
	scan->scan = systable_beginscan(scan->rel, CatalogIndex(place->index),
									true, scan->snapshot, 3, keys);
}

/*
 * LifeNext - the next row of a scan, good until the one after it; NULL at the
 * end.
 */
HeapTuple
LifeNext(LifeScan *scan)
{
	CHECK_FOR_INTERRUPTS();
	return systable_getnext(scan->scan);
}

/*
 * LifeEndScan - ends a scan; the lock on the table stays.
 */
void
LifeEndScan(LifeScan *scan)
{
	systable_endscan(scan->scan);
	UnregisterSnapshot(scan->snapshot);
	table_close(scan->rel, NoLock);
}

/* Deletes the rows of a life from one table. */
static void
forget_in(LifeTable table, const LogRow *row)
{
	RequestKey	key = {DatumGetTextPP(row->values[LOG_SCOPE]),
	DatumGetTextPP(row->values[LOG_REQUEST_ID])};
	LifeScan	scan;
	HeapTuple	tuple;

	LifeBeginScan(&scan, table, RowExclusiveLock, &key,
				  LogRowInt64(row, LOG_LIFE), NULL);
	while ((tuple = LifeNext(&scan)) != NULL)
		simple_heap_delete(scan.rel, &tuple->t_self);
	LifeEndScan(&scan);
}

/*
 * LifeForget - deletes all that belongs to the life that the row is in; the
 * caller has just deleted the row or begun a new life in it.
 */
void
LifeForget(const LogRow *row)
{
	if (LogRowInt32(row, LOG_STEPS) > 0)
		forget_in(LIFE_CHECKPOINTS, row);
	if (LogRowInt32(row, LOG_CALLS) > 0)
		forget_in(LIFE_CALLS, row);
	if (LogRowInt32(row, LOG_CHANGES) > 0)
		forget_in(LIFE_HISTORY, row);
}
