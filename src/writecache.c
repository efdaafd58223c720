/*-------------------------------------------------------------------------
 *
 * writecache.c
 *	  Plans of conditional writes, kept for the session.
 *
 * A plan is good for one role, one table, one set of columns in the new row
 * and the same array arguments; these together are its key, byte by byte.  It
 * depends on the role, since it names only columns that the role may read and
 * since the server expands row security into it.
 *
 * A plan is forgotten when the table's definition, privileges, policies,
 * triggers or indexes change (relcache messages), and all of them when
 * something changes that rights or names hang on: roles and memberships,
 * names of schemas, operators and collations, the types that a key is cast
 * to.  Below this the server's own plan cache takes care of everything that
 * only makes a replan necessary.
 *
 * States of a slot: empty; kept; doomed (to be freed, no lookup finds it).  A
 * plan in use is doomed at once and freed by its last user.  A plan enters
 * its slot only when it is complete, and only if no message came in while it
 * was built; else it serves that one call.  The number of slots bounds the
 * memory: the plan that was not used for the longest time makes room.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "invalidation.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "writecache.h"

#define WRITE_CACHE_SLOTS 64

/* A plan with what the cache knows of it; the plan comes first. */
typedef struct WriteCacheEntry
{
	WritePlan	plan;
	Oid			relid;
	uint32		hash;
	StringInfoData key;
	int			ntypes;
	uint32		type_hashes[INDEX_MAX_KEYS];	/* as syscache messages name
												 * them */
	uint64		last_used;
	int			users;
	bool		doomed;
} WriteCacheEntry;

static WriteCacheEntry *slots[WRITE_CACHE_SLOTS];
static uint64 clock_of_use = 0;
static uint64 messages = 0;		/* received so far that could doom a plan */
static bool callbacks_registered = false;

/* ---- forgetting ---- */

/* Memory is freed at the next lookup: a callback must not fail. */
static void
doom_by_relation(Datum arg, Oid relid)
{
	messages++;
	for (int i = 0; i < WRITE_CACHE_SLOTS; i++)
	{
		if (slots[i] != NULL && (relid == InvalidOid || slots[i]->relid == relid))
			slots[i]->doomed = true;
	}
}

static void
doom_all(Datum arg, int cache_id, uint32 hash)
{
	doom_by_relation((Datum) 0, InvalidOid);
}

static void
doom_by_type(Datum arg, int cache_id, uint32 hash)
{
	messages++;
	for (int i = 0; i < WRITE_CACHE_SLOTS; i++)
	{
		for (int j = 0; slots[i] != NULL && j < slots[i]->ntypes; j++)
		{
			if (hash == 0 || slots[i]->type_hashes[j] == hash)
				slots[i]->doomed = true;
		}
	}
}

static void
register_callbacks(void)
{
	if (callbacks_registered)
		return;
	InvalidationRegister(doom_by_relation, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, doom_all, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, doom_all, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, doom_all, (Datum) 0);
	CacheRegisterSyscacheCallback(OPEROID, doom_all, (Datum) 0);
	CacheRegisterSyscacheCallback(COLLOID, doom_all, (Datum) 0);
	CacheRegisterSyscacheCallback(TYPEOID, doom_by_type, (Datum) 0);
	callbacks_registered = true;
}

static void
free_doomed(void)
{
	for (int i = 0; i < WRITE_CACHE_SLOTS; i++)
	{
		WriteCacheEntry *entry = slots[i];

		if (entry == NULL || !entry->doomed || entry->users > 0)
			continue;
		slots[i] = NULL;
		WritePlanFree(&entry->plan);
	}
}

/* ---- keys ---- */

static void
append_array(StringInfo key, ArrayType *array)
{
	if (array == NULL)
		appendStringInfoChar(key, 'n');
	else
	{
		appendStringInfoChar(key, 'a');
		appendBinaryStringInfo(key, (char *) array, VARSIZE(array));
	}
}

/* The key of a request; the names come last, the rest is of known length. */
static void
make_key(StringInfo key, const WriteRequest *request)
{
	Oid			relid = RelationGetRelid(request->rel);
	Oid			role = GetUserId();

	initStringInfo(key);
	appendBinaryStringInfo(key, (char *) &relid, sizeof(relid));
	appendBinaryStringInfo(key, (char *) &role, sizeof(role));
	appendStringInfoChar(key, request->upsert ? 'u' : 'i');
	append_array(key, request->conflict_columns);
	append_array(key, request->update_columns);
	RowJsonAppendNames(key, request->new_row);
}

static WriteCacheEntry *
find_entry(StringInfo key, uint32 hash)
{
	for (int i = 0; i < WRITE_CACHE_SLOTS; i++)
	{
		WriteCacheEntry *entry = slots[i];

		if (entry != NULL && !entry->doomed && entry->hash == hash &&
			entry->key.len == key->len &&
			memcmp(entry->key.data, key->data, key->len) == 0)
			return entry;
	}
	return NULL;
}

/* ---- making ---- */

/* An empty slot, else the one whose unused plan was used last before all. */
static int
free_slot(void)
{
	int			oldest = -1;

	for (int i = 0; i < WRITE_CACHE_SLOTS; i++)
	{
		if (slots[i] == NULL)
			return i;
		if (slots[i]->users == 0 &&
			(oldest < 0 || slots[i]->last_used < slots[oldest]->last_used))
			oldest = i;
	}
	if (oldest >= 0)
	{
		WriteCacheEntry *entry = slots[oldest];

		slots[oldest] = NULL;
		WritePlanFree(&entry->plan);
	}
	return oldest;
}

static WriteCacheEntry *
new_entry(StringInfo key, uint32 hash, const WriteRequest *request)
{
	MemoryContext context = AllocSetContextCreate(CacheMemoryContext,
												  "idempotency conditional write",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	WriteCacheEntry *entry = palloc0(sizeof(WriteCacheEntry));

	entry->plan.context = context;
	entry->relid = RelationGetRelid(request->rel);
	entry->hash = hash;
	initStringInfo(&entry->key);
	appendBinaryStringInfo(&entry->key, key->data, key->len);
	MemoryContextSwitchTo(old);
	return entry;
}

static void
remember_types(WriteCacheEntry *entry)
{
	ConflictTarget *target = &entry->plan.shape.target;

	entry->ntypes = target->ncolumns;
	for (int i = 0; i < target->ncolumns; i++)
	{
		Datum		type = ObjectIdGetDatum(target->types[i]);

		entry->type_hashes[i] = GetSysCacheHashValue1(TYPEOID, type);
	}
}

static WriteCacheEntry *
make_entry(StringInfo key, uint32 hash, const WriteRequest *request)
{
	uint64		messages_before = messages;
	WriteCacheEntry *entry = new_entry(key, hash, request);
	int			slot;

	PG_TRY();
	{
		WritePlanBuild(&entry->plan, request);
		remember_types(entry);
	}
	PG_CATCH();
	{
		WritePlanFree(&entry->plan);
		PG_RE_THROW();
	}
	PG_END_TRY();

	slot = free_slot();
	if (slot >= 0)
		slots[slot] = entry;
	entry->doomed = slot < 0 || messages != messages_before;
	return entry;
}

/*
 * WriteCacheAcquire - the plan for a request of the current user, built where
 * it is not there.
 *
 * Array arguments must be detoasted with a full header.  The plan is good until
 * it is given back with WriteCacheRelease, also on an error.  Errors are those
 * of WritePlanBuild.
 */
WritePlan *
WriteCacheAcquire(const WriteRequest *request)
{
	StringInfoData key;
	uint32		hash;
	WriteCacheEntry *entry;

	register_callbacks();
	free_doomed();
	make_key(&key, request);
	hash = hash_bytes((unsigned char *) key.data, key.len);
	entry = find_entry(&key, hash);
	if (entry == NULL)
		entry = make_entry(&key, hash, request);
	pfree(key.data);
	entry->last_used = ++clock_of_use;
	entry->users++;
	return &entry->plan;
}

/*
 * WriteCacheRelease - gives a plan back.
 *
 * A doomed one that has a slot is freed by the next lookup; one without (all
 * slots were in use) at once.
 */
void
WriteCacheRelease(WritePlan *plan)
{
	WriteCacheEntry *entry = (WriteCacheEntry *) plan;

	Assert(entry->users > 0);
	if (plan->broken)
		entry->doomed = true;
	if (--entry->users > 0 || !entry->doomed)
		return;
	for (int i = 0; i < WRITE_CACHE_SLOTS; i++)
	{
		if (slots[i] == entry)
			return;
	}
	WritePlanFree(plan);
}
