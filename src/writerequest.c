/*-------------------------------------------------------------------------
 *
 * writerequest.c
 *	  What a conditional write asks for.
 *
 * The arguments of a call, and what they mean for its table: which columns the
 * new row gives, which constraint decides that it is there already, which
 * columns an update sets and which ones are compared.  All of this depends on
 * the names in the row and on the table, never on a value, so it is worked out
 * once and kept with the plan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "compat.h"
#include "guard.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "writerequest.h"

/* Opens the table; its lock stays until the transaction ends. */
static Relation
open_target(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (rel->rd_rel->relkind != RELKIND_RELATION &&
		rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", RelationGetRelationName(rel)),
				 errhint("Only ordinary and partitioned tables have unique constraints.")));
	return rel;
}

/*
 * WriteRequestTake - reads the arguments that all conditional writes have: the
 * table first, the new row second, the conflict columns where told.
 *
 * Opens the table, for the caller to close with NoLock.  Raises 22004 for a
 * missing table or row, 42P01 where there is no such relation and 42809 where
 * it is no table.
 */
void
WriteRequestTake(FunctionCallInfo fcinfo, int conflict_argument,
				 WriteRequest *request)
{
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be NULL",
						PG_ARGISNULL(0) ? "target" : "new_row")));
	request->new_row = PG_GETARG_JSONB_P(1);
	if (!PG_ARGISNULL(conflict_argument))
		request->conflict_columns = PG_GETARG_ARRAYTYPE_P(conflict_argument);
	request->rel = open_target(PG_GETARG_OID(0));
}

/*
 * WriteRequestMaySelect - may the current user read this column?
 */
bool
WriteRequestMaySelect(Relation rel, AttrNumber column)
{
	Oid			relid = RelationGetRelid(rel);

	return pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK ||
		pg_attribute_aclcheck(relid, column, GetUserId(), ACL_SELECT) == ACLCHECK_OK;
}

/* Columns named in an array argument; each must be in the new row. */
static Bitmapset *
named_columns(Relation rel, ArrayType *names, Bitmapset *given,
			  const char *argument)
{
	Bitmapset  *columns = NULL;
	Datum	   *elems;
	bool	   *nulls;
	int			nelems;

	deconstruct_array(names, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR,
					  &elems, &nulls, &nelems);
	for (int i = 0; i < nelems; i++)
	{
		AttrNumber	column;

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not contain NULL", argument)));
		column = RowJsonColumn(rel, NameStr(*DatumGetName(elems[i])));
		if (!bms_is_member(column, given))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
					 errmsg("column \"%s\" of %s is not in the new row",
							NameStr(*DatumGetName(elems[i])), argument),
					 errhint("Give the new row a value for each column named there.")));
		columns = bms_add_member(columns, column);
	}
	return columns;
}

/* Chooses the conflict target of a request. */
static void
choose_target(WriteShape *shape, const WriteRequest *request)
{
	Bitmapset  *wanted = NULL;

	if (request->conflict_columns != NULL)
	{
		wanted = named_columns(request->rel, request->conflict_columns,
							   shape->columns, "conflict_columns");
		if (wanted == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
					 errmsg("conflict_columns must not be empty")));
	}
	ConflictChoose(request->rel, shape->columns, wanted, &shape->target);
}

/*
 * Chooses the columns that an update sets: the ones asked for, else all of the
 * new row but the key and the version, which counts itself.
 */
static void
choose_updated(WriteShape *shape, const WriteRequest *request)
{
	if (!request->upsert)
		return;
	if (request->update_columns != NULL)
	{
		shape->updated = named_columns(request->rel, request->update_columns,
									   shape->columns, "update_columns");
		if (bms_is_member(shape->version_column, shape->updated))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("update_columns must not name the version column"),
					 errhint("The version guard sets it.")));
		return;
	}
	shape->updated = bms_copy(shape->columns);
	for (int i = 0; i < shape->target.ncolumns; i++)
		shape->updated = bms_del_member(shape->updated, shape->target.columns[i]);
	if (shape->version_column > 0)
		shape->updated = bms_del_member(shape->updated, shape->version_column);
	if (bms_is_empty(shape->updated))
		shape->updated = NULL;
}

/*
 * WriteRequestShape - works out what a request of the current user means;
 * shape is zeroed.  Allocates in the current memory context.
 *
 * Raises 22023, 22004, 42703 and 42P10 for requests that make no sense.
 */
void
WriteRequestShape(const WriteRequest *request, WriteShape *shape)
{
	Relation	rel = request->rel;

	shape->columns = RowJsonColumns(rel, request->new_row);
	shape->nparams = bms_num_members(shape->columns);
	choose_target(shape, request);
	shape->version_column = request->upsert ? GuardFind(rel)->version_column : 0;
	shape->reads_version = shape->version_column > 0 &&
		WriteRequestMaySelect(rel, shape->version_column);
	choose_updated(shape, request);
	shape->compared = request->upsert ? shape->updated : shape->columns;
}
