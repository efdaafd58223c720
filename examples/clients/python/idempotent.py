"""Requests that are carried out once: a client of the extension `idempotency`.

For psycopg 3.  Two decorators, for the two ways to work:

    @idempotent(scope="orders")               # all work in the database
    def place_order(connection, order):
        ...
        return Reply(201, {"order_id": 1})

    @idempotent_outside(scope="payments", lease=timedelta(minutes=2))
    def pay(claim, payment):                  # work outside, no transaction open
        receipt = charge(payment, reference=claim.key)
        claim.at_end(lambda connection: connection.execute("INSERT ..."))
        return Reply(201, {"receipt": receipt})

Both are called with the key of the request, and answer with what the first call
of that key answered:

    place_order(connection, order, key="8e03978e")

or raise Mismatch, InProgress or OutcomeUnknown.
"""

import functools
import hashlib
from datetime import timedelta
from typing import Any, NamedTuple

from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb


class Reply(NamedTuple):
    """A response: body is bytes, or anything that becomes JSON."""

    code: int
    body: Any = None
    headers: list = []  # of [name, value]; order and repeats are kept
    replayed: bool = False


class Refused(Exception):
    """The request was not carried out."""


class Mismatch(Refused):
    """The key was used for another request."""

    def __init__(self, differs):
        super().__init__("idempotency key was used for another request")
        self.differs = differs or []


class InProgress(Refused):
    """Somebody is at it, or it failed and must not be tried again yet."""

    def __init__(self, retry_after, failed):
        super().__init__("request is in progress")
        self.retry_after = retry_after or timedelta(seconds=1)
        self.failed = failed


class OutcomeUnknown(Refused):
    """A person has to find out what became of it."""


class Failed(Exception):
    """Raise it in work outside: this is the result, for good."""

    def __init__(self, reply):
        super().__init__(f"failed with {reply.code}")
        self.reply = reply


class NothingDone(Exception):
    """Raise it in work outside: it certainly has had no effect."""


def idempotent(scope="", **options):
    """work(connection, request) -> Reply runs in the transaction of the claim."""

    def decorate(work):
        @functools.wraps(work)
        def call(connection, request, *, key):
            with connection.transaction():
                claim, reply = _claim(connection, key, request, scope, options)
                if reply is None:
                    reply = work(connection, request)
                    _finish(connection, claim, reply)
                return reply

        return call

    return decorate


def idempotent_outside(scope="", **options):
    """work(claim, request) -> Reply runs between two transactions."""

    def decorate(work):
        @functools.wraps(work)
        def call(connection, request, *, key):
            with connection.transaction():
                claim, reply = _claim(connection, key, request, scope, options)
            if reply is not None:
                return reply
            try:
                reply = work(claim, request)
            except Failed as failure:
                with connection.transaction():
                    _fail(connection, claim, failure.reply)
                return failure.reply
            except NothingDone:
                with connection.transaction():
                    _release(connection, claim)
                raise
            # Any other exception tells nothing about the work: the lease will
            # end, and the next attempt, or a person, will find out.
            with connection.transaction():
                for write in claim.writes:
                    write(connection)
                _finish(connection, claim, reply)
            return reply

        return call

    return decorate


class Claim:
    """What the holder has: the key, the attempt, and the token that proves it."""

    def __init__(self, connection, key, scope, row):
        self.connection = connection
        self.key = key
        self.scope = scope
        self.token = row.token
        self.attempt = row.attempt
        self.writes = []

    def at_end(self, write):
        """write(connection) runs in the transaction that records the end."""
        self.writes.append(write)

    def extend(self, lease=None):
        """Heartbeat; raises stale token (ID001) if somebody has taken over."""
        with self.connection.transaction():
            self.connection.execute(
                "SELECT idem_extend(%s, lease => %s, token => %s, scope => %s)",
                [self.key, lease, self.token, self.scope],
            )


def _claim(connection, key, request, scope, options):
    """(claim, None) where it is ours to do, (None, reply) where it is done."""
    body, fingerprint = None, None
    if isinstance(request, bytes):
        fingerprint = hashlib.sha256(request).digest()
    elif request is not None:
        body = Jsonb(request)
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        row = cursor.execute(
            "SELECT * FROM idem_claim(%s, %s, scope => %s, fingerprint => %s,"
            " ttl => %s, lease => %s, wait => %s)",
            [key, body, scope, fingerprint]
            + [options.get(name) for name in ("ttl", "lease", "wait")],
        ).fetchone()
    if row.outcome == "claimed":
        return Claim(connection, key, scope, row), None
    if row.outcome == "replay":
        exact = row.response_bytes
        body = row.response_body if exact is None else bytes(exact)
        return None, Reply(
            row.response_code, body, row.response_headers or [], replayed=True
        )
    if row.outcome == "mismatch":
        raise Mismatch(row.differs)
    if row.outcome == "in_progress":
        raise InProgress(row.retry_after, failed=row.status == "failed")
    raise OutcomeUnknown("the outcome of an earlier attempt is unknown")


def _response(reply):
    exact = reply.body if isinstance(reply.body, bytes) else None
    return {
        "code": reply.code,
        "headers": Jsonb([list(pair) for pair in reply.headers]),
        "body": None if exact is not None else Jsonb(reply.body),
        "bytes": exact,
    }


def _finish(connection, claim, reply):
    connection.execute(
        "SELECT idem_finish(%(key)s, %(body)s, response_code => %(code)s,"
        " token => %(token)s, scope => %(scope)s,"
        " response_headers => %(headers)s, response_bytes => %(bytes)s)",
        {**_response(reply), **vars(claim)},
    )


def _fail(connection, claim, reply):
    connection.execute(
        "SELECT idem_fail(%(key)s, %(body)s, response_code => %(code)s,"
        " token => %(token)s, scope => %(scope)s, final => true,"
        " response_headers => %(headers)s, response_bytes => %(bytes)s)",
        {**_response(reply), **vars(claim)},
    )


def _release(connection, claim):
    connection.execute(
        "SELECT idem_release(%s, token => %s, scope => %s)",
        [claim.key, claim.token, claim.scope],
    )
