# Keys that expire while they are claimed, replayed and purged from all sides:
# one effect per life, and no life begins before the last one is over.
#
# See t/README for the conventions of these tests.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'idempotency'
idempotency.purge_interval = 1ms
idempotency.purge_delay = 0
idempotency.purge_batch_size = 3
});
$node->start;

# use_key does the work of a caller: where he gets the claim, he records an
# effect in the same transaction; where he gets a replay, what he was given.
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION idempotency;
	SELECT idem_configure('h', history => true);
	CREATE TABLE effect (key text, token bigint, attempt int, began timestamptz, ends timestamptz);
	CREATE TABLE replayed (key text, token bigint, at timestamptz);
	CREATE FUNCTION use_key(key text, pause double precision) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		c record;
	BEGIN
		SELECT * INTO STRICT c FROM idem_claim(key, scope => 'h', ttl => '3ms', lease => '1ms');
		IF c.outcome = 'claimed' THEN
			PERFORM pg_sleep(pause);
			PERFORM idem_finish(key, to_jsonb(c.token), scope => 'h');
			INSERT INTO effect SELECT key, c.token, c.attempt, c.created_at, l.expires_at
			  FROM transaction_log l WHERE l.scope = 'h' AND l.request_id = key;
		ELSIF c.outcome = 'replay' THEN
			INSERT INTO replayed VALUES (key, (c.response_body #>> '{}')::bigint, clock_timestamp());
		ELSIF c.outcome <> 'in_progress' THEN
			RAISE 'unexpected outcome %', c.outcome;
		END IF;
	END $$});

$node->pgbench(
	'--no-vacuum --client=8 --jobs=2 --transactions=1500',
	0,
	[qr{actually processed: 12000/12000}],
	[qr{^$}],
	'clients and purges at the same keys',
	{
		'024_use@30' => q{
			\set key random(1, 6)
			SELECT use_key(:key::text, random() * 0.004);},
		'024_abort@3' => q{
			\set key random(1, 6)
			BEGIN;
			SELECT use_key(:key::text, 0);
			ROLLBACK;},
		'024_batch@3' => 'SELECT idem_purge(2);',
		'024_all@1' => 'CALL idem_purge_all();',
	});

my $lives = $node->safe_psql('postgres', 'SELECT count(*) FROM effect');
cmp_ok($lives, '>', 100, "keys had many lives ($lives)");
my $replays = $node->safe_psql('postgres', 'SELECT count(*) FROM replayed');
cmp_ok($replays, '>', 100, "and many replays ($replays)");
is( $node->safe_psql(
		'postgres', q{
		SELECT count(*) FROM (
			SELECT ends, lead(began) OVER (PARTITION BY key ORDER BY token) AS next
			  FROM effect) e
		 WHERE next < ends}),
	'0',
	'no life of a key begins before the last one is over');
is( $node->safe_psql(
		'postgres', q{
		SELECT count(*) FROM (
			SELECT token, lag(token) OVER (PARTITION BY key ORDER BY began) AS last
			  FROM effect) e
		 WHERE token <= last}),
	'0',
	'tokens grow from life to life');
is( $node->safe_psql(
		'postgres', q{SELECT count(*) FROM effect WHERE attempt <> 1}),
	'0',
	'every life began with its first attempt');
is( $node->safe_psql(
		'postgres', q{
		SELECT count(*) FROM replayed r
		 WHERE NOT EXISTS (SELECT FROM effect e WHERE (e.key, e.token) = (r.key, r.token) AND r.at >= e.began)}
	),
	'0',
	'every replay gave back what was committed');

ok( $node->poll_query_until(
		'postgres',
		q{SELECT count(*) = 0 FROM transaction_log}),
	'in the end all of them are purged');
is($node->safe_psql('postgres', 'SELECT count(*) FROM idempotency_history'),
	'0', 'with their history');

my $log = slurp_file($node->logfile);
unlike($log, qr/deadlock detected|ERROR/, 'no deadlock and no error');

$node->stop;
done_testing();
