/*-------------------------------------------------------------------------
 *
 * stat.h
 *	  Counters per database and scope.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_STAT_H
#define IDEM_STAT_H

#include "port/atomics.h"
#include "request.h"

/* What is counted, in the order of the columns of idem_stat. */
typedef enum StatCounter
{
	STAT_CLAIMED,
	STAT_TAKEN_OVER,
	STAT_REPLAYED,
	STAT_IN_PROGRESS,
	STAT_MISMATCHED,
	STAT_UNKNOWN,
	STAT_COMPLETED,
	STAT_FAILED,
	STAT_RELEASED,
	STAT_STALE,
	STAT_WAITS,
	STAT_WAIT_US,
	STAT_MESSAGES,
	STAT_DUPLICATE_MESSAGES,
	STAT_PURGED,
	STAT_PURGE_ROUNDS,
	STAT_PURGE_US,
	STAT_NCOUNTERS
} StatCounter;

/* Longest scope in bytes. */
#define STAT_SCOPE_BYTES	(REQUEST_NAME_MAX * 4)

/* Counters of one scope of one database; free while database is invalid. */
typedef struct StatSlot
{
	Oid			database;
	int			scope_len;		/* -1: all of the database's other scopes */
	int			next;			/* in its bucket, or among the free ones */
	char		scope[STAT_SCOPE_BYTES];
	pg_atomic_uint64 reset_at;
	pg_atomic_uint64 counters[STAT_NCOUNTERS];
} StatSlot;

/* No slot: nothing is counted. */
#define STAT_NO_SLOT	(-1)

/* Nobody has asked for the slot yet. */
#define STAT_NOT_ASKED	(-2)

extern int	StatSlotCount(void);
extern int	StatBucketCount(void);
extern void StatInitSlots(void);
extern void StatLoad(void);
extern void StatSave(int code, Datum arg);
extern int	StatFindSlot(const char *scope, int scope_len);
extern void StatCount(int slot, StatCounter counter, uint64 n);

#endif							/* IDEM_STAT_H */
