# The command that places an order, in Ruby.  Wants ruby with the gem pg.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Language;
use OrderCommand;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/../examples/clients/ruby";

plan skip_all => 'no ruby with pg (ruby-pg)'
  unless defined Language::told('ruby', '-e', 'require "pg"');

foreach my $file (glob("$source/*.rb"))
{
	is(Language::told('ruby', '-wc', $file), "Syntax OK\n", "ruby has nothing to say of $file");
}

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
OrderCommand::try($node,
	[ 'ruby', '-w', "$source/order.rb", $node->connstr('postgres') . ' user=shop_app' ]);
$node->stop;
done_testing();
