#!/usr/bin/python3
"""Checks a chaos run: the journals of its clients against what is stored.

    check.py DIRECTORY DSN [brief]

"brief" leaves out what is looked for when all is quiet.  Runs when the faults are over and the server is up.  Prints each invariant that
is broken with its evidence, writes the names of those to DIRECTORY/broken, and
exits with 1 if there is one.
"""

import collections
import os
import sys

import psycopg2

SHOWN = 5
PATIENCE = '-c lock_timeout=20s -c statement_timeout=60s'


class Checker:
    """What the invariants in check_*.py look at, and tell."""

    def __init__(self, directory, dsn, journals, ledger):
        self.directory = directory
        self.journals = journals
        self.ledger = ledger
        self.conn = psycopg2.connect(dsn, application_name='chaos checker', options=PATIENCE)
        self.conn.autocommit = True
        self.broken = []
        self.effects = self.sql('SELECT request_id, life, token, status, body, created_at, expires_at,'
                                ' expires_at::text, mode FROM effect ORDER BY request_id, life')
        self.grants = list(self.all_grants())

    def sql(self, text, *values):
        with self.conn.cursor() as cursor:
            cursor.execute(text, values)
            return cursor.fetchall() if cursor.description else None

    def expect(self, name, wrong):
        wrong = list(wrong)
        if wrong:
            self.broken.append(name)
            print('BROKEN  %s (%d times)' % (name, len(wrong)))
            for one in wrong[:SHOWN]:
                print('        %s' % (one,))
        else:
            print('holds   %s' % name)

    def look_at(self, invariant):
        try:
            invariant(self)
        except psycopg2.Error as error:
            self.expect('the server answers the checker', ['%s: %s' % (invariant.__name__, error)])
            if not self.conn.closed:
                self.sql('ROLLBACK')

    def all_grants(self):
        """(key, token, event) of every claim that was answered with "claimed"."""
        for event in self.journals.of('claim', 'claim_many'):
            if event.outcome != 'ok':
                continue
            if event.kind == 'claim':
                if event.result[0] == 'claimed':
                    yield event.what['key'], event.result[1], event
            else:
                for row in event.result:
                    if row[1] == 'claimed':
                        yield row[0], row[2], event

    def grants_by_key(self):
        keys = collections.defaultdict(list)
        for key, token, event in self.grants:
            keys[key].append((token, event))
        return keys

    def all_replays(self):
        """(key, body, expiry, event) of every claim that was answered with "replay"."""
        for event in self.journals.of('claim', 'claim_many', 'run'):
            if event.outcome != 'ok':
                continue
            if event.kind == 'claim' and event.result[0] == 'replay':
                yield event.what['key'], event.result[4], event.result[5], event
            elif event.kind == 'run' and event.result[0] == 'replay':
                yield event.what['key'], event.result[1], event.result[2], event
            elif event.kind == 'claim_many':
                for row in event.result:
                    if row[1] == 'replay':
                        yield row[0], row[3], row[4], event

    def say_what_was_done(self):
        count = collections.Counter((event.kind, event.outcome) for event in self.journals.events)
        print('steps:', ', '.join('%s %s %d' % (*what, n) for what, n in sorted(count.items())))
        results = collections.Counter(line['what'] for line in self.ledger)
        print('calls:', ', '.join('%s %d' % item for item in sorted(results.items())),
              'settled by a person %d' % sum(1 for event in self.journals.of('settle') if event.result))
        print('grants: %d, effects: %d, replays: %d, charges: %d, crashes of clients: %d'
              % (len(self.grants), len(self.effects), sum(1 for _ in self.all_replays()),
                 results['succeeded'], self.journals.crashes))
        self.expect('something was done', [] if self.grants and self.effects else ['nothing'])


def main(directory, dsn, brief=None):
    import check_calls
    import check_effects
    import check_grants
    import check_quiet
    import journals
    checker = Checker(directory, dsn, journals.Journals(directory), check_calls.read_ledger(directory))
    checker.expect('every answer is one of the protocol', checker.journals.violations)
    # The last ones change what is stored.
    for module in (check_grants, check_effects, check_calls) + (() if brief else (check_quiet,)):
        for invariant in module.INVARIANTS:
            checker.look_at(invariant)
    checker.say_what_was_done()
    with open(os.path.join(directory, 'broken'), 'w', encoding='utf-8') as names:
        names.write(''.join(name + '\n' for name in checker.broken))
    return 1 if checker.broken else 0


if __name__ == '__main__':
    sys.dont_write_bytecode = True
    sys.exit(main(*sys.argv[1:]))
