# The purge worker in ordinary life: what goes, what stays, settings, databases,
# what it shows of itself, and what it does not do to others.
#
# See t/README for the conventions of these tests.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'idempotency'
idempotency.purge_interval = 20ms
autovacuum = off
max_logical_replication_workers = 0
});
$node->start;

my $worker = "backend_type = 'idempotency purge worker'";

# Appends to the configuration and reloads it.
sub configure
{
	my ($lines) = @_;

	$node->append_conf('postgresql.conf', $lines);
	$node->reload;
	return;
}

# Keys that are finished and whose ttl is over in a moment.
sub make_expired
{
	my ($db, $n, $prefix) = @_;

	$node->safe_psql(
		$db, qq{
		BEGIN;
		SELECT count(*) FROM generate_series(1, $n) i,
			LATERAL idem_claim('$prefix ' || i, ttl => '1ms', lease => '1ms');
		SELECT count(idem_finish('$prefix ' || i, '"ok"')) FROM generate_series(1, $n) i;
		COMMIT});
	return;
}

# Lets the worker visit a database some times.  Asked from elsewhere, for a
# question is a transaction as well.
sub wait_for_visits
{
	my ($db) = @_;
	my $commits =
	  "SELECT coalesce(xact_commit, 0) FROM pg_stat_database WHERE datname = '$db'";
	my $before = $node->safe_psql('template1', $commits);

	$node->poll_query_until('template1',
		"SELECT ($commits) > $before + 10");
	return;
}

sub wait_until
{
	my ($db, $query, $name) = @_;

	ok($node->poll_query_until($db, $query), $name);
	return;
}

$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');

# ---- what goes and what stays

$node->safe_psql(
	'postgres', q{
	SELECT idem_configure('manual', on_lease_expiry => 'manual', history => true);
	SELECT idem_claim('unknown', scope => 'manual', ttl => '1ms', lease => '1ms');
	SELECT idem_claim('leased', ttl => '1ms', lease => '1h');
	SELECT idem_claim('lapsed', ttl => '1h', lease => '1ms');
	BEGIN;
	SELECT idem_claim('young', ttl => '1h', lease => '1ms');
	SELECT idem_finish('young', '"kept"');
	COMMIT;
	INSERT INTO idempotency_inbox (received_at, expires_at, scope, message_id)
		SELECT now(), now(), '', i::text FROM generate_series(1, 10) i;
	INSERT INTO idempotency_inbox (received_at, expires_at, scope, message_id)
		VALUES (now(), now() + '1h', '', 'young');
});
make_expired('postgres', 30, 'old');
wait_until(
	'postgres',
	q{SELECT array_agg(request_id ORDER BY request_id) = '{lapsed,leased,unknown,young}' FROM transaction_log},
	'expired keys go; what is leased, lapsed, unknown or young stays');
wait_until(
	'postgres',
	q{SELECT array_agg(message_id) = '{young}' FROM idempotency_inbox},
	'expired messages go, others stay');
wait_until(
	'postgres',
	q{SELECT status = 'unknown' AND reason = 'lapsed' AND due_at = 'infinity' FROM transaction_log WHERE request_id = 'unknown'},
	'a lapsed claim of a manual scope is turned');
is( $node->safe_psql(
		'postgres',
		q{SELECT to_status FROM idempotency_history WHERE request_id = 'unknown' ORDER BY changed_at}
	),
	"processing\nunknown",
	'with an entry in its history');
is( $node->safe_psql(
		'postgres',
		q{SELECT outcome, response_body FROM idem_claim('young')}),
	'replay|"kept"',
	'what stays is replayed');

# ---- what it shows of itself

ok( $node->wait_for_log(
		qr/LOG:  idempotency purge of database "postgres" removed \d+ keys and \d+ messages, left \d+ requests to a person, in \d+\.\d{3} s/
	),
	'a round that purged something has a line in the log');
wait_until(
	'postgres',
	q{SELECT n_tup_del >= 30 FROM pg_stat_user_tables WHERE relname = 'transaction_log'},
	'statistics of the deletes arrive, for autovacuum to see');

my $log_size = -s $node->logfile;
wait_for_visits('postgres');
unlike(slurp_file($node->logfile, $log_size),
	qr/idempotency/, 'rounds with nothing to do say nothing');

# One row a batch, with a long pause: something to look at.
configure(q{
idempotency.purge_batch_size = 1
idempotency.purge_delay = 60s
});
make_expired('postgres', 5, 'slow');
wait_until('postgres',
	"SELECT count(*) = 1 FROM pg_stat_activity WHERE $worker AND wait_event_type = 'Extension' AND query LIKE '%removed'",
	'a worker at work is seen in pg_stat_activity');
my $wait_event =
  $node->pg_version >= 17 ? 'IdempotencyPurgeDelay' : 'Extension';
is( $node->safe_psql(
		'postgres',
		"SELECT datname, state, query, wait_event, backend_xmin IS NULL, backend_xid IS NULL FROM pg_stat_activity WHERE $worker"
	),
	"postgres|active|idempotency purge: 0 keys and 0 messages removed|$wait_event|t|t",
	'with what it does, and without a snapshot between two batches');
is( $node->safe_psql(
		'postgres',
		"SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE $worker"
	),
	'0',
	'and without any lock');
is( $node->safe_psql(
		'postgres',
		q{SELECT datname IS NULL, state FROM pg_stat_activity WHERE backend_type = 'idempotency launcher'}
	),
	't|idle',
	'the launcher is seen as well, connected to no database');

# ---- settings

# Off: even the worker that is under way leaves.
configure('idempotency.purge_interval = 0');
wait_until('postgres',
	"SELECT count(*) = 0 FROM pg_stat_activity WHERE $worker",
	'purge_interval = 0 ends a worker in the midst of its pause');
my $left = $node->safe_psql('postgres',
	q{SELECT count(*) FROM transaction_log WHERE request_id LIKE 'slow%'});
cmp_ok($left, '>', 0, 'it had not done everything');
configure(q{
idempotency.purge_interval = 20ms
idempotency.purge_delay = 0
idempotency.purge_batch_size = 1000
});
wait_until('postgres',
	q{SELECT count(*) = 0 FROM transaction_log WHERE request_id LIKE 'slow%'},
	'on again by a reload, it goes on');

my ($status, $out, $err) = $node->psql('postgres',
	q{ALTER SYSTEM SET idempotency.databases = 'a, "b'});
isnt($status, 0, 'a malformed list of databases is refused');
like($err, qr/double quotes/, 'with a message that says how it has to look');

# A database whose sessions are read-only, serializable, hurried and with
# another search_path is purged all the same.
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA trap;
	ALTER DATABASE postgres SET default_transaction_read_only = on;
	ALTER DATABASE postgres SET default_transaction_isolation = serializable;
	ALTER DATABASE postgres SET search_path = trap;
	ALTER DATABASE postgres SET lock_timeout = 1;
});
$node->safe_psql(
	'postgres', q{
	SET default_transaction_read_only = off;
	BEGIN READ WRITE;
	SELECT count(*) FROM generate_series(1, 10) i,
		LATERAL public.idem_claim('setting ' || i, ttl => '1ms', lease => '1ms');
	COMMIT});
wait_until(
	'postgres',
	q{SELECT count(*) = 0 FROM public.transaction_log WHERE request_id LIKE 'setting%'},
	'settings of a database do not keep the worker from its work');
$node->safe_psql(
	'postgres', q{
	SET default_transaction_read_only = off;
	ALTER DATABASE postgres RESET ALL});

# ---- nothing of others runs as superuser

$node->safe_psql(
	'postgres', q{
	CREATE TABLE seen (who text, what text);
	CREATE ROLE low;
	GRANT USAGE, CREATE ON SCHEMA public TO low;
	GRANT INSERT, SELECT ON seen TO low;
	CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN INSERT INTO seen VALUES (current_user, TG_OP); RETURN OLD; END $$;
	CREATE FUNCTION spy(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
		$$ BEGIN RAISE LOG 'index expression runs as %', current_user; RETURN $1; END $$;
	CREATE TRIGGER tell BEFORE DELETE ON transaction_log FOR EACH ROW EXECUTE FUNCTION tell();
	ALTER TABLE transaction_log ENABLE ALWAYS TRIGGER tell;
	ALTER TABLE transaction_log OWNER TO low;
	SET ROLE low;
	CREATE INDEX spy ON transaction_log (spy(request_id));
});
$log_size = -s $node->logfile;
$node->safe_psql(
	'postgres', q{
	SELECT idem_claim('turned', scope => 'manual', ttl => '1ms', lease => '1ms')});
make_expired('postgres', 3, 'trigger');
wait_until(
	'postgres',
	q{SELECT count(*) = 0 FROM transaction_log WHERE request_id LIKE 'trigger%'},
	'keys go from a log that belongs to another role');
wait_until(
	'postgres',
	q{SELECT status = 'unknown' FROM transaction_log WHERE request_id = 'turned'},
	'and are turned');
is($node->safe_psql('postgres', 'SELECT count(*) FROM seen'),
	'0', 'a trigger on the log does not fire');

# Lines of a background worker have no application name in front.
like(
	slurp_file($node->logfile, $log_size),
	qr/\] LOG:  index expression runs as low/,
	'an expression of an index runs with the rights of the owner');
unlike(
	slurp_file($node->logfile, $log_size),
	qr/\] LOG:  index expression runs as (?!low)/,
	'and with no other');
$node->safe_psql(
	'postgres', q{
	DROP INDEX spy;
	DROP TRIGGER tell ON transaction_log;
	ALTER TABLE transaction_log OWNER TO CURRENT_USER;
	DELETE FROM transaction_log});

# ---- locked rows and long transactions

make_expired('postgres', 3, 'locked');
$node->safe_psql('postgres', 'SELECT 1');
configure('idempotency.purge_interval = 0');
wait_until('postgres',
	"SELECT count(*) = 0 FROM pg_stat_activity WHERE $worker",
	'off again');
$node->safe_psql('postgres', 'DELETE FROM transaction_log');
make_expired('postgres', 3, 'locked');

my $client = $node->background_psql('postgres');
$client->query_safe(
	q{BEGIN; SELECT 1 FROM transaction_log WHERE request_id = 'locked 1' FOR UPDATE});
$client->query_safe(
	q{SELECT 1 FROM transaction_log WHERE request_id = 'locked 2' FOR KEY SHARE});

# And one that only has a snapshot.
my $reader = $node->background_psql('postgres');
$reader->query_safe(
	q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM transaction_log});

configure('idempotency.purge_interval = 20ms');
wait_until(
	'postgres',
	q{SELECT array_agg(request_id ORDER BY request_id) = '{locked 1,locked 2}' FROM transaction_log},
	'rows that a client has locked are skipped, others go');
make_expired('postgres', 100, 'meanwhile');
wait_until(
	'postgres',
	q{SELECT count(*) = 2 FROM transaction_log},
	'a long transaction does not stop the purge');
is($reader->query_safe('SELECT count(*) FROM transaction_log'),
	'3', 'nor is it disturbed: it sees what it saw');
$client->query_safe('COMMIT');
wait_until(
	'postgres',
	q{SELECT count(*) = 0 FROM transaction_log},
	'what was locked goes when it is free');
is($reader->query_safe('SELECT count(*) FROM transaction_log'),
	'3', 'and the long transaction still sees it');
$reader->query_safe('COMMIT');
$client->quit;
$reader->quit;

# ---- databases

$node->safe_psql('postgres', 'CREATE DATABASE without');
my @served = ('first', 'second "of", many');
my @unserved = ('template_one', 'closed', 'unlisted');
foreach my $db (@served, @unserved)
{
	my $quoted = $db =~ s/"/""/gr;

	$node->safe_psql('postgres', qq{CREATE DATABASE "$quoted"});
	$node->safe_psql($db, 'CREATE EXTENSION idempotency');
}
configure(
	q{idempotency.databases = 'without, first , "second ""of"", many", template_one, closed'}
);
$node->safe_psql(
	'postgres', q{
	ALTER DATABASE template_one IS_TEMPLATE true;
	ALTER DATABASE closed ALLOW_CONNECTIONS false});
foreach my $db (@served, 'template_one', 'unlisted')
{
	make_expired($db, 5, 'x');
}
$log_size = -s $node->logfile;
foreach my $db (@served)
{
	wait_until(
		$db,
		'SELECT count(*) = 0 FROM transaction_log',
		"database $db is purged");
}
is($node->safe_psql('template_one', 'SELECT count(*) FROM transaction_log'),
	'5', 'a template is not');
is($node->safe_psql('unlisted', 'SELECT count(*) FROM transaction_log'),
	'5', 'nor is a database that is not listed');
make_expired('postgres', 5, 'x');
configure(q{idempotency.databases = '*'});
wait_until('unlisted', 'SELECT count(*) = 0 FROM transaction_log',
	'* serves them all');
wait_until('postgres', 'SELECT count(*) = 0 FROM transaction_log',
	'each of them');
is($node->safe_psql('template_one', 'SELECT count(*) FROM transaction_log'),
	'5', 'but templates');
unlike(
	slurp_file($node->logfile, $log_size),
	qr/FATAL|ERROR/,
	'none of them is a reason to complain');

# The extension comes where it was not, and is found.
$node->safe_psql('without', 'CREATE EXTENSION idempotency');
make_expired('without', 5, 'x');
wait_until('without', 'SELECT count(*) = 0 FROM transaction_log',
	'a database that gets the extension later is found');

# An older version of the extension is left alone, and is found when updated.
$node->safe_psql('without',
	'ALTER INDEX transaction_log_due_at_idx RENAME TO not_yet');
make_expired('without', 5, 'y');
wait_for_visits('without');
is($node->safe_psql('without', 'SELECT count(*) FROM transaction_log'),
	'5', 'an extension that lacks what a purge needs is left alone');
$node->safe_psql('without',
	'ALTER INDEX not_yet RENAME TO transaction_log_due_at_idx');
wait_until('without', 'SELECT count(*) = 0 FROM transaction_log',
	'until it has it');
unlike(
	slurp_file($node->logfile, $log_size),
	qr/FATAL|ERROR/,
	'quietly');

# ---- no free worker slot

$node->append_conf('postgresql.conf', 'max_worker_processes = 2');
$node->restart;
make_expired('postgres', 5, 'x');
wait_until('postgres', 'SELECT count(*) = 0 FROM transaction_log',
	'one slot after the other is enough');
$node->append_conf('postgresql.conf', 'max_worker_processes = 1');
$node->restart;
make_expired('postgres', 5, 'x');
ok( $node->wait_for_log(
		qr/idempotency launcher found no free slot|too many background workers/),
	'no slot at all is told');
is($node->safe_psql('postgres', 'SELECT count(*) FROM transaction_log'),
	'5', 'and nothing is purged');
$node->safe_psql('postgres', 'CALL idem_purge_all()');
is($node->safe_psql('postgres', 'SELECT count(*) FROM transaction_log'),
	'0', 'but by hand');

# ---- without preload

$node->append_conf('postgresql.conf', q{shared_preload_libraries = ''});
$node->restart;
make_expired('postgres', 5, 'x');
is($node->safe_psql('postgres', 'SELECT idem_purge()'),
	'5', 'without preload the purge works by hand');
is( $node->safe_psql(
		'postgres',
		q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'idempotency%'}
	),
	'0',
	'and there is no worker');

$node->stop;
done_testing();
