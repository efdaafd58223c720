# A dump may be restored into a database of another encoding: the fingerprints
# of requests stay the same.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '--encoding', 'UTF8', '--locale', 'C' ]);
$node->start;
$ENV{PGCLIENTENCODING} = 'UTF8';

$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');
$node->safe_psql('postgres',
	"CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
$node->safe_psql('latin', 'CREATE EXTENSION idempotency');

# keys of one length in one encoding have different lengths in the other
my $body = '{"name": "José", "é": 1, "zz": {"ü": [1, "ß"], "aaa": null}}';
my $fingerprint = "SELECT idem_fingerprint('$body')";
is( $node->safe_psql('latin', $fingerprint),
	$node->safe_psql('postgres', $fingerprint),
	'the same fingerprint in both encodings');

$node->safe_psql('latin', "SELECT outcome FROM idem_claim('k', '$body')");
my $dump = $node->basedir . '/latin.sql';
command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('latin') ],
	'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
command_ok(
	[
		'psql', '-Xq', '-o', '/dev/null', '-v', 'ON_ERROR_STOP=1',
		'-f', $dump, '-d', $node->connstr('restored')
	],
	'restored into UTF8');
is( $node->safe_psql('restored',
		"SELECT outcome FROM idem_claim('k', '$body')"),
	'in_progress',
	'the same request is recognized');
is( $node->safe_psql('restored',
		q{SELECT outcome FROM idem_claim('k', '{"name": "Jose"}')}),
	'mismatch',
	'another one is refused');

# In SQL_ASCII nobody knows what the bytes are: they are taken as they are.
$node->safe_psql('postgres',
	"CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0");
$node->safe_psql('bytes', 'CREATE EXTENSION idempotency');
{
	local $ENV{PGCLIENTENCODING} = 'SQL_ASCII';
	is( $node->safe_psql('bytes', "SELECT outcome FROM idem_claim('latin', '{\"name\": \"Jos\xe9\"}')"),
		'claimed',
		'a body that is no UTF8');
	is( $node->safe_psql('bytes', "SELECT outcome FROM idem_claim('latin', '{\"name\": \"Jos\xe8\"}')"),
		'mismatch',
		'and another one');
}

$node->stop;
done_testing();
