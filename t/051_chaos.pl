# A short form of chaos/run: invariants hold under faults, and each planted fault
# is found.  The long form is run by hand: chaos/run --minutes 30.
#
# IDEM_CHAOS_SECONDS (default 60) is how long there are faults.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use Test::More;

my $python = '/usr/bin/python3';
my $run = "$FindBin::RealBin/../chaos/run";
my $minutes = ($ENV{IDEM_CHAOS_SECONDS} // 60) / 60;

sub config
{
	my ($what) = @_;
	my $value;
	IPC::Run::run([ 'pg_config', "--$what" ], '>', \$value);
	chomp $value;
	return $value;
}

plan skip_all => 'needs psycopg2 of the system python'
  if !-x $python
  || !IPC::Run::run([ $python, '-c', 'import psycopg2' ], '2>', '/dev/null');
plan skip_all => 'needs amcheck' if !-f config('sharedir') . '/extension/amcheck.control';

# Runs with these options: whether it passed; what it said goes to the log.
sub chaos
{
	my (@options) = @_;
	my $out = '';
	my $passed = IPC::Run::run(
		[ $python, $run, @options, 'PG_CONFIG=' . config('bindir') . '/pg_config' ],
		'<', \undef, '>&', \$out);
	note($out);
	diag($out) if !$passed;
	return $passed;
}

ok(chaos('--minutes', $minutes), 'the invariants hold');
ok(chaos('--mutants'), 'each planted fault is found');
done_testing();
