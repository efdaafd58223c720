/*-------------------------------------------------------------------------
 *
 * lookup.c
 *	  Reading what is known of a request: idem_lookup.
 *
 * Reads like any query: with the statement's snapshot, on a standby too, and
 * without a trace.  The token is not shown, since whoever could read it could
 * pass the fence.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "clock.h"
#include "fmgr.h"
#include "log.h"
#include "result.h"
#include "scope.h"
#include "state.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_lookup);

typedef enum LookupColumn
{
	LOOKUP_SCOPE,
	LOOKUP_REQUEST_ID,
	LOOKUP_STATUS,
	LOOKUP_ATTEMPT,
	LOOKUP_RESPONSE_CODE,
	LOOKUP_RESPONSE_HEADERS,
	LOOKUP_RESPONSE_BODY,
	LOOKUP_RESPONSE_BYTES,
	LOOKUP_ERROR,
	LOOKUP_RETRY_AFTER,
	LOOKUP_CREATED_AT,
	LOOKUP_COMPLETED_AT,
	LOOKUP_EXPIRES_AT,
	LOOKUP_NCOLS
} LookupColumn;

static const ResultColumn lookup_columns[LOOKUP_NCOLS] = {
	[LOOKUP_SCOPE] = {"scope", TEXTOID},
	[LOOKUP_REQUEST_ID] = {"request_id", TEXTOID},
	[LOOKUP_STATUS] = {"status", TEXTOID},
	[LOOKUP_ATTEMPT] = {"attempt", INT4OID},
	[LOOKUP_RESPONSE_CODE] = {"response_code", INT4OID},
	[LOOKUP_RESPONSE_HEADERS] = {"response_headers", JSONBOID},
	[LOOKUP_RESPONSE_BODY] = {"response_body", JSONBOID},
	[LOOKUP_RESPONSE_BYTES] = {"response_bytes", BYTEAOID},
	[LOOKUP_ERROR] = {"error", JSONBOID},
	[LOOKUP_RETRY_AFTER] = {"retry_after", INTERVALOID},
	[LOOKUP_CREATED_AT] = {"created_at", TIMESTAMPTZOID},
	[LOOKUP_COMPLETED_AT] = {"completed_at", TIMESTAMPTZOID},
	[LOOKUP_EXPIRES_AT] = {"expires_at", TIMESTAMPTZOID},
};

/* Columns that are shown as they are stored, and where from. */
static const LogColumn lookup_from[LOOKUP_NCOLS] = {
	[LOOKUP_SCOPE] = LOG_SCOPE,
	[LOOKUP_REQUEST_ID] = LOG_REQUEST_ID,
	[LOOKUP_STATUS] = LOG_STATUS,
	[LOOKUP_ATTEMPT] = LOG_ATTEMPT,
	[LOOKUP_RESPONSE_CODE] = LOG_RESPONSE_CODE,
	[LOOKUP_RESPONSE_HEADERS] = LOG_RESPONSE_HEADERS,
	[LOOKUP_RESPONSE_BODY] = LOG_RESPONSE_BODY,
	[LOOKUP_RESPONSE_BYTES] = LOG_RESPONSE_BYTES,
	[LOOKUP_ERROR] = LOG_ERROR,
	[LOOKUP_RETRY_AFTER] = LOG_LOCKED_UNTIL,
	[LOOKUP_CREATED_AT] = LOG_CREATED_AT,
	[LOOKUP_COMPLETED_AT] = LOG_COMPLETED_AT,
	[LOOKUP_EXPIRES_AT] = LOG_EXPIRES_AT,
};

static ResultType lookup_result = {lookup_columns, LOOKUP_NCOLS, NULL};

/* Our own claim is in flight, however long this transaction takes. */
static RequestState
judge(const LogRow *row, const ScopePolicy *policy, TimestampTz now)
{
	RequestState state = StateJudge(row, policy, now);

	if (LogRowIsHeldHere(row) && LogRowStatus(row) == LOG_PROCESSING &&
		!LogRowIsReleased(row) && state != STATE_LEASED)
		return STATE_LAPSED;
	return state;
}

/* Replaces what only time tells: the state, and what is left of a deadline. */
static void
fill_judged(const LogRow *row, RequestState state, TimestampTz now,
			Datum *values, bool *nulls)
{
	LogColumn	deadline = state == STATE_LEASED ? LOG_LOCKED_UNTIL :
		LOG_RETRY_AT;
	Interval   *left = NULL;

	if (state == STATE_LEASED || state == STATE_BACKOFF)
		left = ClockIntervalBetween(now, LogRowTime(row, deadline, now));
	values[LOOKUP_RETRY_AFTER] = IntervalPGetDatum(left);
	nulls[LOOKUP_RETRY_AFTER] = left == NULL;

	if (state == STATE_UNKNOWN)
		values[LOOKUP_STATUS] =
			CStringGetTextDatum(LogStatusName(LOG_UNKNOWN));
	if (state == STATE_LEASED || state == STATE_UNKNOWN)
		nulls[LOOKUP_EXPIRES_AT] = true;	/* it never does as it is */

	/*
	 * What runs again has no response; the row keeps the last one's for a
	 * release.
	 */
	if (LogRowStatus(row) == LOG_PROCESSING)
	{
		nulls[LOOKUP_RESPONSE_CODE] = true;
		nulls[LOOKUP_RESPONSE_HEADERS] = true;
		nulls[LOOKUP_RESPONSE_BODY] = true;
		nulls[LOOKUP_RESPONSE_BYTES] = true;
	}

	/* The exact times of a live claim would tell its token. */
	if (LogRowStatus(row) == LOG_PROCESSING || LogRowStatus(row) == LOG_UNKNOWN)
	{
		TimestampTz expires_at = LogRowTime(row, LOG_EXPIRES_AT, DT_NOEND);

		values[LOOKUP_CREATED_AT] =
			TimestampTzGetDatum(ClockCoarse(LogRowTime(row, LOG_CREATED_AT, 0)));
		values[LOOKUP_EXPIRES_AT] =
			TimestampTzGetDatum(ClockCoarse(expires_at));
	}
}

static void
fill_lookup(const LogRow *row, RequestState state, TimestampTz now,
			Datum *values, bool *nulls)
{
	for (int i = 0; i < LOOKUP_NCOLS; i++)
	{
		values[i] = row->values[lookup_from[i]];
		nulls[i] = row->nulls[lookup_from[i]];
	}
	fill_judged(row, state, now, values, nulls);
}

/*
 * idem_lookup(request_id text, scope text)
 */
Datum
idem_lookup(PG_FUNCTION_ARGS)
{
	RequestKey	key;
	ScopePolicy policy;
	RequestState state = STATE_ABSENT;
	TimestampTz now;
	Datum		values[LOOKUP_NCOLS];
	bool		nulls[LOOKUP_NCOLS];
	LogRow		row;
	Log			log;
	Datum		result;

	if (ResultIsDone(fcinfo))
		return ResultEnd(fcinfo);

	key = RequestKeyFromArgs(fcinfo, 0, 1);
	LogOpen(&log);
	policy = ScopeEnterToLook(key.scope);
	now = ClockNow();
	if (LogFetch(&log, &key, GetActiveSnapshot(), &row))
		state = judge(&row, &policy, now);

	if (state == STATE_ABSENT)
		result = ResultEnd(fcinfo);
	else
	{
		fill_lookup(&row, state, now, values, nulls);
		result = ResultRow(fcinfo, &lookup_result, values, nulls);
	}
	LogClose(&log);
	return result;
}
