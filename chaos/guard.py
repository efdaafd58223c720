"""Runs a function in a child process, within a limit of time, and leaves no process behind.

The caller of guarded() is the "subreaper" of all that the child starts: what a
server or a client leaves behind when its parent dies becomes a child of the
caller, whatever has detached itself, and is killed when the child has ended, in
whatever way.  A signal that ends the caller ends all of it, too.
"""

import ctypes
import os
import signal
import time
import traceback

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.02
KILLED_WITHIN_S = 20

libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(number=signal.SIGKILL):
    """For the start of a child: it gets this signal when its parent dies."""
    libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def stat_of(pid):
    """(state, parent) of a process, or None."""
    try:
        with open('/proc/%d/stat' % pid, encoding='utf-8', errors='replace') as stat:
            fields = stat.read().rpartition(')')[2].split()
        return fields[0], int(fields[1])
    except (OSError, IndexError):
        return None


def is_alive(pid):
    stat = stat_of(pid)
    return stat is not None and stat[0] not in 'ZX'


def children_of(pid):
    """Direct children, as far as they are alive."""
    found = []
    for name in os.listdir('/proc'):
        if name.isdigit():
            stat = stat_of(int(name))
            if stat is not None and stat[1] == pid and stat[0] not in 'ZX':
                found.append(int(name))
    return found


def descendants_of(pid):
    found, todo = [], [pid]
    while todo:
        children = children_of(todo.pop())
        found += children
        todo += children
    return found


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def reap(child=None):
    """Collects what has ended; the wait status of child if it is among them."""
    status = None
    try:
        while True:
            pid, how = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return status
            if pid == child:
                status = how
    except ChildProcessError:
        return status


def kill_descendants():
    until = time.monotonic() + KILLED_WITHIN_S
    while time.monotonic() < until:
        left = descendants_of(os.getpid())
        if not left:
            break
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(POLL_S)
        reap()
    reap()


def in_child(function, parent, orphaned):
    """The child's life: its exit code is what the function says."""
    def ended(number, frame):
        raise SystemExit('ended by signal %d' % number)
    status = 70
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, ended)
        die_with_parent(signal.SIGTERM)
        status = function()
    except SystemExit as why:
        print(why, flush=True)
    except BaseException:
        traceback.print_exc()
    finally:
        if os.getppid() != parent:
            orphaned()
        os._exit(status)


def guarded(function, limit_s, orphaned):
    """
    What function() returns, a small number, called in a child; 70 where it
    raised, or could not end within so many seconds.  If the caller is killed,
    there is nobody to clean up but orphaned(), called in the child.
    """
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        in_child(function, parent, orphaned)
    until = time.monotonic() + limit_s
    try:
        while True:
            status = reap(child)
            if status is not None:
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 70
            if time.monotonic() > until:
                print('BROKEN  not ended after %d s' % limit_s, flush=True)
                return 70
            time.sleep(POLL_S)
    finally:
        kill_descendants()
