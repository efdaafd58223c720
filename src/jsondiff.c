/*-------------------------------------------------------------------------
 *
 * jsondiff.c
 *	  Where two JSON documents differ: paths in the notation of SQL/JSON,
 *	  without any values.
 *
 * The list is for a person who looks for the mistake in a client, so it is
 * bounded: a document that differs everywhere needs no list of everything.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"

#include "catalog/pg_type.h"
#include "jsondiff.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/json.h"

/* Paths in one answer at the most. */
#define MAX_PATHS 32

typedef struct Diff
{
	StringInfoData path;		/* of what is being compared */
	Datum		found[MAX_PATHS];
	int			nfound;
} Diff;

static void compare_values(Diff *diff, JsonbValue *a, JsonbValue *b);

static void
report_path(Diff *diff)
{
	if (diff->nfound < MAX_PATHS)
		diff->found[diff->nfound++] =
			PointerGetDatum(cstring_to_text_with_len(diff->path.data,
													 diff->path.len));
}

/* Cuts the path back to the length that it had before a step down. */
static void
step_up(Diff *diff, int len)
{
	diff->path.len = len;
	diff->path.data[len] = '\0';
}

static bool
is_plain_name(const char *name, int len)
{
	if (len == 0 || (name[0] >= '0' && name[0] <= '9'))
		return false;
	for (int i = 0; i < len; i++)
	{
		unsigned char c = name[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			  (c >= '0' && c <= '9') || c == '_'))
			return false;
	}
	return true;
}

static void
step_into_member(Diff *diff, const char *name, int len)
{
	appendStringInfoChar(&diff->path, '.');
	if (is_plain_name(name, len))
		appendBinaryStringInfo(&diff->path, name, len);
	else
		escape_json(&diff->path, pnstrdup(name, len));
}

/* Takes an object or array apart: keys (or NULL for an array) and values. */
static JsonbValue *
children(JsonbContainer *container, bool keys, int *nchildren)
{
	JsonbIterator *it = JsonbIteratorInit(container);
	JsonbValue *list;
	JsonbValue	value;
	JsonbIteratorToken token;
	int			n = 0;

	list = palloc(sizeof(JsonbValue) *
				  (JsonContainerSize(container) * (keys ? 2 : 1) + 1));
	(void) JsonbIteratorNext(&it, &value, true);
	while ((token = JsonbIteratorNext(&it, &value, true)) == WJB_KEY ||
		   token == WJB_VALUE || token == WJB_ELEM)
		list[n++] = value;
	*nchildren = n;
	return list;
}

/* The order that jsonb keeps keys in: by length, then by bytes. */
static int
compare_keys(const JsonbValue *a, const JsonbValue *b)
{
	if (a->val.string.len != b->val.string.len)
		return a->val.string.len < b->val.string.len ? -1 : 1;
	return memcmp(a->val.string.val, b->val.string.val, a->val.string.len);
}

static void
compare_objects(Diff *diff, JsonbContainer *a, JsonbContainer *b)
{
	int			na;
	int			nb;
	int			ia = 0;
	int			ib = 0;
	JsonbValue *as = children(a, true, &na);
	JsonbValue *bs = children(b, true, &nb);

	while ((ia < na || ib < nb) && diff->nfound < MAX_PATHS)
	{
		int			order = ia >= na ? 1 : ib >= nb ? -1 :
			compare_keys(&as[ia], &bs[ib]);
		JsonbValue *name = order <= 0 ? &as[ia] : &bs[ib];
		int			len = diff->path.len;

		step_into_member(diff, name->val.string.val, name->val.string.len);
		if (order == 0)
			compare_values(diff, &as[ia + 1], &bs[ib + 1]);
		else
			report_path(diff);
		step_up(diff, len);
		if (order <= 0)
			ia += 2;
		if (order >= 0)
			ib += 2;
	}
}

static void
compare_arrays(Diff *diff, JsonbContainer *a, JsonbContainer *b)
{
	int			na;
	int			nb;
	JsonbValue *as = children(a, false, &na);
	JsonbValue *bs = children(b, false, &nb);

	for (int i = 0; i < Max(na, nb) && diff->nfound < MAX_PATHS; i++)
	{
		int			len = diff->path.len;

		appendStringInfo(&diff->path, "[%d]", i);
		if (i < na && i < nb)
			compare_values(diff, &as[i], &bs[i]);
		else
			report_path(diff);
		step_up(diff, len);
	}
}

static bool
is_equal_scalar(JsonbValue *a, JsonbValue *b)
{
	if (a->type != b->type)
		return false;
	switch (a->type)
	{
		case jbvNull:
			return true;
		case jbvBool:
			return a->val.boolean == b->val.boolean;
		case jbvNumeric:
			return DatumGetBool(DirectFunctionCall2(numeric_eq,
													NumericGetDatum(a->val.numeric),
													NumericGetDatum(b->val.numeric)));
		default:
			return a->val.string.len == b->val.string.len &&
				memcmp(a->val.string.val, b->val.string.val,
					   a->val.string.len) == 0;
	}
}

static void
compare_containers(Diff *diff, JsonbContainer *a, JsonbContainer *b)
{
	check_stack_depth();
	CHECK_FOR_INTERRUPTS();

	if (JsonContainerIsObject(a) && JsonContainerIsObject(b))
		compare_objects(diff, a, b);
	else if (JsonContainerIsArray(a) && JsonContainerIsArray(b))
		compare_arrays(diff, a, b);
	else
		report_path(diff);
}

static void
compare_values(Diff *diff, JsonbValue *a, JsonbValue *b)
{
	if (a->type == jbvBinary && b->type == jbvBinary)
		compare_containers(diff, a->val.binary.data, b->val.binary.data);
	else if (a->type == jbvBinary || b->type == jbvBinary ||
			 !is_equal_scalar(a, b))
		report_path(diff);
}

static void
root_value(Jsonb *document, JsonbValue *value)
{
	if (JB_ROOT_IS_SCALAR(document))
		(void) JsonbExtractScalar(&document->root, value);
	else
	{
		value->type = jbvBinary;
		value->val.binary.data = &document->root;
		value->val.binary.len = VARSIZE(document) - VARHDRSZ;
	}
}

/*
 * JsonDiffPaths - paths at which two documents differ, as text[]; palloc'd.
 */
ArrayType *
JsonDiffPaths(Jsonb *a, Jsonb *b)
{
	Diff		diff;
	JsonbValue	root_a;
	JsonbValue	root_b;

	diff.nfound = 0;
	initStringInfo(&diff.path);
	appendStringInfoChar(&diff.path, '$');
	root_value(a, &root_a);
	root_value(b, &root_b);
	compare_values(&diff, &root_a, &root_b);
	return construct_array(diff.found, diff.nfound, TEXTOID, -1, false,
						   TYPALIGN_INT);
}
