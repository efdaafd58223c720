"""One run: a server, its clients, the faults, and what is found afterwards."""

import faulthandler
import glob
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import guard
import memory
from faults import Chaos
from server import Site
from services import Clients, Pooler, Provider

HERE = os.path.dirname(os.path.abspath(__file__))
CALM_S = (4, 60)            # at least, at most; else a share of the run
CALM_SHARE = 0.05
FINISH_CALLS_S = 90
CHECK_S = 300               # and a share of the run, which has written that much
CHECK_SHARE = 0.3
QUIET_S = 180               # for all else that comes before and after the faults


def say(*what):
    print(*what, flush=True)


def log_is_clean(site):
    """What no fault of ours excuses; kill -9 is one of ours."""
    bad = re.compile(r'PANIC|TRAP|terminated by signal|exited with exit code|\] XX\w{3} |WARNING:.*leak')
    excused = re.compile(r'terminated by signal 9|\(PID \d+\) exited with exit code [12]$')
    found = []
    for server in site.servers:
        if not os.path.exists(server.log):
            continue
        with open(server.log, encoding='utf-8', errors='replace') as lines:
            found += [line.rstrip() for line in lines if bad.search(line) and not excused.search(line.rstrip())]
    return ['server log: ' + line for line in found[:10]]


def check_s(options):
    return CHECK_S + CHECK_SHARE * options.minutes * 60


def longest_s(options):
    """After which a run is taken for stuck."""
    return options.minutes * 60 + QUIET_S + check_s(options)


class Run:
    """broken is what does not hold, in the words of the checker or of this file."""

    def __init__(self, options, site):
        self.options = options
        self.site = site
        self.broken = []
        self.pooler = None
        self.provider = None
        self.clients = None

    def set_up(self):
        options = self.options
        self.site.found()
        self.provider = Provider(self.site.directory, options.seed + 2)
        if options.pooler and Pooler.PROGRAM:
            self.pooler = Pooler(self.site)
            if not self.pooler.is_up():
                raise RuntimeError('the pooler does not start, see pooler/log')
        elif options.pooler:
            say('skipped: no pgbouncer here, so nobody goes through a pooler')
        self.clients = Clients(self.site, self.pooler, random.Random(options.seed + 1), options.kinds)

    def be_hurt(self):
        chaos = Chaos(self.site, self.clients, self.pooler, self.provider, self.options)
        try:
            chaos.run(time.monotonic() + self.options.minutes * 60)
            chaos.end()
        finally:
            say('faults: %d:' % sum(chaos.count.values()),
                ', '.join('%s %d' % item for item in sorted(chaos.count.items())))
        self.broken += chaos.died
        return chaos

    def be_calm(self, chaos):
        """Clients go on without faults, and are measured; then they stop."""
        if self.options.calm:
            seconds = min(max(self.options.minutes * 60 * CALM_SHARE, CALM_S[0]), CALM_S[1])
            growth, wrong = memory.watch_growth(self.site.primary, chaos.peaks, seconds, chaos.look_around)
            self.broken += wrong + chaos.peaks.broken()
            say('memory: at most', ', '.join('%s %d kB' % item for item in sorted(chaos.peaks.kb.items())),
                'and in %d s without faults growth by %d kB' % (seconds * (1 - memory.WARM_SHARE), growth))
        self.broken += [what for what in self.clients.died() if what not in self.broken]
        self.clients.kill_all()
        if self.pooler:
            self.pooler.stop(signal.SIGINT)
        self.provider.calm()
        if not self.clients.finish_calls(FINISH_CALLS_S):
            self.broken.append('every outside call comes to its end ' + self.clients.words('judge'))
        if self.options.calm:
            self.broken += memory.workers_are_exact(self.site.primary)

    def check(self):
        brief = [] if self.options.calm else ['brief']
        done = subprocess.run([sys.executable, HERE + '/check.py', self.site.directory, self.site.primary.dsn, *brief],
                              stdin=subprocess.DEVNULL, timeout=check_s(self.options))
        result = os.path.join(self.site.directory, 'broken')
        if done.returncode not in (0, 1) or not os.path.exists(result):
            raise RuntimeError('the checker failed')
        with open(result, encoding='utf-8') as names:
            self.broken += names.read().splitlines()

    def run(self):
        self.set_up()
        self.be_calm(self.be_hurt())
        self.check()
        self.broken += log_is_clean(self.site)


def stuck(site):
    """The run takes far too long: says who waits for what, and ends."""
    say('BROKEN  the run does not come to its end')
    faulthandler.dump_traceback(sys.stdout)
    sys.stdout.flush()
    try:
        found = subprocess.run([site.bindir + '/psql', '-XAt', '-d', site.primary.dsn, '-c',
                                'SELECT pid, state, wait_event_type, wait_event, application_name, left(query, 200)'
                                ' FROM pg_stat_activity'], stdout=subprocess.PIPE, text=True, timeout=20)
        say(found.stdout)
    finally:
        os._exit(70)


def one_run(options, site):
    """0 if all invariants hold, 1 if one is broken."""
    watch = threading.Timer(longest_s(options), stuck, (site,))
    watch.daemon = True
    watch.start()
    run = Run(options, site)
    try:
        run.run()
    except Exception:
        for server in site.servers[-2:]:
            say('---- the end of', server.log)
            subprocess.run(['tail', '-n', '15', server.log], timeout=20)
        for path in glob.glob(site.directory + '/*.err') + glob.glob(site.directory + '/pooler/log'):
            if os.path.getsize(path):
                say('---- the end of', path)
                subprocess.run(['tail', '-n', '15', path], timeout=20)
        raise
    finally:
        watch.cancel()
    with open(os.path.join(site.directory, 'broken'), 'w', encoding='utf-8') as names:
        names.write(''.join(name.splitlines()[0] + '\n' for name in run.broken))
    for what in run.broken:
        say('BROKEN ', what)
    return 1 if run.broken else 0


def limit_s(options):
    """After which guard.py ends a run whose own watch did not."""
    return longest_s(options) + 60
