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
#include "utils/jsonb.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Columns of idempotency_checkpoint that are read here. */
#define Anum_checkpoint_step	4
#define Anum_checkpoint_result	8

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

/* An open scan of what one table holds of a life. */
typedef struct LifeScan
{
	Relation	rel;
	Snapshot	snapshot;
	SysScanDesc scan;
} LifeScan;

/*
 * Begins to read a life in one table, as it is now: others' commits and our
 * own changes included.  The caller holds or has just read the row of the key.
 */
static void
begin_scan(LifeScan *scan, const LifeTable *where, LOCKMODE lockmode,
		   const RequestKey *key, int64 life)
{
	ScanKeyData keys[3];

	ScanKeyEntryInitialize(&keys[0], 0, where->scope, BTEqualStrategyNumber,
						   TEXTOID, C_COLLATION_OID, F_TEXTEQ,
						   PointerGetDatum(key->scope));
	ScanKeyEntryInitialize(&keys[1], 0, where->scope + 1,
						   BTEqualStrategyNumber, TEXTOID, C_COLLATION_OID,
						   F_TEXTEQ, PointerGetDatum(key->request_id));
	ScanKeyInit(&keys[2], where->scope + 2, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(life));

	scan->rel = table_open(CatalogTable(where->table), lockmode);
	scan->snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan->scan = systable_beginscan(scan->rel, CatalogIndex(where->index),
									true, scan->snapshot, 3, keys);
}

static void
end_scan(LifeScan *scan)
{
	systable_endscan(scan->scan);
	UnregisterSnapshot(scan->snapshot);
	table_close(scan->rel, NoLock);
}

/* Deletes the rows of a life from one table. */
static void
forget_in(const LifeTable *where, const RequestKey *key, int64 life)
{
	LifeScan	scan;
	HeapTuple	tuple;

	begin_scan(&scan, where, RowExclusiveLock, key, life);
	while (HeapTupleIsValid(tuple = systable_getnext(scan.scan)))
	{
		CHECK_FOR_INTERRUPTS();
		simple_heap_delete(scan.rel, &tuple->t_self);
	}
	end_scan(&scan);
}

/*
 * LifeForget - deletes all that belongs to the life that the row is in; the
 * caller holds the row's lock and is about to delete it or to begin a new life.
 */
void
LifeForget(const LogRow *row)
{
	RequestKey	key = {DatumGetTextPP(row->values[LOG_SCOPE]),
	DatumGetTextPP(row->values[LOG_REQUEST_ID])};
	int64		life = LogRowInt64(row, LOG_LIFE);

	if (LogRowInt32(row, LOG_STEPS) > 0)
		forget_in(&checkpoints, &key, life);
	if (LogRowInt32(row, LOG_CALLS) > 0)
		forget_in(&calls, &key, life);
	if (LogRowInt32(row, LOG_CHANGES) > 0)
		forget_in(&history, &key, life);
}

/* Adds a member to the object that is being built. */
static void
push_member(JsonbParseState **state, text *name, Datum value, bool isnull)
{
	JsonbValue	key = {.type = jbvString};
	JsonbValue	content = {.type = jbvNull};

	key.val.string.val = VARDATA_ANY(name);
	key.val.string.len = VARSIZE_ANY_EXHDR(name);
	(void) pushJsonbValue(state, WJB_KEY, &key);
	if (!isnull)
	{
		Jsonb	   *document = DatumGetJsonbP(value);

		if (JB_ROOT_IS_SCALAR(document))
			(void) JsonbExtractScalar(&document->root, &content);
		else
		{
			content.type = jbvBinary;
			content.val.binary.data = &document->root;
			content.val.binary.len = VARSIZE(document) - VARHDRSZ;
		}
	}
	(void) pushJsonbValue(state, WJB_VALUE, &content);
}

/*
 * LifeCheckpoints - the checkpoints of a life as a jsonb object {step: result};
 * palloc'd.  steps is their number as it stands in the key's row.
 */
Datum
LifeCheckpoints(const RequestKey *key, int64 life, int32 steps)
{
	JsonbParseState *state = NULL;
	LifeScan	scan;
	HeapTuple	tuple;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	if (steps > 0)
	{
		begin_scan(&scan, &checkpoints, AccessShareLock, key, life);
		while (HeapTupleIsValid(tuple = systable_getnext(scan.scan)))
		{
			TupleDesc	desc = RelationGetDescr(scan.rel);
			bool		isnull;
			Datum		step = heap_getattr(tuple, Anum_checkpoint_step, desc,
											&isnull);
			Datum		result = heap_getattr(tuple, Anum_checkpoint_result,
											  desc, &isnull);

			push_member(&state, DatumGetTextPCopy(step), isnull ? (Datum) 0 : result, isnull);
		}
		end_scan(&scan);
	}
	return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state,
														   WJB_END_OBJECT,
														   NULL)));
}
