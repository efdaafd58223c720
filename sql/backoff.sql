-- Backoff: exponential, capped, never out of bounds.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
\getenv srcdir PG_ABS_SRCDIR
\set helpers :srcdir /sql/helpers.psql
\set ECHO none
\i :helpers
\set ECHO all
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';

-- without jitter: doubling up to the cap
SELECT a, idem_backoff(a, jitter => 'none') FROM unnest('{1,2,3,4,5,6,7,8,9,10,11,31,32,33,62,63,64,65,100,1000000,2147483646,2147483647}'::int[]) a;
SELECT idem_backoff(1, '10 ms', '1s', 'none'), idem_backoff(4, '10 ms', '1s', 'none'), idem_backoff(7, '10 ms', '1s', 'none'), idem_backoff(8, '10 ms', '1s', 'none');
-- a base above the cap; tiny and huge ones
SELECT idem_backoff(1, '1h', '1 min', 'none'), idem_backoff(1, '1 min', '1 min', 'none'), idem_backoff(2, '1 min', '1 min', 'none');
SELECT idem_backoff(1, '1 us', '1 us', 'none'), idem_backoff(40, '1 us', '1h', 'none'), idem_backoff(2147483647, '1 us', '1h', 'none');
SELECT idem_backoff(2147483647, '1 day', '1 month', 'none') = interval '30 days' AS a_month_is_30_days,
       idem_backoff(2147483647, '100000 years', '170000 years', 'none') >= interval '100000 years' AS huge,
       idem_backoff(2147483647, '170000000 years', '170000000 years', 'none') > '0' AS beyond;

-- full: all of it random; equal: half of it; within bounds for every attempt
SELECT j.jitter, count(*) AS calls, bool_and(b.pause >= CASE j.jitter WHEN 'full' THEN interval '0' WHEN 'equal' THEN w.whole / 2 ELSE w.whole END) AS above,
       bool_and(b.pause <= w.whole) AS below, count(DISTINCT b.pause) > 100 AS random
  FROM (VALUES ('full'), ('equal'), ('none')) j (jitter),
       generate_series(1, 50) n,
       unnest('{1,2,3,5,9,10,20,64,1000,2147483647}'::int[]) a
  CROSS JOIN LATERAL (SELECT idem_backoff(a, jitter => 'none') AS whole) w
  CROSS JOIN LATERAL (SELECT idem_backoff(a, jitter => j.jitter) AS pause WHERE n > 0) b
 GROUP BY 1 ORDER BY 1;
-- full is the default, and spread over all of it
SELECT min(p) < '1 min' AS low, max(p) > '4 min' AND max(p) <= '5 min' AS high FROM (SELECT idem_backoff(1000) AS p FROM generate_series(1, 300)) s;
SELECT min(p) < '20s' AND min(p) >= '16s' AS low, max(p) > '28s' AND max(p) <= '32s' AS high
  FROM (SELECT idem_backoff(6, jitter => 'equal') AS p FROM generate_series(1, 300)) s;
-- the smallest pause there is
SELECT DISTINCT idem_backoff(1, '1 us', '1 us') BETWEEN '0' AND '1 us' AS bounded FROM generate_series(1, 50);

-- NULL in, NULL out; nonsense is refused
SELECT idem_backoff(NULL) IS NULL AND idem_backoff(1, NULL) IS NULL AND idem_backoff(1, '1s', NULL) IS NULL AND idem_backoff(1, '1s', '1s', NULL) IS NULL AS strict;
SELECT c, probe.sqlstate('SELECT ' || c)
  FROM unnest(ARRAY['idem_backoff(0)', 'idem_backoff(-2147483648)', 'idem_backoff(1, ''0'')', 'idem_backoff(1, ''-1s'')', 'idem_backoff(1, ''1s'', ''0'')',
                    'idem_backoff(1, ''1s'', ''-1 month'')', 'idem_backoff(1, jitter => '''')', 'idem_backoff(1, jitter => ''Full'')']) c;

DROP SCHEMA probe CASCADE;
