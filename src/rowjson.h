/*-------------------------------------------------------------------------
 *
 * rowjson.h
 *	  Column values out of a JSON object.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_ROWJSON_H
#define IDEM_ROWJSON_H

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "nodes/bitmapset.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"

/* Reads objects as rows of one table; lives as long as its memory context. */
typedef struct RowJsonReader
{
	TupleDesc	desc;			/* row type of the table */
	Datum		blank;			/* a row of it, all NULL */
	FmgrInfo	populate;		/* jsonb_populate_record for that type */
} RowJsonReader;

extern void RowJsonAppendNames(StringInfo buf, Jsonb *object);
extern Bitmapset *RowJsonColumns(Relation rel, Jsonb *object);
extern AttrNumber RowJsonColumn(Relation rel, const char *name);
extern void RowJsonPrepare(RowJsonReader *reader, Relation rel,
						   MemoryContext context);
extern void RowJsonRead(RowJsonReader *reader, Jsonb *object,
						Datum *values, bool *nulls);

#endif							/* IDEM_ROWJSON_H */
