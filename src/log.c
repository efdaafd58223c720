/*-------------------------------------------------------------------------
 *
 * log.c
 *	  Access to the rows of transaction_log.
 *
 * Who wins a key is decided by its unique index and by nothing else.  The
 * index is probed with a dirty snapshot, which shows the newest version of the
 * row and which transaction, if any, is at it; a new row is inserted
 * speculatively, which asks the index without waiting for anybody.
 *
 * What a probe says, and how far it can be trusted:
 * - A version found is real.  It may be another transaction's uncommitted one,
 *	 and then its contents must not decide anything.
 * - "Nothing" proves nothing: a scan can pass a row that is moved by a
 *	 concurrent update that is not HOT.  Only a successful insert proves that
 *	 a key was absent, or a read with an MVCC snapshot (LogIsThere).
 * - While the index is rebuilt concurrently, the winner of a race may be in
 *	 the other index only: after a lost insert all of them are probed.
 *
 * Rows are written to the heap directly, so triggers, row security, checks
 * and privileges of the table do not apply: they are for the functions that
 * call this, which are the only way in for anybody but the owner.
 *
 * Locks: RowExclusiveLock on the table and its indexes until the transaction
 * ends, as any writer; nothing per key but the row itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/skey.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog.h"
#include "catalog/pg_am.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "executor/executor.h"
#include "isolation.h"
#include "log.h"
#include "nodes/makefuncs.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/xid8.h"

static const char *const status_names[] = {
	[LOG_PROCESSING] = "processing",
	[LOG_COMPLETED] = "completed",
	[LOG_FAILED] = "failed",
	[LOG_UNKNOWN] = "unknown",
};

/*
 * LogOpenTable - opens a table whose rows are found by (scope, id) and whose
 * first natts columns are known.
 */
void
LogOpenTable(Log *log, IdemTable table, int natts)
{
	log->rel = table_open(CatalogTable(table), RowExclusiveLock);
	CatalogCheckColumns(log->rel, natts);
	log->index = index_open(CatalogPrimaryKey(log->rel), RowExclusiveLock);
	log->natts = natts;
	log->found = table_slot_create(log->rel, NULL);
	log->written = table_slot_create(log->rel, NULL);
	log->estate = NULL;
	log->indexes = NULL;
	ItemPointerSetInvalid(&log->held);
	log->batch = false;
	log->unseen = false;
}

/*
 * LogOpen - opens the log for one call.
 */
void
LogOpen(Log *log)
{
	LogOpenTable(log, IDEM_TABLE_LOG, LOG_NATTS);
}

/*
 * LogBeginBatch - from now on all writes are one command: none of them becomes
 * visible to this transaction's snapshots before LogSeeWrites or LogClose.
 *
 * A transaction keeps in memory each pair of commands that wrote and replaced a
 * row of its own; with a command per row that would be as many pairs as rows.
 * Probes see everything, but a row cannot be written twice in one command.
 */
void
LogBeginBatch(Log *log)
{
	log->batch = true;
}

/*
 * LogSeeWrites - ends a command of a batch, where it wrote anything.
 */
void
LogSeeWrites(Log *log)
{
	if (log->unseen)
		CommandCounterIncrement();
	log->unseen = false;
}

/* After each write. */
static void
note_write(Log *log)
{
	log->unseen = true;
	if (!log->batch)
		LogSeeWrites(log);
}

/*
 * LogClose - lets go of everything but the locks.
 */
void
LogClose(Log *log)
{
	LogSeeWrites(log);
	if (log->indexes != NULL)
	{
		ExecCloseIndices(log->indexes);
		FreeExecutorState(log->estate);
	}
	ExecDropSingleTupleTableSlot(log->written);
	ExecDropSingleTupleTableSlot(log->found);
	index_close(log->index, NoLock);
	table_close(log->rel, NoLock);
}

/*
 * LogUnpin - lets go of the buffer of the last probe; before any wait.
 */
void
LogUnpin(Log *log)
{
	ExecClearTuple(log->found);
}

static void
init_scan_keys(ScanKeyData keys[2], const RequestKey *key)
{
	ScanKeyEntryInitialize(&keys[0], 0, 1, BTEqualStrategyNumber, TEXTOID,
						   C_COLLATION_OID, F_TEXTEQ,
						   PointerGetDatum(key->scope));
	ScanKeyEntryInitialize(&keys[1], 0, 2, BTEqualStrategyNumber, TEXTOID,
						   C_COLLATION_OID, F_TEXTEQ,
						   PointerGetDatum(key->request_id));
}

/* Was this row version written by this transaction? */
static bool
is_own_version(TupleTableSlot *slot)
{
	bool		isnull;
	Datum		xmin = slot_getsysattr(slot, MinTransactionIdAttributeNumber,
									   &isnull);

	return TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin));
}

/*
 * Does the version's end point elsewhere?  An updated row points to its next
 * version, a deleted one to itself.  The buffer is pinned, and only a
 * transaction that is still in progress can have set this.
 */
static bool
is_being_deleted(TupleTableSlot *slot)
{
	HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);

	return ItemPointerEquals(&tuple->t_self, &tuple->t_data->t_ctid);
}

/* Fills a row from the version in the log's slot. */
static void
fill_row(Log *log, LogRow *row)
{
	slot_getallattrs(log->found);
	row->tid = log->found->tts_tid;
	row->values = log->found->tts_values;
	row->nulls = log->found->tts_isnull;
}

/*
 * LogRowFound - the version that a scan put into the log's slot, as a row;
 * nothing is known of others who may be at it.
 */
void
LogRowFound(Log *log, LogRow *row)
{
	fill_row(log, row);
	row->sight = is_own_version(log->found) ?
		LOG_SIGHT_OWN : LOG_SIGHT_COMMITTED;
	row->other = InvalidTransactionId;
	row->deleting = false;
}

/*
 * Probes one index with a dirty snapshot.
 *
 * A version that is not committed is passed over and remembered, since a real
 * one may stand behind a speculative one, and the committed version of a row
 * behind the new one that an update made of it: versions come in the order of
 * their addresses.  On a standby the snapshot is an ordinary one: dirty scans there
 * are not protected against a slot that is used again, and nothing can be
 * claimed anyway.
 */
static void
probe_index(Log *log, Relation index, const RequestKey *key, LogRow *row)
{
	SnapshotData dirty;
	ScanKeyData keys[2];
	IndexScanDesc scan;
	LogSight	passed = LOG_SIGHT_NOTHING;
	TransactionId passed_xid = InvalidTransactionId;

	memset(&dirty, 0, sizeof(dirty));
	InitDirtySnapshot(dirty);
	init_scan_keys(keys, key);
	row->sight = LOG_SIGHT_NOTHING;
	row->other = InvalidTransactionId;
	row->deleting = false;

	scan = compat_index_beginscan(log->rel, index, &dirty, 2);
	index_rescan(scan, keys, 2, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, log->found))
	{
		if (TransactionIdIsValid(dirty.xmin))
		{
			bool		speculative = dirty.speculativeToken != 0;

			dirty.speculativeToken = 0;
			if (passed != LOG_SIGHT_INSERTING)
			{
				passed = speculative ? LOG_SIGHT_SPECULATIVE :
					LOG_SIGHT_INSERTING;
				passed_xid = dirty.xmin;
			}
			continue;
		}
		fill_row(log, row);
		if (TransactionIdIsValid(dirty.xmax))
		{
			row->sight = LOG_SIGHT_CHANGING;
			row->other = dirty.xmax;
			row->deleting = is_being_deleted(log->found);
		}
		else
			row->sight = is_own_version(log->found) ?
				LOG_SIGHT_OWN : LOG_SIGHT_COMMITTED;
		break;
	}
	index_endscan(scan);

	if (row->sight == LOG_SIGHT_NOTHING)
	{
		row->sight = passed;
		row->other = passed_xid;
	}
}

/*
 * LogProbe - looks for the present version of a key.
 */
void
LogProbe(Log *log, const RequestKey *key, LogRow *row)
{
	if (unlikely(RecoveryInProgress()))
	{
		Snapshot	snapshot = CatalogFreshSnapshot(log->rel);

		row->sight = LogFetch(log, key, snapshot, row) ?
			LOG_SIGHT_COMMITTED : LOG_SIGHT_NOTHING;
		UnregisterSnapshot(snapshot);
		return;
	}
	probe_index(log, log->index, key, row);
}

/* Does this index guard the key, in this very form? */
static bool
is_key_index(Log *log, Relation index)
{
	Form_pg_index form = index->rd_index;
	Form_pg_index key = log->index->rd_index;

	return form->indisunique && form->indisready && form->indislive &&
		form->indnkeyatts == 2 &&
		form->indkey.values[0] == key->indkey.values[0] &&
		form->indkey.values[1] == key->indkey.values[1] &&
		index->rd_rel->relam == BTREE_AM_OID &&
		RelationGetIndexPredicate(index) == NIL;
}

/*
 * LogProbeAllIndexes - the same after a lost insert: while the key's index is
 * being rebuilt, the winner may be in another one only.
 */
void
LogProbeAllIndexes(Log *log, const RequestKey *key, LogRow *row)
{
	List	   *indexes = RelationGetIndexList(log->rel);
	ListCell   *lc;

	row->sight = LOG_SIGHT_NOTHING;
	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), RowExclusiveLock);

		if (is_key_index(log, index))
			probe_index(log, index, key, row);
		index_close(index, NoLock);
		if (row->sight != LOG_SIGHT_NOTHING)
			break;
	}
	list_free(indexes);
}

/*
 * LogFetch - reads the version of a key that a snapshot shows.
 */
bool
LogFetch(Log *log, const RequestKey *key, Snapshot snapshot, LogRow *row)
{
	ScanKeyData keys[2];
	IndexScanDesc scan;
	bool		found;

	init_scan_keys(keys, key);
	scan = compat_index_beginscan(log->rel, log->index, snapshot, 2);
	index_rescan(scan, keys, 2, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, log->found);
	if (found)
		LogRowFound(log, row);
	index_endscan(scan);
	return found;
}

/*
 * LogFetchOwn - reads a version again that this transaction wrote, by its
 * address; false where it is not the present one any more.
 */
bool
LogFetchOwn(Log *log, const ItemPointerData *tid, LogRow *row)
{
	ItemPointerData address = *tid;

	if (!table_tuple_fetch_row_version(log->rel, &address, SnapshotSelf,
									   log->found) ||
		!is_own_version(log->found))
		return false;
	LogRowFound(log, row);
	return true;
}

/*
 * LogIsThere - asks with a fresh MVCC snapshot whether a key that a probe did
 * not find is there after all.
 */
bool
LogIsThere(Log *log, const RequestKey *key)
{
	LogRow		row;
	Snapshot	snapshot = CatalogFreshSnapshot(log->rel);
	bool		found = LogFetch(log, key, snapshot, &row);

	UnregisterSnapshot(snapshot);
	LogUnpin(log);
	return found;
}

/*
 * LogCheckSnapshot - raises 40001 where a committed version that is about to
 * decide something is not in the snapshot of a REPEATABLE READ or SERIALIZABLE
 * transaction, as INSERT ... ON CONFLICT does.
 *
 * Fetching the version by its address also takes the predicate lock and the
 * conflict checks of SERIALIZABLE for just this row.  Reading the key through
 * the index would lock the gap around it, and claims of other keys would then
 * conflict for nothing.
 */
void
LogCheckSnapshot(Log *log, const LogRow *row)
{
	ItemPointerData tid = row->tid;
	bool		visible;

	if (likely(!IsolationUsesXactSnapshot()) || row->sight == LOG_SIGHT_OWN)
		return;
	visible = table_tuple_fetch_row_version(log->rel, &tid,
											GetTransactionSnapshot(),
											log->written);
	ExecClearTuple(log->written);
	if (!visible)
		IsolationCheck();
}

/* Puts a new row version into the slot that writes take. */
static TupleTableSlot *
store_values(Log *log, const Datum *values, const bool *nulls)
{
	TupleTableSlot *slot = log->written;

	ExecClearTuple(slot);
	memcpy(slot->tts_values, values, log->natts * sizeof(Datum));
	memcpy(slot->tts_isnull, nulls, log->natts * sizeof(bool));
	for (int i = log->natts; i < slot->tts_tupleDescriptor->natts; i++)
		slot->tts_isnull[i] = true;
	return ExecStoreVirtualTuple(slot);
}

/*
 * Inserts index entries of the slot; with may_lose, false on a conflict.
 *
 * The indexes stay open until the table is closed: a batch opens them once.
 */
static bool
insert_index_entries(Log *log, TupleTableSlot *slot, bool update,
					 bool may_lose, bool only_summarizing)
{
	bool		conflict = false;

	compat_insert_index_tuples(log->indexes, slot, log->estate, update,
							   may_lose, may_lose ? &conflict : NULL,
							   only_summarizing);
	ResetPerTupleExprContext(log->estate);
	return !conflict;
}

static void
open_indexes(Log *log)
{
	MemoryContext context;

	if (log->indexes != NULL)
		return;
	context = MemoryContextSwitchTo(GetMemoryChunkContext(log->found));
	log->estate = CreateExecutorState();
	log->indexes = makeNode(ResultRelInfo);
	InitResultRelInfo(log->indexes, log->rel, 0, NULL, 0);
	ExecOpenIndices(log->indexes, false);
	MemoryContextSwitchTo(context);
}

/*
 * LogInsert - inserts a new key and never waits; false where somebody else has
 * it, in whatever state, in any of the unique indexes.
 *
 * The row is inserted speculatively: it counts for nobody until its index
 * entries went in without a conflict, and is taken back on the spot where they
 * did not.  Two that insert at once can both lose only while the index is
 * being rebuilt.
 */
bool
LogInsert(Log *log, const Datum *values, const bool *nulls)
{
	TupleTableSlot *slot = store_values(log, values, nulls);
	TransactionId xid = GetCurrentTransactionId();
	uint32		speculative_token;
	bool		won;

	open_indexes(log);
	speculative_token = SpeculativeInsertionLockAcquire(xid);
	table_tuple_insert_speculative(log->rel, slot, GetCurrentCommandId(true),
								   0, NULL, speculative_token);
	won = insert_index_entries(log, slot, false, true, false);
	table_tuple_complete_speculative(log->rel, slot, speculative_token, won);
	SpeculativeInsertionLockRelease(xid);

	if (won)
		note_write(log);
	return won;
}

static LogWrite
write_outcome(TM_Result result)
{
	switch (result)
	{
		case TM_Ok:
			return LOG_WRITTEN;
		case TM_BeingModified:
		case TM_WouldBlock:
			return LOG_BUSY;
		default:
			return LOG_LOST;
	}
}

/*
 * LogUpdate - replaces the row version by a new one; waits for whoever holds
 * it.
 *
 * The index entries of an update that is not HOT are new ones for the same
 * key.  They conflict with nobody, since whoever wants the key meets this row.
 */
LogWrite
LogUpdate(Log *log, const LogRow *row, const Datum *values, const bool *nulls)
{
	TupleTableSlot *slot = store_values(log, values, nulls);
	ItemPointerData tid = row->tid;
	TM_FailureData failure;
	LockTupleMode lockmode;
	CompatUpdateIndexes update_indexes;
	TM_Result	result;

	result = table_tuple_update(log->rel, &tid, slot,
								GetCurrentCommandId(true),
								GetActiveSnapshot(), InvalidSnapshot, true,
								&failure, &lockmode, &update_indexes);
	if (result != TM_Ok)
		return write_outcome(result);

	if (COMPAT_INDEXES_NEED_UPDATE(update_indexes))
	{
		open_indexes(log);
		(void) insert_index_entries(log, slot, true, false,
									COMPAT_ONLY_SUMMARIZING(update_indexes));
	}
	note_write(log);
	return LOG_WRITTEN;
}

/*
 * LogTakeOver - the same without ever waiting: LOG_BUSY where the row is held.
 *
 * The row lock is taken first, since an update that must not wait is not made
 * for rows that are merely locked.  Once we have the lock, all that others can
 * hold is KEY SHARE, which an update that leaves the key alone passes.
 */
LogWrite
LogTakeOver(Log *log, const LogRow *row, const Datum *values,
			const bool *nulls)
{
	ItemPointerData tid = row->tid;
	TM_FailureData failure;
	TM_Result	result;

	result = table_tuple_lock(log->rel, &tid, GetActiveSnapshot(),
							  log->written, GetCurrentCommandId(true),
							  LockTupleNoKeyExclusive, LockWaitSkip, 0,
							  &failure);
	if (result != TM_Ok)
		return write_outcome(result);
	return LogUpdate(log, row, values, nulls);
}

/* May others hold a lock on the row that an update has to wait for? */
static bool
may_be_locked(const Log *log, const LogRow *row)
{
	HeapTuple	tuple = ExecFetchSlotHeapTuple(log->found, false, NULL);
	uint16		infomask = tuple->t_data->t_infomask;

	if (row->sight == LOG_SIGHT_OWN || (infomask & HEAP_XMAX_INVALID) != 0)
		return false;
	return (infomask & HEAP_XMAX_IS_MULTI) != 0 ||
		!HEAP_XMAX_IS_KEYSHR_LOCKED(infomask);
}

/*
 * LogAwaitLocks - before an update: waits for those who hold a lock on the row
 * that was found, and locks it.  True where the row has to be looked at again,
 * because time went by or the row has changed.
 *
 * The update would wait as well, but with times in it from before the wait: a
 * lease could be over before it is written.
 */
bool
LogAwaitLocks(Log *log, const LogRow *row)
{
	ItemPointerData tid = row->tid;
	TM_FailureData failure;

	if (likely(!may_be_locked(log, row)) || XactReadOnly)
		return false;
	if (ItemPointerIsValid(&log->held) && ItemPointerEquals(&log->held, &tid))
		return false;
	if (table_tuple_lock(log->rel, &tid, GetActiveSnapshot(), log->written,
						 GetCurrentCommandId(true), LockTupleNoKeyExclusive,
						 LockWaitBlock, 0, &failure) == TM_Ok)
		log->held = tid;
	return true;
}

static LogWrite
delete_row(Log *log, const LogRow *row, bool wait)
{
	ItemPointerData tid = row->tid;
	TM_FailureData failure;
	TM_Result	result;

	result = table_tuple_delete(log->rel, &tid, GetCurrentCommandId(true),
								GetActiveSnapshot(), InvalidSnapshot, wait,
								&failure, false);
	if (result != TM_Ok)
		return write_outcome(result);
	note_write(log);
	return LOG_WRITTEN;
}

/*
 * LogDelete - deletes the row version; waits for whoever holds it.
 */
LogWrite
LogDelete(Log *log, const LogRow *row)
{
	return delete_row(log, row, true);
}

/*
 * LogTryDelete - the same without ever waiting: LOG_BUSY where the row is held
 * by anybody, in whatever mode.
 */
LogWrite
LogTryDelete(Log *log, const LogRow *row)
{
	return delete_row(log, row, false);
}

/*
 * LogStatusName - the word for a status.
 */
const char *
LogStatusName(LogStatus status)
{
	return status_names[status];
}

/*
 * LogRowStatus - status of a row as it is stored.
 */
LogStatus
LogRowStatus(const LogRow *row)
{
	text	   *name = DatumGetTextPP(row->values[LOG_STATUS]);

	for (int i = 0; i < lengthof(status_names); i++)
	{
		if (VARSIZE_ANY_EXHDR(name) == strlen(status_names[i]) &&
			memcmp(VARDATA_ANY(name), status_names[i],
				   strlen(status_names[i])) == 0)
			return (LogStatus) i;
	}
	/* The table's constraint forbids it, but not a call of idem_review_kind. */
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized status of a request")));
}

/*
 * LogCopyRow - a request's row as it is, to begin its next version with; the
 * values still point to where the row's do.
 */
void
LogCopyRow(const LogRow *row, Datum *values, bool *nulls)
{
	memcpy(values, row->values, LOG_NATTS * sizeof(Datum));
	memcpy(nulls, row->nulls, LOG_NATTS * sizeof(bool));
}

/*
 * LogForgetPrior - removes from a new version what a release would go back to.
 */
void
LogForgetPrior(bool *nulls)
{
	for (int i = LOG_PRIOR_STATUS; i <= LOG_PRIOR_UNNAMED; i++)
		nulls[i] = true;
}

/*
 * LogRowIsOwnClaim - was the present claim made by this very transaction?
 *
 * The number of the claim's transaction alone does not say so: it may stem
 * from another cluster.  The version has to be ours as well.
 */
bool
LogRowIsOwnClaim(const LogRow *row)
{
	FullTransactionId claimed;

	if (row->sight != LOG_SIGHT_OWN)
		return false;
	claimed = DatumGetFullTransactionId(row->values[LOG_CLAIMED_XACT]);
	return FullTransactionIdEquals(claimed, GetTopFullTransactionIdIfAny());
}

/*
 * LogRowIsHeldHere - does this very transaction hold the claim, having made it
 * or proved itself with its token?
 *
 * That it wrote the present version does not say so: a purge, or a change of
 * policy, writes the rows of other people's claims.
 */
bool
LogRowIsHeldHere(const LogRow *row)
{
	FullTransactionId proved;

	if (row->sight != LOG_SIGHT_OWN)
		return false;
	proved = DatumGetFullTransactionId(row->nulls[LOG_PROVED_XACT] ?
									   row->values[LOG_CLAIMED_XACT] :
									   row->values[LOG_PROVED_XACT]);
	return FullTransactionIdEquals(proved, GetTopFullTransactionIdIfAny());
}

/*
 * LogNoteHolder - notes in a version that is about to be written that this
 * transaction holds the claim: nothing where the claim is its own, so that a
 * request that is claimed and ended in one transaction never pays for it.
 */
void
LogNoteHolder(Datum *values, bool *nulls)
{
	FullTransactionId claimed =
		DatumGetFullTransactionId(values[LOG_CLAIMED_XACT]);
	FullTransactionId here = GetTopFullTransactionId();

	nulls[LOG_PROVED_XACT] = FullTransactionIdEquals(claimed, here);
	values[LOG_PROVED_XACT] = FullTransactionIdGetDatum(here);
}

/*
 * LogRowIsReleased - was the claim given back, so that nobody holds it?
 */
bool
LogRowIsReleased(const LogRow *row)
{
	return !FullTransactionIdIsValid(DatumGetFullTransactionId(row->values[LOG_CLAIMED_XACT]));
}

/*
 * LogRowTime - a time of the row, or the given one where it has none.
 */
TimestampTz
LogRowTime(const LogRow *row, LogColumn column, TimestampTz missing)
{
	return row->nulls[column] ? missing :
		DatumGetTimestampTz(row->values[column]);
}

/*
 * LogRowInt64 - a number of the row that cannot be NULL.
 */
int64
LogRowInt64(const LogRow *row, LogColumn column)
{
	return DatumGetInt64(row->values[column]);
}

/*
 * LogRowInt32 - a number of the row; a count that is 0 is not stored.
 */
int32
LogRowInt32(const LogRow *row, LogColumn column)
{
	return row->nulls[column] ? 0 : DatumGetInt32(row->values[column]);
}

/*
 * LogSetCount - puts a count into a new version.
 */
void
LogSetCount(Datum *values, bool *nulls, LogColumn column, int32 count)
{
	values[column] = Int32GetDatum(count);
	nulls[column] = count == 0;
}
