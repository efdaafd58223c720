# The example of payments prints what it should, and leaves nothing behind.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $example = "$FindBin::RealBin/../examples/payments";
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

my $printed = '';
{
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	IPC::Run::run(["$example/run"], '<', \undef, '>&', \$printed);
}
is($printed, slurp_file("$example/expected.txt"),
	'examples/payments prints what it should');
is( $node->safe_psql(
		'postgres',
		q{SELECT count(*) FROM pg_database WHERE datname LIKE 'idempotency%'}),
	'0',
	'and leaves nothing behind');

# What the text promises, told from the numbers.
my @payments = map { [split /\s{2,}/] } grep { /^pay-/ } split /\n/, $printed;
is(scalar(@payments), 49, 'there are payments');
is(scalar(grep { ($_->[-2] // 0) > 1 } @payments),
	0, 'none is charged more than once');
is( scalar(
		grep { $_->[-1] eq 'unknown' && $_->[1] ne 'mute' } @payments),
	0,
	'only a provider that can do nothing leaves a payment to a person');

$node->stop;
done_testing();
