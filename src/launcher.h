/*-------------------------------------------------------------------------
 *
 * launcher.h
 *	  The process that starts purge workers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_LAUNCHER_H
#define IDEM_LAUNCHER_H

extern void LauncherRegister(void);
extern PGDLLEXPORT void LauncherMain(Datum arg);

#endif							/* IDEM_LAUNCHER_H */
