"""Faults by chance, and the great moves at their times."""

import os
import random
import signal
import time

import psycopg2
from client import LASTING_KEYS
from memory import Peaks
from moves import Moves

PAUSE_S = (0.7, 2.0)        # between two faults
STOPPED_S = 1.5             # longer than most leases of clients
PREPARED_S = 2.0
SNAPSHOT_S = 3.0
CYCLE_S = 120               # of the great moves
# Parts of a cycle at which they come.
STANDBY_AT, PROMOTION_AT, RESTORE_AT = 0.15, 0.4, 0.7

TABLES = ('transaction_log', 'idempotency_call', 'idempotency_checkpoint', 'idempotency_inbox')
USUAL = (['kill_client', 'terminate_backend', 'cancel_backend', 'kill_backend', 'stop_client'] * 2
         + ['kill_server', 'immediate_shutdown'] * 2
         + ['fast_shutdown', 'kill_worker', 'reindex', 'vacuum_full', 'reload', 'snapshot', 'prepare',
            'purge', 'vacuum', 'restart_pooler', 'restart_provider'])


class Chaos:
    """Each fault is a method whose name says what it does."""

    def __init__(self, site, clients, pooler, provider, options):
        self.site = site
        self.clients = clients
        self.pooler = pooler
        self.provider = provider
        self.faults = [fault for fault in options.faults or USUAL
                       if fault != 'restart_pooler' or pooler]
        self.pause_s = options.pause_s or PAUSE_S
        self.random = random.Random(options.seed)
        self.moves = Moves(site, clients, pooler, self) if options.moves else None
        self.peaks = Peaks()
        self.later = []         # (time, function): what has to be undone
        self.count = {}
        self.died = []          # what clients said that should not have ended

    @property
    def server(self):
        return self.site.primary

    def at(self, delay, action):
        self.later.append((time.monotonic() + delay, action))

    def undo(self, everything=False):
        now = time.monotonic()
        due = [item for item in self.later if everything or item[0] <= now]
        self.later = [item for item in self.later if item not in due]
        for _, action in due:
            self.tolerate(action)

    # ---- clients and what is around ------------------------------------------

    def kill_client(self):
        self.clients.kill(self.random.choice(sorted(self.clients.running)))
        self.clients.add()

    def stop_client(self):
        process = self.clients.running[self.random.choice(sorted(self.clients.running))]
        process.send_signal(signal.SIGSTOP)
        self.at(STOPPED_S, lambda: process.send_signal(signal.SIGCONT))

    def restart_pooler(self):
        self.pooler.stop(self.random.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)))
        self.pooler.start()

    def restart_provider(self):
        self.provider.kill()
        self.at(self.random.random(), self.provider.start)

    # ---- backends and workers --------------------------------------------------

    def terminate_backend(self):
        self.server.sql('SELECT pg_terminate_backend(%s)', self.server.backend(self.random.choice))

    def cancel_backend(self):
        self.server.sql('SELECT pg_cancel_backend(%s)', self.server.backend(self.random.choice))

    def kill_backend(self):
        pid = self.server.backend(self.random.choice)
        if pid:
            os.kill(pid, signal.SIGKILL)

    def kill_worker(self):
        pid = self.server.backend(self.random.choice, "backend_type LIKE 'idempotency%'")
        if pid:
            os.kill(pid, self.random.choice((signal.SIGTERM, signal.SIGINT, signal.SIGKILL)))

    # ---- the server ----------------------------------------------------------

    def kill_server(self):
        self.server.kill_all()
        self.server.start()

    def immediate_shutdown(self):
        self.server.stop('immediate')
        self.server.start()

    def fast_shutdown(self):
        self.server.stop('fast')
        self.server.start()

    # ---- commands of administrators ------------------------------------------

    def reindex(self):
        # A stopped REINDEX CONCURRENTLY leaves invalid indexes behind.
        table = self.random.choice(TABLES)
        for (index,) in self.server.sql('SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class t'
                                        ' ON indrelid IN (t.oid, t.reltoastrelid)'
                                        ' WHERE NOT indisvalid AND t.oid = %s::regclass', table):
            self.server.sql('DROP INDEX ' + index)
        self.server.sql('REINDEX TABLE CONCURRENTLY ' + table)

    def vacuum_full(self):
        self.server.sql('VACUUM FULL ' + self.random.choice(TABLES))

    def vacuum(self):
        self.server.sql('VACUUM ' + ', '.join(TABLES))

    def purge(self):
        self.server.sql('SELECT idem_purge()')

    def reload(self):
        name, values = self.random.choice((
            ('idempotency.purge_interval', ('0', '1s', '10s')),
            ('idempotency.purge_batch_size', ('1', '10', '1000')),
            ('idempotency.track', ('on', 'off')),
            ('idempotency.store_request', ('on', 'off')),
            ('synchronous_commit', ('off', 'off', 'on'))))
        if name == 'synchronous_commit' and self.moves and self.moves.standby:
            return              # what was promised must be on the standby
        self.server.set(name, self.random.choice(values))
        self.server.reload()

    def snapshot(self):
        conn = self.server.connect()
        with conn.cursor() as cursor:
            cursor.execute('BEGIN ISOLATION LEVEL REPEATABLE READ')
            cursor.execute('SELECT count(*) FROM transaction_log')
        self.at(SNAPSHOT_S, conn.close)

    def prepare(self):
        """Claims and finishes a hot key in a transaction that stays prepared."""
        name = 'p%d' % self.random.randrange(10 ** 9)
        conn = self.server.connect()
        try:
            with conn.cursor() as cursor:
                cursor.execute('BEGIN')
                key = self.claim_one(cursor)
                if key is None:
                    return
                cursor.execute('SELECT idem_finish(%s, %s)', (key, '{"run": "%s"}' % name))
                cursor.execute('''INSERT INTO effect SELECT request_id, life, token, status, response_body::text,
                    created_at, expires_at, 'one', 'prepared' FROM transaction_log
                    WHERE scope = '' AND request_id = %s''', (key,))
                self.at(PREPARED_S, lambda: self.decide(name))
                cursor.execute("PREPARE TRANSACTION '%s'" % name)
        finally:
            conn.close()

    def claim_one(self, cursor):
        """A key that expires soon, if one of them is free."""
        for number in self.random.sample(range(LASTING_KEYS), LASTING_KEYS):
            key = 'lasting-%d' % number
            cursor.execute("SELECT outcome FROM idem_claim(%s, %s, ttl => '2s')", (key, '{"key": "%s"}' % key))
            if cursor.fetchone()[0] == 'claimed':
                return key
        return None

    def decide(self, name):
        if self.server.sql('SELECT 1 FROM pg_prepared_xacts WHERE gid = %s', name):
            self.server.sql("%s PREPARED '%s'" % (self.random.choice(('COMMIT', 'ROLLBACK')), name))

    # ---- all of them -----------------------------------------------------------

    def schedule(self, began, until):
        """(time, move), in their order."""
        plan = []
        cycle = min(until - began, CYCLE_S)
        while self.moves and began + cycle <= until:
            plan += [(began + cycle * STANDBY_AT, self.moves.build_standby),
                     (began + cycle * PROMOTION_AT, self.moves.promote),
                     (began + cycle * RESTORE_AT, self.moves.dump_and_restore)]
            began += cycle
        return plan

    def do(self, name, action):
        self.count[name] = self.count.get(name, 0) + 1
        self.tolerate(action)

    def tolerate(self, action):
        try:
            action()
        except psycopg2.Error as error:
            # The server is coming up again, or a lock was in the way.
            if error.pgcode and error.pgcode.startswith('XX'):
                raise

    def run(self, until):
        plan = self.schedule(time.monotonic(), until)
        while time.monotonic() < until:
            time.sleep(self.random.uniform(*self.pause_s))
            if plan and plan[0][0] <= time.monotonic():
                move = plan.pop(0)[1]
                self.do(move.__name__, move)
            elif self.faults:
                fault = self.random.choice(self.faults)
                self.do(fault, getattr(self, fault))
            self.undo()
            self.look_around()

    def look_around(self):
        self.peaks.look(self.server)
        self.clients.replace_crashed()
        self.died = self.died or self.clients.died()

    def decide_all(self):
        for (gid,) in self.server.sql('SELECT gid FROM pg_prepared_xacts'):
            self.decide(gid)

    def end(self):
        """No more faults: all is as it should be."""
        self.undo(everything=True)
        if self.moves:
            self.moves.drop_standby()
        self.decide_all()
        self.server.sql('ALTER SYSTEM RESET ALL')
        self.server.reload()
