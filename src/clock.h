/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  Times, intervals and fencing tokens.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_CLOCK_H
#define IDEM_CLOCK_H

#include "datatype/timestamp.h"

extern TimestampTz ClockNow(void);
extern int64 ClockNextToken(int64 stored);
extern TimestampTz ClockAdd(TimestampTz base, const Interval *span);
extern Interval ClockInterval(int64 microseconds);
extern TimestampTz ClockCoarse(TimestampTz time);
extern Interval *ClockIntervalBetween(TimestampTz from, TimestampTz to);
extern bool ClockIntervalIsPositive(const Interval *span);
extern bool ClockIntervalIsNegative(const Interval *span);
extern int64 ClockIntervalMicroseconds(const Interval *span);

#endif							/* IDEM_CLOCK_H */
