/*-------------------------------------------------------------------------
 *
 * statehistory.h
 *	  History of the states of guarded rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_STATEHISTORY_H
#define IDEM_STATEHISTORY_H

#include "access/htup.h"
#include "guard.h"
#include "utils/relcache.h"

extern void StateHistoryWrite(const Guard *guard, Relation rel,
							  HeapTuple new, const char *from,
							  const char *to);

#endif							/* IDEM_STATEHISTORY_H */
