/*-------------------------------------------------------------------------
 *
 * resolve.h
 *	  Settling a request by a person's word.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_RESOLVE_H
#define IDEM_RESOLVE_H

#include "log.h"
#include "scope.h"

extern void ResolveFillRetry(const LogRow *row, const ScopePolicy *policy,
							 Datum *values, bool *nulls);

#endif							/* IDEM_RESOLVE_H */
