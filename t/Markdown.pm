# The pages of the project, taken apart for the tests that hold them: 090, 093,
# 094.
#
#	Markdown::pages($source)	paths below $source, CHANGELOG.md left out
#	Markdown::blocks($path)		code blocks of a page, as hashes:
#		info	what stands after ```; undef for an indented block
#		line	number of its first line of code
#		text	the code, without indentation
#		shown	the block of text (```text) that follows at once, or undef
#	Markdown::spans($path)		code within lines: { line, text }
#	Markdown::prose($path)		the page without its code blocks
#	Markdown::anchors($path)	what a link can lead to, as GitHub names headings
package Markdown;

use strict;
use warnings;

use File::Find;
use PostgreSQL::Test::Utils;

sub pages
{
	my ($source) = @_;
	my @pages = grep { !/^CHANGELOG/ } map { m{([^/]+)$} } glob("$source/*.md");

	foreach my $folder (grep { -d "$source/$_" } qw(docs bench chaos examples))
	{
		find(
			sub {
				$File::Find::prune = 1 if $_ eq 'node_modules';
				push @pages, substr($File::Find::name, length($source) + 1)
				  if /\.md$/;
			},
			"$source/$folder");
	}
	return sort @pages;
}

# Calls $each with 'code' or 'prose', the number of a line, the line without its
# indentation as code, and what stands after ``` (undef for an indented block).
sub walk
{
	my ($path, $each) = @_;
	my ($number, $info, $indented) = (0, undef, 0);
	my $blank = 1;

	foreach my $line (split /\n/, slurp_file($path))
	{
		$number++;
		if (defined $info)
		{
			if ($line =~ /^\s*```\s*$/) { undef $info; $each->('end', $number, ''); }
			else { $each->('code', $number, $line, $info); }
		}
		elsif ($line =~ /^\s*```(.*)$/)
		{
			$each->('end', $number, '') if $indented;
			$indented = 0;
			$info = $1;
		}
		elsif ($line =~ /^    (.*)/ && ($indented || $blank))
		{
			$indented = 1;
			$each->('code', $number, $1);
		}
		elsif ($line eq '' && $indented) { $each->('gap', $number, ''); }
		else
		{
			$each->('end', $number, '') if $indented;
			$indented = 0;
			$each->('prose', $number, $line);
		}
		$blank = $line eq '';
	}
	return;
}

sub blocks
{
	my ($path) = @_;
	my (@blocks, $open, $last);

	walk(
		$path,
		sub {
			my ($what, $number, $line, $info) = @_;

			if ($what eq 'code')
			{
				if (!$open)
				{
					$open = { info => $info, line => $number, text => '' };
					$last->{shown} = $open
					  if $last && ($info // '') eq 'text';
					push @blocks, $open;
				}
				$open->{text} .= "$line\n";
			}
			elsif ($what eq 'end') { $last = $open; undef $open; }
			elsif ($what eq 'prose' && $line ne '') { undef $last; undef $open; }
		});
	return @blocks;
}

sub spans
{
	my ($path) = @_;
	my @spans;
	my $paragraph = '';
	my $first = 0;

	# A span may go over the end of a line, but not over that of a paragraph.
	my $harvest = sub {
		while ($paragraph =~ /(`+)(.+?)\1(?!`)/gs)
		{
			my $text = $2 =~ s/\s+/ /gr;
			my $before = substr($paragraph, 0, $-[0]);

			push @spans, { line => $first + ($before =~ tr/\n//), text => $text };
		}
		$paragraph = '';
	};

	walk(
		$path,
		sub {
			my ($what, $number, $line) = @_;

			if ($what ne 'prose' || $line =~ /^\s*$/) { $harvest->(); return; }
			$first = $number if $paragraph eq '';
			$paragraph .= "$line\n";
		});
	$harvest->();
	return @spans;
}

sub prose
{
	my ($path) = @_;
	my $prose = '';

	walk($path, sub { $prose .= $_[0] eq 'prose' ? "$_[2]\n" : "\n"; });
	return $prose;
}

sub anchors
{
	my ($path) = @_;
	my (@anchors, %times);

	foreach my $heading (prose($path) =~ /^#+ +(.*?)\s*$/mg)
	{
		my $anchor = lc $heading;

		$anchor =~ s/\[([^]]*)\]\([^)]*\)/$1/g;
		$anchor =~ s/[^\w\- ]//g;
		$anchor =~ tr/ /-/;
		$times{$anchor}++;
		push @anchors, $times{$anchor} > 1 ? "$anchor-" . ($times{$anchor} - 1) : $anchor;
	}
	return @anchors;
}

1;
