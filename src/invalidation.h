/*-------------------------------------------------------------------------
 *
 * invalidation.h
 *	  Being told of changes of tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_INVALIDATION_H
#define IDEM_INVALIDATION_H

#include "utils/inval.h"

extern void InvalidationRegister(RelcacheCallbackFunction forget, Datum arg);

#endif							/* IDEM_INVALIDATION_H */
