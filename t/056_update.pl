# ALTER EXTENSION UPDATE: a database that was updated along any path of scripts
# has the same objects as a new one, to the last label, comment and privilege,
# and keeps its requests.
#
# A version that does not exist any more, or not yet, cannot be tried: so the
# test makes older versions of its own, in a copy of the installation.  Those
# whose update script mends all that they lack must come out the same; those
# whose script forgets one thing must not, and so it is known that the comparison
# (Catalog.pm) sees each kind of thing.
use strict;
use warnings;

use File::Basename qw(basename dirname);
use File::Path qw(make_path);
use FindBin;
use lib $FindBin::RealBin;

use Catalog;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# ---- an installation of its own --------------------------------------------

sub config
{
	my ($what) = @_;
	my ($out) = run_command([ 'pg_config', "--$what" ]);
	return $out;
}

# A server finds its files by where it is itself: so its program is copied, and
# all that is only read are links.
my ($bin, $lib, $share) = map { config($_) } qw(bindir pkglibdir sharedir);
my $root = PostgreSQL::Test::Utils::tempdir;
make_path("$root$bin", "$root$share/extension", dirname("$root$lib"));
symlink($lib, "$root$lib") or die "link to $lib: $!";
for my $program (glob("$bin/*"))
{
	my $name = basename($program);
	next if $name eq 'postmaster';
	if ($name =~ /^(?:postgres|initdb|pg_ctl|pg_config)$/)
	{
		system_or_bail('cp', $program, "$root$program");
		next;
	}
	symlink($program, "$root$program") or die "link to $program: $!";
}
for my $file (glob("$share/*"), glob("$share/extension/*"))
{
	next if $file eq "$share/extension";
	symlink($file, "$root$file") or die "link to $file: $!";
}

my $node = PostgreSQL::Test::Cluster->new('main', install_path => dirname("$root$bin"));
$node->init;
$node->start;
is($node->safe_psql('postgres', q(SELECT setting FROM pg_config WHERE name = 'SHAREDIR')),
	"$root$share", 'the server runs in a copy of the installation');

my $default = $node->safe_psql('postgres',
	q(SELECT default_version FROM pg_available_extensions WHERE name = 'idempotency'));
my @released = split /\n/, $node->safe_psql('postgres',
	q(SELECT version FROM pg_available_extension_versions WHERE name = 'idempotency' ORDER BY 1));
my $script = slurp_file("$share/extension/idempotency--$default.sql");

sub write_script
{
	my ($name, @parts) = @_;
	PostgreSQL::Test::Utils::append_to_file("$root$share/extension/idempotency--$name.sql", join("\n", @parts, ''));
	return;
}

# An older version: the present one, but for what these statements undo, and the
# script that is to mend it.
sub older_version
{
	my ($version, $to, $undo, @mend) = @_;
	write_script($version, $script, $undo);
	write_script("$version--$to", @mend);
	return;
}

# ---- the comparison --------------------------------------------------------

# What differs between a new installation and one that was updated; both are
# taken back.
my $fresh = $node->safe_psql('postgres', 'BEGIN; CREATE EXTENSION idempotency; ' . Catalog::listing() . '; ROLLBACK');
cmp_ok(scalar(split /\n/, $fresh), '>', 1000, 'a new installation has its objects');

sub difference
{
	my ($version) = @_;
	my $updated = $node->safe_psql('postgres',
		"BEGIN; CREATE EXTENSION idempotency VERSION '$version'; ALTER EXTENSION idempotency UPDATE; "
		  . Catalog::listing()
		  . '; ROLLBACK');
	return Catalog::difference($fresh, $updated);
}

# ---- the versions that exist -----------------------------------------------

ok((grep { $_ eq $default } @released), 'the default version can be installed');
is( $node->safe_psql('postgres',
		"SELECT count(*) FROM pg_extension_update_paths('idempotency') WHERE target = '$default' AND path IS NULL"),
	'0',
	'there is a path from every version to this one');

# Requests in all states live through it.
sub requests_are_kept
{
	my ($version) = @_;
	my $name = 'kept_' . $version =~ s/\W/_/gr;

	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->safe_psql($name, "CREATE EXTENSION idempotency VERSION '$version'");
	$node->safe_psql($name, q(
BEGIN; SELECT idem_claim('kept', '{"n": 1}'); SELECT idem_finish('kept', '"kept"'); COMMIT;
SELECT idem_claim('held', lease => '1 hour');
SELECT idem_claim('lapsed', lease => '1 us')));
	my $rows = q(SELECT request_id, status, attempt, token, response_body, due_at FROM transaction_log ORDER BY 1);
	my $before = $node->safe_psql($name, $rows);
	my $held = $node->safe_psql($name, q(SELECT token FROM transaction_log WHERE request_id = 'held'));
	$node->safe_psql($name, 'ALTER EXTENSION idempotency UPDATE');
	is($node->safe_psql($name, $rows), $before, "updated from $version it has its requests");
	is( $node->safe_psql($name, q(SELECT outcome, response_body FROM idem_claim('kept', '{"n": 1}'))),
		'replay|"kept"',
		"updated from $version it replays them");
	is($node->safe_psql($name, "SELECT idem_finish('held', token => $held)"),
		't', "updated from $version the holder finishes");
	is($node->safe_psql($name, q(SELECT outcome, attempt FROM idem_claim('lapsed'))),
		'claimed|2', "updated from $version a lapsed claim is taken over");
	return;
}

for my $version (@released)
{
	is(difference($version), '', "updated from $version it has the same objects");
	requests_are_kept($version);
}

# ---- an update that mends all ----------------------------------------------

my $once = q(
COMMENT ON FUNCTION @extschema@.idem_purge(bigint) IS 'as it was once';
ALTER FUNCTION @extschema@.idem_fingerprint(jsonb, text[]) STABLE;
GRANT EXECUTE ON FUNCTION @extschema@.idem_purge(bigint) TO PUBLIC;
REVOKE EXECUTE ON FUNCTION @extschema@.idem_fingerprint(jsonb, text[]) FROM PUBLIC;
DROP INDEX @extschema@.idempotency_inbox_expires_at_idx;
DROP VIEW @extschema@.idem_purge_lag;
CREATE FUNCTION @extschema@.idem_old() RETURNS int LANGUAGE sql AS 'SELECT 1';
);
older_version('0.9', $default, $once, q(
COMMENT ON FUNCTION @extschema@.idem_purge(bigint) IS 'Removes one batch of expired requests and messages, in the transaction of the caller';
ALTER FUNCTION @extschema@.idem_fingerprint(jsonb, text[]) IMMUTABLE;
REVOKE EXECUTE ON FUNCTION @extschema@.idem_purge(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@.idem_fingerprint(jsonb, text[]) TO PUBLIC;
CREATE INDEX idempotency_inbox_expires_at_idx ON @extschema@.idempotency_inbox (expires_at);
COMMENT ON INDEX @extschema@.idempotency_inbox_expires_at_idx IS 'Finds what the purge has to remove';
DROP FUNCTION @extschema@.idem_old();
),
	# taken from the script itself, so that it stays the same
	join('', $script =~ /^(CREATE VIEW \@extschema\@\.idem_purge_lag .*?)^(?=CREATE|\/\*)/ms));
# By way of another version.
older_version('0.8', '0.9', $once, 'SELECT 1;');
for my $version ('0.9', '0.8')
{
	is(difference($version), '', "updated from $version, by a script that mends all, it has the same objects");
	requests_are_kept($version);
}

# ---- updates that forget one thing -----------------------------------------

my @forgotten = (
	[ 'comment of a function', 'COMMENT ON FUNCTION @extschema@.idem_purge(bigint) IS NULL' ],
	[ 'comment of a column', 'COMMENT ON COLUMN @extschema@.transaction_log.token IS NULL' ],
	[ 'comment of a trigger', 'COMMENT ON TRIGGER idem_definition_changed ON @extschema@.idempotency_scope IS NULL' ],
	[ 'volatility', 'ALTER FUNCTION @extschema@.idem_fingerprint(jsonb, text[]) STABLE' ],
	[ 'parallel label', 'ALTER FUNCTION @extschema@.idem_purge(bigint) PARALLEL SAFE' ],
	[ 'strictness', 'ALTER FUNCTION @extschema@.idem_purge(bigint) STRICT' ],
	[ 'rows', 'ALTER FUNCTION @extschema@.idem_lookup(text, text) ROWS 7' ],
	[ 'setting of a function', 'ALTER FUNCTION @extschema@.idem_grant(regrole, boolean) RESET ALL' ],
	[ 'whose rights a function has', 'ALTER FUNCTION @extschema@.idem_purge(bigint) SECURITY DEFINER' ],
	[ 'entry point', q(CREATE OR REPLACE FUNCTION @extschema@.idem_definition_changed() RETURNS trigger LANGUAGE c AS 'MODULE_PATHNAME', 'idem_guard_state_check') ],
	[ 'default of an argument', q(CREATE OR REPLACE FUNCTION @extschema@.idem_purge(max_rows bigint DEFAULT 7) RETURNS bigint LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME') ],
	[ 'grant that is missing', 'REVOKE EXECUTE ON FUNCTION @extschema@.idem_fingerprint(jsonb, text[]) FROM PUBLIC' ],
	[ 'grant too many', 'GRANT EXECUTE ON FUNCTION @extschema@.idem_purge(bigint) TO PUBLIC' ],
	[ 'grant on a table', 'GRANT SELECT ON @extschema@.transaction_log TO PUBLIC' ],
	[ 'grant on a column', 'GRANT SELECT (token) ON @extschema@.transaction_log TO PUBLIC' ],
	[ 'function too many', q(CREATE FUNCTION @extschema@.idem_old() RETURNS int LANGUAGE sql AS 'SELECT 1') ],
	[ 'function too few', 'DROP FUNCTION @extschema@.idem_backoff(int, interval, interval, text)' ],
	[ 'table too many', 'CREATE TABLE @extschema@.idempotency_old (x int)' ],
	[ 'type too many', q(CREATE TYPE @extschema@.idem_old AS ENUM ('x')) ],
	[ 'column too few', 'ALTER TABLE @extschema@.idempotency_machine_history DROP COLUMN changed_at CASCADE' ],
	[ 'order of columns', q(ALTER TABLE @extschema@.idempotency_provider DROP COLUMN timeout; ALTER TABLE @extschema@.idempotency_provider ADD COLUMN timeout interval) ],
	[ 'type of a column', 'ALTER TABLE @extschema@.idempotency_checkpoint ALTER COLUMN ordinal TYPE bigint' ],
	[ 'default of a column', 'ALTER TABLE @extschema@.idempotency_checkpoint ALTER COLUMN ordinal SET DEFAULT 7' ],
	[ 'not null', 'ALTER TABLE @extschema@.transaction_log ALTER COLUMN token DROP NOT NULL' ],
	[ 'storage of a column', 'ALTER TABLE @extschema@.transaction_log ALTER COLUMN response_body SET STORAGE EXTERNAL' ],
	[ 'index', 'DROP INDEX @extschema@.idempotency_inbox_expires_at_idx' ],
	[ 'columns of an index', 'DROP INDEX @extschema@.idempotency_inbox_expires_at_idx; CREATE INDEX idempotency_inbox_expires_at_idx ON @extschema@.idempotency_inbox (received_at)' ],
	[ 'constraint', q(ALTER TABLE @extschema@.idempotency_inbox ADD CONSTRAINT old CHECK (message_id <> 'x') NOT VALID) ],
	[ 'collation of the key', 'ALTER TABLE @extschema@.idempotency_inbox ALTER COLUMN message_id TYPE text COLLATE "POSIX"' ],
	[ 'options of a table', 'ALTER TABLE @extschema@.transaction_log RESET (fillfactor)' ],
	[ 'replica identity', 'ALTER TABLE @extschema@.transaction_log REPLICA IDENTITY FULL' ],
	[ 'trigger', 'DROP TRIGGER idem_definition_changed ON @extschema@.idempotency_scope' ],
	[ 'state of a trigger', 'ALTER TABLE @extschema@.idempotency_scope DISABLE TRIGGER idem_definition_changed' ],
	[ 'row security', 'ALTER TABLE @extschema@.transaction_log ENABLE ROW LEVEL SECURITY' ],
	[ 'text of a view', 'CREATE OR REPLACE VIEW @extschema@.idem_purge_lag WITH (security_barrier) AS ' . view_query('idem_purge_lag') . ' LIMIT 1' ],
	[ 'options of a view', 'ALTER VIEW @extschema@.idem_purge_lag RESET (security_barrier)' ],
	[ 'rows that are dumped', q(SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_inbox', 'WHERE false')) ],
	[ 'table that is not a member', 'ALTER EXTENSION idempotency DROP TABLE @extschema@.idempotency_inbox' ]);

sub view_query
{
	my ($view) = @_;
	my $query = $node->safe_psql('postgres',
		"BEGIN; CREATE EXTENSION idempotency; SELECT pg_get_viewdef('$view'::regclass); ROLLBACK");
	return $query =~ s/;\s*$//r;
}

my $n = 0;
for my $case (@forgotten)
{
	my ($name, $undo) = @$case;
	my $version = '0.5.' . ++$n;
	older_version($version, $default, "$undo;", 'SELECT 1;');
	my $found = difference($version);
	isnt($found, '', "an update that forgets something is found: $name");
	note($found);
}

$node->stop;
done_testing();
