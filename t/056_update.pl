# ALTER EXTENSION UPDATE: a database that was updated along any path of scripts
# has the same objects as a new one, and keeps its requests.  With only one
# version the paths are empty; the comparison is what later versions extend.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

# All objects of the extension with what can differ, one a line.
my $objects = q(
WITH member AS (
	SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
	 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'idempotency')
SELECT pg_describe_object(classid, objid, 0) || ' ' || coalesce(obj_description(objid, classid::regclass::name), '-')
	   || ' ' || CASE classid
		 WHEN 'pg_proc'::regclass THEN (SELECT coalesce(pg_get_functiondef(p.oid), '') || coalesce(p.proacl::text, '-') FROM pg_proc p WHERE p.oid = objid)
		 WHEN 'pg_class'::regclass THEN (SELECT concat(c.relkind, c.relacl, c.reloptions, CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END) FROM pg_class c WHERE c.oid = objid)
		 ELSE '' END
  FROM member
 UNION ALL
SELECT a.attrelid::regclass || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' || a.attcollation
	   || coalesce(pg_get_expr(f.adbin, f.adrelid), '') || coalesce(col_description(a.attrelid, a.attnum), '-')
  FROM member JOIN pg_attribute a ON classid = 'pg_class'::regclass AND a.attrelid = objid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
 UNION ALL
SELECT pg_get_indexdef(i.indexrelid) FROM member JOIN pg_index i ON classid = 'pg_class'::regclass AND i.indrelid = objid
 UNION ALL
SELECT r.conrelid::regclass || ' ' || r.conname || ' ' || pg_get_constraintdef(r.oid) FROM member JOIN pg_constraint r ON classid = 'pg_class'::regclass AND r.conrelid = objid
 UNION ALL
SELECT pg_get_triggerdef(t.oid) FROM member JOIN pg_trigger t ON classid = 'pg_class'::regclass AND t.tgrelid = objid
 UNION ALL
SELECT 'dump ' || t.name::regclass || ' ' || t.condition FROM pg_extension e CROSS JOIN LATERAL unnest(e.extconfig, e.extcondition) t(name, condition) WHERE e.extname = 'idempotency'
 ORDER BY 1);

sub database
{
	my ($name, $version) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->safe_psql($name, 'CREATE EXTENSION idempotency' . ($version ? " VERSION '$version'" : ''));
	return;
}

database('fresh');
my $fresh = $node->safe_psql('fresh', $objects);
cmp_ok(scalar(split /\n/, $fresh), '>', 100, 'a new database has its objects');

my $default = $node->safe_psql('postgres',
	q(SELECT default_version FROM pg_available_extensions WHERE name = 'idempotency'));
my @versions = split /\n/, $node->safe_psql('postgres',
	q(SELECT version FROM pg_available_extension_versions WHERE name = 'idempotency'));
ok((grep { $_ eq $default } @versions), 'the default version can be installed');

my $n = 0;
for my $version (@versions)
{
	my $name = 'updated' . ++$n;
	database($name, $version);
	$node->safe_psql($name, q(
BEGIN; SELECT idem_claim('kept', '{"n": 1}'); SELECT idem_finish('kept', '"kept"'); COMMIT));
	$node->safe_psql($name, "ALTER EXTENSION idempotency UPDATE TO '$default'");
	is($node->safe_psql($name, $objects), $fresh, "updated from $version it has the same objects");
	is( $node->safe_psql($name, q(SELECT outcome, response_body FROM idem_claim('kept', '{"n": 1}'))),
		'replay|"kept"',
		"updated from $version it has its requests");
}
is( $node->safe_psql('postgres',
		"SELECT count(*) FROM pg_extension_update_paths('idempotency') WHERE target = '$default' AND path IS NULL"),
	'0',
	'there is a path from every version to this one');
$node->stop;
done_testing();
