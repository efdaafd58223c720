/*-------------------------------------------------------------------------
 *
 * writerequest.h
 *	  What a conditional write asks for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_WRITEREQUEST_H
#define IDEM_WRITEREQUEST_H

#include "conflict.h"
#include "rowjson.h"
#include "utils/array.h"

/* The arguments that a write's statements depend on. */
typedef struct WriteRequest
{
	Relation	rel;
	Jsonb	   *new_row;
	ArrayType  *conflict_columns;	/* or NULL */
	ArrayType  *update_columns; /* or NULL */
	bool		upsert;
} WriteRequest;

/* What they mean for the table; columns are sets of their numbers. */
typedef struct WriteShape
{
	ConflictTarget target;
	Bitmapset  *columns;		/* that the new row names */
	Bitmapset  *updated;		/* that an update sets */
	Bitmapset  *compared;		/* that decide whether the row is the same */
	AttrNumber	version_column; /* of the version guard, or 0 */
	bool		reads_version;	/* may the caller see it? */
	int			nparams;		/* one for each column of the new row */
} WriteShape;

extern void WriteRequestTake(FunctionCallInfo fcinfo, int conflict_argument,
							 WriteRequest *request);
extern void WriteRequestShape(const WriteRequest *request, WriteShape *shape);
extern bool WriteRequestMaySelect(Relation rel, AttrNumber column);

#endif							/* IDEM_WRITEREQUEST_H */
