/*-------------------------------------------------------------------------
 *
 * review.c
 *	  Asking a person: how a request turns unknown.
 *
 * A request that has turned never expires and is never run again, until it is
 * settled.  Whoever turns it sends one notification, which says no more than
 * the kind, since anybody can listen.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "commands/async.h"
#include "history.h"
#include "review.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#define REVIEW_CHANNEL "idempotency_review"

/*
 * ReviewReason - why a person is asked because of a call: because of the call,
 * unless he has to be asked about the request anyway.
 */
UnknownReason
ReviewReason(const LogRow *row, const ScopePolicy *policy)
{
	UnknownReason reason = StateReason(row, policy, ClockNow());

	return reason == REASON_NONE ? REASON_CALL : reason;
}

/*
 * ReviewFill - the row's new version, turned unknown.  Its token stays: the
 * holder may still record how it ended.
 */
void
ReviewFill(const LogRow *row, const ScopePolicy *policy, UnknownReason reason,
		   Datum *values, bool *nulls)
{
	LogCopyRow(row, values, nulls);
	values[LOG_STATUS] = CStringGetTextDatum(LogStatusName(LOG_UNKNOWN));
	values[LOG_REASON] = CStringGetTextDatum(StateReasonName(reason));
	nulls[LOG_REASON] = false;
	values[LOG_DUE_AT] = TimestampTzGetDatum(DT_NOEND);
	nulls[LOG_EXPIRES_AT] = true;
	nulls[LOG_RETRY_AT] = true;
	HistoryCount(policy, values, nulls);
}

/*
 * ReviewNotify - tells whoever listens that there is something to decide, once
 * the transaction commits.
 */
void
ReviewNotify(UnknownReason reason)
{
	char	   *payload = psprintf("{\"kind\":\"%s\"}",
								   StateReasonName(reason));

	Async_Notify(REVIEW_CHANNEL, payload);
	pfree(payload);
}
