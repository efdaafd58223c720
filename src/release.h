/*-------------------------------------------------------------------------
 *
 * release.h
 *	  Giving a claim back as if it had never been made.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_RELEASE_H
#define IDEM_RELEASE_H

#include "holder.h"

extern void ReleaseClaim(Log *log, const Holder *holder);

#endif							/* IDEM_RELEASE_H */
