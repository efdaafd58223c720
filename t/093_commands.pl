# Every command, setting and statement that the pages show, other than their
# blocks of SQL (090_docs.pl, 091_recipes.pl) and the pages of the clients (060 to
# 066).
#
# A command is a line of a block that is indented or ```sh, or code within the
# text that begins like one.  Each has an entry in @commands, by its exact text,
# and is run by it; or one in %not_run, which says why it cannot be run here, and
# checks what can be checked.  A command with neither fails this test, and so does
# an entry that no page has any more.
#
# Commands run in a copy of the checkout, with a pg_config that says where this
# user may install, and with a sudo that just goes on.
#
# See t/README for the conventions of these tests.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Cwd;
use File::Basename;
use File::Path qw(make_path);
use Markdown;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/..";
# What the pages of the clients show is run by 066_readmes.pl.
my @pages = grep { !m{^examples/clients/} } Markdown::pages($source);
my $tmp = PostgreSQL::Test::Utils::tempdir_short();
my $checkout = "$tmp/src";
my $unpacked;	# a release, once "make dist" has made it
my $patience = 600;

# ---- running -----------------------------------------------------------------

sub write_file
{
	my ($path, $text) = @_;

	unlink $path;
	append_to_file($path, $text);
	chmod 0755, $path;
	return;
}

# Runs a line as a shell does; what it says, and whether it went well.
sub shell
{
	my ($dir, $line) = @_;
	my $said = '';
	my $well = eval {
		IPC::Run::run(
			[ 'bash', '-o', 'pipefail', '-ec', $line ],
			'<', \undef, '>&', \$said,
			init => sub { chdir $dir or die $! },
			IPC::Run::timeout($patience));
	};

	$said .= $@ if !$well;
	return ($said, $well);
}

sub runs_in
{
	my ($dir, $line, $name) = @_;
	my ($said, $well) = shell($dir, $line);

	ok($well, $name // $line) or diag($said);
	return $said;
}

sub have
{
	my ($program) = @_;

	return (grep { -x "$_/$program" } split /:/, $ENV{PATH}) > 0;
}

sub copy_checkout
{
	mkdir $checkout or die $!;
	my ($said, $well) = shell($source,
		    "tar --exclude=./.git --exclude='*.o' --exclude='*.bc' --exclude='*.so'"
		  . " --exclude=./results --exclude=./output_iso --exclude='./tmp_check*'"
		  . " --exclude=./log --exclude=node_modules --exclude=__pycache__ -cf - . | tar -C '$checkout' -xf -");
	die $said if !$well;
	return;
}

# What the commands find in PATH and PG_CONFIG.
sub make_tools
{
	my $real;

	IPC::Run::run([ 'pg_config', '--bindir' ], '>', \$real);
	chomp $real;
	make_path("$tmp/bin", map { "$tmp/installed/$_" } qw(lib share doc));
	write_file("$tmp/bin/pg_config", <<"SH");
#!/bin/sh
case "\$*" in
	--pkglibdir) echo "$tmp/installed/lib" ;;
	--sharedir) echo "$tmp/installed/share" ;;
	--docdir) echo "$tmp/installed/doc" ;;
	*) exec "$real/pg_config" "\$@" ;;
esac
SH
	write_file("$tmp/bin/sudo", qq{#!/bin/sh\nexec "\$@"\n});
	$ENV{PG_CONFIG} = "$tmp/bin/pg_config";
	$ENV{PATH} = "$tmp/bin:$real:$ENV{PATH}";
	# Nobody measures this build.
	$ENV{COPT} = '-O0 -U_FORTIFY_SOURCE';
	delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	return;
}

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'idempotency'");
$node->start;
$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
make_tools();
copy_checkout();

my $databases = 0;

sub new_database
{
	my ($setup) = @_;
	my $name = 'page_' . ++$databases;

	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->safe_psql($name, $setup) if defined $setup;
	return $name;
}

# A statement runs in a database where the extension is, and succeeds.
sub statement
{
	my ($sql) = @_;
	my $database = new_database('CREATE SCHEMA name; CREATE SCHEMA old;');

	$node->safe_psql($database,
		"CREATE EXTENSION idempotency SCHEMA old; ALTER DATABASE $database SET search_path = public, old")
	  if $sql !~ /^CREATE EXTENSION/;
	my ($status, $out, $error) = $node->psql($database, $sql);

	is($status, 0, $sql) or diag($error);
	return;
}

# ---- building, packing -------------------------------------------------------

sub is_installed
{
	my ($what) = @_;
	my @missing = grep { !-f "$tmp/installed/$_" } 'lib/idempotency.so',
	  map { "share/extension/idempotency$_" } '.control', '--1.0.sql';

	is("@missing", '', "$what: the files are there");
	shell($tmp, 'rm -rf installed/*');
	make_path(map { "$tmp/installed/$_" } qw(lib share doc));
	return;
}

# These run first: the commands that build do so in the release.
sub make_dist
{
	my ($line) = @_;

	SKIP: {
		skip 'no git', 1 if !have('git');
		my ($said, $well) = shell($checkout,
			    'git init -q && git add -A && git -c user.name=test -c user.email=test@example.org'
			  . ' commit -q -m release');
		ok($well, 'a commit') or diag($said);
		like(runs_in($checkout, $line), qr/^idempotency-[\d.]+\.zip$/m, "$line names the archive");
	}
	return;
}

sub unpack_archive
{
	my ($line) = @_;

	$unpacked = $checkout;
	SKIP: {
		my ($archive) = glob("$checkout/idempotency-*.zip");

		skip 'no archive, or no unzip', 1 if !$archive || !have('unzip');
		my ($directory) = (split /\n/, runs_in($checkout, "$line && pwd"))[-1];
		$unpacked = $directory if -d $directory;
		my ($files) = shell($checkout, 'LC_ALL=C git ls-files | grep -v ^.ci/ | LC_ALL=C sort');
		my ($packed) = shell($unpacked, 'find . -type f | sed s,^./,, | LC_ALL=C sort');
		is($packed, $files, 'the archive holds what is committed');
	}
	return;
}

sub build
{
	my ($line) = @_;

	runs_in($unpacked, $line =~ s{/path/to/pg_config}{$tmp/bin/pg_config}r, $line);
	is_installed($line);
	return;
}

sub installcheck
{
	my ($line) = @_;

	like(runs_in($unpacked, $line), qr/^[# ]*All 1 tests passed/m, "$line: a test ran");
	return;
}

# The file that the example's page shows; PATH has the real server's programs.
sub demo
{
	my ($line) = @_;
	my ($said, $well) = shell($checkout, "$line 2>$tmp/demo.err");

	ok($well, $line) or diag(slurp_file("$tmp/demo.err"));
	is($said, slurp_file("$source/examples/orders/expected.txt"), "$line: what it prints");
	is_installed($line);
	return;
}

# ---- what a page on operation shows ------------------------------------------

sub move_schema
{
	my ($script) = @_;
	my $database = new_database(
		q{CREATE SCHEMA old; CREATE EXTENSION idempotency SCHEMA old; SET search_path = old;
		  SELECT idem_configure('shop', ttl => '3 days');
		  SELECT idem_machine('order', '{a}', '{a->b}');
		  SELECT idem_once('m-1', 'shop');
		  SELECT idem_claim('open', scope => 'shop', lease => '1 hour');
		  BEGIN;
		  SELECT idem_claim('done', '{"n": 1}', scope => 'shop');
		  SELECT idem_finish('done', '{"ok": true}', 201, scope => 'shop');
		  COMMIT;});
	my $token = $node->safe_psql($database, 'SELECT max(token) FROM old.transaction_log');

	local $ENV{PGDATABASE} = $database;
	runs_in($tmp, $script, 'the extension moves to another schema');
	is( $node->safe_psql(
			$database, q{SET search_path = new;
			SELECT outcome, response_code, expires_at > now() + interval '2 days'
			  FROM idem_claim('done', '{"n": 1}', scope => 'shop');
			SELECT outcome FROM idem_claim('open', scope => 'shop');
			SELECT idem_once('m-1', 'shop');
			SELECT transitions FROM idempotency_machine;
			SELECT max(token) FROM transaction_log}),
		"replay|201|t\nin_progress\nf\n{a->b}\n$token",
		'with all that it knows');
	return;
}

# pg_cron keeps a command and runs it on its own.
sub schedule
{
	my ($line) = @_;
	my $database = new_database(
		q{CREATE EXTENSION idempotency;
		  SELECT idem_once('m-1', ttl => '1 millisecond');
		  CREATE SCHEMA cron;
		  CREATE TABLE cron.job (command text);
		  CREATE FUNCTION cron.schedule(job_name text, schedule text, command text)
		  RETURNS bigint LANGUAGE sql AS $$ INSERT INTO cron.job VALUES (command) RETURNING 1 $$;});

	$node->safe_psql($database, $line);
	$node->safe_psql($database, $node->safe_psql($database, 'SELECT command FROM cron.job'));
	is($node->safe_psql($database, 'SELECT count(*) FROM idempotency_inbox'), '0', $line);
	return;
}

# ---- what is not run ---------------------------------------------------------

# Programs of the project: no syntax error, and their options are documented.
sub is_sound
{
	my ($line) = @_;
	my ($program, @words) = split / /, $line =~ s/^sudo //r;
	my $file = "$checkout/$program";

	if (slurp_file($file) =~ /^#!.*python/)
	{
		runs_in($checkout, "python3 -c 'compile(open(\"$program\").read(), \"$program\", \"exec\")'",
			"$line: compiles");
	}
	else { runs_in($checkout, "bash -n $program", "$line: no syntax error"); }
	my ($usage) = shell($checkout, "$program --help");
	ok(index($usage, $_) >= 0, "$line: $program --help knows $_")
	  foreach map { /^(--[\w-]+|PG_CONFIG=)/ ? $1 : () } @words;
	return;
}

# apt would install these, and they are what debian/control asks for.
sub build_dependencies
{
	my ($line) = @_;
	my ($wanted) = slurp_file("$source/debian/control.in") =~ /^Build-Depends:\n((?: .*\n)+)/m;

	foreach my $package ($wanted =~ /^ ([\w-]+)/mg)
	{
		$package =~ s/-compat$//;
		like($line, qr/ \Q$package\E( |$)/, "$line: $package is wanted by debian/control");
	}
	SKIP: {
		skip 'no apt that knows postgresql-all', 1
		  if !have('apt-get') || !(shell($tmp, 'apt-cache show postgresql-all'))[1];
		runs_in($tmp, $line =~ s/^sudo apt-get/apt-get -s -o Debug::NoLocking=true/r, "$line: dry run");
	}
	return;
}

# debian/control is that of control.in for the versions that it has.
sub package_control
{
	my $in = slurp_file("$source/debian/control.in");
	my $control = slurp_file("$source/debian/control");
	my ($head, $template) = split /^(?=Package: )/m, $in;
	my @majors = $control =~ /^Package: postgresql-(\d+)-/mg;

	is($control, $head . join("\n", map { $template =~ s/PGVERSION/$_/gr } @majors),
		'debian/control is made of debian/control.in');
	runs_in($checkout, 'make -n -f debian/rules build >/dev/null', 'debian/rules can be read')
	  if have('dh');
	return;
}

sub package_name
{
	my ($line) = @_;
	my ($version) = slurp_file("$source/debian/changelog") =~ /^\S+ \(([^)]+)\)/;
	my ($package) = slurp_file("$source/debian/control") =~ /^Package: (.*)$/m;

	like($line, qr{ \.\./\Q${package}_${version}_\E\w+\.deb$}, "$line: the name of the package");
	return;
}

# ci/package does it, with files of its own.
sub is_step_of_package
{
	my ($line) = @_;
	my @words = grep { !m{/|=} } split / /, $line =~ s/^sudo //r;
	my $script = slurp_file("$source/ci/package") =~ s/\\\n\s*//gr;
	my $pattern = join '.*', map { "(?<![\\w-])\Q$_\E(?![\\w-])" } @words;

	like($script, qr/^.*$pattern/m, "$line: ci/package does it");
	return;
}

# The name is that of META.json, which 092_release.pl checks.
sub pgxn
{
	my ($line) = @_;
	my ($name) = slurp_file("$source/META.json") =~ /"name": "(.*?)"/;

	is($line, "pgxn install $name", "$line: the name of the distribution");
	return;
}

my @commands = (
	'make dist' => \&make_dist,
	'unzip idempotency-1.0.0.zip && cd idempotency-1.0.0' => \&unpack_archive,
	'make && sudo make install' => \&build,
	'make PG_CONFIG=/path/to/pg_config && sudo make install' => \&build,
	'make && make install' => \&build,
	'make installcheck REGRESS=claim ISOLATION= TAP_TESTS=' => \&installcheck,
	'examples/demo' => \&demo,
	"SELECT cron.schedule('purge idempotency keys', '* * * * *', 'CALL idem_purge_all()');" =>
	  \&schedule,
	'pg_dumpall --globals-only' => sub { like(runs_in($tmp, $_[0]), qr/CREATE ROLE/, 'roles'); });

# Whole blocks, by their first line.
my %scripts = (
	q(pg_dump --data-only -t old.transaction_log -t 'old.idempotency_*' > log.sql) => \&move_schema);

my $itself = 'it is what runs this test';
my $machine = 'it makes root directories of other releases, as root, for half an hour';
my $minutes = 'it takes minutes, and the machine for itself';
my $faults = '051_chaos.pl runs it for some seconds';
my %not_run = (
	'ci/test' => [ $itself, \&is_sound ],
	'ci/test --regress-only' => [ $itself, \&is_sound ],
	'ci/test PG_CONFIG=...' => [ $itself, \&is_sound ],
	'make installcheck ISOLATION= TAP_TESTS=' => ['ci/test does so, twice'],
	'sudo ci/matrix' => [ $machine, \&is_sound ],
	'sudo ci/matrix --package' => [ $machine, \&is_sound ],
	'ci/lint' => [ $minutes, \&is_sound ],
	'ci/memory valgrind SOURCE' => [ $minutes, \&is_sound ],
	'ci/memory sanitizers SOURCE' => [ $minutes, \&is_sound ],
	'IDEM_RANDOM_SECONDS=600 make installcheck REGRESS= ISOLATION= PROVE_TESTS=t/050_random_calls.pl' => [$minutes],
	'bench/run-all' => [ $minutes, \&is_sound ],
	'bench/run-all /tmp/try quick' => [ $minutes, \&is_sound ],
	'chaos/run' => [ $faults, \&is_sound ],
	'chaos/run --minutes 30' => [ $faults, \&is_sound ],
	'chaos/run --seed 42' => [ $faults, \&is_sound ],
	'chaos/run --minutes M --seed N' => [ $faults, \&is_sound ],
	'chaos/run --mutants' => [ $faults, \&is_sound ],
	'sudo apt-get install build-essential debhelper postgresql-all libipc-run-perl' =>
	  [ 'it changes the machine', \&build_dependencies ],
	'pg_buildext updatecontrol && dpkg-buildpackage -us -uc -b' =>
	  [ 'it takes minutes; ci/package runs it', \&package_control ],
	'sudo apt-get install ../postgresql-15-idempotency_1.0_amd64.deb' =>
	  [ 'it changes the machine; ci/package does it', \&package_name ],
	'lintian --fail-on error ../pg-idempotency_*.changes' =>
	  [ 'it needs the package', \&is_step_of_package ],
	'sudo apt-get install ../postgresql-*-idempotency_*.deb' =>
	  [ 'it changes the machine', \&is_step_of_package ],
	'sudo autopkgtest --user=nobody ../pg-idempotency_*.changes ./ -- null' =>
	  [ 'it needs the package', \&is_step_of_package ],
	'pgxn install idempotency' => [ 'it asks the network', \&pgxn ],
	'perf record -g -p PID_OF_A_BACKEND -- sleep 10' => ['it needs perf, and the right to use it'],
	'perf report --no-children' => ['it needs perf, and the right to use it']);

# Code within the text that begins like a command or a statement, and is only
# spoken of.  (So is what has no small letter: a kind of statements.)
my %fragments = map { $_ => 1 } (
	'pg_dump -t', 'growth -m 10', 'SET key NX EX', 'CALL idem_batch',
	'CALL idem_batch: step 2 of 5: etl.report');

# ---- collecting --------------------------------------------------------------

my (%found, %seen_script, @settings, %statements);

# Lines of a block: without comments, continued ones joined.
sub lines_of
{
	my ($text) = @_;

	$text =~ s/\\\n\s*//g;
	return grep { $_ ne '' } map { s/\s{2,}(?:#|--) .*|^# .*//r =~ s/^\s+|\s+$//gr } split /\n/, $text;
}

sub is_setting { return $_[0] =~ /^[a-z_]+(?:\.[a-z_]+)? = \S/; }

# Formats of messages in the sources, as patterns.
sub message_patterns
{
	my @patterns;

	foreach my $file (glob("$source/src/*.c"))
	{
		my $text = slurp_file($file);

		while ($text =~ /errmsg\("((?:[^"\\]|\\.)*)"/g)
		{
			my $format = $1 =~ s/\\(.)/$1/gr;

			push @patterns, join '[^"]+?', map { quotemeta } split /%[\d.]*(?:lld|ld|d|s|u)/, $format, -1;
		}
	}
	return @patterns;
}

sub is_logged
{
	my ($page, $line) = @_;
	my ($message) = $line =~ /^LOG:  (.*)$/;

	ok((grep { $message =~ /^$_$/ } message_patterns()), "$page: $message");
	return;
}

# Results name the run that they are of.
sub canonical
{
	my ($line) = @_;

	return $line =~ s{^(chaos/run) --minutes [\d.]+ --seed \d+$}{$1 --minutes M --seed N}r;
}

sub take_block
{
	my ($page, $block) = @_;
	my $info = $block->{info} // 'indented';
	my @lines = lines_of($block->{text});

	return if $info =~ /^(?:sql(?: error \w{5})?|text|mermaid|python|js|java)?$/;
	if ($info !~ /^(?:indented|sh)$/)
	{
		fail("$page line $block->{line}: no test knows blocks of $info");
	}
	elsif ($lines[0] =~ /^(?:CALL )?idem_\w+ *\(/)
	{
		# a signature: 094_reference.pl
	}
	elsif ($lines[0] eq 'loop:' && $page eq 'docs/reference/calls.md')
	{
		# not a language; 032_payments.pl runs examples/payments, which does it
	}
	elsif ($scripts{ $lines[0] }) { $seen_script{ $lines[0] } = $block->{text}; }
	else
	{
		foreach my $line (@lines)
		{
			if (is_setting($line)) { push @settings, $line; }
			elsif ($line =~ /^LOG:/) { is_logged($page, $line); }
			else { $found{ canonical($line) } //= "$page line $block->{line}"; }
		}
	}
	return;
}

sub take_span
{
	my ($page, $span) = @_;
	my ($line, $text) = @$span{qw(line text)};

	return if $fragments{$text} || $text !~ /[a-z]/ || $text =~ /\.\.\.|…/;
	if (is_setting($text)) { push @settings, $text; }
	elsif ($text =~ /^(?:SELECT|CALL|SET|RESET|CREATE|DROP|ALTER|GRANT|REVOKE|VACUUM|REINDEX|LISTEN) ./)
	{
		$statements{$text} = 1;
	}
	elsif ($text =~ /^(?:sudo|make|apt-get|createdb|psql|pgxn|dpkg-\w+|npm|pg_\w+|git|perf|prove|python3|node|curl|growth) ./
		|| $text =~ /^PG[A-Z]+=\S+ ./
		|| $text =~ m{^(?:ci|bench|chaos|examples)/\S+ .})
	{
		$found{ canonical($text) } //= "$page line $line";
	}
	return;
}

foreach my $page (@pages)
{
	take_block($page, $_) foreach Markdown::blocks("$source/$page");
	take_span($page, $_) foreach Markdown::spans("$source/$page");
}
# Parts of commands that are listed as a whole.
foreach my $part ('dpkg-buildpackage -us -uc -b', 'pg_buildext updatecontrol', 'npm install')
{
	delete $found{$part};
}

# ---- the tests ---------------------------------------------------------------

my %run = @commands;
foreach my $line (sort keys %found)
{
	ok($run{$line} || $not_run{$line}, "$found{$line}: a test knows: $line");
}
is(join("\n", grep { !$found{$_} } sort(keys %run, keys %not_run)),
	'', 'every command that is known here is on a page');
is(join("\n", grep { !$seen_script{$_} } sort keys %scripts), '', 'and so is every script');

while (my ($line, $how) = splice @commands, 0, 2)
{
	$how->($line) if $found{$line};
}
$scripts{$_}->($seen_script{$_}) foreach sort keys %seen_script;
foreach my $line (grep { $found{$_} } sort keys %not_run)
{
	my ($why, $check) = @{ $not_run{$line} };

	note("not run: $line: $why");
	$check->($line) if $check;
}
statement($_) foreach sort keys %statements;

# Settings: a server takes them from its configuration file; those of tables and
# of scopes are in force.
my %once = map { $_ => 1 } @settings;
@settings = sort keys %once;
my %of_tables = map { $_ => 1 } qw(fillfactor vacuum_truncate autovacuum_vacuum_scale_factor);
my $database = new_database('CREATE EXTENSION idempotency');
foreach my $setting (grep { /^(\w+) =/ && $of_tables{$1} } @settings)
{
	my ($name, $value) = $setting =~ /^(\w+) = (\S+)$/;

	is( $node->safe_psql($database,
			"SELECT option_value FROM pg_class, pg_options_to_table(reloptions)
			  WHERE relname = 'transaction_log' AND option_name = '$name'"),
		$value, "$setting: of the log");
}
foreach my $setting (grep { /^on_lease_expiry =/ } @settings)
{
	$node->safe_psql($database, 'SELECT idem_configure($$x$$, ' . ($setting =~ s/=/=>/r) . ')');
}
my @of_server = grep { !/^(\w+) =/ || !$of_tables{$1} && $1 ne 'on_lease_expiry' } @settings;
$node->append_conf('postgresql.conf', join "\n", @of_server);
is( $node->safe_psql('postgres',
		'SELECT name, setting, error FROM pg_file_settings WHERE error IS NOT NULL'),
	'', 'a server takes the settings: ' . join(', ', @of_server));
cmp_ok(scalar @of_server, '>', 4, 'of which there are some');
$node->restart;
is( $node->safe_psql($database,
		'BEGIN; SELECT outcome FROM idem_claim($$k$$, scope => $$x$$);
		 SELECT idem_finish($$k$$, scope => $$x$$); COMMIT;'),
	"claimed\nt", 'and works with them');

$node->stop;
done_testing();
