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

or raise Mismatch, InProgress, OutcomeUnknown or Unstorable.  `scope=` in a call goes before
that of the decorator: put the tenant in.  Other arguments are passed on.

What an exception of the work means:

    idempotent           rolled back; the next call runs again
    idempotent_outside   Failed: this is the result, for good
                         NothingDone: the next call runs again, at once or later
                         any other: nobody knows.  When the lease is over, the
                         next call runs again, or is told that the outcome is
                         unknown, as the scope was configured (on_lease_expiry)

The connection is in autocommit mode: each decorator begins its transactions.
"""

import functools
import hashlib
from datetime import timedelta
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from psycopg import Connection, errors
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

# They belong to one response, or to one connection, and not to a replay.
NOT_STORED = {
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}

# How jsonb refuses what a parser of JSON let through.
NOT_JSONB = (
    errors.InvalidTextRepresentation,
    errors.NumericValueOutOfRange,
    errors.StatementTooComplex,
    errors.UntranslatableCharacter,
)


class Reply(NamedTuple):
    """A response: body is bytes, or anything that becomes JSON."""

    code: int
    body: Any = None
    headers: Sequence[Tuple[str, str]] = ()  # order and repeats are kept
    replayed: bool = False


class Refused(Exception):
    """The request was not carried out."""


class Mismatch(Refused):
    """The key was used for another request."""

    def __init__(self, differs: Optional[List[str]]) -> None:
        super().__init__("Idempotency-Key is already used")
        self.differs = differs or []


class InProgress(Refused):
    """Somebody is at it, or it failed and must not be tried again yet."""

    def __init__(self, retry_after: Optional[timedelta], failed: bool) -> None:
        super().__init__("A request is outstanding for this Idempotency-Key")
        self.retry_after = retry_after or timedelta(seconds=1)
        self.failed = failed


class OutcomeUnknown(Refused):
    """A person has to find out what became of it."""


class Unstorable(Refused):
    """The request is no JSON of PostgreSQL's, such as text with a NUL."""


class Failed(Exception):
    """Raise it in work outside: this is the result, for good."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"failed with {reply.code}")
        self.reply = reply


class NothingDone(Exception):
    """Raise it in work outside: it certainly has had no effect."""

    def __init__(self, retry_after: Optional[timedelta] = None) -> None:
        super().__init__("nothing was done")
        self.retry_after = retry_after


class Claim:
    """What the holder has: the key, the attempt, and the token that proves it."""

    def __init__(
        self, connection: Connection[Any], key: str, scope: str, row: Any
    ) -> None:
        self.connection = connection
        self.key = key
        self.scope = scope
        self.token: int = row.token
        self.attempt: int = row.attempt
        self.writes: List[Callable[[Connection[Any]], object]] = []

    def at_end(self, write: Callable[[Connection[Any]], object]) -> None:
        """write(connection) runs in the transaction that records the end."""
        self.writes.append(write)

    def extend(self, lease: Optional[timedelta] = None) -> None:
        """Heartbeat; raises stale token (ID001) if somebody has taken over."""
        with self.connection.transaction():
            self.connection.execute(
                "SELECT idem_extend(%s, lease => %s, token => %s, scope => %s)",
                [self.key, lease, self.token, self.scope],
            )


Work = Callable[..., Reply]


def idempotent(scope: str = "", **options: timedelta) -> Callable[[Work], Work]:
    """work(connection, request) -> Reply runs in the transaction of the claim.

    Options: ttl, wait (how long to wait for another one at the same key).
    """
    default_scope = scope

    def decorate(work: Work) -> Work:
        @functools.wraps(work)
        def call(
            connection: Connection[Any],
            request: Any,
            *args: Any,
            key: str,
            scope: str = default_scope,
            **more: Any,
        ) -> Reply:
            with connection.transaction():
                claim, reply = _claim(connection, key, request, scope, options)
                if claim is not None:
                    reply = work(connection, request, *args, **more)
                    _finish(connection, claim, reply)
            return reply

        return call

    return decorate


def idempotent_outside(scope: str = "", **options: timedelta) -> Callable[[Work], Work]:
    """work(claim, request) -> Reply runs between two transactions.

    Options: ttl, wait, lease (how long others respect that somebody is at it).
    """
    default_scope = scope

    def decorate(work: Work) -> Work:
        @functools.wraps(work)
        def call(
            connection: Connection[Any],
            request: Any,
            *args: Any,
            key: str,
            scope: str = default_scope,
            **more: Any,
        ) -> Reply:
            with connection.transaction():
                claim, reply = _claim(connection, key, request, scope, options)
            if claim is None:
                return reply
            try:
                reply = work(claim, request, *args, **more)
            except Failed as failure:
                with connection.transaction():
                    _fail(connection, claim, failure.reply)
                return failure.reply
            except NothingDone as reason:
                with connection.transaction():
                    _give_back(connection, claim, reason.retry_after)
                raise
            # Any other exception leaves the claim: its lease will end.
            with connection.transaction():
                for write in claim.writes:
                    write(connection)
                _finish(connection, claim, reply)
            return reply

        return call

    return decorate


def _claim(
    connection: Connection[Any],
    key: str,
    request: Any,
    scope: str,
    options: Dict[str, timedelta],
) -> Tuple[Optional[Claim], Reply]:
    """A claim where the request is ours to carry out, else the stored reply."""
    body, fingerprint = None, None
    if isinstance(request, bytes):
        fingerprint = hashlib.sha256(request).digest()
    elif request is not None:
        body = Jsonb(request)
    try:
        with connection.cursor(row_factory=namedtuple_row) as cursor:
            row: Any = cursor.execute(
                "SELECT * FROM idem_claim(%s, %s, scope => %s, fingerprint => %s,"
                " ttl => %s, lease => %s, wait => %s)",
                [key, body, scope, fingerprint]
                + [options.get(name) for name in ("ttl", "lease", "wait")],
            ).fetchone()
    except NOT_JSONB as error:
        raise Unstorable("The request cannot be stored as JSON") from error
    if row.outcome == "claimed":
        return Claim(connection, key, scope, row), Reply(0)
    if row.outcome == "replay":
        return None, _stored(row)
    if row.outcome == "mismatch":
        raise Mismatch(row.differs)
    if row.outcome == "in_progress":
        raise InProgress(row.retry_after, failed=row.status == "failed")
    raise OutcomeUnknown("The outcome of an earlier attempt is unknown")


def _stored(row: Any) -> Reply:
    exact = row.response_bytes
    return Reply(
        200 if row.response_code is None else row.response_code,
        row.response_body if exact is None else bytes(exact),
        [(name, value) for name, value in row.response_headers or []],
        replayed=True,
    )


def _response(reply: Reply) -> Dict[str, Any]:
    exact = reply.body if isinstance(reply.body, bytes) else None
    return {
        "code": reply.code,
        "headers": Jsonb(
            [
                [name, value]
                for name, value in reply.headers
                if name.lower() not in NOT_STORED
            ]
        ),
        "body": None if exact is not None else Jsonb(reply.body),
        "bytes": exact,
    }


def _finish(connection: Connection[Any], claim: Claim, reply: Reply) -> None:
    connection.execute(
        "SELECT idem_finish(%(key)s, %(body)s, response_code => %(code)s,"
        " token => %(token)s, scope => %(scope)s,"
        " response_headers => %(headers)s, response_bytes => %(bytes)s)",
        {**_response(reply), **vars(claim)},
    )


def _fail(connection: Connection[Any], claim: Claim, reply: Reply) -> None:
    connection.execute(
        "SELECT idem_fail(%(key)s, %(body)s, response_code => %(code)s,"
        " token => %(token)s, scope => %(scope)s, final => true,"
        " response_headers => %(headers)s, response_bytes => %(bytes)s)",
        {**_response(reply), **vars(claim)},
    )


def _give_back(
    connection: Connection[Any], claim: Claim, retry_after: Optional[timedelta]
) -> None:
    if retry_after is None:
        connection.execute(
            "SELECT idem_release(%(key)s, token => %(token)s, scope => %(scope)s)",
            vars(claim),
        )
    else:
        connection.execute(
            "SELECT idem_fail(%(key)s, token => %(token)s, scope => %(scope)s,"
            " retry_after => %(retry_after)s)",
            {"retry_after": retry_after, **vars(claim)},
        )
