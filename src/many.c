/*-------------------------------------------------------------------------
 *
 * many.c
 *	  The calls of a claim's life for many requests at once: idem_claim_many,
 *	  idem_finish_many, idem_fail_many, idem_extend_many.
 *
 * Every element is answered, in the order of the array.  Claims never wait,
 * so they are made in that order; ends and extensions can wait for somebody
 * who is changing a row, so they are made in bytewise order of the keys and
 * answered afterwards.  Each element has a memory context of its own, and the
 * answers go into a tuplestore, so that memory does not grow with the batch
 * beyond its arguments.
 *
 * Whether a repeated end is a harmless repeat or comes with second writes is
 * judged by what the transaction had written before the batch: what the batch
 * itself writes does not count.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "batch.h"
#include "catalog/pg_type.h"
#include "claim.h"
#include "clock.h"
#include "errors.h"
#include "extend.h"
#include "finish.h"
#include "fingerprint.h"
#include "miscadmin.h"
#include "result.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(idem_claim_many);
PG_FUNCTION_INFO_V1(idem_finish_many);
PG_FUNCTION_INFO_V1(idem_fail_many);
PG_FUNCTION_INFO_V1(idem_extend_many);

/* Answer about one element of a batch of ends or extensions. */
typedef enum ManyOutcome
{
	MANY_RECORDED,
	MANY_ALREADY,
	MANY_STALE,
	MANY_NOT_CLAIMED
} ManyOutcome;

static const char *const many_outcome_names[] = {
	[MANY_RECORDED] = "recorded",
	[MANY_ALREADY] = "already",
	[MANY_STALE] = "stale",
	[MANY_NOT_CLAIMED] = "not_claimed",
};

/* What all elements of a batch have in common. */
typedef struct Many
{
	Batch		batch;
	BatchColumn tokens;
	Holder		holder;			/* key and token are the element's */
	bool		strict;
	char	   *outcomes;		/* ManyOutcome of each element */
	Log			log;
} Many;

static MemoryContext
create_element_context(void)
{
	return AllocSetContextCreate(CurrentMemoryContext, "idempotency element",
								 ALLOCSET_DEFAULT_SIZES);
}

static text *
scope_argument(FunctionCallInfo fcinfo, int arg)
{
	return RequestCheckScope(PG_ARGISNULL(arg) ? NULL :
							 PG_GETARG_TEXT_PP(arg));
}

/* ---- claims ------------------------------------------------------------ */

static void
put_claim(ReturnSetInfo *rsinfo, int ordinality, text *id,
		  const ClaimAnswer *answer)
{
	Datum		values[2 + CLAIM_NCOLS];
	bool		nulls[2 + CLAIM_NCOLS] = {false};

	values[0] = Int32GetDatum(ordinality);
	values[1] = PointerGetDatum(id);
	memcpy(values + 2, answer->values, sizeof(answer->values));
	memcpy(nulls + 2, answer->nulls, sizeof(answer->nulls));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * idem_claim_many(request_ids text[], request_bodies jsonb[], scope text,
 *				   ttl interval, lease interval, fingerprints bytea[])
 */
Datum
idem_claim_many(PG_FUNCTION_ARGS)
{
	Batch		batch = BatchFromArg(fcinfo, 0);
	BatchColumn bodies = BatchColumnFromArg(fcinfo, 1, JSONBOID, batch.n);
	BatchColumn fingerprints = BatchColumnFromArg(fcinfo, 5, BYTEAOID, batch.n);
	RequestKey	key = {scope_argument(fcinfo, 2), NULL};
	Interval   *ttl = RequestPositiveInterval(fcinfo, 3, "ttl");
	Interval   *lease = RequestPositiveInterval(fcinfo, 4, "lease");
	MemoryContext element = create_element_context();
	ClaimRequest request;
	Log			log;

	ResultInitSet(fcinfo);
	LogOpen(&log);
	LogBeginBatch(&log);
	ClaimInitRequest(&request, key, NULL, NULL, ttl, lease);
	for (int i = 0; i < batch.n; i++)
	{
		MemoryContext context = MemoryContextSwitchTo(element);
		ClaimAnswer answer;

		request.key.request_id = BatchId(&batch, i);
		request.body = bodies.given && !bodies.nulls[i] ?
			DatumGetJsonbP(bodies.values[i]) : NULL;
		request.fingerprint = fingerprints.given && !fingerprints.nulls[i] ?
			DatumGetByteaPP(fingerprints.values[i]) : NULL;
		if (request.fingerprint == NULL && request.body != NULL)
			request.fingerprint = FingerprintOf(request.body, NULL);

		ClaimOnce(&log, &request, &answer);
		ClaimCount(&request, &answer);
		put_claim((ReturnSetInfo *) fcinfo->resultinfo, i + 1,
				  request.key.request_id, &answer);
		LogUnpin(&log);
		MemoryContextSwitchTo(context);
		MemoryContextReset(element);
	}
	LogClose(&log);
	MemoryContextDelete(element);
	return (Datum) 0;
}

/* ---- ends and extensions ----------------------------------------------- */

static void
start_many(Many *many, FunctionCallInfo fcinfo, int tokens_arg, int scope_arg,
		   int strict_arg)
{
	many->batch = BatchFromArg(fcinfo, 0);
	many->tokens = BatchColumnFromArg(fcinfo, tokens_arg, INT8OID,
									  many->batch.n);
	many->holder.key.scope = scope_argument(fcinfo, scope_arg);
	many->strict = PG_ARGISNULL(strict_arg) || PG_GETARG_BOOL(strict_arg);
	many->outcomes = palloc(many->batch.n + 1);
	BatchSort(&many->batch);

	ResultInitSet(fcinfo);
	LogOpen(&many->log);
	LogBeginBatch(&many->log);
	many->holder.policy = ScopeEnter(many->holder.key.scope);
}

static void
set_element(Many *many, int at)
{
	many->holder.key.request_id = BatchId(&many->batch, at);
	many->holder.has_token = many->tokens.given && !many->tokens.nulls[at];
	many->holder.token = many->holder.has_token ?
		DatumGetInt64(many->tokens.values[at]) : 0;
}

static ManyOutcome
outcome_of_verdict(HolderVerdict verdict)
{
	return verdict == HOLDER_STALE || verdict == HOLDER_ENDED ||
		verdict == HOLDER_UNKNOWN ? MANY_STALE : MANY_NOT_CLAIMED;
}

/* Ends one claim; strict raises what is not as it should be. */
static ManyOutcome
finish_element(Many *many, const RequestEnd *end)
{
	HolderVerdict verdict;
	LogRow		row;

	if (many->strict)
		return FinishOrRaise(&many->log, &many->holder, end) ?
			MANY_RECORDED : MANY_ALREADY;

	switch (FinishRecord(&many->log, &many->holder, end, &verdict, &row))
	{
		case FINISH_RECORDED:
			return MANY_RECORDED;
		case FINISH_ALREADY:
		case FINISH_AFTER_WRITES:
			return MANY_ALREADY;
		case FINISH_DIFFERENT:
			return MANY_STALE;
		case FINISH_REFUSED:
			break;
	}
	return outcome_of_verdict(verdict);
}

static ManyOutcome
extend_element(Many *many, const Interval *lease)
{
	TimestampTz locked_until;
	LogRow		row;
	HolderVerdict verdict = ExtendTry(&many->log, &many->holder, lease, &row,
									  &locked_until);

	if (verdict == HOLDER_HOLDS)
		return MANY_RECORDED;
	if (many->strict && verdict == HOLDER_ENDED)
		HolderRaiseEnded(&many->holder, &row, false);
	if (many->strict)
		HolderRaise(&many->holder, verdict, &row);
	return outcome_of_verdict(verdict);
}

/* One element's value of a column of the response. */
static void
set_response(RequestEnd *end, ResponseColumn column,
			 const BatchColumn *values, int at)
{
	end->nulls[column] = !values->given || values->nulls[at];
	if (!end->nulls[column])
		end->values[column] = values->values[at];
}

/* What is done with each element of a batch; arg is the batch's own. */
typedef ManyOutcome (*ElementAction) (Many *many, int at, void *arg);

/* Goes through a batch in bytewise order, each element in its own memory. */
static void
for_each_element(Many *many, ElementAction action, void *arg)
{
	MemoryContext element = create_element_context();

	for (int i = 0; i < many->batch.n; i++)
	{
		int			at = many->batch.order[i];
		MemoryContext context = MemoryContextSwitchTo(element);

		if (BatchRepeats(&many->batch, i))
			LogSeeWrites(&many->log);
		set_element(many, at);
		many->outcomes[at] = action(many, at, arg);
		LogUnpin(&many->log);
		MemoryContextSwitchTo(context);
		MemoryContextReset(element);
	}
	MemoryContextDelete(element);
}

/* An end that all elements share, and where each one's response is. */
typedef struct ManyEnds
{
	RequestEnd	end;
	BatchColumn codes;
	BatchColumn documents;
} ManyEnds;

static ManyOutcome
end_one(Many *many, int at, void *arg)
{
	ManyEnds   *ends = (ManyEnds *) arg;

	set_response(&ends->end, RESPONSE_CODE, &ends->codes, at);
	set_response(&ends->end,
				 ends->end.failed ? RESPONSE_ERROR : RESPONSE_BODY,
				 &ends->documents, at);
	return finish_element(many, &ends->end);
}

static ManyOutcome
extend_one(Many *many, int at, void *arg)
{
	return extend_element(many, (const Interval *) arg);
}

/* Closes the log and answers in the order of the array. */
static Datum
end_many(Many *many, FunctionCallInfo fcinfo)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		names[lengthof(many_outcome_names)];

	LogClose(&many->log);
	for (int i = 0; i < lengthof(names); i++)
		names[i] = CStringGetTextDatum(many_outcome_names[i]);

	for (int i = 0; i < many->batch.n; i++)
	{
		Datum		values[3] = {Int32GetDatum(i + 1),
			many->batch.ids.values[i],
		names[(int) many->outcomes[i]]};
		bool		nulls[3] = {false};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/*
 * idem_finish_many(request_ids text[], response_bodies jsonb[],
 *					response_codes int[], tokens bigint[], scope text,
 *					strict boolean)
 */
Datum
idem_finish_many(PG_FUNCTION_ARGS)
{
	Many		many = {0};
	ManyEnds	ends = {0};

	start_many(&many, fcinfo, 3, 4, 5);
	ends.documents = BatchColumnFromArg(fcinfo, 1, JSONBOID, many.batch.n);
	ends.codes = BatchColumnFromArg(fcinfo, 2, INT4OID, many.batch.n);
	FinishInitEnd(&ends.end, false);
	for_each_element(&many, end_one, &ends);
	return end_many(&many, fcinfo);
}

/*
 * idem_fail_many(request_ids text[], errors jsonb[], tokens bigint[],
 *				  scope text, final boolean, retry_after interval,
 *				  strict boolean)
 */
Datum
idem_fail_many(PG_FUNCTION_ARGS)
{
	Many		many = {0};
	ManyEnds	ends = {0};		/* without codes */

	start_many(&many, fcinfo, 2, 3, 6);
	ends.documents = BatchColumnFromArg(fcinfo, 1, JSONBOID, many.batch.n);
	FinishInitEnd(&ends.end, true);
	FinishSetRetry(&ends.end, fcinfo, 4, 5);
	for_each_element(&many, end_one, &ends);
	return end_many(&many, fcinfo);
}

/*
 * idem_extend_many(request_ids text[], tokens bigint[], lease interval,
 *					scope text, strict boolean)
 */
Datum
idem_extend_many(PG_FUNCTION_ARGS)
{
	Many		many = {0};
	Interval   *lease = RequestPositiveInterval(fcinfo, 2, "lease");

	start_many(&many, fcinfo, 1, 3, 4);
	for_each_element(&many, extend_one, lease);
	return end_many(&many, fcinfo);
}
