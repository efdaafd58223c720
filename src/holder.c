/*-------------------------------------------------------------------------
 *
 * holder.c
 *	  Proof that a caller holds the claim that he wants to change.
 *
 * A token proves it, as long as it is the row's present one.  Without a token
 * the present version of the row must have been written by this very
 * transaction, which claimed the request or proved itself with the token
 * before.  That is read off the row, never off the session, so it is right
 * under savepoints and behind a pooler.  A claim that was given back is held by
 * nobody, whoever wrote the row.
 *
 * An uncommitted change of the row by somebody else is waited for, since only
 * its end tells whether the claim was taken over.  Whoever comes too late is
 * told so by an error, for his transaction's other writes must not survive.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "clock.h"
#include "durability.h"
#include "errors.h"
#include "holder.h"
#include "miscadmin.h"
#include "stat.h"
#include "state.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "wakeup.h"

/* Pause while somebody is just trying to insert the row. */
#define SPECULATION_PAUSE_US 1000

/*
 * HolderFromArgs - the holder named by a function's arguments; the key is the
 * first of them.
 */
Holder
HolderFromArgs(FunctionCallInfo fcinfo, int token_arg, int scope_arg)
{
	Holder		holder = {0};

	holder.key = RequestKeyFromArgs(fcinfo, 0, scope_arg);
	holder.has_token = !PG_ARGISNULL(token_arg);
	holder.token = holder.has_token ? PG_GETARG_INT64(token_arg) : 0;
	return holder;
}

/*
 * HolderAwaitOther - waits for the transaction that is at a row.
 *
 * The wait is for its end, as long as it takes: callers bound it with
 * lock_timeout or statement_timeout.
 */
void
HolderAwaitOther(Log *log, const LogRow *row)
{
	LogUnpin(log);
	if (row->sight == LOG_SIGHT_SPECULATIVE)
		pg_usleep(SPECULATION_PAUSE_US);
	else
		XactLockTableWait(row->other, NULL, NULL, XLTW_None);
}

/*
 * HolderAwaitRow - looks at a row when nobody else is changing it; what the
 * probe does not find may still be there.
 */
void
HolderAwaitRow(Log *log, const RequestKey *key, LogRow *row)
{
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		LogProbe(log, key, row);
		if (row->sight == LOG_SIGHT_COMMITTED ||
			row->sight == LOG_SIGHT_OWN || row->sight == LOG_SIGHT_NOTHING)
			return;
		HolderAwaitOther(log, row);
	}
}

/*
 * HolderFindRow - the same; LOG_SIGHT_NOTHING only where it is certain, and
 * 40001 where the version is not in the transaction's snapshot.
 */
void
HolderFindRow(Log *log, const RequestKey *key, LogRow *row)
{
	do
	{
		HolderAwaitRow(log, key, row);
		if (row->sight != LOG_SIGHT_NOTHING)
		{
			LogCheckSnapshot(log, row);
			return;
		}
	} while (LogIsThere(log, key));
}

/*
 * HolderJudge - judges the holder by a row that nobody else is changing.
 */
HolderVerdict
HolderJudge(const Holder *holder, const LogRow *row)
{
	bool		held = LogRowIsHeldHere(row);
	bool		open;

	if (!held && StateJudge(row, &holder->policy, ClockNow()) == STATE_ABSENT)
		return HOLDER_EXPIRED;
	if (holder->has_token && (LogRowInt64(row, LOG_TOKEN) != holder->token ||
							  LogRowIsReleased(row)))
		return HOLDER_STALE;
	if (!holder->has_token && (!held || LogRowIsReleased(row)))
		return HOLDER_NO_TOKEN;

	open = LogRowStatus(row) == LOG_PROCESSING ||
		LogRowStatus(row) == LOG_UNKNOWN;
	return open ? HOLDER_HOLDS : HOLDER_ENDED;
}

/*
 * HolderFind - finds the row of the claim and judges the holder by it.  What
 * he holds can then be written without waiting, so by the time it is now.
 */
HolderVerdict
HolderFind(Log *log, const Holder *holder, LogRow *row)
{
	HolderVerdict verdict;

	do
	{
		HolderFindRow(log, &holder->key, row);
		if (row->sight == LOG_SIGHT_NOTHING)
			return HOLDER_ABSENT;
		verdict = HolderJudge(holder, row);
	} while (verdict == HOLDER_HOLDS && LogAwaitLocks(log, row));
	if (verdict == HOLDER_STALE)
		StatCount(holder->policy.stat_slot, STAT_STALE, 1);
	return verdict;
}

/*
 * HolderJudgeOngoing - judges further what goes on with the work: a claim that
 * a person is asked about may be ended by its holder, but not gone on with as
 * if nothing had been, whether its row was turned already or not.
 */
HolderVerdict
HolderJudgeOngoing(const Holder *holder, const LogRow *row,
				   HolderVerdict verdict)
{
	if (verdict == HOLDER_HOLDS &&
		(!LogRowIsHeldHere(row) || LogRowStatus(row) == LOG_UNKNOWN) &&
		StateJudge(row, &holder->policy, ClockNow()) == STATE_UNKNOWN)
		return HOLDER_UNKNOWN;
	return verdict;
}

/*
 * HolderFindOngoing - finds the row and judges the holder so.
 */
HolderVerdict
HolderFindOngoing(Log *log, const Holder *holder, LogRow *row)
{
	HolderVerdict verdict = HolderFind(log, holder, row);

	return HolderJudgeOngoing(holder, row, verdict);
}

/*
 * HolderRaise - tells one who does not hold the claim why not; row is what was
 * found, NULL where there is nothing.
 */
void
HolderRaise(const Holder *holder, HolderVerdict verdict, const LogRow *row)
{
	char	   *request = RequestDescribe(&holder->key);

	switch (verdict)
	{
		case HOLDER_STALE:
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_STALE_TOKEN),
					 errmsg("idempotency claim is stale"),
					 errdetail("%s was taken over, settled or given back since, or never claimed under this token; its status is \"%s\".",
							   request, LogStatusName(LogRowStatus(row))),
					 errhint("Roll back, and claim the request again to learn its outcome.")));
			break;
		case HOLDER_ABSENT:
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_NOT_CLAIMED),
					 errmsg("request is not claimed"),
					 errdetail("%s does not exist.", request),
					 errhint("Roll back and claim the request first.")));
			break;
		case HOLDER_EXPIRED:
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_NOT_CLAIMED),
					 errmsg("request is not claimed"),
					 errdetail("%s has expired.", request),
					 errhint("Roll back and claim the request again.")));
			break;
		case HOLDER_NO_TOKEN:
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_NOT_CLAIMED),
					 errmsg("request is not claimed"),
					 errdetail("%s was not claimed in this transaction, and no token was given; its status is \"%s\".",
							   request, LogStatusName(LogRowStatus(row))),
					 errhint("Pass the token that idem_claim() returned.")));
			break;
		case HOLDER_UNKNOWN:
			ereport(ERROR,
					(errcode(ERRCODE_IDEM_NOT_CLAIMED),
					 errmsg("request is of unknown outcome"),
					 errdetail("%s may have taken effect, and a person must decide.",
							   request),
					 errhint("Record the outcome with idem_finish() or idem_fail(); without it, a person settles it with idem_resolve().")));
			break;
		case HOLDER_HOLDS:
		case HOLDER_ENDED:
			break;
	}
	elog(ERROR, "unexpected verdict about a claim: %d", (int) verdict);
}

/*
 * HolderRaiseEnded - tells the holder of a claim that has ended that what he
 * wants comes too late; different: he wants another end.
 */
void
HolderRaiseEnded(const Holder *holder, const LogRow *row, bool different)
{
	char	   *request = RequestDescribe(&holder->key);
	const char *status = LogStatusName(LogRowStatus(row));

	ereport(ERROR,
			(errcode(ERRCODE_IDEM_ALREADY_FINISHED),
			 errmsg("request is already finished"),
			 different ?
			 errdetail("%s was ended with a different result; its status is \"%s\".",
					   request, status) :
			 errdetail("%s was ended before; its status is \"%s\".",
					   request, status),
			 errhint("Roll back. Claim the request again to read the result that counts.")));
	pg_unreachable();
}

/*
 * HolderNoteWrite - tells the end of the transaction what a write to a claim
 * owes to it; row is the version that was replaced.
 */
void
HolderNoteWrite(const LogRow *row)
{
	if (!LogRowIsOwnClaim(row))
		DurabilityRequireFlush();
}

/*
 * HolderNoteEnd - the same for a write that ends a claim; who waits for it is
 * woken at the commit.
 */
void
HolderNoteEnd(const RequestKey *key, const LogRow *row)
{
	HolderNoteWrite(row);
	if (!LogRowIsOwnClaim(row))
		WakeupAtCommit(key);
	else if (LogRowStatus(row) == LOG_PROCESSING)
		DurabilityClaimEnded();
}
