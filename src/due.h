/*-------------------------------------------------------------------------
 *
 * due.h
 *	  When a request has to be looked at without being asked for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_DUE_H
#define IDEM_DUE_H

#include "access/genam.h"
#include "log.h"
#include "scope.h"
#include "state.h"

/* Index of the log by due time. */
#define DUE_INDEX	"transaction_log_due_at_idx"

/* Rows of the log by due time. */
typedef struct DueScan
{
	Relation	index;
	IndexScanDesc scan;
} DueScan;

extern void DueScanBegin(Log *log, TimestampTz from, TimestampTz until,
						 DueScan *scan);
extern bool DueScanNext(Log *log, DueScan *scan, LogRow *row);
extern void DueScanEnd(DueScan *scan);
extern TimestampTz DueNext(const LogRow *row, const ScopePolicy *policy,
						   RequestState state, TimestampTz now);
extern void DueBringForward(text *scope);

#endif							/* IDEM_DUE_H */
