/*-------------------------------------------------------------------------
 *
 * inflight.c
 *	  Requests that are not finished, as all transactions together see them:
 *	  idem_in_flight_claims, behind the view idem_in_flight.
 *
 * The whole log is read with a dirty snapshot, which also shows what other
 * sessions have not committed yet, and who they are.  It is for the person who
 * looks for the cause of a jam, not for programs that poll.
 *
 * Times are shown to the second only: to the microsecond, that of a claim would
 * be its token.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/subtrans.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "clock.h"
#include "compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "log.h"
#include "miscadmin.h"
#include "result.h"
#include "scope.h"
#include "state.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "waiting.h"

PG_FUNCTION_INFO_V1(idem_in_flight_claims);

typedef enum InFlightColumn
{
	IN_FLIGHT_SCOPE,
	IN_FLIGHT_REQUEST_ID,
	IN_FLIGHT_STATE,
	IN_FLIGHT_ATTEMPT,
	IN_FLIGHT_CLAIMED_BY,
	IN_FLIGHT_SINCE,
	IN_FLIGHT_UNTIL,
	IN_FLIGHT_PID,
	IN_FLIGHT_WAITING,
	IN_FLIGHT_NCOLS
} InFlightColumn;

/* The word for a committed row's state; NULL where it is not in flight. */
static const char *
name_of_state(const LogRow *row, const ScopePolicy *policy)
{
	switch (StateJudge(row, policy, ClockNow()))
	{
		case STATE_LEASED:
			return "leased";
		case STATE_LAPSED:
			return "lapsed";
		case STATE_BACKOFF:
			return "backing off";
		case STATE_RETRYABLE:
			return "retryable";
		case STATE_ABSENT:
		case STATE_FINISHED:
		case STATE_UNKNOWN:
			break;
	}
	return NULL;
}

/* When the claim was made: the time in its token, to the second. */
static TimestampTz
time_of_claim(const LogRow *row)
{
	int64		microseconds = LogRowInt64(row, LOG_TOKEN);

	return time_t_to_timestamptz((pg_time_t) (microseconds / USECS_PER_SEC));
}

/*
 * Process of the transaction that has the row uncommitted; 0 where there is no
 * such transaction, or where it is prepared and has no process any more.
 */
static int
pid_of_transaction(TransactionId xid)
{
	if (!TransactionIdIsValid(xid))
		return 0;
	if (TransactionIdIsCurrentTransactionId(xid))
		return MyProcPid;
	return BackendXidGetPid(SubTransGetTopmostTransaction(xid));
}

/* Puts out one row version, if it is in flight and open to the reader. */
static void
put_claim(ReturnSetInfo *rsinfo, const LogRow *row, const Waiting *waiting)
{
	RequestKey	key = {DatumGetTextPP(row->values[LOG_SCOPE]),
	DatumGetTextPP(row->values[LOG_REQUEST_ID])};
	ScopePolicy policy = ScopeLook(key.scope);
	Datum		values[IN_FLIGHT_NCOLS];
	bool		nulls[IN_FLIGHT_NCOLS] = {false};
	bool		backing_off = LogRowStatus(row) == LOG_FAILED;
	LogColumn	until = backing_off ? LOG_RETRY_AT : LOG_LOCKED_UNTIL;
	int			pid = pid_of_transaction(row->other);
	const char *state = TransactionIdIsValid(row->other) ?
		"uncommitted" : name_of_state(row, &policy);

	if (state == NULL || !ScopeIsOpen(&policy))
		return;
	values[IN_FLIGHT_SCOPE] = row->values[LOG_SCOPE];
	values[IN_FLIGHT_REQUEST_ID] = row->values[LOG_REQUEST_ID];
	values[IN_FLIGHT_STATE] = CStringGetTextDatum(state);
	values[IN_FLIGHT_ATTEMPT] = row->values[LOG_ATTEMPT];
	values[IN_FLIGHT_CLAIMED_BY] = row->values[LOG_CLAIMED_BY];
	values[IN_FLIGHT_SINCE] = TimestampTzGetDatum(time_of_claim(row));
	values[IN_FLIGHT_UNTIL] =
		TimestampTzGetDatum(ClockCoarse(LogRowTime(row, until, 0)));
	nulls[IN_FLIGHT_UNTIL] = row->nulls[until];
	values[IN_FLIGHT_PID] = Int32GetDatum(pid);
	nulls[IN_FLIGHT_PID] = pid == 0;
	nulls[IN_FLIGHT_WAITING] = !WaitingFor(waiting, &key, row->other,
										   &values[IN_FLIGHT_WAITING]);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * Has a transaction that is still in progress made a newer version?  An updated
 * version points to the next one, a deleted one to itself.  The update may have
 * been undone by ROLLBACK TO.
 */
static bool
is_replaced(TupleTableSlot *slot)
{
	Buffer		buffer = ((BufferHeapTupleTableSlot *) slot)->buffer;
	HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
	HeapTupleHeaderData header;

	/* What is read together must not change in between. */
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	header = *tuple->t_data;
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);

	if ((header.t_infomask & HEAP_XMAX_INVALID) ||
		HEAP_XMAX_IS_LOCKED_ONLY(header.t_infomask) ||
		ItemPointerEquals(&tuple->t_self, &header.t_ctid))
		return false;
	return !TransactionIdDidAbort(HeapTupleHeaderGetUpdateXid(&header));
}

/*
 * Describes the version in the slot; false where another one stands for the
 * row: a version that is being replaced, or none at all.
 */
static bool
describe_version(TupleTableSlot *slot, const SnapshotData *dirty, LogRow *row)
{
	bool		isnull;
	TransactionId xmin;

	if (dirty->speculativeToken != 0)
		return false;
	if ((TransactionIdIsValid(dirty->xmin) ||
		 TransactionIdIsValid(dirty->xmax)) && is_replaced(slot))
		return false;

	slot_getallattrs(slot);
	xmin = DatumGetTransactionId(slot_getsysattr(slot,
												 MinTransactionIdAttributeNumber,
												 &isnull));
	row->sight = LOG_SIGHT_COMMITTED;
	row->other = TransactionIdIsValid(dirty->xmin) ? dirty->xmin : dirty->xmax;
	if (TransactionIdIsCurrentTransactionId(xmin))
		row->other = xmin;
	row->tid = slot->tts_tid;
	row->values = slot->tts_values;
	row->nulls = slot->tts_isnull;
	return true;
}

/* Finished requests are in flight while their end is not committed. */
static bool
may_be_in_flight(const LogRow *row)
{
	LogStatus	status = LogRowStatus(row);

	return status == LOG_PROCESSING || status == LOG_FAILED ||
		TransactionIdIsValid(row->other);
}

/*
 * idem_in_flight_claims()
 */
Datum
idem_in_flight_claims(PG_FUNCTION_ARGS)
{
	MemoryContext per_row = AllocSetContextCreate(CurrentMemoryContext,
												  "idempotency in flight",
												  ALLOCSET_SMALL_SIZES);
	SnapshotData dirty;
	TableScanDesc scan;
	Waiting		waiting;
	Log			log;

	ResultInitSet(fcinfo);
	WaitingRead(&waiting);
	memset(&dirty, 0, sizeof(dirty));
	InitDirtySnapshot(dirty);
	LogOpen(&log);
	scan = table_beginscan(log.rel, &dirty, 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, log.found))
	{
		MemoryContext context = MemoryContextSwitchTo(per_row);
		LogRow		row;

		CHECK_FOR_INTERRUPTS();
		if (describe_version(log.found, &dirty, &row) && may_be_in_flight(&row))
			put_claim((ReturnSetInfo *) fcinfo->resultinfo, &row, &waiting);
		dirty.speculativeToken = 0;
		MemoryContextSwitchTo(context);
		MemoryContextReset(per_row);
	}
	table_endscan(scan);
	LogClose(&log);
	MemoryContextDelete(per_row);
	return (Datum) 0;
}
