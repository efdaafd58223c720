/*-------------------------------------------------------------------------
 *
 * holder.h
 *	  Proof that a caller holds the claim that he wants to change.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_HOLDER_H
#define IDEM_HOLDER_H

#include "compat.h"
#include "log.h"
#include "scope.h"

/* Who says that he holds which claim. */
typedef struct Holder
{
	RequestKey	key;
	ScopePolicy policy;
	bool		has_token;
	int64		token;
} Holder;

typedef enum HolderVerdict
{
	HOLDER_HOLDS,				/* the claim is his and has not ended */
	HOLDER_ENDED,				/* it was his and has ended */
	HOLDER_STALE,				/* it is somebody else's by now */
	HOLDER_ABSENT,				/* there is no such request */
	HOLDER_EXPIRED,				/* there was one */
	HOLDER_NO_TOKEN,			/* no token, and not claimed here */
	HOLDER_UNKNOWN				/* a person decides: his, but only to end */
} HolderVerdict;

extern Holder HolderFromArgs(FunctionCallInfo fcinfo, int token_arg,
							 int scope_arg);
extern HolderVerdict HolderJudge(const Holder *holder, const LogRow *row);
extern HolderVerdict HolderFind(Log *log, const Holder *holder, LogRow *row);
extern void HolderAwaitOther(Log *log, const LogRow *row);
extern void HolderAwaitRow(Log *log, const RequestKey *key, LogRow *row);
extern HolderVerdict HolderJudgeOngoing(const Holder *holder,
										const LogRow *row,
										HolderVerdict verdict);
extern HolderVerdict HolderFindOngoing(Log *log, const Holder *holder,
									   LogRow *row);
extern void HolderFindRow(Log *log, const RequestKey *key, LogRow *row);
COMPAT_NORETURN extern void HolderRaise(const Holder *holder,
										HolderVerdict verdict,
										const LogRow *row);
COMPAT_NORETURN extern void HolderRaiseEnded(const Holder *holder,
											 const LogRow *row,
											 bool different);
extern void HolderNoteWrite(const LogRow *row);
extern void HolderNoteEnd(const RequestKey *key, const LogRow *row);

#endif							/* IDEM_HOLDER_H */
