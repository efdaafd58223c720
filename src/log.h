/*-------------------------------------------------------------------------
 *
 * log.h
 *	  Access to the rows of transaction_log.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_LOG_H
#define IDEM_LOG_H

#include "access/tableam.h"
#include "catalog.h"
#include "datatype/timestamp.h"
#include "nodes/execnodes.h"
#include "request.h"
#include "utils/relcache.h"

/*
 * Columns of transaction_log, in the table's order.  What an end changes stands
 * together behind what it does not: the record of an update in the WAL leaves
 * out what the two versions have in common in front.
 */
typedef enum LogColumn
{
	LOG_TOKEN,
	LOG_LIFE,
	LOG_CREATED_AT,
	LOG_DUE_AT,
	LOG_CLAIMED_XACT,
	LOG_ATTEMPT,
	LOG_SCOPE,
	LOG_REQUEST_ID,
	LOG_CLAIMED_BY,
	LOG_FINGERPRINT,
	LOG_TTL,
	LOG_LEASE,
	LOG_GRANTED,				/* this and the next four: NULL means 0 */
	LOG_STEPS,
	LOG_CALLS,
	LOG_OPEN_CALLS,
	LOG_CHANGES,
	LOG_PROVED_XACT,			/* NULL means the same as LOG_CLAIMED_XACT */
	LOG_PRIOR_STATUS,
	LOG_PRIOR_UNTIL,
	LOG_PRIOR_TTL,
	LOG_PRIOR_LEASE,
	LOG_PRIOR_UNNAMED,
	LOG_STATUS,
	LOG_LOCKED_UNTIL,
	LOG_RETRY_AT,
	LOG_EXPIRES_AT,
	LOG_COMPLETED_AT,
	LOG_RESPONSE_CODE,
	LOG_RESPONSE_HEADERS,
	LOG_RESPONSE_BYTES,
	LOG_RESPONSE_BODY,
	LOG_ERROR,
	LOG_REASON,
	LOG_REQUEST_BODY,
	LOG_NATTS
} LogColumn;

/* Status of a request as it is stored. */
typedef enum LogStatus
{
	LOG_PROCESSING,
	LOG_COMPLETED,
	LOG_FAILED,
	LOG_UNKNOWN
} LogStatus;

/* What a probe for a key met, in the eyes of all transactions. */
typedef enum LogSight
{
	LOG_SIGHT_NOTHING,			/* proves nothing except to an insert */
	LOG_SIGHT_SPECULATIVE,		/* somebody is just trying to insert it */
	LOG_SIGHT_INSERTING,		/* another transaction's, uncommitted */
	LOG_SIGHT_CHANGING,			/* committed, being changed or deleted */
	LOG_SIGHT_COMMITTED,		/* committed, nobody is changing it */
	LOG_SIGHT_OWN				/* written by this transaction */
} LogSight;

/* What became of a write. */
typedef enum LogWrite
{
	LOG_WRITTEN,
	LOG_LOST,					/* the row changed since it was probed */
	LOG_BUSY					/* held by another transaction, not waited */
} LogWrite;

/*
 * A row version as a probe found it.  The values point into the buffer that
 * the log's slot pins: they last until the next probe or LogUnpin.  There are
 * none before LOG_SIGHT_CHANGING.
 */
typedef struct LogRow
{
	LogSight	sight;
	ItemPointerData tid;
	TransactionId other;		/* who inserts or changes it */
	bool		deleting;		/* LOG_SIGHT_CHANGING: by a delete */
	Datum	   *values;
	bool	   *nulls;
} LogRow;

/*
 * The open log, or another table whose rows are found by (scope, id); lives in
 * the memory context that it was opened in.
 */
typedef struct Log
{
	Relation	rel;
	Relation	index;			/* behind the primary key */
	int			natts;			/* columns that we know of */
	TupleTableSlot *found;		/* row version of the last probe */
	TupleTableSlot *written;	/* new row versions */
	EState	   *estate;			/* for index entries; NULL until needed */
	ResultRelInfo *indexes;		/* all indexes; NULL until needed */
	ItemPointerData held;		/* row version locked by LogAwaitLocks */
	bool		batch;			/* writes are one command (LogBeginBatch) */
	bool		unseen;			/* of which some are not visible yet */
} Log;

extern void LogOpen(Log *log);
extern void LogOpenTable(Log *log, IdemTable table, int natts);
extern void LogClose(Log *log);
extern void LogBeginBatch(Log *log);
extern void LogSeeWrites(Log *log);
extern void LogUnpin(Log *log);

extern void LogProbe(Log *log, const RequestKey *key, LogRow *row);
extern void LogProbeAllIndexes(Log *log, const RequestKey *key, LogRow *row);
extern bool LogIsThere(Log *log, const RequestKey *key);
extern bool LogFetch(Log *log, const RequestKey *key, Snapshot snapshot,
					 LogRow *row);
extern void LogRowFound(Log *log, LogRow *row);
extern bool LogFetchOwn(Log *log, const ItemPointerData *tid, LogRow *row);
extern void LogCheckSnapshot(Log *log, const LogRow *row);

extern bool LogInsert(Log *log, const Datum *values, const bool *nulls);
extern LogWrite LogTakeOver(Log *log, const LogRow *row, const Datum *values,
							const bool *nulls);
extern bool LogAwaitLocks(Log *log, const LogRow *row);
extern LogWrite LogUpdate(Log *log, const LogRow *row, const Datum *values,
						  const bool *nulls);
extern LogWrite LogDelete(Log *log, const LogRow *row);
extern LogWrite LogTryDelete(Log *log, const LogRow *row);

extern void LogCopyRow(const LogRow *row, Datum *values, bool *nulls);
extern void LogForgetPrior(bool *nulls);
extern LogStatus LogRowStatus(const LogRow *row);
extern const char *LogStatusName(LogStatus status);
extern bool LogRowIsOwnClaim(const LogRow *row);
extern bool LogRowIsHeldHere(const LogRow *row);
extern void LogNoteHolder(Datum *values, bool *nulls);
extern bool LogRowIsReleased(const LogRow *row);
extern TimestampTz LogRowTime(const LogRow *row, LogColumn column,
							  TimestampTz missing);
extern int64 LogRowInt64(const LogRow *row, LogColumn column);
extern int32 LogRowInt32(const LogRow *row, LogColumn column);
extern void LogSetCount(Datum *values, bool *nulls, LogColumn column,
						int32 count);

#endif							/* IDEM_LOG_H */
