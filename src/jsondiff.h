/*-------------------------------------------------------------------------
 *
 * jsondiff.h
 *	  Where two JSON documents differ.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_JSONDIFF_H
#define IDEM_JSONDIFF_H

#include "utils/array.h"
#include "utils/jsonb.h"

extern ArrayType *JsonDiffPaths(Jsonb *a, Jsonb *b);

#endif							/* IDEM_JSONDIFF_H */
