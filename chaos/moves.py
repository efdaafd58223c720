"""The great moves: a standby is built and promoted; a dump becomes the new primary.

While there is a standby, it is a synchronous one, and synchronous_commit is on:
what a client was told is there when it is promoted.  All but what was finished in
one transaction with synchronous_commit = off, which may be lost as in a crash.
"""

import os
import signal
import time

APPLIED_S = 0.3             # after which all processes have seen a signal
FOLLOWS_WITHIN_S = 60


class Moves:
    def __init__(self, site, clients, pooler, chaos):
        self.site = site
        self.clients = clients
        self.pooler = pooler
        self.chaos = chaos
        self.standby = None
        self.promised_at = None     # since when commands wait for the standby

    # ---- standby and promotion -------------------------------------------------

    def build_standby(self):
        primary = self.site.primary
        standby = self.site.add()
        self.site.command('pg_basebackup', '-D', standby.data, '-d', primary.dsn, '-X', 'stream', '-c', 'fast',
                          '--no-sync')
        standby.configure("primary_conninfo = 'host=%s user=postgres application_name=standby'\n" % primary.directory)
        standby.be_here()
        with open(os.path.join(standby.data, 'standby.signal'), 'w', encoding='ascii'):
            pass
        standby.start()
        self.standby, self.promised_at = standby, None
        primary.set('synchronous_commit', 'on')
        primary.set('synchronous_standby_names', 'standby')
        primary.reload()
        if not primary.wait_for("SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'",
                                seconds=FOLLOWS_WITHIN_S):
            raise RuntimeError('the standby does not follow, see ' + standby.log)
        time.sleep(APPLIED_S)
        self.promised_at = primary.sql('SELECT clock_timestamp()')[0][0]

    def everything_is_there(self):
        """
        True once the standby has all that clients were told.  Each command that
        began before the settings were in force has ended, and what is written by
        now has arrived; what others commit from now on waits for the standby.
        """
        primary = self.site.primary
        if not primary.wait_for("SELECT count(*) = 0 FROM pg_stat_activity WHERE query_start < %s"
                                " AND state = 'active' AND backend_type = 'client backend'", self.promised_at,
                                seconds=FOLLOWS_WITHIN_S):
            return False
        lsn = primary.sql("SELECT pg_logical_emit_message(true, 'chaos', 'all of it')")[0][0]
        return primary.wait_for('SELECT bool_or(flush_lsn > %s::pg_lsn) FROM pg_stat_replication', lsn,
                                seconds=FOLLOWS_WITHIN_S)

    def promote(self):
        """The primary is dead, and its standby takes over."""
        if not self.standby or not self.promised_at:
            self.drop_standby()
            return
        if not self.everything_is_there():
            raise RuntimeError('the standby is behind, see ' + self.standby.log)
        old, new = self.site.primary, self.standby
        old.kill_all()
        if new.pg_ctl('promote') != 0:
            raise RuntimeError('the standby is not promoted, see ' + new.log)
        self.standby = None
        self.site.lead(new)
        old.remove()

    def drop_standby(self):
        if not self.standby:
            return
        self.site.primary.sql('ALTER SYSTEM RESET synchronous_standby_names')
        self.site.primary.sql('ALTER SYSTEM RESET synchronous_commit')
        self.site.primary.reload()
        self.standby.remove()
        self.standby = None

    # ---- dump and restore --------------------------------------------------------

    def dump_and_restore(self):
        """All clients are held, and find the restored server when they go on."""
        self.chaos.undo(everything=True)
        self.drop_standby()
        if self.pooler:
            self.pooler.stop()
        self.clients.signal(signal.SIGSTOP)
        try:
            self.be_quiet()
            self.chaos.decide_all()
            self.copy()
        finally:
            self.clients.signal(signal.SIGCONT)
            if self.pooler:
                self.pooler.start()

    def be_quiet(self):
        """What stopped clients have begun ends, one way or the other."""
        others = ("FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
        primary = self.site.primary
        primary.wait_for('SELECT count(pg_terminate_backend(pid)) = 0 ' + others)
        if not primary.wait_for('SELECT count(*) = 0 ' + others):
            raise RuntimeError('backends of stopped clients do not end')

    def copy(self):
        old, new = self.site.primary, self.site.add()
        dump = os.path.join(self.site.directory, 'dump')
        self.site.command('pg_dump', '-Fc', '-f', dump, '-d', old.dsn)
        new.create()
        new.start()
        self.site.command('pg_restore', '--exit-on-error', '-d', new.dsn, dump)
        new.use_library()
        new.sql('CHECKPOINT')           # nothing of that may be lost in a crash
        self.site.lead(new)
        old.remove()
        os.remove(dump)
