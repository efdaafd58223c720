/*-------------------------------------------------------------------------
 *
 * answer.h
 *	  Results of functions that answer with exactly one row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_ANSWER_H
#define IDEM_ANSWER_H

#include "fmgr.h"

extern Datum AnswerRow(FunctionCallInfo fcinfo, Datum *values, bool *nulls);

#endif							/* IDEM_ANSWER_H */
