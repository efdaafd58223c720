# With synchronous_commit = off, what a claim leaves behind for later, and what
# ends or changes the claim of an earlier transaction, must survive a crash
# right after its COMMIT; a request claimed and finished in one transaction
# keeps the caller's choice.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('crash');
$node->init;
# Nobody but the committer writes the WAL out in the meantime.
$node->append_conf(
	'postgresql.conf', q(
synchronous_commit = off
wal_writer_delay = 10s
checkpoint_timeout = 1h
autovacuum = off
max_prepared_transactions = 10
));
$node->start;
$node->safe_psql('postgres',
	'CREATE EXTENSION idempotency; CREATE TABLE effect (request_id text)');

my $session;

sub connect_again
{
	$session = PsqlSession->new($node->connstr('postgres'));
	return;
}

sub crash
{
	$node->stop('immediate');
	$session->close;
	$node->start;
	connect_again();
	return;
}

# Commits a transaction: was it flushed by the time that COMMIT returned?
# The position is read before the commit record is written, so everything that
# others may have flushed before says nothing.
sub commit_is_flushed
{
	my (@statements) = @_;
	my $position;

	$session->rows('BEGIN');
	$session->rows($_) for @statements;
	$position = $session->value('SELECT pg_current_wal_insert_lsn()');
	$session->rows('COMMIT');
	return $session->value(
		"SELECT pg_current_wal_flush_lsn() > '$position'") eq 't';
}

# A claim in a transaction of its own: its token.
sub claim
{
	my ($key, $more) = @_;
	my ($row) = $session->rows("SELECT outcome, token FROM idem_claim('$key'"
		  . ($more // '')
		  . ')');
	is($row->[0], 'claimed', "$key: claimed");
	return $row->[1];
}

# What became of a key; without times and tokens.
sub state_of
{
	my ($key) = @_;
	my ($row) = $session->rows(
		"SELECT status, attempt, response_body, error FROM idem_lookup('$key')"
	);
	return defined $row ? join(' ', map { $_ // '-' } @$row) : 'absent';
}

# Whatever happened to a key, its next claim has a greater token.
sub next_token_is_greater
{
	my ($key, $token) = @_;
	$session->rows("SET idempotency.test_clock = '2100-01-01'");
	cmp_ok(claim($key), '>', $token, "$key: the token of the next life grows");
	$session->rows('RESET idempotency.test_clock');
	return;
}

connect_again();

# ---- what must be there after a crash --------------------------------------

for my $case (
	{
		name => 'claim',
		does => sub { claim($_[0], ", lease => '1 hour'") },
		state => 'processing 1 - -'
	},
	{
		name => 'takeover',
		first => "SELECT idem_fail('%s', '\"again\"', token => %s, retry_after => '0')",
		does => sub { claim($_[0], ", lease => '1 hour'") },
		state => 'processing 2 - "again"'
	},
	{
		name => 'extend',
		sql => "SELECT idem_extend('%s', '1000 hours', token => %s)",
		state => 'processing 1 - -'
	},
	{
		name => 'finish',
		sql => "SELECT idem_finish('%s', '{\"done\": 1}', token => %s)",
		state => 'completed 1 {"done": 1} -'
	},
	{
		name => 'fail',
		sql => "SELECT idem_fail('%s', '\"no\"', token => %s, retry_after => '1 hour')",
		state => 'failed 1 - "no"'
	},
	{
		name => 'fail finally',
		sql => "SELECT idem_fail('%s', '\"no\"', token => %s, final => true)",
		state => 'failed 1 - "no"'
	},
	{
		name => 'release',
		sql => "SELECT idem_release('%s', token => %s)",
		state => 'absent'
	},
	{
		name => 'resolve',
		sql => "SELECT idem_resolve('%s', 'completed', '\"said so\"', force => true)",
		state => 'completed 1 "said so" -'
	})
{
	my $name = $case->{name};
	my $token = 0;

	if (!$case->{does} || $case->{first})
	{
		$token = claim($name, ", lease => '1 hour'");
	}
	if ($case->{first})
	{
		$session->rows(sprintf $case->{first}, $name, $token);
	}
	if ($case->{does})
	{
		my $granted = $case->{does}->($name);
		cmp_ok($granted, '>', $token, "$name: the token grows");
		$token = $granted;
	}
	else
	{
		$session->rows(sprintf $case->{sql}, $name, $token);
	}
	crash();
	is(state_of($name), $case->{state}, "$name: is there after the crash");

	if ($name eq 'extend')
	{
		is( $session->value(
				"SELECT retry_after > '999 hours' FROM idem_lookup('extend')"),
			't',
			'extend: the longer lease is respected');
	}
	if ($case->{state} =~ /^processing/)
	{
		is($session->value("SELECT outcome FROM idem_claim('$name')"),
			'in_progress', "$name: nobody else gets the claim");
		is( $session->value(
				"SELECT idem_finish('$name', '1', token => $token)"),
			't',
			"$name: the holder is still the holder");
	}
	if ($name eq 'finish')
	{
		is( $session->value(
				"SELECT idem_finish('finish', '{\"done\": 1}', token => $token)"
			),
			'f',
			'finish: a bare retry is told that it is recorded');
	}
	next_token_is_greater($name, $token);
}

# ---- prepared transactions -------------------------------------------------

$session->rows('BEGIN');
my $prepared_token = claim('prepared claim', ", lease => '1 hour'");
$session->rows("PREPARE TRANSACTION 'claim'");
crash();
is( $session->value("SELECT outcome FROM idem_claim('prepared claim')"),
	'in_progress',
	'a prepared claim is in flight after a crash');
is( $session->value(
		"SELECT retry_after IS NULL FROM idem_claim('prepared claim')"),
	't',
	'and it is not known for how long');
$session->rows("COMMIT PREPARED 'claim'");
crash();
is(state_of('prepared claim'), 'processing 1 - -',
	'COMMIT PREPARED of a claim survives a crash');
$session->rows('BEGIN');
$session->rows(
	"SELECT idem_finish('prepared claim', '1', token => $prepared_token)");
$session->rows("PREPARE TRANSACTION 'finish'");
crash();
$session->rows("ROLLBACK PREPARED 'finish'");
is( $session->value(
		"SELECT idem_finish('prepared claim', '2', token => $prepared_token)"),
	't',
	'after ROLLBACK PREPARED of the finish the holder finishes again');
crash();
is(state_of('prepared claim'), 'completed 1 2 -', 'and that survives');
next_token_is_greater('prepared claim', $prepared_token);

$session->rows('BEGIN');
claim('prepared all');
$session->rows("SELECT idem_finish('prepared all', '3')");
$session->rows("PREPARE TRANSACTION 'all'");
$session->rows("COMMIT PREPARED 'all'");
crash();
is(state_of('prepared all'), 'completed 1 3 -',
	'claim and finish in a prepared transaction survive');

# ---- when a commit is flushed ----------------------------------------------

$session->rows("SELECT idem_claim('old', lease => '1 hour')");
for my $case (
	[ 'a claim', "SELECT idem_claim('f1')" ],
	[
		'two claims, one of them finished',
		"SELECT idem_claim('f2')",
		"SELECT idem_claim('f3')",
		"SELECT idem_finish('f3')"
	],
	[
		'a claim in a savepoint that was released',
		'SAVEPOINT a',
		'SAVEPOINT b',
		"SELECT idem_claim('f4')",
		'RELEASE b',
		'RELEASE a'
	],
	[
		'a claim whose finish was rolled back to a savepoint',
		"SELECT idem_claim('f5')",
		'SAVEPOINT a',
		"SELECT idem_finish('f5')",
		'ROLLBACK TO a'
	],
	[
		'a claim beside one that was rolled back to a savepoint',
		'SAVEPOINT a',
		"SELECT idem_claim('f6')",
		'ROLLBACK TO a',
		"SELECT idem_claim('f6')"
	],
	[
		'an extension in a savepoint',
		'SAVEPOINT a',
		"SELECT idem_extend('old', token => (SELECT token FROM transaction_log WHERE request_id = 'old'))",
		'RELEASE a'
	],
	[
		'a finish of an earlier claim beside a claim and finish',
		"SELECT idem_claim('f7')",
		"SELECT idem_finish('f7')",
		"SELECT idem_finish('old', token => (SELECT token FROM transaction_log WHERE request_id = 'old'))"
	])
{
	my ($name, @statements) = @$case;
	ok(commit_is_flushed(@statements), "flushed at once: $name");
}

# Somebody else may happen to flush at that moment, but not each time.
for my $case (
	[
		'claim and finish',
		"SELECT idem_claim('KEY')",
		"SELECT idem_finish('KEY')"
	],
	[
		'claim and final failure',
		"SELECT idem_claim('KEY')",
		"SELECT idem_fail('KEY', final => true)"
	],
	[
		'claim and release',
		"SELECT idem_claim('KEY')",
		"SELECT idem_release('KEY')"
	],
	[
		'claim, extension by the token and finish',
		"SELECT idem_claim('KEY')",
		"SELECT idem_extend('KEY', '1 min', token => (SELECT token FROM transaction_log WHERE request_id = 'KEY'))",
		"SELECT idem_finish('KEY')"
	],
	[
		'claim in a savepoint, finish outside of it',
		'SAVEPOINT a',
		"SELECT idem_claim('KEY')",
		'RELEASE a',
		"SELECT idem_finish('KEY')"
	],
	[
		'claim outside of a savepoint, finish in it',
		"SELECT idem_claim('KEY')",
		'SAVEPOINT a',
		"SELECT idem_finish('KEY')",
		'RELEASE a'
	],
	[
		'claim rolled back to a savepoint',
		'SAVEPOINT a',
		"SELECT idem_claim('KEY')",
		'ROLLBACK TO a',
		"INSERT INTO effect VALUES ('KEY')"
	],
	[
		'extension of an earlier claim rolled back to a savepoint',
		'SAVEPOINT a',
		"SELECT idem_extend('f1', token => (SELECT token FROM transaction_log WHERE request_id = 'f1'))",
		'ROLLBACK TO a',
		"INSERT INTO effect VALUES ('KEY')"
	],
	[
		'replay beside a write',
		"SELECT idem_claim('f7')",
		"INSERT INTO effect VALUES ('KEY')"
	])
{
	my ($name, @statements) = @$case;
	my $free = 0;

	for my $try (1 .. 20)
	{
		my $key = "$name $try";
		$free = !commit_is_flushed(map { s/KEY/$key/r } @statements);
		last if $free;
	}
	ok($free, "left to the caller: $name");
}

# What was left to the caller is lost as a whole or not at all.
for my $n (1 .. 20)
{
	$session->rows('BEGIN');
	$session->rows("SELECT idem_claim('whole $n')");
	$session->rows("INSERT INTO effect VALUES ('whole $n')");
	$session->rows("SELECT idem_finish('whole $n')");
	$session->rows('COMMIT');
}
crash();
is( $session->value(
		q(SELECT count(*) FROM generate_series(1, 20) n
		   WHERE EXISTS (SELECT FROM idem_lookup('whole ' || n) WHERE status = 'completed')
			  <> EXISTS (SELECT FROM effect WHERE request_id = 'whole ' || n))
	),
	'0',
	'a request and its effect are lost together or not at all');

# ---- a commit with an unfinished claim that is not allowed ------------------

$session->rows("SET idempotency.unfinished_at_commit = 'error'");
$session->rows('BEGIN');
claim('forgotten');
my ($sqlstate) = $session->run('COMMIT');
isnt($sqlstate, '00000', 'a forgotten finish stops the COMMIT');
is(state_of('forgotten'), 'absent', 'and nothing of it is left');
$session->rows('BEGIN');
claim('forgotten');
($sqlstate) = $session->run("PREPARE TRANSACTION 'forgotten'");
isnt($sqlstate, '00000', 'and the PREPARE TRANSACTION');
is($session->value('SELECT count(*) FROM pg_prepared_xacts'),
	'0', 'nothing is left prepared');

$session->close;
$node->stop;
done_testing();
