/*-------------------------------------------------------------------------
 *
 * wait.h
 *	  Waiting, for a bounded time, until a request in flight ends.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_WAIT_H
#define IDEM_WAIT_H

#include "datatype/timestamp.h"
#include "request.h"

/* What stands in the way of a claim. */
typedef enum BlockerKind
{
	BLOCKER_XACT,				/* a transaction that has not ended */
	BLOCKER_LEASE,				/* a committed claim with a live lease */
	BLOCKER_BRIEF				/* something that passes in a moment */
} BlockerKind;

typedef struct Blocker
{
	BlockerKind kind;
	TransactionId xid;			/* BLOCKER_XACT */
	TimestampTz until;			/* BLOCKER_LEASE: end of the lease */
} Blocker;

/* A wait from its start to its deadline, by the real clock. */
typedef struct Waiter
{
	const RequestKey *key;
	TimestampTz deadline;		/* 0 where nothing is ever waited for */
	TimestampTz started;		/* of the first wait; 0 before it */
	int			pause_ms;		/* next pause between two looks */
	bool		prepared;		/* to be woken when the claim ends */
	int			stat_slot;		/* where it is counted */
} Waiter;

extern void WaitStart(Waiter *waiter, const RequestKey *key,
					  const Interval *limit);
extern bool WaitFor(Waiter *waiter, const Blocker *blocker);
extern void WaitEnd(Waiter *waiter);

#endif							/* IDEM_WAIT_H */
