"""Memory of server processes, and which of the extension's there are.

What counts is anonymous memory (RssAnon): shared buffers, which every process
maps as it goes, are none.
"""

import time

import guard

KINDS = {'launcher': 'postgres: idempotency launcher', 'worker': 'postgres: idempotency purge worker',
         'backend': 'postgres: postgres postgres '}
MOST_WORKERS = 3
# Bounds, in kB.  A server process starts with 1 to 2 MB, and has 3 to 5 once its
# caches know all that there is.
PEAK_KB = {'launcher': 8192, 'worker': 16384, 'backend': 32768}
WARM_KB = 6144
GROWTH_KB = 2048            # beyond that, in the second part of the calm
WARM_SHARE = 0.5
LAUNCHER_WITHIN_S = 30      # the postmaster starts another after 5 s


def read(pid, name):
    try:
        with open('/proc/%d/%s' % (pid, name), encoding='utf-8', errors='replace') as file:
            return file.read()
    except OSError:
        return ''


def anonymous_kb(pid):
    for line in read(pid, 'status').splitlines():
        if line.startswith('RssAnon:'):
            return int(line.split()[1])
    return 0


def processes(server):
    """(kind, pid) of those that matter here."""
    try:
        postmaster = server.postmaster()
    except OSError:
        return                      # it is down
    for pid in guard.children_of(postmaster):
        title = read(pid, 'cmdline')
        for kind, begin in KINDS.items():
            if title.startswith(begin):
                yield kind, pid


class Peaks:
    def __init__(self):
        self.kb = dict.fromkeys(KINDS, 0)

    def look(self, server):
        for kind, pid in processes(server):
            self.kb[kind] = max(self.kb[kind], anonymous_kb(pid))

    def broken(self):
        return ['a %s had %d kB of memory, more than %d' % (kind, kb, PEAK_KB[kind])
                for kind, kb in self.kb.items() if kb > PEAK_KB[kind]]


def sizes(server):
    return {pid: anonymous_kb(pid) for kind, pid in processes(server) if kind != 'worker'}


def watch_growth(server, peaks, seconds, meanwhile):
    """
    Work goes on without faults: the growth of the process that grew most in the
    second part of it, in kB; and what is wrong with it.
    """
    before, began = None, time.monotonic()
    while time.monotonic() < began + seconds:
        time.sleep(0.25)
        meanwhile()
        peaks.look(server)
        if before is None and time.monotonic() > began + seconds * WARM_SHARE:
            before = sizes(server)
    after = sizes(server)
    pairs = [(kb, after[pid]) for pid, kb in (before or {}).items() if pid in after]
    growth = max((now - kb for kb, now in pairs), default=0)
    return growth, ['a process grew from %d to %d kB without faults' % (kb, now)
                    for kb, now in pairs if now > max(kb, WARM_KB) + GROWTH_KB]


def workers_are_exact(server):
    """With the purge turned off there is one launcher, and no worker is left."""
    most, until = 0, time.monotonic() + LAUNCHER_WITHIN_S
    server.set('idempotency.purge_interval', '0')
    server.reload()
    while True:
        kinds = [kind for kind, _ in processes(server)]
        launchers, workers = kinds.count('launcher'), kinds.count('worker')
        most = max(most, workers)
        if (launchers, workers) == (1, 0) and most <= MOST_WORKERS:
            return []
        if time.monotonic() > until or most > MOST_WORKERS or launchers > 1:
            return ['%d launchers and %d workers, %d at most' % (launchers, workers, most)]
        time.sleep(0.1)
