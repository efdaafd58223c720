/*-------------------------------------------------------------------------
 *
 * waiting.h
 *	  Who waits for which request.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_WAITING_H
#define IDEM_WAITING_H

#include "port/atomics.h"
#include "request.h"

/* One backend; not waiting while the key is 0. */
typedef struct WaitingEntry
{
	pg_atomic_uint64 key;		/* hash of what it waits for */
	pg_atomic_uint32 pid;
} WaitingEntry;

/* All who waited at one moment, in the memory context of then. */
typedef struct Waiting
{
	int			nkeys;			/* for a request */
	uint64	   *keys;
	int		   *key_pids;
	int			nxids;			/* for a transaction */
	TransactionId *xids;
	int		   *xid_pids;
} Waiting;

extern int	WaitingEntryCount(void);
extern void WaitingInitEntries(void);
extern void WaitingInit(void);
extern void WaitingBegin(const RequestKey *key);
extern void WaitingEnd(void);
extern void WaitingRead(Waiting *waiting);
extern bool WaitingFor(const Waiting *waiting, const RequestKey *key,
					   TransactionId xid, Datum *pids);

#endif							/* IDEM_WAITING_H */
