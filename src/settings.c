/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  Definition of the extension's configuration parameters.
 *
 * Settings that decide for others (which scopes may be named, what the worker
 * does, the clock of tests) are for superusers; a caller's own defaults are
 * for everybody, since each can be given as an argument anyway.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "compat.h"
#include "miscadmin.h"
#include "settings.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

int			idem_default_ttl_s = 24 * 3600;
int			idem_default_lease_ms = 60 * 1000;
int			idem_default_wait_ms = 0;
int			idem_default_once_ttl_s = 15 * 24 * 3600;
bool		idem_store_request = true;
int			idem_require_scope = REQUIRE_SCOPE_OFF;
int			idem_unfinished_at_commit = UNFINISHED_ALLOW;
int			idem_purge_interval_ms = 60 * 1000;
int			idem_purge_batch_size = 1000;
int			idem_purge_delay_ms = 10;
char	   *idem_databases = NULL;
bool		idem_track = true;
int			idem_track_scopes = 500;
int			idem_log_wait_ms = -1;

static char *test_clock_string = NULL;

/* The parsed test clock, for as long as one is set. */
static TimestampTz test_clock = 0;
static bool test_clock_is_set = false;

static const struct config_enum_entry require_scope_options[] = {
	{"off", REQUIRE_SCOPE_OFF, false},
	{"named", REQUIRE_SCOPE_NAMED, false},
	{"configured", REQUIRE_SCOPE_CONFIGURED, false},
	{NULL, 0, false}
};

static const struct config_enum_entry unfinished_options[] = {
	{"allow", UNFINISHED_ALLOW, false},
	{"warn", UNFINISHED_WARN, false},
	{"error", UNFINISHED_ERROR, false},
	{NULL, 0, false}
};

/*
 * Parses a point in time without touching a catalog, since a check hook may
 * run outside a transaction and must not throw.
 */
static bool
parse_timestamp(const char *str, TimestampTz *result)
{
	fsec_t		fsec;
	struct pg_tm tm;
	int			tz;
	int			dtype;
	int			nf;
	char	   *field[MAXDATEFIELDS];
	int			ftype[MAXDATEFIELDS];
	char		workbuf[MAXDATELEN + MAXDATEFIELDS];

	if (ParseDateTime(str, workbuf, sizeof(workbuf), field, ftype,
					  MAXDATEFIELDS, &nf) != 0)
		return false;
	if (compat_decode_datetime(field, ftype, nf, &dtype, &tm, &fsec, &tz) != 0)
		return false;
	if (dtype != DTK_DATE)
		return false;
	return tm2timestamp(&tm, fsec, &tz, result) == 0;
}

static bool
check_test_clock(char **newval, void **extra, GucSource source)
{
	TimestampTz *parsed;

	parsed = (TimestampTz *) compat_guc_malloc(sizeof(TimestampTz));
	if (parsed == NULL)
		return false;
	*parsed = 0;
	if (**newval != '\0' && !parse_timestamp(*newval, parsed))
	{
		GUC_check_errdetail("The value must be empty or a literal point in time.");
		compat_guc_free(parsed);
		return false;
	}
	*extra = parsed;
	return true;
}

static void
assign_test_clock(const char *newval, void *extra)
{
	test_clock = extra ? *(TimestampTz *) extra : 0;
	test_clock_is_set = extra != NULL && newval[0] != '\0';
}

/* Refuses a list of databases that nobody could read. */
static bool
check_databases(char **newval, void **extra, GucSource source)
{
	char	   *copy = pstrdup(*newval);
	List	   *names = NIL;
	bool		well_formed = SplitGUCList(copy, ',', &names);

	list_free(names);
	pfree(copy);
	if (!well_formed)
		GUC_check_errdetail("The value must be * or a list of database names separated by commas; names with spaces or commas stand in double quotes.");
	return well_formed;
}

/*
 * SettingsTestClock - tells whether a fixed clock is set, and its time.
 */
bool
SettingsTestClock(TimestampTz *now)
{
	if (likely(!test_clock_is_set))
		return false;
	*now = test_clock;
	return true;
}

/* What a claim gets that neither its call nor its scope decides. */
static void
define_claim_settings(void)
{
	DefineCustomIntVariable("idempotency.default_ttl",
							"How long a finished request is replayed.",
							"Used where neither the call nor its scope says otherwise.",
							&idem_default_ttl_s, 24 * 3600, 1, INT_MAX,
							PGC_USERSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("idempotency.default_lease",
							"How long a committed claim is respected before another caller may take it over.",
							NULL,
							&idem_default_lease_ms, 60 * 1000, 1, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("idempotency.default_wait",
							"How long a claim waits for a request in flight.",
							"Zero never waits.",
							&idem_default_wait_ms, 0, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("idempotency.default_once_ttl",
							"How long the inbox remembers a message.",
							"Keep it longer than the queue may redeliver.",
							&idem_default_once_ttl_s, 15 * 24 * 3600, 1, INT_MAX,
							PGC_USERSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomBoolVariable("idempotency.store_request",
							 "Stores the body of a request with its claim.",
							 "Without it a mismatch cannot say what differs.",
							 &idem_store_request, true,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("idempotency.require_scope",
							 "Refuses claims in the default scope, or in scopes that nobody configured.",
							 NULL,
							 &idem_require_scope, REQUIRE_SCOPE_OFF,
							 require_scope_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("idempotency.unfinished_at_commit",
							 "What happens when a transaction commits with a claim that it made and did not end.",
							 NULL,
							 &idem_unfinished_at_commit, UNFINISHED_ALLOW,
							 unfinished_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
}

static void
define_purge_settings(void)
{
	DefineCustomIntVariable("idempotency.purge_interval",
							"Time between two rounds of the purge worker.",
							"Zero turns it off.",
							&idem_purge_interval_ms, 60 * 1000, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("idempotency.purge_batch_size",
							"Rows that one transaction of a purge removes at most.",
							NULL,
							&idem_purge_batch_size, 1000, 1, 1000000,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("idempotency.purge_delay",
							"Pause of a purge between two batches.",
							NULL,
							&idem_purge_delay_ms, 10, 0, 60 * 1000,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomStringVariable("idempotency.databases",
							   "Databases that the purge worker serves.",
							   "A list of names, or * for all.",
							   &idem_databases, "*",
							   PGC_SIGHUP, GUC_LIST_INPUT,
							   check_databases, NULL, NULL);
}

static void
define_watch_settings(void)
{
	DefineCustomBoolVariable("idempotency.track",
							 "Counts outcomes per scope.",
							 "Needs the library in shared_preload_libraries.",
							 &idem_track, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);

	/* Sizes shared memory, so it exists only where there is some. */
	if (process_shared_preload_libraries_in_progress)
		DefineCustomIntVariable("idempotency.track_scopes",
								"Number of scopes that have counters of their own.",
								"All others of a database are counted together.",
								&idem_track_scopes, 500, 1, 100000,
								PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("idempotency.log_wait_min_duration",
							"Logs claims that waited for at least this time.",
							"-1 logs none.",
							&idem_log_wait_ms, -1, -1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
}

/*
 * SettingsDefine - defines all parameters and reserves their prefix; called
 * once, when the library is loaded.
 */
void
SettingsDefine(void)
{
	define_claim_settings();
	define_purge_settings();

	define_watch_settings();
	DefineCustomStringVariable("idempotency.test_clock",
							   "A fixed time that replaces the clock, for tests of expiry.",
							   "Tokens always follow the real clock.",
							   &test_clock_string, "",
							   PGC_SUSET, GUC_NOT_IN_SAMPLE,
							   check_test_clock, assign_test_clock, NULL);

	MarkGUCPrefixReserved("idempotency");
}
