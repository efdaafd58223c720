/*-------------------------------------------------------------------------
 *
 * finish.c
 *	  Recording how a request ended: idem_finish and idem_fail.
 *
 * One end is recorded per claim.  The same one again, by a caller who did not
 * hear that his COMMIT went through, is no error as long as he wrote nothing
 * else in the repeating transaction: those writes would be the second ones.
 * "Wrote nothing" is "has no transaction id", which errs on the safe side.
 *
 * Against a takeover that is under way: whoever locks the row first wins; the
 * other one waits for its end (HolderFind) and then meets another token.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "backoff.h"
#include "clock.h"
#include "errors.h"
#include "finish.h"
#include "history.h"
#include "isolation.h"
#include "miscadmin.h"
#include "stat.h"
#include "state.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_finish);
PG_FUNCTION_INFO_V1(idem_fail);

/* Where each column of a response is stored. */
static const LogColumn response_columns[RESPONSE_NCOLS] = {
	[RESPONSE_CODE] = LOG_RESPONSE_CODE,
	[RESPONSE_HEADERS] = LOG_RESPONSE_HEADERS,
	[RESPONSE_BYTES] = LOG_RESPONSE_BYTES,
	[RESPONSE_BODY] = LOG_RESPONSE_BODY,
	[RESPONSE_ERROR] = LOG_ERROR,
};

/*
 * FinishInitEnd - an end without a response, completed or failed; made before
 * anything is written by the call.
 */
void
FinishInitEnd(RequestEnd *end, bool failed)
{
	memset(end, 0, sizeof(*end));
	memset(end->nulls, true, sizeof(end->nulls));
	end->failed = failed;
	end->after_writes = TransactionIdIsValid(GetTopTransactionIdIfAny());
}

/*
 * FinishSetResponse - takes one column of the response from an argument.
 */
void
FinishSetResponse(RequestEnd *end, ResponseColumn column,
				  FunctionCallInfo fcinfo, int arg)
{
	end->nulls[column] = PG_ARGISNULL(arg);
	end->values[column] = PG_GETARG_DATUM(arg);
}

/*
 * FinishSetRetry - takes from arguments whether a failure is final, and when
 * it may be retried if it is not.
 */
void
FinishSetRetry(RequestEnd *end, FunctionCallInfo fcinfo, int final_arg,
			   int retry_after_arg)
{
	end->final = !PG_ARGISNULL(final_arg) && PG_GETARG_BOOL(final_arg);
	if (PG_ARGISNULL(retry_after_arg))
		return;
	end->retry_after = PG_GETARG_INTERVAL_P(retry_after_arg);
	if (ClockIntervalIsNegative(end->retry_after))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("retry_after must not be negative"),
				 errhint("Zero lets the next claim run at once.")));
}

static bool
is_equal_jsonb(Datum a, Datum b)
{
	return compareJsonbContainers(&DatumGetJsonbP(a)->root,
								  &DatumGetJsonbP(b)->root) == 0;
}

static bool
is_equal_response(ResponseColumn column, Datum a, Datum b)
{
	switch (column)
	{
		case RESPONSE_CODE:
			return DatumGetInt32(a) == DatumGetInt32(b);
		case RESPONSE_BYTES:
			return DatumGetBool(DirectFunctionCall2(byteaeq, a, b));
		default:
			return is_equal_jsonb(a, b);
	}
}

/*
 * FinishIsSame - did the request end just like this?
 */
bool
FinishIsSame(const LogRow *row, const RequestEnd *end)
{
	if ((LogRowStatus(row) == LOG_FAILED) != end->failed)
		return false;
	if (end->final && !row->nulls[LOG_RETRY_AT])
		return false;
	for (int i = 0; i < RESPONSE_NCOLS; i++)
	{
		LogColumn	column = response_columns[i];

		if (row->nulls[column] != end->nulls[i])
			return false;
		if (!end->nulls[i] &&
			!is_equal_response(i, row->values[column], end->values[i]))
			return false;
	}
	return true;
}

/* A failure that may be retried: when, and until when it is remembered. */
static void
fill_retry(const LogRow *row, const ScopePolicy *policy,
		   const RequestEnd *end, TimestampTz now, Datum *values, bool *nulls)
{
	Interval	pause;
	TimestampTz retry_at;

	if (end->retry_after != NULL)
		pause = *end->retry_after;
	else
		pause = BackoffFor(LogRowInt32(row, LOG_ATTEMPT),
						   &policy->backoff_base, &policy->backoff_cap,
						   BACKOFF_FULL);
	retry_at = ClockAdd(now, &pause);

	values[LOG_RETRY_AT] = TimestampTzGetDatum(retry_at);
	nulls[LOG_RETRY_AT] = false;
	nulls[LOG_COMPLETED_AT] = true;
	values[LOG_EXPIRES_AT] =
		TimestampTzGetDatum(ClockAdd(retry_at,
									 DatumGetIntervalP(row->values[LOG_TTL])));
}

/* What is final: remembered from now on. */
static void
fill_final(const LogRow *row, TimestampTz now, Datum *values, bool *nulls)
{
	nulls[LOG_RETRY_AT] = true;
	values[LOG_COMPLETED_AT] = TimestampTzGetDatum(now);
	nulls[LOG_COMPLETED_AT] = false;
	values[LOG_EXPIRES_AT] =
		TimestampTzGetDatum(ClockAdd(now,
									 DatumGetIntervalP(row->values[LOG_TTL])));
}

/*
 * FinishFillEnd - the row's new version.
 *
 * A failure is final on the last attempt allowed; where the attempt was only
 * interrupted, one more is granted.
 *
 * due_at is left alone, so that the update can be HOT, but where it would keep
 * the row from the purge for ever.
 */
void
FinishFillEnd(const LogRow *row, const ScopePolicy *policy,
			  const RequestEnd *end, Datum *values, bool *nulls)
{
	TimestampTz now = ClockNow();
	LogStatus	status = end->failed ? LOG_FAILED : LOG_COMPLETED;

	LogCopyRow(row, values, nulls);

	for (int i = 0; i < RESPONSE_NCOLS; i++)
	{
		values[response_columns[i]] = end->values[i];
		nulls[response_columns[i]] = end->nulls[i];
	}
	values[LOG_STATUS] = CStringGetTextDatum(LogStatusName(status));
	nulls[LOG_LOCKED_UNTIL] = true;
	LogForgetPrior(nulls);
	nulls[LOG_REASON] = true;
	nulls[LOG_EXPIRES_AT] = false;
	if (end->interrupted)
		LogSetCount(values, nulls, LOG_GRANTED,
					LogRowInt32(row, LOG_ATTEMPT) + 1);
	if (end->failed && !end->final &&
		(end->interrupted || !StateAttemptsUsedUp(row, policy)))
		fill_retry(row, policy, end, now, values, nulls);
	else
		fill_final(row, now, values, nulls);
	if (TIMESTAMP_IS_NOEND(LogRowTime(row, LOG_DUE_AT, 0)))
		values[LOG_DUE_AT] = values[LOG_EXPIRES_AT];
	HistoryCount(policy, values, nulls);
}

/* What a claim that has ended already means for this end. */
static FinishOutcome
compare_with_recorded(const LogRow *row, const RequestEnd *end)
{
	if (!FinishIsSame(row, end))
		return FINISH_DIFFERENT;
	if (!LogRowIsHeldHere(row) && end->after_writes)
		return FINISH_AFTER_WRITES;
	return FINISH_ALREADY;
}

/*
 * FinishWrite - writes the end of a claim that the holder was found to hold;
 * values are what is stored then.  False where the row changed meanwhile.
 */
bool
FinishWrite(Log *log, const Holder *holder, const LogRow *row,
			const RequestEnd *end, Datum *values, bool *nulls)
{
	PreventCommandIfReadOnly(end->failed ? "idem_fail()" : "idem_finish()");
	FinishFillEnd(row, &holder->policy, end, values, nulls);
	LogNoteHolder(values, nulls);
	if (LogUpdate(log, row, values, nulls) != LOG_WRITTEN)
	{
		IsolationCheck();
		return false;
	}
	HistoryRecord(&holder->policy, row, values, nulls);
	HolderNoteEnd(&holder->key, row);
	StatCount(holder->policy.stat_slot,
			  end->failed ? STAT_FAILED : STAT_COMPLETED, 1);
	return true;
}

/*
 * FinishRecord - records an end.  Where it is refused, verdict says why; row
 * is what was found, pinned.
 */
FinishOutcome
FinishRecord(Log *log, const Holder *holder, const RequestEnd *end,
			 HolderVerdict *verdict, LogRow *row)
{
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];

	do
	{
		*verdict = HolderFind(log, holder, row);
		if (*verdict == HOLDER_ENDED)
			return compare_with_recorded(row, end);
		if (*verdict != HOLDER_HOLDS)
			return FINISH_REFUSED;
	} while (!FinishWrite(log, holder, row, end, values, nulls));
	return FINISH_RECORDED;
}

/*
 * FinishOrRaise - the same with errors: true is recorded now, false before.
 */
bool
FinishOrRaise(Log *log, const Holder *holder, const RequestEnd *end)
{
	HolderVerdict verdict;
	LogRow		row;

	switch (FinishRecord(log, holder, end, &verdict, &row))
	{
		case FINISH_RECORDED:
			return true;
		case FINISH_ALREADY:
			return false;
		case FINISH_AFTER_WRITES:
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_ALREADY_RECORDED),
					 errmsg("end of the request is already recorded"),
					 errdetail("%s was ended the same way by an earlier transaction, and this one has written something.",
							   RequestDescribe(&holder->key)),
					 errhint("Roll back: the writes of this transaction were made before. Call idem_finish() last, or first and write only where it returns true.")));
			break;
		case FINISH_DIFFERENT:
			HolderRaiseEnded(holder, &row, true);
			break;
		case FINISH_REFUSED:
			HolderRaise(holder, verdict, &row);
			break;
	}
	pg_unreachable();
}

static bool
finish_by_args(Holder *holder, const RequestEnd *end)
{
	Log			log;
	bool		recorded;

	LogOpen(&log);
	holder->policy = ScopeEnter(holder->key.scope);
	recorded = FinishOrRaise(&log, holder, end);
	LogClose(&log);
	return recorded;
}

/*
 * idem_finish(request_id text, response_body jsonb, response_code int,
 *			   token bigint, scope text, response_headers jsonb,
 *			   response_bytes bytea) returns boolean
 */
Datum
idem_finish(PG_FUNCTION_ARGS)
{
	Holder		holder = HolderFromArgs(fcinfo, 3, 4);
	RequestEnd	end;

	FinishInitEnd(&end, false);
	FinishSetResponse(&end, RESPONSE_BODY, fcinfo, 1);
	FinishSetResponse(&end, RESPONSE_CODE, fcinfo, 2);
	FinishSetResponse(&end, RESPONSE_HEADERS, fcinfo, 5);
	FinishSetResponse(&end, RESPONSE_BYTES, fcinfo, 6);
	PG_RETURN_BOOL(finish_by_args(&holder, &end));
}

/*
 * idem_fail(request_id text, error jsonb, response_code int, token bigint,
 *			 scope text, final boolean, retry_after interval,
 *			 response_headers jsonb, response_bytes bytea) returns boolean
 */
Datum
idem_fail(PG_FUNCTION_ARGS)
{
	Holder		holder = HolderFromArgs(fcinfo, 3, 4);
	RequestEnd	end;

	FinishInitEnd(&end, true);
	FinishSetResponse(&end, RESPONSE_ERROR, fcinfo, 1);
	FinishSetResponse(&end, RESPONSE_CODE, fcinfo, 2);
	FinishSetResponse(&end, RESPONSE_HEADERS, fcinfo, 7);
	FinishSetResponse(&end, RESPONSE_BYTES, fcinfo, 8);
	FinishSetRetry(&end, fcinfo, 5, 6);
	PG_RETURN_BOOL(finish_by_args(&holder, &end));
}
