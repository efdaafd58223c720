/*-------------------------------------------------------------------------
 *
 * wakeup.c
 *	  Waking those who wait for a lease when the claim ends.
 *
 * Keys are spread over a fixed number of condition variables.  A transaction
 * that ends a committed claim notes the key's variable and broadcasts on it
 * once it is committed and visible to all (XACT_EVENT_COMMIT comes after it
 * has left the proc array).  Who is woken looks for himself, so waking too
 * many does no harm; and nobody sleeps for longer than a fraction of a second,
 * so a wake-up that is missed (a prepared transaction, a crash) does not hurt.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "compat.h"
#include "miscadmin.h"
#include "shared.h"
#include "wakeup.h"

/* Variables to broadcast on at commit; a superset after a rolled back part. */
static uint64 noted[SHARED_WAKEUPS / 64];
static bool anything_noted = false;

static int
number_of_key(const RequestKey *key)
{
	uint32		hash = hash_bytes((const unsigned char *) VARDATA_ANY(key->scope),
								  VARSIZE_ANY_EXHDR(key->scope));

	hash = hash_combine(hash,
						hash_bytes((const unsigned char *) VARDATA_ANY(key->request_id),
								   VARSIZE_ANY_EXHDR(key->request_id)));
	return hash_combine(hash, MyDatabaseId) % SHARED_WAKEUPS;
}

static void
broadcast(void)
{
	for (int i = 0; i < SHARED_WAKEUPS; i++)
	{
		if (noted[i / 64] & (UINT64CONST(1) << (i % 64)))
			ConditionVariableBroadcast(&shared_state->wakeups[i]);
	}
}

static void
at_transaction_event(XactEvent event, void *arg)
{
	if (!anything_noted)
		return;
	if (event == XACT_EVENT_COMMIT)
		broadcast();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE)
	{
		memset(noted, 0, sizeof(noted));
		anything_noted = false;
	}
}

/*
 * WakeupInit - registers the callback; once, when the library is loaded.
 */
void
WakeupInit(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
}

/*
 * WakeupAtCommit - notes that this transaction ends a claim that others may be
 * waiting for.
 */
void
WakeupAtCommit(const RequestKey *key)
{
	int			number;

	if (shared_state == NULL)
		return;
	number = number_of_key(key);
	noted[number / 64] |= UINT64CONST(1) << (number % 64);
	anything_noted = true;
}

/*
 * WakeupPrepare - from now on, a wake-up for the key is not missed.
 */
void
WakeupPrepare(const RequestKey *key)
{
	if (shared_state != NULL)
		ConditionVariablePrepareToSleep(&shared_state->wakeups[number_of_key(key)]);
}

/*
 * WakeupSleep - sleeps until a wake-up for the key or for the given time; false
 * where there is no shared memory to be woken by.
 */
bool
WakeupSleep(const RequestKey *key, int milliseconds, uint32 wait_event)
{
	if (shared_state == NULL)
		return false;
	(void) ConditionVariableTimedSleep(&shared_state->wakeups[number_of_key(key)],
									   milliseconds, wait_event);
	return true;
}

/*
 * WakeupCancel - ends what WakeupPrepare began.
 */
void
WakeupCancel(void)
{
	if (shared_state != NULL)
		ConditionVariableCancelSleep();
}
