/*-------------------------------------------------------------------------
 *
 * state.c
 *	  What a stored request amounts to at a given time.
 *
 * The stored status changes only when somebody writes; leases, backoff and
 * expiry pass by themselves.  Every function judges a row here and nowhere
 * else, so that all of them agree.
 *
 *	 stored		 while				 then				   later
 *	 processing	 lease runs: LEASED	 over: LAPSED		   ttl after it: ABSENT
 *							   (or UNKNOWN, where a person is asked)
 *	 failed		 backoff: BACKOFF	 over: RETRYABLE	   ttl after it: ABSENT
 *	 failed, final, completed: FINISHED			ttl after the end: ABSENT
 *	 unknown: UNKNOWN, for ever
 *
 * What had an external call that nobody knows the answer of is never absent:
 * instead of expiring it becomes UNKNOWN.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "state.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* Has the key's time run out? */
static bool
is_expired(const LogRow *row, TimestampTz now)
{
	return LogRowTime(row, LOG_EXPIRES_AT, DT_NOEND) <= now;
}

static bool
has_open_call(const LogRow *row)
{
	return LogRowInt32(row, LOG_OPEN_CALLS) > 0;
}

/*
 * StateAttemptsUsedUp - is the present attempt the last one allowed, by the
 * scope or, beyond that, by a person?
 */
bool
StateAttemptsUsedUp(const LogRow *row, const ScopePolicy *policy)
{
	int			allowed;

	if (policy->max_attempts == 0)
		return false;
	allowed = Max(policy->max_attempts, LogRowInt32(row, LOG_GRANTED));
	return LogRowInt32(row, LOG_ATTEMPT) >= allowed;
}

/* Why a claim whose lease is over needs a person, if it does. */
static UnknownReason
reason_of_lapsed(const LogRow *row, const ScopePolicy *policy, TimestampTz now)
{
	if (policy->manual)
		return REASON_LAPSED;
	if (StateAttemptsUsedUp(row, policy))
		return REASON_EXHAUSTED;
	if (has_open_call(row) && is_expired(row, now))
		return REASON_CALL;
	return REASON_NONE;
}

static RequestState
judge_processing(const LogRow *row, const ScopePolicy *policy, TimestampTz now)
{
	if (LogRowTime(row, LOG_LOCKED_UNTIL, DT_NOBEGIN) > now)
		return STATE_LEASED;
	if (reason_of_lapsed(row, policy, now) != REASON_NONE)
		return STATE_UNKNOWN;
	return is_expired(row, now) ? STATE_ABSENT : STATE_LAPSED;
}

static RequestState
judge_failed(const LogRow *row, const ScopePolicy *policy, TimestampTz now)
{
	bool		final = row->nulls[LOG_RETRY_AT];

	if (!final && LogRowTime(row, LOG_RETRY_AT, DT_NOBEGIN) > now)
		return STATE_BACKOFF;
	if (is_expired(row, now))
		return has_open_call(row) ? STATE_UNKNOWN : STATE_ABSENT;
	if (final || StateAttemptsUsedUp(row, policy))
		return STATE_FINISHED;
	return STATE_RETRYABLE;
}

/*
 * StateJudge - what a row amounts to under a policy at a time.
 */
RequestState
StateJudge(const LogRow *row, const ScopePolicy *policy, TimestampTz now)
{
	switch (LogRowStatus(row))
	{
		case LOG_PROCESSING:
			return judge_processing(row, policy, now);
		case LOG_FAILED:
			return judge_failed(row, policy, now);
		case LOG_COMPLETED:
			return is_expired(row, now) ? STATE_ABSENT : STATE_FINISHED;
		case LOG_UNKNOWN:
			break;
	}
	return STATE_UNKNOWN;
}

/*
 * StateReason - why a request is unknown; REASON_NONE where it is not.
 */
UnknownReason
StateReason(const LogRow *row, const ScopePolicy *policy, TimestampTz now)
{
	if (StateJudge(row, policy, now) != STATE_UNKNOWN)
		return REASON_NONE;
	switch (LogRowStatus(row))
	{
		case LOG_PROCESSING:
			return reason_of_lapsed(row, policy, now);
		case LOG_UNKNOWN:
			if (!row->nulls[LOG_REASON])
			{
				char	   *name = TextDatumGetCString(row->values[LOG_REASON]);

				for (UnknownReason r = REASON_LAPSED; r <= REASON_CALL; r++)
				{
					if (strcmp(name, StateReasonName(r)) == 0)
						return r;
				}
			}
			return REASON_LAPSED;
		default:
			return REASON_CALL;
	}
}

/*
 * StateReasonName - the word for a reason, as it is stored and notified.
 */
const char *
StateReasonName(UnknownReason reason)
{
	switch (reason)
	{
		case REASON_LAPSED:
			return "lapsed";
		case REASON_EXHAUSTED:
			return "exhausted";
		case REASON_CALL:
			return "call";
		case REASON_NONE:
			break;
	}
	return NULL;
}

/*
 * StateDescribe - names a state in the DETAIL of an error.
 */
const char *
StateDescribe(RequestState state)
{
	switch (state)
	{
		case STATE_ABSENT:
			return _("expired");
		case STATE_FINISHED:
			return _("finished");
		case STATE_LEASED:
			return _("in progress");
		case STATE_LAPSED:
			return _("in progress, with its lease over");
		case STATE_BACKOFF:
			return _("failed, with its retry time still ahead");
		case STATE_RETRYABLE:
			return _("failed and may be retried");
		case STATE_UNKNOWN:
			return _("of unknown outcome");
	}
	return "?";
}
