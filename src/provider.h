/*-------------------------------------------------------------------------
 *
 * provider.h
 *	  Providers of external calls, and what can be done about a lost answer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_PROVIDER_H
#define IDEM_PROVIDER_H

#include "datatype/timestamp.h"
#include "fmgr.h"

/* Definition of a provider; a plain value. */
typedef struct Provider
{
	bool		accepts_key;	/* a call can be sent again with its call_id */
	bool		can_inquire;	/* it can be asked what became of a call */
	Interval	timeout;		/* how long a sent call may take effect */
} Provider;

extern text *ProviderNameFromArg(FunctionCallInfo fcinfo, int arg);
extern Provider ProviderRead(text *name);

#endif							/* IDEM_PROVIDER_H */
