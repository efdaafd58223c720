/*-------------------------------------------------------------------------
 *
 * due.c
 *	  When a request has to be looked at without being asked for.
 *
 * due_at is an alarm, not a judgement: not before that time does anybody have
 * to look at the row.  It is the log's only indexed column beside the key, and
 * an end does not change it, so that an end is a HOT update; whoever finds a
 * row that is due judges it (state.c) and, where it is too early, sets the
 * alarm again (DueNext).
 *
 * An alarm may be early.  It must not be late by more than the rest of a lease
 * where a key expires, and not at all where a person has to be asked, since
 * idem_review finds by it what nobody has turned yet.  So it is set
 *
 *	 by the first claim of a life	to the end of the lease plus ttl, or to the
 *									end of the lease where a person may have
 *									to be asked then (claim.c)
 *	 by a later claim				to the end of its lease, if that is earlier
 *									and a person may have to be asked (claim.c)
 *	 by a change of policy			to the end of the lease of all claims that
 *									are open (DueBringForward)
 *	 by the purge					to what DueNext says
 *	 while a person must decide		to infinity
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/skey.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "due.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* Shortest time to the next alarm of a row that was looked at in vain. */
#define SHORTEST_PAUSE	USECS_PER_SEC

/*
 * DueScanBegin - begins a scan of the rows whose alarm is in [from, until],
 * the earliest first.
 *
 * The scan shows what is committed at the moment, or our own, and takes no
 * predicate locks: a purge in a SERIALIZABLE transaction must not conflict
 * with every claim that sets an alarm.  That a row may change after it was
 * shown is found when it is written.  Its slot's pin keeps the version in
 * place until then.
 */
void
DueScanBegin(Log *log, TimestampTz from, TimestampTz until, DueScan *scan)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], 1, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				TimestampTzGetDatum(from));
	ScanKeyInit(&keys[1], 1, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE,
				TimestampTzGetDatum(until));
	scan->index = index_open(CatalogIndex(DUE_INDEX), RowExclusiveLock);
	scan->scan = compat_index_beginscan(log->rel, scan->index, SnapshotSelf,
										2);
	index_rescan(scan->scan, keys, 2, NULL, 0);
}

/*
 * DueScanNext - the next row, valid until the next call; false at the end.
 */
bool
DueScanNext(Log *log, DueScan *scan, LogRow *row)
{
	if (!index_getnext_slot(scan->scan, ForwardScanDirection, log->found))
		return false;
	LogRowFound(log, row);
	return true;
}

/*
 * DueScanEnd - lets go of everything but the lock.
 */
void
DueScanEnd(DueScan *scan)
{
	index_endscan(scan->scan);
	index_close(scan->index, NoLock);
}

/*
 * DueNext - when a row that is not to be removed has to be looked at again;
 * always later than now.
 */
TimestampTz
DueNext(const LogRow *row, const ScopePolicy *policy, RequestState state,
		TimestampTz now)
{
	TimestampTz due;

	if (state == STATE_UNKNOWN)
		return DT_NOEND;
	if (state == STATE_LEASED && ScopeMayNeedPerson(policy))
		due = LogRowTime(row, LOG_LOCKED_UNTIL, DT_NOEND);
	else
		due = LogRowTime(row, LOG_EXPIRES_AT, DT_NOEND);
	return Max(due, now + SHORTEST_PAUSE);
}

/* ---- after a change of policy ------------------------------------------- */

/* Is the scope of a row the given one, or below it? */
static bool
is_within(const LogRow *row, const text *scope)
{
	text	   *found = DatumGetTextPP(row->values[LOG_SCOPE]);
	int			len = VARSIZE_ANY_EXHDR(scope);
	int			found_len = VARSIZE_ANY_EXHDR(found);

	if (len == 0)
		return true;
	return found_len >= len &&
		memcmp(VARDATA_ANY(found), VARDATA_ANY(scope), len) == 0 &&
		(found_len == len || VARDATA_ANY(found)[len] == '/');
}

/* An open claim that will need a person, with its alarm after its lease? */
static bool
rings_too_late(const LogRow *row)
{
	TimestampTz locked_until = LogRowTime(row, LOG_LOCKED_UNTIL, DT_NOEND);
	ScopePolicy policy;

	if (LogRowStatus(row) != LOG_PROCESSING ||
		LogRowTime(row, LOG_DUE_AT, DT_NOEND) <= locked_until)
		return false;
	policy = ScopeResolve(DatumGetTextPP(row->values[LOG_SCOPE]));
	return ScopeMayNeedPerson(&policy);
}

/*
 * Waits for those who have an uncommitted claim in the scope, since it may
 * have been made under the policy as it was.  Their rows show themselves to
 * nobody else before they end.
 */
static void
await_open_transactions(Log *log, const text *scope)
{
	SnapshotData dirty;
	TableScanDesc scan;
	List	   *xids = NIL;
	ListCell   *lc;

	memset(&dirty, 0, sizeof(dirty));
	InitDirtySnapshot(dirty);
	scan = table_beginscan(log->rel, &dirty, 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, log->found))
	{
		TransactionId xid = TransactionIdIsValid(dirty.xmin) ?
			dirty.xmin : dirty.xmax;
		LogRow		row;

		CHECK_FOR_INTERRUPTS();
		if (!TransactionIdIsValid(xid))
			continue;
		LogRowFound(log, &row);
		if (is_within(&row, scope))
			xids = list_append_unique_oid(xids, xid);
	}
	table_endscan(scan);
	LogUnpin(log);

	foreach(lc, xids)
		XactLockTableWait(lfirst_oid(lc), NULL, NULL, XLTW_None);
	list_free(xids);
}

/* Sets the alarm of a row to the end of its lease; waits for who holds it. */
static bool
bring_row_forward(Log *log, const LogRow *row)
{
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];

	LogCopyRow(row, values, nulls);
	values[LOG_DUE_AT] = values[LOG_LOCKED_UNTIL];
	return LogUpdate(log, row, values, nulls) == LOG_WRITTEN;
}

/* Goes through the committed rows once; false where one changed meanwhile. */
static bool
bring_rows_forward(Log *log, const text *scope)
{
	Snapshot	snapshot = CatalogFreshSnapshot(log->rel);
	MemoryContext per_row = AllocSetContextCreate(CurrentMemoryContext,
												  "idempotency due row",
												  ALLOCSET_DEFAULT_SIZES);
	TableScanDesc scan = table_beginscan(log->rel, snapshot, 0, NULL);
	bool		all = true;

	while (table_scan_getnextslot(scan, ForwardScanDirection, log->found))
	{
		MemoryContext old = MemoryContextSwitchTo(per_row);
		LogRow		row;

		CHECK_FOR_INTERRUPTS();
		LogRowFound(log, &row);
		if (is_within(&row, scope) && rings_too_late(&row))
			all &= bring_row_forward(log, &row);
		MemoryContextSwitchTo(old);
		MemoryContextReset(per_row);
	}
	table_endscan(scan);
	LogUnpin(log);
	MemoryContextDelete(per_row);
	UnregisterSnapshot(snapshot);
	return all;
}

/*
 * DueBringForward - after the policy of a scope has changed: claims that are
 * open in it or below, and that a person may have to be asked about by the new
 * policy, become due when their lease ends.
 *
 * It waits for the end of transactions with an uncommitted claim there, as
 * long as lock_timeout and statement_timeout let it, and reads the whole log:
 * policies change rarely, and hardly ever in this direction.  A claim that is
 * made under the old policy between this and the commit of the new one is
 * treated by the new one as well, by whoever asks for it; only idem_review and
 * the purge come upon it later, ttl after its lease at the latest.
 */
void
DueBringForward(text *scope)
{
	ScopePolicy policy = ScopeResolve(scope);
	Log			log;

	if (!ScopeMayNeedPerson(&policy))
		return;
	LogOpen(&log);
	await_open_transactions(&log, scope);
	while (!bring_rows_forward(&log, scope))
		CHECK_FOR_INTERRUPTS();
	LogClose(&log);
}
