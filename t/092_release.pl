# All places that name the version of a release name the same one.
use strict;
use warnings;

use FindBin;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/..";
my $meta = decode_json(slurp_file("$source/META.json"));
my ($version) =
  slurp_file("$source/idempotency.control") =~ /^default_version = '(.*)'/m;

is($meta->{version}, "$version.0", 'META.json has the version of the control file');
my $provided = $meta->{provides}{idempotency};
is($provided->{version}, $meta->{version}, 'and provides it');
ok(-f "$source/$provided->{file}", 'by a file that is there');
is($provided->{file}, "idempotency--$version.sql", 'of this version');
ok(-f "$source/$provided->{docfile}", 'with documentation');
is($meta->{license}, 'postgresql', 'under the PostgreSQL licence');
like(slurp_file("$source/CHANGELOG.md"), qr/^## \Q$version\E$/m, 'CHANGELOG.md has it');
my ($packaged) = slurp_file("$source/debian/changelog") =~ /\(([^)]+)\)/;
is($packaged, $version, 'debian/changelog has it');

# Fields that PGXN wants.
foreach my $field (qw(name version abstract maintainer license provides meta-spec))
{
	ok($meta->{$field}, "META.json has $field");
}

# What pgindent has to know.
my %listed = map { $_ => 1 } split /\n/, slurp_file("$source/src/typedefs.list");
my @types = map { slurp_file($_) =~ /^\} (\w+);/mg } glob("$source/src/*.[ch]");
is(join(' ', grep { !$listed{$_} } @types), '', 'typedefs.list has all types');

done_testing();
