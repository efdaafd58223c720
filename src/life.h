/*-------------------------------------------------------------------------
 *
 * life.h
 *	  What belongs to one life of a key, beside its row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_LIFE_H
#define IDEM_LIFE_H

#include "access/genam.h"
#include "access/htup.h"
#include "log.h"
#include "storage/lockdefs.h"
#include "utils/snapshot.h"

/* Tables that hold what belongs to a life. */
typedef enum LifeTable
{
	LIFE_CHECKPOINTS,
	LIFE_CALLS,
	LIFE_HISTORY
} LifeTable;

/* An open scan of what one table holds of a life. */
typedef struct LifeScan
{
	Relation	rel;
	Snapshot	snapshot;
	SysScanDesc scan;
} LifeScan;

extern void LifeBeginScan(LifeScan *scan, LifeTable table, LOCKMODE lockmode,
						  const RequestKey *key, int64 life,
						  Snapshot snapshot);
extern HeapTuple LifeNext(LifeScan *scan);
extern void LifeEndScan(LifeScan *scan);
extern void LifeForget(const LogRow *row);

#endif							/* IDEM_LIFE_H */
