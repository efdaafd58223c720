/*-------------------------------------------------------------------------
 *
 * checkpoint.c
 *	  Steps of a request that are finished and need not be done again:
 *	  idem_checkpoint and idem_checkpoints.
 *
 * A checkpoint is recorded under the row lock of its request and renews the
 * lease, so it is fenced like the end of the claim: who no longer holds the
 * claim records nothing.  The first result of a step stays.
 *
 * Whether a step is there is asked after the row was found unlocked, and the
 * row is written before the step is: two that record at once either find the
 * other's step or lose the row and look again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_collation.h"
#include "checkpoint.h"
#include "clock.h"
#include "errors.h"
#include "extend.h"
#include "isolation.h"
#include "life.h"
#include "miscadmin.h"
#include "result.h"
#include "state.h"
#include "tuple.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_checkpoint);
PG_FUNCTION_INFO_V1(idem_checkpoints);

/* Columns of idempotency_checkpoint, in the table's order. */
typedef enum CheckpointColumn
{
	CHECKPOINT_SCOPE,
	CHECKPOINT_REQUEST_ID,
	CHECKPOINT_LIFE,
	CHECKPOINT_STEP,
	CHECKPOINT_ORDINAL,
	CHECKPOINT_TOKEN,
	CHECKPOINT_COMPLETED_AT,
	CHECKPOINT_RESULT,
	CHECKPOINT_NATTS
} CheckpointColumn;

/* Adds a member to the object that is being built. */
static void
push_member(JsonbParseState **state, text *name, Datum value, bool isnull)
{
	JsonbValue	key = {.type = jbvString};
	JsonbValue	content = {.type = jbvNull};

	key.val.string.val = VARDATA_ANY(name);
	key.val.string.len = VARSIZE_ANY_EXHDR(name);
	(void) pushJsonbValue(state, WJB_KEY, &key);
	if (!isnull)
	{
		Jsonb	   *document = DatumGetJsonbPCopy(value);

		if (JB_ROOT_IS_SCALAR(document))
			(void) JsonbExtractScalar(&document->root, &content);
		else
		{
			content.type = jbvBinary;
			content.val.binary.data = &document->root;
			content.val.binary.len = VARSIZE(document) - VARHDRSZ;
		}
	}
	(void) pushJsonbValue(state, WJB_VALUE, &content);
}

/* Adds all checkpoints of a life. */
static void
push_checkpoints(JsonbParseState **state, const RequestKey *key, int64 life)
{
	LifeScan	scan;
	HeapTuple	tuple;

	LifeBeginScan(&scan, LIFE_CHECKPOINTS, AccessShareLock, key, life, NULL);
	while ((tuple = LifeNext(&scan)) != NULL)
	{
		Datum		values[CHECKPOINT_NATTS];
		bool		nulls[CHECKPOINT_NATTS];

		TupleRead(scan.rel, tuple, CHECKPOINT_NATTS, values, nulls);
		push_member(state, DatumGetTextPCopy(values[CHECKPOINT_STEP]),
					values[CHECKPOINT_RESULT], nulls[CHECKPOINT_RESULT]);
	}
	LifeEndScan(&scan);
}

/* What nearly every claim answers, without building it bit by bit. */
static Datum
empty_object(void)
{
	Jsonb	   *object = (Jsonb *) palloc(VARHDRSZ + sizeof(uint32));

	SET_VARSIZE(object, VARHDRSZ + sizeof(uint32));
	object->root.header = JB_FOBJECT;
	return JsonbPGetDatum(object);
}

/*
 * CheckpointObject - the checkpoints of a life as a jsonb object
 * {step: result}; palloc'd.  steps is their number in the key's row.
 */
Datum
CheckpointObject(const RequestKey *key, int64 life, int32 steps)
{
	JsonbParseState *state = NULL;

	if (likely(steps == 0))
		return empty_object();
	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_checkpoints(&state, key, life);
	return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state,
														   WJB_END_OBJECT,
														   NULL)));
}

/*
 * CheckpointIsThere - is a step finished, and was it by this very transaction?
 */
bool
CheckpointIsThere(const RequestKey *key, int64 life, const text *step,
				  bool *own)
{
	LifeScan	scan;
	HeapTuple	tuple;
	bool		found = false;

	LifeBeginScan(&scan, LIFE_CHECKPOINTS, AccessShareLock, key, life, NULL);
	while (!found && (tuple = LifeNext(&scan)) != NULL)
	{
		Datum		values[CHECKPOINT_NATTS];
		bool		nulls[CHECKPOINT_NATTS];

		TupleRead(scan.rel, tuple, CHECKPOINT_NATTS, values, nulls);
		found = DatumGetBool(DirectFunctionCall2Coll(texteq, C_COLLATION_OID,
													 values[CHECKPOINT_STEP],
													 PointerGetDatum(step)));
		*own = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
	}
	LifeEndScan(&scan);
	return found;
}

/* Adds a step to the life that the row, as just written, is in. */
static void
insert_checkpoint(const Datum *row, text *step, NullableDatum result)
{
	Datum		values[CHECKPOINT_NATTS];
	bool		nulls[CHECKPOINT_NATTS] = {false};
	Relation	rel;

	values[CHECKPOINT_SCOPE] = row[LOG_SCOPE];
	values[CHECKPOINT_REQUEST_ID] = row[LOG_REQUEST_ID];
	values[CHECKPOINT_LIFE] = row[LOG_LIFE];
	values[CHECKPOINT_STEP] = PointerGetDatum(step);
	values[CHECKPOINT_ORDINAL] = row[LOG_STEPS];
	values[CHECKPOINT_TOKEN] = row[LOG_TOKEN];
	values[CHECKPOINT_COMPLETED_AT] = TimestampTzGetDatum(ClockNow());
	values[CHECKPOINT_RESULT] = result.value;
	nulls[CHECKPOINT_RESULT] = result.isnull;

	rel = table_open(CatalogTable(IDEM_TABLE_CHECKPOINT), RowExclusiveLock);
	TupleInsert(rel, CHECKPOINT_NATTS, values, nulls);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/* Writes the row with one step more and its lease renewed. */
static bool
write_step(Log *log, const LogRow *row, text *step, NullableDatum result)
{
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];

	PreventCommandIfReadOnly("idem_checkpoint()");
	ExtendFillLease(row, NULL, values, nulls);
	LogSetCount(values, nulls, LOG_STEPS, LogRowInt32(row, LOG_STEPS) + 1);
	if (LogUpdate(log, row, values, nulls) != LOG_WRITTEN)
	{
		IsolationCheck();
		return false;
	}
	insert_checkpoint(values, step, result);
	HolderNoteWrite(row);
	return true;
}

/* A step that is there already: harmless, or second writes? */
static void
check_repeated(const Holder *holder, bool own, bool after_writes)
{
	if (!own && after_writes)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_ALREADY_RECORDED),
				 errmsg("checkpoint is already recorded"),
				 errdetail("%s has finished the step in an earlier transaction, and this one has written something.",
						   RequestDescribe(&holder->key)),
				 errhint("Roll back: the writes of this transaction were made before. Skip the steps that idem_claim() returns as checkpoints.")));
}

/*
 * CheckpointRecord - records a step of the holder's claim; false where it was
 * there already.
 */
bool
CheckpointRecord(Log *log, const Holder *holder, text *step,
				 NullableDatum result)
{
	bool		after_writes = TransactionIdIsValid(GetTopTransactionIdIfAny());
	LogRow		row;

	do
	{
		HolderVerdict verdict = HolderFindOngoing(log, holder, &row);
		bool		own = false;

		if (verdict != HOLDER_HOLDS && verdict != HOLDER_ENDED &&
			verdict != HOLDER_UNKNOWN)
			HolderRaise(holder, verdict, &row);
		if (LogRowInt32(&row, LOG_STEPS) > 0 &&
			CheckpointIsThere(&holder->key, LogRowInt64(&row, LOG_LIFE), step,
							  &own))
		{
			check_repeated(holder, own, after_writes);
			return false;
		}
		if (verdict == HOLDER_ENDED)
			HolderRaiseEnded(holder, &row);
		if (verdict == HOLDER_UNKNOWN)
			HolderRaise(holder, verdict, &row);
	} while (!write_step(log, &row, step, result));
	return true;
}

static text *
step_argument(FunctionCallInfo fcinfo, int arg)
{
	text	   *step;

	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("step must not be null"),
				 errhint("Give every step of a request a name of its own.")));
	step = PG_GETARG_TEXT_PP(arg);
	if (VARSIZE_ANY_EXHDR(step) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("step must not be empty"),
				 errhint("Give every step of a request a name of its own.")));
	return RequestCheckName(step, "step");
}

/*
 * idem_checkpoint(request_id text, step text, result jsonb, token bigint,
 *				   scope text) returns boolean
 */
Datum
idem_checkpoint(PG_FUNCTION_ARGS)
{
	Holder		holder = HolderFromArgs(fcinfo, 3, 4);
	text	   *step = step_argument(fcinfo, 1);
	NullableDatum result = {PG_GETARG_DATUM(2), PG_ARGISNULL(2)};
	bool		recorded;
	Log			log;

	LogOpen(&log);
	holder.policy = ScopeEnter(holder.key.scope);
	recorded = CheckpointRecord(&log, &holder, step, result);
	LogClose(&log);
	PG_RETURN_BOOL(recorded);
}

/* Orders tuples of checkpoints as they were completed. */
static int
compare_ordinals(const void *a, const void *b, void *arg)
{
	TupleDesc	desc = (TupleDesc) arg;
	bool		isnull;
	int32		oa = DatumGetInt32(heap_getattr(*(HeapTuple const *) a,
												CHECKPOINT_ORDINAL + 1, desc,
												&isnull));
	int32		ob = DatumGetInt32(heap_getattr(*(HeapTuple const *) b,
												CHECKPOINT_ORDINAL + 1, desc,
												&isnull));

	return oa < ob ? -1 : oa > ob;
}

static void
put_checkpoints(const RequestKey *key, int64 life, int32 steps,
				ReturnSetInfo *rsinfo)
{
	HeapTuple  *tuples = palloc(sizeof(HeapTuple) * steps);
	HeapTuple	tuple;
	LifeScan	scan;
	int			n = 0;

	LifeBeginScan(&scan, LIFE_CHECKPOINTS, AccessShareLock, key, life,
				  GetActiveSnapshot());
	while (n < steps && (tuple = LifeNext(&scan)) != NULL)
		tuples[n++] = heap_copytuple(tuple);
	qsort_arg(tuples, n, sizeof(HeapTuple), compare_ordinals,
			  RelationGetDescr(scan.rel));
	for (int i = 0; i < n; i++)
	{
		Datum		values[CHECKPOINT_NATTS];
		bool		nulls[CHECKPOINT_NATTS];
		Datum		out[3];
		bool		out_nulls[3] = {false};

		TupleRead(scan.rel, tuples[i], CHECKPOINT_NATTS, values, nulls);
		out[0] = values[CHECKPOINT_STEP];
		out[1] = values[CHECKPOINT_RESULT];
		out_nulls[1] = nulls[CHECKPOINT_RESULT];
		out[2] = values[CHECKPOINT_COMPLETED_AT];
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, out,
							 out_nulls);
	}
	LifeEndScan(&scan);
}

/*
 * idem_checkpoints(request_id text, scope text)
 */
Datum
idem_checkpoints(PG_FUNCTION_ARGS)
{
	RequestKey	key = RequestKeyFromArgs(fcinfo, 0, 1);
	ScopePolicy policy;
	LogRow		row;
	Log			log;

	ResultInitSet(fcinfo);
	LogOpen(&log);
	policy = ScopeEnterToLook(key.scope);
	if (LogFetch(&log, &key, GetActiveSnapshot(), &row) &&
		StateJudge(&row, &policy, ClockNow()) != STATE_ABSENT &&
		LogRowInt32(&row, LOG_STEPS) > 0)
		put_checkpoints(&key, LogRowInt64(&row, LOG_LIFE),
						LogRowInt32(&row, LOG_STEPS),
						(ReturnSetInfo *) fcinfo->resultinfo);
	LogClose(&log);
	return (Datum) 0;
}
