/*-------------------------------------------------------------------------
 *
 * writesql.h
 *	  Text of the statements of conditional writes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_WRITESQL_H
#define IDEM_WRITESQL_H

#include "writerequest.h"

extern char *WriteSqlProbe(const WriteShape *shape, Relation rel, bool lock);
extern char *WriteSqlInsert(const WriteShape *shape, Relation rel, bool target,
							Bitmapset *updated);

#endif							/* IDEM_WRITESQL_H */
