/*-------------------------------------------------------------------------
 *
 * handler.h
 *	  Functions of users that carry a request or a step out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_HANDLER_H
#define IDEM_HANDLER_H

#include "compat.h"
#include "fmgr.h"
#include "log.h"

/* The claim whose handler or step runs; handlers may be nested. */
typedef struct RunningClaim
{
	RequestKey	key;
	int64		token;
	int64		life;
	int32		attempt;
	struct RunningClaim *outer;
} RunningClaim;

extern const RunningClaim *HandlerRunning(void);
COMPAT_NORETURN extern void HandlerRaiseMissing(const char *name);
extern Oid	HandlerFind(const char *name, bool missing_ok);
extern char *HandlerQualifiedName(Oid function);
extern NullableDatum HandlerCall(Oid function, NullableDatum argument,
								 RunningClaim *claim);

#endif							/* IDEM_HANDLER_H */
