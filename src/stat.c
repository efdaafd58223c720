/*-------------------------------------------------------------------------
 *
 * stat.c
 *	  Counters per database and scope, and the functions that show them.
 *
 * Counting is an atomic addition in a slot whose number the backend keeps with
 * the scope's policy; the lock is taken only to find or make a slot for a
 * scope that the backend has not met.  Slots are bounded: where there are more
 * scopes, the rest of a database is counted in one slot together.  A slot is
 * used again when its database is gone.
 *
 * Calls are counted, whatever becomes of their transactions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "catalog/pg_type.h"
#include "clock.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "result.h"
#include "scope.h"
#include "settings.h"
#include "shared.h"
#include "stat.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_stat_counters);
PG_FUNCTION_INFO_V1(idem_stat_reset);

/* Slots kept for what a database counts together; the last one is for all. */
#define DATABASE_SLOTS	64

#define STAT_FILE		PGSTAT_STAT_PERMANENT_DIRECTORY "/idempotency.stat"
#define STAT_FILE_ID	0x49444d31	/* changes with the form of a slot */

/*
 * StatSlotCount - slots to make room for.
 */
int
StatSlotCount(void)
{
	return idem_track_scopes + DATABASE_SLOTS;
}

static void
clear_slot(StatSlot *slot)
{
	slot->database = InvalidOid;
	slot->scope_len = 0;
	pg_atomic_write_u64(&slot->reset_at, (uint64) GetCurrentTimestamp());
	for (int i = 0; i < STAT_NCOUNTERS; i++)
		pg_atomic_write_u64(&slot->counters[i], 0);
}

/*
 * StatInitSlots - makes the slots of new shared memory.
 */
void
StatInitSlots(void)
{
	for (int i = 0; i < shared_state->nslots; i++)
	{
		StatSlot   *slot = &shared_state->slots[i];

		pg_atomic_init_u64(&slot->reset_at, 0);
		for (int j = 0; j < STAT_NCOUNTERS; j++)
			pg_atomic_init_u64(&slot->counters[j], 0);
		clear_slot(slot);
	}
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
	int			i = 0;
	StatSlot	slot;

	if (file == NULL)
		return;
	if (fread(&id, sizeof(id), 1, file) == 1 && id == STAT_FILE_ID)
	{
		while (i < shared_state->nslots &&
			   fread(&slot, sizeof(slot), 1, file) == 1)
			memcpy(&shared_state->slots[i++], &slot, sizeof(slot));
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

/* The slot of a scope of this database; the lock is held. */
static int
lookup_slot(const char *scope, int scope_len)
{
	for (int i = 0; i < shared_state->nslots; i++)
	{
		StatSlot   *slot = &shared_state->slots[i];

		if (slot->database == MyDatabaseId && slot->scope_len == scope_len &&
			(scope_len <= 0 || memcmp(slot->scope, scope, scope_len) == 0))
			return i;
	}
	return STAT_NO_SLOT;
}

/*
 * Takes a free slot; the lock is held exclusively.  Those that are kept for
 * databases are not for scopes.
 */
static int
take_slot(const char *scope, int scope_len)
{
	int			nusable = shared_state->nslots -
		(scope_len >= 0 ? DATABASE_SLOTS : 0);

	for (int i = 0; i < nusable; i++)
	{
		StatSlot   *slot = &shared_state->slots[i];

		if (OidIsValid(slot->database))
			continue;
		clear_slot(slot);
		slot->scope_len = scope_len;
		if (scope_len > 0)
			memcpy(slot->scope, scope, scope_len);
		slot->database = MyDatabaseId;
		return i;
	}
	return STAT_NO_SLOT;
}

/* Frees the slots of databases that are gone. */
static void
free_orphans(void)
{
	for (int i = 0; i < shared_state->nslots; i++)
	{
		StatSlot   *slot = &shared_state->slots[i];
		Oid			database;

		LWLockAcquire(shared_state->lock, LW_SHARED);
		database = slot->database;
		LWLockRelease(shared_state->lock);
		if (!OidIsValid(database) ||
			SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database)))
			continue;

		LWLockAcquire(shared_state->lock, LW_EXCLUSIVE);
		if (slot->database == database)
			clear_slot(slot);
		LWLockRelease(shared_state->lock);
	}
}

/* Finds or makes a slot. */
static int
find_or_take(const char *scope, int scope_len)
{
	int			found;

	LWLockAcquire(shared_state->lock, LW_SHARED);
	found = lookup_slot(scope, scope_len);
	LWLockRelease(shared_state->lock);
	if (found != STAT_NO_SLOT)
		return found;

	LWLockAcquire(shared_state->lock, LW_EXCLUSIVE);
	found = lookup_slot(scope, scope_len);
	if (found == STAT_NO_SLOT)
		found = take_slot(scope, scope_len);
	LWLockRelease(shared_state->lock);
	return found;
}

/*
 * StatFindSlot - number of the slot that a scope of this database is counted
 * in; a scope_len of -1 asks for that of the database.  Good as long as the
 * database is.
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
		found = find_or_take(NULL, -1);
	return found;
}

/*
 * StatCount - adds to a counter.
 */
void
StatCount(int slot, StatCounter counter, uint64 n)
{
	if (slot == STAT_NO_SLOT || !idem_track)
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

/*
 * idem_stat_counters() - the counters of this database, a row per scope and
 * one, without a scope, for all others
 */
Datum
idem_stat_counters(PG_FUNCTION_ARGS)
{
	require_shared_memory();
	ResultInitSet(fcinfo);
	for (int i = 0; i < shared_state->nslots; i++)
	{
		StatSlot	copy;

		LWLockAcquire(shared_state->lock, LW_SHARED);
		memcpy(&copy, &shared_state->slots[i], sizeof(copy));
		LWLockRelease(shared_state->lock);
		if (copy.database == MyDatabaseId)
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

		if (slot->database != MyDatabaseId)
			continue;
		pg_atomic_write_u64(&slot->reset_at, (uint64) GetCurrentTimestamp());
		for (int j = 0; j < STAT_NCOUNTERS; j++)
			pg_atomic_write_u64(&slot->counters[j], 0);
	}
	LWLockRelease(shared_state->lock);
	PG_RETURN_VOID();
}
