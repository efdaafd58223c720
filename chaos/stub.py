#!/usr/bin/python3
"""The provider of outside calls: takes charges, and loses messages and answers.

    stub.py DIRECTORY SEED

It remembers the largest token that it saw for each key, and refuses whatever
comes with a smaller one.  What it accepts it has on disk before it answers, in
DIRECTORY/ledger, a line for each decision; killed and started again, it goes on
from there.  Three providers are behind it: "keyed" knows a repeated call by its
id and charges once; "askable" charges as often as it is told to, and can be
asked; "mute" charges as often as it is told to.

A message may be under way for a while, but no longer than its deadline, which
is what the sender promised the database (the time-out of the provider).
"""

import json
import os
import random
import socket
import socketserver
import sys
import threading
import time

LOST_SHARE = 0.04           # of messages
UNANSWERED_SHARE = 0.08
SLOW_SHARE = 0.15
SLOW_S = 0.5
DECLINED_SHARE = 0.1
ANSWER_WITHIN_S = 0.7       # after that, a client has lost patience

HELLO = 'hello'
NOT_SENT = 'not sent'       # there was nobody to send it to
NO_ANSWER = 'no answer'


def path_of(directory):
    return os.path.join(directory, 'stub.sock')


def ask(directory, message):
    """Sends a message: its answer, or NOT_SENT, or NO_ANSWER."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(ANSWER_WITHIN_S)
        try:
            sock.connect(path_of(directory))
        except OSError:
            return NOT_SENT
        try:
            sock.sendall((json.dumps(message) + '\n').encode())
            answer = sock.makefile('r').readline()
            answer = json.loads(answer) if answer.endswith('\n') else NO_ANSWER
        except OSError:
            return NO_ANSWER
    return HELLO if answer == HELLO else answer


class Books:
    """What was decided, in memory and on disk."""

    def __init__(self, path, seed):
        self.lock = threading.Lock()
        self.random = random.Random(seed)
        self.largest = {}
        self.results = {}           # call_id: last line
        self.calm = False
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        with open(path, encoding='utf-8') as lines:
            for line in lines:
                if line.endswith('\n') and line.strip():
                    self.know(json.loads(line))
        os.write(self.file, b'\n')  # ends what a crash has cut off

    def know(self, line):
        self.largest[line['key']] = max(line['token'], self.largest.get(line['key'], 0))
        if line['what'] in ('succeeded', 'failed'):
            self.results[line['call_id']] = line

    def write(self, message, what, **more):
        line = {name: message[name] for name in ('provider', 'key', 'life', 'token', 'call_id', 'client')}
        line.update(more, what=what, t=time.monotonic())
        os.write(self.file, (json.dumps(line) + '\n').encode())
        os.fsync(self.file)
        self.know(line)
        return line

    def result(self, call_id):
        line = self.results.get(call_id)
        if line is None:
            return {'status': 'not_found'}
        return {'status': line['what'], 'body': {'receipt': line['receipt']}}

    def chance(self, share):
        return not self.calm and self.random.random() < share

    def decide(self, message):
        """The answer; everything that matters is on disk then."""
        if message['op'] == 'books':            # a person looks
            return self.result(message['call_id'])
        if message['token'] < self.largest.get(message['key'], 0):
            self.write(message, 'refused')
            return {'status': 'stale'}
        if message['op'] == 'ask':
            if message['token'] > self.largest.get(message['key'], 0):
                self.write(message, 'asked')
            return self.result(message['call_id'])
        if time.monotonic() > message['deadline']:
            self.write(message, 'late')
            return {'status': 'late'}
        if message['provider'] == 'keyed' and message['call_id'] in self.results:
            self.write(message, 'repeated')
        else:
            self.write(message, 'failed' if self.chance(DECLINED_SHARE) else 'succeeded',
                       receipt=self.random.randrange(2 ** 40))
        return self.result(message['call_id'])


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        books = self.server.books
        message = json.loads(self.rfile.readline())
        if message['op'] == 'calm':
            books.calm = True
        if message['op'] in ('calm', 'hello'):
            answer = HELLO
        else:
            if books.chance(LOST_SHARE):
                return
            if books.chance(SLOW_SHARE):
                time.sleep(books.random.random() * SLOW_S)
            with books.lock:
                answer = books.decide(message)
            if books.chance(UNANSWERED_SHARE):
                return
        try:
            self.wfile.write((json.dumps(answer) + '\n').encode())
        except OSError:
            pass                    # he has lost patience


class Stub(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (OSError, ValueError)):
            super().handle_error(request, client_address)


def main(directory, seed):
    path = path_of(directory)
    if os.path.exists(path):
        os.unlink(path)
    with Stub(path, Handler) as server:
        server.books = Books(os.path.join(directory, 'ledger'), int(seed))
        server.serve_forever()


if __name__ == '__main__':
    main(*sys.argv[1:])
