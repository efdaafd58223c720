# The shop in Python, over HTTP.  Wants python3 with psycopg 3.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Language;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WebShop;

my $dir = "$FindBin::RealBin/../examples/clients/python";
my $python = Language::python('psycopg');
plan skip_all => 'no python3 with psycopg 3 (python3-psycopg)' unless $python;

if (defined Language::told($python, '-c', 'import mypy'))
{
	my @mypy = ($python, qw(-m mypy --strict --cache-dir=/dev/null --no-error-summary));
	local $ENV{MYPYPATH} = $dir;
	is(Language::told(@mypy, glob("$dir/*.py")), '', 'mypy has nothing to say');
}
else
{
	diag('not tried: mypy');
}

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
WebShop::try($node, [ $python, qw(-B -W default), "$dir/shop.py" ]);
unlike(slurp_file($node->logfile . '.shop'),
	qr/(shop|idempotent)\.py:\d+: \w*Warning/, 'nor has Python while it runs');

# What the shop does not do.
$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
$ENV{PGDATABASE} = 'postgres';
$ENV{PGUSER} = 'shop_app';
$ENV{PYTHONPATH} = $dir;
my $program = PostgreSQL::Test::Utils::tempdir() . '/more.py';
append_to_file($program, <<'PYTHON');
from datetime import timedelta
import psycopg
from idempotent import (
    Failed, InProgress, Mismatch, NothingDone, Reply, idempotent, idempotent_outside)

def one(sql, *values):
    with psycopg.connect() as other:
        return other.execute(sql, values).fetchone()[0]

@idempotent_outside(scope="more", lease=timedelta(minutes=1))
def extends(claim, request):
    claim.extend(timedelta(hours=1))
    return Reply(200, one("SELECT retry_after > '50 minutes' FROM idem_claim(%s, scope => 'more')", claim.key))

@idempotent_outside(scope="more")
def gives_up(claim, request):
    raise NothingDone

@idempotent_outside(scope="more")
def fails(claim, request):
    raise Failed(Reply(410, b"gone", [("X-Why", "gone")]))

@idempotent(scope="more")
def nothing(connection, request):
    return Reply(204)

def ask(work, key, request, **more):
    try:
        print(work.__name__, *work(connection, request, key=key, **more))
    except (InProgress, Mismatch, NothingDone) as error:
        print(work.__name__, type(error).__name__)

connection = psycopg.connect(autocommit=True)
for _ in range(2):
    ask(extends, "m-1", None)
    ask(gives_up, "m-2", [1])
    ask(fails, "m-3", {"a": 0})
    ask(nothing, "m-4", 0)
ask(nothing, "m-2", False)
ask(nothing, "m-4", False)
ask(nothing, "m-4", False, scope="else")
connection.close()
PYTHON
is((Language::run([ $python, qw(-B -W error::ResourceWarning), $program ]))[1], <<'PRINTED', 'the other ways to end');
extends 200 True () False
gives_up NothingDone
fails 410 b'gone' [('X-Why', 'gone')] False
nothing 204 None () False
extends 200 True [] True
gives_up NothingDone
fails 410 b'gone' [('X-Why', 'gone')] True
nothing 204 None [] True
nothing 204 None () False
nothing Mismatch
nothing 204 None () False
PRINTED
$node->stop;
done_testing();
