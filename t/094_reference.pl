# docs/reference against the catalogs: nothing is left out, made up or told
# wrongly (objects, signatures, columns, settings, privileges, error codes); and
# on all pages every name exists and every link leads somewhere.
#
# See t/README for the conventions of these tests.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use File::Basename;
use Markdown;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/..";
my @pages = Markdown::pages($source);
my @reference_pages = grep { m{^docs/reference/} } @pages;
my $reference = join "\n", map { slurp_file("$source/$_") } @reference_pages;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'idempotency'");
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION idempotency;
	CREATE ROLE application;
	CREATE ROLE administrator;
	SELECT idem_grant('application'), idem_grant('administrator', administer => true);
	CREATE VIEW member AS
	SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
	   AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	 WHERE e.extname = 'idempotency';
	CREATE VIEW our_function AS SELECT p.* FROM pg_proc p JOIN member ON objid = p.oid
	   AND classid = 'pg_proc'::regclass;
	CREATE VIEW our_relation AS SELECT c.* FROM pg_class c JOIN member ON objid = c.oid
	   AND classid = 'pg_class'::regclass AND relkind IN ('r', 'v');
});

sub column
{
	return split /\n/, $node->safe_psql('postgres', $_[0]);
}

sub is_set
{
	my ($got, $expected, $what) = @_;

	is(join(' ', sort @$got), join(' ', sort @$expected), $what);
	return;
}

# ---- objects -----------------------------------------------------------------

sub in_reference
{
	my ($kind, @names) = @_;

	is( join(' ', grep { $reference !~ /(?<![\w.])\Q$_\E(?!\w)/ } @names),
		'', "every $kind is documented");
}

my @functions = column('SELECT DISTINCT proname FROM our_function');
my @relations = column('SELECT relname FROM our_relation');
my @triggers =
  column('SELECT DISTINCT tgname FROM our_relation c JOIN pg_trigger ON tgrelid = c.oid');
my @settings = column(
	"LOAD 'idempotency'; SELECT name FROM pg_settings WHERE name LIKE 'idempotency.%'");

cmp_ok(scalar @functions, '>', 40, 'there are functions');
in_reference('function', @functions);
in_reference('table or view', @relations);
in_reference('setting', @settings);

# Metrics of the exporter have names of the same kind.
my @metrics =
  slurp_file("$source/docs/operations/postgres_exporter.yml") =~ /^(idem_\w+):/mg;
my %known = map { $_ => 1 } @functions, @relations, @triggers, @metrics, @settings;
foreach my $page (@pages)
{
	my $text = slurp_file("$source/$page");
	my %named = map { $_ => 1 } $text =~ /\b(idem_\w*\w)\b/g;
	my %set = map { $_ => 1 } $text =~ /\b(idempotency\.(?!control\b|c\b|invalid\b)[a-z_]+)\b/g;

	is(join(' ', grep { !$known{$_} } sort(keys %named, keys %set)),
		'', "$page: every name exists");
}

# ---- sections ----------------------------------------------------------------

# Parts of the reference from heading to heading.
my @sections = split /^(?=#+ )/m, $reference;

# Each column stands, as code, where its table or view is spoken of.
foreach my $relation (@relations)
{
	my $spoken = join "\n", grep { /`\Q$relation\E`|^#+ \Q$relation\E$/m } @sections;
	my @columns = column(
		"SELECT attname FROM pg_attribute WHERE attrelid = '$relation'::regclass
		    AND attnum > 0 AND NOT attisdropped");

	is(join(' ', grep { $spoken !~ /`\Q$_\E`/ } @columns),
		'', "$relation: every column is documented");
}

# ---- signatures --------------------------------------------------------------

# Splits at commas that are not within brackets or quotes.
sub split_list
{
	my ($list) = @_;
	my @parts = ('');
	my $depth = 0;

	foreach my $piece ($list =~ /('(?:[^']|'')*'|.)/gs)
	{
		if ($piece eq ',' && $depth == 0) { push @parts, ''; next; }
		$depth++ if $piece =~ /^[(\[{]$/;
		$depth-- if $piece =~ /^[)\]}]$/;
		$parts[-1] .= $piece;
	}
	return map { s/^\s+|\s+$//gr } @parts;
}

# What stands in the brackets that open at the end of what has been matched.
sub bracketed
{
	my ($text) = @_;

	return $text =~ /\A((?:'(?:[^']|'')*'|[^()']|\((?1)\))*)\)/s ? $1 : undef;
}

sub literal { return "'" . ($_[0] =~ s/'/''/gr) . "'"; }

# "name type = default" as the catalog says it.
sub canonical_argument
{
	my ($argument) = @_;
	my ($name, $type, $default) = $argument =~ /^(\w+)\s+(\S.*?)(?:\s*=\s*(.*))?$/s
	  or return "not an argument: $argument";
	my $value =
	  defined $default
	  ? "'= ' || COALESCE(CAST(CAST($default AS $type) AS text), 'NULL')"
	  : 'NULL';

	return $node->safe_psql('postgres',
		"SELECT concat_ws(' ', '$name', " . literal($type) . "::regtype, $value)");
}

sub stored_arguments
{
	my ($function) = @_;
	my @rows = column(
		"SELECT a.name || '|' || format_type(a.type, NULL) || '|'
		     || COALESCE(pg_get_function_arg_default(p.oid, a.n::int), '')
		  FROM our_function p, unnest(proargnames, COALESCE(proallargtypes, proargtypes::oid[]),
		       COALESCE(proargmodes, array_fill('i'::\"char\", ARRAY[pronargs::int])))
		       WITH ORDINALITY a(name, type, mode, n)
		 WHERE proname = '$function' AND mode IN ('i', 'b', 'v') ORDER BY n");

	return map {
		my ($name, $type, $default) = split /\|/, $_, 3;
		canonical_argument("$name $type" . ($default ne '' ? " = $default" : ''));
	} @rows;
}

sub stored_result
{
	my ($function) = @_;

	return $node->safe_psql('postgres',
		"SELECT pg_get_function_result(oid) FROM our_function WHERE proname = '$function'");
}

my %documented;
foreach my $page (@reference_pages)
{
	foreach my $block (Markdown::blocks("$source/$page"))
	{
		next if ($block->{info} // '') ne '';
		# Each line that begins with a function begins a signature.
		foreach my $part (split /^(?=(?:CALL )?idem_\w+ *\()/m, $block->{text})
		{
			my ($function, $rest) = $part =~ /^(?:CALL )?(idem_\w+) *\((.*)/s or next;
			my $arguments = bracketed($rest);
			my ($result) = $rest =~ /\)\s*(?:each )?RETURNS (.*?)\s*$/s;

			next if $documented{$function}++;
			is( join("\n", map { canonical_argument($_) } grep { $_ ne '' } split_list($arguments)),
				join("\n", stored_arguments($function)),
				"$function: arguments");
			next if !defined $result || $part =~ /\beach RETURNS/;
			my $stored = stored_result($function);
			$_ = lc s/\s+/ /gr =~ s/TABLE \(/table(/ir foreach $result, $stored;
			$result =~ s/\bint\b/integer/g;
			$result =~ s/\btimestamptz\b/timestamp with time zone/g;
			is($result, $stored, "$function: result");
		}
	}
}

# Helpers of views and triggers have no signature there, all others do.
my @helpers = qw(idem_clock idem_scope_is_open idem_review_kind idem_stat_counters
  idem_in_flight_claims idem_stat_reset idem_definition_changed
  idem_guard_state_check idem_guard_version_set idem_guard_version_check);
is_set([ keys %documented ],
	[ grep { my $name = $_; !grep { $_ eq $name } @helpers } @functions ],
	'every function has its signature');

# Arguments that are given by name anywhere exist.
my %arguments;
foreach my $row (
	column(
		"SELECT proname || ' ' || unnest(proargnames[1:pronargs]) FROM our_function"))
{
	my ($function, $argument) = split / /, $row;
	$arguments{$function}{$argument} = 1;
}
foreach my $page (@pages)
{
	my $text = slurp_file("$source/$page");
	my @wrong;

	while ($text =~ /\b(idem_\w+)\(/g)
	{
		my $function = $1;
		my $list = bracketed(substr($text, pos $text)) // next;

		foreach my $argument (split_list($list))
		{
			my ($name) = $argument =~ /^(\w+)\s*=>/ or next;
			push @wrong, "$function($name => )" if !$arguments{$function}{$name};
		}
	}
	is("@wrong", '', "$page: arguments that are named exist");
}

# ---- settings ----------------------------------------------------------------

# Rows of tables: the cells, of those whose first cell is code.
sub table_rows
{
	my ($text) = @_;

	return map { [ split /\s*\|\s*/, $_ ] } $text =~ /^\| (`.*) \|$/mg;
}

my %context = (
	'everybody' => 'user',
	'superusers' => 'superuser',
	'postgresql.conf' => 'sighup',
	'postgresql.conf, at server start' => 'postmaster');
my %told;
foreach my $row (table_rows(slurp_file("$source/docs/reference/policies.md")))
{
	my ($name, $default, $unit, undef, $who) = @$row;

	next if $name !~ /^`(idempotency\.\w+)`$/;
	$name = $1;
	$told{$name} = 1;
	$default =~ tr/`//d;
	$default = '' if $default eq '(empty)';
	$who =~ s/;.*//;
	# Times are given as an interval, others as they are.
	my $per_second = { s => 1, ms => 1000 }->{$unit};
	my $expected = $per_second && $default =~ /[a-z]/
	  ? "(extract(epoch FROM '$default'::interval) * $per_second)::bigint::text"
	  : literal($default);
	is( $node->safe_psql('postgres',
			"LOAD 'idempotency'; SELECT boot_val = $expected, context FROM pg_settings WHERE name = '$name'"),
		"t|$context{$who}",
		"$name: default and who may set it");
}
is_set([ keys %told ], \@settings, 'policies.md has a row for every setting');

# ---- privileges --------------------------------------------------------------

# Names in a row of the table of privileges.
sub granted_by_row
{
	my ($row) = @_;
	my ($line) = slurp_file("$source/docs/reference/policies.md") =~ /^\| \Q$row\E(.*)$/m;

	return $line =~ /`(idem_\w+)`/g;
}

sub granted_to
{
	my ($role) = @_;

	return column(
		"SELECT proname FROM our_function WHERE has_function_privilege('$role', oid, 'EXECUTE')
		    AND NOT EXISTS (SELECT FROM aclexplode(COALESCE(proacl, acldefault('f', proowner))) WHERE grantee = 0)
		 UNION SELECT relname FROM our_relation WHERE has_table_privilege('$role', oid, 'SELECT')");
}

my @application = granted_by_row('`idem_grant(role)`');
is_set(\@application, [ granted_to('application') ], 'what idem_grant(role) gives');
is_set(
	[ @application, granted_by_row('`idem_grant(role, administer => true)`') ],
	[ granted_to('administrator') ],
	'what idem_grant(role, administer => true) gives');

# ---- error codes -------------------------------------------------------------

my $errors = slurp_file("$source/docs/reference/errors.md");
my %codes = map { join('', /'(.)'/g) => 1 }
  slurp_file("$source/src/errors.h") =~ /MAKE_SQLSTATE\(([^)]*)\)/g;
is_set([ keys %{ { map { $_ => 1 } $errors =~ /^\| \[`(ID\d{3})`\]/mg } } ],
	[ keys %codes ], 'errors.md has a row for every error code');
my %mentioned = map { $_ => 1 } map { slurp_file("$source/$_") =~ /\b(ID\d{3})\b/g } @pages;
is(join(' ', grep { !$codes{$_} } sort keys %mentioned), '', 'no page knows another one');

# ---- links, files, sources ---------------------------------------------------

foreach my $page (@pages)
{
	my $dir = dirname($page);
	my @lost;

	foreach my $link (Markdown::prose("$source/$page") =~ /\]\(([^)\s]+)\)/g)
	{
		my ($path, $anchor) = $link =~ /^([^#]*)(?:#(.*))?$/;

		next if $link =~ m{^https?://};
		my $target = $path eq '' ? "$source/$page" : "$source/$dir/$path";
		push @lost, $link
		  if !-e $target
		  || defined $anchor && !grep { $_ eq $anchor } Markdown::anchors($target);
	}
	is("@lost", '', "$page: links lead somewhere");

	# What is named as a file of the project is one.
	my @gone = grep { !-e "$source/$_" && !-e "$source/$dir/$_" && !-e "$source/src/$_" }
	  grep { m{^(?:ci|t|bench|chaos|docs|src|sql|specs|expected|debian|examples)/[\w./-]*$}
		  || m{^[\w-]+\.(?:md|c|h|pl|pm|py|spec|control|in|json)$} }
	  map { $_->{text} } Markdown::spans("$source/$page");
	is("@gone", '', "$page: files that it names are there");
}

my $map = slurp_file("$source/docs/internals.md");
my @sources = map { basename($_) } glob("$source/src/*.c");
is(join(' ', grep { $map !~ /`\Q$_\E`/ } @sources), '', 'internals.md knows all files');

$node->stop;
done_testing();
