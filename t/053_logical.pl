# Logical replication of the log: a subscriber knows what is finished, and when
# it takes over it refuses duplicates and grants greater tokens.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use FindBin;
use lib $FindBin::RealBin;

use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;

my $TABLES = 'transaction_log, idempotency_checkpoint, idempotency_inbox, idempotency_scope';

my $publisher = PostgreSQL::Test::Cluster->new('publisher');
$publisher->init(allows_streaming => 'logical');
$publisher->start;
my $subscriber = PostgreSQL::Test::Cluster->new('subscriber');
$subscriber->init(allows_streaming => 'logical');
$subscriber->start;

$_->safe_psql('postgres', 'CREATE EXTENSION idempotency') for $publisher, $subscriber;
$publisher->safe_psql('postgres', qq(
CREATE PUBLICATION requests FOR TABLE $TABLES;
BEGIN; SELECT idem_claim('copied', '{"n": 1}'); SELECT idem_finish('copied', '"copy"', 201); COMMIT;
));
my $connstr = $publisher->connstr . ' dbname=postgres';
$subscriber->safe_psql('postgres',
	"CREATE SUBSCRIPTION requests CONNECTION '$connstr' PUBLICATION requests");
$subscriber->wait_for_subscription_sync($publisher, 'requests');

# A session that has read the policies before they change.
my $session = PsqlSession->new($subscriber->connstr('postgres'));
my $ttl = q(SELECT ttl FROM transaction_log WHERE request_id = 'policy %d' AND scope = 'acme');
$session->rows("SELECT idem_claim('policy 1', scope => 'acme')");
is($session->value(sprintf($ttl, 1)), '24:00:00', 'the policy before');

$publisher->safe_psql('postgres', q(
BEGIN; SELECT idem_claim('streamed'); SELECT idem_finish('streamed', '"stream"'); COMMIT;
SELECT idem_claim('held', lease => '1 hour');
SELECT idem_checkpoint('held', 'one', '1', token => (SELECT token FROM transaction_log WHERE request_id = 'held'));
SELECT idem_claim('taken', lease => '1 us');
SELECT idem_claim('released');
SELECT idem_release('released', (SELECT token FROM transaction_log WHERE request_id = 'released'));
SELECT idem_once('message');
SELECT idem_configure('acme', ttl => '3 days');
));
my %token = split /[|\n]/, $publisher->safe_psql('postgres', 'SELECT request_id, token FROM transaction_log');
$publisher->wait_for_catchup('requests');

$session->rows("SELECT idem_claim('policy 2', scope => 'acme')");
is($session->value(sprintf($ttl, 2)), '3 days', 'a session that is open learns of a new one');
$session->rows("DELETE FROM transaction_log WHERE scope = 'acme'");
$session->close;

is( $subscriber->safe_psql('postgres', 'SELECT * FROM transaction_log ORDER BY request_id'),
	$publisher->safe_psql('postgres', 'SELECT * FROM transaction_log ORDER BY request_id'),
	'the logs are the same');
is( $subscriber->safe_psql('postgres',
		q(SELECT status, response_code, response_body FROM idem_lookup('copied'))),
	'completed|201|"copy"',
	'the subscriber shows what is finished');

# The publisher is lost; the subscriber takes over.
$publisher->stop('immediate');
$subscriber->safe_psql('postgres', q(
ALTER SUBSCRIPTION requests DISABLE;
ALTER SUBSCRIPTION requests SET (slot_name = NONE);
DROP SUBSCRIPTION requests;
));
is( $subscriber->safe_psql('postgres', q(SELECT outcome, response_body FROM idem_claim('copied', '{"n": 1}'))),
	'replay|"copy"',
	'a duplicate is answered from the first copy');
is( $subscriber->safe_psql('postgres', q(SELECT outcome, response_body FROM idem_claim('streamed'))),
	'replay|"stream"',
	'and from the stream');
is( $subscriber->safe_psql('postgres', q(SELECT outcome FROM idem_claim('copied', '{"n": 2}'))),
	'mismatch',
	'another request is refused');
is($subscriber->safe_psql('postgres', q(SELECT outcome FROM idem_claim('held'))),
	'in_progress', 'a lease is respected');
is( $subscriber->safe_psql('postgres',
		"SELECT idem_checkpoint('held', 'one', '2', token => $token{held}), idem_finish('held', token => $token{held})"),
	'f|t',
	'the holder goes on where he was');
my ($outcome, $token, $attempt) = split /\|/,
  $subscriber->safe_psql('postgres', q(SELECT outcome, token, attempt FROM idem_claim('taken')));
is("$outcome $attempt", 'claimed 2', 'a lapsed claim is taken over');
cmp_ok($token, '>', $token{taken}, 'with a greater token');
is($subscriber->safe_psql('postgres', q(SELECT idem_once('message'))),
	'f', 'a message is known');
is( $subscriber->safe_psql('postgres', q(BEGIN; SELECT 1 FROM idem_claim('x', scope => 'acme/a'); SELECT ttl FROM transaction_log WHERE request_id = 'x'; COMMIT)),
	"1\n3 days",
	'policies hold');
is( $subscriber->safe_psql('postgres', q(SELECT outcome FROM idem_claim('released'))),
	'claimed',
	'a released key is free');
$subscriber->stop;
done_testing();
