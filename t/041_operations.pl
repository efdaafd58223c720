# The files of docs/operations: every query runs as the role that is meant for
# it, with and without the library preloaded where it can; alerts and dashboard
# name only metrics that there are.
use strict;
use warnings;

use FindBin;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = "$FindBin::RealBin/../docs/operations";

# {name => {query, columns => {name => usage}}} of the exporter's queries.
my (%queries, $name, $in_query);
foreach my $line (split /\n/, slurp_file("$dir/postgres_exporter.yml"))
{
	if ($line =~ /^(\w+):$/) { $name = $1; $in_query = 0; }
	elsif ($line =~ /^  (\w+):(.*)$/) { $in_query = $1 eq 'query'; }
	elsif ($line =~ /^    - (\w+): \{usage: (\w+),/)
	{
		$queries{$name}{columns}{$1} = $2;
	}
	elsif ($in_query && $line =~ /^    (.*)$/)
	{
		$queries{$name}{query} .= "$1\n";
	}
}
is(join(' ', sort keys %queries),
	'idem_in_flight idem_purge_lag idem_review idem_size idem_stat',
	'queries of the exporter');

my %metrics;
foreach my $query (keys %queries)
{
	my $columns = $queries{$query}{columns};
	$metrics{"${query}_$_"} = 1
	  foreach grep { $columns->{$_} ne 'LABEL' } keys %$columns;
}

sub metrics_are_known
{
	my ($file, @expressions) = @_;
	my @named = map { /\b(idem_\w+)/g } @expressions;

	cmp_ok(scalar @named, '>', 5, "$file names metrics");
	is(join(' ', grep { !$metrics{$_} } @named), '', 'which there are');
	return;
}
metrics_are_known('alerts.yml',
	slurp_file("$dir/alerts.yml") =~ /^\s+expr: '(.*)'$/mg);
metrics_are_known('grafana.json',
	map { map { $_->{expr} } @{ $_->{targets} } }
	  @{ decode_json(slurp_file("$dir/grafana.json"))->{panels} });

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres',
	q{CREATE SCHEMA "Odd schema"; CREATE EXTENSION idempotency SCHEMA "Odd schema"; ALTER DATABASE postgres SET search_path = "Odd schema"});
$node->command_ok(
	[
		'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d',
		$node->connstr('postgres'), '-f', "$dir/monitor_role.sql"
	],
	'the role of the exporter');
$node->safe_psql(
	'postgres', q{
	SELECT idem_configure('asked', on_lease_expiry => 'manual');
	SELECT idem_claim('asked', scope => 'asked', lease => '1 us');
	SELECT idem_claim('lapsed', lease => '1 us');
	SELECT idem_claim('leased');
	SELECT idem_finish('old', token => (SELECT token FROM idem_claim('old', ttl => '1 us')));
	SELECT idem_once('m', ttl => '1 us');
});

# Column names, and rows without the names.
sub run_query
{
	my ($query) = @_;
	my ($code, $out, $err) = $node->psql(
		'postgres',
		"\\set VERBOSITY verbose\nSET ROLE idempotency_monitor;\n$queries{$query}{query};",
		extra_params => [ '-P', 'tuples_only=off', '-P', 'footer=off' ]);
	my ($header, @rows) = split /\n/, $out;
	return ($err, $header // '', @rows);
}

sub is_answered
{
	my ($query, $how) = @_;
	my ($err, $header, @rows) = run_query($query);

	is($err, '', "$query, $how");
	is( join(' ', sort split /\|/, $header),
		join(' ', sort keys %{ $queries{$query}{columns} }),
		'has the columns that it names');
	return @rows;
}

foreach my $query (grep { $_ ne 'idem_stat' } sort keys %queries)
{
	cmp_ok(scalar is_answered($query, 'not preloaded'), '>', 0, 'and rows');
}
like((run_query('idem_stat'))[0], qr/55000/, 'idem_stat needs the library preloaded');
like(join("\n", is_answered('idem_review', 'again')), qr/^lapsed\|1\|/, 'what a person must decide');
like(join("\n", is_answered('idem_in_flight', 'again')), qr/^leased\|1\|/m, 'what is in flight');
$node->poll_query_until('postgres',
	"SELECT bool_and(lag >= '1 s') FROM idem_purge_lag");
is( join("\n", map { /^(\w+)\|[1-9]/ ? $1 : () } is_answered('idem_purge_lag', 'again')),
	"requests\nmessages", 'how far the purge is behind');

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'idempotency'\nidempotency.purge_interval = 0");
$node->restart;
$node->safe_psql('postgres', q{SELECT idem_claim('leased')});
is_answered($_, 'preloaded') foreach sort keys %queries;
like(join("\n", is_answered('idem_stat', 'again')), qr/^\|0\|0\|0\|1\|/m, 'counters');

foreach my $sql (
	q{SELECT idem_claim('x')}, q{SELECT due_at FROM transaction_log},
	q{SELECT idem_configure('x')}, q{SELECT * FROM idem_log})
{
	my ($code, undef, $err) = $node->psql('postgres',
		"SET ROLE idempotency_monitor; $sql");
	like($err, qr/permission denied/, "the exporter may not: $sql");
}
done_testing();
