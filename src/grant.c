/*-------------------------------------------------------------------------
 *
 * grant.c
 *	  Giving roles what they need of the extension: idem_grant, idem_revoke.
 *
 * The lists below are the only place that says which function is for whom.
 * The SQL functions are SECURITY DEFINER with a pinned search_path, so that
 * everything is granted by the owner and can be taken back by anyone who may
 * call them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(idem_secure);
PG_FUNCTION_INFO_V1(idem_grant);
PG_FUNCTION_INFO_V1(idem_revoke);

/* What applications call, and what their views need to be read. */
static const char *const application_functions[] = {
	"idem_claim", "idem_finish", "idem_fail", "idem_release", "idem_extend",
	"idem_lookup", "idem_run", "idem_current", "idem_claim_many",
	"idem_finish_many", "idem_fail_many", "idem_extend_many", "idem_once",
	"idem_once_many", "idem_once_undo", "idem_checkpoint", "idem_checkpoints",
	"idem_batch", "idem_call", "idem_call_finish", "idem_machine_diagram",
	"idem_transition", "idem_update", "idem_insert", "idem_upsert",
	"idem_clock", "idem_scope_is_open", "idem_review_kind",
	"idem_stat_counters", "idem_in_flight_claims", NULL
};

static const char *const application_views[] = {
	"idem_stat", "idem_in_flight", "idem_review", NULL
};

/* What defines, decides or lists. */
static const char *const administrator_functions[] = {
	"idem_configure", "idem_unconfigure", "idem_provider", "idem_machine",
	"idem_guard_state", "idem_guard_version", "idem_unguard", "idem_purge",
	"idem_purge_all", "idem_resolve", "idem_grant", "idem_revoke",
	"idem_stat_reset", NULL
};

static const char *const administrator_views[] = {
	"idem_log", "idem_history", "idem_purge_lag", NULL
};

static void
execute(const char *command)
{
	if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "unexpected result of a utility command");
}

/* "GRANT x TO role" or "REVOKE x FROM role". */
static void
change_privilege(bool grant, const char *what, const char *role)
{
	char	   *command;

	command = psprintf("%s %s %s %s", grant ? "GRANT" : "REVOKE", what,
					   grant ? "TO" : "FROM", quote_identifier(role));
	execute(command);
	pfree(command);
}

/* Signatures of the extension's functions of that name, to be quoted no more. */
static void
change_function(bool grant, const char *name, const char *role)
{
	Oid			types[2] = {OIDOID, NAMEOID};
	Datum		args[2] = {ObjectIdGetDatum(CatalogSchema()),
	DirectFunctionCall1(namein, CStringGetDatum(name))};
	SPITupleTable *found;
	uint64		nfound;

	if (SPI_execute_with_args("SELECT pg_catalog.format('%I.%I(%s)', n.nspname, p.proname,"
							  " pg_catalog.pg_get_function_identity_arguments(p.oid))"
							  " FROM pg_catalog.pg_proc p"
							  " JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace"
							  " JOIN pg_catalog.pg_depend d ON d.objid OPERATOR(pg_catalog.=) p.oid"
							  " AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass"
							  " AND d.deptype OPERATOR(pg_catalog.=) 'e'"
							  " AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass"
							  " JOIN pg_catalog.pg_extension e ON e.oid OPERATOR(pg_catalog.=) d.refobjid"
							  " AND e.extname OPERATOR(pg_catalog.=) 'idempotency'"
							  " WHERE p.pronamespace OPERATOR(pg_catalog.=) $1"
							  " AND p.proname OPERATOR(pg_catalog.=) $2",
							  2, types, args, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not look up functions");
	found = SPI_tuptable;
	nfound = SPI_processed;
	for (uint64 i = 0; i < nfound; i++)
	{
		char	   *signature = SPI_getvalue(found->vals[i], found->tupdesc, 1);

		change_privilege(grant, psprintf("EXECUTE ON ROUTINE %s", signature),
						 role);
	}
	SPI_freetuptable(found);
}

static void
change_functions(bool grant, const char *const *names, const char *role)
{
	for (; *names != NULL; names++)
		change_function(grant, *names, role);
}

static void
change_views(bool grant, const char *const *names, const char *role)
{
	char	   *schema = get_namespace_name(CatalogSchema());

	for (; *names != NULL; names++)
	{
		if (OidIsValid(get_relname_relid(*names, CatalogSchema())))
			change_privilege(grant,
							 psprintf("SELECT ON %s",
									  quote_qualified_identifier(schema, *names)),
							 role);
	}
}

/*
 * What others than the owner may do with objects of the extension by default
 * privileges of the database: one REVOKE for each.  Functions that were never
 * revoked from PUBLIC are meant for it.
 */
static const char *const default_privileges_query =
"SELECT pg_catalog.format('%s %s FROM %s', k.revoke, k.object,"
"   CASE WHEN a.grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC'"
"        ELSE a.grantee::pg_catalog.regrole::pg_catalog.text END)"
" FROM pg_catalog.pg_depend d"
" JOIN pg_catalog.pg_extension e ON e.oid OPERATOR(pg_catalog.=) d.refobjid"
"  AND e.extname OPERATOR(pg_catalog.=) 'idempotency'"
" CROSS JOIN LATERAL ("
"  SELECT 'REVOKE ALL ON TABLE' AS revoke, c.relacl AS acl, c.relowner AS owner,"
"         c.oid::pg_catalog.regclass::pg_catalog.text AS object, true AS from_public"
"    FROM pg_catalog.pg_class c"
"   WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass"
"     AND c.oid OPERATOR(pg_catalog.=) d.objid"
"     AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,v}'::\"char\"[])"
"  UNION ALL"
"  SELECT 'REVOKE ALL ON ROUTINE', p.proacl, p.proowner,"
"         p.oid::pg_catalog.regprocedure::pg_catalog.text, false"
"    FROM pg_catalog.pg_proc p"
"   WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass"
"     AND p.oid OPERATOR(pg_catalog.=) d.objid) k"
" CROSS JOIN LATERAL pg_catalog.aclexplode(k.acl) a"
" WHERE d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass"
"   AND d.deptype OPERATOR(pg_catalog.=) 'e'"
"   AND a.grantee OPERATOR(pg_catalog.<>) k.owner"
"   AND (k.from_public OR a.grantee OPERATOR(pg_catalog.<>) 0)";

/*
 * idem_secure() returns void - takes back what default privileges gave away
 * while the extension was being created or updated; the last step of every
 * script, which declares it for just that.
 */
Datum
idem_secure(PG_FUNCTION_ARGS)
{
	SPITupleTable *found;
	uint64		nfound;

	SPI_connect();
	if (SPI_execute(default_privileges_query, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not look up privileges");
	found = SPI_tuptable;
	nfound = SPI_processed;
	for (uint64 i = 0; i < nfound; i++)
		execute(SPI_getvalue(found->vals[i], found->tupdesc, 1));
	SPI_finish();
	PG_RETURN_VOID();
}

/* Without the right to look into the schema the rest would be of no use. */
static void
grant_schema(Oid role_id, const char *role)
{
	char	   *schema = get_namespace_name(CatalogSchema());
	Datum		has_usage;

	has_usage = DirectFunctionCall3(has_schema_privilege_id_id,
									ObjectIdGetDatum(role_id),
									ObjectIdGetDatum(CatalogSchema()),
									CStringGetTextDatum("USAGE"));
	if (!DatumGetBool(has_usage))
		change_privilege(true, psprintf("USAGE ON SCHEMA %s",
										quote_identifier(schema)), role);
}

static Oid
role_argument(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("role must not be null")));
	return PG_GETARG_OID(0);
}

/*
 * One at a time: the server lets the second of two that change the privileges
 * of an object fail.
 */
static void
lock_privileges(void)
{
	LockDatabaseObject(ExtensionRelationId,
					   get_extension_oid("idempotency", false), 0,
					   ShareUpdateExclusiveLock);
}

/*
 * idem_grant(role regrole, administer boolean) returns void
 */
Datum
idem_grant(PG_FUNCTION_ARGS)
{
	Oid			role_id = role_argument(fcinfo);
	char	   *role = GetUserNameFromId(role_id, false);

	lock_privileges();
	SPI_connect();
	grant_schema(role_id, role);
	change_functions(true, application_functions, role);
	change_views(true, application_views, role);
	if (!PG_ARGISNULL(1) && PG_GETARG_BOOL(1))
	{
		change_functions(true, administrator_functions, role);
		change_views(true, administrator_views, role);
	}
	SPI_finish();
	PG_RETURN_VOID();
}

/*
 * idem_revoke(role regrole) returns void
 *
 * USAGE of the schema is left: the role may need it for something else.
 */
Datum
idem_revoke(PG_FUNCTION_ARGS)
{
	Oid			role_id = role_argument(fcinfo);
	char	   *role = GetUserNameFromId(role_id, false);

	/* What the owner may do was not granted to him. */
	if (role_id == CatalogOwner())
		PG_RETURN_VOID();
	lock_privileges();
	SPI_connect();
	change_functions(false, application_functions, role);
	change_views(false, application_views, role);
	change_functions(false, administrator_functions, role);
	change_views(false, administrator_views, role);
	SPI_finish();
	PG_RETURN_VOID();
}
