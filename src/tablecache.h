/*-------------------------------------------------------------------------
 *
 * tablecache.h
 *	  What a backend knows of the user's tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_TABLECACHE_H
#define IDEM_TABLECACHE_H

#include "utils/hsearch.h"

/* What every entry begins with; the rest is the owner's. */
typedef struct TableEntry
{
	Oid			relid;
	bool		valid;			/* set by TableCacheSetValid alone */
} TableEntry;

/* A cache: static, with name and entry_size given, the rest zero. */
typedef struct TableCache
{
	const char *name;
	Size		entry_size;
	HTAB	   *entries;
	uint64		messages;		/* received so far that could make one stale */
} TableCache;

extern bool TableCacheIsThere(const TableCache *cache);
extern void TableCacheCreate(TableCache *cache);
extern TableEntry *TableCacheFind(TableCache *cache, Oid relid, bool *found);
extern void TableCacheSweep(TableCache *cache,
							void (*release) (TableEntry *entry));
extern void TableCacheForgetAll(TableCache *cache);
extern void TableCacheSetValid(const TableCache *cache, TableEntry *entry,
							   uint64 messages_before);

#endif							/* IDEM_TABLECACHE_H */
