# A promotion of a synchronous standby in the midst of work: with
# synchronous_commit = on nothing that was acknowledged is lost, neither a finish
# with its effect and its response nor the claim of a holder who is at work, and
# tokens go on growing.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;
use Time::HiRes qw(usleep);

my $CLIENTS = 4;
my $ACKNOWLEDGED = 200;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->start;
$primary->safe_psql('postgres',
	'CREATE EXTENSION idempotency; CREATE TABLE effect (request_id text, token bigint)');
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'hot_standby_feedback = on');
$standby->start;
$primary->append_conf('postgresql.conf', q(
synchronous_commit = on
synchronous_standby_names = '*'
));
$primary->reload;
$primary->poll_query_until('postgres',
	q(SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'))
  or die 'the standby is not synchronous';

# ---- clients ---------------------------------------------------------------

# What is acknowledged goes to a file of the client, a line each: how, key, token
# and response.
sub acknowledged_file
{
	my ($client) = @_;
	return "$PostgreSQL::Test::Utils::tmp_check/acknowledged-$client";
}

sub response
{
	my ($client, $n) = @_;
	return qq({"client": $client, "n": $n, "text": "\\u00fc 0.10"});
}

# One request, in one transaction or in two; undef where the server is gone.
sub request
{
	my ($session, $note, $client, $n) = @_;
	my $key = "$client-$n";
	my $two = $n % 2;
	my $give_up = sub { return undef };

	($session->run('BEGIN'))[0] eq '00000' or return undef;
	my ($sqlstate, $row) = $session->run("SELECT token FROM idem_claim('$key', lease => '1 hour')");
	return undef if $sqlstate ne '00000';
	my $token = $row->[0];
	if ($two)
	{
		($session->run('COMMIT'))[0] eq '00000' or return undef;
		print $note join("\t", 'claimed', $key, $token, ''), "\n";
		# Some holders are at work when the primary is lost.
		return 1 if $n % 7 == 0;
		($session->run('BEGIN'))[0] eq '00000' or return undef;
	}
	for my $sql (
		"INSERT INTO effect VALUES ('$key', $token)",
		"SELECT idem_finish('$key', '" . response($client, $n) . "', 201, $token)",
		'COMMIT')
	{
		($session->run($sql))[0] eq '00000' or return undef;
	}
	print $note join("\t", 'finished', $key, $token, response($client, $n)), "\n";
	return 1;
}

sub start_client
{
	my ($client) = @_;
	my $pid = fork;

	die "cannot fork: $!" if !defined $pid;
	return $pid if $pid;
	local $SIG{PIPE} = 'IGNORE';
	open(my $note, '>', acknowledged_file($client)) or die $!;
	$note->autoflush(1);
	my $session = PsqlSession->new($primary->connstr('postgres'));
	my $n = 0;
	1 while request($session, $note, $client, ++$n);
	POSIX::_exit(0);
}

sub acknowledged
{
	my @lines;
	for my $client (1 .. $CLIENTS)
	{
		next if !-e acknowledged_file($client);
		push @lines, split /\n/, slurp_file(acknowledged_file($client));
	}
	return map { [ split /\t/, $_, -1 ] } @lines;
}

# ---- the primary is lost ---------------------------------------------------

my @pids = map { start_client($_) } 1 .. $CLIENTS;
my $enough = 0;
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	$enough = acknowledged() >= $ACKNOWLEDGED;
	last if $enough;
	usleep(100_000);
}
ok($enough, 'the clients are at work');
$primary->stop('immediate');
waitpid($_, 0) for @pids;
$standby->promote;
# No third server: nobody to wait for.
$standby->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$standby->reload;

# ---- what must be there ----------------------------------------------------

my $session = PsqlSession->new($standby->connstr('postgres'));
my (%finished, %claimed, @wrong);
for my $record (acknowledged())
{
	my ($how, $key, $token, $body) = @$record;
	$claimed{$key} = $token if $how eq 'claimed';
	$finished{$key} = [ $token, $body ] if $how eq 'finished';
}
note(scalar(keys %finished) . ' finished, ' . scalar(keys %claimed) . ' claimed in a transaction of its own');

for my $key (sort keys %finished)
{
	my ($token, $body) = @{ $finished{$key} };
	my ($row) = $session->rows(
		"SELECT outcome, response_code, response_body = '$body', (SELECT count(*) FROM effect WHERE request_id = '$key' AND token = $token) FROM idem_claim('$key')");
	my $answer = join(' ', map { $_ // 'NULL' } @$row);
	push @wrong, "$key: $answer" if $answer ne 'replay 201 t 1';
}
is(join("\n", @wrong), '', 'every finish that was acknowledged is there, with its effect and its response');

@wrong = ();
my $resumed = 0;
for my $key (grep { !$finished{$_} } sort keys %claimed)
{
	# Some may have finished, and not heard of it.
	my ($row) = $session->rows("SELECT outcome FROM idem_claim('$key')");
	next if $row->[0] eq 'replay';
	push @wrong, "$key: $row->[0]" if $row->[0] ne 'in_progress';
	my ($sqlstate, $finish) = $session->run("SELECT idem_finish('$key', token => $claimed{$key})");
	push @wrong, "$key: the holder got $sqlstate" if $sqlstate ne '00000' || $finish->[0] ne 't';
	$resumed++;
}
is(join("\n", @wrong), '', 'every claim that was acknowledged is held, and its holder finishes');
cmp_ok($resumed, '>', 0, 'there were such holders');

# What was not acknowledged is all or nothing.
is( $session->value(
		q(SELECT count(*) FROM transaction_log l FULL JOIN effect e USING (request_id)
		   WHERE (l.response_code = 201) IS DISTINCT FROM (e.request_id IS NOT NULL) AND l.response_code IS NOT NULL
		      OR l.request_id IS NULL OR e.token <> l.token)),
	'0',
	'an effect is there exactly where its finish is');
is($session->value('SELECT count(*) - count(DISTINCT request_id) FROM effect'), '0', 'and once');

my $greatest = $session->value('SELECT max(token) FROM transaction_log');
cmp_ok($session->value("SELECT token FROM idem_claim('after')"), '>', $greatest, 'tokens go on growing');
$session->close;
$standby->stop;
done_testing();
