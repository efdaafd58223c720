"""Throwaway servers, the ways to hurt them, and which of them is the primary."""

import os
import shutil
import signal
import subprocess
import time

import guard
import psycopg2

HERE = os.path.dirname(os.path.abspath(__file__))
START_TIMEOUT_S = 60
COMMAND_TIMEOUT_S = 120     # of pg_dump and the like
# The supervisor may not wait for a lock of a client that it has stopped itself,
# or of a transaction that it has prepared.
SUPERVISED = '-c lock_timeout=1s -c statement_timeout=20s'

SETTINGS = '''
listen_addresses = ''
fsync = off
shared_preload_libraries = 'idempotency'
idempotency.purge_interval = 1s
max_prepared_transactions = 10
synchronous_commit = off
wal_writer_delay = 10s
wal_keep_size = 256MB
wal_retrieve_retry_interval = 200ms
checkpoint_timeout = 1h
autovacuum_naptime = 1s
deadlock_timeout = 200ms
log_line_prefix = '%m [%p] %e %a '
'''


class Site:
    """
    A directory with the servers of one run.  Clients connect through a link to
    the directory of the socket of whichever is the primary.
    """

    def __init__(self, bindir, directory, template, library=None):
        self.bindir = bindir
        self.directory = directory
        self.template = template        # a data directory to copy
        self.library = library          # directory of a library to use instead
        self.link = os.path.join(directory, 'primary')
        self.dsn = 'host=%s dbname=postgres user=postgres' % self.link
        self.servers = []
        self.primary = None

    def add(self):
        server = Server(self, 's%d' % (len(self.servers) + 1))
        self.servers.append(server)
        return server

    def found(self):
        """The first server, with what clients work on."""
        server = self.add()
        server.create()
        with open(HERE + '/schema.sql', encoding='utf-8') as schema:
            create, rest = schema.read().split(';\n', 1)
        server.start()
        server.sql(create)
        server.use_library()
        server.sql(rest)
        server.sql('CHECKPOINT')        # nothing of that may be lost in a crash
        self.lead(server)

    def lead(self, server):
        """From now on, clients find this one."""
        os.symlink(server.directory, self.link + '.new')
        os.replace(self.link + '.new', self.link)
        self.primary = server

    def command(self, program, *arguments):
        """Runs a program of the server; RuntimeError where it fails."""
        done = subprocess.run([os.path.join(self.bindir, program), *arguments], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=COMMAND_TIMEOUT_S)
        if done.returncode != 0:
            raise RuntimeError('%s failed: %s' % (program, done.stdout[-2000:]))


def make_template(bindir, directory):
    subprocess.run([bindir + '/initdb', '-A', 'trust', '-U', 'postgres', '-E', 'UTF8', '--locale=C.UTF-8',
                    '--no-sync', '-D', directory], check=True, stdout=subprocess.DEVNULL,
                   timeout=COMMAND_TIMEOUT_S)


class Server:
    def __init__(self, site, name):
        self.site = site
        self.directory = os.path.join(site.directory, name)
        self.data = os.path.join(self.directory, 'data')
        self.log = os.path.join(self.directory, 'log')
        self.dsn = 'host=%s dbname=postgres user=postgres' % self.directory
        os.mkdir(self.directory)

    def create(self):
        shutil.copytree(self.site.template, self.data, symlinks=True)
        self.configure(SETTINGS)
        self.be_here()

    def be_here(self):
        self.configure("unix_socket_directories = '%s'\n" % self.directory)

    def use_library(self):
        """
        The extension comes from where it is installed; what its functions call
        is another library where there is one, in all processes.
        """
        if self.site.library:
            self.sql("UPDATE pg_proc SET probin = 'idempotency' WHERE probin = '$libdir/idempotency'")
            self.configure("dynamic_library_path = '%s:$libdir'\n" % self.site.library)
            self.stop('fast')
            self.start()

    def configure(self, settings):
        with open(self.data + '/postgresql.conf', 'a', encoding='ascii') as conf:
            conf.write(settings)

    def set(self, name, value):
        self.sql("ALTER SYSTEM SET %s = '%s'" % (name, value))

    def reload(self):
        self.sql('SELECT pg_reload_conf()')

    # ---- questions -------------------------------------------------------

    def connect(self):
        until = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                conn = psycopg2.connect(self.dsn, application_name='chaos supervisor', options=SUPERVISED,
                                        connect_timeout=10)
                conn.autocommit = True
                return conn
            except psycopg2.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def sql(self, text, *values):
        conn = self.connect()
        try:
            with conn.cursor() as cursor:
                cursor.execute(text, values or None)
                return cursor.fetchall() if cursor.description else []
        finally:
            conn.close()

    def wait_for(self, text, *values, seconds=20):
        """Until the query is true; False where it does not become so."""
        until = time.monotonic() + seconds
        while True:
            try:
                if self.sql(text, *values)[0][0]:
                    return True
            except psycopg2.Error:
                pass
            if time.monotonic() > until:
                return False
            time.sleep(0.05)

    def backend(self, choose, kind="application_name LIKE 'chaos client%'"):
        found = self.sql('SELECT pid FROM pg_stat_activity WHERE ' + kind)
        return choose(found)[0] if found else None

    # ---- coming and going --------------------------------------------------

    def pg_ctl(self, *arguments):
        return subprocess.run([self.site.bindir + '/pg_ctl', '-D', self.data, '-l', self.log, '-w', *arguments],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=2 * START_TIMEOUT_S).returncode

    def start(self):
        until = time.monotonic() + START_TIMEOUT_S
        while self.pg_ctl('start') != 0:
            if time.monotonic() > until:
                raise RuntimeError('the server does not start, see ' + self.log)
            time.sleep(0.2)

    def stop(self, mode):
        self.pg_ctl('stop', '-m', mode)

    def postmaster(self):
        with open(self.data + '/postmaster.pid', encoding='ascii') as pid_file:
            return int(pid_file.readline())

    def kill_all(self):
        """kill -9 of the postmaster with its children, as a power cut does."""
        postmaster = self.postmaster()
        guard.send(postmaster, signal.SIGSTOP)      # it must not see them die
        pids = [postmaster] + guard.children_of(postmaster)
        for pid in pids:
            guard.send(pid, signal.SIGKILL)
        until = time.monotonic() + START_TIMEOUT_S
        while any(guard.is_alive(pid) for pid in pids) and time.monotonic() < until:
            time.sleep(0.02)

    def remove(self):
        """It is not needed any more; its log is."""
        self.stop('immediate')
        shutil.rmtree(self.data, ignore_errors=True)
