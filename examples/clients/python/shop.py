#!/usr/bin/python3
"""A small web shop on idempotent.py: shop.py PORT

POST /orders    {"item": "tea", "quantity": 2}     all work in the database
GET  /orders/1
POST /labels    bytes                              binary request and response
POST /payments  {"amount": 7}                      calls the service SHOP_GATEWAY

All want the header Authorization (shop.sql has the tenants), and each POST
Idempotency-Key.  The database is that of the environment (PGHOST, PGPORT,
PGDATABASE, ...).
"""

import json
import math
import re
import sys
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import environ
from typing import Any, Callable, Dict, Iterable, Optional, Tuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psycopg
from psycopg import Connection

from idempotent import (
    Claim,
    Failed,
    InProgress,
    Mismatch,
    NothingDone,
    OutcomeUnknown,
    Reply,
    Unstorable,
    idempotent,
    idempotent_outside,
)

MAX_BODY = 1 << 20


# ---- the work ----------------------------------------------------------------


@idempotent()
def place_order(connection: Connection[Any], order: Any, tenant: str) -> Reply:
    row = connection.execute(
        "INSERT INTO orders (tenant, item, quantity) VALUES (%s, %s, %s) RETURNING id",
        [tenant, order["item"], order["quantity"]],
    ).fetchone()
    assert row
    place = f"/orders/{row[0]}"
    return Reply(
        201,
        {"order_id": row[0]},
        [
            ("Location", place),
            ("Link", f'<{place}>; rel="self"'),
            ("Link", '</labels>; rel="next"'),
            ("Set-Cookie", f"last_order={row[0]}"),
        ],
    )


@idempotent()
def print_label(connection: Connection[Any], text: bytes, tenant: str) -> Reply:
    connection.execute("INSERT INTO labels (content) VALUES (%s)", [text])
    return Reply(200, text[::-1], [("Content-Type", "image/x-label")])


@idempotent_outside(lease=timedelta(minutes=1))
def pay(claim: Claim, payment: Any, tenant: str) -> Reply:
    charge = charge_card(payment, claim.key)
    claim.at_end(
        lambda connection: connection.execute(
            "INSERT INTO payments (amount, charge) VALUES (%s, %s)",
            [payment["amount"], charge],
        )
    )
    return Reply(201, {"charge": charge, "attempt": claim.attempt})


def charge_card(payment: Any, key: str) -> str:
    # The key goes along, so that the service can tell a repeated charge.  The
    # time-out is shorter than the lease.
    request = Request(
        environ["SHOP_GATEWAY"],
        data=json.dumps(payment).encode(),
        headers={"Idempotency-Key": f'"{key}"'},
    )
    try:
        with urlopen(request, timeout=40) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        if error.code == 402:
            raise Failed(problem(402, "The card was declined")) from error
        if error.code == 503:  # what else it answers does not say what was done
            seconds = error.headers.get("Retry-After", "")
            later = timedelta(seconds=int(seconds) if seconds.isdecimal() else 1)
            raise NothingDone(later) from error
        raise


def is_order(order: Any) -> bool:
    return (
        isinstance(order, dict)
        and isinstance(order.get("item"), str)
        and type(order.get("quantity")) is int
        and 0 < order["quantity"] < 1_000_000
    )


def is_payment(payment: Any) -> bool:
    return isinstance(payment, dict) and type(payment.get("amount")) in (int, float)


# ---- HTTP --------------------------------------------------------------------

ROUTES: Dict[str, Tuple[Callable[..., Reply], bool, Callable[[Any], bool]]] = {
    "/orders": (place_order, True, is_order),
    "/labels": (print_label, False, bool),
    "/payments": (pay, True, is_payment),
}


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60  # for a client that stops in the middle

    def do_POST(self) -> None:
        request = self.body()
        if not isinstance(request, Reply):
            request = self.reply(self.post, request)
        self.send(request)

    def do_GET(self) -> None:
        self.send(self.reply(self.get))

    do_HEAD = do_GET

    def body(self) -> Any:
        """The body of the request, or what is wrong with it."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,18}", length):  # nor are chunks taken
            self.close_connection = True
            return problem(411, "Content-Length is missing")
        if int(length) <= MAX_BODY:
            body = self.rfile.read(int(length))
            if len(body) == int(length):
                return body
            self.close_connection = True
            return problem(400, "The body was cut off")
        # Who is cut off while he sends may not hear why.
        for start in range(0, min(int(length), 8 * MAX_BODY), MAX_BODY):
            self.rfile.read(min(MAX_BODY, int(length) - start))
        self.close_connection = True
        return problem(413, "The request is too large")

    def reply(self, method: Any, *args: Any) -> Reply:
        """What the method answers, also where it raises."""
        try:
            # A pool in real life.
            with psycopg.connect(autocommit=True) as connection:
                tenant = self.tenant(connection)
                if tenant is None:
                    return problem(401, "Who are you?", [("WWW-Authenticate", "Bearer")])
                reply: Reply = method(connection, tenant, *args)
                return reply
        except Mismatch as refused:
            return problem(422, str(refused), differs=refused.differs)
        except InProgress as refused:
            code = 503 if refused.failed else 409
            return problem(code, str(refused), [retry_after(refused.retry_after)])
        except OutcomeUnknown as refused:
            return problem(409, str(refused))
        except Unstorable as refused:
            return problem(400, str(refused))
        except NothingDone as reason:
            later = reason.retry_after or timedelta(seconds=1)
            return problem(503, "Try again later", [retry_after(later)])
        except Exception as error:  # no result: the client may try again
            self.log_error("%r", error)
            return problem(500, "Internal error")

    def tenant(self, connection: Connection[Any]) -> Optional[str]:
        _, _, key = self.headers.get("Authorization", "").partition("Bearer ")
        row = connection.execute(
            "SELECT name FROM tenants"
            " WHERE api_key_hash = sha256(convert_to(%s, 'UTF8'))",
            [key],
        ).fetchone()
        return row[0] if row else None

    def get(self, connection: Connection[Any], tenant: str) -> Reply:
        place = re.fullmatch(r"/orders/([0-9]{1,9})", self.path)
        row = place and connection.execute(
            "SELECT item, quantity FROM orders WHERE id = %s AND tenant = %s",
            [int(place[1]), tenant],
        ).fetchone()
        if not row:
            return problem(404, "No such thing")
        return Reply(200, {"item": row[0], "quantity": row[1]})

    def post(self, connection: Connection[Any], tenant: str, body: bytes) -> Reply:
        if self.path not in ROUTES:
            return problem(404, "No such thing")
        work, takes_json, is_valid = ROUTES[self.path]
        key = idempotency_key(self.headers.get_all("Idempotency-Key", []))
        if key is None:
            return problem(
                400,
                "Idempotency-Key is missing",
                detail="This wants the header once, with a string of 1 to 255 characters.",
            )
        request: Any = body
        if takes_json:
            try:
                request = json.loads(body)
            except (ValueError, RecursionError):
                return problem(400, "The body is not JSON")
        if not is_valid(request):
            return problem(400, "The body is not what this takes")
        # Keys of one tenant mean nothing to another.
        scope = f"shop/{tenant}{self.path}"
        return work(connection, request, tenant, key=key, scope=scope)

    def send(self, reply: Reply) -> None:
        headers = list(reply.headers)
        body = reply.body
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            if not any(name.lower() == "content-type" for name, _ in headers):
                headers.append(("Content-Type", "application/json"))
        if reply.replayed:
            headers.append(("Idempotent-Replayed", "true"))
        try:
            self.send_response(reply.code)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except ConnectionError:  # the client has gone, and may ask again
            self.close_connection = True


def idempotency_key(fields: Iterable[str]) -> Optional[str]:
    """The string of RFC 8941 that the draft wants, or the bare word that many send."""
    header = ",".join(fields).strip()
    quoted = re.fullmatch(r'"((?:[ !#-\[\]-~]|\\["\\])*)" *(?:;[^,]*)?', header)
    if quoted:
        key = re.sub(r"\\(.)", r"\1", quoted[1])
    else:
        key = header if re.fullmatch(r'[!#-+\--:<-\[\]-~]+', header) else ""
    return key if 1 <= len(key) <= 255 else None


def problem(
    code: int, title: str, headers: Iterable[Tuple[str, str]] = (), **more: Any
) -> Reply:
    """RFC 9457."""
    return Reply(
        code,
        {"status": code, "title": title, **more},
        [("Content-Type", "application/problem+json"), *headers],
    )


def retry_after(interval: timedelta) -> Tuple[str, str]:
    return "Retry-After", str(max(1, math.ceil(interval.total_seconds())))


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Shop)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
