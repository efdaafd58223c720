# The command of examples/clients that places an order, in one language.
#
#	OrderCommand::try($node, [ 'ruby', "$dir/order.rb", $connection ]);
#
# is called with KEY ITEM QUANTITY after these, as role shop_app.
package OrderCommand;

use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;

my @command;

# (what it prints, whether it exited with 0)
sub order
{
	my $printed = '';
	my $ok = IPC::Run::run([ @command, @_ ], '<', \undef, '>', \$printed,
		'2>', \my $errors);

	chomp $printed;
	return ($printed =~ s/": /":/gr, $ok);
}

sub prepare
{
	my ($node) = @_;

	$node->safe_psql('postgres',
		slurp_file("$FindBin::RealBin/../examples/clients/shop.sql"));
	return;
}

sub try
{
	my ($node, $command) = @_;
	@command = @$command;

	prepare($node);
	is((order('k-1', 'tea', 2))[0], '201 {"order_id":1}', 'an order');
	is((order('k-1', 'tea', 2))[0], '201 {"order_id":1} replayed', 'its retry');
	like((order('k-1', 'tea', 3))[0], qr/^422 .*\$\.quantity/, 'another with its key');
	is((order("'; --\xc3\xa4", "\xc3\xa4'", 1))[0],
		'201 {"order_id":2}', 'any key, any text');
	try_at_once($node);
	try_rolled_back($node);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM orders'),
		4, 'as many orders as were placed');
	return;
}

sub try_at_once
{
	my ($node) = @_;
	my $lock = PsqlSession->new($node->connstr('postgres'));
	my $printed = '';

	$lock->run('BEGIN');
	$lock->run('LOCK TABLE orders IN SHARE MODE');
	my $first = IPC::Run::start([ @command, 'k-2', 'cup', 1 ], '<', \undef,
		'>', \$printed, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	$node->poll_query_until('postgres',
		q{SELECT count(*) = 1 FROM pg_stat_activity
		   WHERE usename = 'shop_app' AND wait_event_type = 'Lock'})
	  or die 'no order waits for the table';
	like((order('k-2', 'cup', 1))[0], qr/^409 /, 'a duplicate at once');
	$lock->run('COMMIT');
	$first->finish;
	like($printed, qr/^201 \{"order_id": ?3\}$/, 'the first one');
	return;
}

sub try_rolled_back
{
	my ($node) = @_;

	$node->safe_psql('postgres',
		"ALTER TABLE orders ADD CONSTRAINT closed CHECK (item <> 'milk')");
	my ($printed, $ok) = order('k-3', 'milk', 1);
	ok(!$ok, 'an error of the work is an error');
	$node->safe_psql('postgres', 'ALTER TABLE orders DROP CONSTRAINT closed');
	like((order('k-3', 'milk', 1))[0], qr/^201 [^ ]*$/, 'and its retry is carried out');
	return;
}

1;
