/*-------------------------------------------------------------------------
 *
 * inbox.c
 *	  The inbox of an at-least-once queue: idem_once and its relatives.
 *
 * A message is recorded in the transaction that handles it, so it is handled
 * exactly once: by the transaction that commits.  Unlike a claim, recording
 * waits for an uncommitted duplicate, as an INSERT does: to answer "seen"
 * early would lose the message when the other transaction rolls back.
 *
 * Races: two that record at once are told apart by the unique index; the
 * loser finds the winner's row, waits for its transaction and looks again.
 * An expired row is taken over by an update, which waits and looks again in
 * the same way.  Batches record in bytewise order and so wait in one direction
 * only.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "batch.h"
#include "catalog/pg_type.h"
#include "clock.h"
#include "fmgr.h"
#include "holder.h"
#include "isolation.h"
#include "log.h"
#include "miscadmin.h"
#include "result.h"
#include "scope.h"
#include "settings.h"
#include "stat.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_once);
PG_FUNCTION_INFO_V1(idem_once_many);
PG_FUNCTION_INFO_V1(idem_once_undo);

/* Columns of idempotency_inbox, in the table's order. */
typedef enum InboxColumn
{
	INBOX_RECEIVED_AT,
	INBOX_EXPIRES_AT,
	INBOX_SCOPE,
	INBOX_MESSAGE_ID,
	INBOX_NATTS
} InboxColumn;

static void
open_inbox(Log *inbox)
{
	LogOpenTable(inbox, IDEM_TABLE_INBOX, INBOX_NATTS);
}

/* How long a message is remembered. */
static Interval
retention(const ScopePolicy *policy, const Interval *given)
{
	if (given != NULL)
		return *given;
	if (policy->has_ttl)
		return policy->ttl;
	return ClockInterval(idem_default_once_ttl_s * USECS_PER_SEC);
}

static bool
is_expired(const LogRow *row, TimestampTz now)
{
	return DatumGetTimestampTz(row->values[INBOX_EXPIRES_AT]) <= now;
}

/* Writes a message down as new; false where it is to be looked at again. */
static bool
write_message(Log *inbox, const RequestKey *key, const LogRow *row,
			  const Interval *ttl, TimestampTz now)
{
	Datum		values[INBOX_NATTS];
	bool		nulls[INBOX_NATTS] = {false};

	PreventCommandIfReadOnly("idem_once()");
	values[INBOX_RECEIVED_AT] = TimestampTzGetDatum(now);
	values[INBOX_EXPIRES_AT] = TimestampTzGetDatum(ClockAdd(now, ttl));
	values[INBOX_SCOPE] = PointerGetDatum(key->scope);
	values[INBOX_MESSAGE_ID] = PointerGetDatum(key->request_id);

	if (row->sight == LOG_SIGHT_NOTHING)
		return LogInsert(inbox, values, nulls);
	if (LogUpdate(inbox, row, values, nulls) == LOG_WRITTEN)
		return true;
	IsolationCheck();
	return false;
}

/*
 * Records a message; true where it is new.
 *
 * A lost insert is looked for in every unique index, since the winner may be
 * in another one while the key's index is being rebuilt.
 */
static bool
record_message(Log *inbox, const RequestKey *key, const Interval *ttl)
{
	bool		lost = false;

	for (;;)
	{
		TimestampTz now;
		LogRow		row;

		HolderAwaitRow(inbox, key, &row);
		if (row.sight == LOG_SIGHT_NOTHING && lost)
			LogProbeAllIndexes(inbox, key, &row);
		now = ClockNow();
		if (row.sight == LOG_SIGHT_COMMITTED || row.sight == LOG_SIGHT_OWN)
		{
			LogCheckSnapshot(inbox, &row);
			if (!is_expired(&row, now))
				return false;
		}
		else if (row.sight != LOG_SIGHT_NOTHING)
		{
			HolderAwaitOther(inbox, &row);
			continue;
		}
		if (write_message(inbox, key, &row, ttl, now))
			return true;
		lost = true;
	}
}

static void
count_message(const ScopePolicy *policy, bool is_new)
{
	StatCount(policy->stat_slot,
			  is_new ? STAT_MESSAGES : STAT_DUPLICATE_MESSAGES, 1);
}

/*
 * idem_once(message_id text, scope text, ttl interval) returns boolean
 */
Datum
idem_once(PG_FUNCTION_ARGS)
{
	RequestKey	key = RequestKeyFromArgs(fcinfo, 0, 1);
	Interval   *given = RequestPositiveInterval(fcinfo, 2, "ttl");
	ScopePolicy policy;
	Interval	ttl;
	Log			inbox;
	bool		is_new;

	open_inbox(&inbox);
	policy = ScopeEnterForClaim(key.scope);
	ttl = retention(&policy, given);
	is_new = record_message(&inbox, &key, &ttl);
	count_message(&policy, is_new);
	LogClose(&inbox);
	PG_RETURN_BOOL(is_new);
}

/* Records all messages of a batch; flags those that are new. */
static void
record_batch(const Batch *batch, text *scope, const ScopePolicy *policy,
			 const Interval *ttl, bool *is_new)
{
	MemoryContext per_message = AllocSetContextCreate(CurrentMemoryContext,
													  "idempotency message",
													  ALLOCSET_SMALL_SIZES);
	Log			inbox;

	open_inbox(&inbox);
	LogBeginBatch(&inbox);
	for (int i = 0; i < batch->n; i++)
	{
		int			at = batch->order[i];
		RequestKey	key = {scope, BatchId(batch, at)};
		MemoryContext context = MemoryContextSwitchTo(per_message);

		if (BatchRepeats(batch, i))
			LogSeeWrites(&inbox);
		is_new[at] = record_message(&inbox, &key, ttl);
		count_message(policy, is_new[at]);
		MemoryContextSwitchTo(context);
		MemoryContextReset(per_message);
	}
	LogClose(&inbox);
	MemoryContextDelete(per_message);
}

/*
 * idem_once_many(message_ids text[], scope text, ttl interval)
 * returns setof text - the ones that are new, in the order of the array
 */
Datum
idem_once_many(PG_FUNCTION_ARGS)
{
	Batch		batch = BatchFromArg(fcinfo, 0);
	text	   *scope = RequestCheckScope(PG_ARGISNULL(1) ? NULL :
										  PG_GETARG_TEXT_PP(1));
	Interval   *given = RequestPositiveInterval(fcinfo, 2, "ttl");
	ReturnSetInfo *rsinfo;
	ScopePolicy policy;
	Interval	ttl;
	bool	   *is_new;

	ResultInitSet(fcinfo);
	rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	policy = ScopeEnterForClaim(scope);
	ttl = retention(&policy, given);
	BatchSort(&batch);
	is_new = (bool *) palloc(batch.n + 1);
	record_batch(&batch, scope, &policy, &ttl, is_new);

	for (int i = 0; i < batch.n; i++)
	{
		bool		isnull = false;

		if (is_new[i])
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc,
								 &batch.ids.values[i], &isnull);
	}
	return (Datum) 0;
}

/*
 * idem_once_undo(message_ids text[], scope text) returns bigint - how many
 * were taken back of those that this transaction recorded
 */
Datum
idem_once_undo(PG_FUNCTION_ARGS)
{
	Batch		batch = BatchFromArg(fcinfo, 0);
	text	   *scope = RequestCheckScope(PG_ARGISNULL(1) ? NULL :
										  PG_GETARG_TEXT_PP(1));
	int64		nundone = 0;
	Log			inbox;

	open_inbox(&inbox);
	LogBeginBatch(&inbox);
	(void) ScopeEnter(scope);
	for (int i = 0; i < batch.n; i++)
	{
		RequestKey	key = {scope, BatchId(&batch, i)};
		LogRow		row;

		CHECK_FOR_INTERRUPTS();
		LogProbe(&inbox, &key, &row);
		if (row.sight != LOG_SIGHT_OWN)
			continue;
		PreventCommandIfReadOnly("idem_once_undo()");
		if (LogDelete(&inbox, &row) == LOG_WRITTEN)
			nundone++;
	}
	LogClose(&inbox);
	PG_RETURN_INT64(nundone);
}
