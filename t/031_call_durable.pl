# With synchronous_commit = off, an external call must be there after a crash
# right after the COMMIT that recorded it: it may have been sent.  The same for
# its answer.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
# Nobody but the committer writes the WAL out in the meantime.
$node->append_conf(
	'postgresql.conf', q(
synchronous_commit = off
wal_writer_delay = 10s
checkpoint_timeout = 1h
autovacuum = off
));
$node->start;
$node->safe_psql(
	'postgres', q(
CREATE EXTENSION idempotency;
CREATE TABLE lost (key text);
SELECT idem_provider('bank', false, true, '1 hour'), idem_provider('mute', false, false);
));

my $session = PsqlSession->new($node->connstr('postgres'));

sub crash
{
	$node->stop('immediate');
	$session->close;
	$node->start;
	$session = PsqlSession->new($node->connstr('postgres'));
	return;
}

sub calls_of
{
	my ($key) = @_;
	return join(
		', ',
		map { join(' ', map { $_ // '-' } @$_) } $session->rows(
			qq(SELECT c.call_id, c.status, c.attempt, c.request_body, c.response_body, l.status
			   FROM idempotency_call c JOIN transaction_log l USING (scope, request_id, life)
			   WHERE request_id = '$key' ORDER BY c.operation)));
}

# A claim of its own, the call, and a crash.
for my $i (1 .. 5)
{
	my $key = "separate $i";
	my $token = $session->value("SELECT token FROM idem_claim('$key', '$i')");
	my $call = $session->value(
		"SELECT call_id FROM idem_call('$key', 'bank', token => $token)");
	crash();
	is(calls_of($key), "$call sent 1 $i - processing", "$key: the call is there");
	is( $session->value(
			"SELECT action FROM idem_call('$key', 'bank', token => $token)"),
		'wait',
		"$key: and is not sent again");
}

# Claim and call in one transaction.
for my $i (1 .. 3)
{
	my $key = "together $i";
	$session->rows('BEGIN');
	$session->rows("SELECT FROM idem_claim('$key', '$i')");
	my $call = $session->value("SELECT call_id FROM idem_call('$key', 'bank')");
	$session->rows('COMMIT');
	crash();
	is(calls_of($key), "$call sent 1 $i - processing", "$key: the call is there");
}

# A call of a request that this very transaction ends.
for my $i (1 .. 3)
{
	my $key = "ended $i";
	$session->rows('BEGIN');
	$session->rows("SELECT FROM idem_claim('$key', '$i')");
	my $call = $session->value("SELECT call_id FROM idem_call('$key', 'bank')");
	$session->rows("SELECT idem_fail('$key', retry_after => '0')");
	$session->rows('COMMIT');
	crash();
	is(calls_of($key), "$call sent 1 $i - failed", "$key: the call is there");
}

# The answer, and what follows from it.
for my $case (
	[ 'bank', 'succeeded', '"receipt"', 'succeeded', 'processing' ],
	[ 'bank', 'failed', 'null', 'failed', 'processing' ],
	[ 'bank', 'not_sent', '1', 'not_sent', 'processing' ],
	[ 'mute', 'ambiguous', '2', 'review', 'unknown' ])
{
	my ($provider, $word, $body, $status, $request) = @$case;
	my $key = "answer $word";
	my $token = $session->value("SELECT token FROM idem_claim('$key', '0')");
	my $call = $session->value(
		"SELECT call_id FROM idem_call('$key', '$provider', token => $token)");
	$session->rows("SELECT idem_call_finish('$call', '$word', '$body')");
	crash();
	is(calls_of($key), "$call $status 1 0 $body $request",
		"$key: it is there");
}

# A transaction of no concern to us may be lost: the crash is a real one.
my $lost = 0;
for my $i (1 .. 3)
{
	$session->rows("INSERT INTO lost VALUES ('$i')");
	crash();
	$lost++ if $session->value("SELECT count(*) FROM lost WHERE key = '$i'") == 0;
}
cmp_ok($lost, '>', 0, 'what need not be durable is lost');

$session->close;
$node->stop;
done_testing();
