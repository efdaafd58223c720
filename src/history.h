/*-------------------------------------------------------------------------
 *
 * history.h
 *	  Keeping changes of state.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_HISTORY_H
#define IDEM_HISTORY_H

#include "log.h"
#include "scope.h"

extern void HistoryCount(const ScopePolicy *policy, Datum *values,
						 bool *nulls);
extern void HistoryRecord(const ScopePolicy *policy, const LogRow *before,
						  const Datum *values, const bool *nulls);

#endif							/* IDEM_HISTORY_H */
