# What README.md and docs say is so: their SQL runs and answers as shown, and the
# example prints what it did.  Pages that show parts of other files have tests of
# their own; what is not SQL is in 093_commands.pl, and whether the reference is
# complete in 094_reference.pl.
#
# A block of SQL runs in a session of its own, in one database per file:
#
#   ```sql				must run without an error
#   ```sql error ID001	must fail with that SQLSTATE
#   ```text				right after one of them: exactly what psql prints
#
# In README.md the extension is installed by the text itself.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Markdown;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/..";
my @pages = (
	"$source/README.md",
	grep({ !m{/(cookbook|sharding)\.md$} } sort glob("$source/docs/*.md")),
	sort glob("$source/docs/reference/*.md"));

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

# What psql prints for a block, and the SQLSTATE of its last error.
sub run_block
{
	my ($database, $block) = @_;
	my $input = "$block->{text}\n\\echo\n\\echo SQLSTATE :LAST_ERROR_SQLSTATE\n";
	my $printed = '';

	IPC::Run::run(
		[
			'psql', '-X', '-q', '-P', 'footer=off', '-d',
			$node->connstr($database)
		],
		'<', \$input, '>&', \$printed);
	my $state = $printed =~ s/\n?SQLSTATE (\w+)\n\z// ? $1 : 'none';
	return (tidy($printed), $state);
}

# Without what the eye does not see.
sub tidy
{
	my ($text) = @_;

	$text =~ s/[ \t]+$//mg;
	$text =~ s/\n+\z/\n/;
	$text =~ s/\A\n+//;
	return $text;
}

sub page_runs
{
	my ($page) = @_;
	my ($name) = $page =~ m{([^/]+)\.md$};
	my $database = lc("page_$name") =~ tr/-/_/r;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION idempotency')
	  unless $name eq 'README';
	foreach my $block (Markdown::blocks($page))
	{
		my ($error) = ($block->{info} // '') =~ /^sql(?: error (\w{5}))?$/ or next;
		my ($printed, $state) = run_block($database, $block);
		my $where = "$name.md line $block->{line}";

		is($state, $error // '00000', "$where: SQLSTATE") or diag($printed);
		is($printed, tidy($block->{shown}{text}), "$where: output")
		  if $block->{shown};
	}
}

page_runs($_) foreach @pages;

# ---- the example -------------------------------------------------------------

my $printed = '';
{
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	IPC::Run::run(["$source/examples/orders/run"], '<', \undef, '>&', \$printed);
}
is($printed, slurp_file("$source/examples/orders/expected.txt"),
	'examples/orders prints what it should');
is( $node->safe_psql(
		'postgres',
		q{SELECT count(*) FROM pg_database WHERE datname LIKE 'idempotency%'}),
	'0',
	'and leaves nothing behind');

# What README.md shows of its output are lines of it, in their order.
my ($excerpt) = slurp_file("$source/README.md") =~
  /```text\n(?=[^`]*No\.  time)([^`]*)```/;
my $position = 0;
my @missing;
foreach my $line (grep { $_ ne '' && $_ ne '...' } split /\n/, $excerpt // 'none')
{
	my $found = index($printed, "$line\n", $position);
	if ($found < 0) { push @missing, $line; }
	else { $position = $found + length $line; }
}
is(join("\n", @missing), '', 'README.md shows output of the example');

done_testing();
