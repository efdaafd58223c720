/*-------------------------------------------------------------------------
 *
 * wait.c
 *	  Waiting, for a bounded time, until a request in flight ends.
 *
 * An uncommitted claim is waited for by way of the lock that every transaction
 * holds on its own id, so deadlocks are found and cancel requests and
 * statement_timeout work as with any lock.  The limit of the wait is put into
 * lock_timeout for just that lock, inside a subtransaction that writes
 * nothing: the error of the limit must not abort the caller's transaction.
 *
 * A subtransaction's id is waited for by itself first and its parents only
 * when it has been released into them: a claim that is undone by ROLLBACK TO
 * is free at once, however long its transaction goes on.
 *
 * The caller holds no buffer pin while it waits, and looks at the row again
 * after every return.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/subtrans.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "clock.h"
#include "compat.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"
#include "wait.h"

/* Pauses between two looks at a lease grow from the first to the second. */
#define FIRST_PAUSE_MS	1
#define LONGEST_PAUSE_MS	20

/*
 * WaitStart - begins a wait of at most the given length.
 */
void
WaitStart(Waiter *waiter, const Interval *limit)
{
	waiter->pause_ms = FIRST_PAUSE_MS;
	waiter->deadline = 0;
	if (limit->time != 0 || limit->day != 0 || limit->month != 0)
	{
		Interval	span = ClockInterval(ClockIntervalMicroseconds(limit));

		waiter->deadline = ClockAdd(GetCurrentTimestamp(), &span);
	}
}

/* Milliseconds that are left, rounded up, at most what a timer can hold. */
static int
milliseconds_left(const Waiter *waiter)
{
	int64		left = waiter->deadline - GetCurrentTimestamp();

	if (left <= 0)
		return 0;
	return (int) Min((left + 999) / 1000, INT_MAX / 2);
}

/* Sleeps until woken or for the given time. */
static void
pause_for(int milliseconds)
{
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = compat_wait_event("IdempotencyClaim");
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 milliseconds, wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Waits for the lock that a transaction holds on its own id. */
static void
await_xid_lock(TransactionId xid)
{
	LOCKTAG		tag;

	SET_LOCKTAG_TRANSACTION(tag, xid);
	(void) LockAcquire(&tag, ShareLock, false, false);
	LockRelease(&tag, ShareLock, false);

	/*
	 * The timer may have fired just before the lock was granted; its error
	 * must come here and not at the next check of the caller.
	 */
	CHECK_FOR_INTERRUPTS();
}

/*
 * Waits for a transaction id's lock for a limited time; false where the time
 * ran out.  Other errors (deadlock, cancel) go on to the caller.
 */
static bool
await_xid(TransactionId xid, int milliseconds)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	int			users_lock_timeout = LockTimeout;
	volatile bool ended = true;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		LockTimeout = milliseconds;
		await_xid_lock(xid);
		LockTimeout = users_lock_timeout;
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		LockTimeout = users_lock_timeout;
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
			ReThrowError(error);
		FreeErrorData(error);
		ended = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return ended;
}

/* Waits until a transaction, or what it was released into, has ended. */
static void
await_transaction(const Waiter *waiter, TransactionId xid)
{
	int			left;

	while ((left = milliseconds_left(waiter)) > 0)
	{
		TransactionId parent;

		if (!await_xid(xid, left) || !TransactionIdIsInProgress(xid))
			return;
		parent = SubTransGetParent(xid);
		if (TransactionIdIsValid(parent))
			xid = parent;
		else
			pause_for(1);		/* it is just about to end */
	}
}

/* Pauses before the next look at a lease, not longer than it runs. */
static void
await_lease(Waiter *waiter, TimestampTz until)
{
	int64		lease_left = (until - ClockNow() + 999) / 1000;
	int			pause = Min(waiter->pause_ms, milliseconds_left(waiter));

	if (lease_left > 0)
		pause = (int) Min(pause, lease_left);
	pause_for(Max(pause, 1));
	waiter->pause_ms = Min(waiter->pause_ms * 2, LONGEST_PAUSE_MS);
}

/*
 * WaitFor - waits until it is worth to look again; false where the time is up.
 *
 * Nothing is waited for on a standby: transactions of the primary hold no
 * locks there.
 */
bool
WaitFor(Waiter *waiter, const Blocker *blocker)
{
	if (likely(waiter->deadline == 0) || RecoveryInProgress() ||
		milliseconds_left(waiter) == 0)
		return false;

	switch (blocker->kind)
	{
		case BLOCKER_XACT:
			await_transaction(waiter, blocker->xid);
			break;
		case BLOCKER_LEASE:
			await_lease(waiter, blocker->until);
			break;
		case BLOCKER_BRIEF:
			pause_for(1);
			break;
	}
	return true;
}
