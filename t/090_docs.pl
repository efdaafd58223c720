# What README.md and docs say is so: their SQL runs and answers as shown, the
# example prints what it did, and nothing is left out of docs/reference or made
# up.  Pages that show parts of other files have tests of their own.
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
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/..";
my @reference_pages = sort glob("$source/docs/reference/*.md");
my @pages = (
	"$source/README.md",
	grep({ !m{/(cookbook|operations|sharding)\.md$} } sort glob("$source/docs/*.md")),
	@reference_pages);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

# Code blocks of a page: {lang, state, line, text, shown}.
sub blocks_of
{
	my ($page) = @_;
	my (@blocks, $open, $last);
	my $number = 0;

	foreach my $line (split /\n/, slurp_file($page))
	{
		$number++;
		if ($open)
		{
			if ($line eq '```') { $last = $open; undef $open; }
			else { $open->{text} .= "$line\n"; }
		}
		elsif ($line =~ /^```(\w*)(?: error (\w{5}))?$/)
		{
			$open = { lang => $1, state => $2 // '00000', line => $number,
				text => '' };
			$last->{shown} = $open
			  if $last && $last->{lang} eq 'sql' && $1 eq 'text';
			push @blocks, $open;
		}
		elsif ($line ne '') { undef $last; }
	}
	return grep { $_->{lang} eq 'sql' } @blocks;
}

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
	foreach my $block (blocks_of($page))
	{
		my ($printed, $state) = run_block($database, $block);
		my $where = "$name.md line $block->{line}";

		is($state, $block->{state}, "$where: SQLSTATE") or diag($printed);
		is($printed, tidy($block->{shown}{text}), "$where: output")
		  if $block->{shown};
	}
}

page_runs($_) foreach @pages;

# ---- nothing left out, nothing made up --------------------------------------

my $reference = join "\n", map { slurp_file($_) } @reference_pages;

sub in_reference
{
	my ($kind, $query) = @_;

	foreach my $name (split /\n/, $node->safe_psql('page_tables', $query))
	{
		ok($reference =~ /(?<![\w.])\Q$name\E(?!\w)/, "$kind $name is documented");
	}
}

my $members = q{FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
	AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	AND e.extname = 'idempotency' JOIN };

in_reference('function',
	"SELECT DISTINCT proname $members pg_proc o ON o.oid = d.objid
		AND d.classid = 'pg_proc'::regclass ORDER BY 1");
in_reference('table or view',
	"SELECT relname $members pg_class o ON o.oid = d.objid
		AND d.classid = 'pg_class'::regclass AND relkind IN ('r', 'v')
	  ORDER BY 1");
in_reference('column',
	"SELECT DISTINCT attname $members pg_class o ON o.oid = d.objid
		AND d.classid = 'pg_class'::regclass AND relkind IN ('r', 'v')
	   JOIN pg_attribute a ON attrelid = o.oid AND attnum > 0 ORDER BY 1");
in_reference('setting',
	q{LOAD 'idempotency'; SELECT name FROM pg_settings
	   WHERE name LIKE 'idempotency.%' ORDER BY 1});

my %known = map { $_ => 1 } split /\n/, $node->safe_psql(
	'page_tables', "
	SELECT proname $members pg_proc o ON o.oid = d.objid AND d.classid = 'pg_proc'::regclass
	UNION SELECT relname $members pg_class o ON o.oid = d.objid AND d.classid = 'pg_class'::regclass
	UNION SELECT tgname $members pg_class o ON o.oid = d.objid AND d.classid = 'pg_class'::regclass
		JOIN pg_trigger t ON tgrelid = o.oid");
foreach my $page (@pages)
{
	my ($name) = $page =~ m{([^/]+)$};
	my %named = map { $_ => 1 } slurp_file($page) =~ /\b(idem_\w+)/g;

	is(join(' ', grep { !$known{$_} } sort keys %named),
		'', "$name: every idem_ name exists");
}

foreach my $page (@pages)
{
	my ($dir, $name) = $page =~ m{(.*)/([^/]+)$};
	my @links = slurp_file($page) =~ /\]\(([^)#:]+)(?:#[^)]*)?\)/g;

	is(join(' ', grep { !-e "$dir/$_" } @links), '', "$name: links lead somewhere");
}

my $map = slurp_file("$source/docs/internals.md");
my @sources = map { m{([^/]+)$} } sort glob("$source/src/*.c");
is(join(' ', grep { $map !~ /`\Q$_\E`/ } @sources),
	'', 'internals.md knows all files');

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
