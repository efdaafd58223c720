"""Reads the journals of clients.

Times are of one monotonic clock: an event happened between the time of its
intent and that of its outcome.
"""

import glob
import json
import os


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
        return '%s %s %s %s [%.3f, %.3f] %s' % (self.client, self.kind, self.outcome, self.sqlstate or '',
                                                self.sent, self.received, self.result)


def lines_of(path):
    """What is whole: whoever was killed while writing has left half a line."""
    with open(path, encoding='utf-8') as lines:
        for text in lines:
            try:
                yield json.loads(text)
            except ValueError:
                continue


class Journals:
    def __init__(self, directory):
        self.events = []
        self.held = []          # (key, token, lease, time of the acknowledgement)
        self.settling = []      # what a person is about to say of a call
        self.violations = []
        self.crashes = 0        # of clients, by their own hand
        for path in sorted(glob.glob(os.path.join(directory, '*.journal'))):
            self.read(path)

    def read(self, path):
        steps = {}
        for line in lines_of(path):
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
            elif line['event'] == 'settling':
                self.settling.append(line)
            elif line['event'] == 'crash':
                self.crashes += 1
            elif line['event'] == 'violation':
                self.violations.append('%s: %s' % (line['client'], line['what']))

    def of(self, *kinds):
        return [event for event in self.events if event.kind in kinds]
