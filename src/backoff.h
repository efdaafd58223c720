/*-------------------------------------------------------------------------
 *
 * backoff.h
 *	  How long to wait before the next attempt.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_BACKOFF_H
#define IDEM_BACKOFF_H

#include "datatype/timestamp.h"

typedef enum BackoffJitter
{
	BACKOFF_FULL,				/* between nothing and the whole */
	BACKOFF_EQUAL,				/* between the half and the whole */
	BACKOFF_NONE				/* the whole */
} BackoffJitter;

extern Interval BackoffFor(int attempt, const Interval *base,
						   const Interval *cap, BackoffJitter jitter);

#endif							/* IDEM_BACKOFF_H */
