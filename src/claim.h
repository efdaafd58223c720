/*-------------------------------------------------------------------------
 *
 * claim.h
 *	  Claiming a request.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_CLAIM_H
#define IDEM_CLAIM_H

#include "log.h"
#include "scope.h"
#include "utils/jsonb.h"
#include "wait.h"

typedef enum ClaimOutcome
{
	CLAIM_CLAIMED,
	CLAIM_REPLAY,
	CLAIM_IN_PROGRESS,
	CLAIM_MISMATCH,
	CLAIM_UNKNOWN,
	CLAIM_EXECUTED				/* idem_run: claimed and finished just now */
} ClaimOutcome;

/* Columns of the row that answers a claim. */
typedef enum ClaimColumn
{
	CLAIM_COL_OUTCOME,
	CLAIM_COL_TOKEN,
	CLAIM_COL_ATTEMPT,
	CLAIM_COL_STATUS,
	CLAIM_COL_RESPONSE_CODE,
	CLAIM_COL_RESPONSE_HEADERS,
	CLAIM_COL_RESPONSE_BODY,
	CLAIM_COL_RESPONSE_BYTES,
	CLAIM_COL_CHECKPOINTS,
	CLAIM_COL_RETRY_AFTER,
	CLAIM_COL_DIFFERS,
	CLAIM_COL_CREATED_AT,
	CLAIM_COL_EXPIRES_AT,
	CLAIM_NCOLS
} ClaimColumn;

/* What a caller asks for; everything resolved but the time. */
typedef struct ClaimRequest
{
	RequestKey	key;
	ScopePolicy policy;
	Interval	ttl;
	Interval	lease;
	Jsonb	   *body;			/* NULL where there is none */
	bytea	   *fingerprint;	/* NULL where there is none */
	char	   *role;			/* who claims */
} ClaimRequest;

/*
 * The answer.  Values may point into the log's slot: they are to be copied
 * before it is unpinned.
 */
typedef struct ClaimAnswer
{
	ClaimOutcome outcome;
	bool		taken_over;		/* claimed after somebody else's lease */
	bool		blocked;		/* in progress, and worth waiting for */
	Blocker		blocker;
	ItemPointerData tid;		/* claimed: the version that was written */
	int64		life;			/* claimed: life of the key */
	Datum		values[CLAIM_NCOLS];
	bool		nulls[CLAIM_NCOLS];
} ClaimAnswer;

extern void ClaimInitRequest(ClaimRequest *request, RequestKey key,
							 Jsonb *body, bytea *fingerprint,
							 const Interval *ttl, const Interval *lease);
extern void ClaimOnce(Log *log, const ClaimRequest *request,
					  ClaimAnswer *answer);
extern void ClaimWaiting(Log *log, const ClaimRequest *request,
						 const Interval *wait, ClaimAnswer *answer);
extern void ClaimCount(const ClaimRequest *request,
					   const ClaimAnswer *answer);
extern void ClaimAnswerExecuted(ClaimAnswer *answer, const LogRow *row);
extern Datum ClaimResult(FunctionCallInfo fcinfo, ClaimAnswer *answer);

#endif							/* IDEM_CLAIM_H */
