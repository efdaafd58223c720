-- Expiry: by the clock at the call, purged or not.
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

-- the call's ttl, else the scope's, else the setting
SELECT idem_configure('exp/week', ttl => '7 days');
SELECT idem_finish('exp-1', token => token) FROM idem_claim('exp-1', ttl => '1h');
SELECT idem_finish('exp-1', token => token, scope => 'exp/week') FROM idem_claim('exp-1', scope => 'exp/week');
SELECT idem_finish('exp-1', token => token, scope => 'exp/week/x') FROM idem_claim('exp-1', scope => 'exp/week/x', ttl => '2h');
SET idempotency.default_ttl = '2d';
SELECT idem_finish('exp-1', token => token, scope => 'exp/none') FROM idem_claim('exp-1', scope => 'exp/none');
RESET idempotency.default_ttl;
SELECT scope, expires_at FROM transaction_log WHERE request_id = 'exp-1' ORDER BY scope;
SELECT s.scope, r.outcome, r.expires_at
  FROM (VALUES (''), ('exp/week'), ('exp/week/x'), ('exp/none')) s (scope) CROSS JOIN LATERAL idem_claim('exp-1', scope => s.scope) r;

-- replayed to the last moment; absent after it, though the row is there
SELECT token AS old FROM transaction_log WHERE request_id = 'exp-1' AND scope = '' \gset
SET idempotency.test_clock = '2030-01-01 00:59:59.999999';
SELECT outcome FROM idem_claim('exp-1');
SELECT status FROM idem_lookup('exp-1');
SET idempotency.test_clock = '2030-01-01 01:00:00';
SELECT count(*) FROM idem_lookup('exp-1');
SELECT count(*) AS not_purged FROM transaction_log WHERE request_id = 'exp-1' AND scope = '';
SELECT r AS error FROM probe.raises(format('SELECT idem_finish(%L, token => %s)', 'exp-1', :old)) r;
SELECT probe.sqlstate(format('SELECT idem_fail(%L, token => %s)', 'exp-1', :old));
SELECT probe.sqlstate(format('SELECT idem_release(%L, %s)', 'exp-1', :old));
SELECT probe.sqlstate(format('SELECT idem_extend(%L, token => %s)', 'exp-1', :old));
SELECT probe.sqlstate('SELECT idem_resolve(''exp-1'', ''completed'', force => true)');
-- a new life: nothing of the old one but the order of tokens
SELECT outcome, attempt, token > :old AS grows, created_at, checkpoints FROM idem_claim('exp-1', '{"another": "body"}', ttl => '1 min', lease => '1 min') \gx
SELECT status, attempt, request_body, response_body, response_code, error, created_at, completed_at, ttl FROM transaction_log WHERE request_id = 'exp-1' AND scope = '' \gx
SELECT probe.sqlstate(format('SELECT idem_finish(%L, token => %s)', 'exp-1', :old));

-- a failure for good expires like any result
SELECT idem_fail('exp-2', '"e"', 1, token, final => true) FROM idem_claim('exp-2', ttl => '1h');
SET idempotency.test_clock = '2030-01-01 02:00:00';
SELECT outcome, attempt FROM idem_claim('exp-2');
SELECT status, error, response_code FROM idem_lookup('exp-2');

-- in flight it never expires: a lease may be longer than ttl
SELECT token FROM idem_claim('exp-3', ttl => '1s', lease => '1h') \gset
SET idempotency.test_clock = '2030-01-01 02:59:59';
SELECT outcome, expires_at FROM idem_claim('exp-3');
SELECT status, expires_at FROM idem_lookup('exp-3');
-- lapsed: expires ttl after its lease ended
SET idempotency.test_clock = '2030-01-01 03:00:00.5';
SELECT status, expires_at FROM idem_lookup('exp-3');
SET idempotency.test_clock = '2030-01-01 03:00:01';
SELECT count(*) FROM idem_lookup('exp-3');
SELECT probe.sqlstate(format('SELECT idem_finish(%L, token => %s)', 'exp-3', :token));
SELECT outcome, attempt FROM idem_claim('exp-3');
-- an extension moves it on
SELECT token FROM idem_claim('exp-4', ttl => '10 min', lease => '1 min') \gset
SET idempotency.test_clock = '2030-01-01 03:05:00';
SELECT idem_extend('exp-4', '1h', :token);
SET idempotency.test_clock = '2030-01-01 04:14:59';
SELECT status FROM idem_lookup('exp-4');
SET idempotency.test_clock = '2030-01-01 04:15:00';
SELECT count(*) FROM idem_lookup('exp-4');
-- so does a takeover, with the ttl of its own call
SELECT outcome FROM idem_claim('exp-5', ttl => '10 min', lease => '1 min');
SET idempotency.test_clock = '2030-01-01 04:20:00';
SELECT outcome, attempt FROM idem_claim('exp-5', ttl => '1h', lease => '1 min');
SET idempotency.test_clock = '2030-01-01 05:20:59';
SELECT status FROM idem_lookup('exp-5');
SET idempotency.test_clock = '2030-01-01 05:21:00';
SELECT count(*) FROM idem_lookup('exp-5');

-- by the clock at the call, not by the start of the transaction
RESET idempotency.test_clock;
BEGIN;
SELECT idem_finish('exp-6', token => token) FROM idem_claim('exp-6', ttl => '1 ms');
SELECT pg_sleep(0.002);
SELECT count(*) FROM idem_lookup('exp-6');
SELECT outcome, attempt FROM idem_claim('exp-6');
COMMIT;

-- calendar units and endless ones
SET idempotency.test_clock = '2031-01-31 00:00:00';
SELECT idem_finish('exp-7', token => token) FROM idem_claim('exp-7', ttl => '1 month');
SELECT expires_at FROM idem_lookup('exp-7');
SELECT idem_finish('exp-8', token => token) FROM idem_claim('exp-8', ttl => '280000 years');
SELECT outcome FROM idem_claim('exp-8');

-- the test clock: any time, also that from which the server counts; for superusers
SET idempotency.test_clock = '2000-01-01 00:00:00+00';
SELECT outcome, created_at FROM idem_claim('exp-9');
SET idempotency.test_clock = '1999-12-31 23:59:59+00';
SELECT outcome, created_at FROM idem_claim('exp-10');
-- tokens follow the real clock all the same
SELECT token > 1700000000000000 AS real FROM transaction_log WHERE request_id = 'exp-9';
CREATE ROLE regress_idem_exp;
SET ROLE regress_idem_exp;
\set VERBOSITY sqlstate
SET idempotency.test_clock = '2030-01-01';
RESET idempotency.test_clock;
\set VERBOSITY default
RESET ROLE;
RESET idempotency.test_clock;
SHOW idempotency.test_clock;

DROP ROLE regress_idem_exp;
SELECT idem_unconfigure('exp/week');
DELETE FROM transaction_log WHERE request_id LIKE 'exp-%';
DROP SCHEMA probe CASCADE;
