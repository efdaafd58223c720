/*-------------------------------------------------------------------------
 *
 * call.c
 *	  External calls of a request, recorded before they are sent: idem_call.
 *
 * The holder of a claim asks what to do about a call; what is known of it and
 * what its provider can do decide (callstate.c).  Whoever is told to send has
 * the call recorded as sent, with its id and body, before he sends it: the
 * commit is durable.  If he is never heard of again, the next holder finds it.
 *
 *	 first time					insert it, "send"
 *	 given out by this very		"send", as before; nothing is written
 *	  transaction
 *	 send again, inquire		the lease is renewed, for outside work follows
 *	 review						call and request turn in one transaction
 *	 wait, done					nothing is written
 *
 * Races and who wins: the call is written after the request's row, and the row
 * only in place of the version that was judged (LogTakeOver).  Whoever is at
 * the row first wins; another holder of the same token is told in_progress
 * without waiting, and one whose claim was taken over gets an error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "callrow.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "durability.h"
#include "extend.h"
#include "history.h"
#include "holder.h"
#include "isolation.h"
#include "miscadmin.h"
#include "result.h"
#include "review.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* Looks at a row that others keep changing; then somebody else is at it. */
#define MAX_TURNS 16

PG_FUNCTION_INFO_V1(idem_call);

/* Columns of the answer. */
typedef enum AnswerColumn
{
	ANSWER_ACTION,
	ANSWER_CALL_ID,
	ANSWER_ATTEMPT,
	ANSWER_STATUS,
	ANSWER_REQUEST_BODY,
	ANSWER_RESPONSE_BODY,
	ANSWER_RETRY_AFTER,
	ANSWER_NCOLS
} AnswerColumn;

static const ResultColumn answer_columns[ANSWER_NCOLS] = {
	[ANSWER_ACTION] = {"action", TEXTOID},
	[ANSWER_CALL_ID] = {"call_id", TEXTOID},
	[ANSWER_ATTEMPT] = {"attempt", INT4OID},
	[ANSWER_STATUS] = {"status", TEXTOID},
	[ANSWER_REQUEST_BODY] = {"request_body", JSONBOID},
	[ANSWER_RESPONSE_BODY] = {"response_body", JSONBOID},
	[ANSWER_RETRY_AFTER] = {"retry_after", INTERVALOID},
};

static ResultType answer_result = {answer_columns, ANSWER_NCOLS, NULL};

/* What a caller asks for, and the answer that is being found. */
typedef struct CallRequest
{
	Holder		holder;
	text	   *provider;
	text	   *operation;
	NullableDatum body;
	Provider	definition;
	Datum		values[ANSWER_NCOLS];
	bool		nulls[ANSWER_NCOLS];
} CallRequest;

/* ---- answers ----------------------------------------------------------- */

static void
start_answer(CallRequest *request, CallAction action)
{
	memset(request->nulls, true, sizeof(request->nulls));
	request->values[ANSWER_ACTION] =
		CStringGetTextDatum(CallstateActionName(action));
	request->nulls[ANSWER_ACTION] = false;
}

static void
answer_call(CallRequest *request, CallAction action, const Callrow *call)
{
	static const CallColumn from[ANSWER_NCOLS] = {
		[ANSWER_CALL_ID] = CALL_CALL_ID,
		[ANSWER_ATTEMPT] = CALL_ATTEMPT,
		[ANSWER_STATUS] = CALL_STATUS,
		[ANSWER_REQUEST_BODY] = CALL_REQUEST_BODY,
		[ANSWER_RESPONSE_BODY] = CALL_RESPONSE_BODY,
	};

	start_answer(request, action);
	for (int i = ANSWER_CALL_ID; i <= ANSWER_RESPONSE_BODY; i++)
	{
		request->values[i] = call->values[from[i]];
		request->nulls[i] = call->nulls[from[i]];
	}
}

static void
answer_wait(CallRequest *request, const Callrow *call, TimestampTz now)
{
	TimestampTz sent_at = DatumGetTimestampTz(call->values[CALL_SENT_AT]);
	TimestampTz until = CallstateDeadline(&request->definition, sent_at);
	Interval   *left = ClockIntervalBetween(now, until);

	answer_call(request, CALL_DO_WAIT, call);
	request->values[ANSWER_RETRY_AFTER] = IntervalPGetDatum(left);
	request->nulls[ANSWER_RETRY_AFTER] = left == NULL;
}

/* ---- writing ----------------------------------------------------------- */

/*
 * Writes the request's row; false where the call is not to be written: either
 * the row has changed (look again), or somebody holds it (answered then).
 */
static bool
write_row(Log *log, CallRequest *request, const LogRow *row,
		  const Datum *values, const bool *nulls, bool *answered)
{
	*answered = false;
	PreventCommandIfReadOnly("idem_call()");
	switch (LogTakeOver(log, row, values, nulls))
	{
		case LOG_WRITTEN:
			DurabilityRequireFlush();
			return true;
		case LOG_BUSY:
			start_answer(request, CALL_DO_YIELD);
			*answered = true;
			break;
		case LOG_LOST:
			IsolationCheck();
			break;
	}
	return false;
}

/* A call as it is first recorded. */
static void
fill_first(const CallRequest *request, const LogRow *row, Callrow *call)
{
	memset(call->nulls, false, sizeof(call->nulls));
	call->values[CALL_CALL_ID] = PointerGetDatum(CallrowNewId());
	call->values[CALL_SCOPE] = row->values[LOG_SCOPE];
	call->values[CALL_REQUEST_ID] = row->values[LOG_REQUEST_ID];
	call->values[CALL_LIFE] = row->values[LOG_LIFE];
	call->values[CALL_PROVIDER] = PointerGetDatum(request->provider);
	call->values[CALL_OPERATION] = PointerGetDatum(request->operation);
	call->values[CALL_ATTEMPT] = Int32GetDatum(0);
	call->values[CALL_CREATED_AT] = TimestampTzGetDatum(ClockNow());
	if (!request->body.isnull)
		call->values[CALL_REQUEST_BODY] = request->body.value;
	else
	{
		call->values[CALL_REQUEST_BODY] = row->values[LOG_REQUEST_BODY];
		call->nulls[CALL_REQUEST_BODY] = row->nulls[LOG_REQUEST_BODY];
	}
}

/* Gives a call out to be sent, for the first time or again. */
static bool
give_out(Log *log, CallRequest *request, const LogRow *row, Callrow *call,
		 bool first)
{
	bool		was_open = !first && CallstateIsOpen(CallrowStatus(call));
	int32		open_calls = LogRowInt32(row, LOG_OPEN_CALLS);
	int32		calls = LogRowInt32(row, LOG_CALLS);
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];
	bool		answered;

	ExtendFillLease(row, NULL, values, nulls);
	LogSetCount(values, nulls, LOG_CALLS, calls + (first ? 1 : 0));
	LogSetCount(values, nulls, LOG_OPEN_CALLS, open_calls + (was_open ? 0 : 1));
	if (first)
		fill_first(request, row, call);
	if (!write_row(log, request, row, values, nulls, &answered))
		return answered;

	CallrowGiveOut(call);
	if (first)
		CallrowInsert(call);
	else
		CallrowUpdate(call);
	answer_call(request, CALL_DO_SEND, call);
	return true;
}

/* Lets the holder inquire, with his lease renewed. */
static bool
let_inquire(Log *log, CallRequest *request, const LogRow *row,
			const Callrow *call)
{
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];
	bool		answered;

	ExtendFillLease(row, NULL, values, nulls);
	if (!write_row(log, request, row, values, nulls, &answered))
		return answered;
	answer_call(request, CALL_DO_INQUIRE, call);
	return true;
}

/* Leaves the call to a person, and so the request. */
static bool
hand_over(Log *log, CallRequest *request, const LogRow *row, Callrow *call)
{
	const ScopePolicy *policy = &request->holder.policy;
	UnknownReason reason = ReviewReason(row, policy);
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];
	bool		answered;

	ReviewFill(row, policy, reason, values, nulls);
	if (!write_row(log, request, row, values, nulls, &answered))
		return answered;
	CallrowSetStatus(call, CALL_REVIEW);
	CallrowUpdate(call);
	HistoryRecord(policy, row, values, nulls);
	HolderNoteEnd(&request->holder.key, row);
	ReviewNotify(reason);
	answer_call(request, CALL_DO_REVIEW, call);
	return true;
}

/* ---- deciding ---------------------------------------------------------- */

/* Does what the table says about a call that is there. */
static bool
decide(Log *log, CallRequest *request, const LogRow *row, Callrow *call)
{
	TimestampTz now = ClockNow();
	TimestampTz sent_at = DatumGetTimestampTz(call->values[CALL_SENT_AT]);
	CallAction	action = CallstateDecide(CallrowStatus(call),
										 &request->definition, sent_at, now);

	switch (action)
	{
		case CALL_DO_SEND:
			return give_out(log, request, row, call, false);
		case CALL_DO_INQUIRE:
			return let_inquire(log, request, row, call);
		case CALL_DO_REVIEW:
			if (LogRowStatus(row) != LOG_UNKNOWN)
				return hand_over(log, request, row, call);
			answer_call(request, action, call);
			break;
		case CALL_DO_WAIT:
			answer_wait(request, call, now);
			break;
		case CALL_DO_NOTHING:
		case CALL_DO_YIELD:
			answer_call(request, action, call);
			break;
	}
	return true;
}

/* Decides for one who holds the claim; false: look again. */
static bool
decide_for_holder(Log *log, CallRequest *request, const LogRow *row)
{
	Callrow		call;
	bool		found;

	found = LogRowInt32(row, LOG_CALLS) > 0 &&
		CallrowFind(&request->holder.key, LogRowInt64(row, LOG_LIFE),
					request->provider, request->operation, &call);

	if (LogRowStatus(row) == LOG_UNKNOWN &&
		(!found || CallrowStatus(&call) != CALL_REVIEW))
		HolderRaise(&request->holder, HOLDER_UNKNOWN, row);
	if (!found)
		return give_out(log, request, row, &call, true);
	if (CallrowStatus(&call) == CALL_SENT && CallrowIsGivenOutHere(&call))
	{
		answer_call(request, CALL_DO_SEND, &call);
		return true;
	}
	return decide(log, request, row, &call);
}

/* Decides by a row that nobody else is changing; false: look again. */
static bool
decide_by_row(Log *log, CallRequest *request, const LogRow *row)
{
	HolderVerdict verdict;

	LogCheckSnapshot(log, row);
	verdict = HolderJudge(&request->holder, row);
	if (verdict == HOLDER_ENDED)
		HolderRaiseEnded(&request->holder, row, false);
	if (LogRowStatus(row) == LOG_PROCESSING)
		verdict = HolderJudgeOngoing(&request->holder, row, verdict);
	if (verdict != HOLDER_HOLDS)
		HolderRaise(&request->holder, verdict, row);
	return decide_for_holder(log, request, row);
}

/* Decides by what a probe met; false where it has to be looked at again. */
static bool
decide_by_sight(Log *log, CallRequest *request, const LogRow *row)
{
	const Holder *holder = &request->holder;

	switch (row->sight)
	{
		case LOG_SIGHT_NOTHING:
			if (!LogIsThere(log, &holder->key))
				HolderRaise(holder, HOLDER_ABSENT, NULL);
			return false;
		case LOG_SIGHT_CHANGING:
			if (holder->has_token &&
				LogRowInt64(row, LOG_TOKEN) != holder->token)
				HolderRaise(holder, HOLDER_STALE, row);
			/* FALLTHROUGH */
		case LOG_SIGHT_SPECULATIVE:
		case LOG_SIGHT_INSERTING:
			start_answer(request, CALL_DO_YIELD);
			return true;
		case LOG_SIGHT_COMMITTED:
		case LOG_SIGHT_OWN:
			return decide_by_row(log, request, row);
	}
	return false;
}

/* Finds the answer, without waiting for anybody. */
static void
find_answer(Log *log, CallRequest *request)
{
	for (int turn = 0; turn < MAX_TURNS; turn++)
	{
		LogRow		row;

		CHECK_FOR_INTERRUPTS();
		LogProbe(log, &request->holder.key, &row);
		if (decide_by_sight(log, request, &row))
			return;
		LogUnpin(log);
	}
	start_answer(request, CALL_DO_YIELD);
}

static text *
operation_argument(FunctionCallInfo fcinfo, int arg)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("operation must not be null"),
				 errhint("Leave the argument out where a request calls a provider only once.")));
	return RequestCheckName(PG_GETARG_TEXT_PP(arg), "operation");
}

/*
 * idem_call(request_id text, provider text, operation text, token bigint,
 *			 scope text, request_body jsonb)
 */
Datum
idem_call(PG_FUNCTION_ARGS)
{
	CallRequest request;
	Log			log;
	Datum		result;

	if (ResultIsDone(fcinfo))
		return ResultEnd(fcinfo);

	request.holder = HolderFromArgs(fcinfo, 3, 4);
	request.provider = ProviderNameFromArg(fcinfo, 1);
	request.operation = operation_argument(fcinfo, 2);
	request.body.value = PG_GETARG_DATUM(5);
	request.body.isnull = PG_ARGISNULL(5);

	LogOpen(&log);
	request.holder.policy = ScopeEnter(request.holder.key.scope);
	request.definition = ProviderRead(request.provider);
	find_answer(&log, &request);
	result = ResultRow(fcinfo, &answer_result, request.values, request.nulls);
	LogClose(&log);
	return result;
}
