/*-------------------------------------------------------------------------
 *
 * handler.c
 *	  Functions of users that carry a request or a step out: how they are
 *	  named, checked and called.
 *
 * A handler is a function (jsonb) -> jsonb, given by its name and looked up
 * like any function that the caller would call himself: by his search_path if
 * the name is not qualified, with his EXECUTE privilege, and carried out with
 * his rights (or its owner's, where it is SECURITY DEFINER).  The name is data
 * and never becomes SQL.
 *
 * While it runs, the claim that it runs for is known to idem_current().  That
 * is a stack in this file, popped on every way out, which grants nothing: what
 * counts is in the log.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "checkpoint.h"
#include "compat.h"
#include "handler.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "result.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(idem_current);

/* Claim of the innermost handler that runs. */
static RunningClaim *running = NULL;

/*
 * HandlerRunning - the claim whose handler runs; NULL outside of any.
 */
const RunningClaim *
HandlerRunning(void)
{
	return running;
}

/* An error that says what a handler has to look like. */
static void
refuse_handler(const char *name, int code, const char *why)
{
	ereport(ERROR,
			(errcode(code),
			 errmsg("function \"%s\" cannot be a handler", name),
			 errdetail("%s", why),
			 errhint("A handler is a function that takes jsonb and returns jsonb.")));
}

static void
check_form(Form_pg_proc form, const char *name)
{
	if (form->prokind != PROKIND_FUNCTION)
		refuse_handler(name, ERRCODE_WRONG_OBJECT_TYPE,
					   _("It is not an ordinary function."));
	if (form->proretset)
		refuse_handler(name, ERRCODE_WRONG_OBJECT_TYPE,
					   _("It returns a set."));
	if (form->pronargs != 1 || form->proargtypes.values[0] != JSONBOID ||
		form->prorettype != JSONBOID)
		refuse_handler(name, ERRCODE_INVALID_FUNCTION_DEFINITION,
					   _("Its arguments or its result are of other types."));
}

static void
check_handler(Oid function, const char *name)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	AclResult	aclresult;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	check_form((Form_pg_proc) GETSTRUCT(tuple), name);
	ReleaseSysCache(tuple);

	aclresult = compat_function_aclcheck(function, GetUserId());
	if (aclresult != ACLCHECK_OK)
		aclcheck_error(aclresult, OBJECT_FUNCTION, name);
	InvokeFunctionExecuteHook(function);
}

/*
 * HandlerRaiseMissing - the error for a name that means no function (jsonb).
 */
void
HandlerRaiseMissing(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_FUNCTION),
			 errmsg("handler \"%s\" does not exist", name),
			 errhint("A handler is a function that takes jsonb and returns jsonb; qualify its name where its schema is not in the search_path.")));
}

/* Does a name go on with types of arguments?  Quoted parts do not count. */
static bool
has_signature(const char *name)
{
	bool		quoted = false;

	for (; *name != '\0'; name++)
	{
		if (*name == '"')
			quoted = !quoted;
		else if (*name == '(' && !quoted)
			return true;
	}
	return false;
}

/* The function with a signature, InvalidOid where there is none. */
static Oid
find_by_signature(const char *signature)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		function;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = CStringGetTextDatum(signature);
	fcinfo->args[0].isnull = false;
	function = to_regprocedure(fcinfo);
	return fcinfo->isnull ? InvalidOid : DatumGetObjectId(function);
}

/*
 * HandlerFind - the function that a name means, given as f, s.f or s.f(jsonb);
 * InvalidOid where there is none and missing_ok.  An error where it cannot be a
 * handler, or where the current user may not execute it.
 */
Oid
HandlerFind(const char *name, bool missing_ok)
{
	Oid			argtypes[1] = {JSONBOID};
	Oid			function;

	if (has_signature(name))
		function = find_by_signature(name);
	else
		function = LookupFuncName(compat_parse_qualified_name(name), 1,
								  argtypes, true);
	if (OidIsValid(function))
		check_handler(function, name);
	else if (!missing_ok)
		HandlerRaiseMissing(name);
	return function;
}

/*
 * Appends a name, quoted where it has to be.  Whether a name is a keyword does
 * not matter here, and must not: keywords come with new versions of the
 * server, and quote_all_identifiers with a session.
 */
static void
append_name(StringInfo buf, const char *name)
{
	size_t		length = strlen(name);

	if (length > 0 && !isdigit((unsigned char) name[0]) &&
		strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == length)
	{
		appendStringInfoString(buf, name);
		return;
	}
	appendStringInfoChar(buf, '"');
	for (; *name != '\0'; name++)
	{
		if (*name == '"')
			appendStringInfoChar(buf, '"');
		appendStringInfoChar(buf, *name);
	}
	appendStringInfoChar(buf, '"');
}

/*
 * HandlerQualifiedName - schema and name of a function: means the same, and is
 * the same, in every session.
 */
char *
HandlerQualifiedName(Oid function)
{
	StringInfoData buf;

	initStringInfo(&buf);
	append_name(&buf, get_namespace_name(get_func_namespace(function)));
	appendStringInfoChar(&buf, '.');
	append_name(&buf, get_func_name(function));
	return buf.data;
}

static NullableDatum
invoke(FmgrInfo *flinfo, NullableDatum argument)
{
	LOCAL_FCINFO(fcinfo, 1);
	NullableDatum result;

	if (argument.isnull && flinfo->fn_strict)
	{
		result.value = (Datum) 0;
		result.isnull = true;
		return result;
	}
	InitFunctionCallInfoData(*fcinfo, flinfo, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0] = argument;
	result.value = FunctionCallInvoke(fcinfo);
	result.isnull = fcinfo->isnull;
	return result;
}

/*
 * HandlerCall - calls a handler for a claim; the result is in the current
 * memory context.
 *
 * A new snapshot shows it everything up to now, the claim included.  Without
 * it, functions that are not VOLATILE would see the database as it was before
 * the call waited.
 */
NullableDatum
HandlerCall(Oid function, NullableDatum argument, RunningClaim *claim)
{
	FmgrInfo	flinfo;
	NullableDatum result;

	fmgr_info(function, &flinfo);
	claim->outer = running;
	running = claim;
	PG_TRY();
	{
		CommandCounterIncrement();
		PushActiveSnapshot(GetTransactionSnapshot());
		result = invoke(&flinfo, argument);
		PopActiveSnapshot();
	}
	PG_FINALLY();
	{
		running = claim->outer;
	}
	PG_END_TRY();
	return result;
}

typedef enum CurrentColumn
{
	CURRENT_SCOPE,
	CURRENT_REQUEST_ID,
	CURRENT_TOKEN,
	CURRENT_ATTEMPT,
	CURRENT_CHECKPOINTS,
	CURRENT_NCOLS
} CurrentColumn;

static const ResultColumn current_columns[CURRENT_NCOLS] = {
	[CURRENT_SCOPE] = {"scope", TEXTOID},
	[CURRENT_REQUEST_ID] = {"request_id", TEXTOID},
	[CURRENT_TOKEN] = {"token", INT8OID},
	[CURRENT_ATTEMPT] = {"attempt", INT4OID},
	[CURRENT_CHECKPOINTS] = {"checkpoints", JSONBOID},
};

static ResultType current_result = {current_columns, CURRENT_NCOLS, NULL};

/*
 * idem_current() - the claim whose handler or step runs; no row outside
 */
Datum
idem_current(PG_FUNCTION_ARGS)
{
	Datum		values[CURRENT_NCOLS];
	bool		nulls[CURRENT_NCOLS] = {false};

	if (ResultIsDone(fcinfo) || running == NULL)
		return ResultEnd(fcinfo);

	values[CURRENT_SCOPE] = PointerGetDatum(running->key.scope);
	values[CURRENT_REQUEST_ID] = PointerGetDatum(running->key.request_id);
	values[CURRENT_TOKEN] = Int64GetDatum(running->token);
	values[CURRENT_ATTEMPT] = Int32GetDatum(running->attempt);

	/*
	 * The handler may have added some, so their number at its start is no
	 * help.
	 */
	values[CURRENT_CHECKPOINTS] = CheckpointObject(&running->key,
												   running->life, 1);
	return ResultRow(fcinfo, &current_result, values, nulls);
}
