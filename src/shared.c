/*-------------------------------------------------------------------------
 *
 * shared.c
 *	  Shared memory of the extension, where the library is preloaded.
 *
 * Everything but the worker, the counters and the prompt waking of those who
 * wait for a lease works without it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "shared.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

SharedState *shared_state = NULL;

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

/* Slots, then buckets, then entries of waiting backends. */
static Size
offset_of_buckets(void)
{
	return MAXALIGN(add_size(offsetof(SharedState, slots),
							 mul_size(sizeof(StatSlot), StatSlotCount())));
}

static Size
offset_of_waiting(void)
{
	return MAXALIGN(add_size(offset_of_buckets(),
							 mul_size(sizeof(int), StatBucketCount())));
}

static Size
shared_size(void)
{
	return add_size(offset_of_waiting(),
					mul_size(sizeof(WaitingEntry), WaitingEntryCount()));
}

static void
request_shared_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(shared_size());
	RequestNamedLWLockTranche("idempotency", 1);
}

/* Fills new shared memory. */
static void
init_shared_memory(void)
{
	char	   *start = (char *) shared_state;

	shared_state->lock = &(GetNamedLWLockTranche("idempotency"))->lock;
	for (int i = 0; i < SHARED_WAKEUPS; i++)
		ConditionVariableInit(&shared_state->wakeups[i]);
	shared_state->waiting = (WaitingEntry *) (start + offset_of_waiting());
	shared_state->nwaiting = WaitingEntryCount();
	WaitingInitEntries();
	shared_state->buckets = (int *) (start + offset_of_buckets());
	shared_state->nbuckets = StatBucketCount();
	shared_state->nslots = StatSlotCount();
	StatInitSlots();
}

static void
start_shared_memory(void)
{
	bool		found;

	if (previous_startup_hook)
		previous_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared_state = ShmemInitStruct("idempotency", shared_size(), &found);
	if (!found)
		init_shared_memory();
	LWLockRelease(AddinShmemInitLock);

	/* The postmaster keeps the counters over a clean restart. */
	if (!IsUnderPostmaster)
	{
		on_shmem_exit(StatSave, (Datum) 0);
		if (!found)
			StatLoad();
	}
}

/*
 * SharedInit - asks for shared memory; called only while libraries are being
 * preloaded.
 */
void
SharedInit(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_shared_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = start_shared_memory;
}
