/*-------------------------------------------------------------------------
 *
 * scope.c
 *	  The policy in force for a scope: its own definition, else that of the
 *	  nearest parent, else the settings.
 *
 * Resolved policies are cached for the backend, in a bounded table that is
 * thrown away as a whole when a definition changes.  Callers get a copy, so
 * that a message that arrives while a claim is carried out cannot pull the
 * policy from under it.
 *
 * An owner closes a scope and everything below it: a definition of a child
 * that names no owner of its own keeps that of its parents, since a more
 * detailed policy must not open a door by accident.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog.h"
#include "clock.h"
#include "common/hashfn.h"
#include "compat.h"
#include "definition.h"
#include "invalidation.h"
#include "miscadmin.h"
#include "scope.h"
#include "settings.h"
#include "stat.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* Scopes kept at once; tenants may be many, a backend sees few at a time. */
#define SCOPE_CACHE_MAX 1024

typedef struct ScopeKey
{
	const char *data;
	int			len;
} ScopeKey;

typedef struct ScopeEntry
{
	ScopeKey	key;
	ScopePolicy policy;
	char		status;
} ScopeEntry;

#define SH_PREFIX scopecache
#define SH_ELEMENT_TYPE ScopeEntry
#define SH_KEY_TYPE ScopeKey
#define SH_KEY key
#define SH_HASH_KEY(tb, k) hash_bytes((const unsigned char *) (k).data, (k).len)
#define SH_EQUAL(tb, a, b) \
	((a).len == (b).len && memcmp((a).data, (b).data, (a).len) == 0)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* Owns the cache; NULL while nothing is cached. */
static MemoryContext cache_context = NULL;
static scopecache_hash * cache = NULL;

/* Table that the cache was read from, to know whose messages concern it. */
static Oid	cached_table = InvalidOid;
static bool callback_registered = false;

static void
forget_policies(Datum arg, Oid relid)
{
	if (relid != InvalidOid && relid != cached_table)
		return;
	if (cache_context != NULL)
		MemoryContextDelete(cache_context);
	cache_context = NULL;
	cache = NULL;
	cached_table = InvalidOid;
}

static void
start_cache(Oid table)
{
	if (!callback_registered)
	{
		InvalidationRegister(forget_policies, (Datum) 0);
		callback_registered = true;
	}
	cache_context = AllocSetContextCreate(CacheMemoryContext,
										  "idempotency scopes",
										  ALLOCSET_SMALL_SIZES);
	cache = scopecache_create(cache_context, 32, NULL);
	cached_table = table;
}

/* One definition's column as an interval; false where it says nothing. */
static bool
interval_column(HeapTuple tuple, TupleDesc desc, ScopeColumn column,
				Interval *span)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, column + 1, desc, &isnull);

	if (!isnull)
		*span = *DatumGetIntervalP(value);
	return !isnull;
}

/* Reads the definition of one scope into a policy, but for its owner. */
static void
read_policy(HeapTuple tuple, TupleDesc desc, ScopePolicy *policy)
{
	bool		isnull;
	Datum		value;

	policy->has_ttl = interval_column(tuple, desc, SCOPE_TTL, &policy->ttl);
	policy->has_lease = interval_column(tuple, desc, SCOPE_LEASE,
										&policy->lease);
	policy->has_wait = interval_column(tuple, desc, SCOPE_WAIT, &policy->wait);
	interval_column(tuple, desc, SCOPE_BACKOFF_BASE, &policy->backoff_base);
	interval_column(tuple, desc, SCOPE_BACKOFF_CAP, &policy->backoff_cap);

	value = heap_getattr(tuple, SCOPE_ON_LEASE_EXPIRY + 1, desc, &isnull);
	policy->manual = !isnull &&
		strcmp(TextDatumGetCString(value), "manual") == 0;
	value = heap_getattr(tuple, SCOPE_MAX_ATTEMPTS + 1, desc, &isnull);
	policy->max_attempts = isnull ? 0 : DatumGetInt32(value);
	value = heap_getattr(tuple, SCOPE_STORE_REQUEST + 1, desc, &isnull);
	policy->has_store_request = !isnull;
	policy->store_request = !isnull && DatumGetBool(value);
	value = heap_getattr(tuple, SCOPE_HISTORY + 1, desc, &isnull);
	policy->history = !isnull && DatumGetBool(value);
}

/*
 * The owner is a role of the server that the policy was defined on, whatever
 * its name has become since; on any other server, that is after a restore, it
 * is the role of that name.
 */
static void
read_owner(HeapTuple tuple, TupleDesc desc, ScopePolicy *policy)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, SCOPE_OWNER_NAME + 1, desc, &isnull);

	if (isnull)
		return;
	namestrcpy(&policy->owner, TextDatumGetCString(value));
	policy->has_owner = true;

	value = heap_getattr(tuple, SCOPE_OWNER_SYSTEM + 1, desc, &isnull);
	if (isnull || (uint64) DatumGetInt64(value) != GetSystemIdentifier())
		return;
	value = heap_getattr(tuple, SCOPE_OWNER_ROLE + 1, desc, &isnull);
	if (!isnull)
		policy->owner_role = DatumGetObjectId(value);
}

/* Length of the parent of a scope: up to its last slash, -1 above the root. */
static int
parent_length(const char *scope, int len)
{
	if (len == 0)
		return -1;
	while (len > 0 && scope[len - 1] != '/')
		len--;
	return Max(len - 1, 0);
}

/*
 * Reads a policy from the definitions: the nearest one decides, an owner is
 * looked for further up.
 */
static ScopePolicy
build_policy(Oid table, const char *scope, int scope_len)
{
	ScopePolicy policy = {0};
	bool		found = false;
	Relation	rel = table_open(table, AccessShareLock);

	policy.backoff_base.time = USECS_PER_SEC;
	policy.backoff_cap.time = 5 * USECS_PER_MINUTE;

	for (int len = scope_len; len >= 0 && !(found && policy.has_owner);
		 len = parent_length(scope, len))
	{
		text	   *name = cstring_to_text_with_len(scope, len);
		HeapTuple	tuple = DefinitionFind(rel, PointerGetDatum(name));

		if (tuple == NULL)
			continue;
		if (!found)
		{
			read_policy(tuple, RelationGetDescr(rel), &policy);
			policy.configured = len > 0 || scope_len == 0;
		}
		found = true;
		read_owner(tuple, RelationGetDescr(rel), &policy);
	}
	table_close(rel, AccessShareLock);
	policy.stat_slot = STAT_NOT_ASKED;
	return policy;
}

/*
 * ScopeLook - the policy of a scope, from the cache where it is known; for those
 * who merely look at requests: it may lack the slot that calls are counted in.
 *
 * A definition that another session commits is in force from the next call on,
 * also in a transaction that is open.  So the messages about changes are asked
 * for here: the server itself looks for them with the first lock on a table
 * only, and a transaction that already uses the log takes no such lock.
 */
ScopePolicy
ScopeLook(const text *scope)
{
	ScopeKey	key = {VARDATA_ANY(scope), VARSIZE_ANY_EXHDR(scope)};
	ScopeEntry *entry;
	ScopePolicy policy;
	Oid			table;
	bool		found;

	AcceptInvalidationMessages();
	if (likely(cache != NULL))
	{
		entry = scopecache_lookup(cache, key);
		if (likely(entry != NULL))
			return entry->policy;
	}

	table = CatalogTable(IDEM_TABLE_SCOPE);
	if (cache != NULL && cache->members >= SCOPE_CACHE_MAX)
		forget_policies((Datum) 0, InvalidOid);
	if (cache == NULL)
		start_cache(table);
	policy = build_policy(table, key.data, key.len);

	/* Reading may have absorbed a message that threw the cache away. */
	if (cache == NULL)
		return policy;
	key.data = memcpy(MemoryContextAlloc(cache_context, key.len + 1),
					  key.data, key.len);
	entry = scopecache_insert(cache, key, &found);
	entry->policy = policy;
	return policy;
}

/*
 * ScopeIsOpen - may the current user see and use a scope with this policy?
 */
bool
ScopeIsOpen(const ScopePolicy *policy)
{
	Oid			owner;

	if (likely(!policy->has_owner) || superuser())
		return true;
	owner = policy->owner_role;
	if (!OidIsValid(owner))
		owner = get_role_oid(NameStr(policy->owner), true);
	return OidIsValid(owner) && has_privs_of_role(GetUserId(), owner);
}

/*
 * Finds where a scope is counted, and remembers it.  Only what is used gets a
 * slot, not what is merely looked at or closed to the current user.
 */
static int
find_stat_slot(const text *scope)
{
	ScopeKey	key = {VARDATA_ANY(scope), VARSIZE_ANY_EXHDR(scope)};
	int			slot = StatFindSlot(key.data, key.len);
	ScopeEntry *entry = cache == NULL ? NULL : scopecache_lookup(cache, key);

	if (entry != NULL)
		entry->policy.stat_slot = slot;
	return slot;
}

/* Completes a policy by where its scope is counted. */
static ScopePolicy
with_stat_slot(const text *scope, ScopePolicy policy)
{
	if (unlikely(policy.stat_slot == STAT_NOT_ASKED))
		policy.stat_slot = find_stat_slot(scope);
	return policy;
}

/*
 * ScopeResolve - the policy of a scope, with the slot that it is counted in.
 */
ScopePolicy
ScopeResolve(const text *scope)
{
	return with_stat_slot(scope, ScopeLook(scope));
}

/*
 * ScopeEnterToLook - policy of a scope that the current user wants to look into
 * or to define; an error that says nothing about its contents where it is
 * closed to him.  Nothing of it is counted.
 */
ScopePolicy
ScopeEnterToLook(const text *scope)
{
	ScopePolicy policy = ScopeLook(scope);

	if (unlikely(!ScopeIsOpen(&policy)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for scope \"%s\"",
						text_to_cstring(scope)),
				 errdetail("The scope belongs to a role whose privileges the current user does not have.")));
	return policy;
}

/*
 * ScopeEnter - the same for a scope that he wants to work in, with the slot that
 * it is counted in.
 */
ScopePolicy
ScopeEnter(const text *scope)
{
	return with_stat_slot(scope, ScopeEnterToLook(scope));
}

/*
 * ScopeEnterForClaim - the same for calls that make new keys: enforces
 * idempotency.require_scope.
 */
ScopePolicy
ScopeEnterForClaim(const text *scope)
{
	ScopePolicy policy = ScopeEnter(scope);

	if (idem_require_scope == REQUIRE_SCOPE_NAMED &&
		VARSIZE_ANY_EXHDR(scope) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a scope is required"),
				 errdetail("Setting \"%s\" is \"%s\".",
						   "idempotency.require_scope", "named"),
				 errhint("Pass the scope argument.")));
	if (idem_require_scope == REQUIRE_SCOPE_CONFIGURED && !policy.configured)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("scope \"%s\" is not configured",
						text_to_cstring(scope)),
				 errdetail("Setting \"%s\" is \"%s\".",
						   "idempotency.require_scope", "configured"),
				 errhint("Define the scope with idem_configure(), or pass one that is defined.")));
	return policy;
}

/*
 * ScopeTtl - how long a finished request is replayed: the caller's word, else
 * the scope's, else the setting.
 */
Interval
ScopeTtl(const ScopePolicy *policy, const Interval *given)
{
	if (given != NULL)
		return *given;
	if (policy->has_ttl)
		return policy->ttl;
	return ClockInterval(idem_default_ttl_s * USECS_PER_SEC);
}

/*
 * ScopeLease - how long a committed claim is respected.
 */
Interval
ScopeLease(const ScopePolicy *policy, const Interval *given)
{
	if (given != NULL)
		return *given;
	if (policy->has_lease)
		return policy->lease;
	return ClockInterval(idem_default_lease_ms * INT64CONST(1000));
}

/*
 * ScopeWait - how long a claim waits for a request in flight.
 */
Interval
ScopeWait(const ScopePolicy *policy, const Interval *given)
{
	if (given != NULL)
		return *given;
	if (policy->has_wait)
		return policy->wait;
	return ClockInterval(idem_default_wait_ms * INT64CONST(1000));
}

/*
 * ScopeStoresRequest - is the body of a request kept with its claim?
 */
bool
ScopeStoresRequest(const ScopePolicy *policy)
{
	return policy->has_store_request ? policy->store_request :
		idem_store_request;
}

/*
 * ScopeMayNeedPerson - can a claim of this scope end with a lapsed lease that
 * a person has to decide about?
 */
bool
ScopeMayNeedPerson(const ScopePolicy *policy)
{
	return policy->manual || policy->max_attempts > 0;
}
