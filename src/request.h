/*-------------------------------------------------------------------------
 *
 * request.h
 *	  What names a request, and the checks of its arguments.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_REQUEST_H
#define IDEM_REQUEST_H

#include "datatype/timestamp.h"
#include "fmgr.h"

/* Longest key and longest scope, in characters. */
#define REQUEST_NAME_MAX	255

/* A request is named by its scope and its key; both detoasted. */
typedef struct RequestKey
{
	text	   *scope;
	text	   *request_id;
} RequestKey;

extern text *RequestCheckName(text *name, const char *what);
extern text *RequestCheckId(text *request_id);
extern text *RequestCheckScope(text *scope);
extern RequestKey RequestKeyFromArgs(FunctionCallInfo fcinfo, int id_arg,
									 int scope_arg);
extern Interval *RequestPositiveInterval(FunctionCallInfo fcinfo, int arg,
										 const char *name);
extern Interval *RequestWaitInterval(FunctionCallInfo fcinfo, int arg);
extern char *RequestDescribe(const RequestKey *key);

#endif							/* IDEM_REQUEST_H */
