#!/usr/bin/env node
'use strict';

/*
 * A small web shop on idempotent.js: shop.js PORT
 *
 * POST /orders    {"item": "tea", "quantity": 2}    all work in the database
 * GET  /orders/1
 * POST /labels    bytes                             binary request, streamed response
 * POST /payments  {"amount": 7}                     calls the service SHOP_GATEWAY
 *
 * All want the header Authorization (shop.sql has the tenants), and each POST
 * Idempotency-Key.  The database is that of the environment (PGHOST, PGPORT,
 * PGDATABASE, ...).
 */

const { STATUS_CODES } = require('node:http');
const express = require('express');
const { Pool } = require('pg');
const { idempotent, problem } = require('./idempotent');

const pool = new Pool();
const app = express();

// Express 5 hands on by itself what an async handler throws; 4 does not.
const caught = (handler) => (req, res, next) => handler(req, res, next).catch(next);
const json = express.json({
  limit: '1mb', type: () => true, verify: (req, res, body) => { req.rawBody = body; },
});
const bytes = express.raw({ limit: '1mb', type: () => true });
const valid = (isValid) => (req, res, next) => (isValid(req.body ?? {})
  ? next() : problem(res, 400, 'The body is not what this takes'));
// Keys of one tenant mean nothing to another.
const once = (options) => idempotent(pool, {
  scope: (req) => `shop/${req.tenant}${req.path}`, ...options,
});

pool.on('error', console.error); // an idle connection is lost: there are others
app.disable('x-powered-by');
app.enable('strict routing');
app.enable('case sensitive routing');

app.use(caught(async (req, res, next) => {
  const [, key] = /^Bearer (.+)$/.exec(req.get('Authorization') ?? '') ?? [];
  const { rows } = await pool.query(
    "SELECT name FROM tenants WHERE api_key_hash = sha256(convert_to($1, 'UTF8'))", [key]);

  req.tenant = rows[0]?.name;
  if (req.tenant) return next();
  return problem(res.set('WWW-Authenticate', 'Bearer'), 401, 'Who are you?');
}));

app.post('/orders', json,
  valid(({ item, quantity }) => typeof item === 'string' && Number.isInteger(quantity)
    && quantity > 0 && quantity < 1_000_000),
  once(),
  caught(async (req, res) => {
    const { rows: [{ id }] } = await req.claim.client.query(
      'INSERT INTO orders (tenant, item, quantity) VALUES ($1, $2, $3) RETURNING id',
      [req.tenant, req.body.item, req.body.quantity]);

    res.status(201).location(`/orders/${id}`)
      .append('Link', `</orders/${id}>; rel="self"`)
      .append('Link', '</labels>; rel="next"')
      .append('Set-Cookie', `last_order=${id}`)
      .json({ order_id: id });
  }));

app.get('/orders/:id', once(), caught(async (req, res, next) => {
  const { rows } = await pool.query(
    'SELECT item, quantity FROM orders WHERE id::text = $1 AND tenant = $2',
    [req.params.id, req.tenant]);

  return rows[0] ? res.json(rows[0]) : next();
}));

app.post('/labels', bytes, valid((text) => text.length > 0), once(), caught(async (req, res) => {
  const text = Buffer.from(req.body);

  res.writeHead(200, { 'Content-Type': 'image/x-label' });
  res.flushHeaders();
  for (const byte of Buffer.from(text).reverse()) res.write(Buffer.of(byte));
  await req.claim.client.query('INSERT INTO labels (content) VALUES ($1)', [text]);
  res.end();
}));

app.post('/payments', json,
  valid(({ amount }) => typeof amount === 'number'),
  once({ outside: true, lease: '1 minute' }),
  caught(async (req, res) => {
    // The key goes along, so that the service can tell a repeated charge.  The
    // time-out is shorter than the lease.
    const answer = await fetch(process.env.SHOP_GATEWAY, {
      method: 'POST',
      headers: { 'Idempotency-Key': `"${req.claim.key}"` },
      body: req.rawBody,
      signal: AbortSignal.timeout(40_000),
    });
    const charge = await answer.text();

    if (answer.status === 402) return problem(res, 402, 'The card was declined');
    if (answer.status === 503) {
      res.set('Retry-After', answer.headers.get('Retry-After') ?? '1');
      return problem(res, 503, 'Try again later');
    }
    // What else it answers does not say what was done.
    if (!answer.ok) throw new Error(`the card service answers ${answer.status}`);
    req.claim.atEnd((client) => client.query(
      'INSERT INTO payments (amount, charge) VALUES ($1, $2)', [req.body.amount, charge]));
    return res.status(201).json({ charge, attempt: req.claim.attempt });
  }));

app.use((req, res) => problem(res, 404, 'No such thing'));
app.use((error, req, res, next) => { // eslint-disable-line no-unused-vars
  const status = error.status ?? 500;

  if (status >= 500) console.error(error);
  for (const name of res.getHeaderNames()) res.removeHeader(name);
  problem(res, status, STATUS_CODES[status] ?? 'Error');
});

const server = app.listen(Number(process.argv[2]), '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
