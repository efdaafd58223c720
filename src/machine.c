/*-------------------------------------------------------------------------
 *
 * machine.c
 *	  Definitions of state machines: idem_machine and the cache of machines.
 *
 * A machine is a set of initial states and of steps between states, stored as
 * two arrays of text.  Every backend keeps the machines that it met as graphs.
 * The cache is filled on first use and emptied by the relcache message that
 * each change of a definition sends, so a change is in force in other sessions
 * from its commit on, also inside transactions that are older: MachineGet
 * takes waiting messages in on each call, which costs next to nothing where
 * there are none.
 *
 * A machine that MachineGet returned stays valid until MachineGet is called
 * again (which a trigger fired by a statement may do).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "definition.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "machine.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(idem_machine);

/* Columns of idempotency_machine. */
enum
{
	COLUMN_MACHINE,
	COLUMN_INITIAL,
	COLUMN_TRANSITIONS,
	COLUMN_COUNT
};

/* What is collected while a definition is read. */
typedef struct Builder
{
	HTAB	   *numbers;		/* name of state to its number */
	int			nstates;
	const char **state;
	int			nsteps;
	int		   *from;
	int		   *to;
} Builder;

typedef struct NumberEntry
{
	char		name[MACHINE_NAME_MAX + 1];
	int			number;
} NumberEntry;

/* A cached machine; machine is NULL until it is filled completely. */
typedef struct MachineEntry
{
	char		name[MACHINE_NAME_MAX + 1];
	MemoryContext context;
	Machine    *machine;
	bool		stale;
} MachineEntry;

static HTAB *machines = NULL;

/* The table that definitions were last read from. */
static Oid	machine_table = InvalidOid;

/* Counts messages about the table: one may come while a definition is read. */
static uint64 generation = 0;

static void
forget_machines(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS scan;
	MachineEntry *entry;

	if (relid != InvalidOid && relid != machine_table)
		return;
	generation++;
	hash_seq_init(&scan, machines);
	while ((entry = hash_seq_search(&scan)) != NULL)
		entry->stale = true;
}

static void
create_cache(void)
{
	HASHCTL		ctl = {0};

	ctl.keysize = MACHINE_NAME_MAX + 1;
	ctl.entrysize = sizeof(MachineEntry);
	machines = hash_create("idempotency machines", 16, &ctl,
						   HASH_ELEM | HASH_STRINGS);
	CacheRegisterRelcacheCallback(forget_machines, (Datum) 0);
}

/* Refuses names that cannot be shown or stored; what is "state" or "machine". */
static void
check_name(const char *what, const char *name, const char *element)
{
	int			length = strlen(name);

	if (length == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("name of a %s must not be empty", what),
				 element ? errdetail("The element is \"%s\".", element) : 0));
	if (length > MACHINE_NAME_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("name of a %s is longer than %d bytes", what,
						MACHINE_NAME_MAX),
				 errdetail("It begins with \"%s\".",
						   pnstrdup(name, pg_mbcliplen(name, length, 40)))));
	for (int i = 0; i < length; i++)
	{
		if ((unsigned char) name[i] < 0x20 || name[i] == 0x7f)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("name of a %s must not contain control characters",
							what),
					 errdetail("The name is \"%s\".", name)));
	}
}

/* Copies a part of a string without the blanks around it. */
static char *
trimmed(const char *start, const char *end)
{
	while (start < end && *start == ' ')
		start++;
	while (end > start && end[-1] == ' ')
		end--;
	return pnstrdup(start, end - start);
}

/* Elements of a one-dimensional array of text without NULLs, palloc'd. */
static int
array_elements(ArrayType *array, const char *argument, char ***elements)
{
	Datum	   *datums;
	bool	   *nulls;
	int			count;

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("%s must be a one-dimensional array", argument)));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &datums, &nulls,
					  &count);
	*elements = palloc(sizeof(char *) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("element %d of %s must not be null", i + 1,
							argument)));
		(*elements)[i] = TextDatumGetCString(datums[i]);
	}
	return count;
}

/* Number of a state, a new one where the name is new (then *is_new). */
static int
intern_state(Builder *builder, const char *name, const char *element,
			 bool *is_new)
{
	NumberEntry *entry;
	bool		found;

	check_name("state", name, element);
	entry = hash_search(builder->numbers, name, HASH_ENTER, &found);
	if (!found)
	{
		entry->number = builder->nstates;
		builder->state[builder->nstates++] = pstrdup(name);
	}
	if (is_new)
		*is_new = !found;
	return entry->number;
}

/*
 * Reads one transition.  Names may hold anything but the arrow; a dash or an
 * angle next to the arrow is taken for another notation ("-->", "->>").
 */
static void
read_transition(Builder *builder, const char *element)
{
	const char *arrow = strstr(element, "->");
	char	   *from;
	char	   *to;
	int			number;

	if (arrow == NULL || strstr(arrow + 2, "->") != NULL ||
		arrow[2] == '>' || (arrow > element && strchr("-<", arrow[-1])))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid transition \"%s\"", element),
				 errhint("Write a transition as 'from->to'.")));
	from = trimmed(element, arrow);
	to = trimmed(arrow + 2, arrow + strlen(arrow));
	number = intern_state(builder, from, element, NULL);
	builder->from[builder->nsteps] = number;
	builder->to[builder->nsteps] = intern_state(builder, to, element, NULL);
	builder->nsteps++;
}

/* Sorts the steps by the state they leave, keeping their order otherwise. */
static void
link_steps(Machine *machine, const Builder *builder)
{
	int		   *fill;

	machine->nsteps = builder->nsteps;
	machine->first_step = palloc0(sizeof(int) * (machine->nstates + 1));
	machine->step = palloc(sizeof(int) * Max(builder->nsteps, 1));
	for (int i = 0; i < builder->nsteps; i++)
		machine->first_step[builder->from[i] + 1]++;
	for (int s = 0; s < machine->nstates; s++)
		machine->first_step[s + 1] += machine->first_step[s];

	fill = palloc(sizeof(int) * (machine->nstates + 1));
	memcpy(fill, machine->first_step, sizeof(int) * (machine->nstates + 1));
	for (int i = 0; i < builder->nsteps; i++)
	{
		int			from = builder->from[i];
		int			to = builder->to[i];

		for (int j = machine->first_step[from]; j < fill[from]; j++)
		{
			if (machine->step[j] == to)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("transition \"%s->%s\" is given twice",
								machine->state[from], machine->state[to])));
		}
		machine->step[fill[from]++] = to;
	}
	pfree(fill);
}

/*
 * Marks what can be reached from the initial states without entering the state
 * without (-1 for none); palloc'd.
 */
static bool *
reachable_states(const Machine *machine, int without)
{
	bool	   *reached = palloc0(sizeof(bool) * machine->nstates);
	int		   *queue = palloc(sizeof(int) * machine->nstates);
	int			head = 0;
	int			tail = 0;

	for (int s = 0; s < machine->ninitial; s++)
	{
		if (s == without)
			continue;
		reached[s] = true;
		queue[tail++] = s;
	}
	while (head < tail)
	{
		int			from = queue[head++];

		CHECK_FOR_INTERRUPTS();
		for (int j = machine->first_step[from];
			 j < machine->first_step[from + 1]; j++)
		{
			int			to = machine->step[j];

			if (reached[to] || to == without)
				continue;
			reached[to] = true;
			queue[tail++] = to;
		}
	}
	pfree(queue);
	return reached;
}

/*
 * Tells of states that new rows cannot come to: a state that is retired, with
 * rows that still have to leave it, or a name that was mistyped.
 */
static void
tell_unreachable(const Machine *machine)
{
	bool	   *reached = reachable_states(machine, -1);

	for (int s = 0; s < machine->nstates; s++)
	{
		if (!reached[s])
			ereport(NOTICE,
					(errmsg("state \"%s\" cannot be reached from any initial state",
							machine->state[s]),
					 errhint("Add a transition to it, unless it is only for rows that are there already.")));
	}
	pfree(reached);
}

static int
compare_states(const void *a, const void *b, void *arg)
{
	const Machine *machine = arg;

	return strcmp(machine->state[*(const int *) a],
				  machine->state[*(const int *) b]);
}

static void
sort_states(Machine *machine)
{
	machine->by_name = palloc(sizeof(int) * machine->nstates);
	for (int s = 0; s < machine->nstates; s++)
		machine->by_name[s] = s;
	qsort_arg(machine->by_name, machine->nstates, sizeof(int), compare_states,
			  machine);
}

/*
 * Reads and checks a definition; the graph is palloc'd in the current memory
 * context.  Every error shows the element that is wrong.
 */
static Machine *
build_machine(ArrayType *initial, ArrayType *transitions)
{
	Machine    *machine = palloc0(sizeof(Machine));
	Builder		builder = {0};
	HASHCTL		ctl = {0};
	char	  **first;
	char	  **arrows;
	int			nfirst = array_elements(initial, "initial", &first);
	int			narrows = array_elements(transitions, "transitions", &arrows);

	if (nfirst == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a machine needs at least one initial state")));

	ctl.keysize = MACHINE_NAME_MAX + 1;
	ctl.entrysize = sizeof(NumberEntry);
	ctl.hcxt = CurrentMemoryContext;
	builder.numbers = hash_create("idempotency states", 64, &ctl,
								  HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	builder.state = palloc(sizeof(char *) * (nfirst + 2 * narrows));
	builder.from = palloc(sizeof(int) * Max(narrows, 1));
	builder.to = palloc(sizeof(int) * Max(narrows, 1));

	for (int i = 0; i < nfirst; i++)
	{
		bool		is_new;
		char	   *name = trimmed(first[i], first[i] + strlen(first[i]));

		(void) intern_state(&builder, name, first[i], &is_new);
		if (!is_new)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("initial state \"%s\" is given twice", name)));
	}
	for (int i = 0; i < narrows; i++)
		read_transition(&builder, arrows[i]);
	hash_destroy(builder.numbers);

	machine->ninitial = nfirst;
	machine->nstates = builder.nstates;
	machine->state = builder.state;
	link_steps(machine, &builder);
	sort_states(machine);
	return machine;
}

/* Reads a machine's row; NULL where there is none. */
static Machine *
load_machine(const char *name)
{
	Relation	rel;
	TupleDesc	desc;
	HeapTuple	tuple;
	Machine    *machine = NULL;

	machine_table = CatalogTable(IDEM_TABLE_MACHINE);
	rel = table_open(machine_table, AccessShareLock);
	desc = RelationGetDescr(rel);
	tuple = DefinitionFind(rel, CStringGetTextDatum(name));
	if (tuple != NULL)
	{
		bool		isnull[2];
		Datum		initial = heap_getattr(tuple, COLUMN_INITIAL + 1, desc,
										   &isnull[0]);
		Datum		transitions = heap_getattr(tuple, COLUMN_TRANSITIONS + 1,
											   desc, &isnull[1]);

		Assert(!isnull[0] && !isnull[1]);
		machine = build_machine(DatumGetArrayTypeP(initial),
								DatumGetArrayTypeP(transitions));
	}
	table_close(rel, AccessShareLock);
	return machine;
}

/*
 * Fills an entry.  Where a message came while the definition was read, what
 * was read serves this call only.
 */
static void
fill_entry(MachineEntry *entry)
{
	uint64		before = generation;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "idempotency machine",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	Machine    *machine = load_machine(entry->name);

	MemoryContextSwitchTo(caller);
	if (machine == NULL)
	{
		MemoryContextDelete(context);
		return;
	}
	MemoryContextSetParent(context, TopMemoryContext);
	entry->context = context;
	entry->machine = machine;
	entry->stale = (before != generation);
}

/*
 * MachineGet - the machine of this name as it is now, or NULL.
 *
 * The result is valid until the next call of this function.
 */
const Machine *
MachineGet(const char *name)
{
	MachineEntry *entry;
	bool		found;

	if (strlen(name) > MACHINE_NAME_MAX)
		return NULL;
	if (machines == NULL)
		create_cache();

	AcceptInvalidationMessages();
	entry = hash_search(machines, name, HASH_ENTER, &found);
	if (likely(found && entry->machine != NULL && !entry->stale))
		return entry->machine;

	if (found && entry->context != NULL)
		MemoryContextDelete(entry->context);
	entry->context = NULL;
	entry->machine = NULL;
	fill_entry(entry);
	if (entry->machine != NULL)
		return entry->machine;
	hash_search(machines, name, HASH_REMOVE, NULL);
	return NULL;
}

/*
 * MachineState - number of a state, -1 where the machine has no such state.
 */
int
MachineState(const Machine *machine, const char *state)
{
	int			low = 0;
	int			high = machine->nstates - 1;

	while (low <= high)
	{
		int			middle = low + (high - low) / 2;
		int			number = machine->by_name[middle];
		int			order = strcmp(state, machine->state[number]);

		if (order == 0)
			return number;
		if (order < 0)
			high = middle - 1;
		else
			low = middle + 1;
	}
	return -1;
}

/*
 * MachineBeginsIn - is this an initial state?  (False for -1.)
 */
bool
MachineBeginsIn(const Machine *machine, int state)
{
	return state >= 0 && state < machine->ninitial;
}

/*
 * MachineAllows - is there a step from one state to another?  (False for -1.)
 */
bool
MachineAllows(const Machine *machine, int from, int to)
{
	if (from < 0 || to < 0)
		return false;
	for (int j = machine->first_step[from]; j < machine->first_step[from + 1]; j++)
	{
		if (machine->step[j] == to)
			return true;
	}
	return false;
}

/*
 * MachineRunsThrough - does every path from an initial state to the present
 * one run through a certain state?  False where there is no path at all, or
 * where either is -1: of a state that the machine does not have, or does not
 * lead to, nothing is known.
 */
bool
MachineRunsThrough(const Machine *machine, int present, int through)
{
	bool	   *reached;
	bool		result;

	if (present < 0 || through < 0)
		return false;
	reached = reachable_states(machine, through);
	result = !reached[present];
	pfree(reached);
	if (!result)
		return false;
	reached = reachable_states(machine, -1);
	result = reached[present];
	pfree(reached);
	return result;
}

/*
 * MachineInitialList - the initial states, quoted, for messages; palloc'd.
 */
char *
MachineInitialList(const Machine *machine)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int s = 0; s < machine->ninitial; s++)
		appendStringInfo(&list, "%s\"%s\"", s > 0 ? ", " : "",
						 machine->state[s]);
	return list.data;
}

/*
 * MachineNextList - the states that one step leads to, quoted, for messages;
 * palloc'd, empty where there is none.
 */
char *
MachineNextList(const Machine *machine, int state)
{
	StringInfoData list;

	initStringInfo(&list);
	if (state < 0)
		return list.data;
	for (int j = machine->first_step[state];
		 j < machine->first_step[state + 1]; j++)
		appendStringInfo(&list, "%s\"%s\"", list.len > 0 ? ", " : "",
						 machine->state[machine->step[j]]);
	return list.data;
}

/* An array of text of the initial states. */
static Datum
initial_array(const Machine *machine)
{
	Datum	   *elements = palloc(sizeof(Datum) * machine->ninitial);

	for (int s = 0; s < machine->ninitial; s++)
		elements[s] = CStringGetTextDatum(machine->state[s]);
	return PointerGetDatum(construct_array(elements, machine->ninitial, TEXTOID,
										   -1, false, TYPALIGN_INT));
}

/* An array of text of the steps in one way of writing them. */
static Datum
transition_array(const Machine *machine)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(machine->nsteps, 1));

	for (int from = 0; from < machine->nstates; from++)
	{
		for (int j = machine->first_step[from];
			 j < machine->first_step[from + 1]; j++)
			elements[j] = CStringGetTextDatum(psprintf("%s->%s",
													   machine->state[from],
													   machine->state[machine->step[j]]));
	}
	return PointerGetDatum(construct_array(elements, machine->nsteps, TEXTOID,
										   -1, false, TYPALIGN_INT));
}

/*
 * idem_machine - defines a machine, or redefines it; rows that are in a state
 * which the new definition does not have stay as they are.
 */
Datum
idem_machine(PG_FUNCTION_ARGS)
{
	static const char *const arguments[] = {"machine", "initial", "transitions"};
	Datum		values[COLUMN_COUNT];
	bool		nulls[COLUMN_COUNT] = {false};
	Machine    *machine;
	Relation	rel;

	for (int i = 0; i < COLUMN_COUNT; i++)
	{
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not be null", arguments[i])));
	}
	check_name("machine", TextDatumGetCString(PG_GETARG_DATUM(0)), NULL);
	machine = build_machine(PG_GETARG_ARRAYTYPE_P(1), PG_GETARG_ARRAYTYPE_P(2));

	values[COLUMN_MACHINE] = PG_GETARG_DATUM(0);
	values[COLUMN_INITIAL] = initial_array(machine);
	values[COLUMN_TRANSITIONS] = transition_array(machine);
	if (DefinitionIsThere(CatalogTable(IDEM_TABLE_MACHINE), COLUMN_COUNT, values,
						  nulls))
		PG_RETURN_VOID();
	rel = DefinitionOpen(CatalogTable(IDEM_TABLE_MACHINE));
	if (DefinitionWrite(rel, DefinitionFind(rel, values[COLUMN_MACHINE]),
						COLUMN_COUNT, values, nulls))
		tell_unreachable(machine);
	DefinitionClose(rel);
	PG_RETURN_VOID();
}
