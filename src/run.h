/*-------------------------------------------------------------------------
 *
 * run.h
 *	  Claim, handler and finish in one call.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_RUN_H
#define IDEM_RUN_H

#include "claim.h"
#include "compat.h"

extern Datum RunErrorDocument(const ErrorData *error);
COMPAT_NORETURN extern void RunRaiseRefused(const RequestKey *key,
											const ClaimAnswer *answer,
											bool can_wait);
extern bool RunIsNoResult(int sqlerrcode);

#endif							/* IDEM_RUN_H */
