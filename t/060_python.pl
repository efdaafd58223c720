# The shop in Python, over HTTP.  Wants python3 with psycopg 3.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WebShop;

# A python3 of one's own may come first in PATH, and lack the driver.
my ($python) =
  grep { IPC::Run::run([ $_, '-c', 'import psycopg' ], '<', \undef, '>&', \my $out) }
  grep { -x $_ } map { "$_/python3" } split(/:/, $ENV{PATH}), '/usr/bin';
plan skip_all => 'no python3 with psycopg 3 (python3-psycopg)' unless $python;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
WebShop::try($node,
	[ $python, "$FindBin::RealBin/../examples/clients/python/shop.py" ]);
$node->stop;
done_testing();
