/*-------------------------------------------------------------------------
 *
 * callrow.h
 *	  Access to the rows of idempotency_call.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_CALLROW_H
#define IDEM_CALLROW_H

#include "callstate.h"
#include "log.h"
#include "storage/itemptr.h"

/* Columns of idempotency_call, in the table's order. */
typedef enum CallColumn
{
	CALL_CALL_ID,
	CALL_SCOPE,
	CALL_REQUEST_ID,
	CALL_LIFE,
	CALL_PROVIDER,
	CALL_OPERATION,
	CALL_ATTEMPT,
	CALL_STATUS,
	CALL_SENT_XACT,
	CALL_CREATED_AT,
	CALL_SENT_AT,
	CALL_ANSWERED_AT,
	CALL_REQUEST_BODY,
	CALL_RESPONSE_BODY,
	CALL_NATTS
} CallColumn;

/* A row, in memory of its own. */
typedef struct Callrow
{
	ItemPointerData tid;
	bool		own;			/* written by this transaction */
	Datum		values[CALL_NATTS];
	bool		nulls[CALL_NATTS];
} Callrow;

extern bool CallrowFind(const RequestKey *key, int64 life, text *provider,
						text *operation, Callrow *call);
extern bool CallrowFindById(text *call_id, Callrow *call);
extern void CallrowInsert(Callrow *call);
extern void CallrowUpdate(Callrow *call);
extern text *CallrowNewId(void);

extern RequestKey CallrowKey(const Callrow *call);
extern CallStatus CallrowStatus(const Callrow *call);
extern void CallrowSetStatus(Callrow *call, CallStatus status);
extern void CallrowGiveOut(Callrow *call);
extern bool CallrowIsGivenOutHere(const Callrow *call);
extern int	CallrowCount(const LogRow *row, CallStatus status);
extern void CallrowSettleOpen(const LogRow *row, CallStatus status);

#endif							/* IDEM_CALLROW_H */
