# The command that places an order, in PHP.  Wants php with PDO for PostgreSQL.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Language;
use OrderCommand;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/../examples/clients/php";

plan skip_all => 'no php with PDO for PostgreSQL (php-cli, php-pgsql)'
  unless defined Language::told('php', '-r',
	'exit(extension_loaded("pdo_pgsql") ? 0 : 1);');

foreach my $file (glob("$source/*.php"))
{
	like(Language::told('php', '-l', $file),
		qr/^No syntax errors detected in \S+\n$/, "php has nothing to say of $file");
}

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
my $dsn = 'pgsql:host=' . $node->host . ';port=' . $node->port
  . ';dbname=postgres;user=shop_app';
# Notices and warnings are printed, and so are no answer.
OrderCommand::try($node,
	[ 'php', '-d', 'error_reporting=-1', '-d', 'display_errors=1', "$source/order.php", $dsn ]);
$node->stop;
done_testing();
