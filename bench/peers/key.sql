\set dice random(1, 100)
\if :dice <= :duplicates
\set key random(1, :known)
\else
\set key random(1000000000, 4000000000000000000)
\endif
