/*-------------------------------------------------------------------------
 *
 * definition.h
 *	  Reading and replacing rows of the extension's definition tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_DEFINITION_H
#define IDEM_DEFINITION_H

#include "access/htup.h"
#include "utils/relcache.h"

extern Relation DefinitionOpen(Oid table);
extern void DefinitionClose(Relation rel);
extern HeapTuple DefinitionFind(Relation rel, Datum key);
extern bool DefinitionIsSame(Relation rel, HeapTuple old, int natts,
							 Datum *values, bool *nulls);
extern bool DefinitionIsThere(Oid table, int natts, Datum *values,
							  bool *nulls);
extern bool DefinitionWrite(Relation rel, HeapTuple old, int natts,
							Datum *values, bool *nulls);
extern void DefinitionDelete(Relation rel, HeapTuple old);

#endif							/* IDEM_DEFINITION_H */
