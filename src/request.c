/*-------------------------------------------------------------------------
 *
 * request.c
 *	  What names a request, and the checks of its arguments.
 *
 * Bad arguments are errors, raised before anything is looked up or written:
 * an empty key that is taken for a key protects nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"

#include "clock.h"
#include "mb/pg_wchar.h"
#include "request.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* Characters, not bytes: a limit should not depend on the alphabet. */
static int
length_in_characters(const text *name)
{
	return pg_mbstrlen_with_len(VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
}

/*
 * RequestCheckName - a name that is not too long; what says which in the
 * error.
 */
text *
RequestCheckName(text *name, const char *what)
{
	if (length_in_characters(name) > REQUEST_NAME_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be longer than %d characters", what,
						REQUEST_NAME_MAX),
				 errhint("Use a shorter name, or a hash of a longer one.")));
	return name;
}

/*
 * RequestCheckId - the key of a request, or an error where it can't be one.
 */
text *
RequestCheckId(text *request_id)
{
	if (request_id == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("idempotency key must not be null"),
				 errhint("Pass the key that the caller sent; refuse requests that have none.")));
	if (VARSIZE_ANY_EXHDR(request_id) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("idempotency key must not be empty"),
				 errhint("Pass the key that the caller sent; refuse requests that have none.")));
	return RequestCheckName(request_id, "idempotency key");
}

/*
 * RequestCheckScope - a scope, or an error where it can't be one.
 */
text *
RequestCheckScope(text *scope)
{
	if (scope == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("scope must not be null"),
				 errhint("Leave the argument out for the default scope.")));
	return RequestCheckName(scope, "scope");
}

/*
 * RequestKeyFromArgs - the checked name of a request from two arguments.
 */
RequestKey
RequestKeyFromArgs(FunctionCallInfo fcinfo, int id_arg, int scope_arg)
{
	RequestKey	key;

	key.request_id = RequestCheckId(PG_ARGISNULL(id_arg) ? NULL :
									PG_GETARG_TEXT_PP(id_arg));
	key.scope = RequestCheckScope(PG_ARGISNULL(scope_arg) ? NULL :
								  PG_GETARG_TEXT_PP(scope_arg));
	return key;
}

/*
 * RequestPositiveInterval - an interval argument that must be longer than
 * nothing; NULL where it is left out.
 */
Interval *
RequestPositiveInterval(FunctionCallInfo fcinfo, int arg, const char *name)
{
	Interval   *span;

	if (PG_ARGISNULL(arg))
		return NULL;
	span = PG_GETARG_INTERVAL_P(arg);
	if (!ClockIntervalIsPositive(span))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be positive", name),
				 errhint("Leave it out for the default; a bare number is in seconds.")));
	return span;
}

/*
 * RequestWaitInterval - an interval argument that must not be negative; NULL
 * where it is left out.
 */
Interval *
RequestWaitInterval(FunctionCallInfo fcinfo, int arg)
{
	Interval   *span;

	if (PG_ARGISNULL(arg))
		return NULL;
	span = PG_GETARG_INTERVAL_P(arg);
	if (ClockIntervalIsNegative(span))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("wait must not be negative"),
				 errhint("Zero never waits.")));
	return span;
}

/*
 * RequestDescribe - names a request in the DETAIL of an error.
 */
char *
RequestDescribe(const RequestKey *key)
{
	return psprintf(_("Request \"%s\" in scope \"%s\""),
					text_to_cstring(key->request_id),
					text_to_cstring(key->scope));
}
