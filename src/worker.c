/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The process that purges one database and leaves.
 *
 * A worker connects to one database, purges what is due there in batches of a
 * transaction each, reports to the launcher and leaves.  Between two batches
 * it has no transaction, no snapshot and no lock, and answers interrupts and
 * barriers.
 *
 * It is nobody's obstacle.  Who wants to drop, rename, move or copy the
 * database holds a lock on the database and waits a few seconds for everybody
 * else to leave it; the worker tries that lock before each batch and while it
 * pauses, and leaves where it is taken.  Tables are locked without waiting as
 * well (PurgeTryLock), so DROP EXTENSION, or whatever else takes a strong lock
 * on one of them, finds the worker gone after the present batch; if it is
 * rolled back, the next round goes on.  The launcher starts no worker for a
 * database that is wanted; of one that is dropped between that look and the
 * connection, the server's own FATAL is all that is heard.
 *
 * It works with the rights of the owner of the log, in a security-restricted
 * operation, as VACUUM does.  Rows are deleted in the heap directly, so no
 * trigger and no rule of anybody runs; what an owner may have put into the
 * expression of an index runs with that owner's rights.  The connection's own
 * settings do not depend on what ALTER DATABASE or the configuration say of
 * read-only transactions, isolation, timeouts or search_path.  Its commits
 * need not be durable: whatever it removed or turned it would find again.
 *
 * An error ends it.  The launcher learns that it reported nothing, and starts
 * the next one for this database after a pause that grows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "compat.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "purge.h"
#include "settings.h"
#include "stat.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "worker.h"

/* A worker leaves after this time, so that other databases get their turn. */
#define LONGEST_RUN_MS	(60 * 1000)

/* Longest time between two looks at who wants the database. */
#define LONGEST_PAUSE_MS	200

static const struct
{
	const char *name;
	const char *value;
}			own_settings[] = {
	{"application_name", "idempotency purge worker"},
	{"default_transaction_isolation", "read committed"},
	{"default_transaction_read_only", "off"},
	{"default_transaction_deferrable", "off"},
	{"lock_timeout", "0"},
	{"statement_timeout", "0"},
	{"transaction_timeout", "0"},
	{"search_path", "pg_catalog, pg_temp"},
	{"synchronous_commit", "off"},
};

/*
 * WorkerStart - starts a worker; false where the server has no free slot for
 * one.  The handle is palloc'd.
 */
bool
WorkerStart(const RosterOrder *order, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;

	StaticAssertStmt(sizeof(RosterOrder) <= BGW_EXTRALEN,
					 "order does not fit into bgw_extra");
	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	strlcpy(worker.bgw_library_name, "idempotency",
			sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "WorkerMain",
			sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name),
			 "idempotency purge worker for database %u", order->database);
	strlcpy(worker.bgw_type, "idempotency purge worker",
			sizeof(worker.bgw_type));
	memcpy(worker.bgw_extra, order, sizeof(*order));
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

/* Settings that transaction by transaction must be as the worker needs them. */
static void
apply_own_settings(void)
{
	for (int i = 0; i < lengthof(own_settings); i++)
	{
		/* Some are of later versions only. */
		if (GetConfigOption(own_settings[i].name, true, false) != NULL)
			SetConfigOption(own_settings[i].name, own_settings[i].value,
							PGC_SUSET, PGC_S_OVERRIDE);
	}
}

static void
reload_if_asked(void)
{
	if (!ConfigReloadPending)
		return;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
}

/*
 * WorkerDatabaseIsWanted - is somebody about to drop, rename, move or copy the
 * database?  If not, he has to wait until the present transaction ends.
 */
bool
WorkerDatabaseIsWanted(Oid database)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
	return LockAcquire(&tag, RowExclusiveLock, false, true) ==
		LOCKACQUIRE_NOT_AVAIL;
}

/* The same of our database, between transactions. */
static bool
database_is_wanted_meanwhile(void)
{
	bool		wanted;

	StartTransactionCommand();
	wanted = WorkerDatabaseIsWanted(MyDatabaseId);
	CommitTransactionCommand();
	return wanted;
}

/* Shows what is going on in pg_stat_activity. */
static void
show_activity(const Purge *purge)
{
	char		activity[128];

	snprintf(activity, sizeof(activity),
			 "idempotency purge: %lld keys and %lld messages removed",
			 (long long) purge->keys, (long long) purge->messages);
	pgstat_report_activity(STATE_RUNNING, activity);
}

/* One batch with the rights of the log's owner; true if there may be more. */
static bool
purge_as_owner(Purge *purge)
{
	Relation	log = table_open(CatalogTable(IDEM_TABLE_LOG), NoLock);
	Oid			owner = log->rd_rel->relowner;
	Oid			user;
	int			security;
	bool		more;

	table_close(log, NoLock);
	GetUserIdAndSecContext(&user, &security);
	SetUserIdAndSecContext(owner, security | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_RESTRICTED_OPERATION);
	more = PurgeBatch(purge, idem_purge_batch_size);
	SetUserIdAndSecContext(user, security);
	return more;
}

/*
 * One transaction: ROSTER_MORE or ROSTER_DONE after a batch, else why there
 * was none.
 */
static RosterReport
run_batch(Purge *purge)
{
	RosterReport report;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	show_activity(purge);

	if (WorkerDatabaseIsWanted(MyDatabaseId))
		report = ROSTER_GAVE_WAY;
	else if (!PurgeIsInstalled())
		report = ROSTER_NOT_INSTALLED;
	else if (!PurgeTryLock())
		report = ROSTER_GAVE_WAY;
	else
		report = purge_as_owner(purge) ? ROSTER_MORE : ROSTER_DONE;

	PopActiveSnapshot();
	CommitTransactionCommand();
	pgstat_report_stat(false);
	return report;
}

/* Sleeps for a part of a pause. */
static void
sleep_until_asked(long milliseconds)
{
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = compat_wait_event("IdempotencyPurgeDelay");
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 milliseconds, wait_event);
	ResetLatch(MyLatch);
}

/*
 * Pauses between two batches, for as long as the setting says while it lasts;
 * false where the worker has to leave.
 */
static bool
pause_between_batches(void)
{
	TimestampTz since = GetCurrentTimestamp();

	for (;;)
	{
		long		left;

		CHECK_FOR_INTERRUPTS();
		reload_if_asked();
		if (idem_purge_interval_ms == 0)
			return false;
		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(),
											   since + idem_purge_delay_ms * INT64CONST(1000));
		if (left == 0)
			return true;
		sleep_until_asked(Min(left, LONGEST_PAUSE_MS));
		if (left > LONGEST_PAUSE_MS && database_is_wanted_meanwhile())
			return false;
	}
}

/* Purges until nothing is due, or something bids it leave. */
static RosterReport
run_batches(Purge *purge, TimestampTz started)
{
	RosterReport report;

	PurgeStart(purge);
	while ((report = run_batch(purge)) == ROSTER_MORE)
	{
		if (TimestampDifferenceExceeds(started, GetCurrentTimestamp(),
									   LONGEST_RUN_MS))
			break;
		if (!pause_between_batches())
			return ROSTER_GAVE_WAY;
	}
	return report;
}

/* The one place where rounds and their rows are counted. */
static void
count_round(const Purge *purge, TimestampTz started)
{
	long		seconds;
	int			microseconds;

	if (purge->keys + purge->messages + purge->turned == 0)
		return;
	TimestampDifference(started, GetCurrentTimestamp(), &seconds,
						&microseconds);
	StartTransactionCommand();
	StatCount(StatFindSlot(NULL, -1), STAT_PURGE_ROUNDS, 1);
	StatCount(StatFindSlot(NULL, -1), STAT_PURGE_US,
			  seconds * USECS_PER_SEC + microseconds);
	ereport(LOG,
			(errmsg("idempotency purge of database \"%s\" removed %lld keys and %lld messages, left %lld requests to a person, in %ld.%03d s",
					get_database_name(MyDatabaseId),
					(long long) purge->keys, (long long) purge->messages,
					(long long) purge->turned, seconds, microseconds / 1000),
			 errhidestmt(true)));
	CommitTransactionCommand();
}

/*
 * WorkerMain - a worker's whole life.
 */
void
WorkerMain(Datum arg)
{
	TimestampTz started = GetCurrentTimestamp();
	RosterOrder order;
	RosterReport report;
	Purge		purge;

	memcpy(&order, MyBgworkerEntry->bgw_extra, sizeof(order));
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	apply_own_settings();
	BackgroundWorkerInitializeConnectionByOid(order.database, InvalidOid, 0);

	report = run_batches(&purge, started);
	count_round(&purge, started);
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
	RosterWrite(&order, report);
	proc_exit(0);
}
