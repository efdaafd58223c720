# Behind pgbouncer in transaction mode, with fewer servers than clients: part of
# the regression tests says the same as without it, and claims, tokens and
# transactions of many clients do not get mixed up.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;

# Tests that keep no state in their session.
my @REGRESS = qw(fingerprint replay mismatch release);
my $CLIENTS = 6;
my $SERVERS = 2;
my $KEYS = 30;

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
plan skip_all => 'needs pgbouncer' if !$pgbouncer;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
my $directory = PostgreSQL::Test::Utils::tempdir_short;
my $port = PostgreSQL::Test::Cluster::get_free_port();

open(my $ini, '>', "$directory/pgbouncer.ini") or die $!;
print $ini join("\n",
	'[databases]',
	'* = host=' . $node->host . ' port=' . $node->port,
	'[pgbouncer]',
	'listen_addr =',
	"listen_port = $port",
	"unix_socket_dir = $directory",
	'auth_type = any',
	'pool_mode = transaction',
	"default_pool_size = $SERVERS",
	'ignore_startup_parameters = extra_float_digits,options',
	"logfile = $PostgreSQL::Test::Utils::tmp_check/log/pgbouncer.log",
	'');
close($ini);
open(my $log, '>', "$PostgreSQL::Test::Utils::tmp_check/log/054_pgbouncer.out") or die $!;
# "any" logs everybody in as the user of the database's definition.
{
	my $text = slurp_file("$directory/pgbouncer.ini");
	my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
	$text =~ s/^(\* = .*)$/$1 user=$superuser/m;
	open($ini, '>', "$directory/pgbouncer.ini") or die $!;
	print $ini $text;
	close($ini);
}
my $pooler = IPC::Run::start([ $pgbouncer, "$directory/pgbouncer.ini" ], '>&', $log);
my $pooled = "host=$directory port=$port dbname=postgres";
my $up = 0;
for (1 .. 100)
{
	$up = IPC::Run::run([ 'psql', '-Xqc', 'SELECT 1', '-d', $pooled ], '>', '/dev/null', '2>', '/dev/null');
	last if $up;
	select(undef, undef, undef, 0.1);
}
ok($up, 'the pooler is up');

# ---- clients that share servers --------------------------------------------

$node->safe_psql('postgres', 'CREATE EXTENSION idempotency; CREATE TABLE effect (request_id text, client int)');
my @clients = map { PsqlSession->new($pooled) } 1 .. $CLIENTS;
my %token;
my @wrong;
for my $n (1 .. $KEYS)
{
	# All want the same key, each in a transaction of its own.
	$_->start("SELECT outcome, token FROM idem_claim('key $n', lease => '1 hour')") for @clients;
	my $granted = 0;
	for my $c (0 .. $#clients)
	{
		my ($sqlstate, $row) = $clients[$c]->answer;
		push @wrong, "key $n: $sqlstate" if $sqlstate ne '00000';
		next if $row->[0] ne 'claimed';
		$granted++;
		$token{$n} = [ $c, $row->[1] ];
	}
	push @wrong, "key $n: granted $granted times" if $granted != 1;
}
for my $n (1 .. $KEYS)
{
	my ($c, $token) = @{ $token{$n} };
	my $other = $clients[ ($c + 1) % $CLIENTS ];

	# Whoever gets the holder's server does not get his claim.
	my ($sqlstate) = $other->run("SELECT idem_finish('key $n')");
	push @wrong, "key $n: a stranger without the token got $sqlstate" if $sqlstate ne 'ID002';
	($sqlstate) = $clients[$c]->run(
		"BEGIN; SELECT idem_finish('key $n', '$c', token => $token); INSERT INTO effect VALUES ('key $n', $c); COMMIT");
	push @wrong, "key $n: the holder got $sqlstate" if $sqlstate ne '00000';
}
is(join("\n", @wrong), '', 'one client gets each key and ends it');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT request_id) FROM effect'),
	"$KEYS|$KEYS", 'each has one effect');

# A client that leaves in the middle of a transaction leaves nothing behind.
my $leaver = PsqlSession->new($pooled);
$leaver->rows('BEGIN');
$leaver->rows("SELECT idem_claim('left')");
$leaver->close;
ok( $node->poll_query_until('postgres',
		q(SELECT outcome = 'claimed' FROM idem_claim('left'))),
	'the claim of a client that left is free');
is( $clients[0]->value("SELECT idem_current() IS NULL"), undef, 'nobody is in a handler');
$_->close for @clients;
cmp_ok($node->safe_psql('postgres', q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')),
	'<=', $SERVERS + 1, 'with so few servers');

# ---- the regression tests --------------------------------------------------

my $top = "$FindBin::RealBin/..";
my $out = '';
my $passed = IPC::Run::run(
	[
		$ENV{PG_REGRESS}, "--inputdir=$top",
		"--outputdir=$PostgreSQL::Test::Utils::tmp_check", '--use-existing', '--dbname=postgres',
		"--host=$directory", "--port=$port", '--bindir=', @REGRESS
	],
	'>&', \$out);
ok($passed, 'regression tests through the pooler') or diag($out);

$pooler->signal('INT');
$pooler->finish;
$node->stop;
done_testing();
