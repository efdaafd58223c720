/*-------------------------------------------------------------------------
 *
 * result.h
 *	  Answering with rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_RESULT_H
#define IDEM_RESULT_H

#include "access/tupdesc.h"
#include "fmgr.h"

/* Name and type of a column of a result. */
typedef struct ResultColumn
{
	const char *name;
	Oid			type;
} ResultColumn;

/* A row type that is built once per backend. */
typedef struct ResultType
{
	const ResultColumn *columns;
	int			ncolumns;
	TupleDesc	desc;			/* NULL until first used */
} ResultType;

extern bool ResultIsDone(FunctionCallInfo fcinfo);
extern Datum ResultRow(FunctionCallInfo fcinfo, ResultType *type,
					   Datum *values, bool *nulls);
extern Datum ResultEnd(FunctionCallInfo fcinfo);
extern void ResultInitSet(FunctionCallInfo fcinfo);

#endif							/* IDEM_RESULT_H */
