/*-------------------------------------------------------------------------
 *
 * rowequal.c
 *	  Equality of column values.
 *
 * Two values are the same where the type's own default equality says so, the
 * one that its unique indexes and GROUP BY use: numeric 1.0 and 1.00, citext
 * in either case, a text by the column's collation.  Two NULLs are the same.
 * A type without such an equality (json, xml, point, and arrays of these) is
 * compared by its text; json by what it says, since white space and the order
 * of names are no difference to the one who wrote it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "compat.h"
#include "rowequal.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

static char *
value_text(Oid type, Datum value)
{
	Oid			output;
	bool		is_varlena;

	getTypeOutputInfo(type, &output, &is_varlena);
	return OidOutputFunctionCall(output, value);
}

static bool
same_text(Oid type, Datum a, Datum b)
{
	char	   *a_text = value_text(type, a);
	char	   *b_text = value_text(type, b);

	if (type == JSONOID)
	{
		Datum		a_json = DirectFunctionCall1(jsonb_in, CStringGetDatum(a_text));
		Datum		b_json = DirectFunctionCall1(jsonb_in, CStringGetDatum(b_text));

		return DatumGetBool(DirectFunctionCall2(jsonb_eq, a_json, b_json));
	}
	return strcmp(a_text, b_text) == 0;
}

/*
 * RowEqualColumn - are two values of a table's column the same?
 *
 * Both are values of the column's type, the type modifier applied.  May leave
 * small garbage in the current memory context.
 */
bool
RowEqualColumn(Form_pg_attribute column, Datum a, bool a_null,
			   Datum b, bool b_null)
{
	TypeCacheEntry *type;
	Oid			base;

	if (a_null || b_null)
		return a_null && b_null;

	base = getBaseType(column->atttypid);
	type = lookup_type_cache(base, TYPECACHE_EQ_OPR_FINFO);
	if (!OidIsValid(type->eq_opr_finfo.fn_oid))
		return same_text(base, a, b);
	return DatumGetBool(FunctionCall2Coll(&type->eq_opr_finfo,
										  column->attcollation, a, b));
}
