# The command that places an order, in Java.  Wants a JDK (17 or later) and the driver.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Language;
use OrderCommand;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/../examples/clients/java";
my $driver = Language::jdbc();
my $classes = PostgreSQL::Test::Utils::tempdir();

plan skip_all => 'no JDBC driver (libpostgresql-jdbc-java)' unless $driver;
plan skip_all => 'no javac (default-jdk-headless)'
  unless defined Language::told('javac', '-version');

is( Language::told('javac', qw(--release 17 -encoding UTF-8 -Xlint:all -Werror -d), $classes,
		glob("$source/*.java")),
	'', 'javac has nothing to say');

# JDBC knows no sockets in the file system.
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'");
$node->start;
my $url = 'jdbc:postgresql://127.0.0.1:' . $node->port . '/postgres?user=shop_app';
OrderCommand::try($node,
	[ 'java', '-Dfile.encoding=UTF-8', '-Dstdout.encoding=UTF-8', '-cp',
		"$classes:$driver", 'Order', $url ]);
$node->stop;
done_testing();
