"""Faults planted into a copy of the extension, to see that the checker sees.

A text that is not found exactly once and a mutant that does not compile fail
the run, so that mutants cannot rot.
"""

import filecmp
import os
import shutil
import subprocess

BUILD_S = 600
LIBRARY = 'idempotency.so'


class Mutant:
    def __init__(self, file, old, new, caught_by, kinds, faults, pause_s=(0.3, 0.8)):
        self.file = file
        self.old = old
        self.new = new
        self.caught_by = caught_by      # invariants: any of them
        self.kinds = kinds              # of work that shows it
        self.faults = faults
        self.pause_s = pause_s          # between two faults


MUTANTS = {
    # A holder whose claim was taken over may finish.
    'no_token_check': Mutant(
        'src/holder.c',
        'if (holder->has_token && (LogRowInt64(row, LOG_TOKEN) != holder->token ||',
        'if (holder->has_token && (false ||',
        {'no write under a token after a larger one', 'a life of a key has one effect',
         'an acknowledged finish survives'},
        'two_transactions', ['stop_client', 'kill_client']),
    # What a claim leaves behind is lost in a crash.
    'no_durable_commit': Mutant(
        'src/durability.c',
        '\t\tForceSyncCommit();\n',
        '\t\tinnermost->must_flush = true;\n',
        {'an acknowledged finish survives', 'nobody takes over a live lease', 'a later grant has a greater token',
         'a replay is the response of its finisher', 'an answer is what the provider has decided'},
        'two_transactions', ['kill_server', 'immediate_shutdown']),
    # The purge removes what its index says is due, without judging the row.
    'no_recheck_in_purge': Mutant(
        'src/purge.c',
        'if (state == STATE_ABSENT)\n\t\treturn remove_key',
        'if (state == STATE_ABSENT || LogRowStatus(row) != LOG_UNKNOWN)\n\t\treturn remove_key',
        {'nobody takes over a live lease', 'a finished key is not run again inside its ttl',
         'an acknowledged finish survives', 'an effect has its finished request'},
        'outlast,outlast,one_transaction', ['purge'], (0.01, 0.05)),
    # A key that somebody else is inserting raises a unique violation.
    'no_conflict_handling': Mutant(
        'src/log.c',
        'won = insert_index_entries(log, slot, false, true, false);',
        'won = insert_index_entries(log, slot, false, false, false);',
        {'every answer is one of the protocol'},
        'rush', ['reload']),
    # A call that nobody can know about is sent again, instead of asking a person.
    'no_review': Mutant(
        'src/callstate.c',
        '{CALL_DO_SEND, CALL_DO_INQUIRE, CALL_DO_REVIEW}',
        '{CALL_DO_SEND, CALL_DO_SEND, CALL_DO_SEND}',
        {'a life of a key is charged once', 'a call is sent again only where that is safe'},
        'pay', ['restart_provider', 'kill_client']),
}
NAMES = sorted(MUTANTS)


class MutantError(Exception):
    """A mutant cannot be made."""


class Nursery:
    """A copy of the source, built once; each mutant is one file of it built again."""

    def __init__(self, source, directory, pg_config):
        self.directory = directory
        self.tree = os.path.join(directory, 'tree')
        self.pg_config = pg_config
        left_out = ['.git', '*.bc', 'tmp_check*', 'results', 'chaos', 't', 'debian']
        if not self.is_built(source):
            left_out += ['*.o', '*.so']
        shutil.copytree(source, self.tree, ignore=shutil.ignore_patterns(*left_out))
        self.make()

    def is_built(self, source):
        """Are the objects in there those of the library that is installed?"""
        installed = os.path.join(subprocess.check_output([self.pg_config, '--pkglibdir'], text=True).strip(), LIBRARY)
        built = os.path.join(source, LIBRARY)
        return os.path.exists(built) and os.path.exists(installed) and filecmp.cmp(built, installed, shallow=False)

    def make(self):
        done = subprocess.run(['make', '-s', '-j2', '-C', self.tree, 'with_llvm=no', 'PG_CONFIG=' + self.pg_config],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=BUILD_S)
        if done.returncode != 0:
            raise MutantError('it does not compile:\n' + done.stdout[-2000:])

    def breed(self, name, mutant):
        """The directory of the mutant's library."""
        path = os.path.join(self.tree, mutant.file)
        compiled = path[:-2] + '.o'
        with open(path, encoding='utf-8') as file:
            text = file.read()
        if text.count(mutant.old) != 1:
            raise MutantError('mutant %s: its place in %s is gone' % (name, mutant.file))
        # Times of files decide what is built again; they may be coarse.
        os.rename(path, path + '.whole')
        os.rename(compiled, compiled + '.whole')
        try:
            with open(path, 'w', encoding='utf-8') as file:
                file.write(text.replace(mutant.old, mutant.new))
            self.make()
            library = os.path.join(self.directory, name)
            os.mkdir(library)
            shutil.copy(os.path.join(self.tree, LIBRARY), library)
            return library
        finally:
            os.rename(path + '.whole', path)
            os.rename(compiled + '.whole', compiled)

    def refuses(self):
        """What must not pass for a mutant; the names of those that do."""
        bad = {'whose text is not found': Mutant('src/log.c', 'no such text', '', set(), '', []),
               'that does not compile': Mutant('src/clock.c', '#include "postgres.h"', '#error', set(), '', [])}
        passed = []
        for name, mutant in bad.items():
            try:
                self.breed(name.replace(' ', '_'), mutant)
                passed.append(name)
            except MutantError:
                pass
        return passed
