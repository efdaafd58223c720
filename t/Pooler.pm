# A pgbouncer in transaction mode before a server, for tests of what holds there.
#
#	plan skip_all => 'needs pgbouncer' if !Pooler::is_there();
#	my $pooler = Pooler->new($node, 'name', servers => 2);
#	my $session = PsqlSession->new($pooler->connstr('postgres'));
#
# Options of new: servers, how many connections to the server a database has at
# most; settings, more lines for the section [pgbouncer].
package Pooler;

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

sub command
{
	my ($found) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
	return $found;
}

sub is_there
{
	return defined command();
}

sub new
{
	my ($class, $node, $name, %options) = @_;
	my $directory = PostgreSQL::Test::Utils::tempdir_short;
	my $self = bless {
		name => $name,
		host => $directory,
		port => PostgreSQL::Test::Cluster::get_free_port()
	}, $class;
	my $log = "$PostgreSQL::Test::Utils::tmp_check/log/pgbouncer_$name";

	# Everybody is let in, as the user of the database's definition.
	$self->{user} = $node->safe_psql('postgres', 'SELECT current_user');
	PostgreSQL::Test::Utils::append_to_file("$directory/pgbouncer.ini", join("\n",
		'[databases]',
		'* = host=' . $node->host . ' port=' . $node->port . " user=$self->{user}",
		'[pgbouncer]',
		'listen_addr =',
		"listen_port = $self->{port}",
		"unix_socket_dir = $directory",
		'auth_type = any',
		"admin_users = $self->{user}",
		'pool_mode = transaction',
		"default_pool_size = $options{servers}",
		'ignore_startup_parameters = extra_float_digits,options',
		"logfile = $log.log",
		@{ $options{settings} // [] },
		''));
	$self->{run} = IPC::Run::start([ command(), "$directory/pgbouncer.ini" ],
		'<', \undef, '>', "$log.out", '2>&1');
	for my $try (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return $self
		  if IPC::Run::run([ 'psql', '-Xqc', 'SELECT 1', '-d', $self->connstr('postgres') ],
			'<', \undef, '>', '/dev/null', '2>', '/dev/null');
		select(undef, undef, undef, 0.1);
	}
	die "pgbouncer does not answer, see $log.log";
}

sub connstr
{
	my ($self, $database) = @_;
	return "host=$self->{host} port=$self->{port} user=$self->{user} dbname=$database";
}

# A command of the pooler's own console.
sub console
{
	my ($self, $command) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'psql', '-XAtqc', $command, '-d', $self->connstr('pgbouncer') ],
		'<', \undef, '>', \$out, '2>', \$err)
	  or die "$command: $err";
	return $out;
}

sub stop
{
	my ($self) = @_;
	return if !$self->{run};
	$self->{run}->kill_kill(grace => 10);
	$self->{run} = undef;
	return;
}

# A test that dies leaves no pooler behind.
sub DESTROY
{
	my ($self) = @_;
	local ($?, $@);
	$self->stop;
	return;
}

1;
