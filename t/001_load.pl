# The library loads in every way there is, the extension installs into any
# schema that the server lets it, and leaves nothing behind.
#
# See t/README for the conventions of these tests.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Legal, though nobody should: needs quotes, ends statements, formats.  (The
# server itself refuses quotes, dollars, backslashes, comments and its own
# placeholders here.)
my $hostile_schema = 'Select; DROP (100%s) %I @here@ ';
my $quoted_schema = qq{"$hostile_schema"};

# Catalogs in which an extension may leave something.
my @catalogs = qw(
  pg_am pg_attrdef pg_cast pg_class pg_collation pg_constraint pg_depend
  pg_description pg_event_trigger pg_extension pg_index pg_init_privs
  pg_namespace pg_operator pg_proc pg_rewrite pg_shdepend pg_trigger pg_type);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

# Numbers of rows of all these, as one line.
sub inventory
{
	return $node->safe_psql(
		'postgres',
		join(' UNION ALL ',
			map { "SELECT '$_=' || count(*) FROM $_" } @catalogs)
		  . ' ORDER BY 1');
}

# Both sessions, one that loads the library by hand and one that finds it.
sub settings_are_there
{
	my ($load, $how) = @_;

	is($node->safe_psql('postgres', "$load SHOW idempotency.default_ttl"),
		'1d', "$how: settings have their defaults");

	my ($status, $out, $err) =
	  $node->psql('postgres', "$load SET idempotency.no_such_setting = 1");
	isnt($status, 0, "$how: a misspelt setting is refused");
	like($err, qr/idempotency\.no_such_setting/,
		"$how: the message names the setting");
}

sub installs_and_leaves_nothing
{
	my ($how) = @_;

	$node->safe_psql('postgres', "CREATE SCHEMA $quoted_schema");
	my $before = inventory();

	$node->safe_psql('postgres',
		"CREATE EXTENSION idempotency SCHEMA $quoted_schema");
	isnt(inventory(), $before, "$how: the extension makes objects");
	is( $node->safe_psql('postgres',
			"SELECT count(*) FROM $quoted_schema.transaction_log"),
		'0',
		"$how: the log is in a schema with a hostile name");
	is( $node->safe_psql(
			'postgres', q{
			SELECT count(*)
			  FROM pg_depend d
			  JOIN pg_class c ON c.oid = d.objid
			  JOIN pg_extension e ON e.oid = d.refobjid
			 WHERE d.classid = 'pg_class'::regclass
			   AND d.refclassid = 'pg_extension'::regclass
			   AND d.deptype = 'e'
			   AND e.extname = 'idempotency'
			   AND c.relnamespace <> e.extnamespace}),
		'0',
		"$how: all relations are in the schema that was asked for");

	$node->safe_psql('postgres', 'DROP EXTENSION idempotency');
	is(inventory(), $before, "$how: DROP EXTENSION leaves nothing");

	$node->safe_psql('postgres',
		"BEGIN; CREATE EXTENSION idempotency SCHEMA $quoted_schema; ROLLBACK");
	is(inventory(), $before, "$how: neither does a rollback");

	$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');
	$node->safe_psql('postgres', 'DROP EXTENSION idempotency');
	is(inventory(), $before, "$how: the same in the default schema");

	$node->safe_psql('postgres', "DROP SCHEMA $quoted_schema");
}

# The server itself refuses schemas whose names break scripts; a refused
# installation leaves nothing either.
sub refused_installations
{
	my $before = inventory();

	isnt(
		$node->psql(
			'postgres',
			q{CREATE SCHEMA "it's"; CREATE EXTENSION idempotency SCHEMA "it's"}
		),
		0,
		'a schema with a quote in its name is refused');
	$node->safe_psql('postgres', q{DROP SCHEMA "it's"});
	is(inventory(), $before, 'and nothing is left of it');

	$node->safe_psql('postgres',
		'CREATE ROLE plain; GRANT CREATE ON DATABASE postgres TO plain');
	isnt(
		$node->psql(
			'postgres', 'SET ROLE plain; CREATE EXTENSION idempotency'),
		0,
		'only a superuser installs');
	$node->safe_psql('postgres', 'DROP OWNED BY plain; DROP ROLE plain');
	is( $node->safe_psql('postgres',
			q{SELECT count(*) FROM pg_extension WHERE extname = 'idempotency'}
		),
		'0',
		'and nothing is installed');
}

settings_are_there(q{LOAD 'idempotency';}, 'LOAD');
installs_and_leaves_nothing('no preload');
refused_installations();

$node->append_conf('postgresql.conf',
	q{session_preload_libraries = 'idempotency'});
$node->reload;
$node->poll_query_until('postgres',
	q{SELECT current_setting('idempotency.default_ttl', true) = '1d'});
settings_are_there('', 'session_preload_libraries');

$node->append_conf(
	'postgresql.conf', q{
session_preload_libraries = ''
shared_preload_libraries = 'idempotency'
});
$node->restart;
settings_are_there('', 'shared_preload_libraries');
settings_are_there(q{LOAD 'idempotency';}, 'LOAD after preload');
installs_and_leaves_nothing('shared_preload_libraries');

$node->stop;
unlike(
	slurp_file($node->logfile),
	qr/PANIC:|TRAP:|was terminated by signal|WARNING:.*(leak|was not closed)/,
	'the server log is clean');

done_testing();
