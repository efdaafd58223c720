/*-------------------------------------------------------------------------
 *
 * policy.c
 *	  Defining the policies of scopes: idem_configure and idem_unconfigure.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/htup_details.h"
#include "access/xlog.h"
#include "catalog.h"
#include "definition.h"
#include "due.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "request.h"
#include "scope.h"
#include "tuple.h"
#include "utils/builtins.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(idem_configure);
PG_FUNCTION_INFO_V1(idem_unconfigure);

/* Arguments of idem_configure stand in the order of the table's first columns. */

static void
check_on_lease_expiry(FunctionCallInfo fcinfo)
{
	char	   *value;

	if (PG_ARGISNULL(SCOPE_ON_LEASE_EXPIRY))
		return;
	value = text_to_cstring(PG_GETARG_TEXT_PP(SCOPE_ON_LEASE_EXPIRY));
	if (strcmp(value, "retry") != 0 && strcmp(value, "manual") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized value for on_lease_expiry: \"%s\"",
						value),
				 errhint("Use \"retry\" or \"manual\".")));
}

static void
check_max_attempts(FunctionCallInfo fcinfo)
{
	if (!PG_ARGISNULL(SCOPE_MAX_ATTEMPTS) &&
		PG_GETARG_INT32(SCOPE_MAX_ATTEMPTS) < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_attempts must be at least 1"),
				 errhint("Unlimited is the default; remove the definition with idem_unconfigure() to return to it.")));
}

static void
check_arguments(FunctionCallInfo fcinfo)
{
	(void) RequestPositiveInterval(fcinfo, SCOPE_TTL, "ttl");
	(void) RequestPositiveInterval(fcinfo, SCOPE_LEASE, "lease");
	(void) RequestWaitInterval(fcinfo, SCOPE_WAIT);
	(void) RequestPositiveInterval(fcinfo, SCOPE_BACKOFF_BASE, "backoff_base");
	(void) RequestPositiveInterval(fcinfo, SCOPE_BACKOFF_CAP, "backoff_cap");
	check_on_lease_expiry(fcinfo);
	check_max_attempts(fcinfo);
}

/* Makes a role the owner; an error where there is none. */
static void
fill_owner(Oid role, Datum *values, bool *nulls)
{
	values[SCOPE_OWNER_NAME] = CStringGetTextDatum(GetUserNameFromId(role,
																	 false));
	values[SCOPE_OWNER_ROLE] = ObjectIdGetDatum(role);
	values[SCOPE_OWNER_SYSTEM] = Int64GetDatum((int64) GetSystemIdentifier());
	nulls[SCOPE_OWNER_NAME] = false;
	nulls[SCOPE_OWNER_ROLE] = false;
	nulls[SCOPE_OWNER_SYSTEM] = false;
}

/*
 * The definition to be: what is there, with the given arguments in place.
 */
static void
fill_definition(FunctionCallInfo fcinfo, Relation rel, HeapTuple old,
				Datum *values, bool *nulls)
{
	memset(nulls, true, SCOPE_NATTS * sizeof(bool));
	if (old != NULL)
		TupleRead(rel, old, SCOPE_NATTS, values, nulls);

	for (int i = 0; i < SCOPE_OWNER_NAME; i++)
	{
		if (PG_ARGISNULL(i))
			continue;
		values[i] = PG_GETARG_DATUM(i);
		nulls[i] = false;
	}
	if (!PG_ARGISNULL(SCOPE_OWNER_NAME))
		fill_owner(PG_GETARG_OID(SCOPE_OWNER_NAME), values, nulls);
}

/*
 * Is the definition already what it is to be?  Looks without a lock that would
 * stop others, or be stopped by one who waits for an open claim.
 */
static bool
changes_nothing(FunctionCallInfo fcinfo, const text *scope)
{
	Relation	rel = table_open(CatalogTable(IDEM_TABLE_SCOPE), AccessShareLock);
	HeapTuple	old = DefinitionFind(rel, PointerGetDatum(scope));
	Datum		values[SCOPE_NATTS];
	bool		nulls[SCOPE_NATTS];
	bool		same;

	fill_definition(fcinfo, rel, old, values, nulls);
	same = DefinitionIsSame(rel, old, SCOPE_NATTS, values, nulls);
	table_close(rel, AccessShareLock);
	return same;
}

/*
 * idem_configure(scope text, ttl interval, lease interval, wait interval,
 *				  on_lease_expiry text, max_attempts int,
 *				  backoff_base interval, backoff_cap interval,
 *				  store_request boolean, history boolean, owner regrole)
 */
Datum
idem_configure(PG_FUNCTION_ARGS)
{
	text	   *scope = RequestCheckScope(PG_ARGISNULL(SCOPE_SCOPE) ? NULL :
										  PG_GETARG_TEXT_PP(SCOPE_SCOPE));
	Datum		values[SCOPE_NATTS];
	bool		nulls[SCOPE_NATTS];
	HeapTuple	old;
	Relation	rel;

	check_arguments(fcinfo);
	(void) ScopeEnterToLook(scope);
	if (changes_nothing(fcinfo, scope))
		PG_RETURN_VOID();
	rel = DefinitionOpen(CatalogTable(IDEM_TABLE_SCOPE));
	(void) ScopeEnterToLook(scope);
	old = DefinitionFind(rel, PointerGetDatum(scope));
	fill_definition(fcinfo, rel, old, values, nulls);
	if (DefinitionWrite(rel, old, SCOPE_NATTS, values, nulls))
		DueBringForward(scope);
	DefinitionClose(rel);
	PG_RETURN_VOID();
}

/*
 * idem_unconfigure(scope text) returns boolean
 */
Datum
idem_unconfigure(PG_FUNCTION_ARGS)
{
	text	   *scope = RequestCheckScope(PG_ARGISNULL(0) ? NULL :
										  PG_GETARG_TEXT_PP(0));
	HeapTuple	old;
	Relation	rel;

	rel = DefinitionOpen(CatalogTable(IDEM_TABLE_SCOPE));
	(void) ScopeEnterToLook(scope);
	old = DefinitionFind(rel, PointerGetDatum(scope));
	if (old != NULL)
	{
		DefinitionDelete(rel, old);
		DueBringForward(scope);
	}
	DefinitionClose(rel);
	PG_RETURN_BOOL(old != NULL);
}
