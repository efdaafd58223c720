-- Failures: retried at once, later, or never.
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
SET idempotency.test_clock = '2030-01-01 00:00:00';

-- not final: in progress until its retry time, then claimed again
SELECT token FROM idem_claim('fail-1', '{"a": 1}') \gset
SELECT idem_fail('fail-1', '{"why": "down"}', 503, :token, retry_after => '30s');
SELECT outcome, token, attempt, status, response_body, response_code, retry_after, expires_at FROM idem_claim('fail-1', '{"a": 1}');
SELECT status, attempt, error, response_code, response_body, retry_after, completed_at, expires_at FROM idem_lookup('fail-1') \gx
-- it is not waited for: nobody is at it
SELECT outcome, retry_after FROM idem_claim('fail-1', '{"a": 1}', wait => '1h');
SET idempotency.test_clock = '2030-01-01 00:00:29.999999';
SELECT outcome, retry_after FROM idem_claim('fail-1', '{"a": 1}');
SET idempotency.test_clock = '2030-01-01 00:00:30';
SELECT status, retry_after FROM idem_lookup('fail-1');
SELECT outcome, token > :token AS grows, attempt, status, retry_after, created_at, checkpoints FROM idem_claim('fail-1', '{"a": 1}');
-- what runs again shows no response, but why it does
SELECT status, attempt, error, response_code FROM idem_lookup('fail-1');
SELECT status, attempt, response_code FROM idem_log WHERE request_id = 'fail-1';
-- the token before is worth nothing now
SELECT probe.sqlstate(format('SELECT idem_fail(%L, %L, 503, %s)', 'fail-1', '{"why": "down"}', :token));
SELECT probe.sqlstate(format('SELECT idem_finish(%L, token => %s)', 'fail-1', :token));
SELECT token FROM transaction_log WHERE request_id = 'fail-1' \gset
SELECT idem_finish('fail-1', '"at last"', 200, :token);
SELECT outcome, attempt, status, response_body, response_code FROM idem_claim('fail-1');
SELECT status, attempt, error FROM idem_lookup('fail-1');

-- at once
SELECT idem_fail('fail-2', token => token, retry_after => '0') FROM idem_claim('fail-2');
SELECT outcome, attempt FROM idem_claim('fail-2');
-- without an answer of the caller: the backoff of this attempt
SELECT idem_fail('fail-3', token => token) FROM idem_claim('fail-3');
SELECT status, retry_at - idem_clock() BETWEEN '0' AND '1s' AS first_backoff FROM transaction_log WHERE request_id = 'fail-3';

-- of a scope: attempt by attempt
SELECT idem_configure('fail/backoff', backoff_base => '8s', backoff_cap => '20s');
CREATE TABLE probe.backoffs (attempt int, pause interval);
DO $$
DECLARE
    c record;
BEGIN
    FOR i IN 1..200 LOOP
        SELECT * INTO c FROM idem_claim('fail-4-' || i % 50, scope => 'fail/backoff');
        ASSERT c.outcome = 'claimed', c.outcome;
        PERFORM idem_fail('fail-4-' || i % 50, scope => 'fail/backoff');
        INSERT INTO probe.backoffs SELECT attempt, retry_at - idem_clock() FROM transaction_log
         WHERE scope = 'fail/backoff' AND request_id = 'fail-4-' || i % 50;
        PERFORM set_config('idempotency.test_clock', (idem_clock() + '21s')::text, false);
    END LOOP;
END $$;
SELECT attempt, count(*), min(pause) >= '0' AS not_negative,
       max(pause) <= CASE attempt WHEN 1 THEN interval '8s' WHEN 2 THEN '16s' ELSE '20s' END AS bounded,
       count(DISTINCT pause) > 25 AS random
  FROM probe.backoffs GROUP BY 1 ORDER BY 1;
SET idempotency.test_clock = '2030-01-01 00:00:30';

-- final: the failure is the result
SELECT token FROM idem_claim('fail-5', ttl => '1h') \gset
SELECT idem_fail('fail-5', '{"why": "declined"}', 402, :token, final => true, response_headers => '{"x": "y"}', response_bytes => '\x00');
SELECT outcome, status, response_code, response_body, response_headers, response_bytes, retry_after, expires_at FROM idem_claim('fail-5') \gx
SELECT status, error, response_body, completed_at, expires_at FROM idem_lookup('fail-5');
SELECT retry_at FROM transaction_log WHERE request_id = 'fail-5';
-- final beats a retry time
SELECT idem_fail('fail-6', '1', token => token, final => true, retry_after => '1s') FROM idem_claim('fail-6');
SELECT outcome, retry_after FROM idem_claim('fail-6');

-- the bare repeat
SELECT idem_fail('fail-5', '{"why": "declined"}', 402, :token, final => true, response_headers => '{"x": "y"}', response_bytes => '\x00');
SELECT probe.sqlstate(format('SELECT idem_fail(%L, %L, 402, %s, final => true)', 'fail-5', '{"why": "other"}', :token));
SELECT probe.sqlstate(format('SELECT idem_finish(%L, %L, 402, %s)', 'fail-5', '{"why": "declined"}', :token));
CREATE TABLE probe.orders (n int);
BEGIN;
INSERT INTO probe.orders VALUES (1);
\set VERBOSITY sqlstate
SELECT idem_fail('fail-5', '{"why": "declined"}', 402, :token, final => true, response_headers => '{"x": "y"}', response_bytes => '\x00');
\set VERBOSITY default
ROLLBACK;
SELECT token FROM idem_claim('fail-7') \gset
SELECT idem_fail('fail-7', '"e"', token => :token);
SELECT idem_fail('fail-7', '"e"', token => :token);
-- a failure to be retried is not one for good
SELECT probe.sqlstate(format('SELECT idem_fail(%L, %L, token => %s, final => true)', 'fail-7', '"e"', :token));

-- the last attempt allowed: a failure that is not final is the result all the same
SELECT idem_configure('fail/max', max_attempts => 2);
SELECT idem_fail('fail-8', '"first"', token => token, scope => 'fail/max', retry_after => '0') FROM idem_claim('fail-8', scope => 'fail/max');
SELECT outcome, attempt FROM idem_claim('fail-8', scope => 'fail/max');
SELECT idem_fail('fail-8', '"second"', 500, token, scope => 'fail/max', retry_after => '1s') FROM transaction_log WHERE request_id = 'fail-8';
SELECT outcome, status, attempt, response_code, response_body, retry_after, expires_at - idem_clock() AS expires_in FROM idem_claim('fail-8', scope => 'fail/max');
SELECT status, completed_at = idem_clock() AS completed FROM idem_lookup('fail-8', 'fail/max');
SELECT count(*) AS to_review FROM idem_review WHERE scope = 'fail/max';
SELECT idem_configure('fail/one', max_attempts => 1);
SELECT idem_fail('fail-9', '"only"', token => token, scope => 'fail/one') FROM idem_claim('fail-9', scope => 'fail/one');
SELECT outcome, status, response_body FROM idem_claim('fail-9', scope => 'fail/one');
-- a bare repeat of that one
SELECT idem_fail('fail-9', '"only"', token => token, scope => 'fail/one') FROM transaction_log WHERE request_id = 'fail-9';

-- by the holder only
SELECT token FROM idem_claim('fail-10') \gset
SELECT probe.raises('SELECT idem_fail(''fail-10'', ''"secret-body"'')');
SELECT probe.sqlstate(format('SELECT idem_fail(%L, token => %s)', 'fail-10', :token - 1));
SELECT probe.sqlstate('SELECT idem_fail(''fail-11'', token => 1)');
-- in the transaction that claimed, without the token; null is not final
BEGIN;
SELECT outcome FROM idem_claim('fail-12');
SELECT idem_fail('fail-12', final => NULL, retry_after => '1 min');
COMMIT;
SELECT outcome, status, retry_after FROM idem_claim('fail-12');

-- a failed one that nobody retries expires ttl after its retry time
SELECT idem_fail('fail-13', '"e"', token => token, retry_after => '1h') FROM idem_claim('fail-13', ttl => '10 min');
SELECT expires_at FROM idem_lookup('fail-13');
SET idempotency.test_clock = '2030-01-01 01:10:29';
SELECT status FROM idem_lookup('fail-13');
SET idempotency.test_clock = '2030-01-01 01:10:30';
SELECT count(*) FROM idem_lookup('fail-13');
SELECT outcome, attempt FROM idem_claim('fail-13');

SELECT idem_unconfigure('fail/backoff'), idem_unconfigure('fail/max'), idem_unconfigure('fail/one');
DELETE FROM transaction_log WHERE request_id LIKE 'fail-%';
DROP SCHEMA probe CASCADE;
