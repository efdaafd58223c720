/*-------------------------------------------------------------------------
 *
 * state.h
 *	  What a stored request amounts to at a given time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_STATE_H
#define IDEM_STATE_H

#include "log.h"
#include "scope.h"

typedef enum RequestState
{
	STATE_ABSENT,				/* expired: as if it were not there */
	STATE_FINISHED,				/* completed, or failed for good */
	STATE_LEASED,				/* claimed, lease runs */
	STATE_LAPSED,				/* claimed, lease over: may be taken over */
	STATE_BACKOFF,				/* failed, retry time still ahead */
	STATE_RETRYABLE,			/* failed, may run again */
	STATE_UNKNOWN				/* a person must decide */
} RequestState;

/* Why a person must decide. */
typedef enum UnknownReason
{
	REASON_NONE,
	REASON_LAPSED,
	REASON_EXHAUSTED,
	REASON_CALL
} UnknownReason;

extern RequestState StateJudge(const LogRow *row, const ScopePolicy *policy,
							   TimestampTz now);
extern UnknownReason StateReason(const LogRow *row, const ScopePolicy *policy,
								 TimestampTz now);
extern const char *StateReasonName(UnknownReason reason);
extern bool StateAttemptsUsedUp(const LogRow *row, const ScopePolicy *policy);
extern const char *StateDescribe(RequestState state);

#endif							/* IDEM_STATE_H */
