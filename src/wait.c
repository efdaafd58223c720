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
#include "settings.h"
#include "stat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"
#include "wait.h"
#include "waiting.h"
#include "wakeup.h"

/* Pauses between two looks at a lease grow from the first to the second. */
#define FIRST_PAUSE_MS	1
#define LONGEST_PAUSE_MS	20

/* Longest sleep where the end of a claim wakes us. */
#define LONGEST_SLEEP_MS	200

/*
 * WaitStart - begins a wait for a key of at most the given length.
 */
void
WaitStart(Waiter *waiter, const RequestKey *key, const Interval *limit)
{
	waiter->key = key;
	waiter->started = 0;
	waiter->prepared = false;
	waiter->stat_slot = STAT_NOT_ASKED;
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

static uint32
claim_wait_event(void)
{
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = compat_wait_event("IdempotencyClaim");
	return wait_event;
}

/* Sleeps for the given time, or until the latch is set. */
static void
pause_for(int milliseconds)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 milliseconds, claim_wait_event());
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

/* How long to sleep before the next look at a lease. */
static int
lease_pause(const Waiter *waiter, TimestampTz until, int longest)
{
	int64		lease_left = (until - ClockNow() + 999) / 1000;
	int			pause = Min(longest, milliseconds_left(waiter));

	if (lease_left > 0)
		pause = (int) Min(pause, lease_left);
	return Max(pause, 1);
}

/*
 * Waits for a lease to end, by the clock or by its holder.
 *
 * Where there is shared memory, the holder's commit wakes us.  The first call
 * only says that we want to be woken, since the claim may have ended after the
 * row was looked at; without shared memory, and on a standby, whose primary
 * wakes nobody here, we look again and again, at growing intervals.
 */
static void
await_lease(Waiter *waiter, TimestampTz until)
{
	bool		woken = !RecoveryInProgress();

	if (woken && !waiter->prepared)
	{
		waiter->prepared = true;
		WakeupPrepare(waiter->key);
	}
	else if (!woken ||
			 !WakeupSleep(waiter->key,
						  lease_pause(waiter, until, LONGEST_SLEEP_MS),
						  claim_wait_event()))
	{
		pause_for(lease_pause(waiter, until, waiter->pause_ms));
		waiter->pause_ms = Min(waiter->pause_ms * 2, LONGEST_PAUSE_MS);
	}
}

/*
 * WaitFor - waits until it is worth to look again; false where the time is up.
 *
 * Transactions are not waited for on a standby: those of the primary hold no
 * locks there, and what they have not committed is not seen.
 */
bool
WaitFor(Waiter *waiter, const Blocker *blocker)
{
	if (waiter->deadline == 0 || milliseconds_left(waiter) == 0 ||
		(blocker->kind == BLOCKER_XACT && RecoveryInProgress()))
		return false;

	if (waiter->started == 0)
		waiter->started = GetCurrentTimestamp();
	WaitingBegin(waiter->key);
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

/*
 * Tells the log of a wait that was long, if that is wanted; without the
 * statement and its context, in which key and body may stand.
 */
static void
log_long_wait(const Waiter *waiter, int64 microseconds)
{
	if (idem_log_wait_ms >= 0 &&
		microseconds >= idem_log_wait_ms * INT64CONST(1000))
		ereport(LOG,
				(errmsg("idempotency claim in scope \"%s\" waited for %lld ms",
						text_to_cstring(waiter->key->scope),
						(long long) (microseconds / 1000)),
				 errhidestmt(true), errhidecontext(true)));
}

/*
 * WaitEnd - ends a wait, however it ended, and counts it if there was one.
 */
void
WaitEnd(Waiter *waiter)
{
	int64		microseconds;

	if (waiter->prepared)
		WakeupCancel();
	WaitingEnd();
	if (waiter->started == 0)
		return;
	microseconds = Max(GetCurrentTimestamp() - waiter->started, 0);
	StatCount(waiter->stat_slot, STAT_WAITS, 1);
	StatCount(waiter->stat_slot, STAT_WAIT_US, microseconds);
	log_long_wait(waiter, microseconds);
}
