# The command that places an order, in Ruby.  Wants ruby with the gem pg.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use OrderCommand;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/../examples/clients/ruby";
my $ran;

plan skip_all => "no ruby with pg (ruby-pg)"
  unless eval {
	  $ran = IPC::Run::run([ "ruby", "-e", "require %q(pg)" ], "2>", \my $errors);
  } && $ran;

my $node = PostgreSQL::Test::Cluster->new("main");
$node->init;
$node->start;
OrderCommand::try($node,
	[ "ruby", "$source/order.rb", $node->connstr("postgres") . " user=shop_app" ]);
$node->stop;
done_testing();
