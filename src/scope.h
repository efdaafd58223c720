/*-------------------------------------------------------------------------
 *
 * scope.h
 *	  The policy in force for a scope.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_SCOPE_H
#define IDEM_SCOPE_H

#include "datatype/timestamp.h"
#include "fmgr.h"

/* Columns of idempotency_scope, in the table's order. */
typedef enum ScopeColumn
{
	SCOPE_SCOPE,
	SCOPE_TTL,
	SCOPE_LEASE,
	SCOPE_WAIT,
	SCOPE_ON_LEASE_EXPIRY,
	SCOPE_MAX_ATTEMPTS,
	SCOPE_BACKOFF_BASE,
	SCOPE_BACKOFF_CAP,
	SCOPE_STORE_REQUEST,
	SCOPE_HISTORY,
	SCOPE_OWNER_NAME,
	SCOPE_OWNER_ROLE,
	SCOPE_OWNER_SYSTEM,
	SCOPE_NATTS
} ScopeColumn;

/* A policy with every default filled in; a plain value, to be copied. */
typedef struct ScopePolicy
{
	bool		configured;		/* by itself or by a named parent */
	bool		manual;			/* on_lease_expiry = 'manual' */
	int			max_attempts;	/* 0 is unlimited */
	bool		has_ttl;
	bool		has_lease;
	bool		has_wait;
	bool		has_store_request;
	bool		store_request;
	bool		history;
	bool		has_owner;
	Interval	ttl;
	Interval	lease;
	Interval	wait;
	Interval	backoff_base;
	Interval	backoff_cap;
	NameData	owner;
	Oid			owner_role;		/* invalid where only its name is known */
	int			stat_slot;		/* where the scope is counted */
} ScopePolicy;

extern ScopePolicy ScopeLook(const text *scope);
extern ScopePolicy ScopeResolve(const text *scope);
extern bool ScopeIsOpen(const ScopePolicy *policy);
extern ScopePolicy ScopeEnterToLook(const text *scope);
extern ScopePolicy ScopeEnter(const text *scope);
extern ScopePolicy ScopeEnterForClaim(const text *scope);

extern Interval ScopeTtl(const ScopePolicy *policy, const Interval *given);
extern Interval ScopeLease(const ScopePolicy *policy, const Interval *given);
extern Interval ScopeWait(const ScopePolicy *policy, const Interval *given);
extern bool ScopeStoresRequest(const ScopePolicy *policy);
extern bool ScopeMayNeedPerson(const ScopePolicy *policy);

#endif							/* IDEM_SCOPE_H */
