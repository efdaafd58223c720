#!/usr/bin/python3
"""Checks a chaos run: the journals of its clients against what is stored.

    check.py DIRECTORY DSN

Runs when the faults are over and the server is up.  Prints each invariant that
is broken with its evidence, and exits with 1 if there is one.

Times of journals are of one monotonic clock: an event happened between the
time of its intent and that of its outcome.
"""

import collections
import glob
import json
import os
import sys
import time

import psycopg2

SHOWN = 5
LEGAL_STEPS = {('created', 'paid'), ('paid', 'shipped'), ('paid', 'cancelled'),
               ('cancelled', 'created'), ('shipped', 'created')}
ENDS = ('finish', 'finish_many', 'release', 'fail', 'again')
UNTIL_ALL_FINISHED_S = 20


class Event:
    """One step of one client: its intent and, where it got so far, its outcome."""

    def __init__(self, intent):
        self.sent = intent['t']
        self.received = float('inf')
        self.outcome = 'unknown'
        self.result = None
        self.sqlstate = None
        self.client = intent['client']
        self.kind = intent['kind']
        self.what = intent

    def end(self, line):
        self.received = line['t']
        self.outcome = line['event']
        self.result = line.get('result')
        self.sqlstate = line.get('sqlstate')

    def __str__(self):
        return '%s %s %s [%.3f, %.3f] %s' % (self.client, self.kind, self.outcome,
                                             self.sent, self.received, self.result)


class Journals:
    def __init__(self, directory):
        self.events = []
        self.held = []          # (key, token, lease, time of the acknowledgement)
        self.violations = []
        for path in sorted(glob.glob(os.path.join(directory, '*.journal'))):
            self.read(path)

    def read(self, path):
        steps = {}
        with open(path, encoding='utf-8') as lines:
            for text in lines:
                try:
                    line = json.loads(text)
                except ValueError:
                    continue            # the client was killed while writing it
                if line['event'] == 'start':
                    steps = {}
                elif line['event'] == 'intent':
                    event = Event(line)
                    steps[line['n']] = event
                    self.events.append(event)
                elif line['event'] in ('ok', 'failed', 'unknown'):
                    steps[line['n']].end(line)
                elif line['event'] == 'held':
                    self.held.append(line)
                elif line['event'] == 'violation':
                    self.violations.append('%s: %s' % (line['client'], line['what']))

    def of(self, *kinds):
        return [event for event in self.events if event.kind in kinds]


class Checker:
    def __init__(self, directory, dsn):
        self.journals = Journals(directory)
        self.conn = psycopg2.connect(dsn)
        self.conn.autocommit = True
        self.broken = 0
        self.effects = self.sql('SELECT request_id, life, token, status, body, created_at, expires_at,'
                                ' expires_at::text, mode FROM effect ORDER BY request_id, life')
        self.grants = self.all_grants()

    def sql(self, text, *values):
        with self.conn.cursor() as cursor:
            cursor.execute(text, values)
            return cursor.fetchall() if cursor.description else None

    def expect(self, name, wrong):
        wrong = list(wrong)
        if wrong:
            self.broken += 1
            print('BROKEN  %s (%d times)' % (name, len(wrong)))
            for one in wrong[:SHOWN]:
                print('        %s' % (one,))
        else:
            print('holds   %s' % name)

    # ---- grants ----------------------------------------------------------

    def all_grants(self):
        """(key, token, event) of every claim that was answered with "claimed"."""
        grants = []
        for event in self.journals.of('claim', 'claim_many'):
            if event.outcome != 'ok':
                continue
            if event.kind == 'claim':
                if event.result[0] == 'claimed':
                    grants.append((event.what['key'], event.result[1], event))
            else:
                grants.extend((row[0], row[2], event) for row in event.result if row[1] == 'claimed')
        return grants

    def by_key(self):
        keys = collections.defaultdict(list)
        for key, token, event in self.grants:
            keys[key].append((token, event))
        return keys

    def tokens_are_unique(self):
        count = collections.Counter((key, token) for key, token, event in self.grants)
        self.expect('a token is granted once', [what for what, n in count.items() if n > 1])

    def tokens_grow(self):
        wrong = []
        for key, grants in self.by_key().items():
            by_end = sorted(grants, key=lambda grant: grant[1].received)
            greatest, seen = 0, 0
            for token, event in sorted(grants, key=lambda grant: grant[1].sent):
                while by_end[seen][1].received < event.sent:
                    greatest = max(greatest, by_end[seen][0])
                    seen += 1
                if token <= greatest:
                    wrong.append('%s: %d after %d, %s' % (key, token, greatest, event))
        self.expect('a later grant has a greater token', wrong)

    def leases_are_respected(self):
        """A claim that is known to be committed is not given to anybody else."""
        ended = collections.defaultdict(lambda: float('inf'))
        for event in self.journals.of(*ENDS):
            pairs = event.what.get('tokens') or [[event.what['key'], event.what['token']]]
            for key, token in pairs:
                ended[key, token] = min(ended[key, token], event.sent)
        sent = {(key, token): event.sent for key, token, event in self.grants}
        grants = self.by_key()
        wrong = []
        for held in self.journals.held:
            key, token = held['key'], held['token']
            until = sent[key, token] + held['lease']
            for other, event in grants[key]:
                if (other > token and event.sent > held['t'] and event.received < until
                        and event.received < ended[key, token]):
                    wrong.append('%s: %d until %.3f, %s' % (key, token, until, event))
        self.expect('nobody takes over a live lease', wrong)

    def fence_holds(self):
        """After a larger token was acknowledged the smaller one does nothing."""
        grants = self.by_key()
        committed = {(effect[0], effect[2]) for effect in self.effects}
        lasting = {(held['key'], held['token']): held['t'] for held in self.journals.held}
        wrong = []
        for event in self.journals.of('finish', 'extend', 'release', 'fail', 'checkpoint'):
            if event.outcome != 'ok' or event.result is False or 'token' not in event.what:
                continue
            key, token = event.what['key'], event.what['token']
            for other, grant in grants[key]:
                # Grants of transactions that were rolled back fence nobody; one
                # that was not had the row from the moment of its answer.
                since = lasting.get((key, other))
                if since is None and (key, other) in committed:
                    since = grant.received
                if other > token and since is not None and since < event.sent:
                    wrong.append('%s: %d after %d, %s' % (key, token, other, event))
        self.expect('no write under a token after a larger one', wrong)

    # ---- effects ---------------------------------------------------------

    def one_effect_for_a_life(self):
        count = collections.Counter(effect[:2] for effect in self.effects)
        self.expect('a life of a key has one effect', [what for what, n in count.items() if n > 1])

    def lives_do_not_overlap(self):
        """The next life begins when the one before has expired, not earlier."""
        wrong = []
        for one, next_one in zip(self.effects, self.effects[1:]):
            if one[0] == next_one[0] and one[6] > next_one[5]:
                wrong.append('%s: until %s, again at %s' % (one[0], one[6], next_one[5]))
        self.expect('a finished key is not run again inside its ttl', wrong)

    def acknowledged_is_there(self):
        have = collections.defaultdict(set)
        for effect in self.effects:
            have[effect[0], effect[2]].add(json.dumps(json.loads(effect[4]), sort_keys=True))
        wrong = []
        for event in self.journals.of('finish'):
            if event.outcome == 'ok' and event.result is True and event.what['flushed']:
                answer = json.dumps(json.loads(event.what['answer']), sort_keys=True)
                if answer not in have[event.what['key'], event.what['token']]:
                    wrong.append('%s: %s' % (event.what['key'], event))
        self.expect('an acknowledged finish survives', wrong)

    def refused_is_not_there(self):
        have = {(effect[0], effect[2]) for effect in self.effects}
        wrong = []
        for event in self.journals.of('finish', 'finish_many'):
            pairs = event.what.get('tokens') or [[event.what['key'], event.what['token']]]
            if event.outcome == 'failed' and event.sqlstate in ('ID001', 'ID002'):
                wrong.extend(str(event) for pair in pairs if tuple(pair) in have)
        self.expect('a refused finish leaves no effect', wrong)

    def replays_are_true(self):
        """Every replay tells what the finisher of that life has stored."""
        stored = {(effect[0], effect[7], effect[4]) for effect in self.effects}
        loose = set()       # finished with synchronous_commit = off: may be lost
        for event in self.journals.of('finish', 'finish_many'):
            if not event.what['flushed']:
                for answer in event.what.get('answers') or [event.what['answer']]:
                    loose.add(json.dumps(json.loads(answer), sort_keys=True))
        wrong = []
        for key, body, expires, event in self.all_replays():
            if (key, expires, body) in stored:
                continue
            content = json.loads(body)
            if json.dumps(content, sort_keys=True) in loose or 'run' in content:
                continue
            wrong.append('%s: %s' % (key, event))
        self.expect('a replay is the response of its finisher', wrong)

    def all_replays(self):
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

    def log_agrees_with_effects(self):
        self.expect('a finished request has its effect', self.sql('''
            SELECT request_id, life, token FROM transaction_log l
             WHERE status IN ('completed', 'failed') AND retry_at IS NULL
               AND NOT EXISTS (SELECT FROM effect e
                   WHERE e.request_id = l.request_id AND e.life = l.life AND e.token = l.token
                     AND e.body = coalesce(l.response_body, l.error)::text)'''))
        self.expect('an effect has its finished request', self.sql('''
            SELECT e.request_id, e.life, e.token, l.status FROM effect e
              LEFT JOIN transaction_log l ON l.request_id = e.request_id AND l.life = e.life
             WHERE e.expires_at > clock_timestamp() AND l.token IS DISTINCT FROM e.token'''))

    def steps_are_done_once(self):
        self.expect('a step of a life is done once', self.sql(
            'SELECT request_id, life, step FROM step_effect GROUP BY 1, 2, 3 HAVING count(*) > 1'))

    def messages_are_handled_once(self):
        self.expect('a message is handled once', self.sql(
            'SELECT message_id FROM message_effect GROUP BY 1 HAVING count(*) > 1'))
        self.expect('a message that is noted was handled', self.sql(
            'SELECT message_id FROM idempotency_inbox i WHERE NOT EXISTS'
            ' (SELECT FROM message_effect e WHERE e.message_id = i.message_id)'))

    def transitions_are_legal(self):
        changes = self.sql('SELECT id, old_state, new_state, old_version, new_version FROM order_change'
                           ' ORDER BY id, new_version')
        self.expect('only declared transitions',
                    [change for change in changes if (change[1], change[2]) not in LEGAL_STEPS])
        wrong, last = [], {}
        for change in changes:
            if change[3] != last.get(change[0], 1) or change[4] != change[3] + 1:
                wrong.append(change)
            last[change[0]] = change[4]
        self.expect('versions advance by one', wrong)

    # ---- when it is quiet --------------------------------------------------

    def indexes_are_whole(self):
        wrong = []
        for (index,) in self.sql('''
                SELECT i.indexrelid::regclass::text FROM pg_index i
                  JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = i.indrelid AND d.deptype = 'e'
                  JOIN pg_extension x ON x.oid = d.refobjid AND x.extname = 'idempotency'
                 WHERE i.indisvalid'''):
            try:
                self.sql('SELECT bt_index_check(%s::regclass, true)', index)
            except psycopg2.Error as error:
                wrong.append('%s: %s' % (index, error))
        self.expect('indexes agree with their tables', wrong)
        self.sql('SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off')
        self.expect('no key is stored twice', self.sql(
            'SELECT scope, request_id FROM transaction_log GROUP BY 1, 2 HAVING count(*) > 1'))
        self.sql('RESET ALL')

    def nothing_is_left(self):
        self.expect('no prepared transaction, lock or snapshot is left', self.sql('''
            SELECT 'prepared ' || gid FROM pg_prepared_xacts
             UNION ALL
            SELECT 'lock ' || locktype || ' ' || mode FROM pg_locks
             WHERE pid <> pg_backend_pid() AND locktype <> 'virtualxid'
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
               AND pid NOT IN (SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'idempotency%%'
                   OR backend_type LIKE 'autovacuum%%')
             UNION ALL
            SELECT 'snapshot of ' || application_name FROM pg_stat_activity
             WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND backend_xmin IS NOT NULL'''))

    def all_keys_finish(self):
        """Whatever was left behind can be carried out now."""
        keys = {row[0] for row in self.sql('SELECT request_id FROM transaction_log')}
        until = time.monotonic() + UNTIL_ALL_FINISHED_S
        while keys and time.monotonic() < until:
            for key in sorted(keys):
                self.sql('BEGIN')
                outcome = self.sql('SELECT outcome FROM idem_claim(%s, %s)', key, json.dumps({'key': key}))[0][0]
                if outcome == 'claimed':
                    self.sql('SELECT idem_finish(%s)', key)
                if outcome in ('claimed', 'replay'):
                    keys.discard(key)
                self.sql('COMMIT')
            time.sleep(0.1)
        self.expect('every key finishes', sorted(keys))

    def all_is_purged(self):
        self.sql("SET idempotency.test_clock = '2100-01-01'")
        self.sql('CALL idem_purge_all()')
        self.expect('what is due is purged', self.sql('''
            SELECT 'request ' || request_id || ' ' || status FROM transaction_log
             UNION ALL SELECT 'step ' || request_id FROM idempotency_checkpoint
             UNION ALL SELECT 'message ' || message_id FROM idempotency_inbox'''))
        self.sql('RESET idempotency.test_clock')

    def run(self):
        self.expect('every answer is one of the protocol', self.journals.violations)
        self.tokens_are_unique()
        self.tokens_grow()
        self.leases_are_respected()
        self.fence_holds()
        self.one_effect_for_a_life()
        self.lives_do_not_overlap()
        self.acknowledged_is_there()
        self.refused_is_not_there()
        self.replays_are_true()
        self.log_agrees_with_effects()
        self.steps_are_done_once()
        self.messages_are_handled_once()
        self.transitions_are_legal()
        self.nothing_is_left()
        self.all_keys_finish()
        self.indexes_are_whole()
        self.all_is_purged()
        self.say_what_was_done()
        return 1 if self.broken else 0

    def say_what_was_done(self):
        count = collections.Counter((event.kind, event.outcome) for event in self.journals.events)
        print('steps:', ', '.join('%s %s %d' % (*what, n) for what, n in sorted(count.items())))
        print('grants: %d, effects: %d, replays: %d'
              % (len(self.grants), len(self.effects), sum(1 for _ in self.all_replays())))
        if not self.grants or not self.effects:
            print('BROKEN  nothing was done')
            self.broken += 1


if __name__ == '__main__':
    sys.exit(Checker(sys.argv[1], sys.argv[2]).run())
