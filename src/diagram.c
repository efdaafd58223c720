/*-------------------------------------------------------------------------
 *
 * diagram.c
 *	  Pictures of state machines: idem_machine_diagram.
 *
 * Mermaid takes only plain words for names, so other names get a short name of
 * their own and appear as its label.  DOT takes any quoted string; the empty
 * one, which no state can have as its name, is the point where arrows to the
 * initial states begin.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "machine.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(idem_machine_diagram);

/* Words with a meaning of their own in a Mermaid state diagram. */
static const char *const mermaid_words[] = {
	"accDescr", "accTitle", "as", "class", "classDef", "click", "default",
	"direction", "end", "fork", "hide", "href", "join", "note", "of", "scale",
	"state", "stateDiagram", "style"
};

/* No further step leads out of the state, at most one to itself. */
static bool
is_final(const Machine *machine, int state)
{
	for (int j = machine->first_step[state];
		 j < machine->first_step[state + 1]; j++)
	{
		if (machine->step[j] != state)
			return false;
	}
	return true;
}

/* Can the name stand in a Mermaid diagram as it is? */
static bool
is_plain_word(const char *name)
{
	for (const char *c = name; *c; c++)
	{
		if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
			  *c == '_' || (c > name && *c >= '0' && *c <= '9')))
			return false;
	}
	for (int i = 0; i < lengthof(mermaid_words); i++)
	{
		if (pg_strcasecmp(name, mermaid_words[i]) == 0)
			return false;
	}
	return true;
}

static void
append_mermaid_label(StringInfo out, const char *name)
{
	appendStringInfoChar(out, '"');
	for (const char *c = name; *c; c++)
	{
		/* Mermaid reads #NN; as the character with this number. */
		if (strchr("\"#;<>&`\\:", *c))
			appendStringInfo(out, "#%d;", (unsigned char) *c);
		else
			appendStringInfoChar(out, *c);
	}
	appendStringInfoChar(out, '"');
}

/* Names for the states of a Mermaid diagram; palloc'd. */
static char **
mermaid_names(const Machine *machine, StringInfo out)
{
	char	  **names = palloc(sizeof(char *) * machine->nstates);

	for (int s = 0; s < machine->nstates; s++)
	{
		names[s] = pstrdup(machine->state[s]);
		if (is_plain_word(machine->state[s]))
			continue;
		names[s] = psprintf("s%d", s + 1);
		while (MachineState(machine, names[s]) >= 0)
			names[s] = psprintf("%s_", names[s]);
		appendStringInfoString(out, "\n    state ");
		append_mermaid_label(out, machine->state[s]);
		appendStringInfo(out, " as %s", names[s]);
	}
	return names;
}

static void
draw_mermaid(StringInfo out, const Machine *machine)
{
	char	  **names;

	appendStringInfoString(out, "stateDiagram-v2");
	names = mermaid_names(machine, out);
	for (int s = 0; s < machine->ninitial; s++)
		appendStringInfo(out, "\n    [*] --> %s", names[s]);
	for (int s = 0; s < machine->nstates; s++)
	{
		for (int j = machine->first_step[s]; j < machine->first_step[s + 1]; j++)
			appendStringInfo(out, "\n    %s --> %s", names[s],
							 names[machine->step[j]]);
		if (is_final(machine, s))
			appendStringInfo(out, "\n    %s --> [*]", names[s]);
	}
}

static void
append_dot_string(StringInfo out, const char *name)
{
	appendStringInfoChar(out, '"');
	for (const char *c = name; *c; c++)
	{
		if (*c == '"' || *c == '\\')
			appendStringInfoChar(out, '\\');
		appendStringInfoChar(out, *c);
	}
	appendStringInfoChar(out, '"');
}

static void
append_dot_edge(StringInfo out, const char *from, const char *to)
{
	appendStringInfoString(out, "\n    ");
	append_dot_string(out, from);
	appendStringInfoString(out, " -> ");
	append_dot_string(out, to);
	appendStringInfoChar(out, ';');
}

static void
draw_dot(StringInfo out, const Machine *machine, const char *name)
{
	appendStringInfoString(out, "digraph ");
	append_dot_string(out, name);
	appendStringInfoString(out, " {\n    rankdir=LR;"
						   "\n    node [shape=box, style=rounded];"
						   "\n    \"\" [shape=point];");
	for (int s = 0; s < machine->nstates; s++)
	{
		appendStringInfoString(out, "\n    ");
		append_dot_string(out, machine->state[s]);
		if (is_final(machine, s))
			appendStringInfoString(out, " [peripheries=2]");
		appendStringInfoChar(out, ';');
	}
	for (int s = 0; s < machine->ninitial; s++)
		append_dot_edge(out, "", machine->state[s]);
	for (int s = 0; s < machine->nstates; s++)
	{
		for (int j = machine->first_step[s]; j < machine->first_step[s + 1]; j++)
			append_dot_edge(out, machine->state[s],
							machine->state[machine->step[j]]);
	}
	appendStringInfoString(out, "\n}");
}

/*
 * idem_machine_diagram - a machine as text of a drawing program.
 */
Datum
idem_machine_diagram(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *format = text_to_cstring(PG_GETARG_TEXT_PP(1));
	const Machine *machine = MachineGet(name);
	StringInfoData out;

	if (machine == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("machine \"%s\" is not defined", name),
				 errhint("Define it with idem_machine.")));

	initStringInfo(&out);
	if (strcmp(format, "mermaid") == 0)
		draw_mermaid(&out, machine);
	else if (strcmp(format, "dot") == 0)
		draw_dot(&out, machine, name);
	else
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown diagram format \"%s\"", format),
				 errhint("Formats are mermaid and dot.")));
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
