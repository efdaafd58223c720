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
$node->stop;
done_testing();
