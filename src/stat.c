/*-------------------------------------------------------------------------
 *
 * stat.c
 *	  Counters per database and scope, and the functions that show them.
 *
 * Counting is an atomic addition in a slot whose number the backend keeps with
 * the scope's policy; the lock is taken only to find or make a slot for a
 * scope that the backend has not met.  Slots are found by a hash of database
 * and scope, and never move.  They are bounded: where there are more scopes,
 * the rest of a database is counted in one slot together, from an area of its
 * own.  A slot is used again when its database is gone.
 *
 * Calls are counted, whatever becomes of their transactions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "catalog/pg_type.h"
#include "clock.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"
#include "result.h"
#include "scope.h"
#include "settings.h"
#include "shared.h"
#include "stat.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_stat_counters);
PG_FUNCTION_INFO_V1(idem_stat_reset);

/* Databases that can count together what has no slot of its own. */
#define DATABASE_SLOTS	64

#define STAT_FILE		PGSTAT_STAT_PERMANENT_DIRECTORY "/idempotency.stat"
#define STAT_FILE_ID	0x49444d32	/* changes with the form of a slot */

/* End of a list of slots. */
#define NO_NEXT			(-1)

/*
 * Whether a database may be gone since we looked for the slots of such ones;
 * true at first, since we cannot know what was before us.
 */
static bool databases_changed = true;
static bool callback_registered = false;

/*
 * StatSlotCount - slots to make room for.
 */
int
StatSlotCount(void)
{
	return idem_track_scopes + DATABASE_SLOTS;
}

/*
 * StatBucketCount - lists to spread them over.
 */
int
StatBucketCount(void)
{
	return (int) pg_nextpower2_32(StatSlotCount());
}

/* ---- slots; the lock is held exclusively, or there is nobody else yet ---- */

/* The list of free slots that are for scopes, or for the rest of databases. */
static int *
free_list(int scope_len)
{
	return scope_len < 0 ? &shared_state->free_for_databases :
		&shared_state->free_for_scopes;
}

static int *
bucket_of(Oid database, const char *scope, int scope_len)
{
	uint32		hash = hash_bytes((const unsigned char *) scope,
								  Max(scope_len, 0));

	hash = hash_combine(hash, hash_combine(database, scope_len));
	return &shared_state->buckets[hash & (shared_state->nbuckets - 1)];
}

static void
zero_counters(StatSlot *slot)
{
	pg_atomic_write_u64(&slot->reset_at, (uint64) GetCurrentTimestamp());
	for (int i = 0; i < STAT_NCOUNTERS; i++)
		pg_atomic_write_u64(&slot->counters[i], 0);
}

/*
 * StatInitSlots - makes the slots of new shared memory, all of them free.
 */
void
StatInitSlots(void)
{
	shared_state->free_for_scopes = NO_NEXT;
	shared_state->free_for_databases = NO_NEXT;
	for (int i = 0; i < shared_state->nbuckets; i++)
		shared_state->buckets[i] = NO_NEXT;

	/* Backwards, so that the first ones are used first. */
	for (int i = shared_state->nslots - 1; i >= 0; i--)
	{
		StatSlot   *slot = &shared_state->slots[i];
		int		   *list = free_list(i < idem_track_scopes ? 0 : -1);

		pg_atomic_init_u64(&slot->reset_at, 0);
		for (int j = 0; j < STAT_NCOUNTERS; j++)
			pg_atomic_init_u64(&slot->counters[j], 0);
		slot->database = InvalidOid;
		slot->next = *list;
		*list = i;
	}
}

/* Takes a free slot for a scope; STAT_NO_SLOT where there is none. */
static int
take_slot(Oid database, const char *scope, int scope_len)
{
	int		   *list = free_list(scope_len);
	int		   *bucket = bucket_of(database, scope, scope_len);
	int			taken = *list;
	StatSlot   *slot;

	if (taken == NO_NEXT)
		return STAT_NO_SLOT;
	slot = &shared_state->slots[taken];
	*list = slot->next;

	zero_counters(slot);
	slot->scope_len = scope_len;
	if (scope_len > 0)
		memcpy(slot->scope, scope, scope_len);
	slot->database = database;
	slot->next = *bucket;
	*bucket = taken;
	return taken;
}

static void
free_slot(int number)
{
	StatSlot   *slot = &shared_state->slots[number];
	int		   *list = free_list(slot->scope_len);
	int		   *link = bucket_of(slot->database, slot->scope, slot->scope_len);

	while (*link != number)
		link = &shared_state->slots[*link].next;
	*link = slot->next;
	slot->database = InvalidOid;
	slot->next = *list;
	*list = number;
}

/* The slot of a scope; the lock is held, shared will do. */
static int
lookup_slot(Oid database, const char *scope, int scope_len)
{
	int			i = *bucket_of(database, scope, scope_len);

	for (; i != NO_NEXT; i = shared_state->slots[i].next)
	{
		StatSlot   *slot = &shared_state->slots[i];

		if (slot->database == database && slot->scope_len == scope_len &&
			(scope_len <= 0 || memcmp(slot->scope, scope, scope_len) == 0))
			return i;
	}
	return STAT_NO_SLOT;
}

/* ---- over a restart ------------------------------------------------------ */

/* Puts the counters of a slot that was read into a slot of this server. */
static void
restore_slot(const StatSlot *stored)
{
	StatSlot   *slot;
	int			taken;

	if (!OidIsValid(stored->database) || stored->scope_len < -1 ||
		stored->scope_len > STAT_SCOPE_BYTES)
		return;
	taken = take_slot(stored->database, stored->scope, stored->scope_len);
	if (taken == STAT_NO_SLOT)
		return;
	slot = &shared_state->slots[taken];
	memcpy(&slot->reset_at, &stored->reset_at, sizeof(slot->reset_at));
	memcpy(slot->counters, stored->counters, sizeof(slot->counters));
}

/*
 * StatLoad - reads the counters that a clean shutdown has left; the file is
 * removed, so that a later crash does not bring them back.
 */
void
StatLoad(void)
{
	FILE	   *file = AllocateFile(STAT_FILE, PG_BINARY_R);
	uint32		id;
	StatSlot	slot;

	if (file == NULL)
		return;
	if (fread(&id, sizeof(id), 1, file) == 1 && id == STAT_FILE_ID)
	{
		while (fread(&slot, sizeof(slot), 1, file) == 1)
			restore_slot(&slot);
	}
	FreeFile(file);
	unlink(STAT_FILE);
}

static bool
write_slots(FILE *file)
{
	uint32		id = STAT_FILE_ID;

	if (fwrite(&id, sizeof(id), 1, file) != 1)
		return false;
	for (int i = 0; i < shared_state->nslots; i++)
	{
		StatSlot   *slot = &shared_state->slots[i];

		if (OidIsValid(slot->database) &&
			fwrite(slot, sizeof(*slot), 1, file) != 1)
			return false;
	}
	return true;
}

/*
 * StatSave - writes the counters at a clean shutdown.
 */
void
StatSave(int code, Datum arg)
{
	FILE	   *file;
	bool		written;

	if (code != 0 || shared_state == NULL)
		return;
	file = AllocateFile(STAT_FILE ".tmp", PG_BINARY_W);
	if (file == NULL)
		return;
	written = write_slots(file);
	if (FreeFile(file) != 0 || !written)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", STAT_FILE ".tmp")));
		unlink(STAT_FILE ".tmp");
		return;
	}
	(void) durable_rename(STAT_FILE ".tmp", STAT_FILE, LOG);
}

/* ---- finding ------------------------------------------------------------- */

static void
note_databases_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	databases_changed = true;
}

/*
 * Frees the slots of databases that are gone.  Whoever finds no free slot looks
 * through all of them once, and then only after pg_database has changed.
 */
static void
free_orphans(void)
{
	if (!callback_registered)
	{
		CacheRegisterSyscacheCallback(DATABASEOID, note_databases_changed,
									  (Datum) 0);
		callback_registered = true;
	}
	if (!databases_changed)
		return;
	databases_changed = false;

	for (int i = 0; i < shared_state->nslots; i++)
	{
		StatSlot   *slot = &shared_state->slots[i];
		Oid			database;

		CHECK_FOR_INTERRUPTS();
		LWLockAcquire(shared_state->lock, LW_SHARED);
		database = slot->database;
		LWLockRelease(shared_state->lock);
		if (!OidIsValid(database) || database == MyDatabaseId ||
			SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database)))
			continue;

		LWLockAcquire(shared_state->lock, LW_EXCLUSIVE);
		if (slot->database == database)
			free_slot(i);
		LWLockRelease(shared_state->lock);
	}
}

/* Finds or makes a slot. */
static int
find_or_take(const char *scope, int scope_len)
{
	int			found;
	bool		is_full;

	LWLockAcquire(shared_state->lock, LW_SHARED);
	found = lookup_slot(MyDatabaseId, scope, scope_len);
	is_full = *free_list(scope_len) == NO_NEXT;
	LWLockRelease(shared_state->lock);
	if (found != STAT_NO_SLOT || is_full)
		return found;

	LWLockAcquire(shared_state->lock, LW_EXCLUSIVE);
	found = lookup_slot(MyDatabaseId, scope, scope_len);
	if (found == STAT_NO_SLOT)
		found = take_slot(MyDatabaseId, scope, scope_len);
	LWLockRelease(shared_state->lock);
	return found;
}

/*
 * StatFindSlot - number of the slot that a scope of this database is counted
 * in; a scope_len of -1 asks for that of the database.  Good as long as the
 * database is.  Within a transaction.
 */
int
StatFindSlot(const char *scope, int scope_len)
{
	int			found;

	/* No scope is that long, but somebody may ask about one. */
	if (shared_state == NULL || scope_len > STAT_SCOPE_BYTES)
		return STAT_NO_SLOT;
	found = find_or_take(scope, scope_len);
	if (found != STAT_NO_SLOT)
		return found;
	free_orphans();
	found = find_or_take(scope, scope_len);
	if (found == STAT_NO_SLOT && scope_len >= 0)
		found = StatFindSlot(NULL, -1);
	return found;
}

/*
 * StatCount - adds to a counter.
 */
void
StatCount(int slot, StatCounter counter, uint64 n)
{
	if (slot < 0 || !idem_track)
		return;
	pg_atomic_fetch_add_u64(&shared_state->slots[slot].counters[counter], n);
}

static void
require_shared_memory(void)
{
	if (shared_state == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("idempotency counters need the library to be preloaded"),
				 errhint("Add \"idempotency\" to \"shared_preload_libraries\" and restart the server.")));
}

/* One row of idem_stat_counters: scope, counters, time of the last reset. */
static void
put_slot(ReturnSetInfo *rsinfo, const StatSlot *slot)
{
	Datum		values[STAT_NCOUNTERS + 2];
	bool		nulls[STAT_NCOUNTERS + 2] = {false};

	nulls[0] = slot->scope_len < 0;
	if (!nulls[0])
		values[0] = PointerGetDatum(cstring_to_text_with_len(slot->scope,
															 slot->scope_len));
	for (int i = 0; i < STAT_NCOUNTERS; i++)
		values[i + 1] =
			Int64GetDatum((int64) pg_atomic_read_u64(unconstify(pg_atomic_uint64 *,
																&slot->counters[i])));
	values[STAT_NCOUNTERS + 1] =
		TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(unconstify(pg_atomic_uint64 *,
																		&slot->reset_at)));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* Is a slot's scope to be shown to the current user? */
static bool
is_open(const StatSlot *slot)
{
	ScopePolicy policy;
	text	   *scope;

	if (slot->scope_len < 0)
		return true;
	scope = cstring_to_text_with_len(slot->scope, slot->scope_len);
	policy = ScopeLook(scope);
	pfree(scope);
	return ScopeIsOpen(&policy);
}

/*
 * idem_stat_counters() - the counters of this database, a row per scope that
 * is open to the current user and one, without a scope, for all others
 */
Datum
idem_stat_counters(PG_FUNCTION_ARGS)
{
	require_shared_memory();
	ResultInitSet(fcinfo);
	for (int i = 0; i < shared_state->nslots; i++)
	{
		StatSlot	copy;

		CHECK_FOR_INTERRUPTS();
		LWLockAcquire(shared_state->lock, LW_SHARED);
		memcpy(&copy, &shared_state->slots[i], sizeof(copy));
		LWLockRelease(shared_state->lock);
		if (copy.database == MyDatabaseId && is_open(&copy))
			put_slot((ReturnSetInfo *) fcinfo->resultinfo, &copy);
	}
	return (Datum) 0;
}

/*
 * idem_stat_reset() returns void - sets the counters of this database to zero
 */
Datum
idem_stat_reset(PG_FUNCTION_ARGS)
{
	require_shared_memory();
	LWLockAcquire(shared_state->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared_state->nslots; i++)
	{
		StatSlot   *slot = &shared_state->slots[i];

		if (slot->database == MyDatabaseId)
			zero_counters(slot);
	}
	LWLockRelease(shared_state->lock);
	PG_RETURN_VOID();
}
