/*-------------------------------------------------------------------------
 *
 * finish.h
 *	  Recording how a request ended.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_FINISH_H
#define IDEM_FINISH_H

#include "holder.h"

/* The columns of a response, in this order. */
typedef enum ResponseColumn
{
	RESPONSE_CODE,
	RESPONSE_HEADERS,
	RESPONSE_BYTES,
	RESPONSE_BODY,
	RESPONSE_ERROR,
	RESPONSE_NCOLS
} ResponseColumn;

/* An end to be recorded. */
typedef struct RequestEnd
{
	bool		failed;
	bool		final;			/* failed: never to be run again */
	bool		interrupted;	/* failed: for no reason of the request's */
	bool		after_writes;	/* this transaction had written before */
	const Interval *retry_after;	/* failed: NULL is the scope's backoff */
	Datum		values[RESPONSE_NCOLS];
	bool		nulls[RESPONSE_NCOLS];
} RequestEnd;

typedef enum FinishOutcome
{
	FINISH_RECORDED,			/* now */
	FINISH_ALREADY,				/* the same end, before */
	FINISH_AFTER_WRITES,		/* the same, but this one has written */
	FINISH_DIFFERENT,			/* another end, before */
	FINISH_REFUSED				/* does not hold the claim */
} FinishOutcome;

extern void FinishInitEnd(RequestEnd *end, bool failed);
extern void FinishSetResponse(RequestEnd *end, ResponseColumn column,
							  FunctionCallInfo fcinfo, int arg);
extern void FinishSetRetry(RequestEnd *end, FunctionCallInfo fcinfo,
						   int final_arg, int retry_after_arg);
extern FinishOutcome FinishRecord(Log *log, const Holder *holder,
								  const RequestEnd *end,
								  HolderVerdict *verdict, LogRow *row);
extern bool FinishWrite(Log *log, const Holder *holder, const LogRow *row,
						const RequestEnd *end, Datum *values, bool *nulls);
extern bool FinishOrRaise(Log *log, const Holder *holder,
						  const RequestEnd *end);
extern bool FinishIsSame(const LogRow *row, const RequestEnd *end);
extern void FinishFillEnd(const LogRow *row, const ScopePolicy *policy,
						  const RequestEnd *end, Datum *values, bool *nulls);

#endif							/* IDEM_FINISH_H */
