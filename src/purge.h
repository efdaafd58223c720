/*-------------------------------------------------------------------------
 *
 * purge.h
 *	  Removing what has expired, batch by batch.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_PURGE_H
#define IDEM_PURGE_H

#include "datatype/timestamp.h"
#include "state.h"

/*
 * One purge: what is due at its start, where it has got to, and what it did.
 * The positions spare a later batch the rows that an earlier one removed and
 * that cannot be vacuumed yet.
 */
typedef struct Purge
{
	TimestampTz until;			/* due by then */
	TimestampTz log_from;		/* alarm of the last request looked at */
	TimestampTz inbox_from;		/* expiry of the last message looked at */
	int64		keys;			/* requests removed */
	int64		messages;		/* inbox messages removed */
	int64		turned;			/* requests turned to unknown */
	int64		postponed;		/* requests to be looked at later */
	bool		notify[REASON_CALL + 1];	/* kinds turned in this batch */
} Purge;

extern void PurgeStart(Purge *purge);
extern bool PurgeIsInstalled(void);
extern bool PurgeTryLock(void);
extern bool PurgeBatch(Purge *purge, int64 limit);

#endif							/* IDEM_PURGE_H */
