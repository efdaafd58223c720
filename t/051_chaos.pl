# A short form of chaos/run: invariants hold under faults, and a planted fault
# is found.  The long form is run by hand: chaos/run --minutes 30.
#
# IDEM_CHAOS_SECONDS (default 10) is how long there are faults.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $run = "$FindBin::RealBin/../chaos/run";
my $minutes = ($ENV{IDEM_CHAOS_SECONDS} // 10) / 60;
my $bindir;
IPC::Run::run([ 'pg_config', '--bindir' ], '>', \$bindir);
chomp $bindir;

plan skip_all => 'needs psycopg2 of the system python'
  if !IPC::Run::run([ '/usr/bin/python3', '-c', 'import psycopg2' ],
	'2>', '/dev/null');
plan skip_all => 'needs amcheck' if !-f contrib('amcheck');

sub contrib
{
	my ($name) = @_;
	my $share;
	IPC::Run::run([ 'pg_config', '--sharedir' ], '>', \$share);
	chomp $share;
	return "$share/extension/$name.control";
}

# Runs with these options: whether it passed; what it said goes to the log.
sub chaos
{
	my (@options) = @_;
	my $out = '';
	my $passed = IPC::Run::run(
		[
			'/usr/bin/python3', $run, '--minutes', $minutes, @options,
			"PG_CONFIG=$bindir/pg_config"
		],
		'<', \undef, '>&', \$out);
	note($out);
	diag($out) if !$passed && !@options;
	return $passed;
}

ok(chaos(), 'the invariants hold');
# A short run may miss it, but not three of them.
ok( (        chaos('--mutant', 'no_token_check')
		  || chaos('--mutant', 'no_token_check')
		  || chaos('--mutant', 'no_token_check')),
	'a planted fault is found');
done_testing();
