# Every function is called with every kind of argument, by several sessions at
# once, inside and outside of transactions.  Refusing is fine; crashing, an
# internal error (XX000) and a failed assertion are not.
#
# IDEM_RANDOM_SECONDS (default 10) is how long, IDEM_RANDOM_SEED repeats the
# statements of a run (though not how its sessions meet).
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $SESSIONS = 3;
my $STATEMENTS_PER_SCRIPT = 400;
my $seconds = $ENV{IDEM_RANDOM_SECONDS} // 10;
my $seed = $ENV{IDEM_RANDOM_SEED} // int(rand(2**31));
srand($seed);
diag("seed $seed");

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '-E', 'UTF8', '--locale=C.UTF-8' ]);
$node->append_conf(
	'postgresql.conf', q(
shared_preload_libraries = 'idempotency'
log_line_prefix = '%m [%p] %e '
statement_timeout = 3s
lock_timeout = 500ms
deadlock_timeout = 200ms
max_prepared_transactions = 5
track_functions = all
));
$node->start;
$node->safe_psql(
	'postgres', q(
CREATE EXTENSION idempotency;
CREATE ROLE plain;
SELECT idem_grant('plain');
CREATE TABLE plain_table (id int PRIMARY KEY, state text, version bigint, note text, doc jsonb, at timestamptz, UNIQUE (note));
CREATE TABLE pair (a int, b text COLLATE "C", state text, v int DEFAULT 1, PRIMARY KEY (a, b));
CREATE TABLE parts (id int PRIMARY KEY, state varchar(10), version int) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (5);
CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (5) TO (MAXVALUE);
CREATE TABLE no_key (x int);
CREATE TABLE generated (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, doubled int GENERATED ALWAYS AS (version * 2) STORED, state text, version smallint);
CREATE VIEW a_view AS SELECT * FROM plain_table;
CREATE MATERIALIZED VIEW a_matview AS SELECT 1 AS id;
CREATE SEQUENCE a_sequence;
GRANT ALL ON ALL TABLES IN SCHEMA public TO plain;
REVOKE ALL ON transaction_log FROM plain;
CREATE FUNCTION works(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION nothing(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE FUNCTION raises(jsonb) RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
CREATE FUNCTION finishes(jsonb) RETURNS jsonb LANGUAGE plpgsql AS
	'BEGIN PERFORM idem_finish(c.request_id, ''7'', token => c.token, scope => c.scope) FROM idem_current() c; RETURN 8; END';
CREATE FUNCTION releases(jsonb) RETURNS jsonb LANGUAGE plpgsql AS
	'BEGIN PERFORM idem_release(c.request_id, c.token, c.scope) FROM idem_current() c; RETURN 9; END';
CREATE FUNCTION nests(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT response_body FROM idem_run(''inner'', $1, ''works'')';
CREATE FUNCTION same(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT response_body FROM idem_run(''k1'', $1, ''works'')';
CREATE FUNCTION deletes(jsonb) RETURNS jsonb LANGUAGE sql AS 'DELETE FROM transaction_log; SELECT ''1''::jsonb';
CREATE FUNCTION drops(jsonb) RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN DROP TABLE IF EXISTS no_key; RETURN 1; END';
CREATE FUNCTION commits(jsonb) RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN COMMIT; RETURN 1; END';
CREATE FUNCTION many(jsonb) RETURNS SETOF jsonb LANGUAGE sql AS 'SELECT $1 UNION ALL SELECT $1';
CREATE TABLE toasted AS SELECT string_agg(md5(i::text), '') AS t FROM generate_series(1, 2000) i;
));

# ---- arguments -------------------------------------------------------------

sub pick
{
	return $_[ rand @_ ];
}

my $time_text = sub {
	return pick(
		"'1s'", "'1h'", "'1us'", "'0'", "'-1s'", "'-1us'", "'1 mon -30 days'",
		"'178000000 years'", "'-178000000 years'", "'2147483647 days'",
		"'-2147483648 days'", "'290000 years'", "'2500000000 hours'", "'100ms'", "'5 days'",
		"'1 mon'", "'-1 mon 40 days'", "'2147483647 mons'");
};
my %scalar = (
	text => sub {
		return pick(
			(map { "'k$_'" } 1 .. 6) x 8, "''", "'a/b/c'", "'a'", "'/'", "'//'", "' '", "'7'", "'(1,x)'", "'(7,\"\")'",
			"'('", "'(,)'", "'1e400'", "'-1'", "repeat('x', 255)", "repeat('ü', 255)", "repeat('x', 256)", "repeat('y', 100000)",
			"E'\\n\\t'", "'new'", "'done'", "'new->done'", "'->'", "'retry'", "'completed'", "'manual'",
			"'record'", "'rollback'", "'works'", "'nothing'", "'raises'", "'finishes'", "'releases'", "'nests'", "'same'",
			"'deletes'", "'drops'", "'commits'", "'many'", "'public.works(jsonb)'", "'pg_catalog.jsonb_pretty'", "'now'",
			"'works('", "'\"'", "'a.b.c.d'", "'full'", "'none'", "'dot'", "'mermaid'", "'m'",
			"'p1'", "'p2'", "'p3'", "'succeeded'", "'ambiguous'", "'not_found'", "'not_sent'", "'failed'",
			'(SELECT call_id FROM idempotency_call ORDER BY random() LIMIT 1)', '(SELECT t FROM toasted)',
			"(SELECT request_id FROM transaction_log ORDER BY random() LIMIT 1)", "repeat('a/', 127)",
			"'%s%n%d'", "U&'\\0001'", "U&'\\+01F600'");
	},
	jsonb => sub {
		return pick(
			"'{}'", "'[]'", "'null'", "'0'", "'\"\"'", "'false'", "'{\"a\": [1, 2, {\"b\": null}]}'",
			"'{\"id\": 1, \"state\": \"new\", \"version\": 1, \"note\": \"x\"}'", "'{\"id\": 2}'", "'{\"state\": \"done\"}'",
			"'{\"a\": 1, \"b\": \"x\"}'", "'{\"note\": null, \"id\": 3}'", "'{\"id\": {}}'", "'{\"id\": \"x\"}'",
			"'{\"version\": 99999999999999999999}'", "'{\"no such column\": 1}'", "'{\"doubled\": 4}'", "'{\"doc\": [1]}'",
			"'{\"at\": \"infinity\"}'", "'1e1000'", "'-0.00'", "'1e-1000'", "'{\"\": {\"\": {\"\": 1}}}'",
			"'[[\"A\", \"1\"], [\"A\", \"2\"]]'", "'[[\"A\"]]'", "'[[1, 2]]'", "(repeat('[', 2000) || repeat(']', 2000))::jsonb",
			"(SELECT to_jsonb(t) FROM toasted)", "(SELECT jsonb_object_agg(i, i) FROM generate_series(1, 3000) i)",
			"to_jsonb(random())", "(SELECT jsonb_agg(random()) FROM generate_series(1, 5))");
	},
	bytea => sub {
		return pick("''", "'\\x00'", "'\\x0001ff'", "decode(repeat('ab', 32), 'hex')", "convert_to(repeat('z', 70000), 'UTF8')",
			"idem_fingerprint('1')", "idem_fingerprint('{\"a\": 1}')");
	},
	interval => $time_text,
	int4 => sub { return pick(0, 1, 2, 3, 7, 200, -1, 2147483647, "'-2147483648'", 1000) },
	int8 => sub {
		return pick(0, 1, 2, 7, -1, 9007199254740991, 9007199254740992, 9223372036854775807, "'-9223372036854775808'",
			"(SELECT max(token) FROM transaction_log)", "(SELECT token FROM transaction_log ORDER BY random() LIMIT 1)");
	},
	bool => sub { return pick('true', 'false') },
	name => sub { return pick("'state'", "'version'", "'note'", "'id'", "'v'", "'doc'", "'ctid'", "'tableoid'", "'no_such'", "''", "'doubled'") },
	regclass => sub {
		return pick(("'plain_table'", "'pair'", "'parts'", "'generated'") x 3, "'parts_low'", "'no_key'", "'a_view'", "'a_matview'",
			"'a_sequence'", "'plain_table_pkey'", "'pg_class'", "'transaction_log'", "'idempotency_scope'", "'0'", "'4294967295'", "'parts_high'");
	},
	regrole => sub { return pick("'plain'", "'postgres'", "'0'", "'4294967295'", "'pg_read_all_data'") },
	timestamptz => sub { return pick('now()', "'infinity'", "'-infinity'", "'2000-01-01'", "'294276-12-31'", "'4713-01-01 BC'") });

# One argument of a type, typed so that the call is found.
sub argument
{
	my ($type) = @_;

	return "NULL::$type" if rand() < 0.06;
	if ($type =~ /^_(.*)$/)
	{
		my $element = $1;

		return pick("'{}'::${element}[]", "'[5:6]={NULL,NULL}'::${element}[]", "'{{NULL}}'::${element}[]",
			"array_fill(NULL::$element, '{200}')", "array_fill(NULL::$element, '{2,2}')") if rand() < 0.25;
		return
		    'ARRAY['
		  . join(', ', map { argument($element) } 1 .. 1 + rand(4))
		  . "]::${element}[]";
	}
	die "no arguments of type $type" if !$scalar{$type};
	return '(' . $scalar{$type}->() . ")::$type";
}

# ---- statements ------------------------------------------------------------

my @functions;
for my $line (
	split /\n/,
	$node->safe_psql(
		'postgres', q(
SELECT p.proname, p.prokind, p.pronargdefaults, p.prorettype = 'trigger'::regtype,
	   coalesce((SELECT string_agg(t.typname, ' ' ORDER BY i) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY a(oid, i) JOIN pg_type t ON t.oid = a.oid), '')
  FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
 WHERE e.extname = 'idempotency'
 ORDER BY 1)))
{
	my ($name, $kind, $defaults, $is_trigger, $types) = split /\|/, $line;
	push @functions,
	  {
		name => $name,
		kind => $kind,
		defaults => $defaults,
		is_trigger => $is_trigger eq 't',
		types => [ split / /, $types ]
	  };
}
cmp_ok(scalar(@functions), '>=', 45, 'there are functions to call');

sub call
{
	my $f = pick(@functions);

	# Trigger functions refuse everything.
	$f = pick(@functions) if $f->{is_trigger};
	my @types = @{ $f->{types} };

	splice(@types, @types - int(rand($f->{defaults} + 1)))
	  if $f->{defaults} && rand() < 0.7;
	my $call = "$f->{name}(" . join(', ', map { argument($_) } @types) . ')';

	return "CALL $call" if $f->{kind} eq 'p';
	return pick(
		("SELECT $call") x 3,
		("SELECT * FROM $call x") x 3,
		"SELECT $call FROM generate_series(1, 3)",
		"SELECT * FROM $call x LIMIT 1",
		"EXPLAIN ANALYZE SELECT * FROM $call x",
		"WITH c AS (SELECT $call) SELECT 1 FROM c, c c2",
		"DO \$\$ BEGIN PERFORM $call; EXCEPTION WHEN OTHERS THEN PERFORM $call; END \$\$");
}

sub other
{
	return pick(
		('BEGIN') x 6, ('COMMIT') x 12, ('ROLLBACK') x 4,
		'SAVEPOINT s', 'ROLLBACK TO s', 'RELEASE s',
		'BEGIN ISOLATION LEVEL SERIALIZABLE', 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'BEGIN READ ONLY',
		'SET ROLE plain', ('RESET ROLE') x 3,
		"SET idempotency.test_clock = " . pick("'2100-01-01'", "'2000-01-01'", "'infinity'", "'-infinity'", "''", "'x'", "'294276-12-31 23:59:59'", "'4713-01-01 BC'"),
		('RESET idempotency.test_clock') x 3,
		"SET idempotency.unfinished_at_commit = " . pick('allow', 'warn', 'error'),
		"SET idempotency.require_scope = " . pick('off', 'named', 'configured'),
		('RESET ALL') x 4,
		"SET idempotency.store_request = " . pick('on', 'off'),
		"SET idempotency.default_wait = " . pick("'0'", "'50ms'", "'100 days'", "'-1'"),
		"SET idempotency.default_ttl = " . pick("'1us'", "'1s'", "'10000 days'", "'24d'"),
		"SET idempotency.purge_batch_size = " . pick(1, 2, 1000),
		'UPDATE plain_table SET version = version + 1', "UPDATE parts SET id = 10 - id", "DELETE FROM plain_table",
		"UPDATE transaction_log SET status = status", "DELETE FROM transaction_log WHERE random() < 0.1",
		'SELECT * FROM idem_log', 'SELECT * FROM idem_review', 'SELECT * FROM idem_in_flight', 'SELECT * FROM idem_stat',
		'VACUUM transaction_log', 'REINDEX INDEX CONCURRENTLY transaction_log_pkey', 'DISCARD ALL',
		"PREPARE TRANSACTION 'p" . int(rand(3)) . "'", "COMMIT PREPARED 'p" . int(rand(3)) . "'", "ROLLBACK PREPARED 'p" . int(rand(3)) . "'",
		'ALTER TABLE plain_table ADD COLUMN extra int DEFAULT 1', 'ALTER TABLE plain_table DROP COLUMN extra',
		'ALTER TABLE pair RENAME COLUMN state TO state2', 'ALTER TABLE pair RENAME COLUMN state2 TO state',
		'TRUNCATE transaction_log',
		"DECLARE c CURSOR FOR SELECT idem_claim('k' || i) FROM generate_series(1, 5) i", 'FETCH 2 FROM c', 'CLOSE c',
		'TABLE pg_extension');
}

# A script that cannot end the run's knobs or time; prepared transactions of
# this round are decided at its end.
sub script
{
	my @statements = ("\\set VERBOSITY sqlstate", 'SET client_min_messages = error');

	# Otherwise an error spoils the rest of a transaction.
	push @statements, '\set ON_ERROR_ROLLBACK on' if rand() < 0.7;
	push @statements, (rand() < 0.75 ? call() : other()) . ';'
	  for 1 .. $STATEMENTS_PER_SCRIPT;
	return join("\n", @statements, 'ROLLBACK;', '');
}

# ---- the run ---------------------------------------------------------------

my $until = time + $seconds;
my ($rounds, $alive, $checked) = (0, 1, 0);

# Internal errors, each with its statement.
sub internal_errors
{
	my $log = substr(slurp_file($node->logfile), $checked);
	my @found = $log =~ /^(.*? (?:XX\w{3} (?:ERROR|FATAL|PANIC)|PANIC:|TRAP:|.*terminated by signal).*\n(?:(?!\d{4}-).*\n|.* (?:CONTEXT|STATEMENT|DETAIL): .*\n){0,6})/mg;

	$checked += length($log);
	return @found;
}

my @errors;
while ($alive && (time < $until || $rounds == 0))
{
	my @runs;
	for my $n (1 .. $SESSIONS)
	{
		my $file = "$PostgreSQL::Test::Utils::tmp_check/script-$n.sql";
		open(my $out, '>', $file) or die "cannot write $file: $!";
		print $out script();
		close($out) or die "cannot write $file: $!";
		push @runs,
		  IPC::Run::start(
			[
				'psql', '-Xqat', '-d', $node->connstr('postgres'), '-f', $file
			],
			'<', \undef, '>', '/dev/null', '2>', '/dev/null');
	}
	# psql's exit status: 2 is a lost connection.
	for my $run (@runs)
	{
		$run->finish;
		$alive = 0 if $run->result(0) == 2;
	}
	my ($status) = $node->psql('postgres', q(SELECT 1));
	$alive = 0 if $status != 0;
	for my $n (0 .. 2)
	{
		$node->psql('postgres', "ROLLBACK PREPARED 'p$n'") if $alive;
	}
	$rounds++;
	push @errors, internal_errors();
}
ok($alive, 'no session lost its server');
is(scalar(@errors), 0, 'no internal error')
  or diag(join('', map { substr($_, 0, 1500) } @errors[ 0 .. ($#errors < 9 ? $#errors : 9) ]));
note("$rounds rounds of $SESSIONS scripts of $STATEMENTS_PER_SCRIPT statements");

# Whatever was done to it, it works.
if ($alive)
{
	$node->safe_psql('postgres', 'TRUNCATE transaction_log; SELECT idem_unconfigure(scope) FROM idempotency_scope');
	is( $node->safe_psql(
			'postgres',
			q(BEGIN; SELECT outcome FROM idem_claim('after'); SELECT idem_finish('after', '1'); COMMIT; SELECT outcome FROM idem_claim('after'))
		),
		"claimed\nt\nreplay",
		'afterwards it works as ever');
}
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|was terminated by signal/,
	'the server log is clean');
done_testing();
