/*-------------------------------------------------------------------------
 *
 * tuple.c
 *	  Rows of the extension's own tables, by the columns that are known.
 *
 * A table may have more columns than this library knows: of a later version of
 * the extension, or of its owner.  Those are kept by an update and NULL in a new
 * row.  It may have indexes of its owner, of any kind: so entries are made by
 * the executor, and not by what the server does for its catalogs.
 *
 * Like the log's rows these are written to the heap directly: triggers, row
 * security and privileges of the table do not apply.  Whoever calls holds the
 * lock that his write needs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "catalog.h"
#include "compat.h"
#include "executor/executor.h"
#include "tuple.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * TupleRead - the first natts columns of a row; the values point into it.
 */
void
TupleRead(Relation rel, HeapTuple tuple, int natts, Datum *values, bool *nulls)
{
	TupleDesc	desc = RelationGetDescr(rel);

	CatalogCheckColumns(rel, natts);
	for (int i = 0; i < natts; i++)
		values[i] = heap_getattr(tuple, i + 1, desc, &nulls[i]);
}

static void
insert_index_entries(Relation rel, TupleTableSlot *slot, bool update,
					 bool only_summarizing)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *indexes = makeNode(ResultRelInfo);

	InitResultRelInfo(indexes, rel, 0, NULL, 0);
	ExecOpenIndices(indexes, false);
	if (indexes->ri_NumIndices > 0)
		compat_insert_index_tuples(indexes, slot, estate, update, false, NULL,
								   only_summarizing);
	ExecCloseIndices(indexes);
	FreeExecutorState(estate);
}

/* A slot with these values; the other columns are those of the old one, if any. */
static TupleTableSlot *
make_slot(Relation rel, TupleTableSlot *old, int natts, const Datum *values,
		  const bool *nulls)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);

	CatalogCheckColumns(rel, natts);
	memcpy(slot->tts_values, values, natts * sizeof(Datum));
	memcpy(slot->tts_isnull, nulls, natts * sizeof(bool));
	for (int i = natts; i < slot->tts_tupleDescriptor->natts; i++)
	{
		slot->tts_isnull[i] = old == NULL || old->tts_isnull[i];
		slot->tts_values[i] = old == NULL ? (Datum) 0 : old->tts_values[i];
	}
	return ExecStoreVirtualTuple(slot);
}

/*
 * TupleInsert - inserts a row with these first natts columns.
 */
void
TupleInsert(Relation rel, int natts, const Datum *values, const bool *nulls)
{
	TupleTableSlot *slot = make_slot(rel, NULL, natts, values, nulls);

	simple_table_tuple_insert(rel, slot);
	insert_index_entries(rel, slot, false, false);
	ExecDropSingleTupleTableSlot(slot);
}

/*
 * TupleUpdate - replaces the first natts columns of a row, which nobody else is
 * changing.
 */
void
TupleUpdate(Relation rel, const ItemPointerData *tid, int natts,
			const Datum *values, const bool *nulls)
{
	TupleTableSlot *old = table_slot_create(rel, NULL);
	ItemPointerData where = *tid;
	TupleTableSlot *slot;
	CompatUpdateIndexes update_indexes;

	if (!table_tuple_fetch_row_version(rel, &where, SnapshotAny, old))
		elog(ERROR, "row to be updated is gone");
	slot_getallattrs(old);
	slot = make_slot(rel, old, natts, values, nulls);
	simple_table_tuple_update(rel, &where, slot, GetActiveSnapshot(),
							  &update_indexes);
	if (COMPAT_INDEXES_NEED_UPDATE(update_indexes))
		insert_index_entries(rel, slot, true,
							 COMPAT_ONLY_SUMMARIZING(update_indexes));
	ExecDropSingleTupleTableSlot(slot);
	ExecDropSingleTupleTableSlot(old);
}
