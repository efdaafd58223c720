"""What stands around the server: clients, a pooler, the provider of outside calls."""

import os
import shutil
import signal
import subprocess
import sys
import time

import guard
import psycopg2
import stub

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENTS = 8
POOLED_EVERY = 3            # every third client goes through the pooler
POOL_SIZE = 2
UP_WITHIN_S = 30
DOWN_WITHIN_S = 3           # a pooler may wait for its clients, which may be stopped


def start(arguments, output):
    with open(output, 'ab') as log:
        return subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                preexec_fn=guard.die_with_parent)


class Provider:
    """The process that charges; see stub.py."""

    def __init__(self, directory, seed):
        self.directory = directory
        self.seed = seed
        self.process = None
        self.start()

    def start(self):
        """There is only ever one, or there would be two sets of books."""
        if self.process is not None:
            self.kill()
        self.seed += 1
        self.process = start([sys.executable, HERE + '/stub.py', self.directory, str(self.seed)],
                             os.path.join(self.directory, 'stub.err'))
        until = time.monotonic() + UP_WITHIN_S
        while stub.ask(self.directory, {'op': 'hello'}) is not stub.HELLO:
            if time.monotonic() > until or self.process.poll() is not None:
                raise RuntimeError('the provider does not start, see stub.err')
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def calm(self):
        """From now on it loses nothing."""
        stub.ask(self.directory, {'op': 'calm'})


class Pooler:
    """pgbouncer in transaction mode, with fewer servers than clients."""

    PROGRAM = shutil.which('pgbouncer', path=os.environ.get('PATH', '') + ':/usr/sbin:/usr/local/sbin')

    def __init__(self, site):
        self.directory = os.path.join(site.directory, 'pooler')
        self.dsn = 'host=%s dbname=postgres user=postgres' % self.directory
        self.ini = os.path.join(self.directory, 'ini')
        self.process = None
        os.mkdir(self.directory)
        with open(self.ini, 'w', encoding='ascii') as ini:
            ini.write('\n'.join((
                '[databases]', '* = host=%s user=postgres' % site.link,
                '[pgbouncer]', 'listen_addr =', 'listen_port = 5432', 'unix_socket_dir = ' + self.directory,
                'auth_type = any', 'pool_mode = transaction', 'default_pool_size = %d' % POOL_SIZE,
                'server_login_retry = 0.2', 'query_wait_timeout = 5', 'server_connect_timeout = 5',
                'ignore_startup_parameters = extra_float_digits,options', '')))
        self.start()

    def start(self):
        self.process = start([self.PROGRAM, self.ini], os.path.join(self.directory, 'log'))

    def stop(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        try:
            self.process.wait(DOWN_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def is_up(self):
        until = time.monotonic() + UP_WITHIN_S
        while time.monotonic() < until:
            try:
                psycopg2.connect(self.dsn, connect_timeout=5).close()
                return True
            except psycopg2.OperationalError:
                time.sleep(0.1)
        return False


class Clients:
    def __init__(self, site, pooler, seeds, kinds):
        self.site = site
        self.pooler = pooler
        self.seeds = seeds
        self.kinds = kinds
        self.running = {}
        self.born = 0
        while len(self.running) < CLIENTS:
            self.add()

    def arguments(self, name, kinds):
        pooled = self.pooler is not None and self.born % POOLED_EVERY == 0
        return [sys.executable, HERE + '/client.py', name, str(self.seeds.random()), self.site.directory,
                self.pooler.dsn if pooled else self.site.dsn, kinds]

    def err(self, name):
        return os.path.join(self.site.directory, name + '.err')

    def add(self):
        self.born += 1
        name = 'c%d' % self.born
        self.running[name] = start(self.arguments(name, self.kinds), self.err(name))

    def kill(self, name):
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def kill_all(self):
        for name in list(self.running):
            self.kill(name)

    def signal(self, number):
        for process in self.running.values():
            process.send_signal(number)

    def replace_crashed(self):
        """Clients kill themselves at the worst moments: others come."""
        for name, process in list(self.running.items()):
            if process.poll() == -signal.SIGKILL:
                del self.running[name]
                self.add()

    def died(self):
        """What clients said that ended by themselves, which none should."""
        return [name + ' ended: ' + self.words(name) for name, process in self.running.items()
                if process.poll() not in (None, -signal.SIGKILL)]

    def words(self, name):
        with open(self.err(name), encoding='utf-8', errors='replace') as err:
            return err.read()[-2000:]

    def finish_calls(self, seconds):
        """A last client settles and carries out all that waits for an outside call."""
        self.born = 1                   # not through the pooler
        process = start(self.arguments('judge', 'finish_calls'), self.err('judge'))
        try:
            return process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            process.kill()
            process.wait()
