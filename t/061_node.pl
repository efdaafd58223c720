# The shop in JavaScript, over HTTP.  Wants node (18 or later), the driver and
# Express.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Language;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WebShop;

my $dir = "$FindBin::RealBin/../examples/clients/node";
plan skip_all => 'no node with pg and express (nodejs, node-pg, node-express)'
  unless Language::node_modules();

foreach my $file ("$dir/idempotent.js", "$dir/shop.js")
{
	is(Language::told('node', '--check', $file), '', "node has nothing to say of $file");
}

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
WebShop::try($node, [ 'node', "$dir/shop.js" ]);
unlike(slurp_file($node->logfile . '.shop'),
	qr/MaxListeners|Unhandled/, 'and nothing while it runs');

# Handlers as applications have them: [first answer, its retry].
$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
$ENV{PGDATABASE} = 'postgres';
$ENV{PGUSER} = 'shop_app';
$ENV{IDEMPOTENT} = "$dir/idempotent.js";
my $odd = PostgreSQL::Test::Utils::tempdir() . '/odd.js';
append_to_file($odd, <<'NODE');
const { Readable } = require('node:stream');
const { pipeline } = require('node:stream/promises');
const express = require('express');
const { Pool } = require('pg');
const { idempotent } = require(process.env.IDEMPOTENT);

const pool = new Pool();
const app = express();
const caught = (handler) => (req, res, next) => handler(req, res, next).catch(next);
const handlers = {
  nothing: async (req, res) => { res.status(204).end(); },
  text: async (req, res) => {
    res.setHeader('content-type', 'text/plain');
    res.end('caf\u00e9', 'latin1');
  },
  array: async (req, res) => {
    res.writeHead(200, 'Fine', ['X-One', '1', 'X-Two', '2', 'X-Two', '3']);
    res.end();
  },
  callbacks: async (req, res) => {
    await new Promise((resolve) => { res.write('a', 'utf8', resolve); });
    res.end('b', () => {});
  },
  pipeline: async (req, res) => {
    res.type('text');
    await pipeline(Readable.from(['x'.repeat(100000), 'y']), res);
  },
  'throws late': async (req, res) => {
    res.status(201).set('X-One', '1').json({ id: 1 });
    throw new Error('too late');
  },
  'throws in the middle': async (req, res) => {
    res.type('text').write('partly');
    throw new Error('in the middle');
  },
  'swallows an error': async (req, res) => {
    await req.claim.client.query('SELECT 1/0').catch(() => {});
    res.json({ done: true });
  },
};

app.post('/outside', idempotent(pool, { scope: 'odd', outside: true, lease: '1 minute' }),
  caught(async (req, res) => {
    await req.claim.extend('1 hour');
    const { rows: [{ left }] } = await pool.query(
      `SELECT retry_after > '50 minutes' AS left FROM idem_claim($1, scope => 'odd')`,
      [req.claim.key]);
    res.json(left);
  }));
app.use(idempotent(pool, { scope: 'odd' }));
for (const [name, handler] of Object.entries(handlers)) {
  app.post(`/${name.replaceAll(' ', '-')}`, caught(handler));
}
app.set('env', 'test'); // Express does not log the errors
const server = app.listen(0, '127.0.0.1', async () => {
  const { port } = server.address();
  for (const name of Object.keys(handlers)) {
    for (const query of ['', '', '?x=1']) {
      const path = name.replaceAll(' ', '-');
      const response = await fetch(`http://127.0.0.1:${port}/${path}${query}`,
        { method: 'POST', headers: { 'Idempotency-Key': `"${path}"` } });
      const body = Buffer.from(await response.arrayBuffer()).toString('latin1');
      console.log(`${name}${query}:`, response.status, response.headers.get('content-type')?.replace(/;.*/, ''),
        response.headers.get('x-one'), response.headers.get('x-two'),
        response.headers.get('idempotent-replayed'),
        response.status < 500 && query === '' ? `${encodeURI(body.slice(0, 20))} ${body.length}` : '');
    }
  }
  const ask = async (path, body) => {
    const response = await fetch(`http://127.0.0.1:${port}/${path}`,
      { method: 'POST', headers: { 'Idempotency-Key': `"${path}-2"` }, body });
    console.log(`${path}:`, response.status, response.status < 500 ? await response.text() : '');
  };
  await ask('outside');
  await ask('outside');
  await ask('nothing', 'a body that nobody reads');
  await pool.end();
  server.close();
  server.closeAllConnections?.();
});
NODE
is((Language::run([ 'node', $odd ]))[1] =~ s/ +$//gmr, <<'PRINTED', 'odd handlers');
nothing: 204 undefined null null null  0
nothing: 204 undefined null null true  0
nothing?x=1: 422 application/problem+json null null null
text: 200 text/plain null null null caf%C3%A9 4
text: 200 text/plain null null true caf%C3%A9 4
text?x=1: 422 application/problem+json null null null
array: 200 undefined 1 2, 3 null  0
array: 200 undefined 1 2, 3 true  0
array?x=1: 422 application/problem+json null null null
callbacks: 200 undefined null null null ab 2
callbacks: 200 undefined null null true ab 2
callbacks?x=1: 422 application/problem+json null null null
pipeline: 200 text/plain null null null xxxxxxxxxxxxxxxxxxxx 100001
pipeline: 200 text/plain null null true xxxxxxxxxxxxxxxxxxxx 100001
pipeline?x=1: 422 application/problem+json null null null
throws late: 201 application/json 1 null null %7B%22id%22:1%7D 8
throws late: 201 application/json 1 null true %7B%22id%22:1%7D 8
throws late?x=1: 422 application/problem+json null null null
throws in the middle: 500 text/html null null null
throws in the middle: 500 text/html null null null
throws in the middle?x=1: 500 text/html null null null
swallows an error: 500 text/html null null null
swallows an error: 500 text/html null null null
swallows an error?x=1: 500 text/html null null null
outside: 200 true
outside: 200 true
nothing: 500
PRINTED
$node->stop;
done_testing();
