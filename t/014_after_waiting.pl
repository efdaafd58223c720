# Whoever had to wait for a row must not go by the time before the wait: a lease
# and a ttl begin when the row is written.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('waiting');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');

my $holder = PsqlSession->new($node->connstr('postgres'));
my $other = PsqlSession->new($node->connstr('postgres'));
my $holder_pid = $holder->value('SELECT pg_backend_pid()');

# Runs a statement of the holder that has to wait for what the other one does:
# its answer, and the time at which it was still waiting.
sub wait_out
{
	my ($others_sql, $sql, $verb) = @_;
	my $time;

	$other->rows('BEGIN');
	$other->rows($others_sql);
	$holder->start($sql);
	$node->poll_query_until('postgres',
		"SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $holder_pid"
	) or die 'the holder does not wait';
	$time = $other->value('SELECT clock_timestamp()');
	$other->rows($verb);
	my ($sqlstate, $row) = $holder->answer;
	is($sqlstate, '00000', "$sql after $verb");
	return ($row->[0], $time);
}

sub claim
{
	my ($key, $lease) = @_;
	return $holder->value(
		"SELECT token FROM idem_claim('$key', lease => '$lease', ttl => '1 hour')"
	);
}

my $n = 0;
for my $isolation ('read committed', 'repeatable read', 'serializable')
{
	$holder->rows("SET default_transaction_isolation = '$isolation'");
	for my $strength (
		'FOR UPDATE',
		'FOR NO KEY UPDATE',
		'FOR SHARE',
		'takeover')
	{
		my $lease = $strength eq 'takeover' ? '1 us' : '1 min';
		my $verb = $strength eq 'takeover' ? 'ROLLBACK' : 'COMMIT';
		my $name = "$isolation, $strength";
		my $key = 'k' . ++$n;
		my $sql =
		  $strength eq 'takeover'
		  ? "SELECT idem_claim('$key')"
		  : "SELECT 1 FROM transaction_log WHERE request_id = '$key' $strength";
		my $token = claim($key, $lease);
		my ($answer, $time);

		($answer, $time) = wait_out($sql,
			"SELECT idem_extend('$key', '2 min', token => $token)", $verb);
		is($node->safe_psql('postgres',
				"SELECT '$answer'::timestamptz >= '$time'::timestamptz + interval '2 min'"),
			't',
			"$name: the lease begins after the wait");

		# For a takeover the lease must be over again.
		$key = 'k' . ++$n;
		$sql =~ s/'k\d+'/'$key'/;
		$token = claim($key, $lease);
		($answer, $time) = wait_out($sql,
			"SELECT idem_finish('$key', '1', token => $token)", $verb);
		is($answer, 't', "$name: finished");
		is( $node->safe_psql('postgres',
				"SELECT completed_at >= '$time' AND expires_at >= '$time'::timestamptz + interval '1 hour' FROM idem_lookup('$key')"
			),
			't',
			"$name: the ttl begins after the wait");

		$key = 'k' . ++$n;
		$sql =~ s/'k\d+'/'$key'/;
		$token = claim($key, $lease);
		($answer, $time) = wait_out($sql,
			"SELECT idem_fail('$key', '1', token => $token, retry_after => '3 min')",
			$verb);
		is( $node->safe_psql('postgres',
				"SELECT retry_after > '$time'::timestamptz + interval '3 min' - clock_timestamp() FROM idem_lookup('$key')"
			),
			't',
			"$name: the backoff begins after the wait");

		$key = 'k' . ++$n;
		$sql =~ s/'k\d+'/'$key'/;
		claim($key, $lease);
		($answer, $time) = wait_out($sql,
			"SELECT idem_resolve('$key', 'completed', force => true)", $verb);
		is( $node->safe_psql('postgres',
				"SELECT expires_at >= '$time'::timestamptz + interval '1 hour' FROM idem_lookup('$key')"
			),
			't',
			"$name: so does the ttl of a verdict");
	}
}

# A lock that is in nobody's way is not waited for, and one's own neither.
$holder->rows('RESET default_transaction_isolation');
my $token = claim('shared', '1 min');
$other->rows('BEGIN');
$other->rows(
	"SELECT 1 FROM transaction_log WHERE request_id = 'shared' FOR KEY SHARE");
$holder->rows("SET lock_timeout = '1ms'");
is($holder->value("SELECT idem_finish('shared', '1', token => $token)"),
	't', 'KEY SHARE of another is passed');
$other->rows('ROLLBACK');
$token = claim('own', '1 min');
$holder->rows('BEGIN');
$holder->rows(
	"SELECT 1 FROM transaction_log WHERE request_id = 'own' FOR UPDATE");
is($holder->value("SELECT idem_finish('own', '1', token => $token)"),
	't', 'one\'s own lock is passed');
$holder->rows('COMMIT');

$holder->close;
$other->close;
$node->stop;
done_testing();
