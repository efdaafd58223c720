/*-------------------------------------------------------------------------
 *
 * machine.h
 *	  Definitions of state machines.
 *
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_MACHINE_H
#define IDEM_MACHINE_H

/* Longest name of a machine or of a state, in bytes. */
#define MACHINE_NAME_MAX	255

/*
 * A definition as a graph.  States are numbered in the order in which the
 * definition first names them, the initial ones first.  The steps out of state
 * s are step[first_step[s]] to step[first_step[s + 1] - 1].
 */
typedef struct Machine
{
	int			nstates;
	int			ninitial;
	int			nsteps;
	const char **state;
	int		   *by_name;		/* numbers of states in order of their names */
	int		   *first_step;
	int		   *step;
} Machine;

extern const Machine *MachineGet(const char *name);
extern int	MachineState(const Machine *machine, const char *state);
extern bool MachineBeginsIn(const Machine *machine, int state);
extern bool MachineAllows(const Machine *machine, int from, int to);
extern bool MachineRunsThrough(const Machine *machine, int present,
							   int through);
extern char *MachineInitialList(const Machine *machine);
extern char *MachineNextList(const Machine *machine, int state);

#endif							/* IDEM_MACHINE_H */
