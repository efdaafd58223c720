# Many fast rounds: the launcher's memory stays as it is, and workers leave
# nothing behind.  What it costs is reported, not judged.
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
idempotency.purge_batch_size = 50
idempotency.purge_delay = 0
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');

# Memory that a process has to itself, in kB, by its allocator: the kernel's
# view of it depends on what it happened to touch.
my $launcher = $node->safe_psql('postgres',
	q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'idempotency launcher'}
);

sub private_memory_kb
{
	my ($pid) = @_;
	my $smaps = "/proc/$pid/smaps_rollup";
	my $sum = 0;

	return undef unless -r $smaps;
	$sum += $_ foreach slurp_file($smaps) =~ /^Private_Dirty:\s+(\d+)/mg;
	return $sum;
}

sub cpu_ticks
{
	my ($pid) = @_;
	my @stat = split / /, slurp_file("/proc/$pid/stat") =~ s/^.*\) //sr;

	return $stat[11] + $stat[12];
}

# Visits of the worker to the database so far.
sub visits
{
	return $node->safe_psql('template1',
		q{SELECT coalesce(xact_commit, 0) FROM pg_stat_database WHERE datname = 'postgres'}
	);
}

sub wait_for_visits
{
	my ($n) = @_;

	$node->poll_query_until('template1',
		"SELECT xact_commit >= $n FROM pg_stat_database WHERE datname = 'postgres'"
	) or die 'no visits';
	return;
}

wait_for_visits(visits() + 50);
my ($memory, $ticks, $first) =
  (private_memory_kb($launcher), cpu_ticks($launcher), visits());
foreach my $round (1 .. 10)
{
	$node->safe_psql(
		'postgres', q{
		SELECT count(*) FROM generate_series(1, 200) i,
			LATERAL idem_claim('key ' || i, ttl => '1ms', lease => '1ms')});
	wait_for_visits(visits() + 50);
}
ok( $node->poll_query_until(
		'postgres', 'SELECT count(*) = 0 FROM transaction_log'),
	'all keys are gone');
my $rounds = visits() - $first;
my $grown = private_memory_kb($launcher);

cmp_ok($rounds, '>=', 500, "many rounds ($rounds)");
SKIP:
{
	skip 'no /proc/pid/smaps_rollup', 1 unless defined $memory;
	note("launcher: $memory kB before, $grown kB after $rounds visits, "
		  . (cpu_ticks($launcher) - $ticks)
		  . ' clock ticks of CPU time');
	cmp_ok($grown - $memory, '<', 256, 'the memory of the launcher is flat');
}
is( $node->safe_psql(
		'postgres',
		q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'idempotency launcher'}
	),
	$launcher,
	'it is the same launcher');

# Idle.
$node->append_conf('postgresql.conf', 'idempotency.purge_interval = 1h');
$node->reload;
ok( $node->poll_query_until(
		'postgres',
		q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'idempotency purge worker'}
	),
	'no worker is left');
unlike(slurp_file($node->logfile), qr/WARNING|ERROR|FATAL/, 'nothing to complain of');

$node->stop;
done_testing();
