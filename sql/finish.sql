-- Finishing: once, by the holder, and what is told to anybody else.
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

-- by the transaction that claimed
BEGIN;
SELECT outcome FROM idem_claim('fin-1');
SELECT idem_finish('fin-1', '{"ok": 1}', 201);
COMMIT;
SELECT status, attempt, response_code, response_body, error, retry_after,
       completed_at BETWEEN created_at AND clock_timestamp() AS just_now, expires_at - completed_at AS replayed_for
  FROM idem_lookup('fin-1') \gx
SELECT locked_until, retry_at FROM transaction_log WHERE request_id = 'fin-1';
-- without any result
BEGIN;
SELECT outcome FROM idem_claim('fin-2');
SELECT idem_finish('fin-2');
COMMIT;
SELECT outcome, status, response_body, response_code FROM idem_claim('fin-2');

-- by another one, with the token
SELECT token FROM idem_claim('fin-3', '{"in": 1}') \gset
SELECT probe.raises('SELECT idem_finish(''fin-3'', ''"secret-body"'')');
SELECT idem_finish('fin-3', '"r"', 200, :token);
-- a bare repeat: false; nothing changes
SELECT ctid AS version, xmin AS writer FROM transaction_log WHERE request_id = 'fin-3' \gset
SELECT idem_finish('fin-3', '"r"', 200, :token);
SELECT idem_finish('fin-3', '"r"', 200, :token);
SELECT ctid = :'version' AND xmin = :'writer' AS untouched FROM transaction_log WHERE request_id = 'fin-3';
-- also in a transaction that only reads
BEGIN READ ONLY;
SELECT idem_finish('fin-3', '"r"', 200, :token);
COMMIT;
BEGIN;
SELECT idem_finish('fin-3', '"r"', 200, :token);
SELECT pg_current_xact_id_if_assigned() IS NULL AS wrote_nothing;
COMMIT;
-- with writes: they would be the second ones
CREATE TABLE probe.orders (n int);
BEGIN;
INSERT INTO probe.orders VALUES (1);
SELECT idem_finish('fin-3', '"r"', 200, :token);
COMMIT;
SELECT count(*) AS second_writes FROM probe.orders;
\set VERBOSITY sqlstate
BEGIN;
SELECT pg_current_xact_id() IS NOT NULL AS has_xid;
SELECT idem_finish('fin-3', '"r"', 200, :token);
ROLLBACK;
-- in a subtransaction of it, too
BEGIN;
SAVEPOINT s;
INSERT INTO probe.orders VALUES (1);
SELECT idem_finish('fin-3', '"r"', 200, :token);
ROLLBACK;
\set VERBOSITY default
SELECT r AS error FROM probe.raises(format('WITH w AS (SELECT pg_current_xact_id() AS x) SELECT idem_finish(%L, %L, 200, %s) FROM w WHERE x IS NOT NULL', 'fin-3', '"r"', :token)) r;
-- a repeat without the token was not claimed here
SELECT probe.raises('SELECT idem_finish(''fin-3'', ''"r"'', 200)');

-- another result under this token
SELECT r AS error FROM probe.raises(format('SELECT idem_finish(%L, %L, 200, %s)', 'fin-3', '"secret-body"', :token)) r;
SELECT probe.sqlstate(format('SELECT idem_finish(%L, %L, 201, %s)', 'fin-3', '"r"', :token));
SELECT probe.sqlstate(format('SELECT idem_finish(%L, %L, NULL, %s)', 'fin-3', '"r"', :token));
SELECT probe.sqlstate(format('SELECT idem_finish(%L, %L, 200, %s, response_headers => %L)', 'fin-3', '"r"', :token, '{}'));
SELECT probe.sqlstate(format('SELECT idem_finish(%L, %L, 200, %s, response_bytes => %L)', 'fin-3', '"r"', :token, ''));
SELECT probe.sqlstate(format('SELECT idem_fail(%L, %L, 200, %s)', 'fin-3', '"r"', :token));
SELECT probe.sqlstate(format('SELECT idem_fail(%L, %L, 200, %s, final => true)', 'fin-3', '"r"', :token));
SELECT outcome, response_code, response_body FROM idem_claim('fin-3');
-- in other words: the same as jsonb is the same result
SELECT idem_finish('fin-4', '{"a": 1, "b": 2}', token => token) FROM idem_claim('fin-4');
SELECT token FROM transaction_log WHERE request_id = 'fin-4' \gset
SELECT idem_finish('fin-4', '{"b":2,   "a":1}', token => :token);

-- a wrong token
SELECT token FROM idem_claim('fin-5') \gset
SELECT r AS error FROM probe.raises(format('SELECT idem_finish(%L, %L, token => %s)', 'fin-5', '"secret-body"', :token - 1)) r;
SELECT probe.raises(format('SELECT idem_finish(%L, token => %s)', 'fin-5', :token + 1));
SELECT probe.sqlstate('SELECT idem_finish(''fin-5'', token => 0)');
SELECT probe.sqlstate('SELECT idem_finish(''fin-5'', token => -1)');
SELECT probe.sqlstate('SELECT idem_finish(''fin-5'', token => 9223372036854775807)');
-- also for the transaction that claimed: a token that is given must be right
BEGIN;
SELECT token AS own FROM idem_claim('fin-6') \gset
SELECT probe.sqlstate(format('SELECT idem_finish(%L, token => %s)', 'fin-6', :own - 1));
SELECT idem_finish('fin-6', token => :own);
COMMIT;

-- nothing there
SELECT r AS error FROM probe.raises('SELECT idem_finish(''fin-7'', ''"secret-body"'', token => 1)') r;
SELECT r AS error FROM probe.raises('SELECT idem_finish(''fin-7'', ''"secret-body"'', scope => ''some/scope'')') r;
-- the scope is part of the name
SELECT probe.sqlstate(format('SELECT idem_finish(%L, token => %s, scope => %L)', 'fin-5', :token, 'other'));
SELECT idem_finish('fin-5', token => :token);

-- twice in the transaction that claimed
BEGIN;
SELECT outcome FROM idem_claim('fin-8');
SELECT idem_finish('fin-8', '1');
SELECT probe.sqlstate('SELECT idem_finish(''fin-8'', ''2'')');
COMMIT;
SELECT response_body FROM idem_claim('fin-8');

-- a failure, then a success of the same attempt
BEGIN;
SELECT outcome FROM idem_claim('fin-9');
SELECT idem_fail('fin-9', '"e"');
SELECT probe.sqlstate('SELECT idem_finish(''fin-9'', ''2'')');
ROLLBACK;

-- who proved himself with the token needs it no more in this transaction
SELECT token FROM idem_claim('fin-10') \gset
BEGIN;
SELECT idem_extend('fin-10', token => :token) > now() AS extended;
SELECT idem_finish('fin-10', '10');
COMMIT;
SELECT outcome, response_body FROM idem_claim('fin-10');
-- but not where that was undone
SELECT token FROM idem_claim('fin-11') \gset
BEGIN;
SAVEPOINT s;
SELECT idem_extend('fin-11', token => :token) > now() AS extended;
ROLLBACK TO s;
SELECT probe.sqlstate('SELECT idem_finish(''fin-11'')');
ROLLBACK;

-- many in one statement
SELECT c.outcome, idem_finish('fin-12-' || n, to_jsonb(n)) AS recorded, count(*) OVER ()
  FROM generate_series(1, 3) n CROSS JOIN LATERAL idem_claim('fin-12-' || n) c ORDER BY n;
SELECT n, r.response_body FROM generate_series(1, 3) n CROSS JOIN LATERAL idem_claim('fin-12-' || n) r ORDER BY n;

-- ttl counts from the finish
SET idempotency.test_clock = '2030-01-01 00:00:00';
SELECT token FROM idem_claim('fin-13', ttl => '1h', lease => '3h') \gset
SET idempotency.test_clock = '2030-01-01 02:00:00';
SELECT idem_finish('fin-13', token => :token);
SELECT completed_at, expires_at FROM idem_lookup('fin-13');
SELECT created_at, expires_at FROM idem_claim('fin-13');
RESET idempotency.test_clock;

DELETE FROM transaction_log WHERE request_id LIKE 'fin-%';
DROP SCHEMA probe CASCADE;
