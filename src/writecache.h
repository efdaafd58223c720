/*-------------------------------------------------------------------------
 *
 * writecache.h
 *	  Plans of conditional writes, kept for the session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_WRITECACHE_H
#define IDEM_WRITECACHE_H

#include "writeplan.h"

extern WritePlan *WriteCacheAcquire(const WriteRequest *request);
extern void WriteCacheRelease(WritePlan *plan);

#endif							/* IDEM_WRITECACHE_H */
