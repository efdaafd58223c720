# A base backup with archived WAL, recovered to a point in time: what was
# finished by then is refused and replayed, what came later is new, and tokens
# go on growing past those that the lost part of history has granted.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(has_archiving => 1, allows_streaming => 1);
$node->start;
$node->safe_psql('postgres', q(
CREATE EXTENSION idempotency;
SELECT idem_configure('orders', ttl => '30 days');
SELECT idem_claim('before backup', '{"n": 1}', scope => 'orders');
SELECT idem_finish('before backup', '"first"', scope => 'orders',
	token => (SELECT token FROM transaction_log WHERE request_id = 'before backup'));
));
$node->backup('base');
$node->safe_psql('postgres', q(
BEGIN;
SELECT idem_claim('before point', '{"n": 2}', scope => 'orders');
SELECT idem_finish('before point', '"second"', 201, scope => 'orders');
COMMIT;
SELECT idem_claim('held', lease => '1 hour');
));
my $held = $node->safe_psql('postgres',
	q(SELECT token FROM transaction_log WHERE request_id = 'held'));
my $point = $node->safe_psql('postgres', 'SELECT pg_current_wal_lsn()');
$node->safe_psql('postgres', q(
BEGIN; SELECT idem_claim('after point'); SELECT idem_finish('after point', '"third"'); COMMIT;
));
my $lost = $node->safe_psql('postgres',
	q(SELECT token FROM transaction_log WHERE request_id = 'after point'));
$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
$node->stop;

my $recovered = PostgreSQL::Test::Cluster->new('recovered');
$recovered->init_from_backup($node, 'base', has_restoring => 1, standby => 0);
$recovered->append_conf('postgresql.conf', qq(
recovery_target_lsn = '$point'
recovery_target_action = promote
));
$recovered->start;
$recovered->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()')
  or die 'recovery did not end';

is( $recovered->safe_psql('postgres',
		q(SELECT outcome, response_body FROM idem_claim('before backup', '{"n": 1}', scope => 'orders'))),
	'replay|"first"',
	'what the backup holds is replayed');
is( $recovered->safe_psql('postgres',
		q(SELECT outcome, response_code, response_body FROM idem_claim('before point', '{"n": 2}', scope => 'orders'))),
	'replay|201|"second"',
	'and what the archive holds');
is( $recovered->safe_psql('postgres',
		q(SELECT outcome FROM idem_claim('before point', '{"n": 3}', scope => 'orders'))),
	'mismatch',
	'another request under that key is refused');
is( $recovered->safe_psql('postgres', q(SELECT outcome FROM idem_claim('held'))),
	'in_progress',
	'a claim is held as before');
is( $recovered->safe_psql('postgres', "SELECT idem_finish('held', token => $held)"),
	't',
	'by its holder');
my ($outcome, $token) = split /\|/, $recovered->safe_psql('postgres',
	q(SELECT outcome, token FROM idem_claim('after point')));
is($outcome, 'claimed', 'what came after that point is new');
cmp_ok($token, '>', $lost, 'and its token is greater than the one that is lost');
isnt(
	($recovered->psql('postgres', "SELECT idem_finish('after point', token => $lost)"))[0],
	0,
	'so that the lost holder cannot finish');
is( $recovered->safe_psql('postgres', q(SELECT ttl FROM idempotency_scope WHERE scope = 'orders')),
	'30 days',
	'policies are there');
$recovered->stop;
done_testing();
