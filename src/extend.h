/*-------------------------------------------------------------------------
 *
 * extend.h
 *	  Renewing the lease of a claim.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_EXTEND_H
#define IDEM_EXTEND_H

#include "holder.h"

extern void ExtendFillLease(const LogRow *row, const Interval *lease,
							Datum *values, bool *nulls);
extern HolderVerdict ExtendTry(Log *log, const Holder *holder,
							   const Interval *lease, LogRow *row,
							   TimestampTz *locked_until);

#endif							/* IDEM_EXTEND_H */
