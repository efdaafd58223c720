# A restored database refuses the same duplicates, replays the same responses
# and goes on with greater tokens; policies and owners of scopes come along.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;

my $SCHEMA = '"Odd schema, 1"';
# A token far ahead of the clock, as one has after a clock was set back.
my $FUTURE_TOKEN = 8_000_000_000_000_000;

my $node = PostgreSQL::Test::Cluster->new('source');
$node->init;
$node->start;
my $dumps = PostgreSQL::Test::Utils::tempdir;

sub connect_to
{
	my ($to, $database, $user) = @_;
	my $connstr = $to->connstr($database);
	$connstr .= " user=$user" if defined $user;
	my $session = PsqlSession->new($connstr);
	$session->rows("SET search_path = $SCHEMA, public");
	return $session;
}

# All that is stored in a table, in one order.
sub contents
{
	my ($session, $table) = @_;
	my @rows =
	  $session->rows("SELECT t::text FROM $table t ORDER BY t::text COLLATE \"C\"");
	return join("\n", map { $_->[0] } @rows);
}

# What a claim answers, without what changes from call to call.
sub answer
{
	my ($session, $key, $scope) = @_;
	my ($row) = $session->rows(
		"SELECT outcome, status, response_code, response_headers, response_body, response_bytes, differs, created_at, expires_at"
		  . " FROM idem_claim('$key', '{\"n\": 1}', scope => '$scope')");
	return join(' ', map { $_ // 'NULL' } @$row);
}

# ---- a database with keys in all states ------------------------------------

$node->safe_psql(
	'postgres', qq(
CREATE DATABASE source;
CREATE ROLE acme;
CREATE ROLE acme_member LOGIN IN ROLE acme;
CREATE ROLE stranger LOGIN;
));
$node->safe_psql(
	'source', qq(
CREATE SCHEMA $SCHEMA;
CREATE EXTENSION idempotency SCHEMA $SCHEMA;
SET search_path = $SCHEMA;
SELECT idem_grant('acme');
SELECT idem_grant('stranger');
GRANT USAGE ON SCHEMA $SCHEMA TO acme, stranger;
SELECT idem_configure('', ttl => '30 days', backoff_base => '3 s', backoff_cap => '7 s');
SELECT idem_configure('acme', owner => 'acme', lease => '17 min');
SELECT idem_configure('acme/manual', on_lease_expiry => 'manual', max_attempts => 2, store_request => false);
));

my $source = connect_to($node, 'source');
my %bodies = (
	nothing => 'NULL',
	null => q('null'),
	zero => q('0'),
	false => q('false'),
	text => q('""'),
	array => q('[]'),
	object => q('{}'),
	deep => q('{"a": [1.50, "ü", {"b": null}]}'));

for my $scope ('', 'acme')
{
	for my $name (sort keys %bodies)
	{
		$source->rows(
			qq(SELECT idem_claim('done $name', '{"n": 1}', scope => '$scope')));
		$source->rows(
			qq(SELECT idem_finish('done $name', $bodies{$name}, 201, scope => '$scope',
				token => (SELECT token FROM transaction_log WHERE scope = '$scope' AND request_id = 'done $name'),
				response_headers => '[["A", "1"], ["A", "2"]]', response_bytes => '\\x00ff0a5c'))
		);
	}
	for my $name (
		'failed', 'retry', 'backoff', 'leased', 'lapsed', 'expired',
		'granted')
	{
		my $lease = $name eq 'leased' ? '1 day' : '1 us';
		my $ttl = $name eq 'expired' ? '1 us' : '10 days';
		$source->rows(
			qq(SELECT idem_claim('$name', '{"n": 1}', scope => '$scope', lease => '$lease', ttl => '$ttl'))
		);
	}
	my $by_token =
	  "scope => '$scope', token => (SELECT token FROM transaction_log WHERE scope = '$scope' AND request_id = 'KEY')";
	for my $sql (
		"SELECT idem_fail('failed', '{\"why\": 0}', 422, final => true, $by_token)",
		"SELECT idem_fail('retry', '\"once more\"', retry_after => '0', $by_token)",
		"SELECT idem_fail('backoff', '\"later\"', retry_after => '1 day', $by_token)",
		"SELECT idem_resolve('granted', 'retry', scope => '$scope', force => true)"
	  )
	{
		my ($key) = $sql =~ /\('(\w+)'/;
		$source->rows($sql =~ s/'KEY'/'$key'/r);
	}
}
$source->rows(
	q(SELECT idem_claim('asked', '{"n": 1}', scope => 'acme/manual', lease => '1 us'))
);
$source->rows(
	"UPDATE transaction_log SET token = $FUTURE_TOKEN WHERE request_id = 'lapsed'"
);

my @finished = ((map { "done $_" } sort keys %bodies), 'failed');
my @waiting = ('backoff', 'leased');
my @free = ('retry', 'lapsed', 'expired', 'granted');
my %expected;
for my $scope ('', 'acme')
{
	$expected{$scope}{$_} = answer($source, $_, $scope) for @finished;
}
my $log_before = contents($source, 'transaction_log');
my $scopes_before = contents($source, 'idempotency_scope');

# ---- what must hold in a restored database ---------------------------------

sub check_restored
{
	my ($name, $session) = @_;

	is(contents($session, 'transaction_log'),
		$log_before, "$name: the log is the same");
	is(contents($session, 'idempotency_scope'),
		$scopes_before, "$name: the policies are the same");

	for my $scope ('', 'acme')
	{
		my $in = "$name: \"$scope\":";
		is(answer($session, $_, $scope), $expected{$scope}{$_}, "$in $_")
		  for @finished;
		like(answer($session, $_, $scope), qr/^in_progress /, "$in $_")
		  for @waiting;
		is( $session->value(
				"SELECT outcome FROM idem_claim('done zero', '{\"n\": 2}', scope => '$scope')"
			),
			'mismatch',
			"$in another request under the same key");
		for my $key (@free)
		{
			my $stored = $session->value(
				"SELECT token FROM transaction_log WHERE scope = '$scope' AND request_id = '$key'"
			);
			my ($row) = $session->rows(
				"SELECT outcome, token, attempt FROM idem_claim('$key', '{\"n\": 1}', scope => '$scope')"
			);
			is($row->[0], 'claimed', "$in $key is claimed");
			cmp_ok($row->[1], '>', $stored, "$in $key has a greater token");
			is($row->[2], $key eq 'expired' ? 1 : 2,
				"$in attempt of $key");
		}
		is( $session->value(
				"SELECT idem_finish('leased', '1', scope => '$scope', token => (SELECT token FROM transaction_log WHERE scope = '$scope' AND request_id = 'leased'))"
			),
			't',
			"$in the holder's token is good");
		is( $session->value(
				"SELECT lease FROM transaction_log WHERE scope = '$scope' AND request_id = 'retry'"
			),
			$scope eq '' ? '00:01:00' : '00:17:00',
			"$in the lease of the policy");
	}
	like(answer($session, 'asked', 'acme/manual'),
		qr/^unknown /, "$name: a person is asked");
	is( $session->value(
			"SELECT string_agg(request_id || ' ' || kind, ',') FROM idem_review"),
		'asked lapsed',
		"$name: and it is shown");
	is( $session->value(
			"SELECT string_agg(contype, '' ORDER BY contype) FROM pg_constraint WHERE conrelid = 'transaction_log'::regclass AND contype <> 'n'"
		),
		'cp',
		"$name: the log has its constraints");
	return;
}

# Who is let in, by SQLSTATE; whether the key exists must not matter.
sub check_doors
{
	my ($name, $session, $user, $expected) = @_;
	my %messages;

	$session->rows("SET ROLE $user");
	for my $key ('done zero', 'never seen')
	{
		my ($sqlstate) =
		  $session->run("SELECT * FROM idem_lookup('$key', 'acme')");
		is($sqlstate, $expected, "$name: $user looks up \"$key\"");
		$messages{ $session->error_message } = 1;
		$session->rows('BEGIN');
		($sqlstate) =
		  $session->run("SELECT idem_claim('$key', scope => 'acme/below')");
		is($sqlstate, $expected, "$name: $user claims \"$key\" below");
		$session->rows('ROLLBACK');
	}
	is(scalar(keys %messages), 1, "$name: $user is told the same each time");
	my ($sqlstate) =
	  $session->run("SELECT * FROM idem_lookup('done zero', '')");
	is($sqlstate, '00000', "$name: the other scopes are open to $user");
	$session->rows('RESET ROLE');
	return;
}

# ---- by a superuser into the same cluster ----------------------------------

command_ok(
	[
		'pg_dump', '-Fc', '-f', "$dumps/all.dump", '-d',
		$node->connstr('source')
	],
	'pg_dump by a superuser');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
command_ok(
	[
		'pg_restore', '-e', '-j2', '-d', $node->connstr('restored'),
		"$dumps/all.dump"
	],
	'pg_restore');
$node->safe_psql('postgres', 'CREATE DATABASE gone_on TEMPLATE restored');
my $restored = connect_to($node, 'restored');
check_doors('restored', $restored, 'acme_member', '00000');
check_doors('restored', $restored, 'stranger', '42501');
check_restored('restored', $restored);
$restored->close;

# ---- over a database that has gone on ---------------------------------------

# What the database has granted since is gone, and must not be granted again.
# (But for 'lapsed', whose token is ahead of the clock: there the clock cannot
# help.)
my $gone_on = connect_to($node, 'gone_on');
my %gone = map {
	$_ => $gone_on->value("SELECT token FROM idem_claim('$_', '{\"n\": 1}')")
} 'never seen before', 'retry', 'expired';
$gone_on->close;
command_ok(
	[
		'pg_restore', '-e', '--clean', '--if-exists', '-d',
		$node->connstr('gone_on'), "$dumps/all.dump"
	],
	'pg_restore --clean');
$gone_on = connect_to($node, 'gone_on');
for my $key (sort keys %gone)
{
	$gone_on->rows('BEGIN');
	my ($row) =
	  $gone_on->rows("SELECT outcome, token FROM idem_claim('$key', '{\"n\": 1}')");
	is($row->[0], 'claimed', "clean: $key is claimed again");
	cmp_ok($row->[1], '>', $gone{$key}, "clean: $key has a token greater than the one that is gone");
	my ($sqlstate) = $gone_on->run("SELECT idem_finish('$key', token => $gone{$key})");
	is($sqlstate, 'ID001', "clean: the holder of $key that is gone cannot finish");
	$gone_on->rows('ROLLBACK');
}
check_doors('clean', $gone_on, 'acme_member', '00000');
check_doors('clean', $gone_on, 'stranger', '42501');
check_restored('clean', $gone_on);
$gone_on->close;

# ---- into another schema -----------------------------------------------------

command_ok(
	[ 'pg_dump', '-f', "$dumps/plain.sql", '-d', $node->connstr('source') ],
	'pg_dump as plain SQL');
my $moved = slurp_file("$dumps/plain.sql") =~ s/\Q$SCHEMA\E/elsewhere/gr;
PostgreSQL::Test::Utils::append_to_file("$dumps/moved.sql", $moved);
$node->safe_psql('postgres', 'CREATE DATABASE moved');
command_ok(
	[
		'psql', '-Xq', '-o', '/dev/null', '-v', 'ON_ERROR_STOP=1', '-f',
		"$dumps/moved.sql", '-d', $node->connstr('moved')
	],
	'restored under another name of the schema');
my $elsewhere_session = connect_to($node, 'moved');
$elsewhere_session->rows('SET search_path = elsewhere, public');
check_doors('moved', $elsewhere_session, 'acme_member', '00000');
check_doors('moved', $elsewhere_session, 'stranger', '42501');
check_restored('moved', $elsewhere_session);
$elsewhere_session->close;

# The schema of a database that is in use gets another name.
$node->safe_psql('postgres', 'CREATE DATABASE renamed');
command_ok(
	[ 'pg_restore', '-e', '-d', $node->connstr('renamed'), "$dumps/all.dump" ],
	'pg_restore for another name later');
my $renamed = connect_to($node, 'renamed');
is($renamed->value("SELECT outcome FROM idem_claim('leased', '{\"n\": 1}')"),
	'in_progress', 'renamed: in use before');
$renamed->rows("ALTER SCHEMA $SCHEMA RENAME TO \"another one\"");
$renamed->rows('SET search_path = "another one", public');
check_doors('renamed', $renamed, 'acme_member', '00000');
check_doors('renamed', $renamed, 'stranger', '42501');
check_restored('renamed', $renamed);
$renamed->close;

# ---- a whole cluster ---------------------------------------------------------

command_ok([ 'pg_dumpall', '-f', "$dumps/cluster.sql", '-d', $node->connstr('postgres') ],
	'pg_dumpall');
my $whole = PostgreSQL::Test::Cluster->new('whole');
$whole->init;
$whole->start;
# The superuser is there already.
run_command([ 'psql', '-Xq', '-o', '/dev/null', '-f', "$dumps/cluster.sql", '-d', $whole->connstr('postgres') ]);
my $in_whole = connect_to($whole, 'source');
check_doors('whole cluster', $in_whole, 'acme_member', '00000');
check_doors('whole cluster', $in_whole, 'stranger', '42501');
check_restored('whole cluster', $in_whole);
$in_whole->close;
$whole->stop;

# ---- by the owner of the tables, as plain SQL ------------------------------

$node->safe_psql(
	'source', qq(
CREATE ROLE dumper LOGIN;
GRANT USAGE ON SCHEMA $SCHEMA TO dumper;
DO \$do\$
DECLARE
	t regclass;
BEGIN
	FOR t IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = '$SCHEMA'::regnamespace AND c.relkind IN ('r', 'S')
	LOOP
		EXECUTE format('ALTER TABLE %s OWNER TO dumper', t);
	END LOOP;
END \$do\$;
));
command_ok(
	[
		'pg_dump', '-f', "$dumps/owner.sql", '-U', 'dumper', '-d',
		$node->connstr('source')
	],
	'pg_dump by the owner of the tables');
$node->safe_psql('postgres', 'CREATE DATABASE by_owner');
command_ok(
	[
		'psql', '-Xq', '-o', '/dev/null', '-v', 'ON_ERROR_STOP=1', '-f',
		"$dumps/owner.sql", '-d', $node->connstr('by_owner')
	],
	'restored with psql');
my $by_owner = connect_to($node, 'by_owner');
check_doors('by the owner', $by_owner, 'acme_member', '00000');
check_doors('by the owner', $by_owner, 'stranger', '42501');
check_restored('by the owner', $by_owner);
$by_owner->close;

# ---- into a cluster without the role ---------------------------------------

my $other = PostgreSQL::Test::Cluster->new('other');
$other->init;
$other->start;
$other->safe_psql('postgres',
	'CREATE DATABASE restored; CREATE ROLE stranger; CREATE ROLE boss SUPERUSER');
# What grants to the missing role asked for cannot be restored.
command_checks_all(
	[
		'pg_restore', '-d', $other->connstr('restored'), "$dumps/all.dump"
	],
	1,
	[qr/^$/],
	[qr/role "acme" does not exist/],
	'pg_restore without the role goes on past its grants');
my $elsewhere = connect_to($other, 'restored');
$elsewhere->rows("GRANT USAGE ON SCHEMA $SCHEMA TO stranger");
$elsewhere->rows("SELECT idem_grant('stranger')");
check_doors('without the role', $elsewhere, 'stranger', '42501');
check_doors('without the role', $elsewhere, 'boss', '00000');
check_restored('without the role', $elsewhere);
is( $elsewhere->value(
		"SELECT count(*) FROM transaction_log WHERE scope = 'acme' AND request_id LIKE 'done%'"
	),
	scalar(keys %bodies),
	'without the role: nothing of the closed scope is lost');
$elsewhere->close;

$source->close;
$node->stop;
$other->stop;
done_testing();
