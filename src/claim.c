/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  Claiming a request: look, decide, and where the key is free, take it.
 *
 * One turn probes the key and decides by what it met:
 *
 *	 nothing						insert it; a lost race means another turn
 *	 being inserted by another		in_progress
 *	 being changed by another		mismatch, or replay where the committed
 *									version is finished, else in_progress
 *	 our own, not ended				in_progress, with its token
 *	 committed, or our own ended	by its state (state.c): claim it, replay,
 *									in_progress, mismatch or unknown
 *
 * Races and who wins:
 * - Two inserts: the unique index lets one in; the other's next turn meets the
 *	 first one's uncommitted row.
 * - Two takeovers: one gets the row lock, the other is told in_progress.
 * - A takeover and an end of the lapsed claim: whoever locks the row first;
 *	 the end then finds another token, or the takeover another version.
 * - An uncommitted version never decides a replay or a mismatch, since it may
 *	 still be undone.  A committed one does, even while somebody changes it:
 *	 nobody takes a finished request back, or makes another one of it.
 *
 * A turn never waits.  Waiting goes on between turns (ClaimWaiting), and
 * afterwards everything is looked at again, by the time it is then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "checkpoint.h"
#include "claim.h"
#include "clock.h"
#include "compat.h"
#include "durability.h"
#include "fingerprint.h"
#include "fmgr.h"
#include "history.h"
#include "jsondiff.h"
#include "life.h"
#include "miscadmin.h"
#include "result.h"
#include "stat.h"
#include "state.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

/* Turns of one look; more are only lost while indexes are being rebuilt. */
#define MAX_TURNS 16

/* What a caller is told to wait where somebody is just removing the row. */
#define BRIEF_RETRY_US INT64CONST(10000)

PG_FUNCTION_INFO_V1(idem_claim);

static const ResultColumn claim_columns[CLAIM_NCOLS] = {
	[CLAIM_COL_OUTCOME] = {"outcome", TEXTOID},
	[CLAIM_COL_TOKEN] = {"token", INT8OID},
	[CLAIM_COL_ATTEMPT] = {"attempt", INT4OID},
	[CLAIM_COL_STATUS] = {"status", TEXTOID},
	[CLAIM_COL_RESPONSE_CODE] = {"response_code", INT4OID},
	[CLAIM_COL_RESPONSE_HEADERS] = {"response_headers", JSONBOID},
	[CLAIM_COL_RESPONSE_BODY] = {"response_body", JSONBOID},
	[CLAIM_COL_RESPONSE_BYTES] = {"response_bytes", BYTEAOID},
	[CLAIM_COL_CHECKPOINTS] = {"checkpoints", JSONBOID},
	[CLAIM_COL_RETRY_AFTER] = {"retry_after", INTERVALOID},
	[CLAIM_COL_DIFFERS] = {"differs", TEXTARRAYOID},
	[CLAIM_COL_CREATED_AT] = {"created_at", TIMESTAMPTZOID},
	[CLAIM_COL_EXPIRES_AT] = {"expires_at", TIMESTAMPTZOID},
};

static ResultType claim_result = {claim_columns, CLAIM_NCOLS, NULL};

/* The word for an outcome. */
static const char *
name_of_outcome(ClaimOutcome outcome)
{
	switch (outcome)
	{
		case CLAIM_CLAIMED:
			return "claimed";
		case CLAIM_REPLAY:
			return "replay";
		case CLAIM_IN_PROGRESS:
			return "in_progress";
		case CLAIM_MISMATCH:
			return "mismatch";
		case CLAIM_UNKNOWN:
			return "unknown";
		case CLAIM_EXECUTED:
			return "executed";
	}
	return "?";
}

static void
set_column(ClaimAnswer *answer, ClaimColumn column, Datum value)
{
	answer->values[column] = value;
	answer->nulls[column] = false;
}

static void
copy_column(ClaimAnswer *answer, ClaimColumn column, const LogRow *row,
			LogColumn from)
{
	answer->values[column] = row->values[from];
	answer->nulls[column] = row->nulls[from];
}

/*
 * When a request began.  Of a live claim that is somebody else's it is not
 * told exactly: nobody shall learn its token from it.
 */
static void
copy_created_at(ClaimAnswer *answer, const LogRow *row)
{
	TimestampTz created_at = LogRowTime(row, LOG_CREATED_AT, 0);
	LogStatus	status = LogRowStatus(row);

	if (status == LOG_PROCESSING || status == LOG_UNKNOWN)
		created_at = ClockCoarse(created_at);
	set_column(answer, CLAIM_COL_CREATED_AT, TimestampTzGetDatum(created_at));
}

static void
start_answer(ClaimAnswer *answer, ClaimOutcome outcome, LogStatus status)
{
	answer->outcome = outcome;
	answer->blocked = false;
	answer->taken_over = false;
	memset(answer->nulls, true, sizeof(answer->nulls));
	set_column(answer, CLAIM_COL_OUTCOME,
			   CStringGetTextDatum(name_of_outcome(outcome)));
	set_column(answer, CLAIM_COL_STATUS,
			   CStringGetTextDatum(LogStatusName(status)));
}

static void
set_retry_after(ClaimAnswer *answer, TimestampTz now, TimestampTz until)
{
	Interval   *left = ClockIntervalBetween(now, until);

	if (left != NULL)
		set_column(answer, CLAIM_COL_RETRY_AFTER, IntervalPGetDatum(left));
}

static void
set_blocker(ClaimAnswer *answer, BlockerKind kind, TransactionId xid,
			TimestampTz until)
{
	answer->blocked = true;
	answer->blocker.kind = kind;
	answer->blocker.xid = xid;
	answer->blocker.until = until;
}

/* ---- answers ----------------------------------------------------------- */

/* Another transaction is at it, or something passes in a moment. */
static void
answer_busy(ClaimAnswer *answer, BlockerKind kind, TransactionId xid)
{
	start_answer(answer, CLAIM_IN_PROGRESS, LOG_PROCESSING);
	set_blocker(answer, kind, xid, 0);
}

static void
answer_busy_briefly(ClaimAnswer *answer, BlockerKind kind, TransactionId xid)
{
	answer_busy(answer, kind, xid);
	set_retry_after(answer, 0, BRIEF_RETRY_US);
}

/* This very transaction claimed it and has not ended it. */
static void
answer_own_claim(ClaimAnswer *answer, const LogRow *row)
{
	start_answer(answer, CLAIM_IN_PROGRESS, LOG_PROCESSING);
	copy_column(answer, CLAIM_COL_TOKEN, row, LOG_TOKEN);
	copy_column(answer, CLAIM_COL_ATTEMPT, row, LOG_ATTEMPT);
	copy_column(answer, CLAIM_COL_CREATED_AT, row, LOG_CREATED_AT);
}

static void
answer_leased(ClaimAnswer *answer, const LogRow *row, TimestampTz now)
{
	TimestampTz until = LogRowTime(row, LOG_LOCKED_UNTIL, now);

	start_answer(answer, CLAIM_IN_PROGRESS, LOG_PROCESSING);
	copy_column(answer, CLAIM_COL_ATTEMPT, row, LOG_ATTEMPT);
	copy_created_at(answer, row);
	set_retry_after(answer, now, until);
	set_blocker(answer, BLOCKER_LEASE, InvalidTransactionId, until);
}

/* Not in flight, so not waited for. */
static void
answer_backoff(ClaimAnswer *answer, const LogRow *row, TimestampTz now)
{
	start_answer(answer, CLAIM_IN_PROGRESS, LOG_FAILED);
	copy_column(answer, CLAIM_COL_ATTEMPT, row, LOG_ATTEMPT);
	copy_created_at(answer, row);
	set_retry_after(answer, now, LogRowTime(row, LOG_RETRY_AT, now));
}

/* A stored response, exactly as stored; a failure's is its error. */
static void
answer_replay(ClaimAnswer *answer, const LogRow *row)
{
	LogStatus	status = LogRowStatus(row);

	start_answer(answer, CLAIM_REPLAY, status);
	copy_column(answer, CLAIM_COL_ATTEMPT, row, LOG_ATTEMPT);
	copy_column(answer, CLAIM_COL_RESPONSE_CODE, row, LOG_RESPONSE_CODE);
	copy_column(answer, CLAIM_COL_RESPONSE_HEADERS, row, LOG_RESPONSE_HEADERS);
	copy_column(answer, CLAIM_COL_RESPONSE_BYTES, row, LOG_RESPONSE_BYTES);
	copy_column(answer, CLAIM_COL_RESPONSE_BODY, row,
				status == LOG_FAILED ? LOG_ERROR : LOG_RESPONSE_BODY);
	copy_created_at(answer, row);
	copy_column(answer, CLAIM_COL_EXPIRES_AT, row, LOG_EXPIRES_AT);
}

/*
 * ClaimAnswerExecuted - the answer about a request that was carried out by
 * this very call; row is its row as it is now.
 */
void
ClaimAnswerExecuted(ClaimAnswer *answer, const LogRow *row)
{
	answer_replay(answer, row);
	answer->outcome = CLAIM_EXECUTED;
	set_column(answer, CLAIM_COL_OUTCOME,
			   CStringGetTextDatum(name_of_outcome(CLAIM_EXECUTED)));
}

static void
answer_mismatch(ClaimAnswer *answer, const LogRow *row,
				const ClaimRequest *request)
{
	start_answer(answer, CLAIM_MISMATCH, LogRowStatus(row));
	copy_created_at(answer, row);
	if (request->body != NULL && !row->nulls[LOG_REQUEST_BODY])
	{
		Jsonb	   *stored = DatumGetJsonbP(row->values[LOG_REQUEST_BODY]);

		set_column(answer, CLAIM_COL_DIFFERS,
				   PointerGetDatum(JsonDiffPaths(stored, request->body)));
	}
}

static void
answer_unknown(ClaimAnswer *answer, const LogRow *row)
{
	start_answer(answer, CLAIM_UNKNOWN, LOG_UNKNOWN);
	copy_column(answer, CLAIM_COL_ATTEMPT, row, LOG_ATTEMPT);
	copy_created_at(answer, row);
}

static void
answer_claimed(ClaimAnswer *answer, const ClaimRequest *request,
			   const Log *log, Datum *values, bool *nulls)
{
	const LogRow row = {.values = values,.nulls = nulls};

	start_answer(answer, CLAIM_CLAIMED, LOG_PROCESSING);
	set_column(answer, CLAIM_COL_TOKEN, values[LOG_TOKEN]);
	set_column(answer, CLAIM_COL_ATTEMPT, values[LOG_ATTEMPT]);
	set_column(answer, CLAIM_COL_CREATED_AT, values[LOG_CREATED_AT]);
	answer->tid = log->written->tts_tid;
	answer->life = DatumGetInt64(values[LOG_LIFE]);
	set_column(answer, CLAIM_COL_CHECKPOINTS,
			   CheckpointObject(&request->key, answer->life,
								LogRowInt32(&row, LOG_STEPS)));
}

/* ---- new row versions -------------------------------------------------- */

/* What every claim writes, be it the first of a key or a takeover. */
static void
fill_claim(const ClaimRequest *request, TimestampTz now, int64 stored_token,
		   Datum *values, bool *nulls)
{
	TimestampTz locked_until = ClockAdd(now, &request->lease);

	values[LOG_TOKEN] = Int64GetDatum(ClockNextToken(stored_token));
	values[LOG_CLAIMED_XACT] =
		FullTransactionIdGetDatum(GetTopFullTransactionId());
	LogNoteHolder(values, nulls);
	values[LOG_CLAIMED_BY] = CStringGetTextDatum(request->role);
	values[LOG_TTL] = IntervalPGetDatum(&request->ttl);
	values[LOG_LEASE] = IntervalPGetDatum(&request->lease);
	values[LOG_STATUS] = CStringGetTextDatum(LogStatusName(LOG_PROCESSING));
	values[LOG_LOCKED_UNTIL] = TimestampTzGetDatum(locked_until);
	nulls[LOG_LOCKED_UNTIL] = false;
	values[LOG_EXPIRES_AT] =
		TimestampTzGetDatum(ClockAdd(locked_until, &request->ttl));
	nulls[LOG_EXPIRES_AT] = false;
}

/* The fingerprint and body that a key is first used with. */
static void
fill_request(const ClaimRequest *request, Datum *values, bool *nulls)
{
	nulls[LOG_FINGERPRINT] = request->fingerprint == NULL;
	values[LOG_FINGERPRINT] = PointerGetDatum(request->fingerprint);
	nulls[LOG_REQUEST_BODY] = request->body == NULL ||
		!ScopeStoresRequest(&request->policy);
	values[LOG_REQUEST_BODY] = PointerGetDatum(request->body);
}

/*
 * A new life of a key: also where an expired one is used again, so nothing of
 * an earlier life is kept but the order of tokens.
 *
 * The purge looks at the row when it can have expired; earlier only where a
 * person may have to be asked when the lease is over.
 */
static void
fill_new_life(const ClaimRequest *request, TimestampTz now, int64 stored_token,
			  Datum *values, bool *nulls)
{
	memset(nulls, true, LOG_NATTS * sizeof(bool));
	for (int i = 0; i <= LOG_LEASE; i++)
		nulls[i] = false;
	nulls[LOG_STATUS] = false;

	fill_claim(request, now, stored_token, values, nulls);
	fill_request(request, values, nulls);
	values[LOG_LIFE] = values[LOG_TOKEN];
	values[LOG_CREATED_AT] = TimestampTzGetDatum(now);
	values[LOG_DUE_AT] = ScopeMayNeedPerson(&request->policy) ?
		values[LOG_LOCKED_UNTIL] : values[LOG_EXPIRES_AT];
	values[LOG_ATTEMPT] = Int32GetDatum(1);
	values[LOG_SCOPE] = PointerGetDatum(request->key.scope);
	values[LOG_REQUEST_ID] = PointerGetDatum(request->key.request_id);
}

/* What the next attempt replaces and a release has to go back to. */
static void
keep_prior(const LogRow *row, LogColumn until, Datum *values, bool *nulls)
{
	LogForgetPrior(nulls);
	values[LOG_PRIOR_STATUS] = row->values[LOG_STATUS];
	nulls[LOG_PRIOR_STATUS] = false;
	values[LOG_PRIOR_UNTIL] = row->values[until];
	nulls[LOG_PRIOR_UNTIL] = row->nulls[until];
	values[LOG_PRIOR_TTL] = row->values[LOG_TTL];
	nulls[LOG_PRIOR_TTL] = false;
	values[LOG_PRIOR_LEASE] = row->values[LOG_LEASE];
	nulls[LOG_PRIOR_LEASE] = false;
	values[LOG_PRIOR_UNNAMED] = BoolGetDatum(row->nulls[LOG_FINGERPRINT]);
	nulls[LOG_PRIOR_UNNAMED] = false;
}

/*
 * The next attempt of a life.  What the last one left (its error, where its
 * lease or backoff ended) stays for a release to go back to.
 *
 * due_at stays, so that the update can be HOT, but where the scope has come to
 * ask a person since: it must be seen when this lease is over.
 */
static void
fill_next_attempt(const ClaimRequest *request, const LogRow *row,
				  TimestampTz now, Datum *values, bool *nulls)
{
	bool		lapsed = LogRowStatus(row) == LOG_PROCESSING;
	LogColumn	until = lapsed ? LOG_LOCKED_UNTIL : LOG_RETRY_AT;
	int32		attempt = LogRowInt32(row, LOG_ATTEMPT);

	LogCopyRow(row, values, nulls);

	keep_prior(row, until, values, nulls);
	values[LOG_ATTEMPT] = Int32GetDatum(Min(attempt, PG_INT32_MAX - 1) + 1);
	nulls[LOG_RETRY_AT] = true;

	fill_claim(request, now, LogRowInt64(row, LOG_TOKEN), values, nulls);
	if (nulls[LOG_FINGERPRINT])
		fill_request(request, values, nulls);
	if (ScopeMayNeedPerson(&request->policy) &&
		LogRowTime(row, LOG_DUE_AT, 0) >
		DatumGetTimestampTz(values[LOG_LOCKED_UNTIL]))
		values[LOG_DUE_AT] = values[LOG_LOCKED_UNTIL];
}

/* ---- deciding ---------------------------------------------------------- */

static bool
is_mismatch(const ClaimRequest *request, const LogRow *row)
{
	bytea	   *stored;

	if (request->fingerprint == NULL || row->nulls[LOG_FINGERPRINT])
		return false;
	stored = DatumGetByteaPP(row->values[LOG_FINGERPRINT]);
	return VARSIZE_ANY_EXHDR(stored) != VARSIZE_ANY_EXHDR(request->fingerprint) ||
		memcmp(VARDATA_ANY(stored), VARDATA_ANY(request->fingerprint),
			   VARSIZE_ANY_EXHDR(stored)) != 0;
}

/* Inserts the key; false where the race was lost. */
static bool
claim_new(Log *log, const ClaimRequest *request, ClaimAnswer *answer)
{
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];

	/* That nothing was met proves nothing, and a replay must not fail. */
	if (XactReadOnly && LogIsThere(log, &request->key))
		return false;
	PreventCommandIfReadOnly("idem_claim()");
	fill_new_life(request, ClockNow(), 0, values, nulls);
	HistoryCount(&request->policy, values, nulls);
	if (!LogInsert(log, values, nulls))
		return false;
	HistoryRecord(&request->policy, NULL, values, nulls);
	DurabilityClaimMade(&request->key);
	answer_claimed(answer, request, log, values, nulls);
	return true;
}

/*
 * Takes over the row that was found; false where it changed in the meantime.
 */
static bool
claim_existing(Log *log, const ClaimRequest *request, const LogRow *row,
			   bool new_life, TimestampTz now, ClaimAnswer *answer)
{
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];

	PreventCommandIfReadOnly("idem_claim()");
	if (new_life)
	{
		/* The key as it is stored, or the server takes it for another one. */
		fill_new_life(request, now, LogRowInt64(row, LOG_TOKEN), values, nulls);
		values[LOG_SCOPE] = row->values[LOG_SCOPE];
		values[LOG_REQUEST_ID] = row->values[LOG_REQUEST_ID];
	}
	else
		fill_next_attempt(request, row, now, values, nulls);
	HistoryCount(&request->policy, values, nulls);

	switch (LogTakeOver(log, row, values, nulls))
	{
		case LOG_WRITTEN:
			if (new_life)
				LifeForget(row);
			HistoryRecord(&request->policy, new_life ? NULL : row, values,
						  nulls);
			DurabilityClaimMade(&request->key);
			answer_claimed(answer, request, log, values, nulls);
			answer->taken_over = !new_life &&
				LogRowStatus(row) == LOG_PROCESSING;
			return true;
		case LOG_BUSY:
			answer_busy_briefly(answer, BLOCKER_BRIEF, InvalidTransactionId);
			return true;
		case LOG_LOST:
			break;
	}
	return false;
}

/* Decides by a version that is committed or our own; false: look again. */
static bool
decide(Log *log, const ClaimRequest *request, const LogRow *row,
	   ClaimAnswer *answer)
{
	TimestampTz now = ClockNow();
	RequestState state;

	if (LogRowIsHeldHere(row) &&
		LogRowStatus(row) == LOG_PROCESSING && !LogRowIsReleased(row))
	{
		answer_own_claim(answer, row);
		return true;
	}

	LogCheckSnapshot(log, row);
	state = StateJudge(row, &request->policy, now);
	if (state != STATE_ABSENT && is_mismatch(request, row))
	{
		answer_mismatch(answer, row, request);
		return true;
	}

	switch (state)
	{
		case STATE_FINISHED:
			answer_replay(answer, row);
			return true;
		case STATE_LEASED:
			answer_leased(answer, row, now);
			return true;
		case STATE_BACKOFF:
			answer_backoff(answer, row, now);
			return true;
		case STATE_UNKNOWN:
			answer_unknown(answer, row);
			return true;
		case STATE_ABSENT:
		case STATE_LAPSED:
		case STATE_RETRYABLE:
			break;
	}
	return claim_existing(log, request, row, state == STATE_ABSENT, now,
						  answer);
}

/*
 * Decides by a committed version that another transaction is changing.  A
 * finished one still stands, and so does the fingerprint of any: as long as a
 * key lives it stays the same.  A lease runs as it is committed, but it is that
 * transaction that a waiter has to wait for.  Of the rest nothing is certain
 * but that somebody is at it.
 */
static bool
decide_while_changing(Log *log, const ClaimRequest *request,
					  const LogRow *row, ClaimAnswer *answer)
{
	TimestampTz now = ClockNow();
	RequestState state = StateJudge(row, &request->policy, now);

	if (state == STATE_FINISHED || state == STATE_LEASED ||
		(state != STATE_ABSENT && is_mismatch(request, row)))
	{
		if (!decide(log, request, row, answer))
			return false;
		if (answer->blocked)
			set_blocker(answer, BLOCKER_XACT, row->other, 0);
		return true;
	}

	if (state == STATE_ABSENT && row->deleting)
		answer_busy_briefly(answer, BLOCKER_XACT, row->other);
	else
		answer_busy(answer, BLOCKER_XACT, row->other);
	return true;
}

/* Decides by what a probe met; false where it has to be looked at again. */
static bool
decide_by_sight(Log *log, const ClaimRequest *request, const LogRow *row,
				ClaimAnswer *answer)
{
	switch (row->sight)
	{
		case LOG_SIGHT_NOTHING:
			return claim_new(log, request, answer);
		case LOG_SIGHT_SPECULATIVE:
			answer_busy(answer, BLOCKER_BRIEF, InvalidTransactionId);
			return true;
		case LOG_SIGHT_INSERTING:
			answer_busy(answer, BLOCKER_XACT, row->other);
			return true;
		case LOG_SIGHT_CHANGING:
			return decide_while_changing(log, request, row, answer);
		case LOG_SIGHT_COMMITTED:
		case LOG_SIGHT_OWN:
			return decide(log, request, row, answer);
	}
	return false;
}

/*
 * ClaimOnce - claims a request as things stand, without any waiting.
 *
 * After a lost insert the winner is looked for in every unique index.  The
 * turns are bounded; whoever loses all of them is told that somebody else is
 * at it, which is then certainly so.
 */
void
ClaimOnce(Log *log, const ClaimRequest *request, ClaimAnswer *answer)
{
	for (int turn = 0; turn < MAX_TURNS; turn++)
	{
		LogRow		row;

		CHECK_FOR_INTERRUPTS();
		LogProbe(log, &request->key, &row);
		if (row.sight == LOG_SIGHT_NOTHING && turn > 0)
			LogProbeAllIndexes(log, &request->key, &row);
		if (decide_by_sight(log, request, &row, answer))
			return;
		LogUnpin(log);
	}
	answer_busy_briefly(answer, BLOCKER_BRIEF, InvalidTransactionId);
}

/*
 * ClaimCount - counts the answer about a request.
 */
void
ClaimCount(const ClaimRequest *request, const ClaimAnswer *answer)
{
	static const StatCounter counters[] = {
		[CLAIM_CLAIMED] = STAT_CLAIMED,
		[CLAIM_REPLAY] = STAT_REPLAYED,
		[CLAIM_IN_PROGRESS] = STAT_IN_PROGRESS,
		[CLAIM_MISMATCH] = STAT_MISMATCHED,
		[CLAIM_UNKNOWN] = STAT_UNKNOWN,
	};
	int			slot = request->policy.stat_slot;

	StatCount(slot, counters[answer->outcome], 1);
	if (answer->taken_over)
		StatCount(slot, STAT_TAKEN_OVER, 1);
}

/*
 * Claims again whenever it is worth to look, until the time is up.  What an
 * answer needs in memory is given back when the next one takes its place.
 */
static void
claim_repeatedly(Log *log, const ClaimRequest *request, Waiter *waiter,
				 ClaimAnswer *answer)
{
	MemoryContext per_look = AllocSetContextCreate(CurrentMemoryContext,
												   "idempotency wait",
												   ALLOCSET_SMALL_SIZES);
	MemoryContext caller = CurrentMemoryContext;

	do
	{
		Blocker		blocker = answer->blocker;

		LogUnpin(log);
		if (!WaitFor(waiter, &blocker))
			break;
		MemoryContextReset(per_look);
		MemoryContextSwitchTo(per_look);
		ClaimOnce(log, request, answer);
		MemoryContextSwitchTo(caller);
	} while (answer->blocked);
}

/* A wait is counted and logged however it ends. */
static void
wait_and_claim(Log *log, const ClaimRequest *request, Waiter *waiter,
			   ClaimAnswer *answer)
{
	waiter->stat_slot = request->policy.stat_slot;
	PG_TRY();
	{
		claim_repeatedly(log, request, waiter, answer);
	}
	PG_CATCH();
	{
		WaitEnd(waiter);
		PG_RE_THROW();
	}
	PG_END_TRY();
	WaitEnd(waiter);
}

/*
 * ClaimWaiting - the same, waiting for a request in flight until it ends or
 * the time is up; wait is NULL for the scope's.  Counted.
 */
void
ClaimWaiting(Log *log, const ClaimRequest *request, const Interval *wait,
			 ClaimAnswer *answer)
{
	Interval	limit = ScopeWait(&request->policy, wait);
	Waiter		waiter;

	WaitStart(&waiter, &request->key, &limit);
	ClaimOnce(log, request, answer);
	if (answer->blocked && waiter.deadline != 0)
		wait_and_claim(log, request, &waiter, answer);
	ClaimCount(request, answer);
}

/*
 * ClaimInitRequest - what a caller asks for, with policy and settings applied.
 */
void
ClaimInitRequest(ClaimRequest *request, RequestKey key, Jsonb *body,
				 bytea *fingerprint, const Interval *ttl,
				 const Interval *lease)
{
	request->key = key;
	request->policy = ScopeEnterForClaim(key.scope);
	request->ttl = ScopeTtl(&request->policy, ttl);
	request->lease = ScopeLease(&request->policy, lease);
	request->body = body;
	request->fingerprint = fingerprint;
	if (fingerprint == NULL && body != NULL)
		request->fingerprint = FingerprintOf(body, NULL);
	request->role = GetUserNameFromId(GetUserId(), false);
}

/*
 * ClaimResult - the row that answers a function's caller; copies everything.
 */
Datum
ClaimResult(FunctionCallInfo fcinfo, ClaimAnswer *answer)
{
	return ResultRow(fcinfo, &claim_result, answer->values, answer->nulls);
}

/*
 * idem_claim(request_id text, request_body jsonb, scope text, ttl interval,
 *			  lease interval, wait interval, fingerprint bytea)
 */
Datum
idem_claim(PG_FUNCTION_ARGS)
{
	RequestKey	key;
	ClaimRequest request;
	ClaimAnswer answer;
	Interval   *ttl;
	Interval   *lease;
	Interval   *wait;
	Log			log;
	Datum		result;

	if (ResultIsDone(fcinfo))
		return ResultEnd(fcinfo);

	key = RequestKeyFromArgs(fcinfo, 0, 2);
	ttl = RequestPositiveInterval(fcinfo, 3, "ttl");
	lease = RequestPositiveInterval(fcinfo, 4, "lease");
	wait = RequestWaitInterval(fcinfo, 5);

	LogOpen(&log);
	ClaimInitRequest(&request, key,
					 PG_ARGISNULL(1) ? NULL : PG_GETARG_JSONB_P(1),
					 PG_ARGISNULL(6) ? NULL : PG_GETARG_BYTEA_PP(6),
					 ttl, lease);
	ClaimWaiting(&log, &request, wait, &answer);

	result = ClaimResult(fcinfo, &answer);
	LogClose(&log);
	return result;
}
