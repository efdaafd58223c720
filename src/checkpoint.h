/*-------------------------------------------------------------------------
 *
 * checkpoint.h
 *	  Steps of a request that are finished and need not be done again.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_CHECKPOINT_H
#define IDEM_CHECKPOINT_H

#include "holder.h"

extern Datum CheckpointObject(const RequestKey *key, int64 life, int32 steps);
extern bool CheckpointIsThere(const RequestKey *key, int64 life,
							  const text *step, bool *own);
extern bool CheckpointRecord(Log *log, const Holder *holder, text *step,
							 NullableDatum result);

#endif							/* IDEM_CHECKPOINT_H */
