/*-------------------------------------------------------------------------
 *
 * durability.h
 *	  What the end of a transaction owes to the claims in it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_DURABILITY_H
#define IDEM_DURABILITY_H

#include "request.h"

extern void DurabilityInit(void);
extern void DurabilityClaimMade(const RequestKey *key);
extern const RequestKey *DurabilityLastClaim(void);
extern void DurabilityClaimEnded(void);
extern void DurabilityRequireFlush(void);

#endif							/* IDEM_DURABILITY_H */
