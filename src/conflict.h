/*-------------------------------------------------------------------------
 *
 * conflict.h
 *	  Which unique constraint decides that two rows are the same one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_CONFLICT_H
#define IDEM_CONFLICT_H

#include "nodes/bitmapset.h"
#include "utils/relcache.h"

/* The columns of one unique index, and how that index compares them. */
typedef struct ConflictTarget
{
	int			ncolumns;
	AttrNumber	columns[INDEX_MAX_KEYS];
	Oid			operators[INDEX_MAX_KEYS];
	Oid			types[INDEX_MAX_KEYS];	/* that the operators take */
	Oid			collations[INDEX_MAX_KEYS];
	bool		nulls_conflict; /* NULLS NOT DISTINCT */
	bool		any_deferrable; /* has the table a deferrable constraint? */
} ConflictTarget;

extern void ConflictChoose(Relation rel, Bitmapset *given, Bitmapset *wanted,
						   ConflictTarget *target);

#endif							/* IDEM_CONFLICT_H */
