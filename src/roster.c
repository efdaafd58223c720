/*-------------------------------------------------------------------------
 *
 * roster.c
 *	  What purge workers tell the launcher, by way of shared memory.
 *
 * Each worker that runs has a slot, into which it writes one report when it
 * leaves, along with the ticket of its order.  A launcher that was restarted
 * may give out a slot whose earlier worker still runs: the ticket then tells
 * whose report it is.  A report is one atomic number, so there is no lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "roster.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

/* Bits of a written report that hold the report; the rest is the ticket. */
#define REPORT_BITS	8

typedef struct Roster
{
	pg_atomic_uint64 written[ROSTER_SLOTS];
} Roster;

static Roster *roster = NULL;
static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static void
request_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(Roster)));
}

static void
start_memory(void)
{
	bool		found;

	if (previous_startup_hook)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	roster = ShmemInitStruct("idempotency roster", sizeof(Roster), &found);
	if (!found)
	{
		for (int slot = 0; slot < ROSTER_SLOTS; slot++)
			pg_atomic_init_u64(&roster->written[slot], 0);
	}
	LWLockRelease(AddinShmemInitLock);
}

/*
 * RosterInit - reserves the memory; while shared_preload_libraries are loaded.
 */
void
RosterInit(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = start_memory;
}

/*
 * RosterWrite - a worker's report on its order.
 */
void
RosterWrite(const RosterOrder *order, RosterReport report)
{
	pg_atomic_write_u64(&roster->written[order->slot],
						(order->ticket << REPORT_BITS) | report);
}

/*
 * RosterRead - what the worker with this order reported; ROSTER_NOTHING if it
 * did not.
 */
RosterReport
RosterRead(const RosterOrder *order)
{
	uint64		written = pg_atomic_read_u64(&roster->written[order->slot]);

	if (written >> REPORT_BITS != order->ticket)
		return ROSTER_NOTHING;
	return (RosterReport) (written & ((1 << REPORT_BITS) - 1));
}
