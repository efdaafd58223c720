# Hammers a handful of keys from several sessions at all isolation levels, with
# random commits, rollbacks, delays and leases, and checks from what the
# sessions saw that every life of a key had one effect and nobody was lied to.
#
#	my $node = Hammer::new_node('hammer');
#	Hammer::run($node, seconds => 25);
#
# Options of run: seconds, the length of the whole; connstr, by which the clients
# connect (default: to the node itself), for instance to a pooler.
#
# IDEM_HAMMER_SEED: for another sequence of random decisions
package Hammer;

use strict;
use warnings;

use List::Util qw(max min sum0);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PsqlSession;
use Test::More;
use Time::HiRes qw(time usleep);

my $CLIENTS = 8;
my $KEYS = 6;
my $ROUND_SECONDS = 0.6;
my $SLOW_DELAY_MS = 150;
my $FAST_DELAY_MS = 15;
my $LONGEST_LEASE_MS = 50;
my $SHORTEST_TTL_MS = 60;

my $seed = $ENV{IDEM_HAMMER_SEED} || int(time * 1000) % 1_000_000;

my %OUTCOMES = map { $_ => 1 } qw(claimed replay in_progress mismatch unknown);
my %ALLOWED_ERRORS = map { $_ => 1 } qw(40001 40P01 ID001);

# Values that are easily taken for none.
my @BODIES =
  (undef, 'null', '0', 'false', '""', '[]', '{}', '{"a": [1, {"b": null}]}');

# The server, and how clients and all others connect.
my ($node, $client_connstr, $connstr);

# A server on which all that is hammered exists.
sub new_node
{
	my ($name) = @_;
	my $new = PostgreSQL::Test::Cluster->new($name);

	$new->init;
	$new->append_conf(
		'postgresql.conf', q(
autovacuum = off
max_connections = 40
max_prepared_transactions = 20
max_pred_locks_per_transaction = 1000
deadlock_timeout = 2ms
log_lock_waits = on
log_statement = none
log_min_error_statement = log
log_line_prefix = '%m [%p] %q%a '
));
	$new->start;
	$new->safe_psql('postgres',
		'CREATE EXTENSION idempotency; CREATE TABLE effect (request_id text, life bigint, token bigint, code int, body jsonb)'
	);
	return $new;
}

# ---- a client --------------------------------------------------------------

# What a client sees goes to a file of its own, one record a line.
sub note_record
{
	my ($c, @fields) = @_;
	print { $c->{file} } join("\t", map { $_ // '\N' } @fields), "\n";
	return;
}

sub chance
{
	my ($percent) = @_;
	return rand(100) < $percent;
}

sub pause
{
	my ($longest_ms) = @_;
	usleep(rand($longest_ms) * 1000);
	return;
}

sub literal
{
	my ($value) = @_;
	return defined $value ? "'$value'" : 'NULL';
}

# Runs a statement; undef after an error, which is written down.
sub statement
{
	my ($c, $sql) = @_;
	my ($sqlstate, @rows);

	$c->{started} = time;
	($sqlstate, @rows) = $c->{session}->run($sql);
	$c->{ended} = time;
	return \@rows if $sqlstate eq '00000';
	die "connection lost\n" if $sqlstate =~ /^(?:08|57P)/;
	note_record($c, 'ERROR', $sqlstate, $c->{session}->error_message, $sql);
	$c->{sqlstate} = $sqlstate;
	return undef;
}

sub begin
{
	my ($c) = @_;
	statement($c, "BEGIN ISOLATION LEVEL $c->{isolation}") or return 0;
	$c->{snapshot} = undef;
	# A snapshot that is older than the claim.
	if ($c->{isolation} ne 'READ COMMITTED' && chance(40))
	{
		statement($c, 'SELECT count(*) FROM pg_namespace') or return 0;
		$c->{snapshot} = $c->{ended};
		pause(20);
	}
	return 1;
}

# Ends a transaction: commit or rollback, sometimes by way of a prepare.
sub end_transaction
{
	my ($c, $verb) = @_;

	if (chance(7))
	{
		my $gid = "hammer_$c->{id}";
		statement($c, "PREPARE TRANSACTION '$gid'") or return 0;
		pause(30);
		return defined statement($c, "$verb PREPARED '$gid'");
	}
	return defined statement($c, $verb);
}

# After an error: nothing of the transaction counts.
sub give_up
{
	my ($c) = @_;
	statement($c, 'ROLLBACK');
	return 0;
}

# For this time nobody else may be granted the key.
sub protect
{
	my ($c, $claim, $from, $to) = @_;
	note_record($c, 'GUARDED', $claim->{key}, $claim->{token}, $from, $to);
	return;
}

sub claim
{
	my ($c, $key, %how) = @_;
	my $lease_ms = 1 + int(rand($LONGEST_LEASE_MS));
	# Half of the keys expire while they are hammered.
	my $shortest_ms = $key =~ /[024]$/ ? 3_600_000 : $SHORTEST_TTL_MS;
	my $ttl_ms = $shortest_ms + int(rand(100));
	my $wait_ms = $how{wait_ms} // (chance(12) ? 1 + int(rand(150)) : 0);
	my $mark = $wait_ms == 0 ? '/* never waits */ ' : '';
	my $body = $how{other_body} ? '{"another": 1}' : '{"n": 1}';
	my $rows = statement($c,
		    "SELECT ${mark}outcome, token, attempt, response_code, response_body, status,"
		  . " extract(epoch FROM created_at) * 1000000"
		  . " FROM idem_claim('$key', '$body', lease => '$lease_ms ms', ttl => '$ttl_ms ms', wait => '$wait_ms ms')"
	) or return undef;

	my %claim = (
		key => $key,
		lease => $lease_ms / 1000,
		ttl => $ttl_ms / 1000,
		may_expire_at => $c->{started} + $shortest_ms / 1000,
		from => $c->{started},
		to => $c->{ended});
	@claim{qw(outcome token attempt code body status life)} = @{ $rows->[0] }
	  if @$rows == 1;
	$claim{life} = int($claim{life}) if defined $claim{life};
	note_record($c, 'CLAIM', scalar(@$rows), $wait_ms, $how{own} // 0,
		$how{other_body} // 0,
		@claim{qw(key from to outcome token attempt code body status life)},
		$c->{snapshot});
	return \%claim;
}

sub effect
{
	my ($c, $claim, $end) = @_;
	return statement($c,
		"INSERT INTO effect VALUES ('$claim->{key}', $claim->{life}, $claim->{token}, $end->{code}, "
		  . literal($end->{body})
		  . ')');
}

# An error of an end that is no fault: the key, or what a successor made of it,
# has expired.
sub excuse_expired
{
	my ($c, $claim) = @_;
	note_record($c, 'EXCUSE')
	  if $c->{sqlstate} eq 'ID002' && $c->{ended} >= $claim->{may_expire_at};
	return;
}

# A random end, within a transaction; undef after an error.
sub make_end
{
	my ($c, $claim, $with_token) = @_;
	my $token = $with_token ? ", token => $claim->{token}" : '';
	my %end = (
		kind => 'finish',
		code => int(rand(1_000_000_000)),
		body => $BODIES[ rand @BODIES ]);
	my $dice = rand(100);
	my $effect_first = chance(50);
	my $rows;

	if ($dice < 12)
	{
		%end = (kind => 'retry');
		my $again_ms = chance(50) ? 0 : int(rand(20));
		$rows = statement($c,
			"SELECT idem_fail('$claim->{key}', '{\"again\": true}', retry_after => '$again_ms ms'$token)"
		);
	}
	elsif ($dice < 18)
	{
		$end{kind} = 'fail';
		$end{finish_started} = time;
		$rows = statement($c,
			"SELECT idem_fail('$claim->{key}', "
			  . literal($end{body})
			  . ", response_code => $end{code}, final => true$token)");
	}
	elsif ($dice < 26)
	{
		%end = (kind => 'release');
		$rows = statement($c, "SELECT idem_release('$claim->{key}'$token)");
	}
	else
	{
		return undef if $effect_first && !effect($c, $claim, \%end);
		$end{finish_started} = time;
		$rows = statement($c,
			"SELECT idem_finish('$claim->{key}', "
			  . literal($end{body})
			  . ", $end{code}$token)");
		excuse_expired($c, $claim) if !$rows;
		return undef
		  if $rows && !$effect_first && !effect($c, $claim, \%end);
	}
	if (!$rows)
	{
		excuse_expired($c, $claim) if $end{kind} ne 'finish';
		return undef;
	}
	note_record($c, 'BROKEN', "$end{kind} answered otherwise")
	  if $rows->[0][0] ne 't';
	return \%end;
}

# What is true once the transaction of an end has committed, by a COMMIT that
# was started then.
sub note_end
{
	my ($c, $claim, $end, $started) = @_;
	return if $end->{kind} ne 'finish' && $end->{kind} ne 'fail';
	note_record($c, 'END', $end->{kind}, $started,
		@{$claim}{qw(key life token)}, $end->{code}, $end->{body});
	protect($c, $claim, time, $end->{finish_started} + $claim->{ttl} - 0.001);
	return;
}

# The transaction's own claim and its own end, asked for once more.
sub ask_again
{
	my ($c, $claim, $end) = @_;
	my $again = claim($c, $claim->{key}, own => 1, wait_ms => 0)
	  or return 0;
	my $fine;

	if (!defined $end)
	{
		$fine = $again->{outcome} eq 'in_progress'
		  && $again->{token} == $claim->{token};
	}
	else
	{
		$fine = $again->{outcome} eq 'replay'
		  && $again->{code} == $end->{code}
		  && ($again->{body} // '\N') eq ($end->{body} // '\N');
		# Its own end may have expired on a machine that is very slow.
		$fine ||= time > $end->{finish_started} + $claim->{ttl};
	}
	note_record($c, 'BROKEN', "own claim answered $again->{outcome}")
	  if !$fine;

	# Expired, it was claimed anew: then nothing of this is to count.
	return 0 if defined $end && $again->{outcome} eq 'claimed';
	return 1;
}

# Claim, work and end in one transaction, or the first half of two: then the
# claim.
sub one_transaction
{
	my ($c, $key) = @_;
	my $savepoint = chance(20);
	my %how = (other_body => chance(5) ? 1 : 0);
	my ($claim, $end, $started);

	begin($c) or return give_up($c);
	if ($savepoint)
	{
		statement($c, 'SAVEPOINT s') or return give_up($c);
	}
	$claim = claim($c, $key, %how) or return give_up($c);
	if (($claim->{outcome} // '') ne 'claimed')
	{
		pause(10);
		end_transaction($c, 'COMMIT');
		return 0;
	}

	pause($c->{delay_ms});
	if (chance(20))
	{
		ask_again($c, $claim) or return give_up($c);
	}
	if (!$how{other_body} && chance(50))
	{
		$end = make_end($c, $claim, chance(50)) or return give_up($c);
		if (   ($end->{kind} eq 'finish')
			&& chance(20))
		{
			ask_again($c, $claim, $end) or return give_up($c);
		}
		pause($c->{delay_ms} / 3) if chance(50);
	}

	$started = time;
	if ($savepoint && chance(40))
	{
		statement($c, 'ROLLBACK TO s') or return give_up($c);
		protect($c, $claim, $claim->{to}, $started);
		pause($c->{delay_ms} / 3);
		end_transaction($c, 'COMMIT');
		return 0;
	}
	if ($how{other_body} || chance(20))
	{
		end_transaction($c, 'ROLLBACK');
		protect($c, $claim, $claim->{to}, $started);
		return 0;
	}
	my $committed = end_transaction($c, 'COMMIT');
	# A release of our own claim frees the key only with the commit, too.
	protect($c, $claim, $claim->{to}, $started);
	return 0 if !$committed;
	if (defined $end)
	{
		note_end($c, $claim, $end, $started);
		return 0;
	}
	return $claim;
}

# The times in which the committed claim was under its lease, up to its end.
sub protect_leases
{
	my ($c, $claim, $ended) = @_;
	for my $lease (@{ $claim->{leases} })
	{
		my ($from, $to) = @$lease;
		protect($c, $claim, $from, defined $ended ? min($to, $ended) : $to);
	}
	return;
}

sub extend
{
	my ($c, $claim) = @_;
	my $lease_ms = 1 + int(rand($LONGEST_LEASE_MS));
	my $rows = statement($c,
		"SELECT idem_extend('$claim->{key}', '$lease_ms ms', token => $claim->{token})"
	);
	if (!$rows)
	{
		excuse_expired($c, $claim);
		return 0;
	}
	# The lease may have been over, and taken over in vain, before this.
	my $until = $c->{started} + $lease_ms / 1000;
	push @{ $claim->{leases} }, [ $c->{ended}, $until ];
	return 1;
}

# The second half, in a transaction of its own: true where that was the end.
sub end_committed_claim
{
	my ($c, $claim) = @_;
	my ($end, $proved, $started, $done);

	begin($c) or return give_up($c);
	$end = make_end($c, $claim, 1) or return give_up($c);
	$proved = time;
	pause($c->{delay_ms}) if chance(40);

	my $verb = chance(25) ? 'ROLLBACK' : 'COMMIT';
	$started = time;
	$done = end_transaction($c, $verb);
	protect($c, $claim, $proved, $started);
	return 0 if !$done || $verb eq 'ROLLBACK';

	protect_leases($c, $claim, $started);
	note_end($c, $claim, $end, $started);
	repeat_finish($c, $claim, $end) if $end->{kind} eq 'finish' && chance(30);
	return 1;
}

# What follows a committed claim; its lease may be over before anything does.
sub after_claim
{
	my ($c, $claim) = @_;
	my $dead = chance(15);

	$claim->{leases} = [ [ $claim->{to}, $claim->{from} + $claim->{lease} ] ];
	for my $try (1 .. 2)
	{
		last if $dead;
		pause($c->{delay_ms});
		if (chance(20))
		{
			extend($c, $claim) or last;
			pause($c->{delay_ms} / 3);
		}
		$c->{sqlstate} = '00000';
		return if end_committed_claim($c, $claim);
		last if $c->{sqlstate} !~ /^(?:40|00)/;
	}
	protect_leases($c, $claim);
	return;
}

# As one does who did not hear that his COMMIT went through.
sub repeat_finish
{
	my ($c, $claim, $end) = @_;
	my $rows = statement($c,
		"SELECT idem_finish('$claim->{key}', "
		  . literal($end->{body})
		  . ", $end->{code}, token => $claim->{token})");

	$claim->{may_expire_at} = $end->{finish_started} + $claim->{ttl};
	excuse_expired($c, $claim) if !$rows;
	note_record($c, 'BROKEN', 'repeated finish answered otherwise')
	  if $rows && $rows->[0][0] ne 'f';
	return;
}

# Two keys in one transaction, in any order, with waiting: deadlocks.
sub two_keys
{
	my ($c, @keys) = @_;
	my @ended;

	begin($c) or return give_up($c);
	for my $key (@keys)
	{
		my $claim = claim($c, $key, wait_ms => int(rand(80)))
		  or return give_up($c);
		next if ($claim->{outcome} // '') ne 'claimed';
			pause(20);
		my $end = make_end($c, $claim, chance(50)) or return give_up($c);
		push @ended, [ $claim, $end ];
	}
	my $verb = chance(25) ? 'ROLLBACK' : 'COMMIT';
	my $started = time;
	my $done = end_transaction($c, $verb);
	for my $both (@ended)
	{
		my ($claim, $end) = @$both;
		protect($c, $claim, $claim->{to}, $started);
		note_end($c, $claim, $end, $started) if $done && $verb eq 'COMMIT';
	}
	return;
}

sub client_loop
{
	my ($c, $phase, $until) = @_;
	while (time < $until)
	{
		my $round = int(time / $ROUND_SECONDS);
		my $key = "$phase-$round-" . int(rand($KEYS));

		if (chance(10))
		{
			my $other = "$phase-$round-" . int(rand($KEYS));
			two_keys($c, $key, $other) if $other ne $key;
			next;
		}
		my $claim = one_transaction($c, $key);
		after_claim($c, $claim) if ref $claim;
	}
	return;
}

# ---- others who are at the log at the same time ----------------------------

# Rebuilds the index that decides who wins, and cleans up behind everybody.
sub reindex_loop
{
	my ($c, $phase, $until) = @_;
	my $times = 0;
	while (time < $until)
	{
		statement($c, 'REINDEX INDEX CONCURRENTLY transaction_log_pkey');
		statement($c, 'VACUUM transaction_log');
		$times++;
	}
	note_record($c, 'TIMES', 'reindexed', $times);
	return;
}

# Removes expired keys, sometimes slowly, sometimes after all not.
sub purge_loop
{
	my ($c, $phase, $until) = @_;
	my $times = 0;
	while (time < $until)
	{
		statement($c, 'BEGIN');
		my $rows = statement($c,
			'DELETE FROM transaction_log WHERE ctid = ANY (ARRAY(SELECT ctid FROM transaction_log'
			  . ' WHERE expires_at <= clock_timestamp() FOR UPDATE SKIP LOCKED))'
			  . ' AND expires_at <= clock_timestamp() RETURNING 1') // [];
		$times += @$rows;
		pause(40);
		statement($c, chance(70) ? 'COMMIT' : 'ROLLBACK');
		pause(30);
	}
	note_record($c, 'TIMES', 'purged', $times);
	return;
}

# Holds row locks that are none of the log's business.
sub lock_loop
{
	my ($c, $phase, $until) = @_;
	my @strengths =
	  ('FOR UPDATE', 'FOR NO KEY UPDATE', 'FOR SHARE', 'FOR KEY SHARE');
	my $times = 0;
	while (time < $until)
	{
		statement($c, 'BEGIN');
		my $rows = statement($c,
			'SELECT 1 FROM transaction_log WHERE ctid = ANY (ARRAY(SELECT ctid FROM transaction_log'
			  . ' ORDER BY token DESC LIMIT 6)) LIMIT 1 '
			  . $strengths[ rand @strengths ]
			  . ' SKIP LOCKED') // [];
		$times += @$rows;
		pause(60);
		statement($c, 'COMMIT');
		pause(20);
	}
	note_record($c, 'TIMES', 'locked', $times);
	return;
}

# Watches for claims that wait though they were told not to.  The locks are
# read first; whoever has been at the same statement since before his wait
# began was waiting in that statement.
sub watch_loop
{
	my ($c, $phase, $until) = @_;
	my $times = 0;
	while (time < $until)
	{
		my $rows = statement($c, q(
WITH waiting AS MATERIALIZED (
	SELECT pid, locktype, mode, waitstart FROM pg_locks
	 WHERE NOT granted AND waitstart IS NOT NULL)
SELECT w.locktype, w.mode, replace(a.query, E'\n', ' ')
  FROM waiting w CROSS JOIN LATERAL pg_stat_get_activity(w.pid) a
 WHERE a.state = 'active' AND a.query_start <= w.waitstart)) // [];
		$times++;
		note_record($c, 'WAIT', @$_) for @$rows;
		usleep(3000);
	}
	note_record($c, 'TIMES', 'watched', $times);
	return;
}

# Keys of one's own: at SERIALIZABLE nobody may be in anybody's way.
sub disjoint_loop
{
	my ($c, $phase, $until) = @_;
	my $times = 0;
	while (time < $until)
	{
		my $key = "$phase-$c->{id}-" . ++$times;
		my $earlier = "$phase-$c->{id}-" . int(1 + rand($times));
		my @statements = (
			"BEGIN ISOLATION LEVEL $c->{isolation}",
			"SELECT outcome FROM idem_claim('$earlier') /* again */",
			"SELECT outcome FROM idem_claim('$key')",
			"SELECT idem_finish('$key', '$times')",
			'COMMIT');
		for my $sql (@statements)
		{
			my $rows = statement($c, $sql);
			if (!$rows)
			{
				statement($c, 'ROLLBACK') if $sql ne 'COMMIT';
				last;
			}
			note_record($c, 'BROKEN', "$earlier: $rows->[0][0]")
			  if $sql =~ /again/
			  && $rows->[0][0] ne ($earlier eq $key ? 'claimed' : 'replay');
		}
	}
	note_record($c, 'TIMES', 'claimed', $times);
	return;
}

# ---- one phase -------------------------------------------------------------

my $members = 0;

sub start_member
{
	my ($loop, $phase, $isolation, $until) = @_;
	my $is_client = $loop == \&client_loop || $loop == \&disjoint_loop;
	my $name = "$PostgreSQL::Test::Utils::tmp_check/hammer-" . ++$members;
	my $pid = fork;

	die "cannot fork: $!" if !defined $pid;
	return { pid => $pid, name => $name } if $pid;

	srand($seed + $members);
	my $c = {
		id => $members,
		isolation => $isolation,
		delay_ms => $members % 2 ? $SLOW_DELAY_MS : $FAST_DELAY_MS,
		sqlstate => '00000'
	};
	my $status = eval {
		open($c->{file}, '>', $name) or die "cannot write $name: $!";
		$c->{session} = PsqlSession->new($is_client ? $client_connstr : $connstr);
		$loop->($c, $phase, $until);
		$c->{session}->close;
		close($c->{file}) or die "cannot write $name: $!";
		0;
	};
	print STDERR "member $members: $@" if !defined $status;
	POSIX::_exit($status // 1);
}

# Runs a phase: all records of all members, and where its server log begins.
sub run_phase
{
	my ($phase, $isolation, $seconds, @loops) = @_;
	my $until = time + $seconds;
	my $log_start = -s $node->logfile;
	my $failed = 0;
	my (@members, @records);

	push @members, start_member($_, $phase, $isolation, $until) for @loops;

	for my $member (@members)
	{
		waitpid($member->{pid}, 0);
		$failed++ if $? != 0;
	}
	is($failed, 0, "$phase: all members came to their end");

	for my $member (@members)
	{
		open(my $file, '<', $member->{name}) or die "no records: $!";
		while (defined(my $line = <$file>))
		{
			chomp $line;
			push @records,
			  [ map { $_ eq '\N' ? undef : $_ } split(/\t/, $line, -1) ];
		}
		close($file);
	}
	return (\@records, $log_start);
}

# ---- checks ----------------------------------------------------------------

sub records_of
{
	my ($records, $kind) = @_;
	return grep { $_->[0] eq $kind } @$records;
}

# The records of claims, by names.
sub claims_of
{
	my ($records) = @_;
	return map {
		my %claim;
		@claim{
			qw(kind rows wait_ms own other_body key from to outcome token attempt code body status life snapshot)
		} = @$_;
		\%claim;
	} records_of($records, 'CLAIM');
}

# Says what was wrong, a few of it.
sub none
{
	my ($name, @wrong) = @_;
	is(scalar(@wrong), 0, $name)
	  or diag(join("\n", @wrong[ 0 .. min(4, $#wrong) ]));
	return;
}

sub check_errors
{
	my ($phase, $records) = @_;
	my $excused = records_of($records, 'EXCUSE');
	my (%count, @others);

	for my $record (records_of($records, 'ERROR'))
	{
		my ($sqlstate, $message, $sql) = @{$record}[ 1 .. 3 ];
		$count{$sqlstate}++;
		next if $ALLOWED_ERRORS{$sqlstate};
		next if $sqlstate eq 'ID002' && $excused-- > 0;
		push @others, "$sqlstate $message: $sql";
	}
	none("$phase: no error but 40001, 40P01 and ID001", @others);
	note("$phase: errors: "
		  . join(', ', map { "$_ $count{$_}" } sort keys %count));
	return;
}

sub check_outcomes
{
	my ($phase, @claims) = @_;
	my %count;

	$count{ $_->{outcome} // 'NULL' }++ for @claims;
	none(
		"$phase: every claim has one row and an outcome",
		map { "$_->{key}: $_->{rows} rows, " . ($_->{outcome} // 'NULL') }
		  grep {
				 $_->{rows} != 1
			  || !defined $_->{outcome}
			  || !$OUTCOMES{ $_->{outcome} }
		  } @claims);
	none(
		"$phase: mismatch only for another body",
		map { $_->{key} }
		  grep { ($_->{outcome} // '') eq 'mismatch' && !$_->{other_body} }
		  @claims);
	note("$phase: outcomes: "
		  . join(', ', map { "$_ $count{$_}" } sort keys %count));
	cmp_ok($count{claimed} // 0, '>', 0, "$phase: somebody got a key");
	cmp_ok(
		scalar(
			grep {
				($_->{outcome} // '') eq 'claimed' && $_->{attempt} > 1
			} @claims),
		'>', 0,
		"$phase: somebody took over");
	cmp_ok($count{replay} // 0, '>', 0, "$phase: somebody got a replay");
	cmp_ok($count{in_progress} // 0,
		'>', 0, "$phase: somebody was told to come back");
	return;
}

# A claim that began after another one had been answered has a greater token.
sub check_tokens
{
	my ($phase, @granted) = @_;
	my (%by_key, @wrong);

	push @{ $by_key{ $_->{key} } }, $_ for @granted;
	for my $key (keys %by_key)
	{
		my @by_start = sort { $a->{from} <=> $b->{from} } @{ $by_key{$key} };
		my @by_end = sort { $a->{to} <=> $b->{to} } @{ $by_key{$key} };
		my $greatest = 0;
		my %seen;

		for my $claim (@by_start)
		{
			$greatest = max($greatest, shift(@by_end)->{token})
			  while @by_end && $by_end[0]{to} < $claim->{from};
			push @wrong, "$key: $claim->{token} after $greatest"
			  if $claim->{token} <= $greatest;
			push @wrong, "$key: $claim->{token} twice"
			  if $seen{ $claim->{token} }++;
		}
	}
	none("$phase: tokens of a key grow", @wrong);
	return;
}

# Nobody was granted a key while it was certainly held under another token.
sub check_guarded
{
	my ($phase, $records, @granted) = @_;
	my (%by_key, @wrong);

	push @{ $by_key{ $_->{key} } }, $_ for @granted;
	for my $record (records_of($records, 'GUARDED'))
	{
		my ($kind, $key, $token, $from, $to) = @$record;
		push @wrong, map { "$key: $_->{token} granted while $token held it" }
		  grep {
			$_->{token} != $token && $_->{from} > $from && $_->{to} < $to
		  } @{ $by_key{$key} };
	}
	none("$phase: one holder at a time", @wrong);
	return;
}

sub answer_text
{
	my ($status, $code, $body) = @_;
	return join(' ', $status, map { $_ // 'NULL' } $code, $body);
}

# The end of each life, by key and life.
sub ends_of
{
	my ($phase, $records) = @_;
	my (%end_of, @twice);

	for my $record (records_of($records, 'END'))
	{
		my ($kind, $how, $started, $key, $life, $token, $code, $body) =
		  @$record;
		my $status = $how eq 'finish' ? 'completed' : 'failed';

		push @twice, "$key $life: $token and $end_of{$key, $life}{token}"
		  if exists $end_of{ $key, $life };
		$end_of{ $key, $life } = {
			token => $token,
			started => $started,
			effects => $how eq 'finish' ? 1 : 0,
			answer => answer_text($status, $code, $body)
		};
	}
	none("$phase: a life of a key ends once", @twice);
	return %end_of;
}

sub check_effects
{
	my ($phase, %end_of) = @_;
	my (%effects, @wrong);
	my $stored = $node->safe_psql('postgres',
		"SELECT request_id, life, token FROM effect WHERE request_id LIKE '$phase-%'"
	);

	for my $line (split(/\n/, $stored))
	{
		my ($key, $life, $token) = split(/\|/, $line);
		my $end = $end_of{ $key, $life };
		$effects{ $key, $life }++;
		push @wrong, "$key $life: an effect under token $token"
		  if !defined $end || $end->{token} != $token;
	}
	for my $which (keys %end_of)
	{
		my $count = $effects{$which} // 0;
		push @wrong, join(' ', split(/$;/, $which)) . ": $count effects"
		  if $count != $end_of{$which}{effects};
	}
	none("$phase: every life has one committed effect", @wrong);
	note(
		sprintf(
			"%s: %d lives ended, %d with an effect",
			$phase, scalar(keys %end_of), scalar(keys %effects)));
	return;
}

sub check_replays
{
	my ($phase, $claims, %end_of) = @_;
	my (@wrong, @too_early, @unseen);

	for my $claim (grep { ($_->{outcome} // '') eq 'replay' } @$claims)
	{
		next if $claim->{own};
		my $answer = answer_text(@{$claim}{qw(status code body)});
		my $end = $end_of{ $claim->{key}, $claim->{life} };
		push @wrong, "$claim->{key} $claim->{life}: $answer"
		  if !defined $end || $end->{answer} ne $answer;
		next if !defined $end;
		push @too_early, "$claim->{key} $claim->{life}"
		  if $claim->{to} < $end->{started};
		push @unseen, "$claim->{key} $claim->{life}"
		  if defined $claim->{snapshot}
		  && $claim->{snapshot} < $end->{started};
	}
	none("$phase: replays tell what the finisher said", @wrong);
	none("$phase: nothing is replayed before its commit", @too_early);
	none("$phase: nothing is replayed that a snapshot does not show", @unseen);
	return;
}

# The server reports waits longer than deadlock_timeout with their statement.
sub waits_in_server_log
{
	my ($log_start) = @_;
	my (%wait_of, @wrong);

	open(my $log, '<', $node->logfile) or die "no server log: $!";
	seek($log, $log_start, 0);
	while (defined(my $line = <$log>))
	{
		next if $line !~ /\[(\d+)\] /;
		my $pid = $1;
		if ($line =~ /LOG:  process \d+ still waiting for (.*) after/)
		{
			$wait_of{$pid} = $1;
		}
		elsif ($line =~ /STATEMENT:  (.*)/ && defined $wait_of{$pid})
		{
			push @wrong, "$wait_of{$pid}: $line"
			  if $line =~ /never waits/
			  && $wait_of{$pid} !~ /extension of relation/;
			delete $wait_of{$pid};
		}
	}
	close($log);
	return @wrong;
}

sub check_waits
{
	my ($phase, $records, $log_start, @claims) = @_;
	my @calls_ms = sort { $a <=> $b }
	  map { ($_->{to} - $_->{from}) * 1000 }
	  grep { $_->{wait_ms} == 0 } @claims;
	my @waits =
	  map { "$_->[1] $_->[2]: $_->[3]" }
	  grep { $_->[1] ne 'extend' && $_->[3] =~ /never waits/ }
	  records_of($records, 'WAIT');

	none("$phase: no claim with wait = 0 is seen waiting", @waits);
	none("$phase: the server reports no wait of a claim with wait = 0",
		waits_in_server_log($log_start));
	note("$phase: waits seen of others: "
		  . scalar(records_of($records, 'WAIT')));
	diag(
		sprintf(
			'%s: %d claims with wait = 0: median %.2f ms, 99%% within %.2f ms, longest %.2f ms; holders take up to %d ms',
			$phase, scalar(@calls_ms),
			$calls_ms[ $#calls_ms / 2 ], $calls_ms[ $#calls_ms * 0.99 ],
			$calls_ms[-1], $SLOW_DELAY_MS));
	return;
}

sub check_phase
{
	my ($phase, $records, $log_start) = @_;
	my @claims = claims_of($records);
	my @granted = grep { ($_->{outcome} // '') eq 'claimed' } @claims;

	check_errors($phase, $records);
	none("$phase: ends and own claims answer as they must",
		map { $_->[1] } records_of($records, 'BROKEN'));
	check_outcomes($phase, @claims);
	check_tokens($phase, @granted);
	check_guarded($phase, $records, @granted);

	my %end_of = ends_of($phase, $records);
	check_effects($phase, %end_of);
	check_replays($phase, \@claims, %end_of);
	check_waits($phase, $records, $log_start, @claims);
	cmp_ok($_->[2], '>', 0, "$phase: keys were $_->[1] meanwhile")
	  for records_of($records, 'TIMES');
	return;
}

sub check_disjoint
{
	my ($phase, $records) = @_;
	my $keys = sum0(map { $_->[2] } records_of($records, 'TIMES'));

	none(
		"$phase: claims of different keys never conflict",
		map { "$_->[1] $_->[2]: $_->[3]" } records_of($records, 'ERROR'));
	none("$phase: earlier keys are replayed",
		map { $_->[1] } records_of($records, 'BROKEN'));
	note("$phase: $keys keys");
	return;
}

# ---- the whole ----------------------------------------------------------------

# What must hold of the tables when nobody is left.
sub check_tables
{
	is( $node->safe_psql(
			'postgres', q(
SELECT count(*) FROM transaction_log l
 WHERE l.status = 'completed' AND l.request_id NOT LIKE 'disjoint%'
   AND NOT EXISTS (SELECT FROM effect e
		WHERE e.request_id = l.request_id AND e.token = l.token
		  AND e.code = l.response_code AND e.body IS NOT DISTINCT FROM l.response_body))
		),
		'0',
		'every stored response belongs to an effect');
	is( $node->safe_psql(
			'postgres', q(
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SELECT count(*) - count(DISTINCT (scope, request_id)) FROM transaction_log)
		),
		'0',
		'no key is stored twice');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'),
		'0', 'no prepared transaction is left');
	is( $node->safe_psql(
			'postgres',
			q(SELECT count(*) FROM pg_index WHERE indrelid = 'transaction_log'::regclass AND NOT indisvalid)
		),
		'0',
		'no index is left behind');

	unlike(slurp_file($node->logfile), qr/PANIC:|FATAL:|TRAP:|WARNING:/,
		'the server log is clean');
	return;
}

sub run
{
	my ($on, %options) = @_;
	my $seconds = $options{seconds} / 5;

	$node = $on;
	$connstr = $node->connstr('postgres');
	$client_connstr = $options{connstr} // $connstr;
	diag("seed $seed");

	my @clients = map { \&client_loop } 1 .. $CLIENTS;
	my @others = (\&purge_loop, \&lock_loop, \&watch_loop);
	for my $phase (
		[ 'committed', 'READ COMMITTED', @others ],
		[ 'reindex', 'READ COMMITTED', \&reindex_loop, @others ],
		[ 'repeatable', 'REPEATABLE READ', @others ],
		[ 'serializable', 'SERIALIZABLE', @others ])
	{
		my ($name, $isolation, @members) = @$phase;
		check_phase($name,
			run_phase($name, $isolation, $seconds, @clients, @members));
	}
	check_disjoint(
		'disjoint',
		run_phase(
			'disjoint', 'SERIALIZABLE',
			$seconds, map { \&disjoint_loop } 1 .. $CLIENTS / 2));
	check_tables();
	return;
}

1;
