/*-------------------------------------------------------------------------
 *
 * callstate.h
 *	  What is known of an external call, and what to do about it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_CALLSTATE_H
#define IDEM_CALLSTATE_H

#include "datatype/timestamp.h"
#include "provider.h"

/* What is known of a call; the open ones first, the answered ones last. */
typedef enum CallStatus
{
	CALL_SENT,					/* given out to be sent; no word since */
	CALL_AMBIGUOUS,				/* a word, but no answer */
	CALL_REVIEW,				/* a person must find out */
	CALL_NOT_SENT,				/* certainly never left */
	CALL_NOT_FOUND,				/* asked: it never got there */
	CALL_SUCCEEDED,
	CALL_FAILED
} CallStatus;

/* What a caller has to do next. */
typedef enum CallAction
{
	CALL_DO_SEND,
	CALL_DO_WAIT,
	CALL_DO_INQUIRE,
	CALL_DO_REVIEW,
	CALL_DO_NOTHING,			/* it is done */
	CALL_DO_YIELD				/* another transaction is at it */
} CallAction;

extern const char *CallstateName(CallStatus status);
extern bool CallstateParse(const char *name, CallStatus *status);
extern const char *CallstateActionName(CallAction action);
extern bool CallstateIsOpen(CallStatus status);
extern bool CallstateIsAnswered(CallStatus status);
extern TimestampTz CallstateDeadline(const Provider *provider,
									 TimestampTz sent_at);
extern CallAction CallstateDecide(CallStatus status, const Provider *provider,
								  TimestampTz sent_at, TimestampTz now);
extern CallStatus CallstateBelieve(CallStatus word, const Provider *provider,
								   TimestampTz sent_at, TimestampTz now);

#endif							/* IDEM_CALLSTATE_H */
