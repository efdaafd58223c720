# The shop in JavaScript, over HTTP.  Wants node (18 or later), and the driver and
# Express: in node_modules, of the distribution, or from npm.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Language;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use WebShop;

my $dir = Language::node_directory();
plan skip_all => 'no node with pg and express (nodejs, node-pg, node-express)' unless $dir;

foreach my $file ("$dir/idempotent.js", "$dir/shop.js")
{
	is(Language::told('node', '--check', $file), '', "node has nothing to say of $file");
}

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
WebShop::try($node, [ 'node', "$dir/shop.js" ]);
unlike(slurp_file($node->logfile . '.shop'),
	qr/MaxListeners|Unhandled/, 'and nothing while it runs');
$node->stop;
done_testing();
