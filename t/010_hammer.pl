# A handful of keys under fire from several sessions (see Hammer.pm).
#
# IDEM_HAMMER_SECONDS: length of the whole run (default 25)
# IDEM_HAMMER_SEED: for another sequence of random decisions
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Hammer;
use Test::More;

my $node = Hammer::new_node('hammer');
Hammer::run($node, seconds => $ENV{IDEM_HAMMER_SECONDS} || 25);
$node->stop;
done_testing();
