/*-------------------------------------------------------------------------
 *
 * target.h
 *	  A row of a user's table that a conditional write is about.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_TARGET_H
#define IDEM_TARGET_H

#include "fmgr.h"
#include "guard.h"
#include "lib/stringinfo.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"

struct TargetCache;

/* Parameters of a statement beside those of the key. */
#define TARGET_MAX_PARAMETERS	8

typedef struct Target
{
	Relation	rel;
	struct TargetCache *cache;
	int			nkeys;			/* parameters $1 to $nkeys are the key */
	Oid		   *types;			/* of all parameters, the key's first */
	Datum	   *values;
	char	   *nulls;			/* ' ' or 'n' */
	int			ncolumns;		/* columns that are changed */
	AttrNumber *columns;
} Target;

/* Writes the text of one kind of statement. */
typedef void (*TargetStatement) (StringInfo sql, const Target *target,
								 const Guard *guard);

extern void TargetOpen(Target *target, Oid relid);
extern const Guard *TargetGuard(const Target *target);
extern void TargetSetKey(Target *target, const char *key);
extern void TargetSetColumns(Target *target, Jsonb *changes);
extern void TargetSetParameter(Target *target, int number, Oid type,
							   Datum value, bool isnull);
extern Datum TargetColumnValue(const Target *target, AttrNumber column,
							   const char *value);
extern uint64 TargetRun(Target *target, TargetStatement statement);

extern void TargetAppendName(StringInfo sql, const Target *target);
extern void TargetAppendKeyCondition(StringInfo sql, const Target *target);
extern void TargetAppendAssignments(StringInfo sql, const Target *target);
extern void TargetAppendChanges(StringInfo sql, const Target *target,
								int parameter);
extern const char *TargetColumnName(const Target *target, AttrNumber column);

#endif							/* IDEM_TARGET_H */
