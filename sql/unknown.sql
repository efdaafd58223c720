-- Requests of unknown outcome: never run again before a person says so.
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
SELECT idem_configure('unk/manual', on_lease_expiry => 'manual');
SELECT idem_configure('unk/max', max_attempts => 2, backoff_base => '1s', backoff_cap => '1s');

-- a lapsed claim of a manual scope is unknown, and in the view at once
SELECT token FROM idem_claim('unk-1', '{"a": 1}', scope => 'unk/manual', lease => '1 min', ttl => '1h') \gset
SELECT count(*) FROM idem_review WHERE request_id = 'unk-1';
SELECT outcome, retry_after FROM idem_claim('unk-1', '{"a": 1}', scope => 'unk/manual');
SET idempotency.test_clock = '2030-01-01 00:01:00';
SELECT * FROM idem_claim('unk-1', '{"a": 1}', scope => 'unk/manual') \gx
SELECT outcome FROM idem_claim('unk-1', '{"a": 1}', scope => 'unk/manual', wait => '1h');
SELECT scope, request_id, kind, attempt, claimed_by = current_user AS by_me, since, settle FROM idem_review WHERE request_id LIKE 'unk-%';
SELECT status, attempt, retry_after, expires_at FROM idem_lookup('unk-1', 'unk/manual');
-- a claim writes nothing for that
BEGIN;
SELECT outcome FROM idem_claim('unk-1', '{"a": 1}', scope => 'unk/manual');
SELECT pg_current_xact_id_if_assigned() IS NULL AS wrote_nothing;
COMMIT;
SELECT status FROM transaction_log WHERE request_id = 'unk-1';
-- it never expires
SET idempotency.test_clock = '2040-01-01 00:00:00';
SELECT outcome FROM idem_claim('unk-1', '{"a": 1}', scope => 'unk/manual');
SELECT kind FROM idem_review WHERE request_id = 'unk-1';
-- the holder may still say how it ended: that settles it
SELECT idem_finish('unk-1', '"done"', 200, :token, 'unk/manual');
SELECT count(*) FROM idem_review WHERE request_id = 'unk-1';
SELECT outcome, status, response_body, expires_at FROM idem_claim('unk-1', '{"a": 1}', scope => 'unk/manual');
SELECT token FROM idem_claim('unk-2', scope => 'unk/manual', lease => '1 min') \gset
SET idempotency.test_clock = '2040-01-01 01:00:00';
SELECT outcome FROM idem_claim('unk-2', scope => 'unk/manual');
SELECT idem_fail('unk-2', '"no"', token => :token, scope => 'unk/manual', final => true);
SELECT outcome, status, response_body FROM idem_claim('unk-2', scope => 'unk/manual');

-- inside a manual scope a failure is retried as anywhere
SELECT idem_fail('unk-3', token => token, scope => 'unk/manual', retry_after => '0') FROM idem_claim('unk-3', scope => 'unk/manual');
SELECT outcome, attempt FROM idem_claim('unk-3', scope => 'unk/manual', lease => '1 min');
-- and a transaction that rolls back leaves nothing to decide
BEGIN;
SELECT outcome FROM idem_claim('unk-4', scope => 'unk/manual', lease => '1 ms');
ROLLBACK;
SELECT count(*) FROM idem_review WHERE request_id = 'unk-4';
-- nor does one that takes longer than its lease, as long as it ends
SELECT count(*) FROM idem_lookup('unk-5', 'unk/manual');
BEGIN;
SELECT outcome FROM idem_claim('unk-5', scope => 'unk/manual', lease => '1 min');
SET LOCAL idempotency.test_clock = '2040-01-01 02:00:00';
SELECT outcome FROM idem_claim('unk-5', scope => 'unk/manual');
SELECT idem_finish('unk-5', '5', scope => 'unk/manual');
COMMIT;
SELECT outcome, response_body FROM idem_claim('unk-5', scope => 'unk/manual');

-- attempts used up: exhausted
SELECT outcome, attempt FROM idem_claim('unk-6', scope => 'unk/max', lease => '1 min');
SET idempotency.test_clock = '2040-01-01 03:00:00';
SELECT count(*) FROM idem_review WHERE request_id = 'unk-6';
SELECT outcome, attempt FROM idem_claim('unk-6', scope => 'unk/max', lease => '1 min');
SET idempotency.test_clock = '2040-01-01 04:00:00';
SELECT outcome, attempt FROM idem_claim('unk-6', scope => 'unk/max', lease => '1 min');
SELECT kind, attempt, since, settle FROM idem_review WHERE request_id = 'unk-6';
SET idempotency.test_clock = '2041-01-01 04:00:00';
SELECT outcome, attempt FROM idem_claim('unk-6', scope => 'unk/max');

-- verdicts: completed
SELECT token AS dead FROM transaction_log WHERE request_id = 'unk-6' \gset
SELECT idem_resolve('unk-6', 'completed', '{"by": "hand"}', 200, 'unk/max');
SELECT outcome, status, response_code, response_body, attempt, expires_at FROM idem_claim('unk-6', scope => 'unk/max');
SELECT count(*) FROM idem_review WHERE request_id = 'unk-6';
SELECT probe.sqlstate(format('SELECT idem_finish(%L, %L, 200, %s, %L)', 'unk-6', '{"by": "hand"}', :dead, 'unk/max')) AS dead_token;
-- again: settled already; another verdict comes too late
SELECT idem_resolve('unk-6', 'completed', '{"by": "hand"}', 200, 'unk/max');
SELECT r AS error FROM probe.raises('SELECT idem_resolve(''unk-6'', ''completed'', ''"secret-body"'', scope => ''unk/max'')') r;
SELECT probe.sqlstate('SELECT idem_resolve(''unk-6'', ''failed'', scope => ''unk/max'')');
SELECT probe.sqlstate('SELECT idem_resolve(''unk-6'', ''retry'', scope => ''unk/max'')');
SELECT probe.sqlstate('SELECT idem_resolve(''unk-6'', ''retry'', scope => ''unk/max'', force => true)');

-- failed: for good
SELECT outcome FROM idem_claim('unk-7', scope => 'unk/manual', lease => '1 min');
SET idempotency.test_clock = '2041-01-01 05:00:00';
SELECT idem_resolve('unk-7', 'failed', '{"why": "was not there"}', 404, 'unk/manual');
SELECT outcome, status, response_code, response_body FROM idem_claim('unk-7', scope => 'unk/manual');
SELECT idem_resolve('unk-7', 'failed', '{"why": "was not there"}', 404, 'unk/manual');

-- retry: one more attempt, and only one
SELECT token AS dead FROM idem_claim('unk-8', scope => 'unk/manual', lease => '1 min') \gset
SET idempotency.test_clock = '2041-01-01 06:00:00';
SELECT idem_resolve('unk-8', 'retry', scope => 'unk/manual');
SELECT count(*) FROM idem_review WHERE request_id = 'unk-8';
SELECT idem_resolve('unk-8', 'retry', scope => 'unk/manual') AS again;
SELECT probe.sqlstate(format('SELECT idem_finish(%L, token => %s, scope => %L)', 'unk-8', :dead, 'unk/manual')) AS dead_token;
SELECT outcome, attempt, token > :dead AS grows FROM idem_claim('unk-8', scope => 'unk/manual', lease => '1 min');
SET idempotency.test_clock = '2041-01-01 07:00:00';
SELECT outcome FROM idem_claim('unk-8', scope => 'unk/manual');
SELECT kind, attempt FROM idem_review WHERE request_id = 'unk-8';
-- beyond what max_attempts allows
DO $$
BEGIN
    FOR i IN 1..2 LOOP
        PERFORM idem_claim('unk-9', scope => 'unk/max', lease => '1 min');
        PERFORM set_config('idempotency.test_clock', (idem_clock() + '2 min')::text, false);
        COMMIT;
    END LOOP;
END $$;
SELECT outcome, attempt FROM idem_claim('unk-9', scope => 'unk/max');
SELECT idem_resolve('unk-9', 'retry', scope => 'unk/max');
SELECT outcome, attempt FROM idem_claim('unk-9', scope => 'unk/max', lease => '1 min');
SELECT idem_fail('unk-9', '"still"', token => token, scope => 'unk/max') FROM transaction_log WHERE request_id = 'unk-9';
SELECT outcome, status, attempt, response_body FROM idem_claim('unk-9', scope => 'unk/max');

-- what is not unknown takes its course; force ends it, and its token is dead
SELECT token FROM idem_claim('unk-10', scope => 'unk/manual', lease => '1h') \gset
SELECT r AS error FROM probe.raises('SELECT idem_resolve(''unk-10'', ''completed'', ''"secret-body"'', scope => ''unk/manual'')') r;
SELECT outcome FROM idem_claim('unk-10', scope => 'unk/manual');
SELECT idem_resolve('unk-10', 'completed', '10', scope => 'unk/manual', force => true);
SELECT probe.sqlstate(format('SELECT idem_finish(%L, %L, token => %s, scope => %L)', 'unk-10', '10', :token, 'unk/manual')) AS dead_token;
SELECT probe.sqlstate(format('SELECT idem_extend(%L, token => %s, scope => %L)', 'unk-10', :token, 'unk/manual')) AS dead_token;
SELECT outcome, response_body FROM idem_claim('unk-10', scope => 'unk/manual');
SELECT token FROM idem_claim('unk-11', lease => '1 min') \gset
SET idempotency.test_clock = '2041-01-01 08:00:00';
SELECT probe.sqlstate('SELECT idem_resolve(''unk-11'', ''failed'')') AS lapsed;
SELECT idem_resolve('unk-11', 'failed', '"gave up"', force => true);
SELECT probe.sqlstate(format('SELECT idem_finish(%L, token => %s)', 'unk-11', :token)) AS dead_token;
SELECT outcome, status, response_body FROM idem_claim('unk-11');
SELECT token FROM idem_claim('unk-12', lease => '1h') \gset
SELECT idem_resolve('unk-12', 'retry', force => true);
SELECT probe.sqlstate(format('SELECT idem_finish(%L, token => %s)', 'unk-12', :token)) AS dead_token;
SELECT outcome, attempt, token > :token AS grows FROM idem_claim('unk-12');
-- a finished one is not opened again, not even by force
SELECT idem_finish('unk-13', '13', token => token) FROM idem_claim('unk-13');
SELECT probe.sqlstate('SELECT idem_resolve(''unk-13'', ''failed'', force => true)');
SELECT probe.sqlstate('SELECT idem_resolve(''unk-13'', ''completed'', ''14'', force => true)');
SELECT idem_resolve('unk-13', 'completed', '13', force => true);
SELECT outcome, response_body FROM idem_claim('unk-13');
-- nothing there
SELECT r AS error FROM probe.raises('SELECT idem_resolve(''unk-14'', ''completed'')') r;
SELECT probe.sqlstate('SELECT idem_resolve(''unk-14'', ''completed'', force => true)');
-- no such verdict
SELECT r AS error FROM probe.raises('SELECT idem_resolve(''unk-8'', ''maybe'', scope => ''unk/manual'')') r;
SELECT r AS error FROM probe.raises('SELECT idem_resolve(''unk-8'', NULL, scope => ''unk/manual'')') r;
SELECT probe.sqlstate('SELECT idem_resolve(''unk-8'', ''Completed'', scope => ''unk/manual'')');
SELECT probe.sqlstate('SELECT idem_resolve(NULL, ''completed'')');
-- null is not by force
SELECT outcome FROM idem_claim('unk-15');
SELECT probe.sqlstate('SELECT idem_resolve(''unk-15'', ''completed'', force => NULL)');

-- a row that was turned is as unknown as one that was not
SELECT token FROM idem_claim('unk-16', scope => 'unk/manual', lease => '1 min') \gset
SET idempotency.test_clock = '2041-01-01 09:00:00';
UPDATE transaction_log SET status = 'unknown', reason = 'lapsed', due_at = 'infinity', expires_at = NULL WHERE request_id = 'unk-16';
SELECT outcome, attempt FROM idem_claim('unk-16', scope => 'unk/manual');
SELECT kind FROM idem_review WHERE request_id = 'unk-16';
SELECT status, expires_at FROM idem_lookup('unk-16', 'unk/manual');
-- it may not be given back, whoever holds it: something may have been done
SELECT r AS error FROM probe.raises(format('SELECT idem_release(%L, %s, %L)', 'unk-16', :token, 'unk/manual')) r;
BEGIN;
SELECT idem_finish('unk-16', '16', token => :token, scope => 'unk/manual');
SELECT outcome FROM idem_claim('unk-16', scope => 'unk/manual');
ROLLBACK;
SELECT idem_resolve('unk-16', 'retry', scope => 'unk/manual');
SELECT outcome, attempt FROM idem_claim('unk-16', scope => 'unk/manual', lease => '1 min');
SELECT idem_finish('unk-16', '"ok"', token => token, scope => 'unk/manual') FROM transaction_log WHERE request_id = 'unk-16';
SELECT due_at < 'infinity' AS purged_some_day FROM transaction_log WHERE request_id = 'unk-16';

-- a policy that comes later judges what lapses from then on
SELECT outcome FROM idem_claim('unk-17', scope => 'unk/later', lease => '1 min');
SET idempotency.test_clock = '2041-01-01 10:00:00';
SELECT idem_configure('unk/later', on_lease_expiry => 'manual');
SELECT outcome FROM idem_claim('unk-17', scope => 'unk/later');
SELECT idem_configure('unk/later', on_lease_expiry => 'retry');
SELECT count(*) FROM idem_review WHERE request_id = 'unk-17';
SELECT outcome, attempt FROM idem_claim('unk-17', scope => 'unk/later');

-- an attempt that is claimed under the new policy shows in the view at once, too
SELECT idem_fail('unk-18', token => token, scope => 'unk/later', retry_after => '0') FROM idem_claim('unk-18', scope => 'unk/later', lease => '1 min');
SELECT idem_configure('unk/later', on_lease_expiry => 'manual');
SELECT outcome, attempt FROM idem_claim('unk-18', scope => 'unk/later', lease => '1 min');
SET idempotency.test_clock = '2041-01-01 10:30:00';
SELECT outcome FROM idem_claim('unk-18', scope => 'unk/later');
SELECT kind, attempt FROM idem_review WHERE request_id = 'unk-18';

-- the settling call that the view shows is one
SELECT replace(settle, 'completed | failed | retry', 'failed') AS call FROM idem_review WHERE request_id = 'unk-8' \gset
SELECT format('%s', :'call');
:call;
SELECT outcome, status FROM idem_claim('unk-8', scope => 'unk/manual');
SELECT outcome FROM idem_claim('unk-it''s "18"', scope => 'unk/manual', lease => '1 min');
SET idempotency.test_clock = '2041-01-01 11:00:00';
SELECT replace(settle, 'completed | failed | retry', 'completed') AS call FROM idem_review WHERE request_id LIKE 'unk-it%' \gset
:call;
SELECT outcome, status FROM idem_claim('unk-it''s "18"', scope => 'unk/manual');

SELECT idem_unconfigure('unk/manual'), idem_unconfigure('unk/max'), idem_unconfigure('unk/later');
DELETE FROM transaction_log WHERE request_id LIKE 'unk-%';
DROP SCHEMA probe CASCADE;
