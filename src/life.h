/*-------------------------------------------------------------------------
 *
 * life.h
 *	  What belongs to one life of a key, beside its row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_LIFE_H
#define IDEM_LIFE_H

#include "log.h"

extern Datum LifeCheckpoints(const RequestKey *key, int64 life, int32 steps);
extern void LifeForget(const LogRow *row);

#endif							/* IDEM_LIFE_H */
