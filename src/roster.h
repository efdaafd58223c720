/*-------------------------------------------------------------------------
 *
 * roster.h
 *	  What purge workers tell the launcher.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_ROSTER_H
#define IDEM_ROSTER_H

/* Workers at once. */
#define ROSTER_SLOTS	3

/* How a worker ended. */
typedef enum RosterReport
{
	ROSTER_NOTHING,				/* did not say: it failed or was ended */
	ROSTER_DONE,				/* nothing more is due */
	ROSTER_MORE,				/* there is more, but its time was up */
	ROSTER_GAVE_WAY,			/* somebody wanted the database or a table */
	ROSTER_NOT_INSTALLED		/* no extension that it can work with */
} RosterReport;

/* What a worker is started for, passed in bgw_extra. */
typedef struct RosterOrder
{
	Oid			database;
	int			slot;
	uint64		ticket;			/* tells this run from others in the slot */
} RosterOrder;

extern void RosterInit(void);
extern void RosterWrite(const RosterOrder *order, RosterReport report);
extern RosterReport RosterRead(const RosterOrder *order);

#endif							/* IDEM_ROSTER_H */
