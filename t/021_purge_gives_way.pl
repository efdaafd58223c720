# A worker at a long purge is nobody's obstacle: who drops, renames, moves or
# copies its database, or drops the extension, gets his way, and a purge whose
# extension stays after all goes on.
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
idempotency.purge_interval = 20ms
idempotency.purge_batch_size = 10
idempotency.purge_delay = 20ms
autovacuum = off
});
$node->start;

# Long enough that the tests find the worker in the midst of it: ten rows every
# 20 ms.
my $many = 100000;

sub make_expired
{
	my ($db) = @_;

	$node->safe_psql(
		$db, qq{
		SELECT count(*) FROM generate_series(1, $many) i,
			LATERAL idem_claim('old ' || i, ttl => '1ms', lease => '1ms')});
	return;
}

# Waits until a worker has removed something from the database.
sub wait_for_worker
{
	my ($db) = @_;
	my $quoted = $db =~ s/'/''/gr;

	ok( $node->poll_query_until(
			'postgres', qq{
			SELECT count(*) > 0 FROM pg_stat_activity
			 WHERE datname = '$quoted' AND backend_type = 'idempotency purge worker'
			   AND query ~ ': [1-9][0-9]* keys'}),
		"a worker is at work in $db");
	return;
}

sub remaining
{
	my ($db) = @_;

	return $node->safe_psql($db, 'SELECT count(*) FROM transaction_log');
}

# With a delay the purge cannot be over yet; without one it may be: then there
# is more for it to do.
sub keep_at_work
{
	my ($db, $delay) = @_;

	if ($delay eq '0')
	{
		make_expired($db) if remaining($db) < $many / 2;
		return;
	}
	cmp_ok(remaining($db), '>', 0, 'the purge was not over');
	wait_for_worker($db) if $delay eq '20ms';
	return;
}

# These fail by themselves, after some seconds of waiting, while others are
# connected to the database.
sub succeeds
{
	my ($sql, $name) = @_;

	my ($status, $out, $err) = $node->psql('postgres', $sql);
	is($status, 0, $name) or diag($err);
	return;
}

foreach my $delay ('20ms', '60s', '0')
{
	$node->append_conf('postgresql.conf',
		"idempotency.purge_delay = $delay");
	$node->reload;

	$node->safe_psql('postgres', 'CREATE DATABASE tenant');
	$node->safe_psql('tenant', 'CREATE EXTENSION idempotency');
	make_expired('tenant');
	if ($delay eq '60s')
	{
		$node->poll_query_until('postgres',
			q{SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = 'tenant' AND backend_type = 'idempotency purge worker'}
		);
	}
	elsif ($delay eq '0')
	{
		# It may be through before anybody has seen it.
		ok( $node->poll_query_until('tenant',
				"SELECT count(*) < $many FROM transaction_log"),
			'a worker is at work in tenant');
		keep_at_work('tenant', $delay);
	}
	else
	{
		wait_for_worker('tenant');
	}

	succeeds('ALTER DATABASE tenant RENAME TO renamed',
		"delay $delay: ALTER DATABASE RENAME");
	keep_at_work('renamed', $delay);
	succeeds('CREATE DATABASE copy TEMPLATE renamed',
		"delay $delay: CREATE DATABASE TEMPLATE");
	keep_at_work('renamed', $delay);
	succeeds('ALTER DATABASE renamed SET TABLESPACE pg_default',
		"delay $delay: ALTER DATABASE SET TABLESPACE");
	keep_at_work('renamed', $delay);
	succeeds('DROP DATABASE renamed', "delay $delay: DROP DATABASE");
	succeeds('DROP DATABASE copy', "delay $delay: DROP DATABASE of the copy");
}

# FORCE ends the worker instead of waiting for it.
$node->append_conf('postgresql.conf', 'idempotency.purge_delay = 20ms');
$node->reload;
$node->safe_psql('postgres', 'CREATE DATABASE tenant');
$node->safe_psql('tenant', 'CREATE EXTENSION idempotency');
make_expired('tenant');
wait_for_worker('tenant');
succeeds('DROP DATABASE tenant WITH (FORCE)', 'DROP DATABASE FORCE');

# ---- the extension

$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');
make_expired('postgres');
wait_for_worker('postgres');

my $client = $node->background_psql('postgres');
$client->query_safe('BEGIN; DROP EXTENSION idempotency');
ok( $node->poll_query_until(
		'postgres',
		q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'idempotency purge worker' AND wait_event_type = 'Lock'}
	),
	'DROP EXTENSION: no worker waits for it');
$client->query_safe('ROLLBACK');
my $before = remaining('postgres');
cmp_ok($before, '>', 0, 'rolled back: the rows are there');
ok( $node->poll_query_until(
		'postgres', "SELECT count(*) < $before FROM transaction_log"),
	'and the purge goes on');

# Whatever needs a strong lock gets it, and no deadlock comes of it.
my $deadlocks = 0;
foreach my $turn (1 .. 20)
{
	my ($status, $out, $err) = $node->psql(
		'postgres', q{
		BEGIN; DROP EXTENSION idempotency; ROLLBACK;
		BEGIN; LOCK TABLE idempotency_history; LOCK TABLE transaction_log; ROLLBACK;
		REINDEX TABLE transaction_log;
	});
	$deadlocks++ if $status != 0;
}
is($deadlocks, 0, 'strong locks in any order, again and again: no deadlock');
cmp_ok(remaining('postgres'), '>', 0, 'the purge was not over');

$client->query_safe('DROP EXTENSION idempotency');
pass('DROP EXTENSION');
$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');
$node->safe_psql('postgres', q{SELECT idem_claim('x', ttl => '1ms', lease => '1ms')});
ok( $node->poll_query_until(
		'postgres', 'SELECT count(*) = 0 FROM transaction_log'),
	'and installed anew it is purged anew');

# Orphans: the schema is dropped under the worker.
$node->safe_psql('postgres',
	'DROP EXTENSION idempotency; CREATE SCHEMA tenant; CREATE EXTENSION idempotency SCHEMA tenant');
$node->safe_psql('postgres',
	"SET search_path = tenant; SELECT count(*) FROM generate_series(1, $many) i, LATERAL idem_claim('old ' || i, ttl => '1ms', lease => '1ms')");
wait_for_worker('postgres');
succeeds('DROP SCHEMA tenant CASCADE', 'DROP SCHEMA CASCADE');

# VACUUM FULL and TRUNCATE are let through as well.
$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');
make_expired('postgres');
wait_for_worker('postgres');
succeeds('VACUUM FULL transaction_log', 'VACUUM FULL');
cmp_ok(remaining('postgres'), '>', 0, 'the purge was not over');
wait_for_worker('postgres');
succeeds('TRUNCATE transaction_log', 'TRUNCATE');

$client->quit;
my $log = slurp_file($node->logfile);
unlike($log, qr/deadlock detected/, 'no deadlock');
unlike($log, qr/PANIC|TRAP|could not open relation/, 'no surprise');

# Two are expected: of the worker that FORCE ended, and, now and then, of one
# that was about to connect when its database was dropped.
my @errors =
  grep { !/terminating background worker|database \d+ does not exist/ }
  $log =~ /(?:FATAL|ERROR): .*/g;
is_deeply(\@errors, [], 'nothing to complain of but what was forced');

$node->stop;
done_testing();
