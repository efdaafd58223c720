/*-------------------------------------------------------------------------
 *
 * callfinish.c
 *	  Recording what became of an external call: idem_call_finish.
 *
 * The first definite answer stays, whoever brings it and whenever: it is a
 * fact about the world, so no token is asked for, and an answer that comes
 * after the request has ended is recorded all the same.
 *
 * A word that is not a definite answer changes what happens next, by the same
 * table that idem_call goes by.  Where that asks a person, the request turns
 * unknown in this transaction.  What a person was asked only a person may
 * settle: one who may call idem_resolve.  That makes the request free to be
 * claimed again, and the next idem_call tells the rest.
 *
 * Locks and races: the request's row is awaited and written first (callrow.c),
 * so this waits for whoever is changing it, and then reads the call again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "callrow.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "compat.h"
#include "durability.h"
#include "errors.h"
#include "history.h"
#include "holder.h"
#include "isolation.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "resolve.h"
#include "review.h"
#include "state.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_call_finish);

/* A word about a call, and what it was found to mean. */
typedef struct CallWord
{
	CallStatus	word;			/* as it was said */
	NullableDatum body;
	CallStatus	status;			/* what the call is to be */
	CallAction	action;			/* what to do next */
} CallWord;

static CallStatus
status_argument(FunctionCallInfo fcinfo, int arg)
{
	CallStatus	status;
	char	   *name;

	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("status of a call must not be null"),
				 errhint("Use \"succeeded\", \"failed\", \"not_found\", \"not_sent\" or \"ambiguous\".")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(arg));
	if (!CallstateParse(name, &status) || status == CALL_SENT ||
		status == CALL_REVIEW)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized status of a call: \"%s\"", name),
				 errhint("Use \"succeeded\", \"failed\", \"not_found\", \"not_sent\" or \"ambiguous\".")));
	return status;
}

/* ---- refusals ---------------------------------------------------------- */

/* One and the same, whether there is no such call or it is closed to us. */
COMPAT_NORETURN static void
refuse_call(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for external call"),
			 errdetail("No call of this id is open to the current user."),
			 errhint("Pass the call_id that idem_call() returned, after the transaction that recorded it has committed.")));
	pg_unreachable();
}

COMPAT_NORETURN static void
raise_answered(const Callrow *call)
{
	RequestKey	key = CallrowKey(call);

	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ALREADY_FINISHED),
			 errmsg("external call is already answered"),
			 errdetail("%s has another answer to this call; its status is \"%s\".",
					   RequestDescribe(&key),
					   CallstateName(CallrowStatus(call))),
			 errhint("Roll back. Call idem_call() again to read the answer that counts.")));
	pg_unreachable();
}

static void
check_committed(const Callrow *call)
{
	if (CallrowIsGivenOutHere(call))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("external call is not committed"),
				 errdetail("It was given out by this very transaction."),
				 errhint("Commit first, then send, then record the answer: what is sent before the commit is forgotten if the commit fails.")));
}

/* May the current user decide what a person is asked? */
static void
check_may_settle(void)
{
	Oid			types[] = {TEXTOID, TEXTOID, JSONBOID, INT4OID, TEXTOID, BOOLOID};
	char	   *schema = get_namespace_name(CatalogSchema());
	Oid			function = LookupFuncName(list_make2(makeString(schema),
													 makeString("idem_resolve")),
										  lengthof(types), types, false);

	if (compat_function_aclcheck(function, GetUserId()) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to settle an external call"),
				 errdetail("Only a role that may execute %s may say what became of a call that nobody else can know about.",
						   "idem_resolve()"),
				 errhint("A person finds out from the provider; see the view idem_review.")));
}

/* ---- deciding ---------------------------------------------------------- */

static bool
is_same_answer(const Callrow *call, const CallWord *word)
{
	Datum		stored = call->values[CALL_RESPONSE_BODY];

	if (CallrowStatus(call) != word->word ||
		call->nulls[CALL_RESPONSE_BODY] != word->body.isnull)
		return false;
	return word->body.isnull ||
		compareJsonbContainers(&DatumGetJsonbP(stored)->root,
							   &DatumGetJsonbP(word->body.value)->root) == 0;
}

/* Is the request still to be carried out, as far as is stored? */
static bool
is_pending(const LogRow *row, const ScopePolicy *policy)
{
	if (LogRowStatus(row) == LOG_PROCESSING)
		return true;
	return LogRowStatus(row) == LOG_FAILED &&
		StateJudge(row, policy, ClockNow()) != STATE_FINISHED;
}

/* A definite answer, or none: fills status and action of the word. */
static void
weigh_word(const Callrow *call, const LogRow *row, const ScopePolicy *policy,
		   CallWord *word)
{
	CallStatus	before = CallrowStatus(call);
	TimestampTz now = ClockNow();
	TimestampTz sent_at = DatumGetTimestampTz(call->values[CALL_SENT_AT]);
	Provider	provider;

	if (before == CALL_REVIEW && word->word == CALL_AMBIGUOUS)
	{
		word->status = CALL_REVIEW;
		word->action = CALL_DO_REVIEW;
		return;
	}
	if (before == CALL_REVIEW)
		check_may_settle();
	word->status = word->word;
	word->action = CallstateIsAnswered(word->word) ?
		CALL_DO_NOTHING : CALL_DO_SEND;
	if (CallstateIsAnswered(word->word) || word->word == CALL_NOT_SENT)
		return;

	provider = ProviderRead(DatumGetTextPP(call->values[CALL_PROVIDER]));
	if (before != CALL_REVIEW)
	{
		if (word->word == CALL_NOT_FOUND && !provider.accepts_key &&
			!provider.can_inquire)
			check_may_settle();
		word->status = CallstateBelieve(word->word, &provider, sent_at, now);
	}
	word->action = CallstateDecide(word->status, &provider, sent_at, now);
	if (word->action == CALL_DO_REVIEW &&
		(is_pending(row, policy) || LogRowStatus(row) == LOG_UNKNOWN))
		word->status = CALL_REVIEW;
}

/*
 * Does the word settle what a person was asked about the request?  It was a
 * call, and none is left that only a person can settle.
 */
static bool
settles_request(const Callrow *call, const LogRow *row,
				const ScopePolicy *policy, const CallWord *word,
				int open_calls)
{
	if (CallstateIsOpen(word->status) ||
		(LogRowStatus(row) != LOG_UNKNOWN && LogRowIsHeldHere(row)) ||
		StateReason(row, policy, ClockNow()) != REASON_CALL)
		return false;
	if (CallrowStatus(call) == CALL_REVIEW)
		return CallrowCount(row, CALL_REVIEW) == 1;
	return open_calls == 0;
}

/* ---- writing ----------------------------------------------------------- */

/*
 * Writes a weighed word, into the request's row first; false where that has
 * changed.
 */
static bool
write_word(Log *log, const LogRow *row, const ScopePolicy *policy,
		   Callrow *call, const CallWord *word)
{
	int			opened = (CallstateIsOpen(word->status) ? 1 : 0) -
		(CallstateIsOpen(CallrowStatus(call)) ? 1 : 0);
	int			open_calls = LogRowInt32(row, LOG_OPEN_CALLS) + opened;
	bool		settles = settles_request(call, row, policy, word, open_calls);
	bool		turns = word->status == CALL_REVIEW && is_pending(row, policy);
	UnknownReason reason = ReviewReason(row, policy);
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];

	LogCopyRow(row, values, nulls);
	if (turns)
		ReviewFill(row, policy, reason, values, nulls);
	if (settles)
	{
		ResolveFillRetry(row, policy, values, nulls);
		values[LOG_TOKEN] = Int64GetDatum(LogRowInt64(row, LOG_TOKEN) + 1);
	}
	LogSetCount(values, nulls, LOG_OPEN_CALLS, open_calls);

	if (LogUpdate(log, row, values, nulls) != LOG_WRITTEN)
	{
		IsolationCheck();
		return false;
	}
	CallrowSetStatus(call, word->status);
	call->values[CALL_RESPONSE_BODY] = word->body.value;
	call->nulls[CALL_RESPONSE_BODY] = word->body.isnull;
	CallrowUpdate(call);
	if (turns || settles)
		HistoryRecord(policy, row, values, nulls);
	if (turns)
		ReviewNotify(reason);
	if (turns || settles)
	{
		RequestKey	key = CallrowKey(call);

		HolderNoteEnd(&key, row);
	}
	else
		HolderNoteWrite(row);
	DurabilityRequireFlush();
	return true;
}

/* Records a word about a call as it is now; false: look again. */
static bool
record_word(Log *log, const LogRow *row, const ScopePolicy *policy,
			Callrow *call, CallWord *word)
{
	check_committed(call);
	if (CallstateIsAnswered(CallrowStatus(call)))
	{
		if (word->word != CALL_AMBIGUOUS && !is_same_answer(call, word))
			raise_answered(call);
		word->action = CALL_DO_NOTHING;
		return true;
	}
	weigh_word(call, row, policy, word);
	if (word->status == CallrowStatus(call) && word->body.isnull)
		return true;			/* no news */
	PreventCommandIfReadOnly("idem_call_finish()");
	if (LogAwaitLocks(log, row))
		return false;
	return write_word(log, row, policy, call, word);
}

/* Is there still such a request, in the life that the call belongs to? */
static bool
is_alive(const LogRow *row, const Callrow *call, const ScopePolicy *policy)
{
	if (row->sight == LOG_SIGHT_NOTHING ||
		LogRowInt64(row, LOG_LIFE) != DatumGetInt64(call->values[CALL_LIFE]))
		return false;
	return LogRowIsHeldHere(row) ||
		StateJudge(row, policy, ClockNow()) != STATE_ABSENT;
}

/*
 * idem_call_finish(call_id text, status text, response_body jsonb)
 * returns text
 */
Datum
idem_call_finish(PG_FUNCTION_ARGS)
{
	text	   *call_id;
	CallWord	word;
	Callrow		call;
	RequestKey	key;
	ScopePolicy policy;
	LogRow		row;
	Log			log;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("call_id must not be null"),
				 errhint("Pass the call_id that idem_call() returned.")));
	call_id = PG_GETARG_TEXT_PP(0);
	word.word = status_argument(fcinfo, 1);
	word.body.value = PG_GETARG_DATUM(2);
	word.body.isnull = PG_ARGISNULL(2);

	LogOpen(&log);
	if (!CallrowFindById(call_id, &call))
		refuse_call();
	key = CallrowKey(&call);
	policy = ScopeResolve(key.scope);
	if (!ScopeIsOpen(&policy))
		refuse_call();
	do
	{
		HolderFindRow(&log, &key, &row);
		if (!is_alive(&row, &call, &policy) ||
			!CallrowFindById(call_id, &call))
			refuse_call();
	} while (!record_word(&log, &row, &policy, &call, &word));
	LogClose(&log);
	PG_RETURN_TEXT_P(cstring_to_text(CallstateActionName(word.action)));
}
