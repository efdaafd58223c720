/*-------------------------------------------------------------------------
 *
 * history.c
 *	  Keeping changes of state of the requests of a scope that asks for it.
 *
 * An entry is written in the transaction of its change and goes with the life
 * of the key.  How many there are stands in the request's own row, so that
 * removing a key without history costs nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog.h"
#include "catalog/indexing.h"
#include "clock.h"
#include "history.h"
#include "miscadmin.h"
#include "tuple.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* Columns of idempotency_history, in the table's order. */
typedef enum HistoryColumn
{
	HISTORY_SCOPE,
	HISTORY_REQUEST_ID,
	HISTORY_LIFE,
	HISTORY_ORDINAL,
	HISTORY_TOKEN,
	HISTORY_CHANGED_AT,
	HISTORY_CHANGED_BY,
	HISTORY_FROM_STATUS,
	HISTORY_TO_STATUS,
	HISTORY_ATTEMPT,
	HISTORY_ERROR,
	HISTORY_NATTS
} HistoryColumn;

/*
 * HistoryCount - notes in a row that is about to be written that its change
 * will have an entry.
 */
void
HistoryCount(const ScopePolicy *policy, Datum *values, bool *nulls)
{
	const LogRow row = {.values = values,.nulls = nulls};

	if (unlikely(policy->history))
		LogSetCount(values, nulls, LOG_CHANGES,
					LogRowInt32(&row, LOG_CHANGES) + 1);
}

static bool
is_failed(const Datum *values)
{
	const LogRow row = {.values = unconstify(Datum *, values)};

	return LogRowStatus(&row) == LOG_FAILED;
}

/*
 * HistoryRecord - writes the entry of a change; before is the version that was
 * replaced (NULL for a new life), values the new one.
 */
void
HistoryRecord(const ScopePolicy *policy, const LogRow *before,
			  const Datum *values, const bool *nulls)
{
	Datum		entry[HISTORY_NATTS];
	bool		entry_nulls[HISTORY_NATTS] = {false};
	Relation	rel;

	if (likely(!policy->history))
		return;

	entry[HISTORY_SCOPE] = values[LOG_SCOPE];
	entry[HISTORY_REQUEST_ID] = values[LOG_REQUEST_ID];
	entry[HISTORY_LIFE] = values[LOG_LIFE];
	entry[HISTORY_ORDINAL] = values[LOG_CHANGES];
	entry[HISTORY_TOKEN] = values[LOG_TOKEN];
	entry[HISTORY_CHANGED_AT] = TimestampTzGetDatum(ClockNow());
	entry[HISTORY_CHANGED_BY] =
		CStringGetTextDatum(GetUserNameFromId(GetUserId(), false));
	entry_nulls[HISTORY_FROM_STATUS] = before == NULL;
	if (before != NULL)
		entry[HISTORY_FROM_STATUS] = before->values[LOG_STATUS];
	entry[HISTORY_TO_STATUS] = values[LOG_STATUS];
	entry[HISTORY_ATTEMPT] = values[LOG_ATTEMPT];

	/* The row keeps the error of the last failure while the next one runs. */
	entry_nulls[HISTORY_ERROR] = nulls[LOG_ERROR] || !is_failed(values);
	entry[HISTORY_ERROR] = values[LOG_ERROR];

	rel = table_open(CatalogTable(IDEM_TABLE_HISTORY), RowExclusiveLock);
	TupleInsert(rel, HISTORY_NATTS, entry, entry_nulls);
	table_close(rel, NoLock);
}
