/*-------------------------------------------------------------------------
 *
 * run.c
 *	  Claim, handler and finish in one call: idem_run.
 *
 * All of it is one transaction, so there is nothing to fence: the row is
 * uncommitted, and everybody else is told in_progress, until the handler's
 * writes and the stored response are committed together.
 *
 * A request that cannot be run now is an error and not a row, since a caller
 * who ignores the result must not take it for success.
 *
 * A handler's error rolls everything back, or with on_error => 'record' is the
 * request's result: the handler then runs in a subtransaction, and the failure
 * is stored in place of its writes.  Errors that say nothing about the request
 * (a deadlock, a cancel, a full disk, another request that is in progress) are
 * never results.
 *
 * A finished request is replayed also where its handler is gone: a retry may
 * come from before a new version of the application.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "claim.h"
#include "durability.h"
#include "errors.h"
#include "finish.h"
#include "handler.h"
#include "history.h"
#include "miscadmin.h"
#include "result.h"
#include "run.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_run);

/* What became of a handler. */
typedef struct HandlerResult
{
	bool		failed;
	NullableDatum value;		/* its result, or its error */
} HandlerResult;

/* The same whatever the session's intervalstyle: programs read it. */
static char *
describe_retry_after(const ClaimAnswer *answer)
{
	struct pg_itm parts;
	char	   *text;

	if (answer->nulls[CLAIM_COL_RETRY_AFTER])
		return _("unknown");
	text = palloc(MAXDATELEN + 1);

	interval2itm(*DatumGetIntervalP(answer->values[CLAIM_COL_RETRY_AFTER]),
				 &parts);
	EncodeInterval(&parts, INTSTYLE_POSTGRES, text);
	return text;
}

static void
raise_in_progress(const RequestKey *key, const ClaimAnswer *answer,
				  bool can_wait)
{
	char	   *request = RequestDescribe(key);

	if (!answer->nulls[CLAIM_COL_TOKEN])
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_IN_PROGRESS),
				 errmsg("request is in progress"),
				 errdetail("%s is claimed by this very transaction; retry_after: unknown.",
						   request),
				 errhint("A handler must not run the request that it is carrying out.")));
	if (!answer->blocked)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_IN_PROGRESS),
				 errmsg("request is waiting to be retried"),
				 errdetail("%s failed, with its retry time still ahead; retry_after: %s.",
						   request, describe_retry_after(answer)),
				 errhint("Try again after that time.")));
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_IN_PROGRESS),
			 errmsg("request is in progress"),
			 errdetail("%s is being carried out; retry_after: %s.",
					   request, describe_retry_after(answer)),
			 can_wait ?
			 errhint("Try again later, or pass wait to wait for its end.") :
			 errhint("Try again later.")));
}

/*
 * RunRaiseRefused - the error for an outcome that does not let a request be
 * run; its hint speaks of waiting where the caller could have asked for it.
 */
void
RunRaiseRefused(const RequestKey *key, const ClaimAnswer *answer,
				bool can_wait)
{
	switch (answer->outcome)
	{
		case CLAIM_MISMATCH:
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_MISMATCH),
					 errmsg("idempotency key was used for another request"),
					 errdetail("%s has another fingerprint; its status is \"%s\".",
							   RequestDescribe(key),
							   TextDatumGetCString(answer->values[CLAIM_COL_STATUS])),
					 errhint("Use a new key for a new request. idem_claim() tells what differs.")));
			break;
		case CLAIM_IN_PROGRESS:
			raise_in_progress(key, answer, can_wait);
			break;
		case CLAIM_UNKNOWN:
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_OUTCOME_UNKNOWN),
					 errmsg("outcome of the request is unknown"),
					 errdetail("%s may have taken effect; a person must decide.",
							   RequestDescribe(key)),
					 errhint("See the view idem_review, and settle it with idem_resolve().")));
			break;
		default:
			break;
	}
	elog(ERROR, "unexpected outcome of a claim: %d", (int) answer->outcome);
}

/*
 * RunIsNoResult - is an error one that says nothing about the request?
 */
bool
RunIsNoResult(int sqlerrcode)
{
	int			category = ERRCODE_TO_CATEGORY(sqlerrcode);

	return category == ERRCODE_TRANSACTION_ROLLBACK ||
		category == ERRCODE_INSUFFICIENT_RESOURCES ||
		category == ERRCODE_TO_CATEGORY(ERRCODE_OPERATOR_INTERVENTION) ||
		category == ERRCODE_TO_CATEGORY(ERRCODE_SYSTEM_ERROR) ||
		category == ERRCODE_TO_CATEGORY(ERRCODE_INTERNAL_ERROR) ||
		sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ||
		sqlerrcode == ERRCODE_IDEM_IN_PROGRESS;
}

static void
push_string(JsonbParseState **state, char *name, const char *value)
{
	JsonbValue	item = {.type = jbvString};

	item.val.string.val = name;
	item.val.string.len = strlen(name);
	(void) pushJsonbValue(state, WJB_KEY, &item);
	item.val.string.val = unconstify(char *, value);
	item.val.string.len = strlen(value);
	(void) pushJsonbValue(state, WJB_VALUE, &item);
}

/*
 * RunErrorDocument - an error as it is stored: its code and its message, as
 * jsonb; palloc'd.
 */
Datum
RunErrorDocument(const ErrorData *error)
{
	JsonbParseState *state = NULL;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_string(&state, "sqlstate", unpack_sql_state(error->sqlerrcode));
	push_string(&state, "message", error->message ? error->message : "");
	return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state,
														   WJB_END_OBJECT,
														   NULL)));
}

/* Calls the handler; its error is its result, where it can be one. */
static HandlerResult
call_recording(Oid function, NullableDatum argument, RunningClaim *claim)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	HandlerResult result = {false};

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		result.value = HandlerCall(function, argument, claim);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (RunIsNoResult(error->sqlerrcode))
			ReThrowError(error);
		result.failed = true;
		result.value.value = RunErrorDocument(error);
		result.value.isnull = false;
		FreeErrorData(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return result;
}

/*
 * The handler gave the claim back.  There is nothing to answer then: to say
 * "executed" would be wrong, and to say nothing would commit the handler's
 * writes without a record of them.
 */
COMPAT_NORETURN static void
raise_given_back(const RequestKey *key)
{
	ereport(ERROR,
			(errcode(ERRCODE_IDEM_NOT_CLAIMED),
			 errmsg("handler did not keep the claim of its request"),
			 errdetail("%s was released by the handler that carries it out.",
					   RequestDescribe(key)),
			 errhint("Raise an error in the handler instead: it undoes the claim with everything else.")));
}

/*
 * Ends the claim with the handler's result, where the handler has not done so
 * itself, and answers with what is stored now.
 */
static void
finish_run(Log *log, const ClaimRequest *request, int64 token,
		   const HandlerResult *result, ClaimAnswer *answer)
{
	Holder		holder = {request->key, request->policy, true, token};
	RequestEnd	end;
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];
	LogRow		row;
	HolderVerdict verdict = HOLDER_HOLDS;

	/* Mostly the handler left the claim alone, and its row is where it was. */
	if (!LogFetchOwn(log, &answer->tid, &row))
		verdict = HolderFind(log, &holder, &row);

	if (verdict == HOLDER_ENDED)
	{
		ClaimAnswerExecuted(answer, &row);
		return;
	}
	if (verdict != HOLDER_HOLDS)
		raise_given_back(&request->key);

	FinishInitEnd(&end, result->failed);
	end.final = result->failed;
	end.values[result->failed ? RESPONSE_ERROR : RESPONSE_BODY] =
		result->value.value;
	end.nulls[result->failed ? RESPONSE_ERROR : RESPONSE_BODY] =
		result->value.isnull;
	if (!FinishWrite(log, &holder, &row, &end, values, nulls))
		elog(ERROR, "claim of this transaction was changed by another");

	row.values = values;
	row.nulls = nulls;
	ClaimAnswerExecuted(answer, &row);
}

/* Runs the handler of a request that was claimed. */
static void
run_claimed(Log *log, const ClaimRequest *request, const char *handler,
			Oid function, bool record, ClaimAnswer *answer)
{
	NullableDatum argument = {JsonbPGetDatum(request->body),
	request->body == NULL};
	HandlerResult result = {false};
	RunningClaim claim = {
		.key = request->key,
		.token = DatumGetInt64(answer->values[CLAIM_COL_TOKEN]),
		.life = answer->life,
		.attempt = DatumGetInt32(answer->values[CLAIM_COL_ATTEMPT])
	};

	LogUnpin(log);
	if (!OidIsValid(function))
		HandlerRaiseMissing(handler);
	if (record)
		result = call_recording(function, argument, &claim);
	else
		result.value = HandlerCall(function, argument, &claim);
	finish_run(log, request, claim.token, &result, answer);
}

/* Whether on_error says that a handler's error is to be recorded. */
static bool
parse_on_error(FunctionCallInfo fcinfo, int arg)
{
	char	   *value;

	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("on_error must not be null"),
				 errhint("Use \"rollback\" or \"record\".")));
	value = text_to_cstring(PG_GETARG_TEXT_PP(arg));
	if (strcmp(value, "rollback") == 0)
		return false;
	if (strcmp(value, "record") == 0)
		return true;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized value for on_error: \"%s\"", value),
			 errhint("Use \"rollback\" or \"record\".")));
}

static char *
handler_argument(FunctionCallInfo fcinfo, int arg)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("handler must not be null"),
				 errhint("Pass the name of a function that takes jsonb and returns jsonb.")));
	return text_to_cstring(PG_GETARG_TEXT_PP(arg));
}

/*
 * idem_run(request_id text, request_body jsonb, handler text, scope text,
 *			ttl interval, wait interval, on_error text, fingerprint bytea)
 * returns the row of idem_claim
 */
Datum
idem_run(PG_FUNCTION_ARGS)
{
	RequestKey	key;
	ClaimRequest request;
	ClaimAnswer answer;
	Interval   *ttl;
	Interval   *wait;
	bool		record;
	char	   *handler;
	Oid			function;
	Log			log;
	Datum		result;

	if (ResultIsDone(fcinfo))
		return ResultEnd(fcinfo);

	key = RequestKeyFromArgs(fcinfo, 0, 3);
	ttl = RequestPositiveInterval(fcinfo, 4, "ttl");
	wait = RequestWaitInterval(fcinfo, 5);
	record = parse_on_error(fcinfo, 6);
	handler = handler_argument(fcinfo, 2);
	function = HandlerFind(handler, true);

	LogOpen(&log);
	ClaimInitRequest(&request, key,
					 PG_ARGISNULL(1) ? NULL : PG_GETARG_JSONB_P(1),
					 PG_ARGISNULL(7) ? NULL : PG_GETARG_BYTEA_PP(7),
					 ttl, NULL);
	ClaimWaiting(&log, &request, wait, &answer);

	if (answer.outcome == CLAIM_CLAIMED)
		run_claimed(&log, &request, handler, function, record, &answer);
	else if (answer.outcome != CLAIM_REPLAY)
		RunRaiseRefused(&request.key, &answer, true);

	result = ClaimResult(fcinfo, &answer);
	LogClose(&log);
	return result;
}
