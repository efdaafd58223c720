'use strict';

/*
 * Express middleware for the Idempotency-Key header (IETF draft
 * "The Idempotency-Key HTTP Header Field") on the extension `idempotency`.
 *
 *   app.post('/orders', express.json(), idempotent(pool, { scope: 'orders' }),
 *     async (req, res) => {
 *       await req.claim.client.query('INSERT ...');
 *       res.status(201).json({ order_id: 1 });
 *     });
 *
 * The response is held back until it is committed, along with what the handler
 * did by req.claim.client.  A response of 500 or above, or an error, is no
 * result: it rolls back, and the client may try again.
 *
 * With `outside: true` no transaction is open while the handler runs.  It may
 * call services outside, and leaves its own writes to
 * req.claim.atEnd(async (client) => ...), which runs in the transaction that
 * records the response.
 *
 * Options: scope (a string, or a function of the request: put the tenant in),
 * outside, and ttl, lease, wait as PostgreSQL writes intervals ('2 minutes').
 */

const { createHash } = require('node:crypto');

// They belong to one response and not to its replay.
const NOT_STORED = new Set(['connection', 'content-length', 'date', 'etag',
  'keep-alive', 'set-cookie', 'transfer-encoding', 'x-powered-by']);

function idempotent(pool, { scope = '', outside = false, ...options } = {}) {
  return async function (req, res, next) {
    const key = keyOf(req.get('Idempotency-Key'));

    if (key.length < 1 || key.length > 255) {
      return problem(res, 400, 'header Idempotency-Key is missing or too long');
    }
    const request = { key, scope: typeof scope === 'function' ? scope(req) : scope };
    const client = await pool.connect();
    let broken;

    try {
      await client.query('BEGIN');
      const row = await claim(client, request, req, options);
      if (row.outcome !== 'claimed') {
        await client.query('COMMIT');
        return answer(res, row);
      }
      Object.assign(request, { token: row.token, attempt: row.attempt, writes: [] });
      if (outside) await client.query('COMMIT');
      await carryOut(request, outside ? undefined : client, req, res, next,
        (response) => record(client, request, outside, response));
    } catch (error) {
      broken = await rollBack(client);
      next(error);
    } finally {
      client.release(broken);
    }
  };
}

// A string of RFC 8941, as the draft wants, or the bare word that many send.
function keyOf(header = '') {
  const quoted = /^"(.*)"$/.exec(header.trim());

  return quoted ? quoted[1].replace(/\\(["\\])/g, '$1') : header.trim();
}

// Tokens are bigint, which the driver gives as a string: leave them so.  JSON
// is taken and stored as text, so that no number goes through a double.
async function claim(client, { key, scope }, req, { ttl, lease, wait }) {
  const isBinary = Buffer.isBuffer(req.body);
  const body = isBinary || req.body === undefined
    ? null : (req.rawBody ?? JSON.stringify(req.body)).toString();
  const fingerprint = isBinary ? createHash('sha256').update(req.body).digest() : null;
  const { rows } = await client.query(
    `SELECT outcome, token, attempt, status, response_code, response_headers,
            response_body::text, response_bytes, differs,
            ceil(extract(epoch FROM retry_after))::int AS retry_seconds
       FROM idem_claim($1, $2, scope => $3, fingerprint => $4,
                       ttl => $5, lease => $6, wait => $7)`,
    [key, body, scope, fingerprint, ttl, lease, wait]);

  return rows[0];
}

function answer(res, row) {
  switch (row.outcome) {
    case 'replay':
      res.status(row.response_code ?? 200);
      for (const [name, value] of row.response_headers ?? []) res.append(name, value);
      res.set('Idempotent-Replayed', 'true');
      return res.end(row.response_bytes ?? row.response_body ?? '');
    case 'mismatch':
      return problem(res, 422, 'idempotency key was used for another request',
        { differs: row.differs ?? [] });
    case 'in_progress':
      res.set('Retry-After', String(Math.max(1, row.retry_seconds ?? 1)));
      return problem(res, row.status === 'failed' ? 503 : 409, 'request is in progress');
    default:
      return problem(res, 409, 'the outcome of an earlier attempt is unknown');
  }
}

// RFC 9457; in place of whatever the response was going to be.
function problem(res, status, title, more = {}) {
  res.discardHeld?.();
  res.removeHeader('Content-Length');
  res.status(status).type('application/problem+json');
  return res.end(JSON.stringify({ status, title, ...more }));
}

// Runs the handlers behind this one, and sends what they answered once done()
// has stored it.
async function carryOut(request, client, req, res, next, done) {
  const held = hold(res);

  req.claim = { key: request.key, token: request.token, attempt: request.attempt,
    client, atEnd: (write) => request.writes.push(write) };
  next();
  const body = await held.ended;
  try {
    await done({ body, code: res.statusCode, headers: headersOf(res) });
  } catch (error) {
    held.forget();
    throw error;
  }
  held.send(body);
}

async function record(client, { key, scope, token, writes }, outside, response) {
  if (response.code >= 500) {
    // Outside, nobody knows what was done: the lease will end.
    if (!outside) await client.query('ROLLBACK');
    return;
  }
  if (outside) await client.query('BEGIN');
  for (const write of writes) await write(client);
  await client.query(
    `SELECT idem_finish($1, response_code => $2, token => $3, scope => $4,
                        response_headers => $5, response_bytes => $6)`,
    [key, response.code, token, scope, JSON.stringify(response.headers), response.body]);
  await client.query('COMMIT');
}

function headersOf(res) {
  return Object.entries(res.getHeaders())
    .filter(([name]) => !NOT_STORED.has(name))
    .flatMap(([name, value]) => [value].flat().map((one) => [name, String(one)]));
}

// Keeps a response from being sent, however it is written.
function hold(res) {
  const { write, end, writeHead } = res;
  const chunks = [];
  const restore = () => Object.assign(res, { write, end, writeHead, discardHeld: undefined });
  const add = (chunk, encoding) => {
    if (chunk === undefined || chunk === null || typeof chunk === 'function') return;
    chunks.push(Buffer.from(chunk, typeof encoding === 'string' ? encoding : undefined));
  };
  const ended = new Promise((resolve) => {
    // Nothing was sent yet, so an error that comes late can still say so.
    res.discardHeld = () => { chunks.length = 0; };
    res.writeHead = (code, ...rest) => {
      res.statusCode = code;
      for (const [name, value] of Object.entries(rest.at(-1) ?? {})) {
        if (typeof rest.at(-1) === 'object') res.setHeader(name, value);
      }
      return res;
    };
    res.write = (chunk, ...rest) => {
      add(chunk, rest[0]);
      const callback = rest.at(-1);
      if (typeof callback === 'function') process.nextTick(callback);
      return true;
    };
    res.end = (chunk, ...rest) => {
      add(chunk, rest[0]);
      resolve(Buffer.concat(chunks));
      return res;
    };
  });

  return {
    ended,
    send(body) { restore(); res.end(body); },
    forget() {
      restore();
      for (const name of res.getHeaderNames()) res.removeHeader(name);
    },
  };
}

async function rollBack(client) {
  try {
    await client.query('ROLLBACK');
  } catch (error) {
    return error; // the pool throws the connection away
  }
}

module.exports = { idempotent, problem };
