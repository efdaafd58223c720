#!/usr/bin/python3
"""A client of the chaos run: works on hot keys until it is killed.

    client.py NAME SEED DIRECTORY DSN KINDS

KINDS is "all", kinds of work with commas between (see KINDS), or "finish_calls":
that one carries out what waits for an outside call, and ends.

The journal, DIRECTORY/NAME.journal, has a line before each step (its intent)
and one after (ok, failed or unknown), each on disk before the client goes on.
"""

import json
import os
import random
import signal
import socket
import sys
import threading
import time

import psycopg2
from psycopg2.extensions import TRANSACTION_STATUS_IDLE

WINDOW_S = 1            # hot keys change that often
PAUSE_S = 0.02          # between two pieces of work, at most
KEYS = 6                # so many at a time
LASTING_KEYS = 3        # these expire soon and come again
SHORT_TTL_S = 1
LONG_TTL_S = 600
SLOW_SHARE = 0.5        # of clients, whose work takes longer than their leases
DROP_SHARE = 0.03       # of commits, whose connection is cut
CRASH_SHARE = 0.02      # of moments between record, send and answer

# What an operation may be refused with, beside the ends of connections.
REFUSED_END = {'ID001', 'ID002', 'ID003', 'ID009'}
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
        self.calm = False           # nothing is cut, nobody crashes
        self.flushed = False        # is the present transaction's commit?
        self.directory = directory
        self.dsn = dsn
        self.number = 0
        self.conn = None
        self.journal = os.open(os.path.join(directory, name + '.journal'),
                               os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def chance(self, share):
        return not self.calm and self.random.random() < share

    # ---- journal -------------------------------------------------------

    def note(self, event, **more):
        more.update(event=event, t=time.monotonic(), client=self.name)
        os.write(self.journal, (json.dumps(more) + '\n').encode())
        os.fsync(self.journal)

    def step(self, kind, action, refused=frozenset(), **what):
        """Does one thing with its intent and its outcome in the journal."""
        self.number += 1
        number = self.number
        self.conn.notices.clear()
        self.note('intent', n=number, kind=kind, **what)
        try:
            result = action()
        except psycopg2.Error as error:
            self.after_error(number, kind, error, refused, what)
        if self.was_left_waiting():
            self.note('unknown', n=number, kind=kind, error='not replicated', **what)
            raise Interrupted()
        self.note('ok', n=number, kind=kind, result=result, **what)
        return result

    def after_error(self, number, kind, error, refused, what):
        code = error.pgcode
        # 08P01 is how a pooler says that it has lost the server.
        lost = self.conn is None or self.conn.closed or code is None or code.startswith('08')
        self.note('unknown' if lost else 'failed', n=number, kind=kind,
                  sqlstate=code, error=str(error).strip()[:500], **what)
        if lost or code in INTERRUPTED:
            raise Interrupted() from error
        if code in refused:
            raise Refused() from error
        self.note('violation', what='%s: unexpected %s %s' % (kind, code, str(error).strip()[:500]))
        raise Refused() from error

    def was_left_waiting(self):
        """Did a commit that should be on a standby give up waiting for that?"""
        if not self.conn.notices:
            return False
        found = any('synchronous replication' in notice for notice in self.conn.notices)
        self.conn.notices.clear()
        return found

    def crash_at_times(self, where):
        if self.chance(CRASH_SHARE):
            self.note('crash', where=where)
            os.kill(os.getpid(), signal.SIGKILL)

    # ---- connection ----------------------------------------------------

    def connect(self):
        while self.conn is None or self.conn.closed:
            try:
                self.conn = psycopg2.connect(self.dsn, application_name='chaos client ' + self.name,
                                             connect_timeout=5)
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
        if self.chance(DROP_SHARE):
            sock = socket.socket(fileno=os.dup(self.conn.fileno()))
            timer = threading.Timer(self.random.random() * 0.002, cut, (sock,))
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
        if self.conn is None or self.conn.closed:
            return
        try:
            if self.conn.info.transaction_status != TRANSACTION_STATUS_IDLE:
                self.sql('ROLLBACK')
        except psycopg2.Error:
            self.conn.close()

    # ---- keys ----------------------------------------------------------

    def key(self, prefix=''):
        """A hot key with its ttl."""
        if self.random.random() < 0.3:
            return '%slasting-%d' % (prefix, self.random.randrange(LASTING_KEYS)), SHORT_TTL_S
        window = int(time.time() / WINDOW_S) - (self.random.random() < 0.2)
        return '%sw%d-%d' % (prefix, window, self.random.randrange(KEYS)), LONG_TTL_S

    def body(self, key):
        return json.dumps({'key': key})

    def answer(self):
        return {'by': '%s-%d' % (self.name, self.number), 'x': [0, None, 'é', self.random.random()]}

    def work(self, lease):
        """Takes as long as the work outside would."""
        if not self.calm:
            longest = lease * 1.6 if self.slow else lease * 0.3
            time.sleep(self.random.random() * longest)

    # ---- statements of the protocol --------------------------------------

    def claim(self, key, ttl, lease, wait=0, scope=''):
        """outcome and token; replays are compared by the checker."""
        def action():
            row = self.sql(
                'SELECT outcome, token, attempt, status, response_body::text, expires_at::text'
                ' FROM idem_claim(%s, %s, ttl => %s, lease => %s, wait => %s, scope => %s)',
                key, self.body(key), seconds(ttl), seconds(lease), seconds(wait), scope)
            foreseen = ('claimed', 'replay', 'in_progress') + (('unknown',) if scope else ())
            if len(row) != 1 or row[0][0] not in foreseen:
                self.note('violation', what='claim of %s answered %r' % (key, row))
            return row[0]
        return self.step('claim', action, key=key, lease=lease)

    def record_effect(self, key, mode, scope=''):
        """The effect, in the transaction of the finish and after it."""
        self.sql('INSERT INTO effect (request_id, life, token, status, body, created_at, expires_at, mode, client)'
                 ' SELECT request_id, life, token, status, coalesce(response_body, error)::text, created_at,'
                 ' expires_at, %s, %s FROM transaction_log WHERE scope = %s AND request_id = %s',
                 mode, self.name, scope, key)

    def end(self, key, token, mode, final_failure=False, scope='', answer=None):
        """Finishes, records the effect and commits, all in one step."""
        answer = answer or json.dumps(self.answer())
        given = token if mode == 'two' else None

        def action():
            if mode == 'two':
                self.begin()
            if final_failure:
                recorded = self.one('SELECT idem_fail(%s, %s, token => %s, final => true, scope => %s)',
                                    key, answer, given, scope)
            else:
                recorded = self.one('SELECT idem_finish(%s, %s, token => %s, scope => %s)',
                                    key, answer, given, scope)
            if recorded:
                self.record_effect(key, mode, scope)
            self.commit()
            return recorded
        return self.step('finish', action, REFUSED_END, key=key, token=token, mode=mode,
                         answer=answer, flushed=mode == 'two' or self.flushed)

    # ---- life --------------------------------------------------------------

    def once(self, kind):
        """One piece of work, whatever becomes of it; what it returns, or None."""
        self.connect()
        self.flushed = False
        result = None
        try:
            result = kind(self)
        except (Refused, Interrupted):
            pass
        except psycopg2.Error as error:
            # A statement beside the protocol's: only faults may end it.
            if error.pgcode is not None and error.pgcode not in INTERRUPTED and not error.pgcode.startswith('08'):
                self.note('violation', what='unexpected %s %s' % (error.pgcode, str(error).strip()[:500]))
        self.recover()
        return result

    def loop(self, kinds):
        self.note('start', slow=self.slow)
        while True:
            self.once(self.random.choice(kinds))
            time.sleep(self.random.random() * PAUSE_S)


def cut(sock):
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass                        # the server was faster


def main(name, seed, directory, dsn, kinds):
    import calls            # they use this module
    import work
    client = Client(name, seed, directory, dsn)
    if kinds == 'finish_calls':
        return calls.finish_calls(client)
    often = dict(work.KINDS, **calls.KINDS)
    names = list(often) if kinds == 'all' else kinds.split(',')
    client.loop([often[kind][0] for kind in names for _ in range(often[kind][1])])
    return 0


if __name__ == '__main__':
    sys.dont_write_bytecode = True
    sys.modules['client'] = sys.modules['__main__']
    sys.exit(main(*sys.argv[1:]))
