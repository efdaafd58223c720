# The shop of examples/clients in one language, tried over HTTP.
#
#	WebShop::try($node, ['python3', "$dir/shop.py"]);	# it is given port 0
#
# Nothing here waits for a time: a request is known to be under way by what it
# waits for, which is a table lock of the test, or the test itself as the
# service that charges cards.  What is waited for has to come before a deadline.
package WebShop;

use strict;
use warnings;
use Errno;

use FindBin;
use IO::Select;
use IO::Socket::INET;
use IPC::Run;
use Language;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;
use Time::HiRes qw(time);

my $patience = $PostgreSQL::Test::Utils::timeout_default;
my ($node, @command, $server, $port, $gateway);

sub try
{
	my ($on, $command) = @_;

	local $SIG{PIPE} = 'IGNORE';
	local $SIG{ALRM} = sub { die 'not finished in time' };
	alarm(5 * $patience);
	$node = $on;
	@command = @$command;
	# Prepared as a user of the example would: as superuser, by psql.
	$node->safe_psql('postgres',
		slurp_file("$FindBin::RealBin/../examples/clients/shop.sql"));
	$gateway = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1')
	  or die "no gateway: $!";
	start();

	try_bad_requests();
	try_keys();
	try_order();
	try_headers();
	try_get();
	try_tenants();
	try_duplicate_at_once();
	try_client_leaves();
	try_rolled_back();
	try_binary();
	try_connection_lost();
	try_payment();
	try_refused_payment();
	try_payment_later();
	try_late();
	try_crash_in_transaction();
	try_crash_outside();
	try_unknown();
	stop();
	alarm(0);
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
	my $printed = PostgreSQL::Test::Utils::tempdir() . '/printed';

	$server = IPC::Run::start([ @command, 0 ], '<', \undef, '>', $printed, '2>>', $log);
	$port = Language::port_in($printed, sub { !$server->pumpable });
	return if $port;
	$server->kill_kill;
	die "the shop does not start:\n" . slurp_file($log);
}

sub stop
{
	my ($signal) = @_;

	$server->signal($signal // 'TERM');
	eval { $server->kill_kill(grace => 30) };
	return;
}

# Runs the code with a shop for which it is minutes later.
sub minutes_later
{
	my ($minutes, $code) = @_;
	my $then = $node->safe_psql('postgres',
		"SELECT clock_timestamp() + interval '$minutes minutes'");

	stop();
	$node->safe_psql('postgres',
		"ALTER DATABASE postgres SET idempotency.test_clock = '$then'");
	start();
	$code->();
	stop();
	$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET idempotency.test_clock');
	start();
	return;
}

# ---- HTTP ------------------------------------------------------------------------

# Sends a request; headers in turn with their values.
sub request
{
	my ($method, $path, $body, @headers) = @_;
	my $socket = IO::Socket::INET->new("127.0.0.1:$port") or die "no server: $!";
	my $head = "$method $path HTTP/1.0\r\nHost: 127.0.0.1\r\n";
	my %given = map { lc($_) => 1 } @headers;

	push @headers, 'Authorization', 'Bearer acme-key' unless $given{authorization};
	push @headers, 'Content-Type', 'application/json' unless $given{'content-type'};
	push @headers, 'Content-Length', length $body unless $given{'content-length'};
	while (my ($name, $value) = splice(@headers, 0, 2))
	{
		$head .= "$name: $value\r\n";
	}
	print $socket "$head\r\n$body";
	$socket->flush;
	return $socket;
}

# A POST that is under way, with a key, which is sent as a quoted string.
sub post
{
	my ($path, $key, $body, @headers) = @_;

	return request('POST', $path, $body,
		'Idempotency-Key' => '"' . ($key =~ s/(["\\])/\\$1/gr) . '"', @headers);
}

# All that comes from a socket until it is closed there, or is enough.
sub all_of
{
	my ($socket, $is_enough) = @_;
	my $select = IO::Select->new($socket);
	my $deadline = time + $patience;
	my $all = '';

	until ($is_enough && $is_enough->($all))
	{
		my $seconds = $deadline - time;
		die "no answer in time, only \"$all\"" if $seconds <= 0;
		next unless $select->can_read($seconds);
		my $read = sysread $socket, $all, 65536, length $all;
		next if !defined $read && $!{EINTR};
		last unless $read;
	}
	return $all;
}

# {code, head, body, headers}: headers are the lines in order, names in lower case.
sub parse
{
	my ($head, $body) = split /\r\n\r\n/, $_[0], 2;
	my ($status, @lines) = split /\r\n/, $head // '';
	my ($code) = ($status // '') =~ m{^HTTP/\S+ (\d+)};

	return {
		code => $code // 'none',
		headers => [ map { s/^([^:]+): */lc($1) . ': '/er } @lines ],
		body => $body // '' };
}

sub answer
{
	return parse(all_of($_[0]));
}

sub ask
{
	return answer(post(@_));
}

# The value of a header; of one that comes twice, both.
sub header
{
	my ($answer, $name) = @_;
	my @values = map { /^\Q$name\E: (.*)/ ? $1 : () } @{ $answer->{headers} };

	return @values ? join(', ', @values) : undef;
}

sub is_replay
{
	my ($answer, $code, $what) = @_;

	is("$answer->{code} " . (header($answer, 'idempotent-replayed') // 'first'),
		"$code true", $what);
	return;
}

sub is_first
{
	my ($answer, $code, $what) = @_;

	is("$answer->{code} " . (header($answer, 'idempotent-replayed') // 'first'),
		"$code first", $what);
	return;
}

# The card service gets a call, and answers it when it is told to.
sub charge_arrives
{
	my $deadline = time + $patience;

	until (IO::Select->new($gateway)->can_read(1))
	{
		die 'no charge arrives' if time > $deadline;
	}
	my $socket = $gateway->accept or die "no charge arrives: $!";
	my $is_whole = sub {
		my ($head, $body) = split /\r\n\r\n/, $_[0], 2;
		return defined $body
		  && $head =~ /^content-length: *(\d+)/im && length $body >= $1;
	};
	my $call = all_of($socket, $is_whole);
	my ($key) = $call =~ /^idempotency-key: *([^\r\n]*)/im;

	return { socket => $socket, key => $key };
}

sub charge_answers
{
	my ($charge, $text, $status, @lines) = @_;
	my $socket = $charge->{socket};

	print $socket join("\r\n",
		'HTTP/1.1 ' . ($status // '200 OK'),
		'Connection: close', 'Content-Length: ' . length($text),
		@lines, '', $text);
	close $socket;
	return;
}

sub no_charge_arrives
{
	my ($what) = @_;

	ok(!IO::Select->new($gateway)->can_read(0), $what);
	return;
}

# ---- the database ----------------------------------------------------------------

sub rows_of
{
	return $node->safe_psql('postgres', "SELECT count(*) FROM $_[0]");
}

sub orders_of
{
	return rows_of("orders WHERE item = '$_[0]'");
}

sub status_of
{
	my ($key) = @_;

	return $node->safe_psql('postgres',
		"SELECT status, response_code FROM transaction_log WHERE request_id = '$key'");
}

# A session that keeps orders locked until it commits.
sub lock_orders
{
	my $session = PsqlSession->new($node->connstr('postgres'));

	$session->rows("SET statement_timeout = '${patience}s'");
	$session->rows('BEGIN');
	$session->rows('LOCK TABLE orders IN SHARE MODE');
	return $session;
}

my $waits = q{FROM pg_stat_activity
		WHERE usename = 'shop_app' AND wait_event_type = 'Lock'};

sub wait_for_lock
{
	$node->poll_query_until('postgres', "SELECT count(*) = 1 $waits")
	  or die 'no request waits for the table';
	return;
}

# Of a connection that waits in the database, or works there.
sub wait_for_nobody
{
	$node->poll_query_until('postgres',
		q{SELECT count(*) = 0 FROM pg_stat_activity
		   WHERE usename = 'shop_app' AND state <> 'idle'})
	  or die 'a request does not end';
	return;
}

# ---- what is tried -----------------------------------------------------------------

sub order
{
	my ($item, $quantity) = @_;

	return sprintf '{"item": "%s", "quantity": %s}', $item, $quantity // 2;
}

my $payment = '{"amount": 7}';

sub try_bad_requests
{
	my $missing = answer(request('POST', '/orders', order('bad')));
	is($missing->{code}, 400, 'no key: 400');
	is(header($missing, 'content-type') =~ s/;.*//r,
		'application/problem+json', 'as a problem');
	like($missing->{body}, qr/"title": ?"Idempotency-Key is missing"/, 'with a title');
	is(ask('/orders', '', order('bad'))->{code}, 400, 'empty key: 400');
	is(ask('/orders', 'x' x 256, order('bad'))->{code}, 400, 'key too long: 400');
	is(ask('/orders', 'bad', '{"item":')->{code}, 400, 'no JSON: 400');
	is(ask('/orders', 'bad', '[' x 100_000)->{code}, 400, 'nor in depth: 400');
	is(ask('/orders', 'bad', '{"item": "tea"}')->{code}, 400, 'no order: 400');
	is(ask('/orders', 'bad', order('a\u0000b'))->{code}, 400, 'what jsonb refuses: 400');
	is(ask('/labels', 'bad', '')->{code}, 400, 'no body: 400');
	is(ask('/nothing', 'bad', order('bad'))->{code}, 404, 'no such path: 404');
	is(ask('/orders', 'bad', order('x' x (3 << 19)))->{code},
		413, 'body too large: 413');
	like(answer(post('/orders', 'bad', '', 'Content-Length' => 'ten'))->{code},
		qr/^4/, 'no number of bytes: refused');
	is(ask('/orders', 'bad', order('bad'), Authorization => 'Bearer no-key')->{code},
		401, 'a stranger: 401');
	is(rows_of('transaction_log'), 0, 'nothing is remembered of them');
	return;
}

sub try_keys
{
	foreach my $bad ('""', '"a', 'a"', '"a"b"', '"a\\n"', '"a\\"', 'a b', 'a, b',
		'"a", "b"', "\xc3\xa4", "\"\xc3\xa4\"", "\"a\tb\"", "\"a\x7fb\"")
	{
		my $answer = answer(request('POST', '/orders', order('bad'), 'Idempotency-Key' => $bad));
		is($answer->{code}, 400, "odd key: 400: $bad");
	}
	is( answer(
			request('POST', '/orders', order('bad'),
				'Idempotency-Key' => '"a"', 'Idempotency-Key' => '"b"'))->{code},
		400,
		'two keys: 400');
	is(rows_of('transaction_log'), 0, 'nothing is remembered of them');

	foreach my $key (q{'; DROP TABLE orders; --}, 'a "quoted" \\ key', 'x' x 255, '$1 %s {}')
	{
		is_first(ask('/orders', $key, order('key')), 201, "any key: $key");
		is_replay(ask('/orders', $key, order('key')), 201, 'is just a key');
	}
	is(orders_of('key'), 4, 'each of one order');

	is_first(ask('/orders', 'key-5', order('key')), 201, 'a key in quotes');
	foreach my $same ('key-5', ' "key-5" ', '"key-5";v=1')
	{
		is_replay(
			answer(request('POST', '/orders', order('key'), 'Idempotency-Key' => $same)),
			201, "is the same key as $same");
	}
	return;
}

sub try_order
{
	my $first = ask('/orders', 'order-1', order('tea'));
	my $again = ask('/orders', 'order-1', order('tea'));

	is_first($first, 201, 'an order: 201');
	like($first->{body}, qr/^\{"order_id": ?\d+\}$/, 'with its number');
	is_replay($again, 201, 'a retry: replayed');
	is($again->{body} =~ s/ //gr, $first->{body} =~ s/ //gr, 'with the same body');

	my $other = ask('/orders', 'order-1', order('tea', 3));
	is($other->{code}, 422, 'another order with this key: 422');
	like($other->{body}, qr/"\$(\.body)?\.quantity"/, 'which says what differs');
	unlike($other->{body}, qr/order_id/, 'but not what was answered');
	is(header($other, 'content-type') =~ s/;.*//r,
		'application/problem+json', 'as a problem');
	is_replay(ask('/orders', 'order-1', '{ "quantity":2,"item":"tea" }'),
		201, 'the same order in another spelling: replayed');
	is_replay(ask('/orders', 'order-1', '{"item":"\u0074ea","quantity":2}'),
		201, 'and in another one');
	is(orders_of('tea'), 1, 'all that made one order');

	my @requests = map {
		my $body = order('tea');
		"POST $_->[0] HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer acme-key\r\n"
		  . "Idempotency-Key: \"order-1\"\r\nContent-Type: application/json\r\n$_->[1]"
		  . 'Content-Length: ' . length($body) . "\r\n\r\n$body"
	} [ '/nothing', '' ], [ '/orders', "Connection: close\r\n" ];
	my $socket = IO::Socket::INET->new("127.0.0.1:$port");
	print $socket @requests;
	like(all_of($socket), qr{^HTTP/1.1 404 .*\}HTTP/1.1 201 }s,
		'two requests on one connection');
	return;
}

# Headers that belong to the work, in order.
sub of_the_work
{
	my ($answer) = @_;

	return [ grep { !/^(date|server|connection|keep-alive|content-length|idempotent-replayed): / }
		  @{ $answer->{headers} } ];
}

sub try_headers
{
	my $first = ask('/orders', 'headers-1', order('headers'));
	my $again = ask('/orders', 'headers-1', order('headers'));
	my ($id) = $first->{body} =~ /(\d+)/;

	is(header($first, 'location'), "/orders/$id", 'headers of an order');
	is(header($first, 'link'), "</orders/$id>; rel=\"self\", </labels>; rel=\"next\"",
		'one of them twice');
	is(header($first, 'set-cookie'), "last_order=$id", 'and a cookie');
	is_deeply(
		of_the_work($again),
		[ grep { !/^set-cookie: / } @{ of_the_work($first) } ],
		'the replay has all of them, in order, but no cookie');
	is( $node->safe_psql('postgres', q{
			SELECT string_agg(DISTINCT name, ' ') FROM transaction_log,
				LATERAL (SELECT lower(pair ->> 0) FROM jsonb_array_elements(response_headers) pair) n(name)
			 WHERE name IN ('set-cookie', 'connection', 'keep-alive', 'date',
				'content-length', 'transfer-encoding')}),
		'', 'none is stored that belongs to one response only');
	return;
}

sub try_get
{
	my ($id) = ask('/orders', 'get-1', order('get'))->{body} =~ /(\d+)/;
	my $before = rows_of('transaction_log');

	foreach my $try ('GET', 'GET again')
	{
		my $get = answer(request('GET', "/orders/$id", '', 'Idempotency-Key' => '"get-1"'));
		is_first($get, 200, "$try: answered anew");
		like($get->{body}, qr/"item": ?"get"/, 'with what it is');
	}
	my $head = answer(request('HEAD', "/orders/$id", '', 'Idempotency-Key' => '"get-1"'));
	is_first($head, 200, 'HEAD: answered anew');
	is($head->{body}, '', 'without a body');
	is(answer(request('GET', "/orders/$id", ''))->{code}, 200, 'GET wants no key');
	is(rows_of('transaction_log'), $before, 'nothing is remembered of them');
	return;
}

sub try_tenants
{
	my @globex = (Authorization => 'Bearer globex-key');
	my $acme = ask('/orders', 'tenant-1', order('acme'));
	my ($id) = $acme->{body} =~ /(\d+)/;
	my $globex = ask('/orders', 'tenant-1', order('globex'), @globex);

	is_first($globex, 201, 'the key of another tenant is another key');
	isnt($globex->{body}, $acme->{body}, 'with an order of its own');
	is(header(ask('/orders', 'tenant-1', order('acme')), 'location'),
		"/orders/$id", 'each gets his own replay');
	is(header(ask('/orders', 'tenant-1', order('globex'), @globex), 'location'),
		header($globex, 'location'), 'and the other one too');
	is(answer(request('GET', "/orders/$id", '', @globex))->{code},
		404, 'and sees his own orders only');
	return;
}

sub try_duplicate_at_once
{
	my $lock = lock_orders();
	my $first = post('/orders', 'at-once', order('once'));

	wait_for_lock();
	my $second = ask('/orders', 'at-once', order('once'));
	is($second->{code}, 409, 'a duplicate at once: 409');
	like(header($second, 'retry-after'), qr/^[1-9]\d*$/, 'with Retry-After');
	is(header($second, 'content-type') =~ s/;.*//r,
		'application/problem+json', 'as a problem');
	$lock->run('COMMIT');
	is_first(answer($first), 201, 'the first one: 201');
	is_replay(ask('/orders', 'at-once', order('once')), 201, 'then it is replayed');
	is(orders_of('once'), 1, 'it is one order');
	return;
}

sub try_client_leaves
{
	my $lock = lock_orders();
	my $left = post('/orders', 'left-1', order('left'));

	wait_for_lock();
	close $left;
	is(ask('/orders', 'left-1', order('left'))->{code},
		409, 'when a client has left, its request still runs');
	$lock->run('COMMIT');
	$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM orders WHERE item = 'left'})
	  or die 'the order is not placed';
	is_replay(ask('/orders', 'left-1', order('left')), 201, 'and comes to its end');

	$left = post('/payments', 'left-2', $payment);
	my $charge = charge_arrives();
	close $left;
	charge_answers($charge, 'ch_left');
	$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM payments WHERE charge = 'ch_left'})
	  or die 'the payment is not recorded';
	is_replay(ask('/payments', 'left-2', $payment), 201, 'a payment too');
	return;
}

sub try_rolled_back
{
	$node->safe_psql('postgres',
		"ALTER TABLE orders ADD CONSTRAINT closed CHECK (item <> 'milk')");
	my $failed = ask('/orders', 'milk', order('milk'));
	is($failed->{code}, 500, 'an error of the work: 500');
	unlike($failed->{body}, qr/closed|constraint/, 'which shows no details');
	is(header($failed, 'location') // header($failed, 'set-cookie'),
		undef, 'and no headers of the work');
	is(status_of('milk'), '', 'and is no result');
	$node->safe_psql('postgres', 'ALTER TABLE orders DROP CONSTRAINT closed');
	is_first(ask('/orders', 'milk', order('milk')), 201, 'the retry is carried out');
	is(orders_of('milk'), 1, 'once');
	return;
}

sub try_binary
{
	my $bytes = join('', map { chr } 0 .. 255) x 200;
	my @type = ('Content-Type' => 'application/octet-stream');
	my $first = ask('/labels', 'label-1', $bytes, @type);
	my $again = ask('/labels', 'label-1', $bytes, @type);

	is_first($first, 200, 'bytes: 200');
	ok($first->{body} eq reverse($bytes), 'are answered with bytes');
	is_replay($again, 200, 'and again');
	ok($again->{body} eq $first->{body}, 'which are replayed exactly');
	is(header($again, 'content-type'), 'image/x-label', 'with their type');
	is(ask('/labels', 'label-1', "$bytes\0", @type)->{code}, 422, 'other bytes: 422');
	is(rows_of('labels'), 1, 'one label');

	my $half = post('/labels', 'label-3', 'half', @type, 'Content-Length' => 10);
	shutdown $half, 1;
	like(answer($half)->{code}, qr/^(400|none)$/, 'a request that was cut off: refused');
	is(rows_of(q{labels WHERE content = 'half'}), 0, 'and not carried out');

	$node->safe_psql('postgres',
		"ALTER TABLE labels ADD CONSTRAINT few CHECK (id < 2)");
	my $failed = ask('/labels', 'label-2', $bytes, @type);
	is($failed->{code}, 500, 'an error while a response is being written: 500');
	like($failed->{body}, qr/^\{.*\}$/, 'and nothing else');
	is(header($failed, 'content-type') =~ s/;.*//r, 'application/problem+json', 'as a problem');
	$node->safe_psql('postgres', 'ALTER TABLE labels DROP CONSTRAINT few');
	ok(ask('/labels', 'label-2', $bytes, @type)->{body} eq $first->{body},
		'the retry gets its label');
	return;
}

sub try_connection_lost
{
	my $lock = lock_orders();
	my $first = post('/orders', 'lost-1', order('lost'));

	wait_for_lock();
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) $waits");
	is(answer($first)->{code}, 500, 'the connection is lost in the middle: 500');
	$lock->run('COMMIT');
	is_first(ask('/orders', 'lost-1', order('lost')), 201, 'the retry is carried out');
	is(orders_of('lost'), 1, 'once');

	# Who is told of an error may ask again.
	$node->restart;
	my $answer;
	foreach (1 .. 10)
	{
		$answer = ask('/orders', 'lost-2', order('lost'));
		last if $answer->{code} != 500;
	}
	is($answer->{code}, 201, 'when the database comes back, so does the shop');
	return;
}

sub try_payment
{
	my $first = post('/payments', 'pay-1', $payment);
	my $charge = charge_arrives();

	is($charge->{key}, '"pay-1"', 'the card service gets the key');
	my $second = ask('/payments', 'pay-1', $payment);
	is($second->{code}, 409, 'a duplicate meanwhile: 409');
	my $seconds = header($second, 'retry-after');
	ok($seconds > 0 && $seconds <= 60, 'Retry-After is what is left of the lease');
	charge_answers($charge, 'ch_1');
	my $answer = answer($first);
	is_first($answer, 201, 'the first one: 201');
	like($answer->{body}, qr/"charge": ?"ch_1"/, 'with the charge');
	is_replay(ask('/payments', 'pay-1', $payment), 201, 'a late retry is replayed');
	is(rows_of(q{payments WHERE charge = 'ch_1'}), 1, 'it is one payment');
	return;
}

sub try_refused_payment
{
	my $first = post('/payments', 'declined-1', $payment);

	charge_answers(charge_arrives(), 'no', '402 Payment Required');
	my $declined = answer($first);
	is_first($declined, 402, 'a card that is declined: 402');
	is_replay(ask('/payments', 'declined-1', $payment), 402, 'is a result, and replayed');
	no_charge_arrives('without another charge');
	return;
}

sub try_payment_later
{
	my $first = post('/payments', 'later-1', $payment);

	charge_answers(charge_arrives(), 'no', '503 Service Unavailable', 'Retry-After: 30');
	my $later = answer($first);
	is_first($later, 503, 'nothing was done, try later: 503');
	is(header($later, 'retry-after'), 30, 'and when');
	my $early = ask('/payments', 'later-1', $payment);
	is_first($early, 503, 'who tries earlier: 503');
	my $seconds = header($early, 'retry-after');
	ok($seconds > 0 && $seconds <= 30, 'Retry-After is what is left of it');
	no_charge_arrives('without another charge');
	like(status_of('later-1'), qr/^failed\|/, 'it is a failure that may be tried again');
	minutes_later(2, sub {
		$first = post('/payments', 'later-1', $payment);
		charge_answers(charge_arrives(), 'ch_later');
		my $answer = answer($first);
		is_first($answer, 201, 'then it is carried out');
		like($answer->{body}, qr/"attempt": ?2/, 'as attempt 2');
	});
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
		SELECT token FROM idem_claim('late-1', scope => 'shop/acme/payments')});

	like($token, qr/^\d+$/, 'a claim is taken over when the lease is over');
	charge_answers($charge, 'ch_late');
	is(answer($stalled)->{code}, 500, 'who comes too late is refused');
	is(rows_of(q{payments WHERE charge = 'ch_late'}), 0, 'with his payment');
	$node->safe_psql('postgres',
		"SELECT idem_finish('late-1', '{\"charge\": \"ch_other\"}', 201,
			token => $token, scope => 'shop/acme/payments')");
	my $replay = ask('/payments', 'late-1', '{"amount": 8}');
	like($replay->{body}, qr/ch_other/, 'and hears from the other one when he asks again');
	like(header($replay, 'content-type'), qr{^application/json}, 'in JSON');
	return;
}

sub try_crash_in_transaction
{
	my $lock = lock_orders();

	my $first = post('/orders', 'crash-1', order('crash'));
	wait_for_lock();
	stop('KILL');
	$lock->run('COMMIT');
	wait_for_nobody();
	start();
	is_first(ask('/orders', 'crash-1', order('crash')), 201, 'after a crash: 201');
	is(orders_of('crash'), 1, 'one order');
	return;
}

sub try_crash_outside
{
	my $first = post('/payments', 'crash-2', '{"amount": 9}');
	my $lost = charge_arrives();

	stop('KILL');
	close $lost->{socket};
	start();
	is(ask('/payments', 'crash-2', '{"amount": 9}')->{code},
		409, 'after a crash outside: 409 while the lease runs');
	minutes_later(2, sub {
		my $retry = post('/payments', 'crash-2', '{"amount": 9}');
		my $charge = charge_arrives();
		is($charge->{key}, $lost->{key}, 'then it is charged again, with the same key');
		charge_answers($charge, 'ch_2');
		my $answer = answer($retry);
		is_first($answer, 201, 'and done');
		like($answer->{body}, qr/"attempt": ?2/, 'by attempt 2');
	});
	is(rows_of('payments WHERE amount = 9'), 1, 'one payment');
	return;
}

# 500 and 504 say nothing about what was done.
sub try_unknown
{
	$node->safe_psql('postgres',
		q{SELECT idem_configure('shop/acme/payments', on_lease_expiry => 'manual')});
	my $first = post('/payments', 'unknown-1', '{"amount": 10}');
	charge_answers(charge_arrives(), 'oops', '504 Gateway Timeout');
	is(answer($first)->{code}, 500, 'nobody knows what was done: 500');
	is(status_of('unknown-1'), 'processing|', 'which is not stored');
	my $second = ask('/payments', 'unknown-1', '{"amount": 10}');
	is($second->{code}, 409, 'a retry while the lease runs: 409');
	like(header($second, 'retry-after'), qr/^[1-9]/, 'with Retry-After');
	minutes_later(2, sub {
		my $third = ask('/payments', 'unknown-1', '{"amount": 10}');
		is($third->{code}, 409, 'after it, where a person decides: 409');
		is(header($third, 'retry-after'), undef, 'without Retry-After');
		like($third->{body}, qr/unknown/, 'that says so');
		no_charge_arrives('no charge is tried again');
		$node->safe_psql('postgres', q{SELECT idem_resolve('unknown-1', 'completed',
			'{"charge": "ch_found"}', 201, scope => 'shop/acme/payments')});
		my $replay = ask('/payments', 'unknown-1', '{"amount": 10}');
		is_replay($replay, 201, 'what the person found');
		like($replay->{body}, qr/ch_found/, 'is replayed');
	});
	return;
}

1;
