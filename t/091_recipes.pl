# The recipes of docs/cookbook.md run and print what stands beside them, and the
# page shows what is in them.
#
# See t/README for the conventions of these tests.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/..";
my @recipes = map { m{([^/]+)\.sql$} } sort glob("$source/examples/recipes/*.sql");

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

# What psql prints for a recipe, in a new database.
sub run_recipe
{
	my ($name) = @_;
	my $input = slurp_file("$source/examples/recipes/$name.sql");
	my $printed = '';

	$node->safe_psql('postgres', "CREATE DATABASE recipe_$name");
	$node->safe_psql("recipe_$name", 'CREATE EXTENSION idempotency');
	IPC::Run::run(
		[
			'psql', '-X', '-q', '-P', 'footer=off', '-d',
			$node->connstr("recipe_$name")
		],
		'<', \$input, '>&', \$printed);
	return $printed;
}

foreach my $name (@recipes)
{
	is(run_recipe($name), slurp_file("$source/examples/recipes/$name.out"),
		"$name prints what it should");
}

my $page = slurp_file("$source/docs/cookbook.md");
my %named = map { $_ => 1 } $page =~ m{examples/recipes/(\w+)\.sql}g;
is(join(' ', sort keys %named), join(' ', @recipes), 'the page names all recipes');

# A block of SQL on the page is a part of one of the recipes.
my $all = join "\n", map { slurp_file("$source/examples/recipes/$_.sql") } @recipes;
foreach my $block ($page =~ /^```sql\n(.*?)^```$/msg)
{
	my ($first) = $block =~ /^(.*)$/m;

	ok(index($all, $block) >= 0, "the page quotes a recipe: $first");
}

my @links = $page =~ /\]\(([^)#:]+)(?:#[^)]*)?\)/g;
is(join(' ', grep { !-e "$source/docs/$_" } @links), '', 'links of the page lead somewhere');

done_testing();
