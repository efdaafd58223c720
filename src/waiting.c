/*-------------------------------------------------------------------------
 *
 * waiting.c
 *	  Who waits for which request.
 *
 * Where there is shared memory, every backend has an entry of its own there, in
 * which it notes a hash of the key that it waits for.  Only its owner writes
 * it, and a reader may see it a moment too early or too late.  It is cleared
 * when the wait ends, and at the latest when the transaction is aborted, which
 * is also the way out of a backend that is terminated.
 *
 * Who waits for a transaction, with or without a claim, stands in the server's
 * table of locks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/subtrans.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "compat.h"
#include "miscadmin.h"
#include "shared.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/snapmgr.h"
#include "waiting.h"

/* Is our own entry set? */
static bool entered = false;

/*
 * WaitingEntryCount - entries to make room for; known once the server's other
 * libraries have asked for their backends.
 */
int
WaitingEntryCount(void)
{
	return MaxBackends;
}

/*
 * WaitingInitEntries - makes the entries of new shared memory.
 */
void
WaitingInitEntries(void)
{
	for (int i = 0; i < shared_state->nwaiting; i++)
	{
		pg_atomic_init_u64(&shared_state->waiting[i].key, 0);
		pg_atomic_init_u32(&shared_state->waiting[i].pid, 0);
	}
}

/* Of this database; never 0. */
static uint64
hash_of_key(const RequestKey *key)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(key->scope),
										   VARSIZE_ANY_EXHDR(key->scope),
										   MyDatabaseId);

	hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(key->request_id),
							   VARSIZE_ANY_EXHDR(key->request_id), hash);
	return Max(hash, 1);
}

static void
at_transaction_event(XactEvent event, void *arg)
{
	if (unlikely(entered) && event == XACT_EVENT_ABORT)
		WaitingEnd();
}

/*
 * WaitingInit - registers the callback; once, when the library is loaded.
 */
void
WaitingInit(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
}

/*
 * WaitingBegin - notes that this backend waits for a request.
 */
void
WaitingBegin(const RequestKey *key)
{
	int			number = compat_my_proc_number();
	WaitingEntry *entry;

	if (shared_state == NULL || number >= shared_state->nwaiting)
		return;
	entry = &shared_state->waiting[number];
	entered = true;
	pg_atomic_write_u32(&entry->pid, (uint32) MyProcPid);
	pg_write_barrier();
	pg_atomic_write_u64(&entry->key, hash_of_key(key));
}

/*
 * WaitingEnd - notes that it waits no more.
 */
void
WaitingEnd(void)
{
	if (!entered)
		return;
	pg_atomic_write_u64(&shared_state->waiting[compat_my_proc_number()].key, 0);
	entered = false;
}

static void
read_entries(Waiting *waiting)
{
	int			n = shared_state == NULL ? 0 : shared_state->nwaiting;

	waiting->nkeys = 0;
	waiting->keys = (uint64 *) palloc(sizeof(uint64) * Max(n, 1));
	waiting->key_pids = (int *) palloc(sizeof(int) * Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		uint64		key = pg_atomic_read_u64(&shared_state->waiting[i].key);

		if (key == 0)
			continue;
		pg_read_barrier();
		waiting->keys[waiting->nkeys] = key;
		waiting->key_pids[waiting->nkeys++] =
			(int) pg_atomic_read_u32(&shared_state->waiting[i].pid);
	}
}

static void
read_locks(Waiting *waiting)
{
	LockData   *locks = GetLockStatusData();

	waiting->nxids = 0;
	waiting->xids = (TransactionId *) palloc(sizeof(TransactionId) * Max(locks->nelements, 1));
	waiting->xid_pids = (int *) palloc(sizeof(int) * Max(locks->nelements, 1));
	for (int i = 0; i < locks->nelements; i++)
	{
		LockInstanceData *lock = &locks->locks[i];

		if (lock->locktag.locktag_type != LOCKTAG_TRANSACTION ||
			lock->waitLockMode == NoLock)
			continue;
		waiting->xids[waiting->nxids] = lock->locktag.locktag_field1;
		waiting->xid_pids[waiting->nxids++] = lock->pid;
	}
}

/*
 * WaitingRead - reads who waits now.
 */
void
WaitingRead(Waiting *waiting)
{
	read_entries(waiting);
	read_locks(waiting);
}

/* Is a transaction the same as another one, or a part of it? */
static bool
is_part_of(TransactionId xid, TransactionId whole)
{
	while (TransactionIdIsValid(xid))
	{
		if (xid == whole)
			return true;
		if (TransactionIdPrecedes(xid, TransactionXmin))
			break;
		xid = SubTransGetParent(xid);
	}
	return false;
}

static int
compare_pids(const void *a, const void *b)
{
	return *(const int *) a - *(const int *) b;
}

/*
 * WaitingFor - the processes that wait for a request, or for the transaction
 * (InvalidTransactionId: none) that has its row uncommitted or one that it is a
 * part of, as an array in ascending order; false where there is none.
 */
bool
WaitingFor(const Waiting *waiting, const RequestKey *key, TransactionId xid,
		   Datum *pids)
{
	int		   *found;
	int			nfound = 0;
	int			ndistinct = 0;
	Datum	   *elements;

	if (waiting->nkeys == 0 &&
		(waiting->nxids == 0 || !TransactionIdIsValid(xid)))
		return false;

	found = (int *) palloc(sizeof(int) * (waiting->nkeys + waiting->nxids));
	if (waiting->nkeys > 0)
	{
		uint64		hash = hash_of_key(key);

		for (int i = 0; i < waiting->nkeys; i++)
		{
			if (waiting->keys[i] == hash)
				found[nfound++] = waiting->key_pids[i];
		}
	}
	for (int i = 0; i < waiting->nxids; i++)
	{
		if (is_part_of(xid, waiting->xids[i]))
			found[nfound++] = waiting->xid_pids[i];
	}
	if (nfound == 0)
		return false;

	qsort(found, nfound, sizeof(int), compare_pids);
	elements = (Datum *) palloc(sizeof(Datum) * nfound);
	for (int i = 0; i < nfound; i++)
	{
		if (i == 0 || found[i] != found[i - 1])
			elements[ndistinct++] = Int32GetDatum(found[i]);
	}
	*pids = PointerGetDatum(construct_array(elements, ndistinct, INT4OID, 4,
											true, TYPALIGN_INT));
	return true;
}
