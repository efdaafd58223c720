/*-------------------------------------------------------------------------
 *
 * view.c
 *	  What the views need beyond SQL: the clock, the owners of scopes, and the
 *	  judgement of a row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "fmgr.h"
#include "request.h"
#include "scope.h"
#include "state.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_clock);
PG_FUNCTION_INFO_V1(idem_scope_is_open);
PG_FUNCTION_INFO_V1(idem_review_kind);

/* Columns that idem_review_kind is given, in the order of its arguments. */
static const LogColumn judged_columns[] = {
	LOG_SCOPE, LOG_STATUS, LOG_ATTEMPT, LOG_GRANTED, LOG_OPEN_CALLS,
	LOG_LOCKED_UNTIL, LOG_RETRY_AT, LOG_EXPIRES_AT, LOG_REASON
};

/*
 * idem_clock() returns timestamptz - the time that leases and expiry are
 * judged by.
 */
Datum
idem_clock(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(ClockNow());
}

/*
 * idem_scope_is_open(scope text) returns boolean - does the scope show itself
 * to the current user?
 */
Datum
idem_scope_is_open(PG_FUNCTION_ARGS)
{
	ScopePolicy policy = ScopeLook(RequestCheckScope(PG_GETARG_TEXT_PP(0)));

	PG_RETURN_BOOL(ScopeIsOpen(&policy));
}

/*
 * idem_review_kind(scope, status, attempt, granted, open_calls, locked_until,
 *					retry_at, expires_at, reason) returns text - why a person
 * must decide about a row; NULL where nobody has to, or where the scope is
 * closed to the current user: the answer would tell its policy.
 */
Datum
idem_review_kind(PG_FUNCTION_ARGS)
{
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];
	LogRow		row = {.sight = LOG_SIGHT_COMMITTED,.values = values,.nulls = nulls};
	ScopePolicy policy;
	UnknownReason reason;

	memset(nulls, true, sizeof(nulls));
	for (int i = 0; i < lengthof(judged_columns); i++)
	{
		values[judged_columns[i]] = PG_GETARG_DATUM(i);
		nulls[judged_columns[i]] = PG_ARGISNULL(i);
	}
	if (nulls[LOG_SCOPE] || nulls[LOG_STATUS] || nulls[LOG_ATTEMPT])
		PG_RETURN_NULL();

	policy = ScopeLook(RequestCheckScope(PG_GETARG_TEXT_PP(0)));
	if (!ScopeIsOpen(&policy))
		PG_RETURN_NULL();
	reason = StateReason(&row, &policy, ClockNow());
	if (reason == REASON_NONE)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(StateReasonName(reason)));
}
