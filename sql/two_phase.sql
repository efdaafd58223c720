-- Prepared transactions (where max_prepared_transactions allows them).
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
SELECT current_setting('max_prepared_transactions')::int = 0 AS off \gset
\if :off
\echo prepared transactions are off
DROP SCHEMA probe CASCADE;
\quit
\endif

-- a prepared claim is in flight until it is decided
BEGIN;
SELECT token, attempt FROM idem_claim('two-1', '{"a": 1}', lease => '1h') \gset
PREPARE TRANSACTION 'regress_idem_1';
SELECT outcome, token IS NULL AS no_token, status, retry_after IS NULL AS no_end FROM idem_claim('two-1', '{"a": 1}');
-- nothing is told of what may still be undone
SELECT outcome, differs FROM idem_claim('two-1', '{"a": 2}');
SELECT count(*) FROM idem_lookup('two-1');
-- waiting for it: as long as asked, writing nothing, with no transaction id
BEGIN;
SAVEPOINT s;
SELECT outcome, retry_after IS NULL AS no_end FROM idem_claim('two-1', '{"a": 1}', wait => '30 ms');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
SELECT count(*) AS locks_left FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'transactionid';
COMMIT;
BEGIN;
SELECT pg_current_xact_id() IS NOT NULL AS has_xid;
SAVEPOINT s;
SELECT outcome FROM idem_claim('two-1', wait => '10 ms');
-- (of this transaction's own ids there is one)
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'transactionid';
COMMIT;
-- lock_timeout does not cut the wait short, statement_timeout does
SET lock_timeout = '1 ms';
SELECT outcome FROM idem_claim('two-1', wait => '30 ms');
SHOW lock_timeout;
RESET lock_timeout;
\set VERBOSITY sqlstate
SET statement_timeout = '30 ms';
SELECT outcome FROM idem_claim('two-1', wait => '1h');
RESET statement_timeout;
\set VERBOSITY default
SELECT outcome FROM idem_claim('two-1', wait => '0');
COMMIT PREPARED 'regress_idem_1';
-- decided: leased from its claim on, and the token is the holder's
SELECT outcome, retry_after > '0' AS leased FROM idem_claim('two-1', '{"a": 1}');
SELECT outcome, differs FROM idem_claim('two-1', '{"a": 2}');
SELECT probe.sqlstate('SELECT idem_finish(''two-1'')') AS without_token;
SELECT idem_finish('two-1', '1', token => :token);
SELECT outcome, response_body FROM idem_claim('two-1', '{"a": 1}');

-- rolled back: never made
BEGIN;
SELECT outcome FROM idem_claim('two-2');
PREPARE TRANSACTION 'regress_idem_2';
SELECT outcome FROM idem_claim('two-2');
ROLLBACK PREPARED 'regress_idem_2';
SELECT outcome, attempt FROM idem_claim('two-2');

-- claimed and finished in one: replayed when it is committed
BEGIN;
SELECT outcome FROM idem_claim('two-3');
SELECT idem_finish('two-3', '3');
PREPARE TRANSACTION 'regress_idem_3';
SELECT outcome, response_body FROM idem_claim('two-3');
COMMIT PREPARED 'regress_idem_3';
SELECT outcome, response_body FROM idem_claim('two-3');

-- an end of an earlier claim, prepared
SELECT token FROM idem_claim('two-4', lease => '1 us') \gset
BEGIN;
SELECT idem_finish('two-4', '4', token => :token);
PREPARE TRANSACTION 'regress_idem_4';
SELECT outcome FROM idem_claim('two-4');
SELECT outcome FROM idem_claim('two-4', wait => '5 ms');
ROLLBACK PREPARED 'regress_idem_4';
SELECT outcome, attempt FROM idem_claim('two-4');
-- a takeover, prepared: the first holder waits for the decision
SELECT token FROM idem_claim('two-5', lease => '1 us') \gset
BEGIN;
SELECT outcome, attempt FROM idem_claim('two-5');
PREPARE TRANSACTION 'regress_idem_5';
\set VERBOSITY sqlstate
SET lock_timeout = '20 ms';
SELECT idem_finish('two-5', token => :token);
RESET lock_timeout;
\set VERBOSITY default
COMMIT PREPARED 'regress_idem_5';
SELECT probe.sqlstate(format('SELECT idem_finish(%L, token => %s)', 'two-5', :token)) AS first_holder;

-- a finished row that is being changed still replays: its end is not in doubt
SELECT idem_finish('two-6', '6', token => token) FROM idem_claim('two-6');
BEGIN;
SELECT request_id FROM transaction_log WHERE request_id = 'two-6' FOR UPDATE;
PREPARE TRANSACTION 'regress_idem_6';
SELECT outcome, response_body FROM idem_claim('two-6');
ROLLBACK PREPARED 'regress_idem_6';
-- an expired one that is just being removed: in progress, for a moment
SELECT idem_finish('two-7', '7', token => token) FROM idem_claim('two-7', ttl => '1 us');
BEGIN;
DELETE FROM transaction_log WHERE request_id = 'two-7';
PREPARE TRANSACTION 'regress_idem_7';
SELECT outcome, retry_after BETWEEN '1 us' AND '1s' AS shortly FROM idem_claim('two-7');
COMMIT PREPARED 'regress_idem_7';
SELECT outcome, attempt FROM idem_claim('two-7');

-- unfinished at PREPARE, as at COMMIT
SET idempotency.unfinished_at_commit = 'error';
\set VERBOSITY sqlstate
BEGIN;
SELECT outcome FROM idem_claim('two-8');
PREPARE TRANSACTION 'regress_idem_8';
SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'regress_idem_8';
SELECT count(*) FROM idem_lookup('two-8');
\set VERBOSITY default
RESET idempotency.unfinished_at_commit;
-- answering unknown does not stand in the way of PREPARE
SELECT idem_configure('two/manual', on_lease_expiry => 'manual');
SELECT outcome FROM idem_claim('two-9', scope => 'two/manual', lease => '1 us');
BEGIN;
SELECT outcome FROM idem_claim('two-9', scope => 'two/manual');
CREATE TABLE probe.t ();
PREPARE TRANSACTION 'regress_idem_9';
ROLLBACK PREPARED 'regress_idem_9';

-- in flight until it is decided, without a process
BEGIN;
SELECT outcome FROM idem_claim('prepared', scope => 'two_phase/flying');
PREPARE TRANSACTION 'flying';
SELECT request_id, state, attempt, pid, waiting FROM idem_in_flight WHERE scope = 'two_phase/flying';
ROLLBACK PREPARED 'flying';
SELECT count(*) FROM idem_in_flight WHERE scope = 'two_phase/flying';

SELECT idem_unconfigure('two/manual');
DELETE FROM transaction_log WHERE request_id LIKE 'two-%';
DROP SCHEMA probe CASCADE;
