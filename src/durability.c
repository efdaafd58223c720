/*-------------------------------------------------------------------------
 *
 * durability.c
 *	  What the end of a transaction owes to the claims in it.
 *
 * A transaction that only claims and finishes the same request may commit
 * asynchronously, if its caller likes: losing it loses everything it did.
 * Others may not.  A claim, lease or checkpoint that is left behind was the
 * reason for work outside that cannot be lost with it; and losing the end of
 * an earlier claim would grant it a second time.  They commit durably whatever
 * synchronous_commit says.
 *
 * All that has to be known is one counter (claims made here and not ended)
 * and one flag per level of subtransaction, as each level can be rolled back
 * by itself.  Levels without any are not kept.  The levels live in
 * TopTransactionContext and are forgotten with the transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "durability.h"
#include "settings.h"
#include "utils/memutils.h"

typedef struct Level
{
	int			nest_level;
	int64		open_claims;	/* may be negative: ended a parent's */
	bool		must_flush;
	RequestKey	last_claim;		/* request_id is NULL where there is none */
	struct Level *parent;
} Level;

/* Innermost level that has anything to say; NULL mostly. */
static Level *innermost = NULL;

/* The level of the present subtransaction. */
static Level *
present_level(void)
{
	int			nest_level = GetCurrentTransactionNestLevel();

	if (innermost == NULL || innermost->nest_level < nest_level)
	{
		Level	   *level = MemoryContextAllocZero(TopTransactionContext,
												   sizeof(Level));

		level->nest_level = nest_level;
		level->parent = innermost;
		innermost = level;
	}
	return innermost;
}

static text *
copy_text(const text *value)
{
	return memcpy(MemoryContextAlloc(TopTransactionContext, VARSIZE_ANY(value)),
				  value, VARSIZE_ANY(value));
}

static void
forget_last_claim(Level *level)
{
	if (level->last_claim.request_id == NULL)
		return;
	pfree(level->last_claim.scope);
	pfree(level->last_claim.request_id);
	level->last_claim.request_id = NULL;
}

/*
 * DurabilityClaimMade - this transaction made a claim.
 */
void
DurabilityClaimMade(const RequestKey *key)
{
	Level	   *level = present_level();

	level->open_claims++;
	forget_last_claim(level);
	level->last_claim.scope = copy_text(key->scope);
	level->last_claim.request_id = copy_text(key->request_id);
}

/*
 * DurabilityLastClaim - the request that this transaction claimed last, ended
 * or not; NULL where it claimed none.  Good until the next claim.
 */
const RequestKey *
DurabilityLastClaim(void)
{
	for (Level *level = innermost; level != NULL; level = level->parent)
	{
		if (level->last_claim.request_id != NULL)
			return &level->last_claim;
	}
	return NULL;
}

/*
 * DurabilityClaimEnded - this transaction ended a claim that it made.
 */
void
DurabilityClaimEnded(void)
{
	present_level()->open_claims--;
}

/*
 * DurabilityRequireFlush - this transaction must commit durably: it changed
 * the claim of an earlier one.
 */
void
DurabilityRequireFlush(void)
{
	present_level()->must_flush = true;
}

/* Before the commit or the prepare, while an error can still stop it. */
static void
before_commit(void)
{
	Assert(innermost == NULL || innermost->parent == NULL);
	if (innermost == NULL)
		return;

	if (innermost->open_claims > 0 &&
		idem_unfinished_at_commit != UNFINISHED_ALLOW)
		ereport(idem_unfinished_at_commit == UNFINISHED_ERROR ? ERROR : WARNING,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("transaction commits with an unfinished idempotency claim"),
				 errdetail_plural("%lld request was claimed and not ended.",
								  "%lld requests were claimed and not ended.",
								  (unsigned long) innermost->open_claims,
								  (long long) innermost->open_claims),
				 errhint("Call idem_finish(), idem_fail() or idem_release() before COMMIT, or set \"%s\" to \"%s\" where the work goes on outside.",
						 "idempotency.unfinished_at_commit", "allow")));

	if (innermost->open_claims > 0 || innermost->must_flush)
		ForceSyncCommit();
}

static void
at_transaction_event(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			before_commit();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			innermost = NULL;
			break;
		default:
			break;
	}
}

/* Hands a committed subtransaction's level to its parent. */
static void
merge_into_parent(void)
{
	Level	   *level = innermost;
	int			parent_nest_level = level->nest_level - 1;

	if (level->parent != NULL &&
		level->parent->nest_level == parent_nest_level)
	{
		level->parent->open_claims += level->open_claims;
		level->parent->must_flush |= level->must_flush;
		if (level->last_claim.request_id != NULL)
		{
			forget_last_claim(level->parent);
			level->parent->last_claim = level->last_claim;
		}
		innermost = level->parent;
		pfree(level);
	}
	else
		level->nest_level = parent_nest_level;
}

static void
at_subtransaction_event(SubXactEvent event, SubTransactionId my_id,
						SubTransactionId parent_id, void *arg)
{
	if (innermost == NULL ||
		innermost->nest_level < GetCurrentTransactionNestLevel())
		return;

	if (event == SUBXACT_EVENT_COMMIT_SUB)
		merge_into_parent();
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		Level	   *level = innermost;

		innermost = level->parent;
		forget_last_claim(level);
		pfree(level);
	}
}

/*
 * DurabilityInit - registers the callbacks; once, when the library is loaded.
 */
void
DurabilityInit(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
	RegisterSubXactCallback(at_subtransaction_event, NULL);
}
