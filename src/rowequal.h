/*-------------------------------------------------------------------------
 *
 * rowequal.h
 *	  Equality of column values.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_ROWEQUAL_H
#define IDEM_ROWEQUAL_H

#include "access/tupdesc.h"

extern bool RowEqualColumn(Form_pg_attribute column, Datum a, bool a_null,
						   Datum b, bool b_null);

#endif							/* IDEM_ROWEQUAL_H */
