/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  The extension's configuration parameters.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_SETTINGS_H
#define IDEM_SETTINGS_H

#include "datatype/timestamp.h"

/* Which scopes a claim may name (idempotency.require_scope). */
typedef enum RequireScope
{
	REQUIRE_SCOPE_OFF,
	REQUIRE_SCOPE_NAMED,
	REQUIRE_SCOPE_CONFIGURED
} RequireScope;

/* What a commit does that leaves own claims open. */
typedef enum UnfinishedAction
{
	UNFINISHED_ALLOW,
	UNFINISHED_WARN,
	UNFINISHED_ERROR
} UnfinishedAction;

extern PGDLLIMPORT int idem_default_ttl_s;
extern PGDLLIMPORT int idem_default_lease_ms;
extern PGDLLIMPORT int idem_default_wait_ms;
extern PGDLLIMPORT int idem_default_once_ttl_s;
extern PGDLLIMPORT bool idem_store_request;
extern PGDLLIMPORT int idem_require_scope;
extern PGDLLIMPORT int idem_unfinished_at_commit;
extern PGDLLIMPORT int idem_purge_interval_ms;
extern PGDLLIMPORT int idem_purge_batch_size;
extern PGDLLIMPORT int idem_purge_delay_ms;
extern PGDLLIMPORT char *idem_databases;
extern PGDLLIMPORT bool idem_track;
extern PGDLLIMPORT int idem_track_scopes;
extern PGDLLIMPORT int idem_log_wait_ms;

extern void SettingsDefine(void);
extern bool SettingsTestClock(TimestampTz *now);

#endif							/* IDEM_SETTINGS_H */
