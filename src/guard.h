/*-------------------------------------------------------------------------
 *
 * guard.h
 *	  Which guards a table has.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_GUARD_H
#define IDEM_GUARD_H

#include "access/htup.h"
#include "machine.h"
#include "tablecache.h"
#include "utils/relcache.h"

typedef struct Guard
{
	TableEntry	entry;
	Oid			root;			/* table that the guards were attached to */

	AttrNumber	state_column;	/* 0 where there is no state guard */
	bool		history;
	char		machine[MACHINE_NAME_MAX + 1];
	Oid			state_type;		/* base type of the column */
	Oid			state_output;	/* its output function */

	AttrNumber	version_column; /* 0 where there is no version guard */
	Oid			version_type;	/* base type of the column */
} Guard;

extern const Guard *GuardFind(Relation rel);
extern char *GuardState(const Guard *guard, TupleDesc desc, HeapTuple tuple);
extern char *GuardTable(const Guard *guard);
extern const Machine *GuardMachine(const Guard *guard);

#endif							/* IDEM_GUARD_H */
