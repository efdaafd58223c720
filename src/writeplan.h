/*-------------------------------------------------------------------------
 *
 * writeplan.h
 *	  Statements of conditional writes to one table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_WRITEPLAN_H
#define IDEM_WRITEPLAN_H

#include "compat.h"
#include "executor/spi.h"
#include "writerequest.h"

/*
 * How often a write tries again after it lost a race.  Each turn needs the row
 * to come or go once more between two statements.
 */
#define WRITE_ROUNDS 10

/* The prepared statements of a request; everything in its memory context. */
typedef struct WritePlan
{
	MemoryContext context;
	RowJsonReader reader;
	WriteShape	shape;
	Oid		   *param_types;
	SPIPlanPtr	probe;
	SPIPlanPtr	lock;			/* NULL where nothing is ever updated */
	SPIPlanPtr	insert_any;		/* NULL where it would not do */
	SPIPlanPtr	insert;
	SPIPlanPtr	update;
	bool		broken;			/* not to be used again */
} WritePlan;

/* The values of one call, as parameters of the statements. */
typedef struct WriteValues
{
	Datum	   *columns;		/* by column number - 1 */
	bool	   *column_nulls;
	Datum	   *params;
	char	   *param_nulls;
} WriteValues;

/* A row of the table, as it was found or left. */
typedef struct WriteRow
{
	bool		has_version;
	int64		version;
	bool		has_stored;
	Datum		stored;			/* jsonb */
	Bitmapset  *differs;		/* compared columns with other values */
} WriteRow;

extern void WritePlanBuild(WritePlan *plan, const WriteRequest *request);
extern void WritePlanFree(WritePlan *plan);
extern void WritePlanRead(WritePlan *plan, Relation rel, Jsonb *new_row,
						  WriteValues *values);
extern bool WritePlanInsertsFirst(void);
extern bool WritePlanProbe(WritePlan *plan, WriteValues *values, bool lock,
						   WriteRow *row);
extern bool WritePlanInsert(WritePlan *plan, WriteValues *values, bool first,
							WriteRow *row);
extern bool WritePlanUpdate(WritePlan *plan, WriteValues *values,
							WriteRow *row);
COMPAT_NORETURN extern void WritePlanGiveUp(Relation rel);

#endif							/* IDEM_WRITEPLAN_H */
