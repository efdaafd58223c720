/*-------------------------------------------------------------------------
 *
 * shared.h
 *	  Shared memory of the extension, where the library is preloaded.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_SHARED_H
#define IDEM_SHARED_H

#include "stat.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "waiting.h"

/* Sleepers are spread over so many condition variables, by their key. */
#define SHARED_WAKEUPS	128

/*
 * The lock protects what counter slots are for: their lists, and database and
 * scope of each.  Counters are atomic, and of the waiting backends each writes
 * its own entry only.
 */
typedef struct SharedState
{
	LWLock	   *lock;
	ConditionVariable wakeups[SHARED_WAKEUPS];
	int			nwaiting;
	WaitingEntry *waiting;		/* by number of the process */
	int			free_for_scopes;	/* heads of lists of slots */
	int			free_for_databases;
	int			nbuckets;		/* a power of two */
	int		   *buckets;		/* heads of lists of slots, by hash */
	int			nslots;
	StatSlot	slots[FLEXIBLE_ARRAY_MEMBER];
} SharedState;

/* NULL where the library is not preloaded. */
extern SharedState *shared_state;

extern void SharedInit(void);

#endif							/* IDEM_SHARED_H */
