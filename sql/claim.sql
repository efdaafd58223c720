-- Claiming: new keys, own claims, and every way of calling.
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

-- a new key
SELECT outcome, token > 0 AS has_token, token < 2::bigint ^ 53 AS below_2_53, attempt, status,
       response_code, response_headers, response_body, response_bytes, checkpoints,
       retry_after, differs, created_at BETWEEN now() - interval '1 min' AND clock_timestamp() AS created_now,
       expires_at IS NULL AS no_expiry
  FROM idem_claim('claim-1', '{"a": 1}') \gx
-- committed, with a live lease: in progress, without a token
SELECT outcome, token, attempt, status, response_code, response_body, checkpoints,
       retry_after > '0' AND retry_after <= '60s' AS rest_of_lease, differs
  FROM idem_claim('claim-1', '{"a": 1}') \gx

-- what is stored
SELECT scope, request_id, status, request_body, response_body, response_code, response_headers, response_bytes,
       attempt, token > 0 AS has_token, locked_until - created_at AS lease, retry_at, completed_at,
       claimed_by = current_user AS by_me, ttl, error, fingerprint = idem_fingerprint('{"a": 1}') AS fingerprint
  FROM transaction_log WHERE request_id = 'claim-1' \gx

-- the token follows the real clock in microseconds
SELECT token BETWEEN extract(epoch FROM clock_timestamp() - interval '1 min') * 1000000
                 AND extract(epoch FROM clock_timestamp()) * 1000000 AS near_clock
  FROM transaction_log WHERE request_id = 'claim-1';

-- a refused duplicate changes nothing
SELECT ctid AS version, xmin AS writer FROM transaction_log WHERE request_id = 'claim-1' \gset
SELECT outcome FROM idem_claim('claim-1', '{"a": 1}', ttl => '1s', lease => '1s');
SELECT outcome FROM idem_claim('claim-1', '{"a": 2}');
SELECT ctid = :'version' AND xmin = :'writer' AS untouched FROM transaction_log WHERE request_id = 'claim-1';

-- scopes are namespaces; '' is the default one
SELECT outcome FROM idem_claim('claim-2', scope => 'a');
SELECT outcome FROM idem_claim('claim-2', scope => 'b');
SELECT outcome FROM idem_claim('claim-2', scope => '');
SELECT outcome FROM idem_claim('claim-2');
-- keys are compared byte by byte
SELECT outcome FROM idem_claim('claim-key');
SELECT outcome FROM idem_claim('Claim-Key');
SELECT outcome FROM idem_claim('claim-key ');
-- scope and key are not just strung together
SELECT outcome FROM idem_claim('b', scope => 'claim/a');
SELECT outcome FROM idem_claim('a/b', scope => 'claim');

-- one transaction: claim, write, finish, commit; no token
BEGIN;
SELECT outcome FROM idem_claim('claim-3', '{"n": 1}');
-- our own claim, not ended: at once, with its token and attempt, whatever wait
SELECT c.outcome, c.token = l.token AS own_token, c.attempt, c.status, c.retry_after
  FROM idem_claim('claim-3', '{"n": 1}', wait => '1h') c,
       (SELECT token FROM transaction_log WHERE request_id = 'claim-3') l;
SELECT outcome, token IS NOT NULL AS own_token FROM idem_claim('claim-3', '{"n": 2}');
SELECT idem_finish('claim-3', '{"ok": true}', 201);
-- ended in this transaction: as if committed
SELECT outcome, status, response_code, response_body FROM idem_claim('claim-3', '{"n": 1}');
SELECT outcome, differs FROM idem_claim('claim-3', '{"n": 2}');
COMMIT;
SELECT outcome, status, response_code, response_body FROM idem_claim('claim-3', '{"n": 1}');

-- a failure of this transaction's own claim is retried in it
BEGIN;
SELECT token AS first_token FROM idem_claim('claim-4') \gset
SELECT idem_fail('claim-4', '"once"', retry_after => '0');
SELECT outcome, attempt, token > :first_token AS grows FROM idem_claim('claim-4');
SELECT idem_finish('claim-4', '"done"');
COMMIT;
SELECT outcome, attempt, response_body FROM idem_claim('claim-4');

-- rolled back: as if it had never been
BEGIN;
SELECT outcome FROM idem_claim('claim-5');
ROLLBACK;
SELECT count(*) FROM idem_lookup('claim-5');
SELECT outcome, attempt FROM idem_claim('claim-5');

-- two transactions, with the token
SELECT token FROM idem_claim('claim-6') \gset
SELECT idem_finish('claim-6', '[1, 2]', 200, :token);
SELECT outcome, response_body FROM idem_claim('claim-6');

-- the same in the other isolation levels
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM idem_claim('claim-7');
SELECT outcome FROM idem_claim('claim-7');
SELECT idem_finish('claim-7', '7');
SELECT outcome, response_body FROM idem_claim('claim-7');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome, response_body FROM idem_claim('claim-7');
SELECT outcome FROM idem_claim('claim-8');
SELECT idem_finish('claim-8', '8');
SELECT outcome, response_body FROM idem_claim('claim-8');
COMMIT;

-- not compared where either side has no fingerprint
SELECT outcome FROM idem_claim('claim-9');
SELECT outcome FROM idem_claim('claim-9', '{"any": "body"}');
SELECT outcome FROM idem_claim('claim-1');

-- (f(...)).* calls it once
SELECT (idem_claim('claim-10', lease => '1h')).outcome;
BEGIN;
SELECT (c).outcome, (c).attempt FROM (SELECT idem_claim('claim-11') AS c) s;
ROLLBACK;
BEGIN;
CREATE TEMP TABLE answer ON COMMIT DROP AS SELECT (idem_claim('claim-12')).*;
SELECT outcome, attempt, token IS NOT NULL AS has_token FROM answer;
COMMIT;

-- LIMIT ends it early; the next call is a call of its own
SELECT outcome FROM idem_claim('claim-13') LIMIT 1;
SELECT (idem_claim('claim-13')).outcome LIMIT 1;
SELECT outcome FROM idem_claim('claim-13b') LIMIT 0;
SELECT count(*) FROM idem_lookup('claim-13b');
SELECT exists(SELECT FROM idem_claim('claim-13c'));
SELECT status FROM idem_lookup('claim-13c');

-- LATERAL: one answer for each key, repeats included
SELECT k.key, c.outcome, c.attempt
  FROM (VALUES (1, 'claim-14a'), (2, 'claim-14b'), (3, 'claim-14a'), (4, 'claim-3')) k (n, key)
 CROSS JOIN LATERAL idem_claim(k.key) c
 ORDER BY k.n;
SELECT c.outcome, count(*)
  FROM generate_series(1, 500) n
 CROSS JOIN LATERAL idem_claim('claim-15-' || n % 400) c
 GROUP BY 1 ORDER BY 1;
-- in lockstep with another set
SELECT generate_series(1, 3) AS n, (idem_claim('claim-16')).outcome;
SELECT n, (idem_claim('claim-17-' || n)).outcome FROM generate_series(1, 3) n ORDER BY n;
-- nowhere does a set go that takes none
\set VERBOSITY sqlstate
SELECT CASE WHEN true THEN (idem_claim('claim-18')).outcome END;
SELECT 1 WHERE (idem_claim('claim-18')).outcome = 'claimed';
\set VERBOSITY default
SELECT count(*) FROM idem_lookup('claim-18');

-- CTE, and claim and finish in the same statement
WITH c AS MATERIALIZED (SELECT * FROM idem_claim('claim-19'))
SELECT outcome, attempt FROM c;
WITH c AS MATERIALIZED (SELECT * FROM idem_claim('claim-20', '{"q": 1}'))
SELECT c.outcome, CASE WHEN c.outcome = 'claimed' THEN idem_finish('claim-20', '"in one"') END AS recorded FROM c;
WITH c AS MATERIALIZED (SELECT * FROM idem_claim('claim-20', '{"q": 1}'))
SELECT c.outcome, c.response_body,
       CASE WHEN c.outcome = 'claimed' THEN idem_finish('claim-20', '"again"') END AS recorded FROM c;
-- write only where the claim was won
CREATE TABLE probe.orders (key text);
WITH c AS MATERIALIZED (SELECT outcome FROM idem_claim('claim-21')),
     w AS (INSERT INTO probe.orders SELECT 'claim-21' FROM c WHERE outcome = 'claimed' RETURNING key)
SELECT idem_finish(key, to_jsonb(key)) FROM w;
WITH c AS MATERIALIZED (SELECT outcome FROM idem_claim('claim-21')),
     w AS (INSERT INTO probe.orders SELECT 'claim-21' FROM c WHERE outcome = 'claimed' RETURNING key)
SELECT idem_finish(key, to_jsonb(key)) FROM w;
SELECT count(*) FROM probe.orders;
-- INSERT ... SELECT
INSERT INTO probe.orders SELECT outcome FROM idem_claim('claim-22');
SELECT key FROM probe.orders ORDER BY 1;

-- cursors
BEGIN;
DECLARE c CURSOR FOR SELECT outcome FROM idem_claim('claim-23');
SELECT count(*) AS not_yet FROM idem_lookup('claim-23');
FETCH c;
FETCH c;
CLOSE c;
DECLARE d CURSOR FOR SELECT (idem_claim('claim-24')).outcome;
FETCH d;
FETCH d;
CLOSE d;
DECLARE e SCROLL CURSOR FOR SELECT outcome FROM idem_claim('claim-25');
FETCH e;
FETCH PRIOR e;
FETCH FIRST e;
MOVE ABSOLUTE 0 IN e;
FETCH NEXT e;
DECLARE h CURSOR WITH HOLD FOR SELECT outcome FROM idem_claim('claim-26');
COMMIT;
FETCH h;
CLOSE h;
SELECT status FROM idem_lookup('claim-26');

-- a prepared statement, beyond its change to a generic plan
PREPARE claiming (text) AS SELECT outcome FROM idem_claim($1);
EXECUTE claiming ('claim-27-1');
EXECUTE claiming ('claim-27-2');
EXECUTE claiming ('claim-27-3');
EXECUTE claiming ('claim-27-4');
EXECUTE claiming ('claim-27-5');
EXECUTE claiming ('claim-27-6');
EXECUTE claiming ('claim-27-7');
EXECUTE claiming ('claim-27-8');
EXECUTE claiming ('claim-27-9');
EXECUTE claiming ('claim-27-9');
SET plan_cache_mode = force_generic_plan;
EXECUTE claiming ('claim-27-10');
EXECUTE claiming ('claim-27-10');
RESET plan_cache_mode;
DEALLOCATE claiming;

-- plpgsql
CREATE FUNCTION probe.place(key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c record;
BEGIN
    SELECT * INTO STRICT c FROM idem_claim(key, '{"by": "plpgsql"}');
    IF c.outcome = 'claimed' THEN
        PERFORM idem_finish(key, to_jsonb('placed ' || key));
        RETURN 'placed now';
    END IF;
    RETURN c.outcome || ' ' || c.response_body;
END $$;
SELECT probe.place('claim-28') FROM generate_series(1, 3);
SELECT probe.place('claim-28');
DO $$
DECLARE
    c record;
    n int := 0;
BEGIN
    FOR c IN SELECT * FROM idem_claim('claim-29') LOOP
        n := n + 1;
    END LOOP;
    RAISE WARNING 'rows: %', n;
    c := idem_claim('claim-30');
    RAISE WARNING 'assigned: %', c.outcome;
END $$;
-- a transaction for each key
CREATE PROCEDURE probe.place_all() LANGUAGE plpgsql AS $$
DECLARE
    c record;
BEGIN
    FOR i IN 1..3 LOOP
        SELECT * INTO c FROM idem_claim('claim-31-' || i);
        COMMIT;
        PERFORM idem_finish('claim-31-' || i, to_jsonb(i), token => c.token);
        IF i = 2 THEN ROLLBACK; ELSE COMMIT; END IF;
    END LOOP;
END $$;
CALL probe.place_all();
SELECT n, (SELECT status FROM idem_lookup('claim-31-' || n)) FROM generate_series(1, 3) n;

-- one call, joined to two rows
SET enable_material = off;
SELECT n, c.outcome FROM generate_series(1, 2) n LEFT JOIN LATERAL idem_claim('claim-32') c ON n > 0 ORDER BY n;
RESET enable_material;

-- tokens grow over the whole history of a key
CREATE TABLE probe.tokens (n int GENERATED ALWAYS AS IDENTITY, token bigint);
INSERT INTO probe.tokens (token) SELECT token FROM idem_claim('claim-33');
SELECT idem_release('claim-33', max(token)) FROM probe.tokens;
INSERT INTO probe.tokens (token) SELECT token FROM idem_claim('claim-33');
SELECT idem_fail('claim-33', token => max(token), retry_after => '0') FROM probe.tokens;
INSERT INTO probe.tokens (token) SELECT token FROM idem_claim('claim-33');
DELETE FROM transaction_log WHERE request_id = 'claim-33';
INSERT INTO probe.tokens (token) SELECT token FROM idem_claim('claim-33');
SELECT count(*), bool_and(grows) FROM (SELECT token > lag(token, 1, 0::bigint) OVER (ORDER BY n) AS grows FROM probe.tokens) s;
-- also where the stored token is ahead of the clock
UPDATE transaction_log SET token = 2::bigint ^ 52, status = 'failed', retry_at = '-infinity', locked_until = NULL
 WHERE request_id = 'claim-33';
SELECT token - (2::bigint ^ 52)::bigint AS beyond FROM idem_claim('claim-33');

-- no lock for each key
BEGIN;
SELECT outcome FROM idem_claim('claim-34');
SELECT count(*) AS locks FROM pg_locks WHERE pid = pg_backend_pid() \gset
SELECT c.outcome, count(*) FROM generate_series(1, 100) n CROSS JOIN LATERAL idem_claim('claim-35-' || n) c GROUP BY 1;
SELECT count(*) - :locks AS more_locks FROM pg_locks WHERE pid = pg_backend_pid();
ROLLBACK;
-- a plan is no call
EXPLAIN (COSTS off) SELECT * FROM idem_claim('claim-36');
SELECT count(*) FROM idem_lookup('claim-36');
-- the clock of a life stands still: created_at is that of its first claim
SELECT idem_fail('claim-37', token => token, retry_after => '0') FROM idem_claim('claim-37');
SELECT c.created_at = l.created_at AS same FROM idem_lookup('claim-37') l, idem_claim('claim-37') c;
-- by name, in any order
SELECT outcome FROM idem_claim(scope => 'claim', wait => '0', request_id => 'claim-38', fingerprint => '\x01', lease => '1h', ttl => '1h', request_body => '1');
SELECT outcome FROM idem_claim('claim-38', '1', 'claim', '1h', '1h', '0', '\x01');
-- an argument that is left out may be given as NULL
SELECT outcome FROM idem_claim('claim-39', NULL, ttl => NULL, lease => NULL, wait => NULL, fingerprint => NULL);

DEALLOCATE ALL;
DELETE FROM transaction_log WHERE request_id ILIKE 'claim-%' OR scope LIKE 'claim%';
DROP SCHEMA probe CASCADE;
