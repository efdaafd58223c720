/*-------------------------------------------------------------------------
 *
 * clock.c
 *	  Times, intervals and fencing tokens.
 *
 * Expiry is judged by the clock at the call, never by the start of the
 * transaction: a transaction may be older than the lease it is about to
 * judge.  Tests may fix that clock.  Tokens do not follow the fixed clock:
 * they must grow over the whole history of a key, also where nothing of that
 * history is stored any more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "common/int.h"
#include "settings.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* Microseconds from 1970 to 2000, where PostgreSQL's own time begins. */
#define UNIX_TO_POSTGRES_US \
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)

/*
 * ClockNow - the time that leases, backoff and expiry are judged by.
 */
TimestampTz
ClockNow(void)
{
	TimestampTz now;

	if (SettingsTestClock(&now))
		return now;
	return GetCurrentTimestamp();
}

/*
 * ClockNextToken - a fencing token greater than any that a key ever had.
 *
 * stored is the token in the key's row, 0 where there is none.  The clock
 * carries the order over gaps in which the row is absent (purged, or lost
 * with the last commits in a failover), the stored token carries it over a
 * clock set back.
 */
int64
ClockNextToken(int64 stored)
{
	int64		clock = GetCurrentTimestamp() + UNIX_TO_POSTGRES_US;

	return Max(clock, stored + 1);
}

/*
 * ClockAdd - base + span; later than every time there is means infinity.
 *
 * Spans of days and months follow the calendar of the session's time zone.
 */
TimestampTz
ClockAdd(TimestampTz base, const Interval *span)
{
	if (likely(span->month == 0 && span->day == 0))
	{
		TimestampTz result;

		if (TIMESTAMP_NOT_FINITE(base))
			return base;
		if (pg_add_s64_overflow(base, span->time, &result) ||
			!IS_VALID_TIMESTAMP(result))
			return DT_NOEND;
		return result;
	}

	/* Months are longer than 30 days: stay well below what the server adds. */
	if (TIMESTAMP_NOT_FINITE(base) ||
		ClockIntervalMicroseconds(span) >= (END_TIMESTAMP - base) / 100 * 95)
		return DT_NOEND;
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												   TimestampTzGetDatum(base),
												   PointerGetDatum(span)));
}

/*
 * ClockInterval - a span of microseconds as an interval.
 */
Interval
ClockInterval(int64 microseconds)
{
	Interval	span = {0};

	span.time = microseconds;
	return span;
}

/*
 * ClockCoarse - a time to the second, for what is shown of a live claim: its
 * exact time would be its token.  A fixed clock tells nothing about tokens.
 */
TimestampTz
ClockCoarse(TimestampTz time)
{
	TimestampTz rest;

	if (TIMESTAMP_NOT_FINITE(time) || SettingsTestClock(&rest))
		return time;
	rest = time % USECS_PER_SEC;
	return time - (rest < 0 ? rest + USECS_PER_SEC : rest);
}

/*
 * ClockIntervalBetween - what is left from one time to another, at least
 * zero, rounded up to milliseconds (see ClockCoarse); palloc'd.  NULL where
 * there is no end.
 */
Interval *
ClockIntervalBetween(TimestampTz from, TimestampTz to)
{
	Interval   *span;
	int64		left = Max(to - from, 0);

	if (TIMESTAMP_NOT_FINITE(to))
		return NULL;
	if (!SettingsTestClock(&from))
		left = (left + 999) / 1000 * 1000;
	span = (Interval *) palloc(sizeof(Interval));
	*span = ClockInterval(left);
	return span;
}

/* Compares with zero by the server's own order of intervals. */
static int
sign_of_interval(const Interval *span)
{
	Interval	zero = {0};

	return DatumGetInt32(DirectFunctionCall2(interval_cmp,
											 PointerGetDatum(span),
											 PointerGetDatum(&zero)));
}

/*
 * ClockIntervalIsPositive - longer than nothing?
 */
bool
ClockIntervalIsPositive(const Interval *span)
{
	return sign_of_interval(span) > 0;
}

/*
 * ClockIntervalIsNegative - shorter than nothing?
 */
bool
ClockIntervalIsNegative(const Interval *span)
{
	return sign_of_interval(span) < 0;
}

/*
 * ClockIntervalMicroseconds - length of a span, a day being 24 hours and a
 * month 30 days; saturates.
 */
int64
ClockIntervalMicroseconds(const Interval *span)
{
	int64		days = (int64) span->month * DAYS_PER_MONTH + span->day;
	int64		result;

	if (pg_mul_s64_overflow(days, USECS_PER_DAY, &result) ||
		pg_add_s64_overflow(result, span->time, &result))
		return days < 0 ? PG_INT64_MIN : PG_INT64_MAX;
	return result;
}
