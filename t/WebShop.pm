# The shop of examples/clients in one language, tried over HTTP.
#
#	WebShop::try($node, ['python3', "$dir/shop.py"]);	# "PORT" is appended
#
# Nothing here waits for a time: a request is known to be under way by what it
# waits for, which is a table lock of the test, or the test itself as the
# service that charges cards.
package WebShop;

use strict;
use warnings;
use Errno;

use FindBin;
use IO::Socket::INET;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;
use Time::HiRes qw(usleep);

my ($node, @command, $server, $port, $gateway);

sub try
{
	my ($on, $command) = @_;

	$node = $on;
	@command = @$command;
	# Prepared as a user of the example would: as superuser, by psql.
	$node->safe_psql('postgres',
		slurp_file("$FindBin::RealBin/../examples/clients/shop.sql"));
	$gateway = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1')
	  or die "no gateway: $!";
	start();

	try_bad_requests();
	try_order();
	try_keys();
	try_duplicate_at_once();
	try_rolled_back();
	try_binary();
	try_payment();
	try_late();
	try_crash_in_transaction();
	try_crash_outside();
	stop();
	return;
}

# ---- the server ----------------------------------------------------------------

sub start
{
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	local $ENV{PGDATABASE} = 'postgres';
	local $ENV{PGUSER} = 'shop_app';
	local $ENV{SHOP_GATEWAY} = 'http://127.0.0.1:' . $gateway->sockport . '/charge';
	my $log = $node->logfile . '.shop';

	$port = PostgreSQL::Test::Cluster::get_free_port();
	$server = IPC::Run::start([ @command, $port ], '<', \undef, '>>', $log, '2>>', $log);
	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return if IO::Socket::INET->new("127.0.0.1:$port");
		$server->pump_nb;
		last unless $server->pumpable || IPC::Run::reap_nb($server);
		usleep(100_000);
	}
	$server->kill_kill;
	die "the shop does not start:\n" . slurp_file($log);
}

sub stop
{
	my ($signal) = @_;

	# One that does not listen is killed, so that nothing waits for ever.
	$server->signal($signal) if defined $signal;
	eval { $server->kill_kill(grace => $PostgreSQL::Test::Utils::timeout_default) };
	return;
}

# ---- HTTP ------------------------------------------------------------------------

# A request that is under way.
sub post
{
	my ($path, $key, $body, %headers) = @_;
	my $socket = IO::Socket::INET->new("127.0.0.1:$port") or die "no server: $!";

	$headers{'Idempotency-Key'} = $key if defined $key;
	$headers{'Content-Type'} //= 'application/json';
	$headers{'Content-Length'} = length $body;
	print $socket "POST $path HTTP/1.0\r\nHost: 127.0.0.1\r\n",
	  (map { "$_: $headers{$_}\r\n" } sort keys %headers), "\r\n", $body;
	$socket->flush;
	return $socket;
}

# {code, headers, body}; names of headers in lower case.
sub answer
{
	my ($socket) = @_;
	local $/ = undef;
	my $all = <$socket> // '';
	my ($head, $body) = split /\r\n\r\n/, $all, 2;
	my ($status, @lines) = split /\r\n/, $head // '';
	my ($code) = ($status // '') =~ m{^HTTP/\S+ (\d+)};
	my %headers = map { /^([^:]+): *(.*)$/ ? (lc $1, $2) : () } @lines;

	return { code => $code // 'none', headers => \%headers, body => $body // '' };
}

sub ask
{
	return answer(post(@_));
}

# The card service gets a call, and answers it when it is told to.
sub charge_arrives
{
	my $socket;

	# A process that ends meanwhile, such as a client, interrupts the wait.
	until ($socket = $gateway->accept)
	{
		die "no charge arrives: $!" if !$!{EINTR};
	}
	my ($head, $length, $body) = ('', 0, '');

	while (my $line = <$socket>)
	{
		last if $line =~ /^\r?\n$/;
		$head .= $line;
	}
	($length) = $head =~ /^content-length: *(\d+)/im;
	read $socket, $body, $length // 0;
	my ($key) = $head =~ /^idempotency-key: *([^\r\n]*)/im;
	return { socket => $socket, key => $key, body => $body };
}

sub charge_answers
{
	my ($charge, $text) = @_;
	my $socket = $charge->{socket};

	print $socket "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: "
	  . length($text) . "\r\n\r\n$text";
	close $socket;
	return;
}

sub rows_of
{
	return $node->safe_psql('postgres', "SELECT count(*) FROM $_[0]");
}

# A session that keeps orders locked until it is quit.
sub lock_orders
{
	my $session = PsqlSession->new($node->connstr('postgres'));

	$session->run('BEGIN');
	$session->run('LOCK TABLE orders IN SHARE MODE');
	return $session;
}

sub wait_for_lock
{
	$node->poll_query_until('postgres',
		q{SELECT count(*) = 1 FROM pg_stat_activity
		   WHERE usename = 'shop_app' AND wait_event_type = 'Lock'})
	  or die 'no request waits for the table';
	return;
}

# ---- what is tried -----------------------------------------------------------------

my $order = '{"item": "tea", "quantity": 2}';

sub try_bad_requests
{
	is(ask('/orders', undef, $order)->{code}, 400, 'no key: 400');
	is(ask('/orders', '', $order)->{code}, 400, 'empty key: 400');
	is(ask('/orders', 'x' x 256, $order)->{code}, 400, 'key too long: 400');
	is(ask('/orders', 'bad-1', '{"item":')->{code}, 400, 'no JSON: 400');
	is(ask('/orders', 'bad-2', '{"item": "tea"}')->{code}, 400, 'no order: 400');
	is(ask('/nothing', 'bad-3', $order)->{code}, 404, 'no such path: 404');
	is(rows_of('transaction_log'), 0, 'and nothing is remembered of them');
	return;
}

sub try_order
{
	my $first = ask('/orders', 'order-1', $order);
	my $again = ask('/orders', 'order-1', $order);

	is($first->{code}, 201, 'an order: 201');
	like($first->{body}, qr/^\{"order_id": ?1\}$/, 'with its number');
	is($first->{headers}{location}, '/orders/1', 'and its place');
	is($first->{headers}{'idempotent-replayed'}, undef, 'which is no replay');
	is($again->{code}, 201, 'a retry: 201');
	is($again->{body} =~ s/ //gr, $first->{body} =~ s/ //gr, 'with the same body');
	is($again->{headers}{location}, '/orders/1', 'and headers');
	is($again->{headers}{'content-type'},
		$first->{headers}{'content-type'}, 'and type');
	is($again->{headers}{'idempotent-replayed'}, 'true', 'which is a replay');

	my $other = ask('/orders', 'order-1', '{"item": "tea", "quantity": 3}');
	is($other->{code}, 422, 'another order with this key: 422');
	like($other->{body}, qr/\$\.quantity/, 'which says what differs');
	is($other->{headers}{'content-type'} =~ s/;.*//r,
		'application/problem+json', 'as a problem');
	is(ask('/orders', 'order-1', '{ "quantity":2,"item":"tea" }')->{code},
		201, 'the same order in another spelling: replayed');
	is(rows_of('orders'), 1, 'all that made one order');
	return;
}

sub try_keys
{
	is(ask('/orders', '"order-1"', $order)->{headers}{'idempotent-replayed'},
		'true', 'a key in quotes is the same key');
	my $key = q{'; DROP TABLE orders; --};
	is(ask('/orders', $key, $order)->{code}, 201, 'any key');
	is(ask('/orders', $key, $order)->{headers}{'idempotent-replayed'},
		'true', 'is just a key');
	is(rows_of('orders'), 2, 'of one order');
	return;
}

sub try_duplicate_at_once
{
	my $lock = lock_orders();
	my $first = post('/orders', 'at-once', $order);

	wait_for_lock();
	my $second = ask('/orders', 'at-once', $order);
	is($second->{code}, 409, 'a duplicate at once: 409');
	like($second->{headers}{'retry-after'}, qr/^[1-9]\d*$/, 'with Retry-After');
	$lock->run('COMMIT');
	is(answer($first)->{code}, 201, 'the first one: 201');
	is(ask('/orders', 'at-once', $order)->{headers}{'idempotent-replayed'},
		'true', 'then it is replayed');
	is(rows_of('orders'), 3, 'it is one order');
	return;
}

sub try_rolled_back
{
	$node->safe_psql('postgres',
		"ALTER TABLE orders ADD CONSTRAINT closed CHECK (item <> 'milk')");
	my $milk = '{"item": "milk", "quantity": 1}';
	my $failed = ask('/orders', 'milk', $milk);
	is($failed->{code}, 500, 'an error of the work: 500');
	unlike($failed->{body}, qr/closed|constraint/, 'which shows no details');
	is( $node->safe_psql('postgres',
			"SELECT count(*) FROM transaction_log WHERE request_id = 'milk'"),
		0,
		'and is no result');
	$node->safe_psql('postgres', 'ALTER TABLE orders DROP CONSTRAINT closed');
	is(ask('/orders', 'milk', $milk)->{code}, 201, 'the retry is carried out');
	is(rows_of('orders'), 4, 'once');
	return;
}

sub try_binary
{
	my $bytes = join '', map { chr } 0 .. 255;
	my @type = ('Content-Type' => 'application/octet-stream');
	my $first = ask('/labels', 'label-1', $bytes, @type);
	my $again = ask('/labels', 'label-1', $bytes, @type);

	is($first->{code}, 200, 'bytes: 200');
	is($first->{body}, reverse($bytes) . '', 'are answered with bytes');
	is($again->{body}, $first->{body}, 'which are replayed exactly');
	is($again->{headers}{'content-type'}, 'image/x-label', 'with their type');
	is(ask('/labels', 'label-1', "$bytes\0", @type)->{code}, 422, 'other bytes: 422');
	is(rows_of('labels'), 1, 'one label');

	$node->safe_psql('postgres',
		"ALTER TABLE labels ADD CONSTRAINT few CHECK (id < 2)");
	my $failed = ask('/labels', 'label-2', $bytes, @type);
	is($failed->{code}, 500, 'an error while a response is being written: 500');
	like($failed->{body}, qr/^\{.*\}$/, 'and nothing else');
	$node->safe_psql('postgres', 'ALTER TABLE labels DROP CONSTRAINT few');
	is(ask('/labels', 'label-2', $bytes, @type)->{body},
		$first->{body}, 'the retry gets its label');
	return;
}

sub try_payment
{
	my $first = post('/payments', 'pay-1', '{"amount": 7}');
	my $charge = charge_arrives();

	is($charge->{key}, 'pay-1', 'the card service gets the key');
	my $second = ask('/payments', 'pay-1', '{"amount": 7}');
	is($second->{code}, 409, 'a duplicate meanwhile: 409');
	my $seconds = $second->{headers}{'retry-after'};
	ok($seconds > 0 && $seconds <= 60, 'Retry-After is what is left of the lease');
	charge_answers($charge, 'ch_1');
	my $answer = answer($first);
	is($answer->{code}, 201, 'the first one: 201');
	like($answer->{body}, qr/"charge": ?"ch_1"/, 'with the charge');
	is(ask('/payments', 'pay-1', '{"amount": 7}')->{headers}{'idempotent-replayed'},
		'true', 'a late retry is replayed');
	is(rows_of('payments'), 1, 'it is one payment');
	return;
}

# Stalls while it charges, and another worker takes over.
sub try_late
{
	my $stalled = post('/payments', 'late-1', '{"amount": 8}');
	my $charge = charge_arrives();
	my $token = $node->safe_psql('postgres', q{
		SELECT set_config('idempotency.test_clock',
			(clock_timestamp() + interval '2 minutes')::text, false) \gset
		SELECT token FROM idem_claim('late-1', scope => 'shop/payments')});

	like($token, qr/^\d+$/, 'a claim is taken over when the lease is over');
	charge_answers($charge, 'ch_late');
	is(answer($stalled)->{code}, 500, 'who comes too late is refused');
	is(rows_of(q{payments WHERE charge = 'ch_late'}), 0, 'with his payment');
	$node->safe_psql('postgres',
		"SELECT idem_finish('late-1', '{\"charge\": \"ch_other\"}', 201,
			token => $token, scope => 'shop/payments')");
	like(ask('/payments', 'late-1', '{"amount": 8}')->{body},
		qr/ch_other/, 'and hears from the other one when he asks again');
	return;
}

sub try_crash_in_transaction
{
	my $lock = lock_orders();

	post('/orders', 'crash-1', $order);
	wait_for_lock();
	stop('KILL');
	$lock->run('COMMIT');
	$node->poll_query_until('postgres',
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'shop_app'")
	  or die 'a session stays';
	start();
	is(ask('/orders', 'crash-1', $order)->{code}, 201, 'after a crash: 201');
	is(rows_of('orders'), 5, 'one order');
	return;
}

sub try_crash_outside
{
	post('/payments', 'crash-2', '{"amount": 9}');
	my $lost = charge_arrives();

	stop('KILL');
	close $lost->{socket};
	start();
	is(ask('/payments', 'crash-2', '{"amount": 9}')->{code},
		409, 'after a crash outside: 409 while the lease runs');
	stop();
	# Two minutes later, that is after the lease.
	my $later = $node->safe_psql('postgres',
		"SELECT clock_timestamp() + interval '2 minutes'");
	$node->safe_psql('postgres',
		"ALTER DATABASE postgres SET idempotency.test_clock = '$later'");
	start();
	my $retry = post('/payments', 'crash-2', '{"amount": 9}');
	my $charge = charge_arrives();
	is($charge->{key}, $lost->{key}, 'then it is charged again, with the same key');
	charge_answers($charge, 'ch_2');
	my $answer = answer($retry);
	is($answer->{code}, 201, 'and done');
	like($answer->{body}, qr/"attempt": ?2/, 'by attempt 2');
	is(rows_of('payments'), 2, 'one payment');
	$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET idempotency.test_clock');
	return;
}

1;
