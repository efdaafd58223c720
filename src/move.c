/*-------------------------------------------------------------------------
 *
 * move.c
 *	  Recognises rows that an UPDATE moves to another partition.
 *
 * The server carries such an update out as a deletion and an insertion, and
 * fires for one row, in this order:
 *
 *		BEFORE UPDATE, BEFORE DELETE (old partition), BEFORE INSERT (new one),
 *		and at the end of the statement AFTER DELETE, AFTER INSERT.
 *
 * To a guard it is an update all the same.  Two things prove it:
 *
 * - The old row version is marked "moved to another partition".  It gets the
 *	 mark in the deletion, so it has it when BEFORE INSERT fires.
 * - The deletion and the insertion bear the number of one command of one
 *	 (sub)transaction.  A statement that another trigger runs in between has a
 *	 number of its own, and BEFORE triggers see the number of their command in
 *	 the active snapshot.
 *
 * What the first trigger knows waits for the second one in a slot per depth of
 * triggers: whatever runs in between and moves rows itself is a trigger's
 * statement and thus deeper.  A slot that was left over (its insertion was
 * suppressed, or rolled back) fits no later command.
 *
 * Slots live until the end of the transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "move.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* A row version that may turn out to leave, and the version it is to get. */
typedef struct Expectation
{
	bool		valid;
	CommandId	command;
	Oid			relid;
	ItemPointerData tid;
	int64		version;
} Expectation;

/* A row that left, and what it was. */
typedef struct Departure
{
	TransactionId xid;
	CommandId	command;
	char	   *state;			/* NULL for a row without a state */
	int64		version;
} Departure;

typedef struct MoveSlot
{
	Expectation expectation;
	Departure	departure[2];	/* by MoveGuard */
} MoveSlot;

static MoveSlot *slots = NULL;
static int	nslots = 0;

static void
forget_slots(void *arg)
{
	slots = NULL;
	nslots = 0;
}

/* The slot of the trigger that runs now. */
static MoveSlot *
current_slot(void)
{
	int			depth = DatumGetInt32(DirectFunctionCall1(pg_trigger_depth,
														  (Datum) 0));

	if (slots == NULL)
	{
		MemoryContextCallback *callback;

		callback = MemoryContextAlloc(TopTransactionContext,
									  sizeof(MemoryContextCallback));
		callback->func = forget_slots;
		callback->arg = NULL;
		slots = MemoryContextAllocZero(TopTransactionContext,
									   sizeof(MoveSlot) * (depth + 1));
		nslots = depth + 1;
		MemoryContextRegisterResetCallback(TopTransactionContext, callback);
	}
	else if (depth >= nslots)
	{
		slots = repalloc(slots, sizeof(MoveSlot) * (depth + 1));
		memset(&slots[nslots], 0, sizeof(MoveSlot) * (depth + 1 - nslots));
		nslots = depth + 1;
	}
	return &slots[depth];
}

/*
 * MoveExpect - remembers in BEFORE UPDATE on a partition which version number
 * the row is to get, in case it is about to leave.
 */
void
MoveExpect(Relation rel, HeapTuple old, int64 version)
{
	Expectation *expectation = &current_slot()->expectation;

	expectation->command = GetActiveSnapshot()->curcid;
	expectation->relid = RelationGetRelid(rel);
	expectation->tid = old->t_self;
	expectation->version = version;
	expectation->valid = true;
}

/* Did the command that runs now move the row version away? */
static bool
was_moved(const Expectation *expectation)
{
	Relation	rel = table_open(expectation->relid, NoLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	ItemPointerData tid = expectation->tid;
	bool		moved = false;

	if (table_tuple_fetch_row_version(rel, &tid, SnapshotAny, slot))
	{
		bool		should_free;
		HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, &should_free);

		moved = MoveIsDeparture(tuple) &&
			HeapTupleHeaderGetCmax(tuple->t_data) == expectation->command;
		if (should_free)
			heap_freetuple(tuple);
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	return moved;
}

/*
 * MoveExpected - asked in BEFORE INSERT on a partition: does the row come from
 * another partition, and which version number is it to have?
 */
bool
MoveExpected(int64 *version)
{
	Expectation *expectation = &current_slot()->expectation;

	if (!expectation->valid ||
		expectation->command != GetActiveSnapshot()->curcid ||
		!was_moved(expectation))
		return false;
	expectation->valid = false;
	*version = expectation->version;
	return true;
}

/*
 * MoveIsDeparture - was this row version, of AFTER DELETE, moved to another
 * partition by the present transaction?
 */
bool
MoveIsDeparture(HeapTuple old)
{
	return HeapTupleHeaderIndicatesMovedPartitions(old->t_data) &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(old->t_data));
}

/*
 * MoveDepart - remembers in AFTER DELETE what a moved row was.
 */
void
MoveDepart(MoveGuard guard, HeapTuple old, const char *state, int64 version)
{
	Departure  *departure = &current_slot()->departure[guard];

	if (departure->state != NULL)
		pfree(departure->state);
	departure->state = NULL;
	if (state != NULL)
		departure->state = MemoryContextStrdup(TopTransactionContext, state);
	departure->version = version;
	departure->command = HeapTupleHeaderGetCmax(old->t_data);
	departure->xid = HeapTupleHeaderGetUpdateXid(old->t_data);
}

/*
 * MoveArrive - asked in AFTER INSERT: does the row come from another
 * partition, and what was it there?  The state is valid until the next call
 * of MoveDepart.
 */
bool
MoveArrive(MoveGuard guard, HeapTuple new, char **state, int64 *version)
{
	Departure  *departure = &current_slot()->departure[guard];

	if (!TransactionIdIsValid(departure->xid) ||
		departure->xid != HeapTupleHeaderGetXmin(new->t_data) ||
		departure->command != HeapTupleHeaderGetCmin(new->t_data))
		return false;
	departure->xid = InvalidTransactionId;
	if (state != NULL)
		*state = departure->state;
	if (version != NULL)
		*version = departure->version;
	return true;
}
