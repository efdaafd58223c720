/*-------------------------------------------------------------------------
 *
 * review.h
 *	  Asking a person.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_REVIEW_H
#define IDEM_REVIEW_H

#include "log.h"
#include "scope.h"
#include "state.h"

extern UnknownReason ReviewReason(const LogRow *row,
								  const ScopePolicy *policy);
extern void ReviewFill(const LogRow *row, const ScopePolicy *policy,
					   UnknownReason reason, Datum *values, bool *nulls);
extern void ReviewNotify(UnknownReason reason);

#endif							/* IDEM_REVIEW_H */
