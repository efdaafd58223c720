# pg_upgrade: rows of all tables arrive, keys are still known, nothing is
# purged on the way, and the worker runs afterwards.
#
# The old cluster is one of the same version, unless the environment variable
# "oldinstall" names the prefix of an older installation (with this extension),
# as in PostgreSQL's own test of pg_upgrade.
#
# See t/README for the conventions of these tests.

use strict;
use warnings;

use Cwd;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my @old_install =
  $ENV{oldinstall} ? (install_path => $ENV{oldinstall}) : ();

# A very short interval, so that a worker that ran where it must not would be
# caught at it.
my $conf = q{
shared_preload_libraries = 'idempotency'
idempotency.purge_interval = %s
};

# The same in both, whatever a version's default is.
my @initdb = ('--locale', 'C', '--encoding', 'UTF8');
my $old = PostgreSQL::Test::Cluster->new('old', @old_install);
my $new = PostgreSQL::Test::Cluster->new('new');

push @initdb, '--no-data-checksums' if $new->pg_version >= 18;
$new->init(extra => \@initdb);
@initdb = grep { $_ ne '--no-data-checksums' } @initdb
  if $old->pg_version < 18;
$old->init(extra => \@initdb);
$old->append_conf('postgresql.conf', sprintf($conf, '0'));
$new->append_conf('postgresql.conf', sprintf($conf, '1ms'));
note('upgrade from ' . $old->pg_version . ' to ' . $new->pg_version);

$old->start;
$old->safe_psql(
	'postgres', q{
	CREATE SCHEMA idem;
	CREATE EXTENSION idempotency SCHEMA idem;
	SET search_path = idem;
	CREATE ROLE keeper;
	SELECT idem_configure('manual', on_lease_expiry => 'manual', history => true, owner => 'keeper');
	BEGIN;
	SELECT idem_claim('done', '{"amount": 1}', ttl => '1 year');
	SELECT idem_finish('done', '{"id": 7}', 201);
	COMMIT;
	SELECT idem_claim('lapsed', scope => 'manual', lease => '1ms', ttl => '1ms');
	SELECT idem_claim('leased', lease => '1 year', ttl => '1ms');
	SELECT idem_claim('expired', lease => '1ms', ttl => '1ms');
	INSERT INTO idempotency_inbox (received_at, expires_at, scope, message_id)
		VALUES (now(), now() + '1 year', '', 'message'), (now(), now(), '', 'expired');
	INSERT INTO idempotency_checkpoint (scope, request_id, life, step, ordinal, token, completed_at, result)
		SELECT scope, request_id, life, 'step', 1, token, now(), '1' FROM transaction_log WHERE request_id = 'leased';
	UPDATE transaction_log SET steps = 1 WHERE request_id = 'leased'});

my @tables = split /\n/,
  $old->safe_psql(
	'postgres', q{
	SELECT c.oid::regclass
	  FROM pg_class c JOIN pg_depend d ON d.objid = c.oid AND d.deptype = 'e' AND d.classid = 'pg_class'::regclass
	 WHERE c.relkind = 'r' ORDER BY 1});
my $all_rows = join(' UNION ALL ', map { "SELECT '$_', t::text FROM $_ t" } @tables)
  . ' ORDER BY 1, 2';
my $before = $old->safe_psql('postgres', $all_rows);
$old->stop;

# pg_upgrade leaves files in the present directory.
chdir $PostgreSQL::Test::Utils::tmp_check;
$new->command_ok(
	[
		'pg_upgrade', '--no-sync',
		'--old-datadir', $old->data_dir,
		'--new-datadir', $new->data_dir,
		'--old-bindir', $old->config_data('--bindir'),
		'--new-bindir', $new->config_data('--bindir'),
		'--socketdir', $new->host,
		'--old-port', $old->port,
		'--new-port', $new->port
	],
	'pg_upgrade');

unlike(slurp_file($new->logfile), qr/idempotency/, 'no purge on the way')
  if -e $new->logfile;
$new->append_conf('postgresql.conf', 'idempotency.purge_interval = 0');
$new->start;
is($new->safe_psql('postgres', $all_rows),
	$before, 'all rows of all tables are there');
is( $new->safe_psql(
		'postgres',
		q{SELECT outcome, response_code, response_body FROM idem.idem_claim('done', '{"amount": 1.0}')}
	),
	'replay|201|{"id": 7}',
	'a duplicate is replayed');
is( $new->safe_psql(
		'postgres',
		q{SELECT outcome, differs FROM idem.idem_claim('done', '{"amount": 2}')}
	),
	'mismatch|{$.amount}',
	'another request is refused');
is( $new->safe_psql(
		'postgres',
		q{SELECT outcome FROM idem.idem_claim('lapsed', scope => 'manual')}),
	'unknown',
	'policies are in force');
is( $new->safe_psql(
		'postgres', q{SELECT outcome, attempt FROM idem.idem_claim('leased')}
	),
	'in_progress|1',
	'leases are respected');

$new->append_conf('postgresql.conf', 'idempotency.purge_interval = 20ms');
$new->reload;
ok( $new->poll_query_until(
		'postgres',
		q{SELECT array_agg(request_id || ' ' || status ORDER BY request_id) = '{done completed,lapsed unknown,leased processing}' FROM idem.transaction_log}
	),
	'the worker runs');
is($new->safe_psql('postgres', 'SELECT message_id FROM idem.idempotency_inbox'),
	'message', 'for messages as well');

$new->stop;
done_testing();
