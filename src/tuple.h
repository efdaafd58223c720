/*-------------------------------------------------------------------------
 *
 * tuple.h
 *	  Rows of the extension's own tables, by the columns that are known.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_TUPLE_H
#define IDEM_TUPLE_H

#include "access/htup.h"
#include "utils/relcache.h"

extern void TupleRead(Relation rel, HeapTuple tuple, int natts, Datum *values,
					  bool *nulls);
extern void TupleInsert(Relation rel, int natts, const Datum *values,
						const bool *nulls);
extern void TupleUpdate(Relation rel, const ItemPointerData *tid, int natts,
						const Datum *values, const bool *nulls);

#endif							/* IDEM_TUPLE_H */
