/*-------------------------------------------------------------------------
 *
 * callstate.c
 *	  What is known of an external call, and what to do about it.
 *
 * Once a call was given out to be sent, it counts as sent, whether or not it
 * ever was: nobody can tell.  What follows depends on what the provider can
 * do, and on whether the call may still be under way.  The table below is the
 * whole of it; nothing else decides whether a call is sent again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "callstate.h"
#include "clock.h"

static const char *const status_names[] = {
	[CALL_SENT] = "sent",
	[CALL_AMBIGUOUS] = "ambiguous",
	[CALL_REVIEW] = "review",
	[CALL_NOT_SENT] = "not_sent",
	[CALL_NOT_FOUND] = "not_found",
	[CALL_SUCCEEDED] = "succeeded",
	[CALL_FAILED] = "failed",
};

static const char *const action_names[] = {
	[CALL_DO_SEND] = "send",
	[CALL_DO_WAIT] = "wait",
	[CALL_DO_INQUIRE] = "inquire",
	[CALL_DO_REVIEW] = "review",
	[CALL_DO_NOTHING] = "done",
	[CALL_DO_YIELD] = "in_progress",
};

/* What a provider can do for a caller who lost an answer. */
typedef enum ProviderKind
{
	KIND_KEY,					/* accepts a key */
	KIND_INQUIRY,				/* no key, but can be asked */
	KIND_NEITHER,
	KIND_COUNT
} ProviderKind;

/* How things stand. */
typedef enum Situation
{
	SITUATION_UNSENT,			/* never given out, or certainly never left */
	SITUATION_UNDER_WAY,		/* sent, no answer, may still take effect */
	SITUATION_LOST,				/* sent, no answer, and none to come */
	SITUATION_NOT_FOUND,		/* the provider does not know it */
	SITUATION_REVIEW,			/* a person was asked */
	SITUATION_ANSWERED,
	SITUATION_COUNT
} Situation;

static const CallAction decisions[SITUATION_COUNT][KIND_COUNT] = {
	/* accepts a key, can be asked, neither */
	[SITUATION_UNSENT] = {CALL_DO_SEND, CALL_DO_SEND, CALL_DO_SEND},
	[SITUATION_UNDER_WAY] = {CALL_DO_SEND, CALL_DO_WAIT, CALL_DO_WAIT},
	[SITUATION_LOST] = {CALL_DO_SEND, CALL_DO_INQUIRE, CALL_DO_REVIEW},
	[SITUATION_NOT_FOUND] = {CALL_DO_SEND, CALL_DO_SEND, CALL_DO_SEND},
	[SITUATION_REVIEW] = {CALL_DO_REVIEW, CALL_DO_REVIEW, CALL_DO_REVIEW},
	[SITUATION_ANSWERED] = {CALL_DO_NOTHING, CALL_DO_NOTHING, CALL_DO_NOTHING},
};

static ProviderKind
kind_of(const Provider *provider)
{
	if (provider->accepts_key)
		return KIND_KEY;
	return provider->can_inquire ? KIND_INQUIRY : KIND_NEITHER;
}

/*
 * CallstateDeadline - when a call that was given out at a time can no longer
 * take effect.
 */
TimestampTz
CallstateDeadline(const Provider *provider, TimestampTz sent_at)
{
	return ClockAdd(sent_at, &provider->timeout);
}

static Situation
situation_of(CallStatus status, const Provider *provider, TimestampTz sent_at,
			 TimestampTz now)
{
	switch (status)
	{
		case CALL_SENT:
		case CALL_AMBIGUOUS:
			return now < CallstateDeadline(provider, sent_at) ?
				SITUATION_UNDER_WAY : SITUATION_LOST;
		case CALL_REVIEW:
			return SITUATION_REVIEW;
		case CALL_NOT_SENT:
			return SITUATION_UNSENT;
		case CALL_NOT_FOUND:
			return SITUATION_NOT_FOUND;
		case CALL_SUCCEEDED:
		case CALL_FAILED:
			break;
	}
	return SITUATION_ANSWERED;
}

/*
 * CallstateDecide - what to do about a call; one that was never given out is
 * CALL_NOT_SENT.
 */
CallAction
CallstateDecide(CallStatus status, const Provider *provider,
				TimestampTz sent_at, TimestampTz now)
{
	return decisions[situation_of(status, provider, sent_at, now)]
		[kind_of(provider)];
}

/*
 * CallstateBelieve - what a caller's word about a call amounts to.
 *
 * "not_found" too early proves nothing: the call may be on its way.  It does
 * no harm where the provider tells a repeated call by its key.
 */
CallStatus
CallstateBelieve(CallStatus word, const Provider *provider,
				 TimestampTz sent_at, TimestampTz now)
{
	if (word == CALL_NOT_FOUND && !provider->accepts_key &&
		now < CallstateDeadline(provider, sent_at))
		return CALL_AMBIGUOUS;
	return word;
}

/*
 * CallstateName - the word for a status, as it is stored.
 */
const char *
CallstateName(CallStatus status)
{
	return status_names[status];
}

/*
 * CallstateParse - the status of a word; false where it is none.
 */
bool
CallstateParse(const char *name, CallStatus *status)
{
	for (int i = 0; i < lengthof(status_names); i++)
	{
		if (strcmp(name, status_names[i]) == 0)
		{
			*status = (CallStatus) i;
			return true;
		}
	}
	return false;
}

/*
 * CallstateActionName - the word for an action.
 */
const char *
CallstateActionName(CallAction action)
{
	return action_names[action];
}

/*
 * CallstateIsOpen - may a call with this status have taken effect, without
 * anybody knowing?
 */
bool
CallstateIsOpen(CallStatus status)
{
	return status <= CALL_REVIEW;
}

/*
 * CallstateIsAnswered - is this a definite answer?
 */
bool
CallstateIsAnswered(CallStatus status)
{
	return status >= CALL_SUCCEEDED;
}
