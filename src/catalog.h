/*-------------------------------------------------------------------------
 *
 * catalog.h
 *	  Where the extension's own tables are.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_CATALOG_H
#define IDEM_CATALOG_H

#include "utils/relcache.h"
#include "utils/snapshot.h"

/* The extension's tables; the names are in catalog.c, in the same order. */
typedef enum IdemTable
{
	IDEM_TABLE_LOG,
	IDEM_TABLE_SCOPE,
	IDEM_TABLE_INBOX,
	IDEM_TABLE_CHECKPOINT,
	IDEM_TABLE_PROVIDER,
	IDEM_TABLE_CALL,
	IDEM_TABLE_HISTORY,
	IDEM_TABLE_MACHINE,
	IDEM_TABLE_MACHINE_HISTORY,
	IDEM_TABLE_COUNT
} IdemTable;

extern Oid	CatalogSchema(void);
extern Oid	CatalogTable(IdemTable table);
extern Oid	CatalogTableIfExists(IdemTable table);
extern Oid	CatalogPrimaryKey(Relation rel);
extern Oid	CatalogIndex(const char *name);
extern Oid	CatalogOwner(void);
extern Snapshot CatalogFreshSnapshot(Relation rel);
extern void CatalogCheckColumns(Relation rel, int natts);

#endif							/* IDEM_CATALOG_H */
