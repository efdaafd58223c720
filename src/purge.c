/*-------------------------------------------------------------------------
 *
 * purge.c
 *	  Removing what has expired, batch by batch: idem_purge, idem_purge_all,
 *	  and what the worker does.
 *
 * A batch walks along the alarms (due.c) and judges each row as everybody else
 * does (state.c):
 *
 *	 absent						removed, with all that belongs to its life
 *	 a person must decide		turned to the status unknown, and notified
 *	 anything else				alarm set to when it has to be looked at again
 *	 our own open claim			left alone
 *
 * Races and who wins: every write names the row version that was judged and
 * never waits.  Whoever changed or locked the row since, be it a claim that
 * took it over, a renewed lease, a client's FOR UPDATE or another purge, makes
 * the write fail, and the row is left for the next round.  So a batch waits
 * for nobody's row, several purges at once share the work, and a key whose row
 * changed between choice and removal stays.  A claim that comes upon a removal
 * under way is told in_progress with a short retry_after, and finds the key
 * absent, or expired as before, when the batch has ended.
 *
 * What is removed or turned here would be judged the same way without it, so
 * nothing depends on when a purge runs, and its commit need not be durable.
 *
 * A batch writes a bounded number of rows.  It holds no lock on a row before
 * it writes it and all locks until its transaction ends, which should be soon.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog.h"
#include "clock.h"
#include "compat.h"
#include "due.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "history.h"
#include "life.h"
#include "log.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "purge.h"
#include "review.h"
#include "settings.h"
#include "stat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_purge);
PG_FUNCTION_INFO_V1(idem_purge_all);

/* The inbox by expiry: the column's number and its index. */
#define INBOX_EXPIRES_AT	2
#define INBOX_INDEX "idempotency_inbox_expires_at_idx"

/* All tables that a batch touches, and how. */
static const struct
{
	IdemTable	table;
	LOCKMODE	mode;
}			touched[] = {
	{IDEM_TABLE_LOG, RowExclusiveLock},
	{IDEM_TABLE_SCOPE, AccessShareLock},
	{IDEM_TABLE_CHECKPOINT, RowExclusiveLock},
	{IDEM_TABLE_CALL, RowExclusiveLock},
	{IDEM_TABLE_HISTORY, RowExclusiveLock},
	{IDEM_TABLE_INBOX, RowExclusiveLock},
};

/*
 * PurgeStart - a purge of all that is due now.
 */
void
PurgeStart(Purge *purge)
{
	memset(purge, 0, sizeof(*purge));
	purge->until = ClockNow();
	purge->log_from = DT_NOBEGIN;
	purge->inbox_from = DT_NOBEGIN;
}

/*
 * PurgeIsInstalled - is the extension there, with all that a purge needs?
 *
 * False also where it is of an older version than the library, so that the
 * worker leaves it alone instead of failing time and again.
 */
bool
PurgeIsInstalled(void)
{
	for (int i = 0; i < lengthof(touched); i++)
	{
		if (!OidIsValid(CatalogTableIfExists(touched[i].table)))
			return false;
	}
	return get_attname(CatalogTable(IDEM_TABLE_LOG), LOG_NATTS, true) != NULL &&
		OidIsValid(get_relname_relid(DUE_INDEX, CatalogSchema())) &&
		OidIsValid(get_relname_relid(INBOX_INDEX, CatalogSchema()));
}

/*
 * PurgeTryLock - locks all tables that a batch touches, until the transaction
 * ends; false where somebody is at one of them, or just dropped it.
 *
 * The worker locks them all before it begins and never waits for one: so it
 * cannot be part of a deadlock with DROP EXTENSION, which locks them in an
 * order of its own, and is nobody's obstacle for longer than a batch.
 */
bool
PurgeTryLock(void)
{
	for (int i = 0; i < lengthof(touched); i++)
	{
		Oid			table = CatalogTableIfExists(touched[i].table);

		if (!OidIsValid(table) ||
			!ConditionalLockRelationOid(table, touched[i].mode) ||
			CatalogTableIfExists(touched[i].table) != table)
			return false;
	}
	return true;
}

/* ---- requests ----------------------------------------------------------- */

/* Removes a key and all that belongs to its life; false: left alone. */
static bool
remove_key(Purge *purge, Log *log, const LogRow *row,
		   const ScopePolicy *policy)
{
	if (LogTryDelete(log, row) != LOG_WRITTEN)
		return false;
	LifeForget(row);
	StatCount(policy->stat_slot, STAT_PURGED, 1);
	purge->keys++;
	return true;
}

/* Makes it stored that a person must decide. */
static bool
turn_unknown(Purge *purge, Log *log, const LogRow *row,
			 const ScopePolicy *policy)
{
	UnknownReason reason = StateReason(row, policy, purge->until);
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];

	ReviewFill(row, policy, reason, values, nulls);
	if (LogTakeOver(log, row, values, nulls) != LOG_WRITTEN)
		return false;
	HistoryRecord(policy, row, values, nulls);
	purge->notify[reason] = true;
	purge->turned++;
	return true;
}

/* Sets the alarm again. */
static bool
postpone(Purge *purge, Log *log, const LogRow *row, const ScopePolicy *policy,
		 RequestState state)
{
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];

	LogCopyRow(row, values, nulls);
	values[LOG_DUE_AT] =
		TimestampTzGetDatum(DueNext(row, policy, state, purge->until));

	if (LogTakeOver(log, row, values, nulls) != LOG_WRITTEN)
		return false;
	purge->postponed++;
	return true;
}

/* Does what is to be done about a row; false where it was left alone. */
static bool
treat_row(Purge *purge, Log *log, const LogRow *row)
{
	ScopePolicy policy;
	RequestState state;

	if (LogRowIsHeldHere(row) && LogRowStatus(row) == LOG_PROCESSING)
		return false;

	policy = ScopeResolve(DatumGetTextPP(row->values[LOG_SCOPE]));
	state = StateJudge(row, &policy, purge->until);
	if (state == STATE_ABSENT)
		return remove_key(purge, log, row, &policy);
	if (state == STATE_UNKNOWN && LogRowStatus(row) != LOG_UNKNOWN)
		return turn_unknown(purge, log, row, &policy);
	return postpone(purge, log, row, &policy, state);
}

/* Goes through requests that are due; returns the number of rows written. */
static int64
purge_log(Purge *purge, int64 limit)
{
	MemoryContext per_row = AllocSetContextCreate(CurrentMemoryContext,
												  "idempotency purged row",
												  ALLOCSET_DEFAULT_SIZES);
	int64		written = 0;
	DueScan		scan;
	LogRow		row;
	Log			log;

	LogOpen(&log);
	DueScanBegin(&log, purge->log_from, purge->until, &scan);
	while (written < limit && DueScanNext(&log, &scan, &row))
	{
		MemoryContext old = MemoryContextSwitchTo(per_row);

		CHECK_FOR_INTERRUPTS();
		purge->log_from = LogRowTime(&row, LOG_DUE_AT, purge->log_from);
		if (treat_row(purge, &log, &row))
			written++;
		MemoryContextSwitchTo(old);
		MemoryContextReset(per_row);
	}
	DueScanEnd(&scan);
	LogClose(&log);
	MemoryContextDelete(per_row);
	return written;
}

/* ---- messages ----------------------------------------------------------- */

/* Removes one version of a message without waiting for anybody. */
static bool
remove_message(Relation rel, TupleTableSlot *slot)
{
	ItemPointerData tid = slot->tts_tid;
	TM_FailureData failure;

	return table_tuple_delete(rel, &tid, GetCurrentCommandId(true),
							  GetActiveSnapshot(), InvalidSnapshot, false,
							  &failure, false) == TM_Ok;
}

/* Begins a scan of expired messages, as DueScanBegin does of requests. */
static IndexScanDesc
begin_inbox_scan(const Purge *purge, Relation rel, Relation index)
{
	ScanKeyData keys[2];
	IndexScanDesc scan;

	ScanKeyInit(&keys[0], 1, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				TimestampTzGetDatum(purge->inbox_from));
	ScanKeyInit(&keys[1], 1, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE,
				TimestampTzGetDatum(purge->until));
	scan = compat_index_beginscan(rel, index, SnapshotSelf, 2);
	index_rescan(scan, keys, 2, NULL, 0);
	return scan;
}

/* Removes expired messages; returns their number. */
static int64
purge_inbox(Purge *purge, int64 limit)
{
	Relation	rel = table_open(CatalogTable(IDEM_TABLE_INBOX),
								 RowExclusiveLock);
	Relation	index = index_open(CatalogIndex(INBOX_INDEX),
								   RowExclusiveLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan = begin_inbox_scan(purge, rel, index);
	int64		removed = 0;

	while (removed < limit &&
		   index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;
		Datum		expires_at = slot_getattr(slot, INBOX_EXPIRES_AT, &isnull);

		CHECK_FOR_INTERRUPTS();
		purge->inbox_from = DatumGetTimestampTz(expires_at);
		if (remove_message(rel, slot))
			removed++;
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, NoLock);
	table_close(rel, NoLock);
	if (removed > 0)
		StatCount(StatFindSlot(NULL, -1), STAT_PURGED, removed);
	purge->messages += removed;
	return removed;
}

/* ---- batches ------------------------------------------------------------ */

/* Tells once per kind that there is something new to decide. */
static void
notify_review(Purge *purge)
{
	for (int reason = 0; reason < lengthof(purge->notify); reason++)
	{
		if (!purge->notify[reason])
			continue;
		ReviewNotify((UnknownReason) reason);
		purge->notify[reason] = false;
	}
}

/*
 * PurgeBatch - goes on with a purge, writing at most limit rows; true where
 * there may be more to do.
 *
 * Runs in the caller's transaction and under its active snapshot.  Requests
 * and messages get half of the batch each, and what the other one leaves, so
 * that neither has to wait until there are none of the other.
 */
bool
PurgeBatch(Purge *purge, int64 limit)
{
	int64		share = limit - limit / 2;
	int64		from_log = purge_log(purge, share);
	int64		written = from_log;

	written += purge_inbox(purge, limit - written);
	if (from_log == share && written < limit)
		written += purge_log(purge, limit - written);
	notify_review(purge);
	return written == limit;
}

/*
 * idem_purge(max_rows bigint) returns bigint - one batch in the caller's
 * transaction; the number of requests and messages that it removed.
 */
Datum
idem_purge(PG_FUNCTION_ARGS)
{
	int64		limit = PG_ARGISNULL(0) ? idem_purge_batch_size :
		PG_GETARG_INT64(0);
	Purge		purge;

	if (limit < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_rows must not be negative"),
				 errhint("Leave it out to use \"%s\".",
						 "idempotency.purge_batch_size")));
	PreventCommandIfReadOnly("idem_purge()");

	PurgeStart(&purge);
	(void) PurgeBatch(&purge, limit);
	PG_RETURN_INT64(purge.keys + purge.messages);
}

/* Sleeps for purge_delay, without a snapshot, interruptible. */
static void
pause_between_batches(void)
{
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = compat_wait_event("IdempotencyPurgeDelay");
	if (idem_purge_delay_ms == 0)
		return;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 idem_purge_delay_ms, wait_event);
	ResetLatch(MyLatch);
}

/* May this call commit on the way? */
static void
require_nonatomic(FunctionCallInfo fcinfo)
{
	CallContext *context = (CallContext *) fcinfo->context;

	if (context == NULL || !IsA(context, CallContext) || context->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("idem_purge_all() cannot run inside a transaction block"),
				 errhint("Call it by itself, outside of BEGIN and of functions, or call idem_purge() instead.")));
}

/*
 * idem_purge_all() - all that is due, a transaction per batch.
 */
Datum
idem_purge_all(PG_FUNCTION_ARGS)
{
	Purge		purge;
	bool		more = true;
	MemoryContext per_batch;
	MemoryContext caller;

	require_nonatomic(fcinfo);
	PreventCommandIfReadOnly("idem_purge_all()");

	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the server programming interface");
	PurgeStart(&purge);
	per_batch = AllocSetContextCreate(CurrentMemoryContext,
									  "idempotency purge batch",
									  ALLOCSET_DEFAULT_SIZES);
	while (more)
	{
		caller = MemoryContextSwitchTo(per_batch);
		PushActiveSnapshot(GetTransactionSnapshot());
		more = PurgeBatch(&purge, idem_purge_batch_size);
		PopActiveSnapshot();
		MemoryContextSwitchTo(caller);
		SPI_commit();
		MemoryContextReset(per_batch);
		if (more)
			pause_between_batches();
		CHECK_FOR_INTERRUPTS();
	}
	SPI_finish();
	PG_RETURN_VOID();
}
