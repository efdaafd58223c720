/*-------------------------------------------------------------------------
 *
 * answer.c
 *	  Results of functions that answer with exactly one row.
 *
 * Such a function is declared RETURNS TABLE, so that it can be called in FROM
 * and in a target list alike.  A set-returning function that hands back a
 * value and leaves the state of its set alone has answered with one row; that
 * spares the tuplestore and a second call.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "answer.h"
#include "funcapi.h"
#include "nodes/execnodes.h"

/* The row type, looked up once per call site and kept with its FmgrInfo. */
static TupleDesc
answer_type(FunctionCallInfo fcinfo)
{
	TupleDesc	desc = (TupleDesc) fcinfo->flinfo->fn_extra;
	MemoryContext old;

	if (desc != NULL)
		return desc;
	old = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	desc = BlessTupleDesc(CreateTupleDescCopy(desc));
	MemoryContextSwitchTo(old);
	fcinfo->flinfo->fn_extra = desc;
	return desc;
}

/*
 * AnswerRow - the one row that the calling SQL function returns.
 *
 * values and nulls are those of its output columns, in their order.  Uses
 * fn_extra of the call.
 */
Datum
AnswerRow(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	ReturnSetInfo *rsi = (ReturnSetInfo *) fcinfo->resultinfo;

	if (rsi == NULL || !IsA(rsi, ReturnSetInfo) ||
		(rsi->allowedModes & SFRM_ValuePerCall) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	return HeapTupleGetDatum(heap_form_tuple(answer_type(fcinfo), values, nulls));
}
