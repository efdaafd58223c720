"""redis.py DIRECTORY ROUNDS SECONDS - what bench/redis runs.

Speaks just enough of both protocols for a benchmark on a trusted socket.
"""
import os
import random
import socket
import struct
import sys
import time

BODY = '{"item": "A-1", "quantity": 2}'
RESPONSE = '{"text": "' + "x" * 80 + '"}'
INSERT = "INSERT INTO orders (item, quantity) VALUES ('A-1', 2) RETURNING id"


def connect(path):
    for _ in range(50):
        try:
            link = socket.socket(socket.AF_UNIX)
            link.connect(path)
            return link, link.makefile("rb")
        except OSError:
            time.sleep(0.1)
    sys.exit(f"cannot connect to {path}")


class Postgres:
    """Simple queries; query() returns the rows of the last result."""

    def __init__(self, directory):
        self.link, self.file = connect(os.path.join(directory, ".s.PGSQL.5432"))
        start = struct.pack("!i", 196608) + b"user\0bench\0database\0postgres\0\0"
        self.link.sendall(struct.pack("!i", len(start) + 4) + start)
        self.answer()

    def query(self, sql):
        words = sql.encode() + b"\0"
        self.link.sendall(b"Q" + struct.pack("!i", len(words) + 4) + words)
        return self.answer()

    def answer(self):
        rows = []
        while True:
            kind, length = struct.unpack("!ci", self.file.read(5))
            message = self.file.read(length - 4)
            if kind == b"E":
                sys.exit(message.replace(b"\0", b" ").decode())
            if kind == b"T":
                rows = []
            elif kind == b"D":
                rows.append(fields(message))
            elif kind == b"Z":
                return rows


def fields(message):
    values, at = [], 2
    for _ in range(struct.unpack_from("!h", message)[0]):
        size = struct.unpack_from("!i", message, at)[0]
        at += 4
        values.append(None if size < 0 else message[at:at + size])
        at += max(size, 0)
    return values


class Redis:
    def __init__(self, directory):
        self.link, self.file = connect(os.path.join(directory, "redis.sock"))

    def command(self, *words):
        parts = [b"*%d\r\n" % len(words)]
        parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in (str(word).encode() for word in words)]
        self.link.sendall(b"".join(parts))
        line = self.file.readline()
        if line[:1] == b"-":
            sys.exit(line.decode())
        if line[:1] != b"$":
            return line[1:-2]
        size = int(line[1:])
        return None if size < 0 else self.file.read(size + 2)[:-2]


def by_extension(database, _, key):
    outcome, _ = database.query(
        f"BEGIN; SELECT outcome, response_body FROM idem_claim('{key}', '{BODY}')")[0]
    if outcome == b"claimed":
        database.query(INSERT)
        database.query(f"SELECT idem_finish('{key}', '{RESPONSE}', 200); COMMIT")
    else:
        database.query("COMMIT")


def by_redis(database, store, key):
    if store.command("SET", key, "processing", "NX", "EX", 86400) is not None:
        database.query(INSERT)
        store.command("SET", key, RESPONSE, "EX", 86400)
    else:
        store.command("GET", key)


def main():
    directory, rounds, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    database, store = Postgres(directory), Redis(directory)
    peers = {"claim_finish": by_extension, "redis": by_redis}
    for commit in ("off", "on"):
        database.query(f"SET synchronous_commit = {commit}")
        for workload in ("new", "replay"):
            for number in range(1, rounds + 1):
                for name, job in peers.items():
                    calls, started = 0, time.perf_counter()
                    while time.perf_counter() - started < seconds:
                        key = f"known {calls % 100}" if workload == "replay" else f"{random.getrandbits(63)}"
                        job(database, store, key)
                        calls += 1
                    rate = calls / (time.perf_counter() - started)
                    print(f"redis-{workload}-1{'-sync' if commit == 'on' else ''}", name, number, f"{rate:.1f}", sep="\t")


main()
