# Guards through dump and restore, on a subscriber, and under many sessions
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 'logical');
$node->append_conf('postgresql.conf', 'max_connections = 80');
$node->start;

my $machine = q{SELECT idem.idem_machine('order', ARRAY['created'],
	ARRAY['created->confirmed', 'confirmed->shipped', 'created->cancelled', 'confirmed->cancelled']);};

sub install
{
	my ($db) = @_;
	$node->safe_psql('postgres', qq{CREATE DATABASE $db});
	$node->safe_psql($db, 'CREATE SCHEMA idem; CREATE EXTENSION idempotency SCHEMA idem');
}

# The SQLSTATE of a statement, or ok.
sub state_of
{
	my ($db, $sql) = @_;
	my ($rc, $out, $err) = $node->psql($db, "\\set VERBOSITY sqlstate\n$sql");
	return $err =~ /ERROR:\s+(\S+)/ ? $1 : $rc == 0 ? 'ok' : "rc $rc";
}

sub holds
{
	my ($db, $what) = @_;
	is(state_of($db, q{UPDATE shop.orders SET state = 'created' WHERE id = 1}),
		'ID007', "$what: state guard holds");
	is(state_of($db, q{UPDATE shop.orders SET version = 9 WHERE id = 1}),
		'ID008', "$what: version guard holds");
	is(state_of($db, q{UPDATE shop.parts SET region = 2, state = 'created' WHERE id = 1}),
		'ID007', "$what: partitioned table is guarded");
	is( $node->safe_psql($db,
			q{UPDATE shop.parts SET region = 2 WHERE id = 1 RETURNING state, version}),
		'shipped|4', "$what: a move is an update");
	is( $node->safe_psql($db,
			q{SELECT * FROM idem.idem_transition('shop.orders', '1', 'confirmed', expected_version => 3)}),
		'already|shipped|3', "$what: idem_transition finds the guards");
}

install('origin');
$node->safe_psql('origin', $machine . q{
	CREATE SCHEMA shop;
	CREATE TABLE shop.orders (id int PRIMARY KEY, status text DEFAULT 'created', version int);
	CREATE TABLE shop.parts (id int, region int, state text DEFAULT 'created', version int, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
	CREATE TABLE shop.parts1 PARTITION OF shop.parts FOR VALUES IN (1);
	CREATE TABLE shop.parts2 (version int, state text, region int NOT NULL, id int NOT NULL);
	ALTER TABLE shop.parts ATTACH PARTITION shop.parts2 FOR VALUES IN (2);
	SELECT idem.idem_guard_state('shop.orders', 'status', 'order', true), idem.idem_guard_version('shop.orders');
	SELECT idem.idem_guard_state('shop.parts', 'state', 'order', true), idem.idem_guard_version('shop.parts');
	ALTER TABLE shop.orders RENAME status TO state;
	INSERT INTO shop.orders VALUES (1), (2);
	INSERT INTO shop.parts VALUES (1, 1);
	UPDATE shop.orders SET state = 'confirmed' WHERE id = 1;
	UPDATE shop.orders SET state = 'shipped' WHERE id = 1;
	UPDATE shop.parts SET state = 'confirmed';
	UPDATE shop.parts SET state = 'shipped';
});
my $history = $node->safe_psql('origin',
	'SELECT * FROM idem.idempotency_machine_history ORDER BY changed_at');

# a standby answers what needs no write
$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is($standby->safe_psql('origin', q{SELECT outcome FROM idem.idem_transition('shop.orders', '1', 'confirmed')}),
	'already', 'standby tells a repeat');
is(($standby->psql('origin', q{SELECT outcome FROM idem.idem_transition('shop.orders', '1', 'nowhere')}))[1],
	'rejected', 'standby tells what is not allowed');
like(($standby->psql('origin', "\\set VERBOSITY sqlstate\n" . q{SELECT outcome FROM idem.idem_transition('shop.orders', '2', 'confirmed')}))[2],
	qr/25006/, 'standby makes no step');
$standby->stop;

# a dump of the whole database
my $dump = $node->basedir . '/whole.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr('origin') ], 'dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('restored') ], 'restore');
is( $node->safe_psql('restored',
		'SELECT * FROM idem.idempotency_machine_history ORDER BY changed_at'),
	$history, 'history is restored');
is($node->safe_psql('restored', 'SELECT id, state, version FROM shop.orders ORDER BY id'),
	"1|shipped|3\n2|created|1", 'rows are restored as they were');
holds('restored', 'whole database');

# a dump of one schema, into a database that has the extension
$dump = $node->basedir . '/schema.sql';
$node->command_ok([ 'pg_dump', '-n', 'shop', '-f', $dump, $node->connstr('origin') ], 'dump of a schema');
install('oneschema');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('oneschema') ], 'restore of a schema');
is(state_of('oneschema', q{UPDATE shop.orders SET state = 'confirmed' WHERE id = 2}),
	'42704', 'without its machine a guard lets nothing pass');
is(state_of('oneschema', q{UPDATE shop.orders SET version = 9 WHERE id = 2}),
	'ID008', 'the version guard needs no definition');
$node->safe_psql('oneschema', $machine);
holds('oneschema', 'one schema');

# data only: the guards are there already and judge, unless they are told not to
$dump = $node->basedir . '/data.sql';
$node->command_ok([ 'pg_dump', '-a', '-n', 'shop', '--disable-triggers', '-f', $dump, $node->connstr('origin') ], 'dump of data');
$node->safe_psql('oneschema', 'TRUNCATE shop.orders, shop.parts');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('oneschema') ], 'restore of data');
holds('oneschema', 'data with --disable-triggers');
$dump = $node->basedir . '/bare.sql';
$node->command_ok([ 'pg_dump', '-a', '-n', 'shop', '-f', $dump, $node->connstr('origin') ], 'dump of bare data');
$node->safe_psql('oneschema', 'TRUNCATE shop.orders, shop.parts');
$node->command_fails([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('oneschema') ],
	'bare data in later states is refused');
$node->command_ok(
	[ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-c', 'SET session_replication_role = replica', '-f', $dump,
		$node->connstr('oneschema') ], 'session_replication_role = replica lets it pass');
holds('oneschema', 'bare data');

# a subscriber takes rows as they come, and is guarded against its own writers
install('subscriber');
$node->safe_psql('subscriber', $machine . q{
	CREATE SCHEMA shop;
	CREATE TABLE shop.orders (id int PRIMARY KEY, state text DEFAULT 'created', version int);
	SELECT idem.idem_guard_state('shop.orders', 'state', 'order', true), idem.idem_guard_version('shop.orders');
});
$node->safe_psql('origin', q{CREATE PUBLICATION p FOR TABLE shop.orders});
$node->safe_psql('origin', q{SELECT pg_create_logical_replication_slot('s', 'pgoutput')});
my $connection = $node->connstr('origin');
$connection =~ s/'/''/g;
$node->safe_psql('subscriber', qq{CREATE SUBSCRIPTION s CONNECTION '$connection' PUBLICATION p WITH (create_slot = false, slot_name = s)});
$node->wait_for_subscription_sync($node, 's', 'subscriber') if $node->can('wait_for_subscription_sync');
$node->poll_query_until('subscriber', q{SELECT count(*) = 2 FROM shop.orders}) or die;
$node->safe_psql('origin', q{UPDATE shop.orders SET state = 'confirmed' WHERE id = 2; INSERT INTO shop.orders VALUES (3)});
$node->poll_query_until('subscriber', q{SELECT count(*) = 3 FROM shop.orders}) or die;
is($node->safe_psql('subscriber', 'SELECT * FROM shop.orders ORDER BY id'),
	$node->safe_psql('origin', 'SELECT * FROM shop.orders ORDER BY id'), 'subscriber has the same rows');
is($node->safe_psql('subscriber', 'SELECT count(*) FROM idem.idempotency_machine_history'),
	'0', 'steps are in the history of the origin only');
is(state_of('subscriber', q{UPDATE shop.orders SET state = 'created' WHERE id = 2}),
	'ID007', "subscriber's own writers are guarded");
$node->safe_psql('subscriber', 'ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s');
$node->safe_psql('origin', q{SELECT pg_drop_replication_slot('s') FROM pg_stat_replication WHERE false});

# fifty sessions make the same step at once, on few rows, again and again
$node->safe_psql('origin', q{
	CREATE TABLE shop.hot (id int PRIMARY KEY, state text DEFAULT 'created', version int);
	SELECT idem.idem_guard_state('shop.hot', 'state', 'order', true), idem.idem_guard_version('shop.hot');
	INSERT INTO shop.hot SELECT generate_series(1, 6);
	CREATE TABLE shop.answers (id int, step text, outcome text);
});
my $script = $node->basedir . '/step.sql';
append_to_file($script, q{
\set id random(1, 6)
BEGIN;
INSERT INTO shop.answers SELECT :id, 'confirmed', outcome FROM idem.idem_transition('shop.hot', :id::text, 'confirmed');
COMMIT;
BEGIN;
INSERT INTO shop.answers SELECT :id, 'shipped', outcome FROM idem.idem_transition('shop.hot', :id::text, 'shipped');
COMMIT;
});
$node->command_checks_all(
	[ 'pgbench', '-n', '-c', '50', '-j', '2', '-t', '4', '-f', $script, $node->connstr('origin') ],
	0, [qr/number of transactions actually processed: 200\/200/], [qr/^((?!ERROR|deadlock).)*$/s],
	'fifty sessions without an error');
is( $node->safe_psql('origin', q{
		SELECT count(*) FROM (SELECT id, step FROM shop.answers WHERE outcome = 'applied' GROUP BY id, step HAVING count(*) <> 1) t}),
	'0', 'no step is applied twice');
is( $node->safe_psql('origin', q{
		SELECT count(DISTINCT (id, step)) = count(*) FILTER (WHERE outcome = 'applied') FROM shop.answers}),
	't', 'each step is applied once');
is( $node->safe_psql('origin', q{SELECT string_agg(DISTINCT outcome, ',') FROM shop.answers}),
	'already,applied', 'all others found it made');
is( $node->safe_psql('origin', q{
		SELECT count(*) FROM shop.hot h WHERE version <> 3 AND EXISTS (SELECT FROM shop.answers a WHERE a.id = h.id)}),
	'0', 'versions count the steps');
unlike(slurp_file($node->logfile), qr/deadlock detected/, 'no deadlock');

$node->stop;
done_testing();
