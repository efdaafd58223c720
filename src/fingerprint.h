/*-------------------------------------------------------------------------
 *
 * fingerprint.h
 *	  Hash of a request, to refuse one key for two different requests.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_FINGERPRINT_H
#define IDEM_FINGERPRINT_H

#include "utils/array.h"
#include "utils/jsonb.h"

extern bytea *FingerprintOf(Jsonb *body, ArrayType *exclude);

#endif							/* IDEM_FINGERPRINT_H */
