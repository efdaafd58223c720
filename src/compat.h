/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Differences between PostgreSQL 15, 16, 17 and 18, all in one place.
 *
 * No other file of this extension looks at PG_VERSION_NUM.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_COMPAT_H
#define IDEM_COMPAT_H

#include "access/genam.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/datetime.h"
#include "utils/regproc.h"
#include "utils/relcache.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "idempotency needs PostgreSQL 15 or later"
#endif

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* 18: the module can tell its name and version. */
#if PG_VERSION_NUM >= 180000
#define IDEM_MODULE_MAGIC(n, v) PG_MODULE_MAGIC_EXT(.name = (n), .version = (v))
#else
#define IDEM_MODULE_MAGIC(n, v) PG_MODULE_MAGIC
#endif

/* 18: index scans can count themselves for EXPLAIN. */
static inline IndexScanDesc
compat_index_beginscan(Relation heap, Relation index, Snapshot snapshot,
					   int nkeys)
{
#if PG_VERSION_NUM >= 180000
	return index_beginscan(heap, index, snapshot, NULL, nkeys, 0);
#else
	return index_beginscan(heap, index, snapshot, nkeys, 0);
#endif
}

/*
 * 16: an update says which indexes need a new entry (all, none, or only the
 * summarizing ones), before it said whether any does.
 */
#if PG_VERSION_NUM >= 160000
typedef TU_UpdateIndexes CompatUpdateIndexes;
#define COMPAT_INDEXES_NEED_UPDATE(u)	((u) != TU_None)
#define COMPAT_ONLY_SUMMARIZING(u)		((u) == TU_Summarizing)
#else
typedef bool CompatUpdateIndexes;
#define COMPAT_INDEXES_NEED_UPDATE(u)	(u)
#define COMPAT_ONLY_SUMMARIZING(u)		false
#endif

static inline List *
compat_insert_index_tuples(ResultRelInfo *rri, TupleTableSlot *slot,
						   EState *estate, bool update, bool no_dup_err,
						   bool *conflict, bool only_summarizing)
{
#if PG_VERSION_NUM >= 160000
	return ExecInsertIndexTuples(rri, slot, estate, update, no_dup_err,
								 conflict, NIL, only_summarizing);
#else
	return ExecInsertIndexTuples(rri, slot, estate, update, no_dup_err,
								 conflict, NIL);
#endif
}

/* 16: one function checks the privileges on all kinds of objects. */
static inline AclResult
compat_function_aclcheck(Oid function, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE);
#else
	return pg_proc_aclcheck(function, role, ACL_EXECUTE);
#endif
}

/* 16: parsing of names can report errors softly. */
static inline List *
compat_parse_qualified_name(const char *name)
{
#if PG_VERSION_NUM >= 160000
	return stringToQualifiedNameList(name, NULL);
#else
	return stringToQualifiedNameList(name);
#endif
}

/* 18: a function that does not return says so in front. */
#if PG_VERSION_NUM >= 180000
#define COMPAT_NORETURN	pg_noreturn
#else
#define COMPAT_NORETURN	pg_attribute_noreturn()
#endif

/* 16: memory of settings is palloc'd in a context of its own. */
#if PG_VERSION_NUM >= 160000
#define compat_guc_malloc(size)	guc_malloc(LOG, size)
#define compat_guc_free(p)		guc_free(p)
#else
#define compat_guc_malloc(size)	malloc(size)
#define compat_guc_free(p)		free(p)
#endif

/* 18: a primary key may be deferrable, then it decides nothing at once. */
static inline Oid
compat_primary_key_index(Relation rel)
{
#if PG_VERSION_NUM >= 180000
	return RelationGetPrimaryKeyIndex(rel, false);
#else
	return RelationGetPrimaryKeyIndex(rel);
#endif
}

/* 16: the same for ownership. */
static inline bool
compat_table_ownercheck(Oid relid, Oid roleid)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(RelationRelationId, relid, roleid);
#else
	return pg_class_ownercheck(relid, roleid);
#endif
}

/* 16: date parsing reports details of a failure. */
static inline int
compat_decode_datetime(char **field, int *ftype, int nf, int *dtype,
					   struct pg_tm *tm, fsec_t *fsec, int *tz)
{
#if PG_VERSION_NUM >= 160000
	DateTimeErrorExtra extra;

	return DecodeDateTime(field, ftype, nf, dtype, tm, fsec, tz, &extra);
#else
	return DecodeDateTime(field, ftype, nf, dtype, tm, fsec, tz);
#endif
}

/* 17: the number of a process is a variable of its own. */
static inline int
compat_my_proc_number(void)
{
#if PG_VERSION_NUM >= 170000
	return MyProcNumber;
#else
	return MyProc->pgprocno;
#endif
}

/* 17: an extension can name what it waits for. */
static inline uint32
compat_wait_event(const char *name)
{
#if PG_VERSION_NUM >= 170000
	return WaitEventExtensionNew(name);
#else
	return PG_WAIT_EXTENSION;
#endif
}

#endif							/* IDEM_COMPAT_H */
