/*-------------------------------------------------------------------------
 *
 * conflict.c
 *	  Which unique constraint decides that two rows are the same one.
 *
 * Only what INSERT ... ON CONFLICT (columns) can use is a candidate: a valid
 * unique index on plain columns, without a predicate, checked at once.  A
 * partial index is left out since whether it decides depends on the row, an
 * expression index since a new row does not name its expression; both are
 * told to the caller as the reason.  Several indexes on the same columns are
 * one candidate, as they are for ON CONFLICT, and the one that takes the most
 * values for equal says how they are compared.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "conflict.h"
#include "lib/stringinfo.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* What the search over a table's indexes has found so far. */
typedef struct Search
{
	Relation	rel;
	Bitmapset  *given;			/* columns of the new row */
	Bitmapset  *wanted;			/* columns asked for, or NULL */
	Bitmapset  *found;			/* columns of the candidate found */
	bool		found_primary;
	bool		several;
	StringInfoData reasons;		/* why indexes were left out */
	ConflictTarget *target;
} Search;

/* Why ON CONFLICT (columns) cannot use a unique index, or NULL. */
static const char *
unusable_reason(Relation index)
{
	Form_pg_index form = index->rd_index;

	if (!form->indisvalid || !form->indisready || !form->indislive)
		return "is not valid";
	if (!form->indimmediate)
		return "is deferrable";
	if (!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
		return "is partial";
	if (!heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL))
		return "is on an expression";
	if (form->indisexclusion || index->rd_rel->relam != BTREE_AM_OID)
		return "does not compare by equality alone";
	return NULL;
}

static Bitmapset *
index_columns(Relation index)
{
	Bitmapset  *columns = NULL;

	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
		columns = bms_add_member(columns, index->rd_index->indkey.values[i]);
	return columns;
}

/*
 * Does an index on the same columns take more values for equal?  That is by a
 * collation that is not deterministic, where the one chosen so far has one.
 */
static bool
is_coarser(Relation index, ConflictTarget *target)
{
	for (int i = 0; i < target->ncolumns; i++)
	{
		AttrNumber	column = index->rd_index->indkey.values[i];
		Oid			collation = index->rd_indcollation[i];

		if (!OidIsValid(collation) || get_collation_isdeterministic(collation))
			continue;
		for (int j = 0; j < target->ncolumns; j++)
		{
			if (target->columns[j] == column &&
				get_collation_isdeterministic(target->collations[j]))
				return true;
		}
	}
	return false;
}

static void
remember_index(Search *search, Relation index, Bitmapset *columns)
{
	ConflictTarget *target = search->target;

	search->found = columns;
	search->found_primary = index->rd_index->indisprimary;
	target->ncolumns = IndexRelationGetNumberOfKeyAttributes(index);
	target->nulls_conflict = index->rd_index->indnullsnotdistinct;
	for (int i = 0; i < target->ncolumns; i++)
	{
		Oid			type = index->rd_opcintype[i];

		target->columns[i] = index->rd_index->indkey.values[i];
		target->types[i] = type;
		target->collations[i] = index->rd_indcollation[i];
		target->operators[i] = get_opfamily_member(index->rd_opfamily[i],
												   type, type,
												   BTEqualStrategyNumber);
		if (!OidIsValid(target->operators[i]))
			elog(ERROR, "missing equality operator in operator family %u",
				 index->rd_opfamily[i]);
	}
}

/* Takes one usable index into account. */
static void
consider_index(Search *search, Relation index)
{
	Bitmapset  *columns = index_columns(index);

	if (search->wanted != NULL ? !bms_equal(columns, search->wanted) :
		!bms_is_subset(columns, search->given))
		return;

	if (bms_equal(columns, search->found))
	{
		bool		nulls_conflict = search->target->nulls_conflict;
		bool		found_primary = search->found_primary;

		if (is_coarser(index, search->target))
			remember_index(search, index, columns);
		search->target->nulls_conflict = nulls_conflict ||
			index->rd_index->indnullsnotdistinct;
		search->found_primary = found_primary || index->rd_index->indisprimary;
	}
	else if (search->found == NULL ||
			 (index->rd_index->indisprimary && !search->found_primary))
		remember_index(search, index, columns);
	else if (!search->found_primary)
		search->several = true;
}

/*
 * Notes why a unique index was left out.  A primary key that the row has all
 * of is never passed over in favour of another constraint.
 */
static void
note_reason(Search *search, Relation index, const char *reason)
{
	if (search->reasons.len > 0)
		appendStringInfoChar(&search->reasons, ' ');
	appendStringInfo(&search->reasons, "Unique index \"%s\" cannot be used: it %s.",
					 RelationGetRelationName(index), reason);

	if (index->rd_index->indisprimary && search->wanted == NULL &&
		bms_is_subset(index_columns(index), search->given))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("the primary key of table \"%s\" cannot decide a conflict",
						RelationGetRelationName(search->rel)),
				 errdetail_internal("%s", search->reasons.data),
				 errhint("Name the columns of another unique constraint in conflict_columns.")));
}

static void
search_indexes(Search *search)
{
	List	   *indexes = RelationGetIndexList(search->rel);
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (!index->rd_index->indimmediate)
			search->target->any_deferrable = true;
		if (index->rd_index->indisunique)
		{
			const char *reason = unusable_reason(index);

			if (reason != NULL)
				note_reason(search, index, reason);
			else
				consider_index(search, index);
		}
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
}

/* Raises the error for a search that found not exactly one candidate. */
static void
refuse(Search *search)
{
	const char *table = RelationGetRelationName(search->rel);

	if (search->several)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				 errmsg("the new row covers several unique constraints of table \"%s\"", table),
				 errhint("Name the columns of one of them in conflict_columns.")));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
			 search->wanted != NULL ?
			 errmsg("the conflict columns are not those of a unique constraint of table \"%s\"", table) :
			 errmsg("the new row covers no unique constraint of table \"%s\"", table),
			 search->reasons.len > 0 ?
			 errdetail_internal("%s", search->reasons.data) : 0,
			 search->wanted != NULL ?
			 errhint("Name all columns of a primary key, or of a unique constraint or index without predicate and expressions.") :
			 errhint("Give a value for each column of the primary key or of one unique constraint.")));
}

/*
 * ConflictChoose - chooses the columns that a new row conflicts on.
 *
 * given are the columns of the new row, wanted the ones asked for, or NULL:
 * then the primary key if the row has all of it, else the only unique
 * constraint that the row covers.  Raises 42P10 where that is none or
 * several, with the reasons why indexes were left out.  Fills a zeroed target.
 * The caller holds a lock on the table.
 */
void
ConflictChoose(Relation rel, Bitmapset *given, Bitmapset *wanted,
			   ConflictTarget *target)
{
	Search		search = {.rel = rel,.given = given,.wanted = wanted,.target = target};

	initStringInfo(&search.reasons);
	search_indexes(&search);
	if (search.found == NULL || (search.several && !search.found_primary))
		refuse(&search);
}
