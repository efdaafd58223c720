# The shop in JavaScript, over HTTP.  Wants node (18 or later) and npm, which
# gets the driver and Express, unless they are there.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WebShop;

my $source = "$FindBin::RealBin/../examples/clients/node";
my $dir = PostgreSQL::Test::Utils::tempdir();
my $ran;

plan skip_all => 'no node, version 18 or later'
  unless eval {
	  $ran = IPC::Run::run([ 'node', '-e', 'process.exit(typeof fetch === "function" ? 0 : 1)' ]);
  } && $ran;

foreach my $file (qw(package.json idempotent.js shop.js))
{
	append_to_file("$dir/$file", slurp_file("$source/$file"));
}
if (-d "$source/node_modules")
{
	symlink "$source/node_modules", "$dir/node_modules" or die $!;
}
else
{
	my $output = '';

	plan skip_all => 'npm cannot install pg and express'
	  unless eval {
		  $ran = IPC::Run::run(
			  [ 'npm', 'install', '--no-audit', '--no-fund' ],
			  '<', \undef, '>&', \$output,
			  init => sub { chdir $dir or die $! },
			  IPC::Run::timeout(90));
	  } && $ran;
}

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
WebShop::try($node, [ 'node', "$dir/shop.js" ]);
$node->stop;
done_testing();
