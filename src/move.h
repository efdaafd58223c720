/*-------------------------------------------------------------------------
 *
 * move.h
 *	  Recognises rows that an UPDATE moves to another partition.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_MOVE_H
#define IDEM_MOVE_H

#include "access/htup.h"
#include "utils/relcache.h"

/* Which guard remembers something about the row that left. */
typedef enum MoveGuard
{
	MOVE_STATE,
	MOVE_VERSION
} MoveGuard;

extern void MoveExpect(Relation rel, HeapTuple old, int64 version);
extern bool MoveExpected(int64 *version);
extern bool MoveIsDeparture(HeapTuple old);
extern void MoveDepart(MoveGuard guard, HeapTuple old, const char *state,
					   int64 version);
extern bool MoveArrive(MoveGuard guard, HeapTuple new, char **state,
					   int64 *version);

#endif							/* IDEM_MOVE_H */
