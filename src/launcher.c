/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  The process that starts purge workers, database by database.
 *
 * The launcher is connected to no database, so it is in nobody's way, and can
 * read the list of databases only.  Every purge_interval it queues all that it
 * is to serve, and starts a worker for each, ROSTER_SLOTS at once, the one
 * that waited longest first.  A round ends when the queue is empty; the next
 * one begins when its time has come.
 *
 * What it keeps of a database is when to ask again:
 *
 *	 worker said			then
 *	 done, gave way			with the next round
 *	 more					queued again behind those that wait
 *	 not installed			after a few rounds
 *	 nothing (it failed)	after a pause that doubles with each failure
 *
 * It is there whenever the server is: it starts when recovery has finished,
 * also after a promotion, never in binary upgrade mode, and ends with exit
 * code 1 only, after which the postmaster starts it again in RESTART_S
 * seconds, whatever ended it.  A cancel request means nothing to it.  Where
 * the server has no free worker slot it says so once and tries again after a
 * pause that doubles.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "compat.h"
#include "launcher.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "settings.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"
#include "worker.h"

/* Seconds until the postmaster starts a launcher again that has ended. */
#define RESTART_S	5

/* Rounds for which a database without the extension is left alone. */
#define ROUNDS_NOT_INSTALLED	5

/* Pauses after failures double between these. */
#define FIRST_PAUSE_US	USECS_PER_SEC
#define LONGEST_PAUSE_US	(5 * USECS_PER_MINUTE)

/* Longest sleep; everything that matters sets the latch. */
#define LONGEST_SLEEP_MS	INT64CONST(600000)	/* ten minutes */

/* datconnlimit of a database whose drop was interrupted. */
#define CONNLIMIT_INVALID_DB	(-2)

/* What is kept of a database. */
typedef struct Database
{
	Oid			oid;			/* hash key */
	uint32		round;			/* round that listed it last */
	bool		queued;
	int			failures;		/* in a row */
	TimestampTz not_before;		/* no worker before this time */
	TimestampTz last_started;
} Database;

/* A worker that runs, or may run. */
typedef struct Slot
{
	BackgroundWorkerHandle *handle; /* NULL where there is none */
	RosterOrder order;
} Slot;

/* All that the launcher knows; lives as long as the process. */
static struct
{
	HTAB	   *databases;
	Slot		slots[ROSTER_SLOTS];
	uint32		round;
	uint64		last_ticket;
	TimestampTz next_round;
	TimestampTz next_start;		/* no worker slot is tried before */
	TimestampTz seen;			/* the clock, when we last looked */
	int			refusals;		/* of worker slots, in a row */
}			launcher;

/*
 * LauncherRegister - has the postmaster start the launcher; while
 * shared_preload_libraries are loaded.
 */
void
LauncherRegister(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = RESTART_S;
	strlcpy(worker.bgw_library_name, "idempotency",
			sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "LauncherMain",
			sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "idempotency launcher", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "idempotency launcher", sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}

/* Pause after so many failures in a row. */
static int64
pause_after(int failures)
{
	int64		pause = FIRST_PAUSE_US << Min(failures - 1, 16);

	return Min(pause, LONGEST_PAUSE_US);
}

/* ---- the list of databases ---------------------------------------------- */

/* May a worker connect there at all, and do the settings want it to? */
static bool
is_to_be_served(Form_pg_database form, List *names)
{
	ListCell   *lc;

	if (form->datistemplate || !form->datallowconn ||
		form->datconnlimit == CONNLIMIT_INVALID_DB)
		return false;
	foreach(lc, names)
	{
		const char *name = (const char *) lfirst(lc);

		if (strcmp(name, "*") == 0 || strcmp(name, NameStr(form->datname)) == 0)
			return true;
	}
	return false;
}

/* Names in the setting; checked when it was set. */
static List *
served_names(void)
{
	List	   *names = NIL;

	if (!SplitGUCList(pstrdup(idem_databases), ',', &names))
		return NIL;
	return names;
}

static void
enlist(Oid oid)
{
	bool		found;
	Database   *database = hash_search(launcher.databases, &oid, HASH_ENTER,
									   &found);

	if (!found)
	{
		memset(database, 0, sizeof(*database));
		database->oid = oid;
	}
	database->round = launcher.round;
}

/* Lists all databases that are to be served. */
static void
list_databases(void)
{
	MemoryContext old = CurrentMemoryContext;
	List	   *names;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	names = served_names();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		if (is_to_be_served(form, names))
			enlist(form->oid);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(old);
}

/*
 * Is it still as it was when it was listed?  It may have waited for long, or
 * is just being dropped.
 */
static bool
is_still_to_be_served(Oid oid)
{
	MemoryContext old = CurrentMemoryContext;
	HeapTuple	tuple;
	bool		served = false;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(oid));
	if (HeapTupleIsValid(tuple))
	{
		served = is_to_be_served((Form_pg_database) GETSTRUCT(tuple),
								 served_names()) &&
			!WorkerDatabaseIsWanted(oid);
		ReleaseSysCache(tuple);
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(old);
	return served;
}

/* Queues what the new list has, forgets what it has no more. */
static void
begin_round(TimestampTz now)
{
	HASH_SEQ_STATUS status;
	Database   *database;

	launcher.round++;
	list_databases();
	hash_seq_init(&status, launcher.databases);
	while ((database = hash_seq_search(&status)) != NULL)
	{
		if (database->round != launcher.round)
			hash_search(launcher.databases, &database->oid, HASH_REMOVE, NULL);
		else
			database->queued = now >= database->not_before;
	}
	launcher.next_round = now + idem_purge_interval_ms * INT64CONST(1000);
}

/* ---- workers ------------------------------------------------------------ */

static bool
is_running(Oid oid)
{
	for (int i = 0; i < ROSTER_SLOTS; i++)
	{
		if (launcher.slots[i].handle != NULL &&
			launcher.slots[i].order.database == oid)
			return true;
	}
	return false;
}

/* The queued database that waited longest, or NULL. */
static Database *
next_database(void)
{
	HASH_SEQ_STATUS status;
	Database   *database;
	Database   *next = NULL;

	hash_seq_init(&status, launcher.databases);
	while ((database = hash_seq_search(&status)) != NULL)
	{
		if (database->queued && !is_running(database->oid) &&
			(next == NULL || database->last_started < next->last_started))
			next = database;
	}
	return next;
}

static Slot *
free_slot(void)
{
	for (int i = 0; i < ROSTER_SLOTS; i++)
	{
		if (launcher.slots[i].handle == NULL)
			return &launcher.slots[i];
	}
	return NULL;
}

/* Decides when to ask again, by how the worker ended. */
static void
note_report(Database *database, RosterReport report, TimestampTz now)
{
	int64		interval = idem_purge_interval_ms * INT64CONST(1000);

	if (report != ROSTER_NOTHING)
		database->failures = 0;
	switch (report)
	{
		case ROSTER_DONE:
		case ROSTER_GAVE_WAY:
			database->not_before = 0;
			break;
		case ROSTER_MORE:
			database->queued = true;
			break;
		case ROSTER_NOT_INSTALLED:
			database->not_before = now + Min(ROUNDS_NOT_INSTALLED * interval,
											 LONGEST_PAUSE_US);
			break;
		case ROSTER_NOTHING:
			database->failures++;
			database->not_before = now + pause_after(database->failures);
			break;
	}
}

/* Takes note of the workers that have ended. */
static void
reap_workers(TimestampTz now)
{
	for (int i = 0; i < ROSTER_SLOTS; i++)
	{
		Slot	   *slot = &launcher.slots[i];
		Database   *database;
		pid_t		pid;

		if (slot->handle == NULL ||
			GetBackgroundWorkerPid(slot->handle, &pid) != BGWH_STOPPED)
			continue;
		database = hash_search(launcher.databases, &slot->order.database,
							   HASH_FIND, NULL);
		if (database != NULL)
			note_report(database, RosterRead(&slot->order), now);
		pfree(slot->handle);
		slot->handle = NULL;
		launcher.next_start = 0;
	}
}

/*
 * The server has no free slot for a worker: pauses, and says so once.  While
 * workers of ours run there will be one when the first of them ends.
 */
static void
note_refusal(TimestampTz now)
{
	bool		alone = true;

	for (int i = 0; i < ROSTER_SLOTS; i++)
		alone &= launcher.slots[i].handle == NULL;
	if (alone && launcher.refusals++ == 0)
		ereport(LOG,
				(errmsg("idempotency launcher found no free slot for a purge worker"),
				 errhint("It keeps trying. Increase \"%s\" if it goes on.",
						 "max_worker_processes")));
	launcher.next_start = now + pause_after(Max(launcher.refusals, 1));
}

/* Starts a worker for a database; false where there is no slot for it. */
static bool
start_worker(Database *database, Slot *slot, TimestampTz now)
{
	slot->order.database = database->oid;
	slot->order.slot = slot - launcher.slots;
	slot->order.ticket = ++launcher.last_ticket;
	if (!WorkerStart(&slot->order, &slot->handle))
	{
		slot->handle = NULL;
		note_refusal(now);
		return false;
	}
	database->queued = false;
	database->last_started = now;
	launcher.refusals = 0;
	launcher.next_start = 0;
	return true;
}

/* Starts workers for those in the queue, as many as may run at once. */
static void
start_workers(TimestampTz now)
{
	Database   *database;
	Slot	   *slot;

	while (now >= launcher.next_start &&
		   (slot = free_slot()) != NULL &&
		   (database = next_database()) != NULL)
	{
		if (!is_still_to_be_served(database->oid))
			database->queued = false;
		else if (!start_worker(database, slot, now))
			return;
	}
}

/* ---- the loop ----------------------------------------------------------- */

/* The clock was set back: times to come are further off than they were meant. */
static void
forget_pauses(void)
{
	HASH_SEQ_STATUS status;
	Database   *database;

	launcher.next_start = 0;
	hash_seq_init(&status, launcher.databases);
	while ((database = hash_seq_search(&status)) != NULL)
		database->not_before = 0;
}

/* The purge is turned off: what has not begun does not begin. */
static void
empty_queue(void)
{
	HASH_SEQ_STATUS status;
	Database   *database;

	hash_seq_init(&status, launcher.databases);
	while ((database = hash_seq_search(&status)) != NULL)
		database->queued = false;
}

/* Does what is to be done now; returns the time until it has to be called. */
static long
advance(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz wake;

	reap_workers(now);
	if (idem_purge_interval_ms == 0)
	{
		empty_queue();
		launcher.next_round = 0;
		return LONGEST_SLEEP_MS;
	}

	if (now < launcher.seen)
		forget_pauses();
	launcher.seen = now;

	/* The interval may have become shorter, or the clock was set back. */
	launcher.next_round = Min(launcher.next_round,
							  now + idem_purge_interval_ms * INT64CONST(1000));
	if (now >= launcher.next_round && next_database() == NULL)
		begin_round(now);
	start_workers(now);

	/* While all slots are taken, the end of a worker sets the latch. */
	if (next_database() == NULL)
		wake = launcher.next_round;
	else if (free_slot() != NULL)
		wake = launcher.next_start;
	else
		return LONGEST_SLEEP_MS;
	return Min(TimestampDifferenceMilliseconds(now, wake), LONGEST_SLEEP_MS);
}

/*
 * LauncherMain - the launcher's whole life.
 */
void
LauncherMain(Datum arg)
{
	HASHCTL		control = {.keysize = sizeof(Oid),.entrysize = sizeof(Database)};
	uint32		wait_event;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, SIG_IGN);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	MemoryContextSwitchTo(TopMemoryContext);
	launcher.databases = hash_create("idempotency databases", 16, &control,
									 HASH_ELEM | HASH_BLOBS);
	launcher.last_ticket = (uint64) GetCurrentTimestamp();
	wait_event = compat_wait_event("IdempotencyLauncher");
	pgstat_report_activity(STATE_IDLE, NULL);

	for (;;)
	{
		long		timeout;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		timeout = advance();
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 timeout, wait_event);
		ResetLatch(MyLatch);
	}
}
