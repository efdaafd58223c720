/*-------------------------------------------------------------------------
 *
 * steps.c
 *	  Functions in order, each in a transaction of its own: the procedure
 *	  idem_batch.
 *
 * The transactions of a batch: claim; then for each step, renew the claim,
 * call the function, record its checkpoint; then finish.  A crash at any point
 * leaves the steps that were committed, and the next call goes on behind them.
 *
 * While a step runs, its transaction has the claim's row written but not
 * committed, so everybody else is told in_progress, however long it takes and
 * whatever the lease says.  The lease only has to cover the gaps between the
 * transactions; and should it not, the next renewal finds the claim taken over
 * and stops the batch.
 *
 * A step that raises, or whose commit fails, rolls its own transaction back.  A
 * further one then ends the claim with a failure that may be retried at once,
 * so that the batch can be called again without waiting for the lease.
 *
 * Memory: everything that has to outlive the commits is in a context below
 * PortalContext, which lives as long as the CALL; a step works in one that is
 * reset after it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "batch.h"
#include "catalog/pg_type.h"
#include "checkpoint.h"
#include "claim.h"
#include "durability.h"
#include "errors.h"
#include "executor/spi.h"
#include "extend.h"
#include "finish.h"
#include "handler.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "run.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/resowner.h"

PG_FUNCTION_INFO_V1(idem_batch);

/* A batch from its first to its last transaction. */
typedef struct Steps
{
	MemoryContext context;		/* of this and all that it points to */
	RequestKey	key;
	Jsonb	   *body;			/* NULL where there is none */
	char	  **names;			/* schema.function */
	int			nsteps;
	int64		token;
	int64		life;
	int32		attempt;
} Steps;

/* A transaction of a procedure can be ended only outside of any other. */
static void
check_autocommit(FunctionCallInfo fcinfo)
{
	CallContext *context = (CallContext *) fcinfo->context;

	if (context == NULL || !IsA(context, CallContext) || context->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("idem_batch cannot be called in a transaction block"),
				 errdetail("It commits after each step."),
				 errhint("Call it by itself, with autocommit on.")));
}

static void *
copy_varlena(MemoryContext context, const void *value)
{
	Size		size = VARSIZE_ANY(value);

	return memcpy(MemoryContextAlloc(context, size), value, size);
}

/* The name of a step, independent of search_path; in the batch's memory. */
static char *
resolve_step(const Steps *steps, text *name)
{
	char	   *qualified = HandlerQualifiedName(HandlerFind(text_to_cstring(name),
															 false));

	for (int i = 0; i < steps->nsteps; i++)
	{
		if (strcmp(steps->names[i], qualified) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("step \"%s\" is repeated", qualified),
					 errhint("A step is run once per request; write a function of its own for each.")));
	}
	return MemoryContextStrdup(steps->context, qualified);
}

/* Checks and copies the arguments. */
static Steps *
copy_arguments(FunctionCallInfo fcinfo)
{
	MemoryContext context = AllocSetContextCreate(PortalContext,
												  "idempotency batch",
												  ALLOCSET_SMALL_SIZES);
	Steps	   *steps = MemoryContextAllocZero(context, sizeof(Steps));
	RequestKey	key = RequestKeyFromArgs(fcinfo, 0, 3);
	BatchColumn names;
	int			nsteps;

	/* Whom the scope is closed to learns nothing, not even of functions. */
	(void) ScopeEnterToLook(key.scope);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("array of steps must not be null"),
				 errhint("Pass the names of functions that take jsonb and return jsonb.")));
	names = BatchColumnOf(PG_GETARG_ARRAYTYPE_P(1), TEXTOID, &nsteps);

	steps->context = context;
	steps->key.scope = copy_varlena(context, key.scope);
	steps->key.request_id = copy_varlena(context, key.request_id);
	if (!PG_ARGISNULL(2))
		steps->body = copy_varlena(context, PG_GETARG_JSONB_P(2));
	steps->names = MemoryContextAlloc(context,
									  sizeof(char *) * Max(nsteps, 1));
	for (int i = 0; i < nsteps; i++)
	{
		if (names.nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("step must not be null")));
		steps->names[i] = resolve_step(steps, DatumGetTextPP(names.values[i]));
		steps->nsteps = i + 1;
	}
	return steps;
}

/* Ends a transaction of the batch; the next one has a snapshot to work with. */
static void
commit_and_go_on(void)
{
	SPI_commit();
	EnsurePortalSnapshotExists();
}

/*
 * The same; where the commit fails (a deferred constraint, a serialization
 * failure), its error, in the batch's memory.  SPI_commit has begun a new
 * transaction in that case, too.
 */
static ErrorData *
try_commit(const Steps *steps)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData  *volatile error = NULL;

	PG_TRY();
	{
		SPI_commit();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(steps->context);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	EnsurePortalSnapshotExists();
	return error;
}

static Holder
holder_of(const Steps *steps)
{
	Holder		holder = {steps->key, ScopeEnter(steps->key.scope), true,
	steps->token};

	return holder;
}

/* A request that failed for good must not look like one that was carried out. */
static void
check_not_failed(const Steps *steps, const ClaimAnswer *answer)
{
	char	   *status = TextDatumGetCString(answer->values[CLAIM_COL_STATUS]);

	if (strcmp(status, LogStatusName(LOG_FAILED)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_ALREADY_FINISHED),
				 errmsg("batch has failed for good"),
				 errdetail("%s is finished; its status is \"%s\".",
						   RequestDescribe(&steps->key), status),
				 errhint("idem_lookup() shows its error. Use a new key to run the steps again.")));
}

/* First transaction; false where the request is completed already. */
static bool
claim_batch(Steps *steps)
{
	ClaimRequest request;
	ClaimAnswer answer;
	Log			log;

	LogOpen(&log);
	ClaimInitRequest(&request, steps->key, steps->body, NULL, NULL, NULL);
	ClaimWaiting(&log, &request, NULL, &answer);
	if (answer.outcome == CLAIM_CLAIMED)
	{
		steps->token = DatumGetInt64(answer.values[CLAIM_COL_TOKEN]);
		steps->attempt = DatumGetInt32(answer.values[CLAIM_COL_ATTEMPT]);
		steps->life = answer.life;

		/* It is left open at the commit on purpose: the steps follow. */
		DurabilityClaimEnded();
		DurabilityRequireFlush();
	}
	else if (answer.outcome == CLAIM_REPLAY)
		check_not_failed(steps, &answer);
	else
		RunRaiseRefused(&steps->key, &answer, false);
	LogClose(&log);
	return answer.outcome == CLAIM_CLAIMED;
}

/* Renews the claim in this transaction; an error where it is lost. */
static void
renew_claim(Log *log, const Holder *holder, LogRow *row)
{
	TimestampTz locked_until;
	HolderVerdict verdict = ExtendTry(log, holder, NULL, row, &locked_until);

	if (verdict == HOLDER_ENDED)
		HolderRaiseEnded(holder, row, false);
	if (verdict != HOLDER_HOLDS)
		HolderRaise(holder, verdict, row);
}

/* Shows in pg_stat_activity what the batch is at. */
static void
report_progress(const Steps *steps, int i)
{
	StringInfoData activity;

	initStringInfo(&activity);
	appendStringInfo(&activity, "CALL idem_batch: step %d of %d: %s",
					 i + 1, steps->nsteps, steps->names[i]);
	pgstat_report_activity(STATE_RUNNING, activity.data);
	pfree(activity.data);
}

/* The batch ends the request, not a step of it. */
static void
check_not_ended(Log *log, const Holder *holder)
{
	LogRow		row;

	if (HolderFind(log, holder, &row) == HOLDER_ENDED)
		ereport(ERROR,
				(errcode(ERRCODE_IDEM_ALREADY_FINISHED),
				 errmsg("step ended the request that it is part of"),
				 errdetail("%s goes on until its last step.",
						   RequestDescribe(&holder->key)),
				 errhint("Let the step return its result, or raise an error; idem_batch() ends the request.")));
	LogUnpin(log);
}

/* What a step's transaction does, short of its commit. */
static void
do_step(const Steps *steps, int i)
{
	text	   *name = cstring_to_text(steps->names[i]);
	NullableDatum argument = {JsonbPGetDatum(steps->body), steps->body == NULL};
	NullableDatum result;
	RunningClaim claim = {.key = steps->key,.token = steps->token,
	.life = steps->life,.attempt = steps->attempt};
	Holder		holder = holder_of(steps);
	int32		nsteps;
	bool		own;
	LogRow		row;
	Log			log;

	CHECK_FOR_INTERRUPTS();
	LogOpen(&log);
	renew_claim(&log, &holder, &row);
	nsteps = LogRowInt32(&row, LOG_STEPS);
	LogUnpin(&log);
	if (nsteps == 0 ||
		!CheckpointIsThere(&steps->key, steps->life, name, &own))
	{
		result = HandlerCall(HandlerFind(steps->names[i], false), argument,
							 &claim);
		check_not_ended(&log, &holder);
		(void) CheckpointRecord(&log, &holder, name, result);
	}
	LogClose(&log);
}

/*
 * Does a step in a subtransaction; its error, in the batch's memory, where it
 * raised one.
 */
static ErrorData *
try_step(const Steps *steps, int i)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		do_step(steps, i);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(steps->context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return error;
}

/* Last transaction: the results of the steps are the request's result. */
static void
finish_batch(const Steps *steps)
{
	Holder		holder = holder_of(steps);
	RequestEnd	end;
	Log			log;

	LogOpen(&log);
	FinishInitEnd(&end, false);
	end.values[RESPONSE_BODY] = CheckpointObject(&steps->key, steps->life,
												 steps->nsteps);
	end.nulls[RESPONSE_BODY] = false;
	(void) FinishOrRaise(&log, &holder, &end);
	LogClose(&log);
}

/*
 * After an error: gives the request free for the next call.  Where the claim is
 * lost there is nothing to give.
 */
static void
fail_batch(const Steps *steps, const ErrorData *error)
{
	Holder		holder = holder_of(steps);
	Interval	at_once = {0};
	RequestEnd	end;
	HolderVerdict verdict;
	LogRow		row;
	Log			log;

	LogOpen(&log);
	FinishInitEnd(&end, true);
	end.retry_after = &at_once;
	end.interrupted = RunIsNoResult(error->sqlerrcode);
	end.values[RESPONSE_ERROR] = RunErrorDocument(error);
	end.nulls[RESPONSE_ERROR] = false;
	(void) FinishRecord(&log, &holder, &end, &verdict, &row);
	LogClose(&log);
}

/* Raises an error of the batch, the request given free. */
static void
give_up(const Steps *steps, ErrorData *error)
{
	fail_batch(steps, error);
	commit_and_go_on();
	ReThrowError(error);
}

/* Does all steps, each in its own transaction; raises what a step raised. */
static void
do_steps(const Steps *steps)
{
	MemoryContext per_step = AllocSetContextCreate(steps->context,
												   "idempotency batch step",
												   ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(per_step);

	for (int i = 0; i < steps->nsteps; i++)
	{
		ErrorData  *error;

		report_progress(steps, i);
		error = try_step(steps, i);
		if (error != NULL)
		{
			SPI_rollback();
			EnsurePortalSnapshotExists();
		}
		else
			error = try_commit(steps);
		if (error != NULL)
			give_up(steps, error);
		MemoryContextReset(per_step);
	}
	MemoryContextSwitchTo(caller);
}

/*
 * CALL idem_batch(request_id text, steps text[], request_body jsonb,
 *				   scope text)
 */
Datum
idem_batch(PG_FUNCTION_ARGS)
{
	Steps	   *steps;
	ErrorData  *error;

	check_autocommit(fcinfo);
	steps = copy_arguments(fcinfo);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	if (claim_batch(steps))
	{
		commit_and_go_on();
		do_steps(steps);
		finish_batch(steps);
		error = try_commit(steps);
		if (error != NULL)
			give_up(steps, error);
	}
	SPI_finish();
	PG_RETURN_VOID();
}
