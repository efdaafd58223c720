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
 * did by req.claim.client.  What becomes of it:
 *
 *   below 500     the result: stored, and replayed from now on
 *   500 or above  no result: rolled back, and the next request runs again; so
 *                 an error that the handler throws, which Express answers
 *
 * With `outside: true` neither a transaction nor a connection is in use while
 * the handler runs.  It may call services outside, and leaves its own writes to
 * req.claim.atEnd(async (client) => ...), which runs in the transaction that
 * records the response:
 *
 *   below 500                 the result
 *   503 with Retry-After (s)  nothing was done: the next request runs again
 *                             after that time
 *   any other                 nobody knows (500 and 504 are no results): when the
 *                             lease is over, the next request runs again, or is
 *                             told that the outcome is unknown, as the scope was
 *                             configured (on_lease_expiry)
 *
 * GET, HEAD, OPTIONS and TRACE pass through untouched.
 */

const { createHash } = require('node:crypto');

/** @typedef {import('express').Request} Request */
/** @typedef {import('express').Response} Response */
/** @typedef {import('pg').Pool} Pool */
/** @typedef {import('pg').PoolClient} PoolClient */

/**
 * What the handler finds in req.claim.
 * @typedef {object} Claim
 * @property {string} key
 * @property {string} token  proves the claim; a bigint, so a string
 * @property {number} attempt  1 for the first
 * @property {PoolClient} [client]  in the transaction; not with `outside`
 * @property {(write: (client: PoolClient) => Promise<unknown>) => void} [atEnd]
 *   with `outside` only
 * @property {(lease?: string) => Promise<void>} [extend]  heartbeat, with `outside`
 *   only; rejects with the code ID001 if somebody has taken over
 */

/**
 * @typedef {object} Options
 * @property {string | ((req: Request) => string)} [scope]  put the tenant in
 * @property {boolean} [outside]
 * @property {string} [ttl]  as PostgreSQL writes intervals: '2 days'
 * @property {string} [lease]
 * @property {string} [wait]
 */

const SAFE = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE']);

// They belong to one response, or to one connection, and not to a replay.
const NOT_STORED = new Set(['connection', 'content-length', 'date', 'keep-alive',
  'proxy-authenticate', 'proxy-connection', 'set-cookie', 'te', 'trailer',
  'transfer-encoding', 'upgrade', 'x-powered-by']);

// How jsonb refuses what a parser of JSON let through: text with a NUL, say.
const NOT_JSONB = new Set(['22003', '22P02', '22P05', '54001']);

/**
 * @param {Pool} pool
 * @param {Options} [options]
 * @returns {import('express').RequestHandler}
 */
function idempotent(pool, { scope = '', outside = false, ...options } = {}) {
  const run = outside ? inTwoTransactions : inOneTransaction;

  return (req, res, next) => {
    if (SAFE.has(req.method)) return next();
    const key = keyOf(req.get('Idempotency-Key'));
    if (key === undefined) {
      return problem(res, 400, 'Idempotency-Key is missing',
        { detail: 'This wants the header once, with a string of 1 to 255 characters.' });
    }
    const request = { key, scope: typeof scope === 'function' ? scope(req) : scope, ...options };
    run(pool, request, req, res, next).catch(next);
  };
}

// The string of RFC 8941 that the draft wants, or the bare word that many send.
function keyOf(header = '') {
  const quoted = /^"((?:[ !#-[\]-~]|\\["\\])*)" *(?:;[^,]*)?$/.exec(header);
  const key = quoted ? quoted[1].replace(/\\(.)/g, '$1')
    : /^[!#-+\--:<-[\]-~]+$/.test(header) ? header : '';

  return key.length >= 1 && key.length <= 255 ? key : undefined;
}

class NoResult extends Error {}

async function inOneTransaction(pool, request, req, res, next) {
  let row;
  let held;

  try {
    await transaction(pool, async (client) => {
      row = await claim(client, request, req);
      if (row.outcome !== 'claimed') return;
      held = handOn(res, req, next, { key: request.key, ...row, client });
      const response = await held.ended;
      if (response.code >= 500) throw new NoResult();
      await finish(client, request, row.token, response);
    });
  } catch (error) {
    if (!(error instanceof NoResult)) {
      held?.forget();
      throw error;
    }
  }
  return held ? held.send() : answer(res, row);
}

async function inTwoTransactions(pool, request, req, res, next) {
  const row = await transaction(pool, (client) => claim(client, request, req));
  if (row.outcome !== 'claimed') return answer(res, row);

  const writes = [];
  const held = handOn(res, req, next, {
    key: request.key,
    ...row,
    atEnd: (write) => writes.push(write),
    extend: (lease) => transaction(pool, (client) => extend(client, request, row.token, lease)),
  });
  const response = await held.ended;
  try {
    if (response.code < 500) {
      await transaction(pool, async (client) => {
        for (const write of writes) await write(client);
        await finish(client, request, row.token, response);
      });
    } else if (response.code === 503 && retryAfterOf(response) > 0) {
      await transaction(pool, (client) => fail(client, request, row.token, response));
    }
  } catch (error) {
    held.forget();
    throw error;
  }
  return held.send();
}

// Runs the handlers behind this one, with their response held back.
function handOn(res, req, next, { key, token, attempt, client, atEnd, extend }) {
  const held = hold(res);

  /** @type {Claim} */
  req.claim = { key, token, attempt, client, atEnd, extend };
  next();
  return held;
}

async function transaction(pool, work) {
  const client = await pool.connect();
  let broken;
  // A connection lost between two queries is an event, and is seen by the next.
  const lost = (error) => { broken = error; };

  client.on('error', lost);
  try {
    await client.query('BEGIN');
    const result = await work(client);
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch(lost);
    throw error;
  } finally {
    client.off('error', lost);
    client.release(broken); // the pool throws a broken one away
  }
}

// Tokens are bigint, which the driver gives as a string: leave them so.
async function claim(client, { key, scope, ttl, lease, wait }, req) {
  const [body, fingerprint] = whatIsAsked(req);

  try {
    const { rows } = await client.query(
      `SELECT outcome, token, attempt, status, response_code, response_headers,
              response_body::text, response_bytes, differs,
              ceil(extract(epoch FROM retry_after))::int AS retry_seconds
         FROM idem_claim($1, $2, scope => $3, fingerprint => $4,
                         ttl => $5, lease => $6, wait => $7)`,
      [key, body, scope, fingerprint, ttl, lease, wait]);
    return rows[0];
  } catch (error) {
    if (NOT_JSONB.has(error.code)) error.status = 400;
    throw error;
  }
}

// Method, target and body make the request.  JSON is handed on as text where
// the application kept it (rawBody), so that no number goes through a double.
function whatIsAsked({ method, originalUrl: target, body, rawBody, headers }) {
  if (body === undefined && (headers['content-length'] > 0 || headers['transfer-encoding'])) {
    throw new Error('no parser of the body comes before idempotent()');
  }
  if (Buffer.isBuffer(body)) {
    return [null, createHash('sha256').update(`${method} ${target}\n`).update(body).digest()];
  }
  const text = rawBody?.toString() ?? JSON.stringify(body) ?? 'null';
  return [`{"method": ${JSON.stringify(method)}, "target": ${JSON.stringify(target)}, `
    + `"body": ${text}}`, null];
}

function answer(res, row) {
  switch (row.outcome) {
    case 'replay':
      res.status(row.response_code ?? 200);
      for (const [name, value] of row.response_headers ?? []) res.appendHeader(name, value);
      if (!row.response_bytes && !res.hasHeader('Content-Type')) res.type('json');
      res.set('Idempotent-Replayed', 'true');
      return res.end(row.response_bytes ?? row.response_body ?? '');
    case 'mismatch':
      return problem(res, 422, 'Idempotency-Key is already used',
        { differs: row.differs ?? [] });
    case 'in_progress':
      res.set('Retry-After', String(Math.max(1, row.retry_seconds ?? 1)));
      return problem(res, row.status === 'failed' ? 503 : 409,
        'A request is outstanding for this Idempotency-Key');
    default:
      return problem(res, 409, 'The outcome of an earlier attempt is unknown');
  }
}

/**
 * RFC 9457.
 * @param {Response} res
 * @param {number} status
 * @param {string} title
 * @param {object} [more]  further members, such as `detail`
 */
function problem(res, status, title, more = {}) {
  res.status(status).type('application/problem+json');
  return res.end(JSON.stringify({ status, title, ...more }));
}

function finish(client, { key, scope }, token, { code, headers, body }) {
  const stored = headers.filter(([name]) => !NOT_STORED.has(name.toLowerCase()));

  return client.query(
    `SELECT idem_finish($1, response_code => $2, token => $3, scope => $4,
                        response_headers => $5, response_bytes => $6)`,
    [key, code, token, scope, JSON.stringify(stored), body]);
}

function retryAfterOf({ headers }) {
  return Number(headers.find(([name]) => name.toLowerCase() === 'retry-after')?.[1]);
}

function fail(client, { key, scope }, token, response) {
  return client.query(
    `SELECT idem_fail($1, response_code => $2, token => $3, scope => $4,
                      retry_after => make_interval(secs => $5))`,
    [key, response.code, token, scope, retryAfterOf(response)]);
}

function extend(client, { key, scope }, token, lease) {
  return client.query('SELECT idem_extend($1, lease => $2, token => $3, scope => $4)',
    [key, lease, token, scope]);
}

// Keeps a response from being sent, however it is written.
function hold(res) {
  const own = ['write', 'end', 'writeHead', 'flushHeaders'].map((name) => [name, res[name]]);
  const restore = () => {
    Object.assign(res, Object.fromEntries(own));
    for (const name of res.getHeaderNames()) res.removeHeader(name);
  };
  let chunks = [];
  let code;
  let response;
  const add = (chunk, encoding) => {
    if (response) return;
    // Another status than that of the first write: nothing is sent yet, so an
    // error that comes in the middle can still be told, and nothing else is.
    if (res.statusCode !== code) chunks = [];
    code = res.statusCode;
    if (chunk === undefined || chunk === null || typeof chunk === 'function') return;
    chunks.push(Buffer.from(chunk, typeof encoding === 'string' ? encoding : undefined));
  };
  const ended = new Promise((resolve) => {
    res.writeHead = (status, ...rest) => {
      res.statusCode = status;
      setHeaders(res, rest.at(-1));
      return res;
    };
    res.flushHeaders = () => {};
    res.write = (chunk, ...rest) => {
      add(chunk, rest[0]);
      const callback = rest.at(-1);
      if (typeof callback === 'function') process.nextTick(callback);
      return true;
    };
    res.end = (...rest) => {
      add(...rest);
      const callback = rest.at(-1);
      if (typeof callback === 'function') res.once('finish', callback);
      response ??= { code, headers: headersOf(res), body: Buffer.concat(chunks) };
      resolve(response);
      return res;
    };
  });

  return {
    ended,
    // As it was when it ended, whatever has been done to it since.
    send() {
      restore();
      res.statusCode = response.code;
      for (const [name, value] of response.headers) res.appendHeader(name, value);
      res.end(response.body);
    },
    // For somebody else to answer.
    forget: restore,
  };
}

// As writeHead takes them: an object, or names and values in turn.
function setHeaders(res, headers) {
  if (Array.isArray(headers)) {
    for (let i = 0; i < headers.length; i += 2) res.appendHeader(headers[i], headers[i + 1]);
  } else if (typeof headers === 'object') {
    for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
  }
}

// In order, and each of those that are repeated.
function headersOf(res) {
  return res.getRawHeaderNames()
    .flatMap((name) => [res.getHeader(name)].flat().map((one) => [name, String(one)]));
}

module.exports = { idempotent, problem };
