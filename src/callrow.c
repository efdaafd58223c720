/*-------------------------------------------------------------------------
 *
 * callrow.c
 *	  Access to the rows of idempotency_call.
 *
 * A call is protected by the row of its request: whoever writes a call has
 * just written a new version of that row, in the same transaction, in place
 * of the version that he saw before he read the call.  So a call that was
 * read is current if the write of its request's row succeeds, and no two
 * transactions ever meet at a call.  Rows are read with the latest snapshot,
 * for the same reason.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "callrow.h"
#include "catalog.h"
#include "catalog/indexing.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "life.h"
#include "miscadmin.h"
#include "tuple.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

/* Milliseconds of a call_id's time, and bytes of chance behind it. */
#define ID_TIME_BYTES	6
#define ID_RANDOM_BYTES 10
#define ID_LENGTH		26

/* Microseconds from 1970 to 2000. */
#define UNIX_TO_POSTGRES_US \
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)

static void
take_tuple(Relation rel, HeapTuple found, Callrow *call)
{
	HeapTuple	tuple = heap_copytuple(found);

	call->tid = tuple->t_self;
	call->own = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
	TupleRead(rel, tuple, CALL_NATTS, call->values, call->nulls);
}

/* Reads the one row that an index leads to. */
static bool
find_by(const char *index, int nkeys, ScanKey keys, Callrow *call)
{
	Relation	rel = table_open(CatalogTable(IDEM_TABLE_CALL),
								 AccessShareLock);
	Snapshot	snapshot = CatalogFreshSnapshot(rel);
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found;

	scan = systable_beginscan(rel, CatalogIndex(index), true, snapshot, nkeys,
							  keys);
	tuple = systable_getnext(scan);
	found = HeapTupleIsValid(tuple);
	if (found)
		take_tuple(rel, tuple, call);
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
	return found;
}

static void
init_text_key(ScanKey key, CallColumn column, text *value)
{
	ScanKeyEntryInitialize(key, 0, column + 1, BTEqualStrategyNumber, TEXTOID,
						   C_COLLATION_OID, F_TEXTEQ, PointerGetDatum(value));
}

/*
 * CallrowFind - reads the call of an operation in a life of a key; false where
 * there is none yet.
 */
bool
CallrowFind(const RequestKey *key, int64 life, text *provider,
			text *operation, Callrow *call)
{
	ScanKeyData keys[5];

	init_text_key(&keys[0], CALL_SCOPE, key->scope);
	init_text_key(&keys[1], CALL_REQUEST_ID, key->request_id);
	ScanKeyInit(&keys[2], CALL_LIFE + 1, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(life));
	init_text_key(&keys[3], CALL_PROVIDER, provider);
	init_text_key(&keys[4], CALL_OPERATION, operation);
	return find_by("idempotency_call_operation_key", 5, keys, call);
}

/*
 * CallrowFindById - reads a call by its id.
 */
bool
CallrowFindById(text *call_id, Callrow *call)
{
	ScanKeyData key;

	init_text_key(&key, CALL_CALL_ID, call_id);
	return find_by("idempotency_call_pkey", 1, &key, call);
}

/*
 * CallrowInsert - writes a new call.
 */
void
CallrowInsert(Callrow *call)
{
	Relation	rel = table_open(CatalogTable(IDEM_TABLE_CALL),
								 RowExclusiveLock);

	TupleInsert(rel, CALL_NATTS, call->values, call->nulls);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/*
 * CallrowUpdate - writes a changed call.
 */
void
CallrowUpdate(Callrow *call)
{
	Relation	rel = table_open(CatalogTable(IDEM_TABLE_CALL),
								 RowExclusiveLock);

	TupleUpdate(rel, &call->tid, CALL_NATTS, call->values, call->nulls);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/*
 * CallrowNewId - an id for a new call: milliseconds since 1970 and 80 random
 * bits, as 26 characters of Crockford's base 32 (digits and capital letters
 * but I, L, O, U), the most significant first.  So ids grow with time and fit
 * whatever providers allow in an id.
 *
 * The time is one of whole seconds: others see ids, and a token is an exact
 * time that may be close to it.
 */
text *
CallrowNewId(void)
{
	static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
	uint8		bytes[ID_TIME_BYTES + ID_RANDOM_BYTES];
	int64		s = (GetCurrentTimestamp() + UNIX_TO_POSTGRES_US) / USECS_PER_SEC;
	int64		ms = s * 1000;
	char		id[ID_LENGTH];
	uint32		rest = 0;		/* bits that no digit was made of yet */
	int			nbits = 0;
	int			pos = ID_LENGTH;

	for (int i = 0; i < ID_TIME_BYTES; i++)
		bytes[i] = (uint8) (ms >> (8 * (ID_TIME_BYTES - 1 - i)));
	if (!pg_strong_random(bytes + ID_TIME_BYTES, ID_RANDOM_BYTES))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));

	for (int i = lengthof(bytes) - 1; i >= 0; i--)
	{
		rest |= (uint32) bytes[i] << nbits;
		for (nbits += 8; nbits >= 5; nbits -= 5)
		{
			id[--pos] = digits[rest & 31];
			rest >>= 5;
		}
	}
	id[--pos] = digits[rest & 31];
	Assert(pos == 0);
	return cstring_to_text_with_len(id, ID_LENGTH);
}

/*
 * CallrowKey - the request that a call belongs to.
 */
RequestKey
CallrowKey(const Callrow *call)
{
	RequestKey	key = {DatumGetTextPP(call->values[CALL_SCOPE]),
	DatumGetTextPP(call->values[CALL_REQUEST_ID])};

	return key;
}

/*
 * CallrowStatus - what is known of a call.
 */
CallStatus
CallrowStatus(const Callrow *call)
{
	CallStatus	status;

	if (!CallstateParse(TextDatumGetCString(call->values[CALL_STATUS]),
						&status))
		elog(ERROR, "unrecognized status of an external call");
	return status;
}

/*
 * CallrowSetStatus - says what is known of a call; answered_at follows.
 */
void
CallrowSetStatus(Callrow *call, CallStatus status)
{
	call->values[CALL_STATUS] = CStringGetTextDatum(CallstateName(status));
	call->nulls[CALL_ANSWERED_AT] = !CallstateIsAnswered(status);
	call->values[CALL_ANSWERED_AT] = TimestampTzGetDatum(ClockNow());
}

/*
 * CallrowGiveOut - marks a call as given out to be sent, by this transaction.
 */
void
CallrowGiveOut(Callrow *call)
{
	CallrowSetStatus(call, CALL_SENT);
	call->values[CALL_ATTEMPT] =
		Int32GetDatum(DatumGetInt32(call->values[CALL_ATTEMPT]) + 1);
	call->values[CALL_SENT_XACT] =
		FullTransactionIdGetDatum(GetTopFullTransactionId());
	call->values[CALL_SENT_AT] = TimestampTzGetDatum(ClockNow());
	call->nulls[CALL_RESPONSE_BODY] = true;
}

/*
 * CallrowIsGivenOutHere - was a call given out by this very transaction?  Then
 * it cannot have been sent, or should not: nothing is committed yet.
 *
 * The number alone does not say so, it may stem from another cluster.
 */
bool
CallrowIsGivenOutHere(const Callrow *call)
{
	FullTransactionId sent = DatumGetFullTransactionId(call->values[CALL_SENT_XACT]);

	return call->own &&
		FullTransactionIdEquals(sent, GetTopFullTransactionIdIfAny());
}

/* Begins to read all calls of the life that a request's row is in. */
static void
begin_life(LifeScan *scan, const LogRow *row, LOCKMODE lockmode)
{
	RequestKey	key = {DatumGetTextPP(row->values[LOG_SCOPE]),
	DatumGetTextPP(row->values[LOG_REQUEST_ID])};

	LifeBeginScan(scan, LIFE_CALLS, lockmode, &key,
				  LogRowInt64(row, LOG_LIFE), NULL);
}

/*
 * CallrowCount - number of calls of a request with a status.
 */
int
CallrowCount(const LogRow *row, CallStatus status)
{
	LifeScan	scan;
	HeapTuple	tuple;
	Callrow		call;
	int			n = 0;

	begin_life(&scan, row, AccessShareLock);
	while ((tuple = LifeNext(&scan)) != NULL)
	{
		take_tuple(scan.rel, tuple, &call);
		if (CallrowStatus(&call) == status)
			n++;
	}
	LifeEndScan(&scan);
	return n;
}

/*
 * CallrowSettleOpen - gives all calls of a request that are without an answer
 * the same status: a person has settled the request as a whole.  The caller
 * has just written the request's row.
 */
void
CallrowSettleOpen(const LogRow *row, CallStatus status)
{
	LifeScan	scan;
	HeapTuple	tuple;
	Callrow		call;

	begin_life(&scan, row, RowExclusiveLock);
	while ((tuple = LifeNext(&scan)) != NULL)
	{
		take_tuple(scan.rel, tuple, &call);
		if (!CallstateIsOpen(CallrowStatus(&call)))
			continue;
		CallrowSetStatus(&call, status);
		TupleUpdate(scan.rel, &call.tid, CALL_NATTS, call.values, call.nulls);
	}
	LifeEndScan(&scan);
	CommandCounterIncrement();
}
