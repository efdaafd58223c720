/*-------------------------------------------------------------------------
 *
 * result.c
 *	  Answering with rows.
 *
 * Functions that answer one request are set-returning ones that return one
 * row.  They are called twice: for the row, and to hear that there is no more.
 * What is remembered in between is one mark in the call's own FmgrInfo, which
 * is taken back when the executor ends the set early.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "nodes/execnodes.h"
#include "result.h"
#include "utils/memutils.h"

/* Stands in fn_extra while the one row is out. */
static char row_is_out;

static void
forget_row(Datum arg)
{
	((FmgrInfo *) DatumGetPointer(arg))->fn_extra = NULL;
}

static ReturnSetInfo *
result_info(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	if (rsinfo == NULL || !IsA(rsinfo, ReturnSetInfo) ||
		(rsinfo->allowedModes & SFRM_ValuePerCall) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));
	return rsinfo;
}

/*
 * ResultIsDone - is this the second call, after the row?
 */
bool
ResultIsDone(FunctionCallInfo fcinfo)
{
	return fcinfo->flinfo->fn_extra != NULL;
}

/*
 * ResultEnd - says that there is no (more) row.
 */
Datum
ResultEnd(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *rsinfo = result_info(fcinfo);

	if (fcinfo->flinfo->fn_extra != NULL)
	{
		UnregisterExprContextCallback(rsinfo->econtext, forget_row,
									  PointerGetDatum(fcinfo->flinfo));
		fcinfo->flinfo->fn_extra = NULL;
	}
	rsinfo->isDone = ExprEndResult;
	PG_RETURN_NULL();
}

/* The row type; lives as long as the backend. */
static TupleDesc
row_descriptor(ResultType *type)
{
	MemoryContext context;
	TupleDesc	desc;

	if (likely(type->desc != NULL))
		return type->desc;

	context = MemoryContextSwitchTo(TopMemoryContext);
	desc = CreateTemplateTupleDesc(type->ncolumns);
	for (int i = 0; i < type->ncolumns; i++)
		TupleDescInitEntry(desc, i + 1, type->columns[i].name,
						   type->columns[i].type, -1, 0);
	type->desc = BlessTupleDesc(desc);
	MemoryContextSwitchTo(context);
	return type->desc;
}

/*
 * ResultRow - answers with a row; the values are copied.
 */
Datum
ResultRow(FunctionCallInfo fcinfo, ResultType *type, Datum *values,
		  bool *nulls)
{
	ReturnSetInfo *rsinfo = result_info(fcinfo);
	HeapTuple	tuple = heap_form_tuple(row_descriptor(type), values, nulls);

	RegisterExprContextCallback(rsinfo->econtext, forget_row,
								PointerGetDatum(fcinfo->flinfo));
	fcinfo->flinfo->fn_extra = &row_is_out;
	rsinfo->isDone = ExprMultipleResult;
	return HeapTupleGetDatum(tuple);
}

/*
 * ResultInitSet - answers with as many rows as the caller puts into the
 * tuplestore, which goes to disk beyond work_mem.
 */
void
ResultInitSet(FunctionCallInfo fcinfo)
{
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
}
