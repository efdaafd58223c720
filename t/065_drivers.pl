# What docs/drivers.md says about each driver, as far as it is there.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use IPC::Run;
use Language;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# JDBC knows no sockets in the file system.
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'");
$node->start;
$node->safe_psql('postgres', q(
CREATE EXTENSION idempotency;
CREATE FUNCTION echo(body jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT body';
));
$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
$ENV{PGUSER} = getpwuid($<);
$ENV{PGDATABASE} = 'postgres';

# Runs a program and compares what it prints; "unless" is what is missing.
sub prints
{
	my ($driver, $command, $program, $printed) = @_;

	if (!$command)
	{
		diag("not tried: $driver");
		return;
	}
	my $file = PostgreSQL::Test::Utils::tempdir() . '/' . $command->[-1];
	append_to_file($file, $program);
	is((Language::run([ @$command[ 0 .. $#$command - 1 ], $file ]))[1], $printed, $driver);
	return;
}

sub python_with
{
	my ($module) = @_;
	my $python = Language::python($module);

	return $python ? [ $python, 'drivers.py' ] : undef;
}

sub try_sql
{
	is( $node->safe_psql('postgres', q{
			SELECT outcome FROM idem_claim('k', '{}', 'orders');
			SELECT scope FROM transaction_log WHERE request_id = 'k';
			SELECT interval '30000', interval '30 s';
			SELECT outcome, retry_after > '8 hours' FROM idem_claim('s', lease => '30000');
			SELECT retry_after > '8 hours' FROM idem_claim('s');
			SELECT token < 2::bigint ^ 53, token::float8::bigint = token FROM idem_claim('t')}),
		"claimed\norders\n08:20:00|00:00:30\nclaimed|\nt\nt|t",
		'for all: the third is the scope, a bare number is seconds, a token fits a double');
	foreach my $refused ('"a\u0000b"', '"\ud800"')
	{
		my ($status, undef, $error) = $node->psql('postgres',
			"\\set VERBOSITY sqlstate\nSELECT idem_claim('r', '$refused')");
		like($error, qr/22P0[25]/, "jsonb refuses $refused");
	}
	my ($status, undef, $error) = $node->psql('postgres',
		q{SELECT idem_claim('6d0b3cd8-6b3b-4c07-8b53-2f0d3a1f4e11'::uuid)});
	like($error, qr/function idem_claim\(uuid\) does not exist/, 'a uuid needs a cast');
	is( $node->safe_psql('postgres', q{
			SELECT outcome FROM idem_claim('6d0b3cd8-6b3b-4c07-8b53-2f0d3a1f4e11'::uuid::text)}),
		'claimed', 'with one it is a key');
	return;
}

try_sql();
prints('psycopg 3', python_with('psycopg'), <<'PYTHON', <<'PRINTED');
import uuid
from datetime import timedelta
import psycopg
from psycopg.types.json import Jsonb

connection = psycopg.connect(autocommit=True)

def ask(what, sql, *values):
    try:
        value = connection.execute(sql, values).fetchone()[0]
        print(what, value if isinstance(value, str) else type(value).__name__)
    except psycopg.Error as error:
        print(what, type(error).__name__)

claim = "SELECT outcome FROM idem_claim(%s, %s)"
lease = "SELECT outcome FROM idem_claim(%s, lease => %s)"
ask("dict", claim, "k-1", {"a": 1})
ask("Jsonb", claim, "k-1", Jsonb({"a": 1}))
ask("text", claim, "k-2", '{"a": 1}')
ask("uuid", "SELECT outcome FROM idem_claim(%s)", uuid.uuid4())
ask("uuid cast", "SELECT outcome FROM idem_claim(%s::text)", uuid.uuid4())
ask("str(uuid)", "SELECT outcome FROM idem_claim(%s)", str(uuid.uuid4()))
ask("int", "SELECT outcome FROM idem_claim(%s)", 42)
ask("number", lease, "k-3", 30)
ask("string", lease, "k-4", "30 s")
ask("timedelta", lease, "k-5", timedelta(seconds=30))
ask("retry_after", "SELECT retry_after FROM idem_claim(%s)", "k-5")
ask("token", "SELECT token FROM idem_claim(%s)", "k-6")
ask("bytes", "SELECT outcome FROM idem_claim(%s, fingerprint => %s)", "k-7", b"\0\1")
with connection.transaction():
    ask("claimed", "SELECT outcome FROM idem_claim(%s)", "k-8")
    ask("finish", "SELECT idem_finish(%s, %s, response_bytes => %s)", "k-8", Jsonb([1]), b"\0")
ask("response_body", "SELECT response_body FROM idem_claim(%s)", "k-8")
ask("response_bytes", "SELECT response_bytes FROM idem_claim(%s)", "k-8")
try:
    connection.execute("SELECT idem_finish('k-9')")
except psycopg.Error as error:
    print("SQLSTATE", error.sqlstate)
print("float", Jsonb(0.1 + 0.2).obj, connection.execute(
    "SELECT %s::jsonb::text", [Jsonb({"n": 12345678901234567.25})]).fetchone()[0])
print("text", connection.execute(
    "SELECT %s::jsonb::text", ['{"n": 12345678901234567.25}']).fetchone()[0])
other = psycopg.connect()
other.execute("SELECT 1")
print("without autocommit", other.info.transaction_status.name)
other.commit()
print("commit", other.info.transaction_status.name)
PYTHON
dict ProgrammingError
Jsonb claimed
text claimed
uuid UndefinedFunction
uuid cast claimed
str(uuid) claimed
int UndefinedFunction
number UndefinedFunction
string claimed
timedelta claimed
retry_after timedelta
token int
bytes claimed
claimed claimed
finish bool
response_body list
response_bytes bytes
SQLSTATE ID002
float 0.30000000000000004 {"n": 12345678901234568}
text {"n": 12345678901234567.25}
without autocommit INTRANS
commit IDLE
PRINTED

prints('psycopg2', python_with('psycopg2'), <<'PYTHON', <<'PRINTED');
import uuid
from datetime import timedelta
import psycopg2
from psycopg2.extras import Json

connection = psycopg2.connect("")
connection.autocommit = True
cursor = connection.cursor()

def ask(what, sql, *values):
    try:
        cursor.execute(sql, values)
        value = cursor.fetchone()[0]
        print(what, value if isinstance(value, str) else type(value).__name__)
    except psycopg2.Error as error:
        print(what, type(error).__name__)

claim = "SELECT outcome FROM idem_claim(%s, %s)"
lease = "SELECT outcome FROM idem_claim(%s, lease => %s)"
ask("dict", claim, "2-1", {"a": 1})
ask("Json", claim, "2-1", Json({"a": 1}))
ask("uuid", "SELECT outcome FROM idem_claim(%s)", uuid.uuid4())
ask("str(uuid)", "SELECT outcome FROM idem_claim(%s)", str(uuid.uuid4()))
ask("number", lease, "2-2", 30)
ask("timedelta", lease, "2-2", timedelta(seconds=30))
ask("retry_after", "SELECT retry_after FROM idem_claim(%s)", "2-2")
ask("token", "SELECT token FROM idem_claim(%s)", "2-3")
ask("bytes", "SELECT outcome FROM idem_claim(%s, fingerprint => %s)", "2-4", b"\0\1")
PYTHON
dict ProgrammingError
Json claimed
uuid ProgrammingError
str(uuid) claimed
number UndefinedFunction
timedelta claimed
retry_after timedelta
token int
bytes claimed
PRINTED

prints('asyncpg', python_with('asyncpg'), <<'PYTHON', <<'PRINTED');
import asyncio, json, uuid
from datetime import timedelta
import asyncpg

async def main():
    connection = await asyncpg.connect()

    async def ask(what, sql, *values):
        try:
            value = await connection.fetchval(sql, *values)
            print(what, value if isinstance(value, str) else type(value).__name__)
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            print(what, type(error).__name__)

    claim = "SELECT outcome FROM idem_claim($1, $2)"
    lease = "SELECT outcome FROM idem_claim($1, lease => $2)"
    await ask("dict", claim, "a-1", {"a": 1})
    await ask("text", claim, "a-1", json.dumps({"a": 1}))
    await ask("string", lease, "a-2", "30 s")
    await ask("number", lease, "a-2", 30)
    await ask("timedelta", lease, "a-2", timedelta(seconds=30))
    await ask("retry_after", "SELECT retry_after FROM idem_claim($1)", "a-2")
    await ask("uuid", "SELECT outcome FROM idem_claim($1)", uuid.uuid4())
    await ask("run", "SELECT outcome FROM idem_run($1, $2, 'echo')", "a-4", "{}")
    await ask("response_body", "SELECT response_body FROM idem_claim($1)", "a-4")
    await connection.set_type_codec(
        "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    await ask("codec", claim, "a-3", {"a": 1})
    await ask("codec", "SELECT response_body FROM idem_claim($1)", "a-4")

asyncio.run(main())
PYTHON
dict DataError
text claimed
string DataError
number DataError
timedelta claimed
retry_after timedelta
uuid DataError
run executed
response_body {}
codec claimed
codec dict
PRINTED

prints('node-pg', Language::node_modules() ? [ 'node', 'drivers.js' ] : undef, <<'NODE', <<'PRINTED');
const { Client } = require('pg');
const client = new Client();

async function ask(what, sql, ...values) {
  try {
    const { rows } = await client.query(sql, values);
    const [value] = Object.values(rows[0]);
    const isText = typeof value === 'string';
    console.log(what, isText && !/^\d+$/.test(value) ? value
      : isText ? `digits of ${value.length > 10}` : value.constructor.name);
  } catch (error) {
    console.log(what, error.code);
  }
}

(async () => {
  await client.connect();
  const claim = 'SELECT outcome FROM idem_claim($1, $2)';
  const lease = 'SELECT outcome FROM idem_claim($1, lease => $2)';
  await ask('object', claim, 'n-1', { a: 1 });
  await ask('array', claim, 'n-2', [{ a: 1 }]);
  await ask('array in JSON', claim, 'n-2', JSON.stringify([{ a: 1 }]));
  await ask('string', claim, 'n-3', 'tea');
  await ask('string in JSON', claim, 'n-3', JSON.stringify('tea'));
  await ask('number as lease', lease, 'n-4', 30000);
  await ask('is seconds', "SELECT (retry_after > '8 hours')::text FROM idem_claim($1)", 'n-4');
  await ask('token', 'SELECT token FROM idem_claim($1)', 'n-5');
  const { rows: [row] } = await client.query("SELECT token FROM idem_claim('n-6', '{}')");
  await ask('handed back', 'SELECT idem_finish($1, $2, token => $3, response_bytes => $4)',
    'n-6', JSON.stringify({ a: [1] }), row.token, Buffer.of(0, 1));
  await ask('retry_after', 'SELECT retry_after FROM idem_claim($1)', 'n-4');
  await ask('Retry-After', 'SELECT ceil(extract(epoch FROM retry_after))::int FROM idem_claim($1)', 'n-4');
  await ask('response_body', 'SELECT response_body FROM idem_claim($1)', 'n-6');
  await ask('response_body::text', 'SELECT response_body::text FROM idem_claim($1)', 'n-6');
  await ask('response_bytes', 'SELECT response_bytes FROM idem_claim($1)', 'n-6');
  await ask('SQLSTATE', 'SELECT idem_finish($1)', 'n-7');
  const events = [];
  client.on('error', (error) => events.push(error.code ?? 'none'));
  const other = new Client();
  await other.connect();
  const lost = new Promise((resolve) => { client.once('end', resolve); });
  await other.query('SELECT pg_terminate_backend($1)', [client.processID]);
  await lost;
  await other.end();
  console.log('event', events[0]);
})();
NODE
object claimed
array 22P02
array in JSON claimed
string 22P02
string in JSON claimed
number as lease claimed
is seconds true
token digits of true
handed back Boolean
retry_after PostgresInterval
Retry-After Number
response_body Object
response_body::text {"a": [1]}
response_bytes Buffer
SQLSTATE ID002
event 57P01
PRINTED

my $jdbc = Language::jdbc();
my $java = $jdbc && defined Language::told('javac', '-version')
  ? [ 'java', '-cp', $jdbc, 'Drivers.java' ] : undef;
prints('JDBC', $java, <<'JAVA' =~ s/PORT/$node->port/er =~ s/USER/$ENV{PGUSER}/r, <<'PRINTED');
import java.sql.*;
import java.time.Duration;
import java.util.UUID;

public class Drivers {
    static Connection connection;

    static void ask(String what, String sql, Object... values) {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                if (values[i] instanceof String s) {
                    statement.setString(i + 1, s);
                } else {
                    statement.setObject(i + 1, values[i]);
                }
            }
            ResultSet row = statement.executeQuery();
            row.next();
            Object value = row.getObject(1);
            System.out.println(what + " " + (value instanceof String ? value
                : value.getClass().getSimpleName()));
        } catch (SQLException error) {
            System.out.println(what + " " + error.getSQLState());
        }
    }

    public static void main(String[] args) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:PORT/postgres?user=USER";
        String claim = "SELECT outcome FROM idem_claim(?, ?)";
        String lease = "SELECT outcome FROM idem_claim(?, lease => ?)";

        connection = DriverManager.getConnection(url);
        ask("string", claim, "j-1", "{}");
        ask("cast", "SELECT outcome FROM idem_claim(?, ?::jsonb)", "j-1", "{}");
        ask("lease", lease, "j-2", "30 s");
        ask("cast", "SELECT outcome FROM idem_claim(?, lease => ?::interval)", "j-2", "30 s");
        ask("Duration", lease, "j-3", Duration.ofSeconds(30));
        ask("UUID", "SELECT outcome FROM idem_claim(?)", UUID.randomUUID());
        ask("UUID cast", "SELECT outcome FROM idem_claim(?::text)", UUID.randomUUID());
        ask("retry_after", "SELECT retry_after FROM idem_claim(?)", "j-2");
        ask("token", "SELECT token FROM idem_claim(?)", "j-4");
        ask("run", "SELECT outcome FROM idem_run(?, ?::jsonb, 'echo')", "j-5", "{\"a\": 1}");
        ask("response_body", "SELECT response_body FROM idem_claim(?)", "j-5");
        try (ResultSet row = connection.createStatement().executeQuery(
                "SELECT response_body FROM idem_claim('j-5')")) {
            row.next();
            System.out.println("getString " + row.getString(1));
        }
        ask("SQLSTATE", "SELECT idem_finish(?)", "j-6");
        connection = DriverManager.getConnection(url + "&stringtype=unspecified");
        ask("unspecified", claim, "j-7", "{}");
        ask("unspecified", lease, "j-8", "30 s");
    }
}
JAVA
string 42883
cast claimed
lease 42883
cast claimed
Duration 07006
UUID 42883
UUID cast claimed
retry_after PGInterval
token Long
run executed
response_body PGobject
getString {"a": 1}
SQLSTATE ID002
unspecified claimed
unspecified claimed
PRINTED

my $php = defined Language::told('php', '-r',
	'exit(extension_loaded("pdo_pgsql") ? 0 : 1);') ? [ 'php', 'drivers.php' ] : undef;
prints('PDO', $php, <<'PHP', <<'PRINTED');
<?php
$pdo = new PDO('pgsql:');

function ask(string $what, string $sql, mixed ...$values): void
{
    global $pdo;
    try {
        $statement = $pdo->prepare($sql);
        foreach ($values as $i => $value) {
            $statement->bindValue($i + 1, $value, is_resource($value) ? PDO::PARAM_LOB : PDO::PARAM_STR);
        }
        $statement->execute();
        $value = $statement->fetchColumn();
        echo $what, ' ', is_string($value) ? $value : get_debug_type($value), "\n";
    } catch (PDOException $e) {
        echo $what, ' ', $e->errorInfo[0], "\n";
    }
}

$bytes = fopen('php://memory', 'w+');
fwrite($bytes, "\0\1");
rewind($bytes);
ask('json_encode', 'SELECT outcome FROM idem_claim(?, ?)', 'p-1', json_encode(['a' => 1.0], JSON_PRESERVE_ZERO_FRACTION));
ask('lease', 'SELECT outcome FROM idem_claim(?, lease => ?)', 'p-2', '30 s');
ask('token', 'SELECT pg_typeof(token)::text FROM idem_claim(?)', 'p-3');
ask('PARAM_LOB', 'SELECT outcome FROM idem_claim(?, fingerprint => ?)', 'p-4', $bytes);
ask('bytea', 'SELECT fingerprint FROM transaction_log WHERE request_id = ?', 'p-4');
ask('bytes', "SELECT encode(fingerprint, 'hex') FROM transaction_log WHERE request_id = ?", 'p-4');
ask('SQLSTATE', 'SELECT idem_finish(?)', 'p-5');
echo json_encode(1.0), ' ', json_encode(1.0, JSON_PRESERVE_ZERO_FRACTION), "\n";
PHP
json_encode claimed
lease claimed
token bigint
PARAM_LOB claimed
bytea resource (stream)
bytes 0001
SQLSTATE ID002
1 1.0
PRINTED

my $ruby = defined Language::told('ruby', '-e', 'require "pg"') ? [ 'ruby', 'drivers.rb' ] : undef;
prints('ruby-pg', $ruby, <<'RUBY', <<'PRINTED');
require 'json'
require 'pg'

$connection = PG.connect

def ask(what, sql, *values)
  value = $connection.exec_params(sql, values).getvalue(0, 0)
  puts "#{what} #{value.is_a?(String) && value !~ /\A\d+\z/ ? value : value.class}"
rescue PG::Error => e
  puts "#{what} #{e.result.error_field(PG::Result::PG_DIAG_SQLSTATE)}"
end

ask('JSON', 'SELECT outcome FROM idem_claim($1, $2)', 'r-1', JSON.generate({ a: 1 }))
ask('hash', 'SELECT outcome FROM idem_claim($1, $2)', 'r-2', { a: 1 }.to_s)
ask('lease', 'SELECT outcome FROM idem_claim($1, lease => $2)', 'r-3', '30 s')
ask('token', 'SELECT token FROM idem_claim($1)', 'r-4')
ask('bytes', 'SELECT outcome FROM idem_claim($1, fingerprint => $2)', 'r-5', { value: "\0\1", format: 1 })
ask('stored', "SELECT 'x' || encode(fingerprint, 'hex') FROM transaction_log WHERE request_id = $1", 'r-5')
ask('SQLSTATE', 'SELECT idem_finish($1)', 'r-6')
begin
  $connection.transaction do |c|
    c.exec("SELECT idem_claim('r-7')")
    raise 'out of here'
  end
rescue RuntimeError
  ask('rolled back', "SELECT 'n' || count(*) FROM transaction_log WHERE request_id = $1", 'r-7')
end
$connection.type_map_for_results = PG::BasicTypeMapForResults.new($connection)
ask('type map', 'SELECT token FROM idem_claim($1)', 'r-8')
RUBY
JSON claimed
hash 22P02
lease claimed
token String
bytes claimed
stored x0001
SQLSTATE ID002
rolled back n0
type map Integer
PRINTED

$node->stop;
done_testing();
