/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  The process that purges one database and leaves.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_WORKER_H
#define IDEM_WORKER_H

#include "postmaster/bgworker.h"
#include "roster.h"

extern bool WorkerStart(const RosterOrder *order,
						BackgroundWorkerHandle **handle);
extern bool WorkerDatabaseIsWanted(Oid database);
extern PGDLLEXPORT void WorkerMain(Datum arg);

#endif							/* IDEM_WORKER_H */
