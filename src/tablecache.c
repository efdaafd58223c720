/*-------------------------------------------------------------------------
 *
 * tablecache.c
 *	  What a backend knows of the user's tables, forgotten on relcache
 *	  messages.
 *
 * States of an entry: not there; stale; valid.  An entry is made stale by any
 * message about its table, and becomes valid only once it is filled, and only
 * if no message came in while it was: what an error leaves half filled is
 * stale.  Memory below an entry is its owner's to free, when he finds it stale:
 * a callback must not fail.
 *
 * Entries are removed by TableCacheSweep only, when their table is gone: who has
 * it open holds a pointer that stays good.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "invalidation.h"
#include "tablecache.h"
#include "utils/syscache.h"

static void
forget(Datum arg, Oid relid)
{
	TableCache *cache = (TableCache *) DatumGetPointer(arg);
	HASH_SEQ_STATUS scan;
	TableEntry *entry;

	cache->messages++;
	if (OidIsValid(relid))
	{
		entry = hash_search(cache->entries, &relid, HASH_FIND, NULL);
		if (entry != NULL)
			entry->valid = false;
		return;
	}
	hash_seq_init(&scan, cache->entries);
	while ((entry = hash_seq_search(&scan)) != NULL)
		entry->valid = false;
}

/*
 * TableCacheIsThere - was the cache created?
 */
bool
TableCacheIsThere(const TableCache *cache)
{
	return cache->entries != NULL;
}

/*
 * TableCacheCreate - creates the cache and has it told of changes, for as long
 * as the backend lives.
 */
void
TableCacheCreate(TableCache *cache)
{
	HASHCTL		ctl = {0};

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = cache->entry_size;
	cache->entries = hash_create(cache->name, 64, &ctl,
								 HASH_ELEM | HASH_BLOBS);
	InvalidationRegister(forget, PointerGetDatum(cache));
}

/*
 * TableCacheFind - the entry of a table; where found is false its own part is
 * not initialized, and where it is not valid it has to be filled.
 */
TableEntry *
TableCacheFind(TableCache *cache, Oid relid, bool *found)
{
	TableEntry *entry = hash_search(cache->entries, &relid, HASH_ENTER, found);

	if (!*found)
		entry->valid = false;
	return entry;
}

/*
 * TableCacheSweep - removes what is known of tables that are gone; release gives back the memory below an entry.
 */
void
TableCacheSweep(TableCache *cache, void (*release) (TableEntry *entry))
{
	HASH_SEQ_STATUS scan;
	TableEntry *entry;

	hash_seq_init(&scan, cache->entries);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (entry->valid ||
			SearchSysCacheExists1(RELOID, ObjectIdGetDatum(entry->relid)))
			continue;
		release(entry);
		(void) hash_search(cache->entries, &entry->relid, HASH_REMOVE, NULL);
	}
}

/*
 * TableCacheForgetAll - makes all entries stale, for changes of what is no
 * table.
 */
void
TableCacheForgetAll(TableCache *cache)
{
	forget(PointerGetDatum(cache), InvalidOid);
}

/*
 * TableCacheSetValid - the entry is filled, by what was known when the cache
 * had received so many messages.
 */
void
TableCacheSetValid(const TableCache *cache, TableEntry *entry,
				   uint64 messages_before)
{
	entry->valid = cache->messages == messages_before;
}
