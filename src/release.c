/*-------------------------------------------------------------------------
 *
 * release.c
 *	  Giving a claim back as if it had never been made: idem_release.
 *
 * The first attempt of a life leaves nothing behind.  A later one goes back to
 * what it took over, a failure or a lapsed lease, but under a token that
 * nobody holds: neither the one who gives back nor the one before him may
 * record anything any more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "callrow.h"
#include "clock.h"
#include "errors.h"
#include "history.h"
#include "holder.h"
#include "isolation.h"
#include "life.h"
#include "miscadmin.h"
#include "stat.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

PG_FUNCTION_INFO_V1(idem_release);

/* The row as it was before the claim took it over. */
static void
fill_prior(const LogRow *row, Datum *values, bool *nulls)
{
	bool		failed;
	LogColumn	until;

	LogCopyRow(row, values, nulls);

	failed = strcmp(TextDatumGetCString(row->values[LOG_PRIOR_STATUS]),
					LogStatusName(LOG_FAILED)) == 0;
	until = failed ? LOG_RETRY_AT : LOG_LOCKED_UNTIL;
	nulls[LOG_RETRY_AT] = true;
	nulls[LOG_LOCKED_UNTIL] = true;
	values[until] = row->values[LOG_PRIOR_UNTIL];
	nulls[until] = row->nulls[LOG_PRIOR_UNTIL];

	values[LOG_CLAIMED_XACT] =
		FullTransactionIdGetDatum(InvalidFullTransactionId);
	values[LOG_STATUS] = row->values[LOG_PRIOR_STATUS];
	values[LOG_TTL] = row->values[LOG_PRIOR_TTL];
	values[LOG_LEASE] = row->values[LOG_PRIOR_LEASE];
	if (DatumGetBool(row->values[LOG_PRIOR_UNNAMED]))
	{
		nulls[LOG_FINGERPRINT] = true;
		nulls[LOG_REQUEST_BODY] = true;
	}
	values[LOG_ATTEMPT] = Int32GetDatum(LogRowInt32(row, LOG_ATTEMPT) - 1);
	values[LOG_TOKEN] = Int64GetDatum(LogRowInt64(row, LOG_TOKEN) + 1);
	if (!row->nulls[LOG_PRIOR_UNTIL])
		values[LOG_EXPIRES_AT] =
			TimestampTzGetDatum(ClockAdd(LogRowTime(row, LOG_PRIOR_UNTIL, 0),
										 DatumGetIntervalP(row->values[LOG_PRIOR_TTL])));
	LogForgetPrior(nulls);
}

static LogWrite
write_release(Log *log, const ScopePolicy *policy, const LogRow *row)
{
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];
	LogWrite	result;

	if (row->nulls[LOG_PRIOR_STATUS])
	{
		result = LogDelete(log, row);
		if (result == LOG_WRITTEN)
			LifeForget(row);
		return result;
	}

	fill_prior(row, values, nulls);
	HistoryCount(policy, values, nulls);
	result = LogUpdate(log, row, values, nulls);
	if (result == LOG_WRITTEN)
		HistoryRecord(policy, row, values, nulls);
	return result;
}

/* Would the release forget an external call that has succeeded? */
static bool
forgets_success(const LogRow *row)
{
	return row->nulls[LOG_PRIOR_STATUS] && LogRowInt32(row, LOG_CALLS) > 0 &&
		CallrowCount(row, CALL_SUCCEEDED) > 0;
}

/* What was sent outside cannot be taken back by saying so. */
static void
check_releasable(const Holder *holder, const LogRow *row)
{
	if (LogRowInt32(row, LOG_OPEN_CALLS) > 0 || forgets_success(row))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("claim cannot be released"),
				 errdetail("%s may have taken effect outside; its status is \"%s\".",
						   RequestDescribe(&holder->key),
						   LogStatusName(LogRowStatus(row))),
				 errhint("Record the outcome with idem_finish() or idem_fail().")));
}

/* Gives the holder's claim back; an error where it is not his. */
static void
release_claim(Log *log, const Holder *holder)
{
	HolderVerdict verdict;
	LogRow		row;

	for (;;)
	{
		verdict = HolderFindOngoing(log, holder, &row);
		if (verdict == HOLDER_ENDED)
			HolderRaiseEnded(holder, &row, false);
		if (verdict != HOLDER_HOLDS)
			HolderRaise(holder, verdict, &row);
		check_releasable(holder, &row);

		PreventCommandIfReadOnly("idem_release()");
		if (write_release(log, &holder->policy, &row) == LOG_WRITTEN)
			break;
		IsolationCheck();
	}
	HolderNoteEnd(&holder->key, &row);
	StatCount(holder->policy.stat_slot, STAT_RELEASED, 1);
}

/*
 * idem_release(request_id text, token bigint, scope text) returns boolean
 */
Datum
idem_release(PG_FUNCTION_ARGS)
{
	Holder		holder = HolderFromArgs(fcinfo, 1, 2);
	Log			log;

	LogOpen(&log);
	holder.policy = ScopeEnter(holder.key.scope);
	release_claim(&log, &holder);
	LogClose(&log);
	PG_RETURN_BOOL(true);
}
