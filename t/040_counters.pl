# Counters: exact after a known workload of several sessions; what keeps them,
# what loses them, and who sees them.  Who waits for which request, and the log
# line of a long wait.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;
use Time::HiRes qw(usleep);

my $node = PostgreSQL::Test::Cluster->new('main_killed');
$node->init;
$node->append_conf(
	'postgresql.conf', q(
shared_preload_libraries = 'idempotency'
idempotency.track_scopes = 4
idempotency.purge_interval = 0
max_prepared_transactions = 10
restart_after_crash = on
autovacuum = off
log_statement = none
));
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');

my @columns = qw(claimed taken_over replayed in_progress mismatched unknown
  completed failed released stale waits messages duplicate_messages);

# The counters of a scope that are not 0, in words.
sub counters
{
	my ($scope, $database) = @_;
	my $where =
	  defined $scope ? "scope = '$scope'" : 'scope IS NULL';
	my $row = $node->safe_psql($database // 'postgres',
		'SELECT ' . join(', ', @columns) . " FROM idem_stat WHERE $where");
	my @values = split /\|/, $row;

	return join ' ',
	  map { "$columns[$_]=$values[$_]" } grep { $values[$_] } 0 .. $#values;
}

sub session
{
	my ($database) = @_;
	return PsqlSession->new($node->connstr($database // 'postgres'));
}

sub wait_until_waiting
{
	my ($key) = @_;
	$node->poll_query_until('postgres',
		"SELECT count(*) > 0 FROM idem_in_flight WHERE request_id = '$key' AND waiting IS NOT NULL"
	) or die "nobody waits for $key";
	return;
}

my $token = sub {
	my ($session, $key, $more) = @_;
	return $session->value(
		"SELECT token FROM idem_claim('$key', '{\"n\": 1}', scope => 'w'"
		  . ($more // '') . ')');
};

# ---- a known workload -------------------------------------------------------

my @sessions = map { session() } 1 .. 3;
my ($one, $two, $three) = @sessions;

# 20 keys, each claimed and finished by one session, replayed by the other two.
foreach my $i (1 .. 20)
{
	my $finisher = $sessions[ $i % 3 ];
	my $t = $token->($finisher, "k$i");
	$finisher->rows("SELECT idem_finish('k$i', token => $t, scope => 'w')");
	foreach my $other (grep { $_ != $finisher } @sessions)
	{
		$other->rows("SELECT idem_claim('k$i', '{\"n\": 1}', scope => 'w')");
	}
}
is(counters('w'), 'claimed=20 replayed=40 completed=20', 'claims and replays');

$one->rows("SELECT idem_claim('k1', '{\"n\": 2}', scope => 'w')");
$two->rows("SELECT idem_claim('k2', '{\"n\": 2}', scope => 'w')");

# Taken over: the late end is refused.
my $late = $token->($one, 'slow', ", lease => '1 us'");
my $now = $token->($two, 'slow');
is(($one->run("SELECT idem_finish('slow', token => $late, scope => 'w')"))[0],
	'ID001', 'the late end is stale');
is(($one->run("SELECT idem_extend('slow', token => $late, scope => 'w')"))[0],
	'ID001', 'the late heartbeat too');
$three->rows("SELECT idem_claim('slow', '{\"n\": 1}', scope => 'w')");
$two->rows("SELECT idem_fail('slow', token => $now, scope => 'w', final => true)");
$three->rows("SELECT idem_claim('slow', '{\"n\": 1}', scope => 'w')");
$one->rows("SELECT idem_release('given', scope => 'w', token => "
	  . $token->($one, 'given') . ')');
is( counters('w'),
	'claimed=23 taken_over=1 replayed=41 in_progress=1 mismatched=2 completed=20 failed=1 released=1 stale=2',
	'mismatches, a takeover, stale ends, a failure, a release');

# What is undone is counted all the same.
$one->rows('BEGIN');
$token->($one, 'undone');
$one->rows('ROLLBACK');
like(counters('w'), qr/^claimed=24 /, 'a claim that is rolled back');
$node->safe_psql('postgres', 'SELECT idem_stat_reset()');
is(counters('w'), '', 'reset');

# In one trip, in batches, messages.
$node->safe_psql('postgres',
	q{CREATE FUNCTION h(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1'});
foreach my $session (@sessions)
{
	$session->rows("SELECT idem_run('run', '{}', 'public.h', scope => 'w')");
	$session->rows("SELECT * FROM idem_claim_many('{b1,b2,b1}', scope => 'w')");
	$session->rows("SELECT idem_once('m', 'w')");
	$session->rows("SELECT * FROM idem_once_many('{m,n,n}', 'w')");
}
is( counters('w'),
	'claimed=3 replayed=2 in_progress=7 completed=1 messages=2 duplicate_messages=10',
	'runs, batches and messages');

# ---- waiting ----------------------------------------------------------------

$node->safe_psql('postgres', 'SELECT idem_stat_reset()');
$node->safe_psql('postgres',
	'ALTER SYSTEM SET idempotency.log_wait_min_duration = 0; SELECT pg_reload_conf()');
# Each session hears of it in its own time.
for my $session ($two, $three)
{
	my $known = 0;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		$known = $session->value('SHOW idempotency.log_wait_min_duration') eq '0';
		last if $known;
		usleep(100_000);
	}
	ok($known, 'a session knows that waits are logged');
}
my $pid_two = $two->value('SELECT pg_backend_pid()');
my $pid_three = $three->value('SELECT pg_backend_pid()');
my $log_offset = -s $node->logfile;

sub waiting
{
	my ($key) = @_;
	return $node->safe_psql('postgres',
		"SELECT state, waiting FROM idem_in_flight WHERE request_id = '$key'");
}

sub start_waiting
{
	my ($session, $key) = @_;
	$session->start(
		"SELECT outcome FROM idem_claim('$key', '{\"secret\": \"body-of-it\"}', scope => 'w', wait => '1 day', fingerprint => '\\x01')"
	);
	return;
}

sub claim_first
{
	my ($session, $key) = @_;
	return $session->value(
		"SELECT token FROM idem_claim('$key', scope => 'w', lease => '1 day', fingerprint => '\\x01')"
	);
}

# For a lease.
my $held = claim_first($one, 'wait-lease');
start_waiting($two, 'wait-lease');
start_waiting($three, 'wait-lease');
$node->poll_query_until('postgres',
	"SELECT cardinality(waiting) = 2 FROM idem_in_flight WHERE request_id = 'wait-lease'");
is( waiting('wait-lease'),
	'leased|{' . join(',', sort { $a <=> $b } $pid_two, $pid_three) . '}',
	'who waits for a lease');
SKIP:
{
	skip 'wait events of extensions have no names before 17', 1
	  if $node->pg_version < 17;
	is( $node->safe_psql(
			'postgres',
			"SELECT DISTINCT wait_event FROM pg_stat_activity WHERE pid IN ($pid_two, $pid_three)"
		),
		'IdempotencyClaim',
		'what they wait for has a name');
}
$one->rows("SELECT idem_finish('wait-lease', token => $held, scope => 'w')");
is(($two->answer)[1][0], 'replay', 'the result is waited for');
is(($three->answer)[1][0], 'replay', 'by both');
is(waiting('wait-lease'), '', 'no more in flight');

# For a transaction, also where the claim was made in a savepoint since released.
$one->rows('BEGIN; SAVEPOINT a');
claim_first($one, 'wait-xact');
$one->rows('RELEASE a');
start_waiting($two, 'wait-xact');
wait_until_waiting('wait-xact');
is(waiting('wait-xact'), "uncommitted|{$pid_two}", 'who waits for a transaction');
$one->rows("SELECT idem_finish('wait-xact', scope => 'w')");
is(waiting('wait-xact'), "uncommitted|{$pid_two}",
	'shown once while its end is not committed');
$one->rows('COMMIT');
is(($two->answer)[1][0], 'replay', 'and its result');

# Ways out other than an answer.
$held = claim_first($one, 'wait-cancel');
start_waiting($two, 'wait-cancel');
wait_until_waiting('wait-cancel');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid_two)");
is(($two->answer)[0], '57014', 'a cancelled wait');
is(waiting('wait-cancel'), 'leased|', 'leaves nothing behind');
start_waiting($three, 'wait-cancel');
wait_until_waiting('wait-cancel');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid_three, 60000)");
$node->poll_query_until('postgres',
	"SELECT waiting IS NULL FROM idem_in_flight WHERE request_id = 'wait-cancel'");
is(waiting('wait-cancel'), 'leased|', 'nor does a terminated one');
like(counters('w'), qr/ waits=4$/, 'waits are counted, cancelled ones too');
is( $node->safe_psql(
		'postgres',
		"SELECT wait_ms > 0 AND wait_ms < 1000 * $PostgreSQL::Test::Utils::timeout_default FROM idem_stat WHERE scope = 'w'"
	),
	't',
	'and how long they took');

my $logged = slurp_file($node->logfile, $log_offset);
is(scalar(() = $logged =~ /LOG:  idempotency claim in scope "w" waited for \d+ ms/g),
	4, 'long waits are logged');
unlike($logged, qr/ms\n[^\n]*(STATEMENT|CONTEXT|DETAIL):/, 'without key or body');
$node->safe_psql('postgres',
	'ALTER SYSTEM RESET idempotency.log_wait_min_duration; SELECT pg_reload_conf()');
$three->close;

# ---- tracking off, privileges -----------------------------------------------

my $before = counters('w');
$one->rows('SET idempotency.track = off');
$one->rows("SELECT idem_claim('off', scope => 'w')");
$one->rows('RESET idempotency.track');
is(counters('w'), $before, 'nothing is counted with track off');

$node->safe_psql(
	'postgres', q{
	CREATE ROLE tenant; CREATE ROLE stranger; CREATE ROLE boss;
	SELECT idem_grant('tenant'), idem_grant('stranger'), idem_grant('boss', administer => true);
	SELECT idem_configure('t', owner => 'tenant');
	SET ROLE tenant;
	SELECT idem_claim('secret', scope => 't');
});
sub seen_by
{
	my ($role, $what) = @_;
	return $node->safe_psql('postgres',
		"SET ROLE $role; SELECT count(*) FROM $what WHERE scope = 't'");
}
foreach my $what (
	'idem_stat', 'idem_in_flight',
	'idem_stat_counters()', 'idem_in_flight_claims()')
{
	is(seen_by('tenant', $what), '1', "$what: the owner sees his scope");
	is(seen_by('stranger', $what), '0', "$what: others do not");
}
foreach my $role ('tenant', 'stranger')
{
	my ($code) = $node->psql('postgres',
		"SET ROLE $role; SELECT idem_stat_reset()");
	is($code, 3, "$role may not reset");
}
$node->safe_psql('postgres', 'SET ROLE boss; SELECT idem_stat_reset()');
is(counters('w'), '', 'one who administers may');

# Refusals and mere looks take no slot: two of four are free.
$node->psql('postgres',
	"SET ROLE stranger; SELECT idem_claim('x', scope => 't/' || i) FROM generate_series(1, 9) i");
$node->safe_psql('postgres', 'SELECT count(*) FROM idem_log');
is( $node->safe_psql('postgres', 'SELECT count(*) FROM idem_stat'),
	'2', 'only scopes that were used have counters');

# ---- more scopes than slots, databases that are gone ------------------------

$one->rows("SELECT idem_claim('x', scope => 's' || i) FROM generate_series(1, 6) i");
is(counters('s2'), 'claimed=1', 'the last slot of its own');
is(counters(undef), 'claimed=4', 'the rest is counted together');
is( $node->safe_psql('postgres', "SELECT count(*) FROM idem_stat WHERE scope = 's3'"),
	'0',
	'and not by itself');

$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION idempotency');
my $in_other = session('other');
$in_other->rows("SELECT idem_claim('x', scope => 'o')");
is(counters('o', 'other'), '', 'no slot is left for another database');
is(counters(undef, 'other'), 'claimed=1', 'but one for all of its scopes');
$in_other->close;

# ---- restarts ---------------------------------------------------------------

$_->close foreach $one, $two;
my $kept = $node->safe_psql('postgres', 'SELECT * FROM idem_stat ORDER BY scope');
$node->restart;
is($node->safe_psql('postgres', 'SELECT * FROM idem_stat ORDER BY scope'),
	$kept, 'a clean restart keeps all');
is(counters(undef, 'other'), 'claimed=1', 'in every database');

# The other database's slot and the four of this one after DROP DATABASE.
$in_other = session('other');
$node->safe_psql('other', "SELECT idem_claim('y', scope => 'o')");
$in_other->close;
$node->safe_psql('template1', 'DROP DATABASE postgres WITH (FORCE)');
my $last = session('other');
$last->rows("SELECT idem_claim('z', scope => 'o' || i) FROM generate_series(1, 4) i");
is(counters('o4', 'other'), 'claimed=1', 'slots of a dropped database are used again');

# Somebody crashes: counters begin anew.
my $pid = $last->value('SELECT pg_backend_pid()');
kill 'KILL', $pid;
$node->poll_query_until('other', 'SELECT count(*) = 0 FROM idem_stat');
is($node->safe_psql('other', 'SELECT count(*) FROM idem_stat'),
	'0', 'no counters after a crash');
$node->safe_psql('other', "SELECT idem_claim('after', scope => 'o')");
is(counters('o', 'other'), 'claimed=1', 'and counting goes on');
$last->close;

# A file that makes no sense does no harm.
$node->stop;
my $file = $node->data_dir . '/pg_stat/idempotency.stat';
ok(-s $file, 'counters are in a file while the server is down');
{
	open(my $out, '+<', $file) or die $!;
	binmode $out;
	seek($out, 8, 0);
	print $out "\x7f" x 64;
	CORE::close($out);
}
$node->start;
ok(!-e $file, 'and in no file while it runs');
is($node->safe_psql('other', 'SELECT count(*) FROM idem_stat'), '0', 'a broken one is left out');

$node->stop;
done_testing();
