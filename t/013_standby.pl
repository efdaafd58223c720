# On a streaming standby stored results can be read and nothing can be claimed;
# after a promotion claims go on, with greater tokens than the old primary gave.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf(
	'postgresql.conf', q(
max_prepared_transactions = 10
autovacuum = off
));
$primary->start;
$primary->safe_psql('postgres',
	"CREATE EXTENSION idempotency; SELECT idem_configure('manual', on_lease_expiry => 'manual')"
);

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

my $on_primary = PsqlSession->new($primary->connstr('postgres'));
my $on_standby = PsqlSession->new($standby->connstr('postgres'));
# Whoever waits is cancelled and so found out.
$on_standby->rows(
	"SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'");

sub catch_up
{
	# A commit takes along what open transactions have written.
	$primary->safe_psql('postgres',
		"SELECT pg_logical_emit_message(true, 'flush', '')");
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
	return;
}

# SQLSTATE of a call on the standby, or what it answers.
sub claim_on_standby
{
	my ($key, $more) = @_;
	my ($sqlstate, $row) = $on_standby->run(
		"SELECT outcome, status, response_code, response_body FROM idem_claim('$key', '{\"n\": 1}', wait => '1 ms'"
		  . ($more // '')
		  . ')');
	return $sqlstate eq '00000'
	  ? join(' ', map { $_ // '-' } @$row)
	  : $sqlstate;
}

sub claim_on_primary
{
	my ($key, $more) = @_;
	return $on_primary->value(
		"SELECT token FROM idem_claim('$key', '{\"n\": 1}'"
		  . ($more // '')
		  . ')');
}

# ---- keys in all states ----------------------------------------------------

my %token;
# Leases that outlast the test, however slow the machine is.
$token{$_} = claim_on_primary($_, ", lease => '1 day'")
  for qw(done failed retry backoff leased changing);
$token{lapsed} = claim_on_primary('lapsed', ", lease => '1 us'");
$token{expired} = claim_on_primary('expired', ", ttl => '1 us'");
claim_on_primary('asked', ", scope => 'manual', lease => '1 us'");
$on_primary->rows($_)
  for (
	"SELECT idem_finish('done', '{\"sum\": 1.50}', 201, token => $token{done})",
	"SELECT idem_finish('expired', '1', token => $token{expired})",
	"SELECT idem_fail('failed', '\"no\"', 422, final => true, token => $token{failed})",
	"SELECT idem_fail('retry', '\"again\"', retry_after => '0', token => $token{retry})",
	"SELECT idem_fail('backoff', '\"again\"', retry_after => '1 day', token => $token{backoff})"
  );
$on_primary->rows('BEGIN');
claim_on_primary('prepared');
$on_primary->rows("PREPARE TRANSACTION 'claim'");
$on_primary->rows('BEGIN');
claim_on_primary('uncommitted');
$on_primary->rows("SELECT idem_extend('changing', token => $token{changing})");
catch_up();

# ---- reading ---------------------------------------------------------------

for my $case (
	[ 'done', 'completed 201 {"sum": 1.50} -' ],
	[ 'failed', 'failed 422 - "no"' ],
	[ 'leased', 'processing - - -' ],
	[ 'backoff', 'failed - - "again"' ],
	[ 'lapsed', 'processing - - -' ])
{
	my ($key, $expected) = @$case;
	my ($row) = $on_standby->rows(
		"SELECT status, response_code, response_body, error FROM idem_lookup('$key')"
	);
	is(join(' ', map { $_ // '-' } @$row), $expected, "lookup of $key");
}
for my $key ('expired', 'uncommitted', 'prepared', 'never seen')
{
	is($on_standby->value("SELECT count(*) FROM idem_lookup('$key')"),
		'0', "lookup of $key");
}
is($on_standby->value('SELECT string_agg(request_id, \',\') FROM idem_review'),
	'asked', 'the review is shown');
is( $on_standby->value(
		"SELECT count(*) FROM idem_log WHERE request_id = 'done'"),
	'1',
	'and the log');

# ---- claiming --------------------------------------------------------------

is(claim_on_standby('done'), 'replay completed 201 {"sum": 1.50}',
	'a stored response is replayed');
is(claim_on_standby('failed'), 'replay failed 422 "no"',
	'and a final failure');
is( $on_standby->value("SELECT outcome FROM idem_claim('done', '{\"n\": 2}')"),
	'mismatch',
	'another request under the key is refused');
is(claim_on_standby('leased'), 'in_progress processing - -',
	'a live lease is respected');
is(claim_on_standby('changing'), 'in_progress processing - -',
	'so is one that is being extended');
is(claim_on_standby('backoff'), 'in_progress failed - -',
	'and a backoff');
is(claim_on_standby('asked', ", scope => 'manual'"),
	'unknown unknown - -', 'an unknown outcome is told');
for my $key ('new', 'uncommitted', 'prepared', 'lapsed', 'retry', 'expired')
{
	is(claim_on_standby($key), '25006', "$key cannot be claimed");
}
for my $isolation ('REPEATABLE READ', 'READ COMMITTED')
{
	$on_standby->rows("BEGIN ISOLATION LEVEL $isolation");
	is(claim_on_standby('done'),
		'replay completed 201 {"sum": 1.50}',
		"a replay at $isolation");
	is(claim_on_standby('new'), '25006', "no claim at $isolation");
	$on_standby->rows('ROLLBACK');
}

# A lease is waited for, until its holder on the primary has ended it.
# (The session on the primary has a transaction open.)
$token{awaited} = $primary->safe_psql('postgres', q(SELECT token FROM idem_claim('awaited', '{"n": 1}', lease => '1 day')));
catch_up();
$on_standby->start("SELECT outcome, response_body FROM idem_claim('awaited', '{\"n\": 1}', wait => '1 day')");
ok( $standby->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%awaited%' AND wait_event_type = 'Extension'"),
	'a claim waits on the standby');
$primary->safe_psql('postgres', "SELECT idem_finish('awaited', '\"at last\"', token => $token{awaited})");
my ($answer, $awaited) = $on_standby->answer;
is("$answer @$awaited", '00000 replay "at last"', 'and tells the end');

# ---- ending and defining ---------------------------------------------------

for my $sql (
	"SELECT idem_finish('leased', '1', token => $token{leased})",
	"SELECT idem_fail('leased', '1', token => $token{leased})",
	"SELECT idem_release('leased', token => $token{leased})",
	"SELECT idem_extend('leased', token => $token{leased})",
	"SELECT idem_finish('changing', '1', token => $token{changing})",
	"SELECT idem_resolve('asked', 'completed', scope => 'manual')",
	"SELECT idem_configure('manual', max_attempts => 3)",
	"SELECT idem_unconfigure('manual')")
{
	my ($sqlstate) = $on_standby->run($sql);
	my ($function) = $sql =~ /(idem_\w+)/;
	is($sqlstate, '25006', "$function is for the primary");
}
my ($sqlstate, $row) = $on_standby->run(
	"SELECT idem_finish('done', '{\"sum\": 1.50}', 201, token => $token{done})"
);
is($sqlstate, '00000', 'a bare retry of a recorded finish only reads');
is($row->[0], 'f', 'and tells that it is recorded');
($sqlstate) = $on_standby->run("SELECT idem_finish('lapsed', token => 1)");
is($sqlstate, 'ID001', 'a stale token is stale here as well');
($sqlstate) = $on_standby->run("SELECT idem_finish('new', token => 1)");
is($sqlstate, 'ID002', 'and what is not there is not claimed');

# What was recorded on the primary meanwhile is seen by the next call.
$on_primary->rows("SELECT idem_finish('uncommitted', '\"now\"')");
$on_primary->rows('COMMIT');
catch_up();
is(claim_on_standby('uncommitted'), 'replay completed - "now"',
	'a commit on the primary is replayed');

# ---- a failover that loses the last commits --------------------------------

# The standby hears no more of the primary.
$on_standby->rows("ALTER SYSTEM SET primary_conninfo = ''");
$on_standby->rows('SELECT pg_reload_conf()');
$standby->poll_query_until('postgres',
	'SELECT count(*) = 0 FROM pg_stat_wal_receiver')
  or die 'the standby goes on streaming';

$token{lost} = claim_on_primary('lost');
for my $key ('lapsed', 'retry', 'expired')
{
	my $token = claim_on_primary($key);
	cmp_ok($token, '>', $token{$key}, "$key: the primary gives a new token");
	$token{$key} = $token;
}
$on_primary->rows(
	"SELECT idem_finish('leased', '\"lost\"', token => $token{leased})");
$primary->stop('immediate');
$on_primary->close;

$standby->promote;
$on_standby->close;
$on_standby = PsqlSession->new($standby->connstr('postgres'));

for my $key ('lost', 'lapsed', 'retry', 'expired')
{
	my ($claim) =
	  $on_standby->rows("SELECT outcome, token FROM idem_claim('$key')");
	is($claim->[0], 'claimed', "$key: claimed after the promotion");
	cmp_ok($claim->[1], '>', $token{$key}, "$key: with a greater token");
	($sqlstate) =
	  $on_standby->run("SELECT idem_finish('$key', token => $token{$key})");
	is($sqlstate, 'ID001', "$key: the lost token is refused");
	is( $on_standby->value(
			"SELECT idem_finish('$key', '1', token => $claim->[1])"),
		't',
		"$key: the new one is accepted");
}
is( $on_standby->value(
		"SELECT idem_finish('leased', '\"lost\"', token => $token{leased})"),
	't',
	'a finish that was lost can be repeated');
is($on_standby->value("SELECT outcome FROM idem_claim('done')"),
	'replay', 'old responses are replayed');
is($on_standby->value("SELECT outcome FROM idem_claim('prepared')"),
	'in_progress', 'the prepared claim came along and is in flight');
$on_standby->rows("ROLLBACK PREPARED 'claim'");
is($on_standby->value("SELECT outcome FROM idem_claim('prepared')"),
	'claimed', 'until it is decided');

$on_standby->close;
$standby->stop;
done_testing();
