# Random documents: fingerprints are equal exactly where documents are, however
# they are written down.
#
# IDEM_FUZZ_PAIRS (default 20000) pairs are compared; IDEM_FUZZ_SEED repeats a run.
use strict;
use warnings;

use List::Util qw(shuffle);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $pairs = $ENV{IDEM_FUZZ_PAIRS} // 20000;
my $seed = $ENV{IDEM_FUZZ_SEED} // int(rand(2**31));
srand($seed);
diag("seed $seed");

# Each line holds ways to write one scalar.
my @scalars = (
	[ '0', '-0', '0.0', '0e5', '-0.00' ],
	[ '1', '1.0', '1.000', '10e-1', '0.1e1' ],
	[ '-1', '-1.00' ],
	[ '100', '1e2', '100.0' ],
	[ '12345678901234567890.5', '12345678901234567890.50' ],
	[ '1e-20', '0.00000000000000000001' ],
	['true'],
	['false'],
	['null'],
	['""'],
	[ '"a"', '"\u0061"' ],
	[ '"é"', '"\u00e9"' ],
	['"é"'],
	[ '"/"', '"\/"' ],
	['"1"'],
	['"null"'],
	['"a b"'],
	['"\u0001"']);
my @keys = ('"a"', '"b"', '""', '"a.b"', '"é"', '"1"');

# A random document as a structure of Perl: [kind, content].
sub document
{
	my ($depth) = @_;
	my $kind = $depth > 0 ? int(rand(3)) : 0;

	return [ 'scalar', $scalars[ rand @scalars ] ] if $kind == 0;
	return [ 'array', [ map { document($depth - 1) } 1 .. rand(4) ] ]
	  if $kind == 1;
	my %members = map { $keys[ rand @keys ] => document($depth - 1) } 1 .. rand(4);
	return [ 'object', \%members ];
}

sub space
{
	return (' ', '', '', "\n", "\t")[ rand 5 ];
}

# One of the ways to write it.
sub written
{
	my ($document) = @_;
	my ($kind, $content) = @$document;

	return space() . $content->[ rand @$content ] . space()
	  if $kind eq 'scalar';
	return '[' . space() . join(',', map { written($_) } @$content) . ']'
	  if $kind eq 'array';
	my @members = map { space() . "$_:" . written($content->{$_}) } shuffle(sort keys %$content);
	# A member that is repeated later does not count.
	unshift @members, ((sort keys %$content)[0]) . ':' . '"gone"'
	  if @members && rand() < 0.2;
	return '{' . join(',', @members) . space() . '}';
}

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(extra => [ '-E', 'UTF8', '--locale=C.UTF-8' ]);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION idempotency; CREATE TABLE pair (same boolean, a jsonb, b jsonb)');

my @rows;
for (1 .. $pairs)
{
	my $one = document(1 + rand(3));
	my $same = rand() < 0.5;
	my $other = $same ? $one : document(1 + rand(2));
	my @texts = map { s/\\/\\\\/gr =~ s/\t/\\t/gr =~ s/\n/\\n/gr } written($one), written($other);
	push @rows, join("\t", $same ? 't' : 'f', @texts);
}
$node->safe_psql('postgres', "COPY pair FROM STDIN;\n" . join("\n", @rows) . "\n\\.\n");

is($node->safe_psql('postgres', 'SELECT count(*) FROM pair WHERE same AND a <> b'),
	'0', 'documents written in two ways are equal');
is( $node->safe_psql('postgres',
		'SELECT a, b FROM pair WHERE (a = b) <> (idem_fingerprint(a) = idem_fingerprint(b)) LIMIT 5'),
	'',
	'fingerprints are equal exactly where documents are');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM pair WHERE a <> b'),
	'>', $pairs / 10, 'and there were different ones');
is( $node->safe_psql('postgres',
		q(SELECT count(*) - count(DISTINCT idem_fingerprint(d)) FROM (SELECT DISTINCT a AS d FROM pair UNION SELECT b FROM pair) x)),
	'0',
	'all different documents have different fingerprints');
is( $node->safe_psql('postgres',
		q(SELECT a FROM pair WHERE jsonb_typeof(a) = 'object' AND idem_fingerprint(a, '{b}') <> idem_fingerprint(a - 'b') LIMIT 3)),
	'',
	'excluding a key is hashing the document without it');
$node->stop;
done_testing();
