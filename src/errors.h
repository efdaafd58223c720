/*-------------------------------------------------------------------------
 *
 * errors.h
 *	  SQLSTATEs of the extension's own conditions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_ERRORS_H
#define IDEM_ERRORS_H

#define ERRCODE_IDEM_STALE_TOKEN		MAKE_SQLSTATE('I','D','0','0','1')
#define ERRCODE_IDEM_NOT_CLAIMED		MAKE_SQLSTATE('I','D','0','0','2')
#define ERRCODE_IDEM_ALREADY_FINISHED	MAKE_SQLSTATE('I','D','0','0','3')
#define ERRCODE_IDEM_MISMATCH			MAKE_SQLSTATE('I','D','0','0','4')
#define ERRCODE_IDEM_IN_PROGRESS		MAKE_SQLSTATE('I','D','0','0','5')
#define ERRCODE_IDEM_OUTCOME_UNKNOWN	MAKE_SQLSTATE('I','D','0','0','6')
#define ERRCODE_IDEM_ILLEGAL_TRANSITION MAKE_SQLSTATE('I','D','0','0','7')
#define ERRCODE_IDEM_STALE_VERSION		MAKE_SQLSTATE('I','D','0','0','8')
#define ERRCODE_IDEM_ALREADY_RECORDED	MAKE_SQLSTATE('I','D','0','0','9')

#endif							/* IDEM_ERRORS_H */
