/*-------------------------------------------------------------------------
 *
 * extend.c
 *	  Renewing the lease of a claim: idem_extend.
 *
 * A deadline never moves back.  The row is written in any case: in a
 * transaction with business writes, that is what keeps a takeover out until
 * the commit.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "errors.h"
#include "extend.h"
#include "fmgr.h"
#include "isolation.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_extend);

/*
 * ExtendFillLease - the row with its lease renewed; lease is NULL for the
 * claim's own.
 */
void
ExtendFillLease(const LogRow *row, const Interval *lease, Datum *values,
				bool *nulls)
{
	Interval   *span = DatumGetIntervalP(row->values[LOG_LEASE]);
	Interval   *ttl = DatumGetIntervalP(row->values[LOG_TTL]);
	TimestampTz until = ClockAdd(ClockNow(), lease ? lease : span);

	LogCopyRow(row, values, nulls);

	LogNoteHolder(values, nulls);
	until = Max(until, LogRowTime(row, LOG_LOCKED_UNTIL, DT_NOBEGIN));
	values[LOG_LOCKED_UNTIL] = TimestampTzGetDatum(until);
	nulls[LOG_LOCKED_UNTIL] = false;
	values[LOG_EXPIRES_AT] = TimestampTzGetDatum(ClockAdd(until, ttl));
	nulls[LOG_EXPIRES_AT] = false;
}

/*
 * ExtendTry - renews the lease of the holder's claim; anything but
 * HOLDER_HOLDS says why it was not done.  row is what was found, pinned.
 */
HolderVerdict
ExtendTry(Log *log, const Holder *holder, const Interval *lease, LogRow *row,
		  TimestampTz *locked_until)
{
	Datum		values[LOG_NATTS];
	bool		nulls[LOG_NATTS];

	for (;;)
	{
		HolderVerdict verdict = HolderFindOngoing(log, holder, row);

		if (verdict != HOLDER_HOLDS)
			return verdict;

		PreventCommandIfReadOnly("idem_extend()");
		ExtendFillLease(row, lease, values, nulls);
		if (LogUpdate(log, row, values, nulls) == LOG_WRITTEN)
			break;
		IsolationCheck();
	}
	HolderNoteWrite(row);
	*locked_until = DatumGetTimestampTz(values[LOG_LOCKED_UNTIL]);
	return HOLDER_HOLDS;
}

/*
 * idem_extend(request_id text, lease interval, token bigint, scope text)
 * returns timestamptz
 */
Datum
idem_extend(PG_FUNCTION_ARGS)
{
	Holder		holder = HolderFromArgs(fcinfo, 2, 3);
	Interval   *lease = RequestPositiveInterval(fcinfo, 1, "lease");
	TimestampTz locked_until = 0;
	HolderVerdict verdict;
	LogRow		row;
	Log			log;

	LogOpen(&log);
	holder.policy = ScopeEnter(holder.key.scope);
	verdict = ExtendTry(&log, &holder, lease, &row, &locked_until);
	if (verdict == HOLDER_ENDED)
		HolderRaiseEnded(&holder, &row, false);
	if (verdict != HOLDER_HOLDS)
		HolderRaise(&holder, verdict, &row);
	LogClose(&log);
	PG_RETURN_TIMESTAMPTZ(locked_until);
}
