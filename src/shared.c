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

static Size
shared_size(void)
{
	return add_size(offsetof(SharedState, slots),
					mul_size(sizeof(StatSlot), StatSlotCount()));
}

static void
request_shared_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(shared_size());
	RequestNamedLWLockTranche("idempotency", 1);
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
	{
		shared_state->lock = &(GetNamedLWLockTranche("idempotency"))->lock;
		for (int i = 0; i < SHARED_WAKEUPS; i++)
			ConditionVariableInit(&shared_state->wakeups[i]);
		shared_state->nslots = StatSlotCount();
		StatInitSlots();
	}
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
