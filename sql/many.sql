-- Batches of claims and their ends.
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

-- every element is answered, in the order of the array; a repeat is in progress
BEGIN;
SELECT ordinality, request_id, outcome, token IS NOT NULL AS has_token, attempt, status, checkpoints
  FROM idem_claim_many('{b,a,b,c,b}', scope => 'many');
SELECT * FROM idem_finish_many('{c,b,a}', '{3,2,1}', '{203,202,201}', scope => 'many');
COMMIT;
SELECT ordinality, request_id, outcome, token > 0 AS has_token, attempt, status, response_code, response_body, checkpoints
  FROM idem_claim_many('{a,new,b,c,a}', scope => 'many');
SELECT ordinality, outcome FROM idem_claim_many('{new,new}', scope => 'many');
-- bodies, fingerprints, ttl and lease
BEGIN;
SELECT ordinality, outcome, differs
  FROM idem_claim_many('{p,q,r,s}', ARRAY['{"n": 1}', '{"n": 2}', NULL, '{"n": 4}']::jsonb[], scope => 'many', ttl => '1 hour', lease => '1 min', fingerprints => ARRAY[NULL, NULL, '\x01', '\x02']::bytea[]);
COMMIT;
SELECT request_id, request_body, ttl, lease, octet_length(fingerprint) > 1 AS hashed FROM transaction_log WHERE scope = 'many' AND request_id IN ('p', 'q', 'r', 's') ORDER BY 1;
SELECT ordinality, outcome, differs, retry_after > '50 s' AS later
  FROM idem_claim_many('{p,q,r,s}', ARRAY['{"n": 1}', '{"n": 3}', NULL, '{"n": 5}']::jsonb[], scope => 'many', fingerprints => ARRAY[NULL, NULL, '\x03', '\x02']::bytea[]);
-- within one array, the first of repeated keys counts, whatever its body
BEGIN;
SELECT ordinality, outcome FROM idem_claim_many('{t,t}', ARRAY['{"n": 1}', '{"n": 2}']::jsonb[], scope => 'many');
SELECT request_body FROM transaction_log WHERE scope = 'many' AND request_id = 't';
ROLLBACK;
-- the same answers as one by one, in all states
SELECT idem_configure('many-manual', on_lease_expiry => 'manual');
SET idempotency.test_clock = '2030-01-01 12:00:00+00';
SELECT count(*) FROM idem_claim_many('{lapsed,leased,done,failed,backoff,final,expired}', array_fill('{"n": 1}'::jsonb, '{7}'), scope => 'many-states', lease => '10 s');
SELECT outcome FROM idem_claim('unknown', scope => 'many-manual', lease => '10 s');
SELECT count(*) FROM idem_extend_many('{leased}', (SELECT array_agg(token) FROM transaction_log WHERE scope = 'many-states' AND request_id = 'leased'), '1 hour', 'many-states');
SELECT l.request_id, CASE WHEN l.request_id IN ('done') THEN idem_finish(request_id, '"d"', token => l.token, scope => scope)
                          ELSE idem_fail(request_id, '"f"', token => l.token, scope => scope, final => l.request_id = 'final', retry_after => CASE l.request_id WHEN 'failed' THEN '1 s' WHEN 'backoff' THEN '1 hour' END::interval) END AS ended
  FROM transaction_log l WHERE l.scope = 'many-states' AND l.request_id IN ('done', 'failed', 'backoff', 'final') ORDER BY 1;
UPDATE transaction_log SET expires_at = '2030-01-01 12:00:30+00' WHERE scope = 'many-states' AND request_id = 'expired';
SET idempotency.test_clock = '2030-01-01 12:01:00+00';
SELECT request_id, outcome, attempt, status, retry_after, response_body
  FROM idem_claim_many('{done,lapsed,final,leased,failed,backoff,expired,fresh}', scope => 'many-states');
SELECT outcome, status FROM idem_claim_many('{unknown}', scope => 'many-manual');
-- mismatches in all states that are there
SELECT request_id, outcome, status, differs
  FROM idem_claim_many('{done,lapsed,final,backoff,fresh}', array_fill('{"n": 2}'::jsonb, '{5}'), scope => 'many-states');

-- ends: with tokens of an earlier transaction
RESET idempotency.test_clock;
SELECT count(*) FROM idem_claim_many('{x,y,z}', scope => 'many-ends');
SELECT array_agg(token ORDER BY request_id) AS tokens FROM transaction_log WHERE scope = 'many-ends' AND request_id IN ('x', 'y', 'z') \gset
SELECT * FROM idem_extend_many('{x,y,z}', :'tokens', '1 hour', 'many-ends');
SELECT request_id, locked_until - clock_timestamp() BETWEEN '59 min' AND '61 min' AS renewed FROM transaction_log WHERE scope = 'many-ends' ORDER BY 1;
-- without tokens: not theirs
SELECT probe.raises($$SELECT idem_finish_many('{x,y,z}', scope => 'many-ends')$$);
SELECT * FROM idem_finish_many('{x,y,z}', scope => 'many-ends', strict => false);
-- a stale one among good ones: nothing is recorded when strict
SELECT * FROM idem_finish_many('{x,y,nobody,z}', '{1,2,3,4}', tokens => (:'tokens'::bigint[])[1:1] || 1::bigint || 1::bigint || (:'tokens'::bigint[])[3:3], scope => 'many-ends', strict => false);
SELECT request_id, status FROM transaction_log WHERE scope = 'many-ends' ORDER BY 1;
SELECT count(*) FROM idem_claim_many('{u,v,w}', scope => 'many-ends');
SELECT array_agg(token ORDER BY request_id) AS tokens FROM transaction_log WHERE scope = 'many-ends' AND request_id IN ('u', 'v', 'w') \gset
SELECT probe.raises(format('SELECT idem_finish_many(''{u,v,w}'', tokens => %L, scope => ''many-ends'')', (:'tokens'::bigint[])[1:2] || 1::bigint));
SELECT probe.raises(format('SELECT idem_finish_many(''{u,v,nobody}'', tokens => %L, scope => ''many-ends'')', :'tokens'));
SELECT request_id, status FROM transaction_log WHERE scope = 'many-ends' AND request_id IN ('u', 'v', 'w') ORDER BY 1;
-- a bare repeat of a batch is harmless and writes nothing
SELECT * FROM idem_finish_many('{u,v,w}', ARRAY['"1"', '"2"', NULL]::jsonb[], tokens => :'tokens', scope => 'many-ends');
BEGIN;
SELECT * FROM idem_finish_many('{w,v,u}', ARRAY[NULL, '"2"', '"1"']::jsonb[], tokens => (SELECT array_agg(t ORDER BY n DESC) FROM unnest(:'tokens'::bigint[]) WITH ORDINALITY u (t, n)), scope => 'many-ends');
SELECT pg_current_xact_id_if_assigned() IS NULL AS wrote_nothing;
COMMIT;
-- one with other results, or after other writes, is not
SELECT probe.raises(format('SELECT idem_finish_many(''{u,v,w}'', ARRAY[''"1"'', ''"other"'', NULL]::jsonb[], tokens => %L, scope => ''many-ends'')', :'tokens'));
SELECT * FROM idem_finish_many('{u,v,w}', ARRAY['"1"', '"other"', NULL]::jsonb[], tokens => :'tokens', scope => 'many-ends', strict => false);
BEGIN;
SELECT pg_current_xact_id() IS NOT NULL AS has_written;
SELECT probe.raises(format('SELECT idem_finish_many(''{u,v,w}'', ARRAY[''"1"'', ''"2"'', NULL]::jsonb[], tokens => %L, scope => ''many-ends'')', :'tokens'));
SELECT * FROM idem_finish_many('{u,v,w}', ARRAY['"1"', '"2"', NULL]::jsonb[], tokens => :'tokens', scope => 'many-ends', strict => false);
ROLLBACK;
-- what a batch writes itself does not count, wherever the repeat stands
SELECT count(*) FROM idem_claim_many('{a1,z1}', scope => 'many-ends');
SELECT array_agg(token ORDER BY request_id) AS pair FROM transaction_log WHERE scope = 'many-ends' AND request_id IN ('a1', 'z1') \gset
BEGIN;
SELECT * FROM idem_finish_many('{a1,v,z1}', ARRAY['"1"', '"2"', '"1"']::jsonb[], tokens => ARRAY[(:'pair'::bigint[])[1], (:'tokens'::bigint[])[2], (:'pair'::bigint[])[2]], scope => 'many-ends');
ROLLBACK;
-- repeated keys: the first one counts
BEGIN;
SELECT count(*) FROM idem_claim_many('{k,l,m}', scope => 'many-ends');
SELECT * FROM idem_extend_many('{k,l,k}', lease => '2 hours', scope => 'many-ends');
SELECT * FROM idem_finish_many('{k,l,k}', ARRAY['"first"', '"other"', '"first"']::jsonb[], scope => 'many-ends');
SELECT * FROM idem_finish_many('{l,k,l}', ARRAY['"other"', '"first"', '"second"']::jsonb[], scope => 'many-ends', strict => false);
SELECT probe.raises($$SELECT idem_finish_many('{m,m}', ARRAY['"first"', '"second"']::jsonb[], scope => 'many-ends')$$);
SELECT * FROM idem_finish_many('{m,m}', ARRAY['"first"', '"second"']::jsonb[], scope => 'many-ends', strict => false);
COMMIT;
SELECT request_id, response_body FROM transaction_log WHERE scope = 'many-ends' AND request_id IN ('k', 'l', 'm') ORDER BY 1;
-- a finished claim cannot be extended
SELECT * FROM idem_extend_many('{u,v,w}', :'tokens', '1 hour', 'many-ends', strict => false);
SELECT probe.sqlstate(format('SELECT idem_extend_many(''{u,v,w}'', %L, ''1 hour'', ''many-ends'')', :'tokens'));

-- failures
BEGIN;
SELECT count(*) FROM idem_claim_many('{f1,f2,f3}', scope => 'many-ends');
SELECT * FROM idem_fail_many('{f1,f2}', ARRAY['"e1"', NULL]::jsonb[], scope => 'many-ends', final => true);
SELECT * FROM idem_fail_many('{f3,f3}', ARRAY['"e3"', '"e3"']::jsonb[], scope => 'many-ends', retry_after => '1 hour');
COMMIT;
SELECT request_id, outcome, status, response_body, retry_after > '59 min' AS later FROM idem_claim_many('{f1,f2,f3}', scope => 'many-ends');
SELECT probe.sqlstate($$SELECT idem_fail_many('{f1}', retry_after => '-1 s')$$);
-- a mixture of claimed here and proved by token
SELECT token FROM idem_claim('earlier', scope => 'many-ends') \gset
BEGIN;
SELECT outcome FROM idem_claim('here', scope => 'many-ends');
SELECT * FROM idem_finish_many('{here,earlier}', tokens => ARRAY[NULL, :token], scope => 'many-ends');
COMMIT;

-- bad arrays
SELECT n, probe.raises(format('SELECT %s', call)) FROM unnest(ARRAY[
    $$idem_claim_many('{a,NULL}')$$, $$idem_claim_many('{a,""}')$$, $$idem_claim_many(NULL)$$,
    $$idem_claim_many(ARRAY['a', repeat('x', 256)])$$,
    $$idem_claim_many('{{a,b},{c,d}}')$$, $$idem_claim_many('{a,b}', '{1}')$$, $$idem_claim_many('{a}', '{{1}}')$$,
    $$idem_claim_many('{a}', fingerprints => '{}')$$, $$idem_claim_many('{a}', scope => NULL)$$,
    $$idem_finish_many('{a,b}', '{1,2,3}')$$, $$idem_finish_many('{a,b}', response_codes => '{1}')$$, $$idem_finish_many('{a,b}', tokens => '{1}')$$,
    $$idem_finish_many(NULL)$$, $$idem_fail_many('{NULL}')$$, $$idem_extend_many('{{a}}')$$]) WITH ORDINALITY u (call, n) ORDER BY n;
SELECT probe.sqlstate($$SELECT idem_claim_many('{a}', ttl => '0')$$), probe.sqlstate($$SELECT idem_claim_many('{a}', lease => '-1 s')$$), probe.sqlstate($$SELECT idem_extend_many('{a}', lease => '0')$$);
SELECT count(*) FROM idem_claim_many('{}');
SELECT count(*) FROM idem_finish_many('{}', '{}', '{}', '{}');
SELECT count(*) FROM idem_fail_many('{}');
SELECT count(*) FROM idem_extend_many('{}', '{}');
-- bounds other than 1 do not matter
BEGIN;
SELECT ordinality, request_id, outcome FROM idem_claim_many('[5:6]={e5,e6}', scope => 'many-ends');
ROLLBACK;
-- as a column, and only some of the rows
BEGIN;
SELECT (idem_claim_many('{s1,s2}', scope => 'many-ends')).outcome;
SELECT outcome FROM idem_claim_many('{s3,s4}', scope => 'many-ends') LIMIT 1;
SELECT request_id FROM transaction_log WHERE request_id IN ('s3', 's4') ORDER BY 1;
ROLLBACK;

-- savepoints
BEGIN;
SELECT count(*) FROM idem_claim_many('{v1,v2}', scope => 'many-ends');
SAVEPOINT s;
SELECT * FROM idem_finish_many('{v1,v2}', scope => 'many-ends');
ROLLBACK TO s;
SELECT * FROM idem_finish_many('{v2,v1}', ARRAY['"2"', '"1"']::jsonb[], scope => 'many-ends');
COMMIT;
-- read-only: answers, but no new claim and no end
BEGIN READ ONLY;
SELECT request_id, outcome, response_body FROM idem_claim_many('{v1,v2}', scope => 'many-ends');
SELECT probe.sqlstate($$SELECT idem_claim_many('{v1,v9}', scope => 'many-ends')$$);
COMMIT;
-- counters of open claims come out even
SET idempotency.unfinished_at_commit = 'error';
BEGIN;
SELECT count(*) FROM idem_claim_many('{o1,o2,o1}', scope => 'many-ends');
SELECT count(*) FROM idem_finish_many('{o1,o2,o1}', scope => 'many-ends');
COMMIT;
BEGIN;
SELECT count(*) FROM idem_claim_many('{o3,o4}', scope => 'many-ends');
SELECT count(*) FROM idem_finish_many('{o3}', scope => 'many-ends');
\set VERBOSITY sqlstate
COMMIT;
\set VERBOSITY default
RESET idempotency.unfinished_at_commit;
-- a closed scope is closed to batches
CREATE ROLE regress_many_owner;
CREATE ROLE regress_many_user;
SELECT idem_configure('many-closed', owner => 'regress_many_owner');
SELECT idem_grant('regress_many_user');
SET ROLE regress_many_user;
SELECT probe.sqlstate(call) FROM unnest(ARRAY[$$SELECT idem_claim_many('{a}', scope => 'many-closed')$$, $$SELECT idem_claim_many('{}', scope => 'many-closed')$$,
    $$SELECT idem_finish_many('{a}', scope => 'many-closed', strict => false)$$, $$SELECT idem_fail_many('{a}', scope => 'many-closed', strict => false)$$,
    $$SELECT idem_extend_many('{a}', scope => 'many-closed', strict => false)$$, $$SELECT idem_once_many('{a}', scope => 'many-closed')$$,
    $$SELECT idem_once('a', scope => 'many-closed')$$, $$SELECT idem_once_undo('{a}', scope => 'many-closed')$$]) call;
RESET ROLE;
SELECT idem_revoke('regress_many_user'), idem_unconfigure('many-closed'), idem_unconfigure('many-manual');
REVOKE ALL ON SCHEMA public FROM regress_many_user;
DROP ROLE regress_many_user, regress_many_owner;

-- 100,000 keys, half of them known
BEGIN;
SELECT count(*) FROM idem_claim_many((SELECT array_agg('big-' || g) FROM generate_series(1, 100000, 2) g), scope => 'many-big');
SELECT DISTINCT outcome, count(*) FROM idem_finish_many((SELECT array_agg('big-' || g) FROM generate_series(1, 100000, 2) g), scope => 'many-big') GROUP BY 1;
COMMIT;
SELECT sum(used_bytes) AS before FROM pg_backend_memory_contexts \gset
BEGIN;
SELECT outcome, count(*), min(ordinality), max(ordinality) FROM idem_claim_many((SELECT array_agg('big-' || g) FROM generate_series(1, 100000) g), scope => 'many-big') GROUP BY 1 ORDER BY 1;
SELECT outcome, count(*) FROM idem_finish_many((SELECT array_agg('big-' || g) FROM generate_series(2, 100000, 2) g), scope => 'many-big') GROUP BY 1;
-- nothing is kept per key, not even within the transaction
SELECT sum(used_bytes) - :before < 2000000 AS bounded FROM pg_backend_memory_contexts;
COMMIT;

-- clean up
DELETE FROM transaction_log WHERE scope LIKE 'many%';
DROP SCHEMA probe CASCADE;
