/*-------------------------------------------------------------------------
 *
 * backoff.c
 *	  How long to wait before the next attempt: exponential, capped, with
 *	  jitter so that callers that failed together do not come back together.
 *
 * The kinds of jitter are those of the "Exponential Backoff And Jitter" article
 * in the AWS Architecture Blog (M. Brooker, 2015).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"

#include "backoff.h"
#include "clock.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(idem_backoff);

/* base * 2 ^ (attempt - 1), at most cap, without overflow. */
static int64
exponential(int attempt, int64 base, int64 cap)
{
	int			doublings = Max(attempt, 1) - 1;

	if (base >= cap || doublings >= 63 || base > (cap >> doublings))
		return cap;
	return base << doublings;
}

/*
 * BackoffFor - pause after a failed attempt (from 1).
 *
 * Full jitter by default: all of the pause is random.
 */
Interval
BackoffFor(int attempt, const Interval *base, const Interval *cap,
		   BackoffJitter jitter)
{
	int64		whole = exponential(attempt,
									ClockIntervalMicroseconds(base),
									ClockIntervalMicroseconds(cap));
	int64		fixed = jitter == BACKOFF_NONE ? whole :
		jitter == BACKOFF_EQUAL ? whole / 2 : 0;
	uint64		random;

	random = pg_prng_uint64_range(&pg_global_prng_state, 0, whole - fixed);
	return ClockInterval(fixed + (int64) random);
}

static BackoffJitter
parse_jitter(const char *name)
{
	if (strcmp(name, "full") == 0)
		return BACKOFF_FULL;
	if (strcmp(name, "equal") == 0)
		return BACKOFF_EQUAL;
	if (strcmp(name, "none") == 0)
		return BACKOFF_NONE;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized jitter: \"%s\"", name),
			 errhint("Use \"full\", \"equal\" or \"none\".")));
}

static void
check_positive(const Interval *span, const char *name)
{
	if (!ClockIntervalIsPositive(span))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be positive", name)));
}

/*
 * idem_backoff(attempt int, base interval, cap interval, jitter text)
 * returns interval
 */
Datum
idem_backoff(PG_FUNCTION_ARGS)
{
	int			attempt = PG_GETARG_INT32(0);
	Interval   *base = PG_GETARG_INTERVAL_P(1);
	Interval   *cap = PG_GETARG_INTERVAL_P(2);
	BackoffJitter jitter = parse_jitter(text_to_cstring(PG_GETARG_TEXT_PP(3)));
	Interval   *result = (Interval *) palloc(sizeof(Interval));

	if (attempt < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("attempt must be at least 1"),
				 errhint("Pass the attempt that has just failed; the first one is 1.")));
	check_positive(base, "base");
	check_positive(cap, "cap");

	*result = BackoffFor(attempt, base, cap, jitter);
	PG_RETURN_INTERVAL_P(result);
}
