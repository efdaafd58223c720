# Behind pgbouncer in transaction mode: the regression tests say the same as
# without it, also when other clients use the server between any two of their
# transactions, and the hammer finds nothing.
#
# IDEM_HAMMER_SECONDS: length of the hammer's run (default 15)
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Hammer;
use IPC::Run;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Pooler;
use PsqlSession;
use Test::More;
use Time::HiRes qw(usleep);

plan skip_all => 'needs pgbouncer' if !Pooler::is_there();

my $CLIENTS = 6;
my $SERVERS = 2;
my $KEYS = 30;
my $DATABASE = 'contrib_regression';

my @ALL = sort map { m{([^/]+)\.sql$} } glob("$FindBin::RealBin/../sql/*.sql");

# What keeps state in the session from one transaction to another, and so has to
# keep its server: a setting (above all the clock of the tests, and the role), a
# temporary table, a prepared statement, a cursor.  Those settings do not count
# that the database has as well (see below), or the pooler takes care of.
sub session_state
{
	my ($file) = @_;
	my $same = join('|', 'client_min_messages = warning', q(intervalstyle = 'postgres'), q(bytea_output = 'hex'),
		q(timezone = 'UTC'), q(datestyle = 'ISO'));

	return (grep {
		     /^SET (?!LOCAL|TRANSACTION|(?:$same);)/
		  || /^RESET |set_config\(|^CREATE TEMP|^PREPARE (?!TRANSACTION)|WITH HOLD/
	} split /\n/, slurp_file("$FindBin::RealBin/../sql/$file.sql"))[0];
}

# ---- clients that share servers --------------------------------------------

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '-E', 'UTF8', '--locale=C.UTF-8' ]);
$node->append_conf('postgresql.conf', "wal_level = logical\nmax_prepared_transactions = 20\n");
$node->start;

my $pooler = Pooler->new($node, 'few', servers => $SERVERS);
my $pooled = $pooler->connstr('postgres');

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
$pooler->stop;

# ---- the regression tests --------------------------------------------------

# What pg_regress sets by options, which do not go through the pooler.
$node->safe_psql('postgres', "CREATE DATABASE $DATABASE");
$node->safe_psql('postgres', "ALTER DATABASE $DATABASE SET intervalstyle = 'postgres_verbose'");

# Runs one file; what differed from what is expected, or nothing.
sub regress
{
	my ($file) = @_;
	my $differences = "$PostgreSQL::Test::Utils::tmp_check/regression.diffs";
	my $out = '';

	unlink $differences;
	my $passed = eval {
		IPC::Run::run(
			[
				$ENV{PG_REGRESS}, "--inputdir=$FindBin::RealBin/..",
				"--outputdir=$PostgreSQL::Test::Utils::tmp_check", '--use-existing', "--dbname=$DATABASE",
				"--host=$pooler->{host}", "--port=$pooler->{port}", '--bindir=', $file
			],
			'>&', \$out,
			IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	};
	return '' if $passed;
	return ($@ // '') . $out . (-e $differences ? slurp_file($differences) : '');
}

# Another client, of the same database: claims, finishes, and takes all back.
sub start_neighbour
{
	my $pid = fork;

	die "cannot fork: $!" if !defined $pid;
	return $pid if $pid;

	my $going = 1;
	local $SIG{TERM} = sub { $going = 0 };
	my $session = PsqlSession->new($pooler->connstr($DATABASE));
	while ($going)
	{
		# Errors are no matter: now and then the extension is not there, or the
		# role that the server was left with may do nothing.
		$session->run($_)
		  for 'BEGIN', q(SELECT public.idem_claim('neighbour', '{"a": 1}', wait => '1s')),
		  q(SELECT public.idem_finish('neighbour', '1')), 'ROLLBACK',
		  q(SELECT * FROM public.idem_lookup('neighbour'));
		usleep(1000);
	}
	$session->close;
	POSIX::_exit(0);
}

$pooler = Pooler->new($node, 'one', servers => 1);
my $neighbour = start_neighbour();
for my $file (@ALL)
{
	# What a file leaves in its session is not for the next one.
	$pooler->console("RECONNECT $DATABASE");
	my $wrong = regress($file);
	ok($wrong eq '', "$file, with another client between its transactions") or diag($wrong);
}
kill('TERM', $neighbour);
waitpid($neighbour, 0);
is($?, 0, 'the other client was there to the end');
$pooler->stop;

# Each transaction on another server, and on one that knows nothing but what
# the database sets.
$node->safe_psql('postgres', "ALTER DATABASE $DATABASE SET $_")
  for "intervalstyle = 'postgres'", 'client_min_messages = warning';
$pooler = Pooler->new($node, 'new', servers => 3,
	settings => [ 'server_round_robin = 1', 'server_reset_query_always = 1' ]);
my @open = map { PsqlSession->new($pooler->connstr($DATABASE)) } 1 .. 3;
$_->rows('BEGIN') for @open;
$_->rows('ROLLBACK') for @open;
$_->close for @open;
my $stateless = 0;
for my $file (@ALL)
{
	my $state = session_state($file);
	if (defined $state)
	{
		note("$file needs its session: $state");
		next;
	}
	my $wrong = regress($file);
	ok($wrong eq '', "$file, each transaction on another server") or diag($wrong);
	$stateless++;
}
cmp_ok($stateless, '>=', 5, 'there are tests that need no session');
$pooler->stop;
$node->stop;

# ---- the hammer ------------------------------------------------------------

$node = Hammer::new_node('hammer');
$pooler = Pooler->new($node, 'hammer', servers => 5);
Hammer::run($node, seconds => $ENV{IDEM_HAMMER_SECONDS} || 15, connstr => $pooler->connstr('postgres'));
$pooler->stop;
$node->stop;
done_testing();
