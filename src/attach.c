/*-------------------------------------------------------------------------
 *
 * attach.c
 *	  Attaching guards to tables and taking them off: idem_guard_state,
 *	  idem_guard_version, idem_unguard.
 *
 * A guard is attached by CREATE TRIGGER statements that run as the caller, who
 * must own the table.  Names say when the triggers are to fire among those of
 * the user: the one that sets the version after other BEFORE triggers, the
 * checks, which must see the row as it was written and write the history in
 * order, before other AFTER triggers.
 *
 * The server asks the table's owner for EXECUTE on a trigger's function
 * whenever a partition is created, so attaching a guard grants it to the owner
 * where it is missing.  That is all the right allows: the functions cannot be
 * called.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "compat.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "guard.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/reltrigger.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(idem_guard_state);
PG_FUNCTION_INFO_V1(idem_guard_version);
PG_FUNCTION_INFO_V1(idem_unguard);

static const char *const state_functions[] = {"idem_guard_state_check", NULL};
static const char *const version_functions[] = {
	"idem_guard_version_set", "idem_guard_version_check", NULL
};

/* A table that a guard is attached to or taken off. */
typedef struct Subject
{
	Oid			relid;
	char	   *name;			/* qualified and quoted */
	Oid			owner;
	bool		partitioned;
	bool		is_partition;
	AttrNumber	column;
	char	   *column_name;	/* quoted */
	Oid			column_type;	/* base type */
	const Guard *guard;			/* as it is before the change */
} Subject;

/* The triggers of a guard that a table has. */
typedef struct Present
{
	List	   *names;			/* of its own triggers */
	bool		disabled;		/* one of them would not fire */
	bool		inherited;		/* it has some of the partitioned table */
} Present;

static void
require_argument(FunctionCallInfo fcinfo, int number, const char *name)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", name)));
}

static void
check_kind(Relation rel)
{
	char		kind = rel->rd_rel->relkind;

	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", RelationGetRelationName(rel)),
				 errhint("Only ordinary and partitioned tables can be guarded.")));
}

/* The extension writes its own tables past their triggers. */
static void
refuse_own_table(Relation rel)
{
	for (int i = 0; i < IDEM_TABLE_COUNT; i++)
	{
		if (CatalogTableIfExists(i) == RelationGetRelid(rel))
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("\"%s\" belongs to the extension",
							RelationGetRelationName(rel)),
					 errhint("Only tables of your own can be guarded.")));
	}
}

static void
refuse_partition(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("\"%s\" is a partition", get_rel_name(relid)),
			 errhint("Name the partitioned table: a guard is for all its partitions.")));
}

/*
 * Checks who asks, locks the table, and notes what is needed of it.  Ownership
 * first: who may not guard a table shall not be able to lock it either.
 *
 * Callers look with AccessShareLock first, which is given back at once: a
 * guard that is as it should be must not stop anybody.  A stronger lock stays
 * until the transaction ends.
 */
static void
open_subject(Subject *subject, Oid relid, LOCKMODE lock)
{
	Relation	rel;

	memset(subject, 0, sizeof(Subject));
	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)) &&
		!compat_table_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER,
					   get_relkind_objtype(get_rel_relkind(relid)),
					   get_rel_name(relid));
	rel = try_relation_open(relid, lock);
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	check_kind(rel);
	refuse_own_table(rel);
	subject->relid = relid;
	subject->owner = rel->rd_rel->relowner;
	subject->partitioned =
		rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
	subject->is_partition = rel->rd_rel->relispartition;
	subject->name =
		quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
								   RelationGetRelationName(rel));
	subject->guard = GuardFind(rel);
	relation_close(rel, lock == AccessShareLock ? lock : NoLock);
}

/*
 * The lock that the change needs, as the server's own statements take it, and
 * at once, since raising a lock later invites deadlocks.
 */
static LOCKMODE
change_lock(const Present *present)
{
	return present->names == NIL ? ShareRowExclusiveLock : AccessExclusiveLock;
}

/* Finds the column that is to be guarded. */
static void
find_column(Subject *subject, const char *name)
{
	if (subject->is_partition)
		refuse_partition(subject->relid);
	subject->column = get_attnum(subject->relid, name);
	if (subject->column <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist", name,
						get_rel_name(subject->relid))));
	subject->column_name = pstrdup(quote_identifier(name));
	subject->column_type = getBaseType(get_atttype(subject->relid,
												   subject->column));
}

/* Adds the table's triggers that call one of these functions. */
static void
add_triggers(Present *present, Oid relid, const char *const *functions)
{
	Relation	rel = relation_open(relid, AccessShareLock);
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];
		char	   *function;

		if (get_func_namespace(trigger->tgfoid) != CatalogSchema())
			continue;
		function = get_func_name(trigger->tgfoid);
		for (int j = 0; functions[j] != NULL; j++)
		{
			if (strcmp(function, functions[j]) != 0)
				continue;
			if (trigger->tgisclone)
				present->inherited = true;
			else
				present->names = lappend(present->names,
										 pstrdup(trigger->tgname));
			if (trigger->tgenabled == TRIGGER_DISABLED ||
				trigger->tgenabled == TRIGGER_FIRES_ON_REPLICA)
				present->disabled = true;
		}
	}
	relation_close(rel, AccessShareLock);
}

static Present
triggers_of(Oid relid, const char *const *functions)
{
	Present		present = {NIL};

	add_triggers(&present, relid, functions);
	return present;
}

/* Those of both kinds of guards. */
static Present
all_triggers_of(Oid relid)
{
	Present		present = {NIL};

	add_triggers(&present, relid, state_functions);
	add_triggers(&present, relid, version_functions);
	return present;
}

/*
 * A partition that was guarded before it became one has triggers of its own,
 * which would judge for themselves, and whose names would be in the way.
 */
static void
refuse_guarded_partitions(const Subject *subject, const char *const *functions)
{
	ListCell   *lc;

	if (!subject->partitioned)
		return;
	foreach(lc, find_all_inheritors(subject->relid, NoLock, NULL))
	{
		Oid			partition = lfirst_oid(lc);

		if (partition != subject->relid &&
			triggers_of(partition, functions).names != NIL)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("partition \"%s\" has a guard of its own",
							get_rel_name(partition)),
					 errhint("Take it off with idem_unguard: the guard of a partitioned table is for all its partitions.")));
	}
}

/*
 * Runs a utility statement.  Operators of a WHEN clause are looked up by
 * search_path, so it holds nothing but the server's own.
 */
static void
run_statement(const char *sql)
{
	int			level = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);
	SPI_connect();
	if (SPI_execute(sql, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "unexpected result of \"%s\"", sql);
	SPI_finish();
	AtEOXact_GUC(true, level);
}

static void
drop_triggers(const Subject *subject, List *names)
{
	ListCell   *lc;

	foreach(lc, names)
		run_statement(psprintf("DROP TRIGGER %s ON %s",
							   quote_identifier(lfirst(lc)), subject->name));
}

/* Lets the table's owner create partitions with our triggers. */
static void
grant_to_owner(const Subject *subject, const char *const *functions)
{
	Oid			user;
	int			context;

	for (int i = 0; functions[i] != NULL; i++)
	{
		char	   *schema = get_namespace_name(CatalogSchema());
		List	   *name = list_make2(makeString(schema),
									  makeString(pstrdup(functions[i])));
		Oid			function = LookupFuncName(name, 0, NULL, false);

		if (compat_function_aclcheck(function, subject->owner) ==
			ACLCHECK_OK)
			continue;
		GetUserIdAndSecContext(&user, &context);
		SetUserIdAndSecContext(CatalogOwner(),
							   context | SECURITY_LOCAL_USERID_CHANGE);
		run_statement(psprintf("GRANT EXECUTE ON FUNCTION %s() TO %s",
							   quote_qualified_identifier(schema, functions[i]),
							   quote_identifier(GetUserNameFromId(subject->owner,
																  false))));
		SetUserIdAndSecContext(user, context);
	}
}

/*
 * One CREATE TRIGGER.  The condition, where there is one, holds the column's
 * name as it is now.
 *
 * The server reads a condition anew in every statement, which costs more than
 * judging a row.  So the trigger that must fire for every row has none.
 */
static void
create_trigger(const Subject *subject, const char *name, const char *events,
			   const char *condition, const char *function,
			   const char *arguments)
{
	run_statement(psprintf("CREATE TRIGGER %s %s ON %s FOR EACH ROW"
						   "%s EXECUTE FUNCTION %s(%s)",
						   name, events, subject->name,
						   condition ? psprintf(" WHEN (%s)", condition) : "",
						   quote_qualified_identifier(get_namespace_name(CatalogSchema()),
													  function),
						   arguments));
}

/* A condition that is always true and reads the column. */
static char *
always(const Subject *subject, const char *row)
{
	return psprintf("%s.%s IS NULL OR %s.%s IS NOT NULL",
					row, subject->column_name, row, subject->column_name);
}

/*
 * Has the state changed?  Text is compared byte by byte, whatever the column's
 * type and collation hold to be equal; a domain over an enum has no operator of
 * its own, so enums are compared as what they are.
 */
static char *
state_changed(const Subject *subject)
{
	char		category;
	bool		preferred;
	const char *cast = "";

	get_type_category_preferred(subject->column_type, &category, &preferred);
	if (category == TYPCATEGORY_STRING)
		cast = "::pg_catalog.text COLLATE pg_catalog.\"C\"";
	else if (category == TYPCATEGORY_ENUM)
		cast = psprintf("::%s",
						format_type_be_qualified(subject->column_type));
	return psprintf("(OLD.%s)%s IS DISTINCT FROM (NEW.%s)%s",
					subject->column_name, cast, subject->column_name, cast);
}

/* What nobody can write needs no guard, and idem_transition would have to. */
static void
refuse_generated(const Subject *subject)
{
	if (get_attgenerated(subject->relid, subject->column) != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_GENERATED_ALWAYS),
				 errmsg("column %s cannot be guarded", subject->column_name),
				 errdetail("It is a generated column.")));
}

static void
check_state_type(const Subject *subject)
{
	char		category;
	bool		preferred;

	refuse_generated(subject);
	get_type_category_preferred(subject->column_type, &category, &preferred);
	if (category != TYPCATEGORY_STRING && category != TYPCATEGORY_ENUM &&
		subject->column_type != INT2OID && subject->column_type != INT4OID &&
		subject->column_type != INT8OID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column %s cannot hold a state", subject->column_name),
				 errdetail("Its type is %s.", format_type_be(subject->column_type)),
				 errhint("Use text, another string type, an enum or an integer.")));
}

static void
check_version_type(const Subject *subject)
{
	refuse_generated(subject);
	if (subject->column_type != INT2OID && subject->column_type != INT4OID &&
		subject->column_type != INT8OID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column %s cannot hold a version", subject->column_name),
				 errdetail("Its type is %s.", format_type_be(subject->column_type)),
				 errhint("Use bigint or another integer type.")));
}

/* Says what a guard of an inheritance parent does not do. */
static void
tell_about_children(const Subject *subject)
{
	if (!subject->partitioned &&
		find_inheritance_children(subject->relid, NoLock) != NIL)
		ereport(NOTICE,
				(errmsg("tables that inherit from %s are not guarded",
						subject->name),
				 errhint("Triggers are not inherited: guard each of them.")));
}

static void
check_machine(const char *name)
{
	if (MachineGet(name) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("machine \"%s\" is not defined", name),
				 errhint("Define it with idem_machine.")));
}

static void
attach_state_guard(const Subject *subject, const char *machine, bool history)
{
	const char *function = state_functions[0];
	char	   *arguments = psprintf("%s, %s", quote_literal_cstr(machine),
									 history ? "'history'" : "'no history'");

	create_trigger(subject, "_idem_state_insert", "AFTER INSERT",
				   always(subject, "NEW"), function, arguments);
	create_trigger(subject, "_idem_state_update", "AFTER UPDATE",
				   state_changed(subject), function, arguments);
	if (subject->partitioned)
		create_trigger(subject, "_idem_state_delete", "AFTER DELETE",
					   always(subject, "OLD"), function, arguments);
}

static void
attach_version_guard(const Subject *subject)
{
	const char *column = subject->column_name;

	create_trigger(subject, "zzz_idem_version_set", "BEFORE INSERT OR UPDATE",
				   NULL, version_functions[0], "");
	create_trigger(subject, "_idem_version_insert", "AFTER INSERT",
				   psprintf("NEW.%s IS DISTINCT FROM 1", column),
				   version_functions[1], "");
	create_trigger(subject, "_idem_version_update", "AFTER UPDATE",
				   psprintf("NEW.%s IS DISTINCT FROM OLD.%s + 1", column, column),
				   version_functions[1], "");
	if (subject->partitioned)
		create_trigger(subject, "_idem_version_delete", "AFTER DELETE",
					   always(subject, "OLD"), version_functions[1], "");
}

/*
 * idem_guard_state - lets only steps of a machine pass in a column.
 */
Datum
idem_guard_state(PG_FUNCTION_ARGS)
{
	Subject		subject;
	char	   *machine;
	bool		history;
	Present		present;
	LOCKMODE	lock;
	LOCKMODE	needed = AccessShareLock;

	require_argument(fcinfo, 0, "target");
	require_argument(fcinfo, 1, "state_column");
	require_argument(fcinfo, 2, "machine");
	require_argument(fcinfo, 3, "history");
	machine = text_to_cstring(PG_GETARG_TEXT_PP(2));
	history = PG_GETARG_BOOL(3);

	do
	{
		lock = needed;
		open_subject(&subject, PG_GETARG_OID(0), lock);
		find_column(&subject, NameStr(*PG_GETARG_NAME(1)));
		check_state_type(&subject);
		check_machine(machine);
		grant_to_owner(&subject, state_functions);
		present = triggers_of(subject.relid, state_functions);
		if (!present.disabled &&
			subject.guard->state_column == subject.column &&
			subject.guard->history == history &&
			strcmp(subject.guard->machine, machine) == 0 &&
			list_length(present.names) == (subject.partitioned ? 3 : 2))
			PG_RETURN_VOID();
		needed = change_lock(&present);
	} while (lock < needed);

	refuse_guarded_partitions(&subject, state_functions);
	drop_triggers(&subject, present.names);
	attach_state_guard(&subject, machine, history);
	tell_about_children(&subject);
	PG_RETURN_VOID();
}

/*
 * idem_guard_version - keeps a version number in a column.
 */
Datum
idem_guard_version(PG_FUNCTION_ARGS)
{
	Subject		subject;
	Present		present;
	LOCKMODE	lock;
	LOCKMODE	needed = AccessShareLock;

	require_argument(fcinfo, 0, "target");
	require_argument(fcinfo, 1, "version_column");
	do
	{
		lock = needed;
		open_subject(&subject, PG_GETARG_OID(0), lock);
		find_column(&subject, NameStr(*PG_GETARG_NAME(1)));
		check_version_type(&subject);
		grant_to_owner(&subject, version_functions);
		present = triggers_of(subject.relid, version_functions);
		if (!present.disabled &&
			subject.guard->version_column == subject.column &&
			list_length(present.names) == (subject.partitioned ? 4 : 3))
			PG_RETURN_VOID();
		needed = change_lock(&present);
	} while (lock < needed);

	refuse_guarded_partitions(&subject, version_functions);
	drop_triggers(&subject, present.names);
	attach_version_guard(&subject);
	tell_about_children(&subject);
	PG_RETURN_VOID();
}

/*
 * idem_unguard - takes all guards off a table.
 */
Datum
idem_unguard(PG_FUNCTION_ARGS)
{
	Subject		subject;
	Present		present;

	require_argument(fcinfo, 0, "target");
	open_subject(&subject, PG_GETARG_OID(0), AccessShareLock);
	present = all_triggers_of(subject.relid);
	if (present.inherited)
		refuse_partition(subject.relid);
	if (present.names == NIL)
		PG_RETURN_VOID();
	open_subject(&subject, PG_GETARG_OID(0), AccessExclusiveLock);
	drop_triggers(&subject, all_triggers_of(subject.relid).names);
	PG_RETURN_VOID();
}
