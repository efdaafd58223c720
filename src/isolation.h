/*-------------------------------------------------------------------------
 *
 * isolation.h
 *	  What cannot be decided under the snapshot of a transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_ISOLATION_H
#define IDEM_ISOLATION_H

#include "access/xact.h"

/*
 * IsolationCheck - an error, in the server's own words, where the snapshot
 * cannot be renewed; otherwise the caller looks again.  For a row that others
 * have changed since the transaction began.
 */
static inline void
IsolationCheck(void)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent update"),
				 errhint("Retry the transaction.")));
}

#endif							/* IDEM_ISOLATION_H */
