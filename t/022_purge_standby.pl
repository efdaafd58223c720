# A standby purges nothing; when it is promoted, its worker begins.
#
# See t/README for the conventions of these tests.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'idempotency'
idempotency.purge_interval = 0
});
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION idempotency');
$primary->backup('backup');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'idempotency.purge_interval = 20ms');
$standby->start;

$primary->safe_psql(
	'postgres', q{
	SELECT idem_configure('manual', on_lease_expiry => 'manual');
	SELECT count(*) FROM generate_series(1, 50) i,
		LATERAL idem_claim('old ' || i, ttl => '1ms', lease => '1ms');
	SELECT idem_claim('unknown', scope => 'manual', ttl => '1ms', lease => '1ms')});
$primary->wait_for_catchup($standby);

is($standby->safe_psql('postgres', 'SELECT count(*) FROM transaction_log'),
	'51', 'the standby has the rows');
is( $standby->safe_psql(
		'postgres',
		q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'idempotency%'}
	),
	'0',
	'and neither launcher nor worker');

my ($status, $out, $err) =
  $standby->psql('postgres', '\set VERBOSITY sqlstate
	SELECT idem_purge()');
like($err, qr/25006/, 'idem_purge on a standby: 25006');
($status, $out, $err) =
  $standby->psql('postgres', '\set VERBOSITY sqlstate
	CALL idem_purge_all()');
like($err, qr/25006/, 'idem_purge_all on a standby: 25006');

$standby->restart;
is($standby->safe_psql('postgres', 'SELECT count(*) FROM transaction_log'),
	'51', 'also after a restart nothing goes');
unlike(slurp_file($standby->logfile),
	qr/idempotency (purge|launcher)/, 'the log of the standby is quiet');

$standby->promote;
ok( $standby->poll_query_until(
		'postgres',
		q{SELECT array_agg(request_id || ' ' || status) = '{unknown unknown}' FROM transaction_log}
	),
	'promoted, it purges');
$primary->stop;

$standby->restart;
$standby->safe_psql('postgres',
	q{SELECT idem_claim('later', ttl => '1ms', lease => '1ms')});
ok( $standby->poll_query_until(
		'postgres', q{SELECT count(*) = 1 FROM transaction_log}),
	'and goes on after a restart');

$standby->stop;
done_testing();
