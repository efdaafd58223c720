/*-------------------------------------------------------------------------
 *
 * resolve.c
 *	  Settling a request by a person's word: idem_resolve.
 *
 * What a person decides ends every claim on the request that there is: the
 * token grows, so whoever held it is refused from then on.  It settles the
 * request's external calls as well, as far as they are without an answer.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "callrow.h"
#include "clock.h"
#include "errors.h"
#include "finish.h"
#include "history.h"
#include "isolation.h"
#include "miscadmin.h"
#include "resolve.h"
#include "review.h"
#include "state.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_resolve);

typedef enum Verdict
{
	VERDICT_COMPLETED,
	VERDICT_FAILED,
	VERDICT_RETRY
} Verdict;

static Verdict
parse_verdict(FunctionCallInfo fcinfo, int arg)
{
	char	   *name;

	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("verdict must not be null"),
				 errhint("Use \"completed\", \"failed\" or \"retry\".")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(arg));
	if (strcmp(name, "completed") == 0)
		return VERDICT_COMPLETED;
	if (strcmp(name, "failed") == 0)
		return VERDICT_FAILED;
	if (strcmp(name, "retry") == 0)
		return VERDICT_RETRY;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized verdict: \"%s\"", name),
			 errhint("Use \"completed\", \"failed\" or \"retry\".")));
}

/* The result that a verdict states, if it states one. */
static RequestEnd
end_of_verdict(Verdict verdict, FunctionCallInfo fcinfo)
{
	RequestEnd	end;

	FinishInitEnd(&end, verdict == VERDICT_FAILED);
	end.final = end.failed;
	FinishSetResponse(&end, end.failed ? RESPONSE_ERROR : RESPONSE_BODY,
					  fcinfo, 2);
	FinishSetResponse(&end, RESPONSE_CODE, fcinfo, 3);
	return end;
}

/*
 * ResolveFillRetry - the row's new version with one more attempt granted, at
 * once, whatever the scope allows.  The caller sees to token and open calls.
 */
void
ResolveFillRetry(const LogRow *row, const ScopePolicy *policy, Datum *values,
				 bool *nulls)
{
	TimestampTz now = ClockNow();
	TimestampTz expires_at = ClockAdd(now,
									  DatumGetIntervalP(row->values[LOG_TTL]));

	LogCopyRow(row, values, nulls);
	values[LOG_STATUS] = CStringGetTextDatum(LogStatusName(LOG_FAILED));
	LogSetCount(values, nulls, LOG_GRANTED, LogRowInt32(row, LOG_ATTEMPT) + 1);
	values[LOG_RETRY_AT] = TimestampTzGetDatum(now);
	nulls[LOG_RETRY_AT] = false;
	values[LOG_EXPIRES_AT] = TimestampTzGetDatum(expires_at);
	nulls[LOG_EXPIRES_AT] = false;
	nulls[LOG_LOCKED_UNTIL] = true;
	LogForgetPrior(nulls);
	nulls[LOG_REASON] = true;
	if (TIMESTAMP_IS_NOEND(LogRowTime(row, LOG_DUE_AT, 0)))
		values[LOG_DUE_AT] = values[LOG_EXPIRES_AT];
	HistoryCount(policy, values, nulls);
}

/* What a verdict says of the calls that nobody has answered. */
static CallStatus
call_status_of(Verdict verdict)
{
	switch (verdict)
	{
		case VERDICT_COMPLETED:
			return CALL_SUCCEEDED;
		case VERDICT_FAILED:
			return CALL_FAILED;
		case VERDICT_RETRY:
			break;
	}
	return CALL_NOT_SENT;
}

/* Is there something to settle?  An error where it must not be. */
static bool
is_to_be_settled(const LogRow *row, const Holder *holder, Verdict verdict,
				 const RequestEnd *end, bool force)
{
	RequestState state = StateJudge(row, &holder->policy, ClockNow());

	switch (state)
	{
		case STATE_UNKNOWN:
			return true;
		case STATE_ABSENT:
			HolderRaise(holder, HOLDER_EXPIRED, row);
			break;
		case STATE_FINISHED:
			if (verdict == VERDICT_RETRY || !FinishIsSame(row, end))
				HolderRaiseEnded(holder, row, true);
			return false;
		case STATE_BACKOFF:
		case STATE_RETRYABLE:
			if (verdict == VERDICT_RETRY && state == STATE_RETRYABLE)
				return false;
			break;
		case STATE_LEASED:
		case STATE_LAPSED:
			break;
	}
	if (!force)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_IN_PROGRESS),
				 errmsg("request is not of unknown outcome"),
				 errdetail("%s is %s.", RequestDescribe(&holder->key),
						   StateDescribe(state)),
				 errhint("Let it take its course, or pass force => true to end it; its token is refused from then on.")));
	return true;
}

static bool
settle(Log *log, const Holder *holder, Verdict verdict,
	   const RequestEnd *end, bool force)
{
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];
	UnknownReason reason;
	LogRow		row;

	for (;;)
	{
		HolderFindRow(log, &holder->key, &row);
		if (row.sight == LOG_SIGHT_NOTHING)
			HolderRaise(holder, HOLDER_ABSENT, NULL);
		if (!is_to_be_settled(&row, holder, verdict, end, force))
			return false;
		reason = StateReason(&row, &holder->policy, ClockNow());

		PreventCommandIfReadOnly("idem_resolve()");
		if (LogAwaitLocks(log, &row))
			continue;
		if (verdict == VERDICT_RETRY)
			ResolveFillRetry(&row, &holder->policy, values, nulls);
		else
			FinishFillEnd(&row, &holder->policy, end, values, nulls);
		values[LOG_TOKEN] = Int64GetDatum(LogRowInt64(&row, LOG_TOKEN) + 1);
		LogSetCount(values, nulls, LOG_OPEN_CALLS, 0);
		if (LogUpdate(log, &row, values, nulls) == LOG_WRITTEN)
			break;
		IsolationCheck();
	}
	if (LogRowInt32(&row, LOG_OPEN_CALLS) > 0)
		CallrowSettleOpen(&row, call_status_of(verdict));
	HistoryRecord(&holder->policy, &row, values, nulls);
	if (reason != REASON_NONE && LogRowStatus(&row) != LOG_UNKNOWN)
		ReviewNotify(reason);
	HolderNoteEnd(&holder->key, &row);
	return true;
}

/*
 * idem_resolve(request_id text, verdict text, response_body jsonb,
 *				response_code int, scope text, force boolean) returns boolean
 */
Datum
idem_resolve(PG_FUNCTION_ARGS)
{
	Holder		holder = {0};
	Verdict		verdict;
	RequestEnd	end;
	bool		force = !PG_ARGISNULL(5) && PG_GETARG_BOOL(5);
	bool		settled;
	Log			log;

	holder.key = RequestKeyFromArgs(fcinfo, 0, 4);
	verdict = parse_verdict(fcinfo, 1);
	end = end_of_verdict(verdict, fcinfo);

	LogOpen(&log);
	holder.policy = ScopeEnter(holder.key.scope);
	settled = settle(&log, &holder, verdict, &end, force);
	LogClose(&log);
	PG_RETURN_BOOL(settled);
}
