# The command that places an order, in PHP.  Wants php with PDO for PostgreSQL.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use OrderCommand;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/../examples/clients/php";
my $ran;

plan skip_all => "no php with PDO for PostgreSQL (php-cli, php-pgsql)"
  unless eval {
	  $ran = IPC::Run::run(
		  [ "php", "-r", "exit(extension_loaded(\"pdo_pgsql\") ? 0 : 1);" ]);
  } && $ran;

my $node = PostgreSQL::Test::Cluster->new("main");
$node->init;
$node->start;
my $dsn = "pgsql:host=" . $node->host . ";port=" . $node->port
  . ";dbname=postgres;user=shop_app";
OrderCommand::try($node, [ "php", "$source/order.php", $dsn ]);
$node->stop;
done_testing();
