/*-------------------------------------------------------------------------
 *
 * batch.h
 *	  Arrays of requests as arguments.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_BATCH_H
#define IDEM_BATCH_H

#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"

/* One array argument, taken apart; elements point into the array. */
typedef struct BatchColumn
{
	bool		given;			/* false where the argument is NULL */
	Datum	   *values;
	bool	   *nulls;
} BatchColumn;

/* The requests of a batch, in the order of the array. */
typedef struct Batch
{
	int			n;
	BatchColumn ids;
	int		   *order;			/* indexes in bytewise order of the ids */
} Batch;

extern BatchColumn BatchColumnOf(ArrayType *array, Oid type, int *n);
extern Batch BatchFromArg(FunctionCallInfo fcinfo, int arg);
extern void BatchSort(Batch *batch);
extern bool BatchRepeats(const Batch *batch, int i);
extern text *BatchId(const Batch *batch, int i);
extern BatchColumn BatchColumnFromArg(FunctionCallInfo fcinfo, int arg,
									  Oid type, int n);

#endif							/* IDEM_BATCH_H */
