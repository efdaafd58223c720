/*-------------------------------------------------------------------------
 *
 * rowjson.c
 *	  Column values out of a JSON object.
 *
 * The conversion is the server's own jsonb_populate_record: each value goes
 * through the input function of its column's type with the column's type
 * modifier, so what comes out is what the table would store (a numeric(10,2)
 * is rounded, a varchar(10) checked, a char(5) padded), numbers reach a
 * numeric digit by digit, and arrays and composites may be written as JSON
 * arrays and objects or as their text.  JSON null is SQL NULL.
 *
 * Columns that the object does not name are left out of the conversion: they
 * are no NULLs, and a domain that forbids NULL is not asked about them.  For
 * that the row is built on a blank one of the table's type instead of on
 * NULL.  No type is looked up by name, so the caller needs no right on the
 * schemas of the types.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "nodes/makefuncs.h"
#include "nodes/primnodes.h"
#include "rowjson.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* The next name in an object's top level, or false at its end. */
static bool
next_name(JsonbIterator **it, JsonbValue *name)
{
	JsonbIteratorToken token;

	while ((token = JsonbIteratorNext(it, name, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			return true;
	}
	return false;
}

/*
 * RowJsonAppendNames - appends the names of an object, each with its closing
 * zero byte.
 *
 * jsonb keeps names in an order of its own, without repeats: objects with the
 * same set of names append the same bytes.  Raises 22023 where the value is
 * no object.
 */
void
RowJsonAppendNames(StringInfo buf, Jsonb *object)
{
	JsonbIterator *it;
	JsonbValue	name;

	if (!JB_ROOT_IS_OBJECT(object))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a row must be given as a JSON object"),
				 errhint("Pass column names and their values, as in '{\"id\": 1}'.")));

	it = JsonbIteratorInit(&object->root);
	while (next_name(&it, &name))
	{
		appendBinaryStringInfo(buf, name.val.string.val, name.val.string.len);
		appendStringInfoChar(buf, '\0');
	}
}

/*
 * RowJsonColumn - number of the table's user column with exactly this name.
 *
 * Raises 42703 where there is none; a longer name is not cut off to fit.
 */
AttrNumber
RowJsonColumn(Relation rel, const char *name)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && strcmp(NameStr(att->attname), name) == 0)
			return att->attnum;
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("column \"%s\" of relation \"%s\" does not exist",
					name, RelationGetRelationName(rel))));
}

/*
 * RowJsonColumns - numbers of the columns that an object names.
 *
 * Raises 22023 where it is no object and 42703 where a name is no column.
 */
Bitmapset *
RowJsonColumns(Relation rel, Jsonb *object)
{
	Bitmapset  *columns = NULL;
	StringInfoData names;

	initStringInfo(&names);
	RowJsonAppendNames(&names, object);
	for (int at = 0; at < names.len; at += strlen(names.data + at) + 1)
		columns = bms_add_member(columns,
								 RowJsonColumn(rel, names.data + at));
	pfree(names.data);
	return columns;
}

/*
 * RowJsonPrepare - makes a reader for rows of a table, with everything in the
 * given memory context.  Good until the table's definition changes.
 */
void
RowJsonPrepare(RowJsonReader *reader, Relation rel, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);
	int			natts = RelationGetNumberOfAttributes(rel);
	Datum	   *values = (Datum *) palloc0(natts * sizeof(Datum));
	bool	   *nulls = (bool *) palloc(natts * sizeof(bool));
	Const	   *base;

	memset(nulls, true, natts * sizeof(bool));
	reader->desc = CreateTupleDescCopy(RelationGetDescr(rel));
	reader->blank = HeapTupleGetDatum(heap_form_tuple(reader->desc, values, nulls));

	/* The function learns the row type from the expression it stands in. */
	base = makeNullConst(reader->desc->tdtypeid, -1, InvalidOid);
	fmgr_info_cxt(F_JSONB_POPULATE_RECORD, &reader->populate, context);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_JSONB_POPULATE_RECORD,
											 reader->desc->tdtypeid,
											 list_make1(base),
											 InvalidOid, InvalidOid,
											 COERCE_EXPLICIT_CALL),
					   &reader->populate);
	MemoryContextSwitchTo(old);
}

/*
 * RowJsonRead - the values of an object's columns as the table would store
 * them, in arrays over all columns of the table; those that the object does
 * not name are NULL.
 *
 * Values are in the current memory context.  Errors are those of the types'
 * own input functions.
 */
void
RowJsonRead(RowJsonReader *reader, Jsonb *object, Datum *values, bool *nulls)
{
	HeapTupleHeader header;
	HeapTupleData tuple;

	header = DatumGetHeapTupleHeader(FunctionCall2(&reader->populate,
												   reader->blank,
												   JsonbPGetDatum(object)));
	tuple.t_len = HeapTupleHeaderGetDatumLength(header);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = header;
	heap_deform_tuple(&tuple, reader->desc, values, nulls);
}
