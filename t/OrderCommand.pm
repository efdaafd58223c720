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

my $patience = $PostgreSQL::Test::Utils::timeout_default;
my @command;

# (what it prints, whether it exited with 0)
sub order
{
	my $printed = '';
	my $errors = '';
	my $ok = IPC::Run::run([ @command, @_ ], '<', \undef, '>', \$printed,
		'2>', \$errors, IPC::Run::timeout($patience));

	unlike($errors, qr/\bwarning:/i, 'no warnings') if $ok;
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
	try_text($node);
	try_at_once($node);
	try_rolled_back($node);
	try_refused($node);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM orders'),
		4, 'as many orders as were placed');
	return;
}

sub try_text
{
	my ($node) = @_;
	my $text = "\xc3\xa4'\"\\\t\n\$1%s";

	is((order("'; --\xc3\xa4\"", $text, 1))[0], '201 {"order_id":2}', 'any key, any text');
	is((order("'; --\xc3\xa4\"", $text, 1))[0], '201 {"order_id":2} replayed', 'again');
	is( $node->safe_psql('postgres', 'SELECT item FROM orders WHERE id = 2'),
		$text, 'the text is as it was');
	return;
}

sub try_at_once
{
	my ($node) = @_;
	my $lock = PsqlSession->new($node->connstr('postgres'));
	my $printed = '';

	$lock->rows("SET statement_timeout = '${patience}s'");
	$lock->rows('BEGIN');
	$lock->rows('LOCK TABLE orders IN SHARE MODE');
	my $first = IPC::Run::start([ @command, 'k-2', 'cup', 1 ], '<', \undef,
		'>', \$printed, IPC::Run::timeout($patience));
	$node->poll_query_until('postgres',
		q{SELECT count(*) = 1 FROM pg_stat_activity
		   WHERE usename = 'shop_app' AND wait_event_type = 'Lock'})
	  or die 'no order waits for the table';
	like((order('k-2', 'cup', 1))[0], qr/^409 /, 'a duplicate at once');
	$lock->run('COMMIT');
	$first->finish;
	like($printed, qr/^201 \{"order_id": ?\d+\}$/, 'the first one');
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

# What else a claim may answer.
sub try_refused
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{
		SELECT idem_configure('shop/orders', on_lease_expiry => 'manual');
		BEGIN;
		SELECT outcome FROM idem_claim('k-4', scope => 'shop/orders');
		SELECT idem_fail('k-4', scope => 'shop/orders', retry_after => '1 hour');
		COMMIT;
		SET idempotency.test_clock = '2001-01-01';
		SELECT outcome FROM idem_claim('k-5', scope => 'shop/orders')});
	like((order('k-4', 'tea', 1))[0], qr/^503 /, 'a failure that is to be tried later');
	like((order('k-5', 'tea', 1))[0], qr/^409 .*unknown/, 'an outcome that nobody knows');
	return;
}

1;
