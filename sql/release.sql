-- Release: nothing was done.
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

-- a first claim leaves nothing
SELECT token FROM idem_claim('rel-1', '{"a": 1}') \gset
SELECT idem_release('rel-1', :token);
SELECT count(*) FROM idem_lookup('rel-1');
SELECT count(*) FROM transaction_log WHERE request_id = 'rel-1';
SELECT outcome, attempt, token > :token AS grows FROM idem_claim('rel-1', '{"a": 2}');
-- its token is worth nothing
SELECT probe.sqlstate(format('SELECT idem_release(%L, %s)', 'rel-1', :token));
SELECT probe.sqlstate(format('SELECT idem_finish(%L, token => %s)', 'rel-1', :token));

-- in the transaction that claimed, without it
BEGIN;
SELECT outcome FROM idem_claim('rel-2');
SELECT idem_release('rel-2');
SELECT count(*) FROM idem_lookup('rel-2');
SELECT outcome, attempt FROM idem_claim('rel-2');
SELECT idem_finish('rel-2', '2');
COMMIT;
SELECT outcome, attempt, response_body FROM idem_claim('rel-2');

-- a claim after a failure: the failure is back, and its backoff; the attempt is not counted
SELECT idem_fail('rel-3', '"e"', 500, token, retry_after => '10s') FROM idem_claim('rel-3', '{"a": 1}', ttl => '1h', lease => '1 min');
CREATE TABLE probe.before AS SELECT * FROM transaction_log WHERE request_id = 'rel-3';
SET idempotency.test_clock = '2030-01-01 00:00:10';
SELECT token AS second FROM idem_claim('rel-3', '{"a": 1}', ttl => '1s', lease => '1s') \gset
SELECT idem_release('rel-3', :second);
SELECT l.status, l.attempt, l.error, l.response_code, l.retry_at, l.locked_until, l.token > :second AS nobodys_token
  FROM transaction_log l WHERE request_id = 'rel-3';
-- the key is as before this claim
SELECT l.ttl = b.ttl AS ttl, l.lease = b.lease AS lease, l.expires_at = b.expires_at AS expires_at,
       l.retry_at = b.retry_at AS retry_at, l.created_at = b.created_at AS created_at, l.error = b.error AS error,
       l.fingerprint = b.fingerprint AS fingerprint, l.request_body = b.request_body AS body
  FROM transaction_log l, probe.before b WHERE l.request_id = 'rel-3';
SELECT outcome, attempt FROM idem_claim('rel-3', '{"a": 1}');
-- neither may the one who gave back record anything, nor the one before him
SELECT probe.sqlstate(format('SELECT idem_finish(%L, token => %s)', 'rel-3', :second));
SELECT probe.sqlstate(format('SELECT idem_fail(%L, %L, 500, token => %s)', 'rel-3', '"e"', (SELECT token FROM probe.before)));

-- a claim after a lapsed lease: lapsed again
SELECT token AS first FROM idem_claim('rel-4', '{"a": 1}', lease => '1s') \gset
SET idempotency.test_clock = '2030-01-01 00:00:20';
SELECT attempt, token AS second FROM idem_claim('rel-4', '{"a": 1}', lease => '1h') \gset
SELECT idem_release('rel-4', :second);
SELECT status, locked_until, attempt FROM transaction_log WHERE request_id = 'rel-4';
SELECT outcome, attempt FROM idem_claim('rel-4', '{"a": 1}');
SELECT probe.sqlstate(format('SELECT idem_finish(%L, token => %s)', 'rel-4', :first));

-- a claim that used an expired key anew
SELECT idem_finish('rel-5', '"old"', token => token) FROM idem_claim('rel-5', ttl => '1 min');
SET idempotency.test_clock = '2030-01-01 00:10:00';
SELECT token FROM idem_claim('rel-5') \gset
SELECT idem_release('rel-5', :token);
SELECT count(*) FROM idem_lookup('rel-5');

-- attempts that were given back do not use up what is allowed
SELECT idem_configure('rel/max', max_attempts => 2);
SELECT idem_fail('rel-6', token => token, scope => 'rel/max', retry_after => '0') FROM idem_claim('rel-6', scope => 'rel/max');
DO $$
BEGIN
    FOR i IN 1..5 LOOP
        PERFORM FROM idem_claim('rel-6', scope => 'rel/max') WHERE outcome = 'claimed' AND attempt = 2;
        ASSERT FOUND;
        PERFORM idem_release('rel-6', scope => 'rel/max');
    END LOOP;
END $$;
SELECT outcome, attempt FROM idem_claim('rel-6', scope => 'rel/max');
SELECT idem_fail('rel-6', '"end"', token => token, scope => 'rel/max') FROM transaction_log WHERE request_id = 'rel-6';
SELECT outcome, status, response_body FROM idem_claim('rel-6', scope => 'rel/max');

-- not the holder's, or no claim any more
SELECT token FROM idem_claim('rel-7') \gset
SELECT probe.raises('SELECT idem_release(''rel-7'')');
SELECT probe.sqlstate(format('SELECT idem_release(%L, %s)', 'rel-7', :token + 1));
SELECT status FROM idem_lookup('rel-7');
SELECT idem_finish('rel-7', '"secret-body"', token => :token);
SELECT r AS error FROM probe.raises(format('SELECT idem_release(%L, %s)', 'rel-7', :token)) r;
SELECT outcome, response_body FROM idem_claim('rel-7');
SELECT r AS error FROM probe.raises('SELECT idem_release(''rel-8'', 1)') r;
SELECT probe.sqlstate('SELECT idem_release(''rel-8'')');

-- a lapsed lease that nobody took over is still the holder's
SELECT token FROM idem_claim('rel-9', lease => '1s') \gset
SET idempotency.test_clock = '2030-01-01 00:20:00';
SELECT idem_release('rel-9', :token);
SELECT count(*) FROM idem_lookup('rel-9');

-- released in a savepoint that is rolled back: claimed as before
BEGIN;
SELECT outcome FROM idem_claim('rel-10');
SAVEPOINT s;
SELECT idem_release('rel-10');
ROLLBACK TO s;
SELECT outcome, attempt FROM idem_claim('rel-10');
SELECT idem_finish('rel-10');
COMMIT;

SELECT idem_unconfigure('rel/max');
DELETE FROM transaction_log WHERE request_id LIKE 'rel-%';
DROP SCHEMA probe CASCADE;
