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

/* Sleepers are spread over so many condition variables, by their key. */
#define SHARED_WAKEUPS	128

typedef struct SharedState
{
	LWLock	   *lock;			/* protects which scope a counter slot is for */
	ConditionVariable wakeups[SHARED_WAKEUPS];
	int			nslots;
	StatSlot	slots[FLEXIBLE_ARRAY_MEMBER];
} SharedState;

/* NULL where the library is not preloaded. */
extern SharedState *shared_state;

extern void SharedInit(void);

#endif							/* IDEM_SHARED_H */
