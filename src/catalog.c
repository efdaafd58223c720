/*-------------------------------------------------------------------------
 *
 * catalog.c
 *	  Where the extension's own tables are.
 *
 * The tables are found by way of pg_extension, never by search_path, so a
 * table of the same name elsewhere changes nothing.  What was found is kept
 * for the backend and forgotten on any relcache message about one of the
 * tables (dropping the extension, or rolling back its creation, sends them).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog.h"
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "compat.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

static const char *const table_names[IDEM_TABLE_COUNT] = {
	[IDEM_TABLE_LOG] = "transaction_log",
	[IDEM_TABLE_SCOPE] = "idempotency_scope",
	[IDEM_TABLE_INBOX] = "idempotency_inbox",
	[IDEM_TABLE_CHECKPOINT] = "idempotency_checkpoint",
	[IDEM_TABLE_PROVIDER] = "idempotency_provider",
	[IDEM_TABLE_CALL] = "idempotency_call",
	[IDEM_TABLE_HISTORY] = "idempotency_history",
	[IDEM_TABLE_MACHINE] = "idempotency_machine",
	[IDEM_TABLE_MACHINE_HISTORY] = "idempotency_machine_history",
};

/* Found tables; valid only as a whole, so an error half way leaves nothing. */
static struct
{
	bool		valid;
	Oid			schema;
	Oid			owner;
	Oid			table[IDEM_TABLE_COUNT];
}			cache;

static bool callback_registered = false;

static void
forget_tables(Datum arg, Oid relid)
{
	if (relid == InvalidOid)
		cache.valid = false;
	for (int i = 0; i < IDEM_TABLE_COUNT; i++)
	{
		if (cache.table[i] == relid)
			cache.valid = false;
	}
}

/* Reads schema and owner of the extension; false where it is not installed. */
static bool
read_extension(Oid *schema, Oid *owner)
{
	Relation	rel;
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	bool		found = false;

	rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber,
				F_NAMEEQ, CStringGetDatum("idempotency"));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_extension form = (Form_pg_extension) GETSTRUCT(tuple);

		*schema = form->extnamespace;
		*owner = form->extowner;
		found = true;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/* Fills the cache; false where the extension is not installed. */
static bool
find_tables(void)
{
	Oid			schema;
	Oid			owner;

	if (likely(cache.valid))
		return true;
	if (!callback_registered)
	{
		CacheRegisterRelcacheCallback(forget_tables, (Datum) 0);
		callback_registered = true;
	}
	if (!read_extension(&schema, &owner))
		return false;

	cache.schema = schema;
	cache.owner = owner;
	for (int i = 0; i < IDEM_TABLE_COUNT; i++)
		cache.table[i] = get_relname_relid(table_names[i], schema);
	cache.valid = OidIsValid(cache.table[IDEM_TABLE_LOG]);
	return cache.valid;
}

static void
require_tables(void)
{
	if (likely(cache.valid))
		return;
	if (!find_tables())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"idempotency\" is not installed in this database"),
				 errhint("Run CREATE EXTENSION idempotency.")));
}

/*
 * CatalogSchema - schema that the extension is installed in.
 */
Oid
CatalogSchema(void)
{
	require_tables();
	return cache.schema;
}

/*
 * CatalogOwner - role that owns the extension, and so its tables.
 */
Oid
CatalogOwner(void)
{
	require_tables();
	return cache.owner;
}

/*
 * CatalogFreshSnapshot - a snapshot that shows one of these tables as it is
 * now, others' commits included, whatever the transaction's isolation level.
 * It is registered: the caller unregisters it.
 *
 * A catalog snapshot, which is taken anew for each table without a syscache:
 * GetLatestSnapshot() is not allowed while a parallel plan runs, and lookups
 * and views may be part of one.
 */
Snapshot
CatalogFreshSnapshot(Relation rel)
{
	return RegisterSnapshot(GetCatalogSnapshot(RelationGetRelid(rel)));
}

/*
 * CatalogCheckColumns - an error where one of these tables has fewer columns
 * than the caller knows.
 */
void
CatalogCheckColumns(Relation rel, int natts)
{
	if (unlikely(RelationGetNumberOfAttributes(rel) < natts))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"idempotency\" is older than its library"),
				 errhint("Run ALTER EXTENSION idempotency UPDATE.")));
}

/*
 * CatalogTable - one of the extension's tables, which must be there.
 */
Oid
CatalogTable(IdemTable table)
{
	require_tables();
	if (!OidIsValid(cache.table[table]))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s\" of extension \"idempotency\" is missing",
						table_names[table]),
				 errhint("Update the extension with ALTER EXTENSION idempotency UPDATE.")));
	return cache.table[table];
}

/*
 * CatalogTableIfExists - the same, InvalidOid where it is not there.
 */
Oid
CatalogTableIfExists(IdemTable table)
{
	return find_tables() ? cache.table[table] : InvalidOid;
}

/*
 * CatalogIndex - one of the extension's indexes by its name, which REINDEX
 * CONCURRENTLY keeps.
 */
Oid
CatalogIndex(const char *name)
{
	Oid			index = get_relname_relid(name, CatalogSchema());

	if (!OidIsValid(index))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("index \"%s\" of extension \"idempotency\" is missing",
						name),
				 errhint("Recreate the index, or update the extension.")));
	return index;
}

/*
 * CatalogPrimaryKey - index behind the primary key of one of our tables.
 *
 * Asked of the relation on every call, since REINDEX CONCURRENTLY puts
 * another index in its place; the caller holds a lock on the table.
 */
Oid
CatalogPrimaryKey(Relation rel)
{
	Oid			index = compat_primary_key_index(rel);

	if (!OidIsValid(index))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" of extension \"idempotency\" has no primary key",
						RelationGetRelationName(rel)),
				 errhint("Recreate its primary key.")));
	return index;
}
