# The commands of the READMEs in examples/clients, and what they print.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use File::Spec;
use Language;
use POSIX qw(WNOHANG);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/../examples/clients";
my $curl = defined Language::told('curl', '--version');
my $python = Language::python('psycopg');
my %there = (
	java => Language::jdbc() && defined Language::told('javac', '-version'),
	node => Language::node_modules() && $curl,
	php => defined Language::told('php', '-r', 'exit(extension_loaded("pdo_pgsql") ? 0 : 1);'),
	python => $python && $curl,
	ruby => defined Language::told('ruby', '-e', 'require "pg"'));

plan skip_all => 'no language with its driver for PostgreSQL'
  if !grep { $_ } values %there;

# JDBC knows no sockets in the file system.
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'");
$node->start;
$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
delete $ENV{PGDATABASE};
$ENV{no_proxy} = '*';

my @servers;
my $port;

END
{
	my $status = $?;
	kill 'KILL', @servers;
	$? = $status;
}

# [command, what it prints], as shown in a page.
sub commands_of
{
	my ($page) = @_;
	my @commands;

	foreach my $line (split /\n/, slurp_file("$source/$page"))
	{
		if ($line =~ /^    \$ (.*)/)
		{
			push @commands, [ $1, '' ];
		}
		elsif ($line =~ /^    (.*)/ && @commands)
		{
			$commands[-1][1] .= "$1\n";
		}
	}
	return @commands;
}

# The ports are those of the test.
sub here
{
	my ($command) = @_;

	$command =~ s/localhost:5432/'127.0.0.1:' . $node->port/e;
	$command =~ s/localhost:8080/127.0.0.1:$port/;
	$command =~ s/ 8080 / 0 /;
	$command =~ s/\bpython3\b/$python/;
	return $command;
}

# A command that ends in "&" is a server, and runs until the test ends.
sub start_server
{
	my ($command, $dir) = @_;

	my $printed = File::Spec->rel2abs(PostgreSQL::Test::Utils::tempdir() . '/printed');
	my $pid = fork // die "cannot fork: $!";
	if (!$pid)
	{
		$command = here($command) =~ s/ &$//r;
		chdir $dir or die $!;
		exec 'sh', '-c', "exec env $command >$printed"
		  or die $!;
	}
	push @servers, $pid;
	$port = Language::port_in($printed, sub { waitpid($pid, WNOHANG) == $pid });
	return defined $port;
}

sub try_page
{
	my ($page, $dir) = @_;

	foreach (commands_of($page))
	{
		my ($command, $expected) = @$_;

		if ($command =~ / &$/)
		{
			ok(start_server($command, $dir), "$page: $command");
			next;
		}
		my ($ok, $printed) = Language::run([ 'sh', '-c', here($command) ],
			init => sub { chdir $dir or die $! });
		chomp($printed, $expected);
		is($printed =~ s/\r//gr, $expected, "$page: $command");
	}
	return;
}

# Each language begins with a shop of its own.
foreach my $language (sort keys %there)
{
	if (!$there{$language})
	{
		diag("not tried: the README of $language");
		next;
	}
	my $dir = PostgreSQL::Test::Utils::tempdir();
	foreach my $file ("shop.sql", map { s{.*/}{}r } grep { -f } glob("$source/$language/*"))
	{
		my $from = $file eq 'shop.sql' ? $source : "$source/$language";
		append_to_file("$dir/$file", slurp_file("$from/$file"));
	}
	try_page('README.md', $dir);
	try_page("$language/README.md", $dir);
	kill 'KILL', splice @servers;
	$node->safe_psql('postgres', 'DROP DATABASE shop WITH (FORCE)');
	$node->safe_psql('postgres', 'DROP ROLE shop_app');
}

$node->stop;
done_testing();
