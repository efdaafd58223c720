/*-------------------------------------------------------------------------
 *
 * invalidation.c
 *	  Being told of changes of tables.
 *
 * The server has ten places for those who want relcache messages, in all of a
 * backend: the extension takes one, and passes them on to its own caches.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "invalidation.h"

/* More than there are caches. */
#define MAX_CALLBACKS 8

static struct
{
	RelcacheCallbackFunction forget;
	Datum		arg;
}			callbacks[MAX_CALLBACKS];

static int	ncallbacks = 0;

static void
pass_on(Datum arg, Oid relid)
{
	for (int i = 0; i < ncallbacks; i++)
		callbacks[i].forget(callbacks[i].arg, relid);
}

/*
 * InvalidationRegister - has a function called with arg and the table's OID (or
 * InvalidOid for all) whenever one may have changed, for as long as the backend
 * lives.  The function must neither fail nor look at catalogs.
 */
void
InvalidationRegister(RelcacheCallbackFunction forget, Datum arg)
{
	if (ncallbacks == MAX_CALLBACKS)
		elog(ERROR, "no room for another relcache callback");
	callbacks[ncallbacks].forget = forget;
	callbacks[ncallbacks].arg = arg;
	if (ncallbacks++ == 0)
		CacheRegisterRelcacheCallback(pass_on, (Datum) 0);
}
