# A batch of five steps whose backend is killed after each of its commits: each
# step takes effect once, and in the end all five have.
#
# The step behind a commit waits at a gate, so the commit has been when the
# backend is killed, and the next one has not.  Behind the last step there is
# only the end of the request: the gate there is a lock on the table that the
# end reads, queued up before the last step commits.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;

my $nsteps = 5;
my $steps = join(',', map { "'work.step_$_'" } 1 .. $nsteps);

my $node = PostgreSQL::Test::Cluster->new('steps_killed');
$node->init;
# A short lease stands for the time that passes after a crash.
$node->append_conf(
	'postgresql.conf', q(
restart_after_crash = on
idempotency.default_lease = '1ms'
));
$node->start;
$node->safe_psql(
	'postgres', q(
CREATE EXTENSION idempotency;
CREATE SCHEMA work;
CREATE TABLE work.effect (id int GENERATED ALWAYS AS IDENTITY, step int, attempt int);
CREATE FUNCTION work.do_step(step int) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock(step);
	INSERT INTO work.effect (step, attempt) SELECT do_step.step, attempt FROM idem_current();
	RETURN to_jsonb(step * step);
END
$$;
));
$node->safe_psql('postgres',
	"CREATE FUNCTION work.step_$_(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT work.do_step($_)'"
) for 1 .. $nsteps;

my $call = "CALL idem_batch('b', ARRAY[$steps], '{}', 'work')";

# Waits until the backend of the batch waits for such a lock: its pid.
sub pid_waiting_for
{
	my ($wait_event) = @_;
	my $waiting = qq(
		FROM pg_stat_activity
		WHERE query LIKE 'CALL idem_batch%' AND wait_event_type = 'Lock'
		AND wait_event = '$wait_event');

	$node->poll_query_until('postgres', "SELECT count(*) = 1 $waiting")
	  or die "the batch does not wait for its gate";
	return $node->safe_psql('postgres', "SELECT pid $waiting");
}

# Kills a backend, which takes the whole server down, and waits for its return.
sub kill_backend
{
	my ($pid, @sessions) = @_;
	my $log_before = -s $node->logfile;

	kill('KILL', $pid) == 1 or die "could not kill $pid";
	$_->close for @sessions;
	$node->wait_for_log('all server processes terminated', $log_before);
	$node->poll_query_until('postgres', 'SELECT 1', '1')
	  or die 'the server did not come back';
	return;
}

sub effects
{
	return $node->safe_psql('postgres',
		"SELECT string_agg(step::text, ' ' ORDER BY id) FROM work.effect");
}

sub checkpoints
{
	return $node->safe_psql('postgres',
		"SELECT string_agg(step, ' ') FROM idem_checkpoints('b', 'work')");
}

my @attempts;

for my $commits (0 .. $nsteps)
{
	my $gate = PsqlSession->new($node->connstr('postgres'));
	my $batch = PsqlSession->new($node->connstr('postgres'));
	my $guard;
	my $next = $commits + 1;
	my $pid;

	# On the last round there is no step left to wait in: the lock on the
	# table is got in the moment in which the last step commits.
	if ($commits == $nsteps)
	{
		$gate->rows("SELECT pg_advisory_lock($nsteps)");
		$batch->start($call);
		pid_waiting_for('advisory');
		$guard = PsqlSession->new($node->connstr('postgres'));
		$guard->rows('BEGIN');
		$guard->start('LOCK TABLE idempotency_checkpoint');
		$node->poll_query_until('postgres',
			"SELECT count(*) = 1 FROM pg_locks WHERE relation = 'idempotency_checkpoint'::regclass AND NOT granted"
		) or die 'the table lock is not queued';
		$gate->rows("SELECT pg_advisory_unlock($nsteps)");
		$guard->answer;
		$pid = pid_waiting_for('relation');
	}
	else
	{
		# An earlier round has come no further than to this gate's step.
		$gate->rows("SELECT pg_advisory_lock($next)");
		$batch->start($call);
		$pid = pid_waiting_for('advisory');
	}
	my $state = $node->safe_psql('postgres',
		"SELECT (idem_lookup('b', 'work')).status");
	kill_backend($pid, $gate, $batch, defined $guard ? $guard : ());

	is($state, 'processing', "killed after commit $next: was in progress");
	is(effects() // '', join(' ', 1 .. $commits),
		"killed after commit $next: $commits steps have taken effect");
	is(checkpoints() // '',
		join(' ', map { "work.step_$_" } 1 .. $commits),
		"killed after commit $next: and are known to have");
}

$node->safe_psql('postgres', $call);
is(effects(), '1 2 3 4 5', 'in the end each step took effect once');
is( $node->safe_psql(
		'postgres',
		"SELECT status, attempt, response_body FROM idem_lookup('b', 'work')"),
	'completed|7|{"work.step_1": 1, "work.step_2": 4, "work.step_3": 9, "work.step_4": 16, "work.step_5": 25}',
	'the request is completed, by the seventh attempt');
is( $node->safe_psql('postgres',
		"SELECT string_agg(attempt::text, ' ' ORDER BY id) FROM work.effect"),
	'2 3 4 5 6',
	'each step was done by the attempt after the crash before it');
$node->safe_psql('postgres', $call);
is(effects(), '1 2 3 4 5', 'another call does nothing');

$node->stop;
done_testing();
