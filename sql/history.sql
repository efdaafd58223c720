-- The history of requests in scopes that keep one.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
SELECT idem_configure('hist', history => true, lease => '1 minute', backoff_base => '1 s', backoff_cap => '1 s');
SELECT idem_configure('hist/asked', history => true, lease => '1 minute', on_lease_expiry => 'manual');

CREATE VIEW entries AS
    SELECT h.request_id, h.ordinal AS n, to_char(h.changed_at AT TIME ZONE 'UTC', 'HH24:MI:SS.MS') AS at, h.changed_by = current_user AS by_us,
           h.from_status, h.to_status, h.attempt, h.error
      FROM idem_history h WHERE h.scope ~ '^hist' ORDER BY h.scope, h.request_id, h.ordinal;

SET idempotency.test_clock = '2030-01-01 00:00:00.25+00';
-- claim, finish
SELECT token FROM idem_claim('done', scope => 'hist') \gset
SET idempotency.test_clock = '2030-01-01 00:00:01.25+00';
SELECT idem_finish('done', '{"body": "secret"}', 201, token => :token, scope => 'hist');
-- a replay, a refusal and a heartbeat change no state
SELECT outcome FROM idem_claim('done', scope => 'hist');
SELECT token FROM idem_claim('busy', scope => 'hist') \gset
SELECT outcome FROM idem_claim('busy', scope => 'hist');
SELECT idem_extend('busy', token => :token, scope => 'hist') IS NOT NULL AS extended;
-- failure, retry, failure for good
SELECT token FROM idem_claim('fails', scope => 'hist') \gset
SELECT idem_fail('fails', '"first"', token => :token, scope => 'hist', retry_after => '0');
SET idempotency.test_clock = '2030-01-01 00:00:02.25+00';
SELECT token, attempt FROM idem_claim('fails', scope => 'hist') \gset
SET idempotency.test_clock = '2030-01-01 00:00:03.25+00';
SELECT idem_fail('fails', '"second"', token => :token, scope => 'hist', final => true);
-- a takeover, given back
SELECT outcome FROM idem_claim('lapses', scope => 'hist');
SET idempotency.test_clock = '2030-01-01 00:02:00.25+00';
SELECT token FROM idem_claim('lapses', scope => 'hist') \gset
SELECT * FROM entries;
SET idempotency.test_clock = '2030-01-01 00:02:01.25+00';
SELECT idem_release('lapses', token => :token, scope => 'hist');
SELECT * FROM entries WHERE request_id = 'lapses';
-- a new claim given back: the key is as if it had never been, and so is its history
SELECT token FROM idem_claim('given', scope => 'hist') \gset
SELECT idem_release('given', token => :token, scope => 'hist');
SELECT count(*) FROM entries WHERE request_id = 'given';
-- settled by a person
SELECT outcome FROM idem_claim('asked', scope => 'hist/asked');
SET idempotency.test_clock = '2030-01-01 00:05:00.25+00';
SELECT idem_resolve('asked', 'retry', scope => 'hist/asked');
SELECT outcome FROM idem_claim('asked', scope => 'hist/asked');
SET idempotency.test_clock = '2030-01-01 00:10:00.25+00';
SELECT idem_resolve('asked', 'completed', '{"body": "secret"}', scope => 'hist/asked');
SELECT * FROM entries WHERE request_id = 'asked';

-- what is undone leaves no entry
BEGIN;
SAVEPOINT a;
SELECT outcome FROM idem_claim('undone', scope => 'hist');
ROLLBACK TO a;
COMMIT;
SELECT count(*) FROM entries WHERE request_id = 'undone';

-- the row knows how many entries there are
SELECT l.request_id, l.changes, count(h.life) AS entries FROM transaction_log l
  JOIN idempotency_history h USING (scope, request_id) WHERE l.scope ~ '^hist' GROUP BY 1, 2 ORDER BY 1;

-- batches and one trip
CREATE FUNCTION hist_handler(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
SELECT outcome FROM idem_claim_many('{m1,m2}', scope => 'hist');
SELECT outcome FROM idem_run('run', '1', 'hist_handler', scope => 'hist');
SELECT request_id, n, from_status, to_status FROM entries WHERE request_id ~ '^(m.|run)$';

-- it goes with the life of the key: a key used again begins a new one
SET idempotency.test_clock = '2030-02-01 00:00:00.25+00';
SELECT outcome FROM idem_claim('done', scope => 'hist');
SELECT * FROM entries WHERE request_id = 'done';

-- no tokens, no bodies; a claim's time to the second
SELECT attname FROM pg_attribute WHERE attrelid = 'idem_history'::regclass AND attnum > 0 AND attname ~ 'token|life|body';
SELECT count(*) FROM idem_history h WHERE h::text ~ 'secret';
SELECT count(*) FROM idem_history WHERE to_status = 'processing' AND changed_at <> date_trunc('second', changed_at);

-- other scopes keep none; a scope that stops keeps what it has
SELECT outcome FROM idem_claim('none', scope => 'hist-other');
SELECT count(*) FROM idem_history WHERE scope = 'hist-other';
SELECT idem_configure('hist', history => false);
SELECT outcome FROM idem_claim('later', scope => 'hist');
SELECT count(*) FROM entries WHERE request_id IN ('later', 'done');

-- for roles that administer, and of closed scopes for those let in
CREATE ROLE regress_idem_hist_app;
CREATE ROLE regress_idem_hist_admin;
CREATE ROLE regress_idem_hist_owner;
SELECT idem_grant('regress_idem_hist_app'), idem_grant('regress_idem_hist_admin', administer => true);
SELECT has_table_privilege('regress_idem_hist_app', 'idem_history', 'SELECT') AS app,
       has_table_privilege('regress_idem_hist_admin', 'idem_history', 'SELECT') AS admin;
SELECT idem_configure('hist/asked', owner => 'regress_idem_hist_owner');
SET ROLE regress_idem_hist_admin;
SELECT count(*) > 0 AS open, count(*) FILTER (WHERE scope = 'hist/asked') AS closed FROM idem_history;
RESET ROLE;
GRANT regress_idem_hist_owner TO regress_idem_hist_admin;
SET ROLE regress_idem_hist_admin;
SELECT count(*) FILTER (WHERE scope = 'hist/asked') AS closed FROM idem_history;
RESET ROLE;
SELECT idem_revoke('regress_idem_hist_admin');
SELECT has_table_privilege('regress_idem_hist_admin', 'idem_history', 'SELECT') AS admin;

RESET idempotency.test_clock;
SELECT idem_revoke('regress_idem_hist_app');
SELECT idem_unconfigure('hist'), idem_unconfigure('hist/asked');
DROP OWNED BY regress_idem_hist_app, regress_idem_hist_admin, regress_idem_hist_owner;
DROP ROLE regress_idem_hist_app, regress_idem_hist_admin, regress_idem_hist_owner;
DROP VIEW entries;
DROP FUNCTION hist_handler;
DELETE FROM idempotency_history WHERE scope ~ '^hist';
DELETE FROM transaction_log WHERE scope ~ '^hist';
