/*-------------------------------------------------------------------------
 *
 * provider.c
 *	  Defining the providers of external calls: idem_provider.
 *
 * A definition says what may be done when the answer to a call got lost.  It
 * is read afresh for each decision, so a change is in force at once, also for
 * calls that were sent before it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog.h"
#include "clock.h"
#include "definition.h"
#include "provider.h"
#include "request.h"
#include "tuple.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_provider);

/* Columns of idempotency_provider, in the table's order. */
typedef enum ProviderColumn
{
	PROVIDER_PROVIDER,
	PROVIDER_ACCEPTS_KEY,
	PROVIDER_CAN_INQUIRE,
	PROVIDER_TIMEOUT,
	PROVIDER_NATTS
} ProviderColumn;

/*
 * ProviderNameFromArg - the checked name of a provider from an argument.
 */
text *
ProviderNameFromArg(FunctionCallInfo fcinfo, int arg)
{
	text	   *name;

	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("name of a provider must not be null")));
	name = PG_GETARG_TEXT_PP(arg);
	if (VARSIZE_ANY_EXHDR(name) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("name of a provider must not be empty")));
	return RequestCheckName(name, "name of a provider");
}

/*
 * ProviderRead - the definition of a provider as it is now; an error (42704)
 * where there is none.
 */
Provider
ProviderRead(text *name)
{
	Provider	provider = {0};
	Relation	rel = table_open(CatalogTable(IDEM_TABLE_PROVIDER),
								 AccessShareLock);
	HeapTuple	tuple = DefinitionFind(rel, PointerGetDatum(name));
	Datum		values[PROVIDER_NATTS];
	bool		nulls[PROVIDER_NATTS];

	if (tuple == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("provider \"%s\" is not defined",
						text_to_cstring(name)),
				 errhint("Define it with idem_provider().")));
	TupleRead(rel, tuple, PROVIDER_NATTS, values, nulls);
	provider.accepts_key = DatumGetBool(values[PROVIDER_ACCEPTS_KEY]);
	provider.can_inquire = DatumGetBool(values[PROVIDER_CAN_INQUIRE]);
	if (!nulls[PROVIDER_TIMEOUT])
		provider.timeout = *DatumGetIntervalP(values[PROVIDER_TIMEOUT]);
	table_close(rel, AccessShareLock);
	return provider;
}

static void
check_arguments(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(PROVIDER_ACCEPTS_KEY) ||
		PG_ARGISNULL(PROVIDER_CAN_INQUIRE))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("accepts_key and can_inquire must not be null"),
				 errhint("Say false where you do not know.")));
	if (!PG_ARGISNULL(PROVIDER_TIMEOUT) &&
		ClockIntervalIsNegative(PG_GETARG_INTERVAL_P(PROVIDER_TIMEOUT)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("timeout must not be negative"),
				 errhint("It is how long a call that was sent may still take effect.")));
}

/*
 * idem_provider(name text, accepts_key boolean, can_inquire boolean,
 *				 timeout interval) returns void
 */
Datum
idem_provider(PG_FUNCTION_ARGS)
{
	text	   *name = ProviderNameFromArg(fcinfo, PROVIDER_PROVIDER);
	Datum		values[PROVIDER_NATTS];
	bool		nulls[PROVIDER_NATTS];
	Relation	rel;

	check_arguments(fcinfo);
	for (int i = 0; i < PROVIDER_NATTS; i++)
	{
		values[i] = PG_GETARG_DATUM(i);
		nulls[i] = PG_ARGISNULL(i);
	}
	if (DefinitionIsThere(CatalogTable(IDEM_TABLE_PROVIDER), PROVIDER_NATTS,
						  values, nulls))
		PG_RETURN_VOID();
	rel = DefinitionOpen(CatalogTable(IDEM_TABLE_PROVIDER));
	(void) DefinitionWrite(rel, DefinitionFind(rel, PointerGetDatum(name)),
						   PROVIDER_NATTS, values, nulls);
	DefinitionClose(rel);
	PG_RETURN_VOID();
}
