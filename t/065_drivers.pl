# What docs/drivers.md says about the drivers of Python: psycopg 3, and asyncpg
# where it is there.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($python) =
  grep { IPC::Run::run([ $_, '-c', 'import psycopg' ], '<', \undef, '>&', \my $out) }
  grep { -x $_ } map { "$_/python3" } split(/:/, $ENV{PATH}), '/usr/bin';
plan skip_all => 'no python3 with psycopg 3 (python3-psycopg)' unless $python;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION idempotency');
$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
$ENV{PGUSER} = getpwuid($<);
$ENV{PGDATABASE} = 'postgres';

# What a Python program prints.
sub python
{
	my ($program) = @_;
	my $printed = '';

	IPC::Run::run([ $python, '-' ], '<', \$program, '>&', \$printed);
	return $printed;
}

is(python(<<'PYTHON'), <<'PRINTED', 'psycopg 3');
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
ask("str(uuid)", "SELECT outcome FROM idem_claim(%s)", str(uuid.uuid4()))
ask("int", "SELECT outcome FROM idem_claim(%s)", 42)
ask("number", lease, "k-3", 30)
ask("string", lease, "k-4", "30 s")
ask("timedelta", lease, "k-5", timedelta(seconds=30))
ask("retry_after", "SELECT retry_after FROM idem_claim(%s)", "k-5")
ask("token", "SELECT token FROM idem_claim(%s)", "k-6")
ask("bytes", "SELECT outcome FROM idem_claim(%s, fingerprint => %s)", "k-7", b"\0\1")
PYTHON
dict ProgrammingError
Jsonb claimed
text claimed
uuid UndefinedFunction
str(uuid) claimed
int UndefinedFunction
number UndefinedFunction
string claimed
timedelta claimed
retry_after timedelta
token int
bytes claimed
PRINTED

SKIP:
{
	skip 'no asyncpg (python3-asyncpg)', 1
	  unless python('import asyncpg; print(1)') eq "1\n";
	is(python(<<'PYTHON'), <<'PRINTED', 'asyncpg');
import asyncio, json, uuid
from datetime import timedelta
import asyncpg

async def main():
    connection = await asyncpg.connect()

    async def ask(what, sql, *values):
        try:
            print(what, await connection.fetchval(sql, *values))
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            print(what, type(error).__name__)

    claim = "SELECT outcome FROM idem_claim($1, $2)"
    lease = "SELECT outcome FROM idem_claim($1, lease => $2)"
    await ask("dict", claim, "a-1", {"a": 1})
    await ask("text", claim, "a-1", json.dumps({"a": 1}))
    await ask("string", lease, "a-2", "30 s")
    await ask("number", lease, "a-2", 30)
    await ask("timedelta", lease, "a-2", timedelta(seconds=30))
    await ask("uuid", "SELECT outcome FROM idem_claim($1)", uuid.uuid4())
    await connection.set_type_codec(
        "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    await ask("codec", claim, "a-3", {"a": 1})

asyncio.run(main())
PYTHON
dict DataError
text claimed
string DataError
number DataError
timedelta claimed
uuid DataError
codec claimed
PRINTED
}

$node->stop;
done_testing();
