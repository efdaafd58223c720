# Whatever ends the launcher or a worker, the purge goes on.
#
# See t/README for the conventions of these tests.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main_killed');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'idempotency'
idempotency.purge_interval = 20ms
restart_after_crash = on
autovacuum = off
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');

my $turn = 0;

sub purge_goes_on
{
	my ($name) = @_;

	$turn++;
	$node->poll_query_until('postgres', 'SELECT true');
	$node->safe_psql('postgres',
		"SELECT idem_claim('turn $turn', ttl => '1ms', lease => '1ms')");
	ok( $node->poll_query_until(
			'postgres',
			"SELECT count(*) = 0 FROM transaction_log WHERE request_id = 'turn $turn'"
		),
		"the purge goes on after $name");
	return;
}

# Waits for a process of this type and returns its number.
sub pid_of
{
	my ($type) = @_;
	my $pids = "SELECT pid FROM pg_stat_activity WHERE backend_type = '$type'";

	$node->poll_query_until('postgres',
		"SELECT count(*) > 0 FROM ($pids) p")
	  or die "no $type";
	return (split /\n/, $node->safe_psql('postgres', $pids))[0];
}

# Something to do for long, one row at a time.
sub start_long_purge
{
	$node->append_conf(
		'postgresql.conf', q{
idempotency.purge_batch_size = 1
idempotency.purge_delay = 50ms
});
	$node->reload;
	$node->safe_psql(
		'postgres', q{
		SELECT count(*) FROM generate_series(1, 10000) i,
			LATERAL idem_claim('old ' || i, ttl => '1ms', lease => '1ms')});
	return;
}

sub end_long_purge
{
	$node->append_conf(
		'postgresql.conf', q{
idempotency.purge_batch_size = 1000
idempotency.purge_delay = 0
});
	$node->reload;
	ok( $node->poll_query_until(
			'postgres', 'SELECT count(*) = 0 FROM transaction_log'),
		'and does all that is left');
	return;
}

# Signals a process and waits until it has gone, or until the server is back.
sub hit
{
	my ($signal, $pid) = @_;

	$node->command_ok([ 'pg_ctl', 'kill', $signal, $pid ],
		"$signal of process");
	return;
}

sub gone
{
	my ($pid) = @_;

	ok( $node->poll_query_until(
			'postgres',
			"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid"),
		'it has gone');
	return;
}

purge_goes_on('the start');

# ---- SIGTERM

my $launcher = pid_of('idempotency launcher');
hit('TERM', $launcher);
gone($launcher);
purge_goes_on('SIGTERM of the launcher');

start_long_purge();
my $worker = pid_of('idempotency purge worker');
hit('TERM', $worker);
gone($worker);
isnt(pid_of('idempotency purge worker'), $worker, 'another worker comes');

# A launcher that is gone leaves its worker alone, and the next one copes.
$launcher = pid_of('idempotency launcher');
hit('TERM', $launcher);
gone($launcher);
end_long_purge();
purge_goes_on('SIGTERM of worker and launcher');

# ---- cancel requests, and whoever may send signals

start_long_purge();
$node->safe_psql(
	'postgres', q{
	DO $$
	BEGIN
		FOR i IN 1 .. 100 LOOP
			PERFORM pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'idempotency%';
			PERFORM pg_sleep(0.001);
			PERFORM pg_stat_clear_snapshot();
		END LOOP;
		FOR i IN 1 .. 100 LOOP
			PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'idempotency purge worker';
			PERFORM pg_sleep(0.001);
			PERFORM pg_stat_clear_snapshot();
		END LOOP;
	END $$});
ok(pid_of('idempotency launcher'), 'cancelled a hundred times, it lives on');
end_long_purge();
purge_goes_on('a hundred cancels and terminations');

# ---- SIGKILL: the server starts anew, and so does the purge

# Kills a process and waits until the server is back.
sub kill_and_wait
{
	my ($type) = @_;
	my $checkpointer = pid_of('checkpointer');

	hit('KILL', pid_of($type));

	# A connection may break while the server finds out.
	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my ($status, $out) = $node->psql('postgres',
			"SELECT 1 FROM pg_stat_activity WHERE backend_type = 'checkpointer' AND pid <> $checkpointer"
		);

		return if defined $status && $status == 0 && $out eq '1';
		select(undef, undef, undef, 0.1);
	}
	die 'the server did not come back';
}

kill_and_wait('idempotency launcher');
purge_goes_on('SIGKILL of the launcher');
start_long_purge();
kill_and_wait('idempotency purge worker');
end_long_purge();
purge_goes_on('SIGKILL of a worker');

# ---- errors: a pause, not a storm

my $log_size = -s $node->logfile;
$node->safe_psql(
	'postgres', q{
	CREATE FUNCTION broken(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
		$$ BEGIN
			IF $1 = 'unknown' THEN RAISE 'broken'; END IF;
			RETURN $1;
		END $$;
	SELECT idem_configure('manual', on_lease_expiry => 'manual');
	CREATE INDEX broken ON transaction_log (broken(status));
	SELECT idem_claim('to be turned', scope => 'manual', ttl => '1ms', lease => '1ms')});
ok($node->wait_for_log(qr/ERROR:  broken/, $log_size), 'a worker fails');
ok( $node->wait_for_log(qr/ERROR:  broken.*ERROR:  broken/s, $log_size),
	'the next one as well');
my $errors = () = slurp_file($node->logfile, $log_size) =~ /ERROR:  broken/g;
cmp_ok($errors, '<', 10, 'but not every 20 ms');
$node->safe_psql('postgres', 'DROP INDEX broken');
ok( $node->poll_query_until(
		'postgres',
		q{SELECT status = 'unknown' FROM transaction_log WHERE request_id = 'to be turned'}
	),
	'repaired, it goes on');

$node->stop;
done_testing();
