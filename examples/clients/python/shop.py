#!/usr/bin/python3
"""A small web shop on idempotent.py: shop.py PORT

POST /orders    {"item": "tea", "quantity": 2}     all work in the database
POST /labels    bytes                              binary request and response
POST /payments  {"amount": 7}                      calls the service SHOP_GATEWAY

Each wants the header Idempotency-Key.  The database is that of the environment
(PGHOST, PGPORT, PGDATABASE, ...).
"""

import json
import math
import re
import sys
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import environ
from urllib.request import Request, urlopen

import psycopg

from idempotent import (
    InProgress,
    Mismatch,
    OutcomeUnknown,
    Reply,
    idempotent,
    idempotent_outside,
)

MAX_BODY = 1 << 20


@idempotent(scope="shop/orders")
def place_order(connection, order):
    order_id = connection.execute(
        "INSERT INTO orders (item, quantity) VALUES (%s, %s) RETURNING id",
        [order["item"], order["quantity"]],
    ).fetchone()[0]
    return Reply(201, {"order_id": order_id}, [["Location", f"/orders/{order_id}"]])


@idempotent(scope="shop/labels")
def print_label(connection, text):
    connection.execute("INSERT INTO labels (content) VALUES (%s)", [text])
    return Reply(200, text[::-1], [["Content-Type", "image/x-label"]])


@idempotent_outside(scope="shop/payments", lease=timedelta(minutes=1))
def pay(claim, payment):
    # The key goes along, so that the service can tell a repeated charge.
    charge = urlopen(
        Request(
            environ["SHOP_GATEWAY"],
            data=json.dumps(payment).encode(),
            headers={"Idempotency-Key": claim.key},
        )
    ).read().decode()
    claim.at_end(
        lambda connection: connection.execute(
            "INSERT INTO payments (amount, charge) VALUES (%s, %s)",
            [payment["amount"], charge],
        )
    )
    return Reply(201, {"charge": charge, "attempt": claim.attempt})


def valid_order(order):
    return (
        isinstance(order, dict)
        and isinstance(order.get("item"), str)
        and type(order.get("quantity")) is int
        and order["quantity"] > 0
    )


def valid_payment(payment):
    return isinstance(payment, dict) and type(payment.get("amount")) in (int, float)


ROUTES = {
    "/orders": (place_order, valid_order),
    "/labels": (print_label, None),
    "/payments": (pay, valid_payment),
}


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        try:
            self.send(self.reply())
        except Mismatch as refused:
            self.problem(422, str(refused), differs=refused.differs)
        except InProgress as refused:
            seconds = max(1, math.ceil(refused.retry_after.total_seconds()))
            code = 503 if refused.failed else 409
            self.problem(code, str(refused), [["Retry-After", str(seconds)]])
        except OutcomeUnknown as refused:
            self.problem(409, str(refused))
        except Exception as error:  # rolled back: the client may try again
            self.log_error("%r", error)
            self.problem(500, "internal error")

    def reply(self):
        length = int(self.headers.get("Content-Length", 0))
        if length > MAX_BODY:
            self.close_connection = True
            return problem(413, "request is too large")
        request = self.rfile.read(length)
        if self.path not in ROUTES:
            return problem(404, "no such path")
        work, is_valid = ROUTES[self.path]
        key = idempotency_key(self.headers.get("Idempotency-Key", ""))
        if not 1 <= len(key) <= 255:
            return problem(400, "header Idempotency-Key is missing or too long")
        if is_valid:
            try:
                request = json.loads(request)
            except ValueError:
                return problem(400, "body is not JSON")
            if not is_valid(request):
                return problem(400, "body is not what this path takes")
        # A pool in real life.
        with psycopg.connect(autocommit=True) as connection:
            return work(connection, request, key=key)

    def problem(self, code, title, headers=(), **more):
        self.send(problem(code, title, headers, **more))

    def send(self, reply):
        headers = dict(reply.headers)
        body = reply.body
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        if reply.replayed:
            headers["Idempotent-Replayed"] = "true"
        self.send_response(reply.code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def idempotency_key(header):
    """A string of RFC 8941, as the draft wants, or the bare word that many send."""
    header = header.strip()
    if len(header) > 1 and header[0] == header[-1] == '"':
        return re.sub(r'\\(["\\])', r"\1", header[1:-1])
    return header


def problem(code, title, headers=(), **more):
    """RFC 9457."""
    return Reply(
        code,
        {"status": code, "title": title, **more},
        [["Content-Type", "application/problem+json"], *headers],
    )


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Shop).serve_forever()
