#!/usr/bin/env node
'use strict';

/*
 * A small web shop on idempotent.js: shop.js PORT
 *
 * POST /orders    {"item": "tea", "quantity": 2}    all work in the database
 * POST /labels    bytes                             binary request, streamed response
 * POST /payments  {"amount": 7}                     calls the service SHOP_GATEWAY
 *
 * Each wants the header Idempotency-Key.  The database is that of the
 * environment (PGHOST, PGPORT, PGDATABASE, ...).
 */

const express = require('express');
const { Pool } = require('pg');
const { idempotent, problem } = require('./idempotent');

const pool = new Pool();
const app = express();
const json = express.json({
  limit: '1mb', type: () => true, verify: (req, res, body) => { req.rawBody = body; },
});
const valid = (isValid) => (req, res, next) => (isValid(req.body ?? {})
  ? next() : problem(res, 400, 'body is not what this path takes'));

app.disable('x-powered-by');

app.post('/orders', json,
  valid((order) => typeof order.item === 'string' && Number.isInteger(order.quantity)
    && order.quantity > 0),
  idempotent(pool, { scope: 'shop/orders' }),
  async (req, res) => {
    const { rows } = await req.claim.client.query(
      'INSERT INTO orders (item, quantity) VALUES ($1, $2) RETURNING id',
      [req.body.item, req.body.quantity]);

    res.status(201).location(`/orders/${rows[0].id}`).json({ order_id: rows[0].id });
  });

app.post('/labels', express.raw({ limit: '1mb', type: () => true }),
  idempotent(pool, { scope: 'shop/labels' }),
  async (req, res) => {
    const text = Buffer.from(req.body);

    res.writeHead(200, { 'Content-Type': 'image/x-label' });
    for (const byte of Buffer.from(text).reverse()) res.write(Buffer.of(byte));
    await req.claim.client.query('INSERT INTO labels (content) VALUES ($1)', [text]);
    res.end();
  });

app.post('/payments', json,
  valid((payment) => typeof payment.amount === 'number'),
  idempotent(pool, { scope: 'shop/payments', outside: true, lease: '1 minute' }),
  async (req, res) => {
    // The key goes along, so that the service can tell a repeated charge.
    const answer = await fetch(process.env.SHOP_GATEWAY, {
      method: 'POST',
      headers: { 'Idempotency-Key': req.claim.key },
      body: JSON.stringify(req.body),
    });
    if (!answer.ok) throw new Error(`the card service answers ${answer.status}`);
    const charge = await answer.text();

    req.claim.atEnd((client) => client.query(
      'INSERT INTO payments (amount, charge) VALUES ($1, $2)', [req.body.amount, charge]));
    res.status(201).json({ charge, attempt: req.claim.attempt });
  });

app.use((req, res) => problem(res, 404, 'no such path'));
app.use((error, req, res, next) => {
  const status = error.status ?? 500;

  if (status >= 500) console.error(error);
  problem(res, status, status < 500 ? 'bad request' : 'internal error');
});

app.listen(Number(process.argv[2]), '127.0.0.1');
