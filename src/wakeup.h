/*-------------------------------------------------------------------------
 *
 * wakeup.h
 *	  Waking those who wait for a lease when the claim ends.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_WAKEUP_H
#define IDEM_WAKEUP_H

#include "request.h"

extern void WakeupInit(void);
extern void WakeupAtCommit(const RequestKey *key);
extern void WakeupPrepare(const RequestKey *key);
extern bool WakeupSleep(const RequestKey *key, int milliseconds,
						uint32 wait_event);
extern void WakeupCancel(void);

#endif							/* IDEM_WAKEUP_H */
