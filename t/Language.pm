# What there is of the languages of examples/clients, and their drivers.
#
# All commands are given up after a while, which is a failure.
package Language;

use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(usleep);

my $examples = "$FindBin::RealBin/../examples/clients";

# (whether it exited with 0, all that it printed); false where there is no such
# command.
sub run
{
	my ($command, @options) = @_;
	my $printed = '';
	my $ok = eval {
		IPC::Run::run($command, '<', \undef, '>&', \$printed, @options,
			IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	};

	return ($ok, $printed);
}

# What a command prints that exits with 0; undef of one that does not.
sub told
{
	my ($ok, $printed) = run([@_]);

	print $printed =~ s/^/# /gmr unless $ok;
	return $ok ? $printed : undef;
}

# The port that a server says it listens on, at first, in a file; undef if it does
# not, or $is_gone says that it has ended.
sub port_in
{
	my ($file, $is_gone) = @_;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return $1 if -f $file && slurp_file($file) =~ m{^http://127\.0\.0\.1:(\d+)$}m;
		last if $is_gone->();
		usleep(100_000);
	}
	return;
}

# A python3 that has the module: one of one's own may come first in PATH, and
# lack it.
sub python
{
	my ($module) = @_;

	foreach my $python (map { "$_/python3" } split(/:/, $ENV{PATH}), '/usr/bin')
	{
		next unless -x $python;
		return $python if (run([ $python, '-c', "import $module" ]))[0];
	}
	return;
}

# Whether there is node, and it finds what the example requires: of the
# distribution, or installed by npm for all (see ci/setup), or there.
sub node_modules
{
	my @try = ('node', '-e',
		'require("pg"); require("express"); if (typeof fetch !== "function") process.exit(1)');
	my @places = ("$examples/node/node_modules", '/usr/share/nodejs', '/usr/lib/nodejs',
		'/usr/local/lib/node_modules', '/usr/lib/node_modules');

	$ENV{NODE_PATH} = join ':', @places;
	return 1 if (run(\@try))[0];
	my ($ok, $global) = run([qw(npm root -g)]);
	return unless $ok;
	chomp $global;
	$ENV{NODE_PATH} = join ':', @places, $global;
	return (run(\@try))[0];
}

# The JDBC driver.
sub jdbc
{
	my ($driver) = grep { -f $_ } split(/:/, $ENV{CLASSPATH} // ''),
	  '/usr/share/java/postgresql.jar';

	return $driver;
}

1;
