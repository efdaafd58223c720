/*-------------------------------------------------------------------------
 *
 * history.h
 *	  History of the states of guarded rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_HISTORY_H
#define IDEM_HISTORY_H

#include "access/htup.h"
#include "guard.h"
#include "utils/relcache.h"

extern void HistoryWrite(const Guard *guard, Relation rel, HeapTuple new,
						 const char *from, const char *to);

#endif							/* IDEM_HISTORY_H */
