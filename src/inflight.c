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

#include "access/subtrans.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
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
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

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
	IN_FLIGHT_XID,
	IN_FLIGHT_PID,
	IN_FLIGHT_NCOLS
} InFlightColumn;

/* The word for a committed row's state; NULL where it is not in flight. */
static const char *
name_of_state(const LogRow *row)
{
	ScopePolicy policy = ScopeResolve(DatumGetTextPP(row->values[LOG_SCOPE]));

	switch (StateJudge(row, &policy, ClockNow()))
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

/* Who has the row uncommitted, if somebody has. */
static void
set_transaction(TransactionId xid, Datum *values, bool *nulls)
{
	int			pid;

	nulls[IN_FLIGHT_XID] = nulls[IN_FLIGHT_PID] = true;
	if (!TransactionIdIsValid(xid))
		return;
	values[IN_FLIGHT_XID] = TransactionIdGetDatum(xid);
	nulls[IN_FLIGHT_XID] = false;

	if (!TransactionIdIsCurrentTransactionId(xid))
		xid = SubTransGetTopmostTransaction(xid);
	pid = TransactionIdIsCurrentTransactionId(xid) ? MyProcPid :
		BackendXidGetPid(xid);
	values[IN_FLIGHT_PID] = Int32GetDatum(pid);
	nulls[IN_FLIGHT_PID] = pid == 0;
}

/* Puts out one row version, if it is in flight. */
static void
put_claim(ReturnSetInfo *rsinfo, const LogRow *row)
{
	Datum		values[IN_FLIGHT_NCOLS];
	bool		nulls[IN_FLIGHT_NCOLS] = {false};
	bool		backing_off = LogRowStatus(row) == LOG_FAILED;
	LogColumn	until = backing_off ? LOG_RETRY_AT : LOG_LOCKED_UNTIL;
	const char *state = TransactionIdIsValid(row->other) ?
		"uncommitted" : name_of_state(row);

	if (state == NULL)
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
	set_transaction(row->other, values, nulls);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
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
	if (!TransactionIdIsValid(dirty->xmin) && TransactionIdIsValid(dirty->xmax))
		return false;

	slot_getallattrs(slot);
	xmin = DatumGetTransactionId(slot_getsysattr(slot,
												 MinTransactionIdAttributeNumber,
												 &isnull));
	row->sight = LOG_SIGHT_COMMITTED;
	row->other = dirty->xmin;
	if (TransactionIdIsCurrentTransactionId(xmin))
		row->other = xmin;
	row->tid = slot->tts_tid;
	row->values = slot->tts_values;
	row->nulls = slot->tts_isnull;
	return true;
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
	Log			log;

	ResultInitSet(fcinfo);
	memset(&dirty, 0, sizeof(dirty));
	InitDirtySnapshot(dirty);
	LogOpen(&log);
	scan = table_beginscan(log.rel, &dirty, 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, log.found))
	{
		MemoryContext context = MemoryContextSwitchTo(per_row);
		LogRow		row;

		CHECK_FOR_INTERRUPTS();
		if (describe_version(log.found, &dirty, &row) &&
			(LogRowStatus(&row) == LOG_PROCESSING ||
			 LogRowStatus(&row) == LOG_FAILED ||
			 TransactionIdIsValid(row.other)))
			put_claim((ReturnSetInfo *) fcinfo->resultinfo, &row);
		dirty.speculativeToken = 0;
		MemoryContextSwitchTo(context);
		MemoryContextReset(per_row);
	}
	table_endscan(scan);
	LogClose(&log);
	MemoryContextDelete(per_row);
	return (Datum) 0;
}
