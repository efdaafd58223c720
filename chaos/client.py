#!/usr/bin/python3
"""One client of the chaos run: works on hot keys until it is stopped or killed.

What it means to do goes into its journal, on disk, before it is sent, and what
came of it afterwards: ok, failed (with a SQLSTATE) or unknown.  Nobody but the
checker draws conclusions.

    client.py NAME SEED DIRECTORY DSN
"""

import json
import os
import random
import select
import socket
import sys
import threading
import time

import psycopg2

LEASES_S = (0.3, 0.5, 0.8)
WINDOW_S = 1            # hot keys change that often
PAUSE_S = 0.02          # between two pieces of work, at most
RUSH_S = 0.25           # moments at which clients meet
RUSH_KEYS = 20
KEYS = 6                # so many at a time
LASTING_KEYS = 3        # these expire soon and come again
SHORT_TTL_S = 1
LONG_TTL_S = 600
SLOW_SHARE = 0.5        # of clients, whose work takes longer than their leases
DROP_SHARE = 0.03       # of commits, whose connection is cut
FLUSHED_SHARE = 0.05    # of one-transaction work, with synchronous_commit = on

# What an operation may be refused with, beside the ends of connections.
REFUSED_END = {'ID001', 'ID002', 'ID003', 'ID009'}
REFUSED_RUN = {'ID005', 'ID006'}
# Cancels, shutdowns, and what a server is short of while it goes down and up.
INTERRUPTED = {'57014', '57P01', '57P02', '57P03', '57P05', '53300', '40P01', '55P03'}


class Refused(Exception):
    """The server said no, in a way that the protocol foresees."""


class Interrupted(Exception):
    """A fault: the connection is gone, or the statement was cancelled."""


def seconds(value):
    return '%d ms' % round(value * 1000)


class Client:
    def __init__(self, name, seed, directory, dsn):
        self.name = name
        self.random = random.Random(seed)
        self.slow = self.random.random() < SLOW_SHARE
        self.dsn = dsn
        self.number = 0
        self.conn = None
        self.journal = os.open(os.path.join(directory, name + '.journal'),
                               os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    # ---- journal -------------------------------------------------------

    def note(self, event, **more):
        more.update(event=event, t=time.monotonic(), client=self.name)
        os.write(self.journal, (json.dumps(more) + '\n').encode())
        os.fsync(self.journal)

    def step(self, kind, action, refused=frozenset(), **what):
        """Does one thing with its intent and its outcome in the journal."""
        self.number += 1
        number = self.number
        self.note('intent', n=number, kind=kind, **what)
        try:
            result = action()
        except psycopg2.Error as error:
            self.after_error(number, kind, error, refused, what)
        self.note('ok', n=number, kind=kind, result=result, **what)
        return result

    def after_error(self, number, kind, error, refused, what):
        code = error.pgcode
        lost = self.conn is None or self.conn.closed or code is None
        self.note('unknown' if lost else 'failed', n=number, kind=kind,
                  sqlstate=code, error=str(error).strip()[:500], **what)
        if lost or code in INTERRUPTED:
            raise Interrupted() from error
        if code in refused:
            raise Refused() from error
        self.note('violation', what='%s: unexpected %s %s' % (kind, code, str(error).strip()[:500]))
        raise Refused() from error

    # ---- connection ----------------------------------------------------

    def connect(self):
        while self.conn is None or self.conn.closed:
            try:
                self.conn = psycopg2.connect(self.dsn, application_name='chaos client ' + self.name)
                self.conn.autocommit = True
            except psycopg2.OperationalError:
                time.sleep(0.1)

    def sql(self, text, *values):
        with self.conn.cursor() as cursor:
            cursor.execute(text, values)
            return cursor.fetchall() if cursor.description else None

    def one(self, text, *values):
        return self.sql(text, *values)[0][0]

    def begin(self):
        self.sql('BEGIN')
        if self.random.random() < 0.1:
            self.sql('SAVEPOINT s')

    def commit(self):
        """COMMIT; at times the connection is cut once it was sent."""
        timer = None
        if self.random.random() < DROP_SHARE:
            sock = socket.socket(fileno=os.dup(self.conn.fileno()))
            timer = threading.Timer(self.random.random() * 0.002,
                                    lambda: sock.shutdown(socket.SHUT_RDWR))
            timer.start()
        try:
            self.sql('COMMIT')
        finally:
            if timer is not None:
                timer.join()
                sock.close()
                self.conn.close()
        return True

    def recover(self):
        """Whatever the transaction was at, it ends."""
        try:
            if self.conn is not None and not self.conn.closed:
                self.sql('ROLLBACK')
        except psycopg2.Error:
            pass
        try:
            if self.conn is not None and self.conn.closed == 0:
                self.sql('SELECT 1')
        except psycopg2.Error:
            self.conn.close()

    # ---- keys ----------------------------------------------------------

    def key(self):
        """A hot key with its ttl."""
        if self.random.random() < 0.3:
            return 'lasting-%d' % self.random.randrange(LASTING_KEYS), SHORT_TTL_S
        window = int(time.time() / WINDOW_S) - (self.random.random() < 0.2)
        return 'w%d-%d' % (window, self.random.randrange(KEYS)), LONG_TTL_S

    def body(self, key):
        return json.dumps({'key': key})

    def answer(self):
        return {'by': '%s-%d' % (self.name, self.number), 'x': [0, None, 'é', self.random.random()]}

    def work(self, lease):
        """Takes as long as the work outside would."""
        longest = lease * 1.6 if self.slow else lease * 0.3
        time.sleep(self.random.random() * longest)

    # ---- statements of the protocol --------------------------------------

    def claim(self, key, ttl, lease, wait=0):
        """outcome and token; replays are compared by the checker."""
        def action():
            row = self.sql(
                'SELECT outcome, token, attempt, status, response_body::text, expires_at::text'
                ' FROM idem_claim(%s, %s, ttl => %s, lease => %s, wait => %s)',
                key, self.body(key), seconds(ttl), seconds(lease), seconds(wait))
            if len(row) != 1 or row[0][0] not in ('claimed', 'replay', 'in_progress'):
                self.note('violation', what='claim of %s answered %r' % (key, row))
            return row[0]
        return self.step('claim', action, key=key, lease=lease)

    def record_effect(self, key, mode):
        """The effect, in the transaction of the finish and after it."""
        self.sql('INSERT INTO effect (request_id, life, token, status, body, created_at, expires_at, mode, client)'
                 ' SELECT request_id, life, token, status, coalesce(response_body, error)::text, created_at,'
                 ' expires_at, %s, %s FROM transaction_log WHERE scope = %s AND request_id = %s',
                 mode, self.name, '', key)

    def end(self, key, token, mode, final_failure=False):
        """Finishes, records the effect and commits, all in one step."""
        answer = json.dumps(self.answer())
        given = token if mode == 'two' else None

        def action():
            if mode == 'two':
                self.begin()
            if final_failure:
                recorded = self.one('SELECT idem_fail(%s, %s, token => %s, final => true)', key, answer, given)
            else:
                recorded = self.one('SELECT idem_finish(%s, %s, token => %s)', key, answer, given)
            if recorded:
                self.record_effect(key, mode)
            self.commit()
            return recorded
        return self.step('finish', action, REFUSED_END, key=key, token=token, mode=mode,
                         answer=answer, flushed=mode == 'two' or self.flushed)

    # ---- kinds of work ---------------------------------------------------

    def one_transaction(self):
        key, ttl = self.key()
        self.begin()
        self.flushed = self.random.random() < FLUSHED_SHARE
        self.sql('SET LOCAL synchronous_commit = %s', 'on' if self.flushed else 'off')
        row = self.claim(key, ttl, 0.5, self.random.choice((0, 0, 0, 0.3)))
        if row[0] != 'claimed':
            self.sql('ROLLBACK')
            return
        self.work(0.1)
        if self.random.random() < 0.1:
            self.sql('ROLLBACK')
            return
        self.end(key, row[1], 'one', self.random.random() < 0.1)

    def claim_committed(self):
        """A claim in a transaction of its own, with its acknowledgement."""
        key, ttl = self.key()
        lease = self.random.choice(LEASES_S)
        if self.random.random() < 0.5:
            row = self.claim(key, ttl, lease, self.random.choice((0, 0, 0.3)))
        else:
            self.begin()
            row = self.claim(key, ttl, lease)
            self.step('commit', self.commit, key=key, token=row[1])
        if row[0] != 'claimed':
            return None
        self.note('held', key=key, token=row[1], lease=lease)
        return key, row[1], lease

    def two_transactions(self):
        held = self.claim_committed()
        if held is None:
            return
        key, token, lease = held
        self.work(lease)
        dice = self.random.random()
        if dice < 0.1:
            self.step('release', lambda: self.one('SELECT idem_release(%s, %s)', key, token),
                      REFUSED_END, key=key, token=token)
            return
        if dice < 0.2:
            self.step('fail', lambda: self.one('SELECT idem_fail(%s, %s, token => %s, retry_after => %s)',
                                               key, '"again"', token, '50 ms'),
                      REFUSED_END, key=key, token=token)
            return
        if dice < 0.25:
            return                      # forgets it
        if dice < 0.5:
            self.step('extend', lambda: str(self.one('SELECT idem_extend(%s, token => %s)', key, token)),
                      REFUSED_END, key=key, token=token)
            self.work(lease)
        self.end(key, token, 'two', self.random.random() < 0.1)
        if self.random.random() < 0.2:  # the answer was lost, says the client
            self.step('again', lambda: self.one('SELECT idem_finish(%s, %s, token => %s)', key, '"other"', token),
                      REFUSED_END, key=key, token=token)

    def steps(self):
        held = self.claim_committed()
        if held is None:
            return
        key, token, lease = held
        for name in ('a', 'b', 'c'):
            def action(name=name):
                self.begin()
                first = self.one('SELECT idem_checkpoint(%s, %s, %s, %s)', key, name, '1', token)
                if first:
                    self.sql('INSERT INTO step_effect SELECT request_id, life, %s, %s FROM transaction_log'
                             ' WHERE scope = %s AND request_id = %s', name, token, '', key)
                self.commit()
                return first
            self.step('checkpoint', action, REFUSED_END, key=key, token=token, step=name)
            self.work(lease / 2)
        self.end(key, token, 'two')

    def run(self):
        key, ttl = self.key()
        def action():
            return self.sql('SELECT outcome, response_body::text, expires_at::text'
                            ' FROM idem_run(%s, %s, %s, ttl => %s)',
                            key, self.body(key), 'chaos_handler', seconds(ttl))[0]
        self.step('run', action, REFUSED_RUN, key=key)

    def batch(self):
        keys = list({self.key()[0] for _ in range(4)})
        self.random.shuffle(keys)
        self.work_in_one(keys)

    def rush(self):
        """The same new keys as others at the same moment, neck and neck."""
        moment = int(time.time() / RUSH_S) + 1
        time.sleep(moment * RUSH_S - time.time())
        self.work_in_one(['rush%d-%d' % (moment, i) for i in range(RUSH_KEYS)])

    def work_in_one(self, keys):
        self.begin()
        def claim():
            return self.sql('SELECT request_id, outcome, token, response_body::text, expires_at::text'
                            ' FROM idem_claim_many(%s, ttl => %s) ORDER BY ordinality',
                            keys, seconds(SHORT_TTL_S))
        rows = self.step('claim_many', claim, keys=keys)
        mine = [row for row in rows if row[1] == 'claimed']
        if not mine:
            self.sql('ROLLBACK')
            return
        answers = [json.dumps(self.answer()) for _ in mine]
        def finish():
            self.sql('SELECT * FROM idem_finish_many(%s, %s::jsonb[])', [row[0] for row in mine], answers)
            for row in mine:
                self.record_effect(row[0], 'one')
            self.commit()
            return True
        self.step('finish_many', finish, REFUSED_END, answers=answers, flushed=False,
                  tokens=[[row[0], row[2]] for row in mine])

    def once(self):
        message = 'm%d-%d' % (int(time.time() / WINDOW_S), self.random.randrange(KEYS))
        def action():
            self.begin()
            first = self.one('SELECT idem_once(%s)', message)
            if first:
                self.sql('INSERT INTO message_effect VALUES (%s, %s)', message, self.name)
            self.work(0.1)
            self.commit()
            return first
        self.step('once', action, message=message)

    def transition(self):
        order = str(self.random.randrange(1, 7))
        to_state = self.random.choice(('created', 'paid', 'shipped', 'cancelled'))
        def action():
            self.begin()
            version = None
            if self.random.random() < 0.5:
                version = self.one('SELECT version FROM orders WHERE id = %s', order)
            row = self.sql('SELECT outcome, state, version FROM idem_transition(%s, %s, %s, expected_version => %s)',
                           'orders', order, to_state, version)[0]
            self.commit()
            return row
        self.step('transition', action, order=order, to=to_state)

    def loop(self):
        kinds = ([self.one_transaction] * 4 + [self.two_transactions] * 7 + [self.steps] * 2
                 + [self.run] * 3 + [self.batch] * 2 + [self.rush] * 3 + [self.once] * 2 + [self.transition] * 2)
        self.note('start', slow=self.slow)
        while True:
            self.connect()
            self.flushed = False
            try:
                self.random.choice(kinds)()
            except (Refused, Interrupted):
                pass
            except psycopg2.Error as error:
                # A statement beside the protocol's: only faults may end it.
                if error.pgcode not in INTERRUPTED and error.pgcode is not None:
                    self.note('violation', what='unexpected %s %s' % (error.pgcode, str(error).strip()[:500]))
            self.recover()
            time.sleep(self.random.random() * PAUSE_S)


if __name__ == '__main__':
    Client(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4]).loop()
