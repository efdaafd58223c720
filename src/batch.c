/*-------------------------------------------------------------------------
 *
 * batch.c
 *	  Arrays of requests as arguments.
 *
 * An element costs its place in the detoasted array, a pointer and a flag per
 * array (9 bytes), and four bytes more where the batch is sorted.
 *
 * What can wait for other transactions is done in bytewise order of the keys,
 * whatever order the caller has them in: two batches then never wait for each
 * other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"

#include "batch.h"
#include "catalog/pg_type.h"
#include "request.h"
#include "utils/lsyscache.h"

/* Rows and columns would leave open what belongs together. */
static void
check_dimensions(ArrayType *array)
{
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("arrays of a batch must be one-dimensional"),
				 errhint("Pass one element for each request.")));
}

/*
 * BatchColumnOf - takes a one-dimensional array of a type apart; n is set to
 * its length.
 */
BatchColumn
BatchColumnOf(ArrayType *array, Oid type, int *n)
{
	BatchColumn column;
	int16		length;
	bool		by_value;
	char		align;

	check_dimensions(array);
	get_typlenbyvalalign(type, &length, &by_value, &align);
	deconstruct_array(array, type, length, by_value, align,
					  &column.values, &column.nulls, n);
	column.given = true;
	return column;
}

/*
 * BatchFromArg - the requests of a batch, each key checked.
 */
Batch
BatchFromArg(FunctionCallInfo fcinfo, int arg)
{
	Batch		batch;

	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("array of keys must not be null"),
				 errhint("Pass an empty array where there is nothing to do.")));
	batch.ids = BatchColumnOf(PG_GETARG_ARRAYTYPE_P(arg), TEXTOID, &batch.n);
	batch.order = NULL;
	for (int i = 0; i < batch.n; i++)
		(void) RequestCheckId(batch.ids.nulls[i] ? NULL :
							  DatumGetTextPP(batch.ids.values[i]));
	return batch;
}

/*
 * BatchId - key of an element.
 */
text *
BatchId(const Batch *batch, int i)
{
	return DatumGetTextPP(batch->ids.values[i]);
}

static int
compare_texts(const text *a, const text *b)
{
	int			la = VARSIZE_ANY_EXHDR(a);
	int			lb = VARSIZE_ANY_EXHDR(b);
	int			order = memcmp(VARDATA_ANY(a), VARDATA_ANY(b), Min(la, lb));

	return order != 0 ? order : la - lb;
}

static int
compare_ids(const void *a, const void *b, void *arg)
{
	const Batch *batch = (const Batch *) arg;
	int			ia = *(const int *) a;
	int			ib = *(const int *) b;
	int			order = compare_texts(BatchId(batch, ia), BatchId(batch, ib));

	return order != 0 ? order : ia - ib;
}

/*
 * BatchSort - makes the order in which what can wait is to be done: by the
 * bytes of the keys, equal ones as they stand in the array.
 */
void
BatchSort(Batch *batch)
{
	batch->order = (int *) palloc(sizeof(int) * Max(batch->n, 1));
	for (int i = 0; i < batch->n; i++)
		batch->order[i] = i;
	qsort_arg(batch->order, batch->n, sizeof(int), compare_ids, batch);
}

/*
 * BatchRepeats - is the i-th key of a sorted batch the same as the one before?
 */
bool
BatchRepeats(const Batch *batch, int i)
{
	return i > 0 && compare_texts(BatchId(batch, batch->order[i - 1]),
								  BatchId(batch, batch->order[i])) == 0;
}

/*
 * BatchColumnFromArg - an array that goes with the keys: left out, or as long
 * as they are.
 */
BatchColumn
BatchColumnFromArg(FunctionCallInfo fcinfo, int arg, Oid type, int n)
{
	BatchColumn column = {false, NULL, NULL};
	int			found;

	if (PG_ARGISNULL(arg))
		return column;
	column = BatchColumnOf(PG_GETARG_ARRAYTYPE_P(arg), type, &found);
	if (found != n)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("arrays of a batch must have the same length"),
				 errdetail("Number of keys: %d, of elements in another array: %d.",
						   n, found),
				 errhint("Leave the other array out, or give it an element for each key.")));
	return column;
}
