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

# ---- META.json, after the PGXN Meta Spec 1.0.0 -------------------------------
#
# A rule takes a value and says what is wrong with it, with the path to it; an
# empty list is good.

my $semver = qr/\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?/;

sub matching
{
	my ($pattern, $what) = @_;

	return sub {
		my ($value, $path) = @_;

		return defined $value && !ref $value && $value =~ /\A$pattern\z/ ? () : "$path is no $what";
	};
}

my $string = matching(qr/.+/s, 'text');
my $term = matching(qr{[^\s\\/[:cntrl:]]{2,}}, 'term');
my $tag = matching(qr{[^\\/[:cntrl:]]{1,255}}, 'tag');
my $number = matching($semver, 'semantic version');
my $range = matching(
	qr/0|(?:(?:[<>]=?|[!=]=) *)?$semver(?: *, *(?:(?:[<>]=?|[!=]=) *)?$semver)*/,
	'range of versions');
my $url = matching(qr{[a-z][a-z0-9+.-]*:\S+}, 'URL');
my $email = matching(qr/[^@\s]+@[^@\s]+/, 'mail address');
my $known_licence = matching(
	qr/agpl_3|apache_1_1|apache_2_0|artistic_1|artistic_2|bsd|freebsd|gfdl_1_[23]|gpl_[123]
	  |lgpl_2_1|lgpl_3_0|mit|mozilla_1_[01]|none|openssl|perl_5|postgresql|qpl_1_0|ssleay|sun
	  |zlib|open_source|restricted|unrestricted|unknown/x,
	'licence that PGXN knows');

# A value, or a list of at least one.
sub one_or_more
{
	my ($rule) = @_;

	return sub {
		my ($value, $path) = @_;

		return $rule->($value, $path) if ref $value ne 'ARRAY';
		return "$path is empty" if !@$value;
		return map { $rule->($value->[$_], "$path\[$_]") } 0 .. $#$value;
	};
}

sub many
{
	my ($rule) = @_;
	my $each = one_or_more($rule);

	return sub { return ref $_[0] eq 'ARRAY' ? $each->(@_) : "$_[1] is no list"; };
}

# Keys of one kind, at least one.
sub map_of
{
	my ($key_rule, $rule) = @_;

	return sub {
		my ($value, $path) = @_;

		return "$path is no map" if ref $value ne 'HASH' || !%$value;
		return map { ($key_rule->($_, "$path: key $_"), $rule->($value->{$_}, "$path.$_")) }
		  sort keys %$value;
	};
}

# These keys, those with "!" must be there; others only if they begin with x_.
sub fields
{
	my (%rules) = @_;
	my %needed = map { s/!$//r => scalar(/!$/) } keys %rules;
	my %rule = map { s/!$//r => $rules{$_} } keys %rules;

	return sub {
		my ($value, $path) = @_;

		return "$path is no map" if ref $value ne 'HASH';
		return (
			(map { "$path.$_ is missing" } grep { $needed{$_} && !exists $value->{$_} } sort keys %rule),
			(map { "$path.$_ is not known" } grep { !$rule{$_} && !/^x_/i } sort keys %$value),
			map { $rule{$_}->($value->{$_}, "$path.$_") } grep { $rule{$_} } sort keys %$value);
	};
}

my $meta_spec = fields(
	'name!' => $term,
	'version!' => $number,
	'abstract!' => $string,
	'maintainer!' => one_or_more($string),
	'license!' => sub {
		return (ref $_[0] eq 'HASH' ? map_of($string, $url) : one_or_more($known_licence))->(@_);
	},
	'provides!' => map_of(
		$term,
		fields(
			'file!' => $string, 'version!' => $number,
			abstract => $string, docfile => $string)),
	'meta-spec!' => fields(
		'version!' => matching(qr/1\.0\.\d+/, 'version of the specification'),
		url => matching(qr{https?://pgxn\.org/meta/spec\.txt}, 'address of the specification')),
	description => $string,
	generated_by => $string,
	release_status => matching(qr/stable|testing|unstable/, 'status'),
	tags => many($tag),
	no_index => fields(file => one_or_more($string), directory => one_or_more($string)),
	prereqs => map_of(
		matching(qr/configure|build|test|runtime|develop/, 'phase'),
		map_of(
			matching(qr/requires|recommends|suggests|conflicts/, 'relation'),
			map_of($term, $range))),
	resources => fields(
		homepage => $url,
		bugtracker => fields(web => $url, mailto => $email),
		repository => fields(web => $url, url => $url, type => matching(qr/[a-z]+/, 'name in small letters'))));

is(join("\n", $meta_spec->($meta, 'META.json')), '', 'META.json is as PGXN wants it');

# The rules are able to find something.
sub spoiled
{
	my ($error, $spoil) = @_;
	my $copy = decode_json(encode_json($meta));

	$spoil->($copy);
	is(join("\n", $meta_spec->($copy, 'META.json')), "META.json$error", "found: $error");
	return;
}

spoiled('.license is missing', sub { delete $_[0]{license} });
spoiled('.license is no licence that PGXN knows', sub { $_[0]{license} = 'PostgreSQL' });
spoiled('.version is no semantic version', sub { $_[0]{version} = '1.0' });
spoiled('.provides.idempotency.file is missing', sub { delete $_[0]{provides}{idempotency}{file} });
spoiled('.tags[0] is no tag', sub { $_[0]{tags}[0] = 'a/b' });
spoiled('.prereqs.runtime.requires.PostgreSQL is no range of versions',
	sub { $_[0]{prereqs}{runtime}{requires}{PostgreSQL} = '15' });
spoiled('.colour is not known', sub { $_[0]{colour} = 'red' });

# ---- the Debian package ------------------------------------------------------

# Policy: a source name, a version, a maintainer with an address.
like(slurp_file("$source/debian/changelog"),
	qr/\Apg-idempotency \(\Q$version\E\) \w+; urgency=\w+\n\n(?:  .*\n|\n)+ -- [^<]+ <\S+@\S+>  \w{3}, [ \d]\d \w{3} \d{4} [\d:]{8} [+-]\d{4}\n/,
	'debian/changelog has the form that tools read');
my ($maintainer) = slurp_file("$source/debian/control") =~ /^Maintainer: (.*)$/m;
like(slurp_file("$source/debian/changelog"), qr/^ -- \Q$maintainer\E  /m, 'and the maintainer of debian/control');

# ---- sources -----------------------------------------------------------------

# What pgindent has to know.
my %listed = map { $_ => 1 } split /\n/, slurp_file("$source/src/typedefs.list");
my @types = map { slurp_file($_) =~ /^\} (\w+);/mg } glob("$source/src/*.[ch]");
is(join(' ', grep { !$listed{$_} } @types), '', 'typedefs.list has all types');

done_testing();
