# One psql that stays connected, for tests that need sessions side by side.
#
#	my $session = PsqlSession->new($node->connstr('postgres'));
#	my ($sqlstate, @rows) = $session->run('SELECT 1, NULL');
#
# A row is a reference to an array of columns, with undef for NULL.  sqlstate
# is 00000 where all went well, and error_message() tells more where not.
# An answer that does not come in time ends the test: nothing waits for ever.
package PsqlSession;

use strict;
use warnings;

use IPC::Open3;
use PostgreSQL::Test::Utils;

# Characters that no test uses in its data.
my $COLUMN_END = "\x01";
my $NULL_VALUE = "\x02";
my $END = 'end-of-answer';

my $CONNECTION_LOST = '08006';

sub new
{
	my ($class, $connstr, %options) = @_;
	my @command = (
		'psql', '-XAtq', '-v', 'ON_ERROR_STOP=0', '-v', 'VERBOSITY=sqlstate',
		'-F', $COLUMN_END, '-P', "null=$NULL_VALUE", '-d', $connstr);
	my $self = bless { message => '' }, $class;

	local $ENV{PGOPTIONS} = $options{options} // '';
	# What psql says about errors is asked for by its variables.
	open(my $nowhere, '>', '/dev/null') or die "cannot open /dev/null: $!";
	$self->{pid} = open3($self->{in}, $self->{out},
		'>&' . fileno($nowhere), @command);
	$self->{in}->autoflush(1);
	return $self;
}

# Sends a statement without waiting for its answer.
sub start
{
	my ($self, $sql) = @_;
	print { $self->{in} }
	  "$sql;\n\\echo $END :SQLSTATE :LAST_ERROR_MESSAGE\n";
	return;
}

# Waits for the answer of the statement that was started.
sub answer
{
	my ($self) = @_;
	my @rows;

	local $SIG{ALRM} = sub { die "no answer from the server in time\n" };
	alarm($PostgreSQL::Test::Utils::timeout_default);
	while (defined(my $line = readline $self->{out}))
	{
		chomp $line;
		if ($line =~ /^\Q$END\E (\w*) ?(.*)$/)
		{
			# Where the server is gone there is no SQLSTATE.
			my $sqlstate = length($1) == 5 ? $1 : $CONNECTION_LOST;
			$self->{message} = $sqlstate eq '00000' ? '' : $2;
			alarm(0);
			return ($sqlstate, @rows);
		}
		push @rows,
		  [ map { $_ eq $NULL_VALUE ? undef : $_ }
			  split(/$COLUMN_END/, $line, -1) ];
	}
	alarm(0);
	return ($CONNECTION_LOST, @rows);
}

# Runs a statement: its SQLSTATE, then its rows.
sub run
{
	my ($self, $sql) = @_;
	$self->start($sql);
	return $self->answer;
}

# Runs a statement that must succeed: its rows.
sub rows
{
	my ($self, $sql) = @_;
	my ($sqlstate, @rows) = $self->run($sql);
	die "\"$sql\" failed: $sqlstate $self->{message}"
	  if $sqlstate ne '00000';
	return @rows;
}

# The first column of the first row.
sub value
{
	my ($self, $sql) = @_;
	my @rows = $self->rows($sql);
	return @rows ? $rows[0][0] : undef;
}

sub error_message
{
	my ($self) = @_;
	return $self->{message};
}

sub close
{
	my ($self) = @_;
	return if !defined $self->{pid};
	local $SIG{PIPE} = 'IGNORE';
	CORE::close($self->{in});
	CORE::close($self->{out});
	waitpid($self->{pid}, 0);
	$self->{pid} = undef;
	return;
}

1;
