# Four shards behind PL/Proxy: a key is claimed on the one that it hashes to,
# whoever asks, and is finished with its effect there.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;

my $CLIENTS = 4;
my $SHARDS = 4;
my $KEYS = 40;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', 'max_connections = 50');
$node->start;
plan skip_all => 'needs PL/Proxy'
  if $node->safe_psql('postgres',
	q(SELECT count(*) FROM pg_available_extensions WHERE name = 'plproxy')) eq '0';

my $host = $node->host;
my $port = $node->port;
my $user = $node->safe_psql('postgres', 'SELECT current_user');

# A shard: the extension, and one function that does all of a request.
for my $n (0 .. $SHARDS - 1)
{
	$node->safe_psql('postgres', "CREATE DATABASE shard$n");
	$node->safe_psql("shard$n", q(
CREATE EXTENSION idempotency;
CREATE TABLE payment (request_id text, amount int);
CREATE FUNCTION pay(jsonb) RETURNS jsonb LANGUAGE sql AS
	'INSERT INTO payment VALUES ($1->>''key'', ($1->>''amount'')::int) RETURNING to_jsonb(payment)';
CREATE FUNCTION request(request_id text, body jsonb, OUT outcome text, OUT response_body jsonb)
LANGUAGE sql AS 'SELECT outcome, response_body FROM idem_run(request_id, body, ''pay'')';
CREATE FUNCTION claim(request_id text, body jsonb, OUT outcome text, OUT token bigint)
LANGUAGE sql AS 'SELECT outcome, token FROM idem_claim(request_id, body)';
CREATE FUNCTION finish(request_id text, body jsonb, token bigint) RETURNS boolean
LANGUAGE sql AS 'SELECT idem_finish(request_id, body, token => token)';
));
}
my $servers = join(",\n", map { "p$_ 'dbname=shard$_ host=$host port=$port'" } 0 .. $SHARDS - 1);
$node->safe_psql('postgres', qq(
CREATE EXTENSION plproxy;
CREATE SERVER shards FOREIGN DATA WRAPPER plproxy OPTIONS ($servers);
CREATE USER MAPPING FOR $user SERVER shards OPTIONS (user '$user');
CREATE FUNCTION request(request_id text, body jsonb, OUT outcome text, OUT response_body jsonb)
LANGUAGE plproxy AS 'CLUSTER ''shards''; RUN ON hashtext(request_id);';
CREATE FUNCTION claim(request_id text, body jsonb, OUT outcome text, OUT token bigint)
LANGUAGE plproxy AS 'CLUSTER ''shards''; RUN ON hashtext(request_id);';
CREATE FUNCTION finish(request_id text, body jsonb, token bigint) RETURNS boolean
LANGUAGE plproxy AS 'CLUSTER ''shards''; RUN ON hashtext(request_id);';
));

my $all = qq(SELECT outcome, count(*) FROM generate_series(1, $KEYS) i,
	request('key ' || i, jsonb_build_object('key', 'key ' || i, 'amount', i)) GROUP BY 1);
is($node->safe_psql('postgres', $all), "executed|$KEYS", 'each request is carried out');
is($node->safe_psql('postgres', $all), "replay|$KEYS", 'and replayed when it comes again');
is( $node->safe_psql('postgres', q(SELECT response_body FROM request('key 7', '{"key": "key 7", "amount": 7}'))),
	'{"amount": 7, "request_id": "key 7"}',
	'with its response');
my ($status, $out, $err) = $node->psql('postgres', q(SELECT * FROM request('key 7', '{"key": "key 7", "amount": 8}')));
isnt($status, 0, 'another request under the same key is refused');

my ($effects, $used) = (0, 0);
for my $n (0 .. $SHARDS - 1)
{
	my $here = $node->safe_psql("shard$n",
		'SELECT count(*) FROM payment p JOIN transaction_log l USING (request_id)');
	$effects += $here;
	$used++ if $here > 0;
}
is($effects, $KEYS, 'each effect is where its key is, once');
is($used, $SHARDS, 'all shards are used');

my ($outcome, $token) = split /\|/, $node->safe_psql('postgres', q(SELECT * FROM claim('held', '1')));
is($outcome, 'claimed', 'two transactions: claimed');
is($node->safe_psql('postgres', q(SELECT outcome FROM claim('held', '1'))), 'in_progress', 'a duplicate is told so');
is($node->safe_psql('postgres', "SELECT finish('held', '2', $token)"), 't', 'finished by the token');
is($node->safe_psql('postgres', q(SELECT outcome FROM claim('held', '1'))), 'replay', 'and replayed');

# Clients that want the same keys at once.
my @clients = map { PsqlSession->new($node->connstr('postgres')) } 1 .. $CLIENTS;
my @wrong;
for my $n (1 .. $KEYS)
{
	my %count;

	$_->start("SELECT outcome FROM claim('race $n', '1')") for @clients;
	for my $client (@clients)
	{
		my ($sqlstate, $row) = $client->answer;
		$count{ $sqlstate eq '00000' ? $row->[0] : $sqlstate }++;
	}
	my $answers = join(' ', map { "$_ $count{$_}" } sort keys %count);
	push @wrong, "race $n: $answers" if $answers ne 'claimed 1 in_progress ' . ($CLIENTS - 1);
}
is(join("\n", @wrong), '', 'of all who want a key at once, by way of the proxy, one gets it');
$_->close for @clients;

$node->stop;
done_testing();
