/*-------------------------------------------------------------------------
 *
 * durability.h
 *	  What the end of a transaction owes to the claims in it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_DURABILITY_H
#define IDEM_DURABILITY_H

extern void DurabilityInit(void);
extern void DurabilityClaimMade(void);
extern void DurabilityClaimEnded(void);
extern void DurabilityRequireFlush(void);

#endif							/* IDEM_DURABILITY_H */
