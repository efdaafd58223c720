/*-------------------------------------------------------------------------
 *
 * idempotency.c
 *	  Entry point of the extension: what happens when the library is loaded.
 *
 * The claim engine is in src/; docs/internals.md is its map.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "durability.h"
#include "fmgr.h"
#include "launcher.h"
#include "miscadmin.h"
#include "roster.h"
#include "settings.h"
#include "shared.h"
#include "waiting.h"
#include "wakeup.h"

IDEM_MODULE_MAGIC("idempotency", IDEM_VERSION);

void		_PG_init(void);

void
_PG_init(void)
{
	SettingsDefine();
	WaitingInit();
	DurabilityInit();
	WakeupInit();
	if (!process_shared_preload_libraries_in_progress)
		return;
	SharedInit();

	/* pg_upgrade moves rows as they are; nobody must purge meanwhile. */
	if (!IsBinaryUpgrade)
	{
		RosterInit();
		LauncherRegister();
	}
}
