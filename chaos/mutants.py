"""Faults planted into a copy of the extension, to see that the checker sees.

A mutant is (file, old text, new text); a text that is not found fails the run,
so that mutants cannot rot.
"""

import os
import shutil
import subprocess

MUTANTS = {
    # A holder whose claim was taken over may finish.
    'no_token_check': (
        'src/holder.c',
        'if (holder->has_token && (LogRowInt64(row, LOG_TOKEN) != holder->token ||',
        'if (holder->has_token && (false ||'),
    # What a claim leaves behind is lost in a crash.
    'no_durable_commit': (
        'src/durability.c',
        '\t\tForceSyncCommit();\n',
        '\t\tinnermost->must_flush = true;\n'),
    # The purge removes what its index says is due, without judging the row.
    'no_recheck_in_purge': (
        'src/purge.c',
        'if (state == STATE_ABSENT)\n\t\treturn remove_key',
        'if (state == STATE_ABSENT || LogRowStatus(row) != LOG_UNKNOWN)\n\t\treturn remove_key'),
    # A key that somebody else is inserting raises a unique violation.
    'no_conflict_handling': (
        'src/log.c',
        'won = insert_index_entries(log, slot, false, true, false);',
        'won = insert_index_entries(log, slot, false, false, false);'),
}
NAMES = sorted(MUTANTS)


def build(name, source, directory, pg_config):
    """Builds the mutant in a copy; the directory that its library is in."""
    copy = os.path.join(directory, 'mutant')
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(
        '.git', '*.o', '*.bc', '*.so', 'tmp_check*', 'results', 'chaos', 't'))
    path, old, new = MUTANTS[name]
    path = os.path.join(copy, path)
    with open(path, encoding='utf-8') as file:
        text = file.read()
    if text.count(old) != 1:
        raise RuntimeError('mutant %s: its place in %s is gone' % (name, path))
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text.replace(old, new))
    subprocess.run(['make', '-s', '-j2', '-C', copy, 'with_llvm=no', 'PG_CONFIG=' + pg_config], check=True)
    return copy
