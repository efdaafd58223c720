/*-------------------------------------------------------------------------
 *
 * target.c
 *	  A row of a user's table that a conditional write is about.
 *
 * The writes are SQL statements run through SPI as the caller, so the server
 * itself checks privileges and applies row security.  Table, columns, types
 * and operators are written into the statements as quoted, qualified names;
 * every value is a parameter.
 *
 * Statements are kept prepared per table and backend.  They are dropped when
 * a relcache message says that the table changed (columns, keys, guards,
 * name) and when a schema or operator is renamed, and each serves one role
 * only.  A dropped plan may still be running further
 * up (a trigger of the table may come back here), so it goes to a list that is
 * freed when nothing of ours runs.
 *
 * A Target lives in the memory context of the call.  The table stays locked
 * (RowExclusiveLock, as for any write) until the transaction ends.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/relation.h"
#include "access/xlog.h"
#include "catalog/pg_am.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "domain.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "isolation.h"
#include "miscadmin.h"
#include "tablecache.h"
#include "target.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* More statements than this for one table are not kept. */
#define MAX_STATEMENTS	32

/* A prepared statement: what it does, to which columns, for whom. */
typedef struct PreparedStatement
{
	TargetStatement statement;
	Oid			role;
	int			ncolumns;
	AttrNumber *columns;
	SPIPlanPtr	plan;
} PreparedStatement;

/* What is known of a table; everything below valid is in the context. */
typedef struct TargetCache
{
	TableEntry	entry;
	MemoryContext context;
	char	   *name;			/* qualified and quoted */
	int			nkeys;
	TupleDesc	key_desc;		/* blessed */
	char	   *key_condition;
	List	   *statements;
} TargetCache;

static TableCache targets = {
	.name = "idempotency targets",.entry_size = sizeof(TargetCache)
};

/* Plans to be freed, and how many of our statements are running. */
static List *dead_plans = NIL;
static int	running = 0;

static void
forget_names(Datum arg, int cacheid, uint32 hashvalue)
{
	TableCacheForgetAll(&targets);
}

static void
create_cache(void)
{
	TableCacheCreate(&targets);
	CacheRegisterSyscacheCallback(NAMESPACEOID, forget_names, (Datum) 0);
	CacheRegisterSyscacheCallback(OPEROID, forget_names, (Datum) 0);
}

/* Frees plans that were dropped, where none of them can be running. */
static void
free_dead_plans(void)
{
	if (running > 0)
		return;
	while (dead_plans != NIL)
	{
		SPIPlanPtr	plan = llast(dead_plans);

		dead_plans = list_delete_last(dead_plans);
		SPI_freeplan(plan);
	}
}

static void
drop_statements(TargetCache *cache)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	List	   *statements = cache->statements;
	ListCell   *lc;

	cache->statements = NIL;
	foreach(lc, statements)
	{
		PreparedStatement *prepared = lfirst(lc);

		dead_plans = lappend(dead_plans, prepared->plan);
		if (prepared->columns != NULL)
			pfree(prepared->columns);
		pfree(prepared);
	}
	list_free(statements);
	MemoryContextSwitchTo(caller);
}

static void
check_kind(Relation rel)
{
	char		kind = rel->rd_rel->relkind;

	if (kind == RELKIND_RELATION || kind == RELKIND_PARTITIONED_TABLE)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 kind == RELKIND_VIEW ?
			 errmsg("\"%s\" is a view", RelationGetRelationName(rel)) :
			 errmsg("\"%s\" is not a table", RelationGetRelationName(rel)),
			 errhint("Name an ordinary or partitioned table.")));
}

/* The operator that a unique index holds keys equal by, written out. */
static char *
equality_operator(Oid family, Oid type)
{
	Oid			operator = get_opfamily_member(family, type, type,
											   BTEqualStrategyNumber);
	HeapTuple	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(operator));
	Form_pg_operator form;
	char	   *result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "no equality operator in operator family %u", family);
	form = (Form_pg_operator) GETSTRUCT(tuple);
	result = psprintf("OPERATOR(%s.%s)",
					  quote_identifier(get_namespace_name(form->oprnamespace)),
					  NameStr(form->oprname));
	ReleaseSysCache(tuple);
	return result;
}

/* Reads the primary key of the table. */
static void
read_key(TargetCache *cache, Relation rel)
{
	Oid			index_oid = compat_primary_key_index(rel);
	StringInfoData condition;
	Relation	index;
	TupleDesc	desc;

	if (!OidIsValid(index_oid))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" has no primary key",
						RelationGetRelationName(rel)),
				 errhint("Add a primary key that is not deferrable.")));
	index = index_open(index_oid, AccessShareLock);
	if (index->rd_rel->relam != BTREE_AM_OID)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("primary key of table \"%s\" is not one of equal values",
						RelationGetRelationName(rel)),
				 errhint("A key WITHOUT OVERLAPS does not name one row.")));
	cache->nkeys = index->rd_index->indnkeyatts;
	desc = CreateTemplateTupleDesc(cache->nkeys);
	initStringInfo(&condition);
	for (int i = 0; i < cache->nkeys; i++)
	{
		AttrNumber	column = index->rd_index->indkey.values[i];
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), column - 1);
		char	   *name;

		/*
		 * A key that is too long, or too exact, fits no row: not cut to fit
		 * one.
		 */
		TupleDescInitEntry(desc, i + 1, NULL, getBaseType(att->atttypid), -1, 0);
		name = psprintf("t.%s", quote_identifier(NameStr(att->attname)));
		appendStringInfo(&condition, "%s%s %s $%d", i > 0 ? " AND " : "",
						 DomainUnwrap(name, att->atttypid),
						 equality_operator(index->rd_opfamily[i],
										   index->rd_opcintype[i]), i + 1);
	}
	cache->key_desc = BlessTupleDesc(desc);
	cache->key_condition = condition.data;
	index_close(index, AccessShareLock);
}

/* Reads what is to be known of a table. */
static void
fill_cache(TargetCache *cache, Relation rel)
{
	uint64		messages = targets.messages;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "idempotency target",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);

	cache->name =
		quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
								   RelationGetRelationName(rel));
	read_key(cache, rel);
	MemoryContextSwitchTo(caller);
	MemoryContextSetParent(context, TopMemoryContext);
	cache->context = context;
	TableCacheSetValid(&targets, &cache->entry, messages);
}

/* Gives back what is below an entry. */
static void
release_entry(TableEntry *entry)
{
	TargetCache *cache = (TargetCache *) entry;

	drop_statements(cache);
	if (cache->context != NULL)
		MemoryContextDelete(cache->context);
	cache->context = NULL;
}

/*
 * The entry of a table, as it is now.  When one is added those of tables that are
 * gone are removed.
 */
static TargetCache *
find_cache(Relation rel)
{
	TargetCache *cache;
	bool		found;

	if (!TableCacheIsThere(&targets))
		create_cache();
	free_dead_plans();
	cache = (TargetCache *) TableCacheFind(&targets, RelationGetRelid(rel),
										   &found);
	if (!found)
	{
		cache->context = NULL;
		cache->statements = NIL;
		TableCacheSweep(&targets, release_entry);
	}
	if (likely(cache->entry.valid))
		return cache;

	release_entry(&cache->entry);
	fill_cache(cache, rel);
	return cache;
}

/*
 * TargetOpen - opens the table of a conditional write and locks it like any
 * write does, on a standby like a read.
 *
 * Errors: no such relation, not a table, or no primary key.
 */
void
TargetOpen(Target *target, Oid relid)
{
	int			size;

	memset(target, 0, sizeof(Target));
	target->rel = try_relation_open(relid, RecoveryInProgress() ?
									AccessShareLock : RowExclusiveLock);
	if (target->rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	check_kind(target->rel);
	target->cache = find_cache(target->rel);
	target->nkeys = target->cache->nkeys;
	size = target->nkeys + TARGET_MAX_PARAMETERS;
	target->types = palloc0(sizeof(Oid) * size);
	target->values = palloc0(sizeof(Datum) * size);
	target->nulls = palloc(size + 1);
	memset(target->nulls, 'n', size);
	target->nulls[size] = '\0';
	for (int i = target->nkeys; i < size; i++)
		target->types[i] = TEXTOID;
}

/*
 * TargetGuard - the guards of the table.
 */
const Guard *
TargetGuard(const Target *target)
{
	return GuardFind(target->rel);
}

/*
 * TargetSetKey - takes the primary key from its text: the text of the value,
 * or a row literal where the key has several columns.  Errors are those of the
 * types' input functions.
 */
void
TargetSetKey(Target *target, const char *key)
{
	TupleDesc	desc = target->cache->key_desc;
	bool	   *nulls;
	HeapTupleHeader row;
	HeapTupleData tuple;

	for (int i = 0; i < target->nkeys; i++)
		target->types[i] = TupleDescAttr(desc, i)->atttypid;
	if (target->nkeys == 1)
	{
		Oid			input;
		Oid			parameter;

		getTypeInputInfo(target->types[0], &input, &parameter);
		target->values[0] = OidInputFunctionCall(input, unconstify(char *, key),
												 parameter, -1);
		target->nulls[0] = ' ';
		return;
	}

	row = DatumGetHeapTupleHeader(OidInputFunctionCall(F_RECORD_IN,
													   unconstify(char *, key),
													   desc->tdtypeid,
													   desc->tdtypmod));
	tuple.t_len = HeapTupleHeaderGetDatumLength(row);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	tuple.t_data = row;
	nulls = palloc(sizeof(bool) * target->nkeys);
	heap_deform_tuple(&tuple, desc, target->values, nulls);
	for (int i = 0; i < target->nkeys; i++)
		target->nulls[i] = nulls[i] ? 'n' : ' ';
}

/*
 * TargetSetColumns - takes from a JSON object which columns are changed.
 *
 * Errors: not an object, no such column, or a column that a guard keeps.
 */
void
TargetSetColumns(Target *target, Jsonb *changes)
{
	const Guard *guard = TargetGuard(target);
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	value;

	if (!JB_ROOT_IS_OBJECT(changes))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("changes must be a JSON object"),
				 errhint("Give the new values by column name, as in {\"amount\": 5}.")));
	target->columns = palloc(sizeof(AttrNumber) * Max(JB_ROOT_COUNT(changes), 1));
	iterator = JsonbIteratorInit(&changes->root);
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		char	   *name;
		AttrNumber	column;

		if (token != WJB_KEY)
			continue;
		name = pnstrdup(value.val.string.val, value.val.string.len);
		column = get_attnum(RelationGetRelid(target->rel), name);
		if (column <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of relation \"%s\" does not exist",
							name, RelationGetRelationName(target->rel))));
		if (column == guard->version_column)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("changes must not set the version column \"%s\"", name),
					 errhint("The version guard sets it.")));
		target->columns[target->ncolumns++] = column;
	}
}

/*
 * TargetSetParameter - sets parameter number (from 1, after those of the key).
 */
void
TargetSetParameter(Target *target, int number, Oid type, Datum value,
				   bool isnull)
{
	int			i = target->nkeys + number - 1;

	Assert(number >= 1 && number <= TARGET_MAX_PARAMETERS);
	target->types[i] = type;
	target->values[i] = value;
	target->nulls[i] = isnull ? 'n' : ' ';
}

/*
 * TargetColumnValue - text as a value of a column, by its type's input.
 */
Datum
TargetColumnValue(const Target *target, AttrNumber column, const char *value)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(target->rel),
										  column - 1);
	Oid			input;
	Oid			parameter;

	getTypeInputInfo(att->atttypid, &input, &parameter);
	return OidInputFunctionCall(input, unconstify(char *, value), parameter,
								att->atttypmod);
}

static bool
serves(const PreparedStatement *prepared, const Target *target,
	   TargetStatement statement)
{
	return prepared->statement == statement &&
		prepared->role == GetUserId() &&
		prepared->ncolumns == target->ncolumns &&
		(target->ncolumns == 0 ||
		 memcmp(prepared->columns, target->columns,
				sizeof(AttrNumber) * target->ncolumns) == 0);
}

/* Prepares a statement for the present role, and keeps it if it can. */
static SPIPlanPtr
prepare(const Target *target, TargetStatement statement)
{
	TargetCache *cache = target->cache;
	PreparedStatement *prepared;
	StringInfoData sql;
	SPIPlanPtr	plan;
	MemoryContext caller;

	initStringInfo(&sql);
	statement(&sql, target, TargetGuard(target));
	plan = SPI_prepare(sql.data, target->nkeys + TARGET_MAX_PARAMETERS,
					   target->types);
	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", sql.data,
			 SPI_result_code_string(SPI_result));
	/* What was looked up by a name that may be old serves this call only. */
	if (!cache->entry.valid)
		return plan;
	if (list_length(cache->statements) >= MAX_STATEMENTS)
		drop_statements(cache);

	caller = MemoryContextSwitchTo(cache->context);
	prepared = palloc0(sizeof(PreparedStatement));
	prepared->statement = statement;
	prepared->role = GetUserId();
	prepared->ncolumns = target->ncolumns;
	if (target->ncolumns > 0)
	{
		prepared->columns = palloc(sizeof(AttrNumber) * target->ncolumns);
		memcpy(prepared->columns, target->columns,
			   sizeof(AttrNumber) * target->ncolumns);
	}
	prepared->plan = plan;
	cache->statements = lappend(cache->statements, prepared);
	SPI_keepplan(plan);
	MemoryContextSwitchTo(caller);
	return plan;
}

/* The kept plan for a statement, or NULL. */
static SPIPlanPtr
find_plan(const Target *target, TargetStatement statement)
{
	ListCell   *lc;

	foreach(lc, target->cache->statements)
	{
		PreparedStatement *prepared = lfirst(lc);

		if (serves(prepared, target, statement))
			return prepared->plan;
	}
	return NULL;
}

/*
 * TargetRun - runs a statement about the row, within SPI; returns the number
 * of rows, 0 or 1, with the result in SPI_tuptable.  An error where the key
 * fits more than one row (it can, with inheritance).
 */
uint64
TargetRun(Target *target, TargetStatement statement)
{
	SPIPlanPtr	plan;
	int			result;

	/* A trigger may have come here and changed the table meanwhile. */
	target->cache = find_cache(target->rel);
	plan = find_plan(target, statement);
	if (plan == NULL)
		plan = prepare(target, statement);

	running++;
	PG_TRY();
	{
		result = SPI_execute_plan(plan, target->values, target->nulls, false, 0);
	}
	PG_FINALLY();
	{
		running--;
	}
	PG_END_TRY();
	if (result < 0)
		elog(ERROR, "could not run a statement: %s",
			 SPI_result_code_string(result));
	if (SPI_processed > 1)
	{
		/* One that others have deleted, and one that this transaction made? */
		if (target->rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ||
			!target->rel->rd_rel->relhassubclass)
			IsolationCheck();
		ereport(ERROR,
				(errcode(ERRCODE_CARDINALITY_VIOLATION),
				 errmsg("key fits more than one row of table \"%s\"",
						RelationGetRelationName(target->rel)),
				 errhint("Name the table that the row is in, not the one that it inherits from.")));
	}
	return SPI_processed;
}

/*
 * TargetAppendName - the table's name and its alias t.
 */
void
TargetAppendName(StringInfo sql, const Target *target)
{
	appendStringInfo(sql, "%s AS t", target->cache->name);
}

/*
 * TargetAppendKeyCondition - the condition that picks the row.
 */
void
TargetAppendKeyCondition(StringInfo sql, const Target *target)
{
	appendStringInfoString(sql, target->cache->key_condition);
}

/*
 * TargetAppendAssignments - assignments of the changed columns, from r.
 */
void
TargetAppendAssignments(StringInfo sql, const Target *target)
{
	for (int i = 0; i < target->ncolumns; i++)
	{
		const char *name = TargetColumnName(target, target->columns[i]);

		appendStringInfo(sql, "%s%s = r.%s", i > 0 ? ", " : "", name, name);
	}
}

/*
 * TargetAppendChanges - the changed columns' values as a row r, which the
 * server makes of the JSON object in a parameter (from 1, after the key's).
 */
void
TargetAppendChanges(StringInfo sql, const Target *target, int parameter)
{
	appendStringInfo(sql, "pg_catalog.jsonb_to_record($%d) AS r(",
					 target->nkeys + parameter);
	for (int i = 0; i < target->ncolumns; i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(target->rel),
											  target->columns[i] - 1);

		appendStringInfo(sql, "%s%s %s", i > 0 ? ", " : "",
						 quote_identifier(NameStr(att->attname)),
						 format_type_extended(att->atttypid, att->atttypmod,
											  FORMAT_TYPE_TYPEMOD_GIVEN |
											  FORMAT_TYPE_FORCE_QUALIFY));
	}
	appendStringInfoChar(sql, ')');
}

/*
 * TargetColumnName - a column's name, quoted.
 */
const char *
TargetColumnName(const Target *target, AttrNumber column)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(target->rel),
										  column - 1);

	return pstrdup(quote_identifier(NameStr(att->attname)));
}
