-- What a purge removes, turns, puts off and leaves alone.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
RESET client_min_messages;
SET timezone = 'UTC';

CREATE TEMPORARY VIEW log AS
    SELECT scope, request_id, status, reason, attempt,
           CASE WHEN due_at = 'infinity' THEN 'never'
                ELSE to_char(due_at, 'DD HH24:MI:SS') END AS due,
           to_char(expires_at, 'DD HH24:MI:SS') AS expires
      FROM transaction_log ORDER BY scope, request_id;
CREATE TEMPORARY TABLE token (id text, token bigint);

-- Nothing is there.
SELECT idem_purge();

/* ---- finished requests -------------------------------------------------- */

SET idempotency.test_clock = '2030-01-01 00:00:00+00';
BEGIN;
SELECT outcome FROM idem_claim('done', '{"a":1}', ttl => '1h', lease => '1min');
SELECT idem_finish('done', '"ok"');
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('failed for good', ttl => '1h', lease => '1min');
SELECT idem_fail('failed for good', '"no"', final => true);
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('failed', ttl => '1h', lease => '1min');
SELECT idem_fail('failed', '"later"', retry_after => '30min');
COMMIT;
SELECT outcome FROM idem_claim('lapsing', ttl => '1h', lease => '1min');
SELECT outcome FROM idem_claim('extended', ttl => '1h', lease => '1min');
INSERT INTO token SELECT 'extended', token FROM transaction_log WHERE request_id = 'extended';
SELECT idem_extend('extended', '3h', token) FROM token WHERE id = 'extended';
SELECT * FROM log;

-- Not due yet, to the microsecond.
SET idempotency.test_clock = '2030-01-01 00:59:59.999999+00';
SELECT idem_purge();
-- Expired, but an alarm may be late by the rest of a lease.
SET idempotency.test_clock = '2030-01-01 01:00:59.999999+00';
SELECT count(*) FROM idem_lookup('done');
SELECT idem_purge();
-- What has expired goes; a retry that is still possible and a lease that was
-- extended are put off.
SET idempotency.test_clock = '2030-01-01 01:01:00+00';
SELECT idem_purge();
SELECT * FROM log;
-- Once put off, not looked at again before its time.
SELECT ctid AS before FROM transaction_log WHERE request_id = 'extended' \gset
SELECT idem_purge();
SELECT ctid = :'before' AS untouched FROM transaction_log WHERE request_id = 'extended';
SET idempotency.test_clock = '2030-01-01 01:30:00+00';
SELECT idem_purge();
SELECT * FROM log;
SET idempotency.test_clock = '2030-01-01 03:59:59+00';
SELECT idem_purge();
SET idempotency.test_clock = '2030-01-01 04:00:00+00';
SELECT idem_purge();
SELECT * FROM log;

/* ---- a new life starts with nothing of the old one ----------------------- */

SELECT idem_configure('kept', history => true);
SET idempotency.test_clock = '2030-01-02 00:00:00+00';
BEGIN;
SELECT outcome, attempt FROM idem_claim('k', scope => 'kept', ttl => '1h', lease => '1min');
SELECT idem_finish('k', scope => 'kept');
COMMIT;
SELECT count(*) FROM idempotency_history WHERE scope = 'kept';
SET idempotency.test_clock = '2030-01-02 02:00:00+00';
SELECT idem_purge();
SELECT count(*) FROM idempotency_history WHERE scope = 'kept';
SELECT outcome, attempt FROM idem_claim('k', scope => 'kept', ttl => '1h', lease => '1min');
SELECT count(*) FROM idempotency_history WHERE scope = 'kept';
SELECT idem_release('k', token, scope => 'kept') FROM transaction_log WHERE request_id = 'k';
SELECT count(*) FROM idempotency_history WHERE scope = 'kept';
SELECT idem_unconfigure('kept');

/* ---- what a person must decide ------------------------------------------ */

SELECT idem_configure('manual', on_lease_expiry => 'manual', history => true);
SELECT idem_configure('twice', max_attempts => 2);
SET idempotency.test_clock = '2030-01-03 00:00:00+00';
SELECT outcome FROM idem_claim('a', scope => 'manual', ttl => '1h', lease => '1min');
SELECT outcome FROM idem_claim('finished', scope => 'manual', ttl => '1h', lease => '1min');
SELECT idem_finish('finished', token => token, scope => 'manual') FROM transaction_log WHERE request_id = 'finished';
SELECT outcome FROM idem_claim('slow', scope => 'manual', ttl => '1h', lease => '5min');
SELECT outcome FROM idem_claim('b', scope => 'twice', ttl => '1h', lease => '1min');
SELECT * FROM log;

SET idempotency.test_clock = '2030-01-03 00:01:00+00';
-- Turned and put off, nothing removed.
SELECT idem_purge();
SELECT * FROM log;
SELECT from_status, to_status, attempt, error, changed_at FROM idempotency_history WHERE request_id = 'a' ORDER BY changed_at;
SELECT scope, request_id, kind FROM idem_review ORDER BY 1, 2;
SELECT outcome, status FROM idem_claim('a', scope => 'manual');
-- The next attempt is due when its own lease ends, though the row was put off.
SELECT outcome, attempt FROM idem_claim('b', scope => 'twice', ttl => '1h', lease => '1min');
SELECT * FROM log WHERE scope = 'twice';
SET idempotency.test_clock = '2030-01-03 00:02:00+00';
SELECT scope, request_id, kind FROM idem_review ORDER BY 1, 2;
SELECT idem_purge();
SELECT * FROM log WHERE scope = 'twice';
-- Never purged, however late.
SET idempotency.test_clock = '2031-01-01 00:00:00+00';
SELECT idem_purge();
SELECT * FROM log;
-- Settled, they expire like any other.
SELECT idem_resolve('a', 'completed', scope => 'manual');
SELECT idem_resolve('b', 'retry', scope => 'twice');
SELECT idem_resolve('slow', 'failed', '"gone"', scope => 'manual');
SELECT * FROM log;
SET idempotency.test_clock = '2031-01-01 02:00:00+00';
SELECT idem_purge();
SELECT * FROM log;

-- An open call keeps a key from expiring.
SET idempotency.test_clock = '2031-02-01 00:00:00+00';
SELECT outcome FROM idem_claim('called', ttl => '1h', lease => '1min');
SELECT outcome FROM idem_claim('called and failed', ttl => '1h', lease => '1min');
SELECT idem_fail('called and failed', token => token, retry_after => '0') FROM transaction_log WHERE request_id = 'called and failed';
UPDATE transaction_log SET open_calls = 1;
SET idempotency.test_clock = '2031-02-01 02:00:00+00';
SELECT idem_purge();
SELECT * FROM log;
DELETE FROM transaction_log;

/* ---- a policy that begins to ask a person -------------------------------- */

SET idempotency.test_clock = '2030-01-04 00:00:00+00';
SELECT s, outcome
  FROM unnest('{acme,acme/pay,acme-x,other,acme/own}'::text[]) s,
       LATERAL idem_claim('k', scope => s, ttl => '1h', lease => '1min');
SELECT outcome FROM idem_claim('done', scope => 'acme', ttl => '1h', lease => '1min');
SELECT idem_finish('done', token => token, scope => 'acme') FROM transaction_log WHERE request_id = 'done';
SELECT idem_configure('acme/own', ttl => '1h');
SELECT idem_configure('acme', on_lease_expiry => 'manual');
SELECT * FROM log;
SET idempotency.test_clock = '2030-01-04 00:01:00+00';
SELECT scope, request_id, kind FROM idem_review ORDER BY 1, 2;
SELECT idem_unconfigure('acme/own');
SELECT scope, request_id, kind FROM idem_review ORDER BY 1, 2;
SELECT idem_configure('', max_attempts => 1);
SELECT scope, request_id, kind FROM idem_review ORDER BY 1, 2;
SELECT idem_unconfigure('');
SELECT idem_unconfigure('acme');
DELETE FROM transaction_log;

/* ---- bounds, transactions ------------------------------------------------ */

SET idempotency.test_clock = '2030-01-05 00:00:00+00';
SELECT count(*) FROM generate_series(1, 10) i, idem_claim(i::text, ttl => '1h', lease => '1min');
INSERT INTO idempotency_inbox (received_at, expires_at, scope, message_id)
    SELECT idem_clock(), idem_clock() + '1h', '', i::text FROM generate_series(1, 10) i;
INSERT INTO idempotency_inbox (received_at, expires_at, scope, message_id)
    SELECT idem_clock(), idem_clock() + '1d', '', 'young';
SET idempotency.test_clock = '2030-01-05 02:00:00+00';
SELECT idem_purge(0);
SELECT idem_purge(-1);
SELECT idem_purge(1);
SELECT (SELECT count(*) FROM transaction_log) AS keys, (SELECT count(*) FROM idempotency_inbox) AS messages;
SELECT idem_purge(4);
SELECT (SELECT count(*) FROM transaction_log) AS keys, (SELECT count(*) FROM idempotency_inbox) AS messages;
BEGIN;
SELECT idem_purge();
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT idem_purge(6);
ROLLBACK TO s;
SELECT idem_purge(6);
COMMIT;
SELECT (SELECT count(*) FROM transaction_log) AS keys, (SELECT count(*) FROM idempotency_inbox) AS messages;
-- A share that one kind does not use goes to the other.
SELECT idem_purge(9223372036854775807);
SELECT message_id FROM idempotency_inbox;

-- Our own open claim is in flight, whatever the clock; an ended one is not.
BEGIN;
SELECT outcome FROM idem_claim('open', ttl => '1h', lease => '1min');
SELECT outcome FROM idem_claim('ended', ttl => '1h', lease => '1min');
SELECT idem_finish('ended');
SET LOCAL idempotency.test_clock = '2030-01-06 12:00:00+00';
SELECT idem_purge();
SELECT request_id FROM log;
SELECT idem_finish('open');
COMMIT;
SELECT message_id FROM idempotency_inbox;

-- All at once, batch by batch.
SELECT count(*) FROM generate_series(1, 10) i, idem_claim(i::text, ttl => '1h', lease => '1min');
SET idempotency.test_clock = '2030-01-07 00:00:00+00';
SET idempotency.purge_batch_size = 3;
SET idempotency.purge_delay = 0;
CALL idem_purge_all();
SELECT count(*) FROM transaction_log;
CALL idem_purge_all();
-- The same from a DO block, which may commit as well.
SELECT count(*) FROM generate_series(1, 10) i, idem_claim(i::text, ttl => '1h', lease => '1min');
SET idempotency.test_clock = '2030-01-08 00:00:00+00';
SET idempotency.purge_delay = 1;
DO $$ BEGIN CALL idem_purge_all(); END $$;
SELECT count(*) FROM transaction_log;
RESET idempotency.purge_batch_size;
RESET idempotency.purge_delay;
-- Not where it cannot commit.
\set SHOW_CONTEXT never
BEGIN;
CALL idem_purge_all();
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
CREATE PROCEDURE pinned() LANGUAGE plpgsql SET work_mem = '1MB' AS $$ BEGIN CALL idem_purge_all(); END $$;
CALL pinned();
DROP PROCEDURE pinned;

-- Read only; isolation levels.
BEGIN READ ONLY;
SELECT idem_purge();
ROLLBACK;
SET default_transaction_read_only = on;
CALL idem_purge_all();
RESET default_transaction_read_only;
SELECT count(*) FROM generate_series(1, 2) i, idem_claim(i::text, ttl => '1h', lease => '1min');
SET idempotency.test_clock = '2030-01-09 00:00:00+00';
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT idem_purge(1);
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT idem_purge(1);
COMMIT;
SELECT count(*) FROM transaction_log;

/* ---- privileges ---------------------------------------------------------- */

SET client_min_messages = error;
DROP ROLE IF EXISTS regress_idem_app, regress_idem_admin, regress_idem_owner;
RESET client_min_messages;
CREATE ROLE regress_idem_app;
CREATE ROLE regress_idem_admin;
CREATE ROLE regress_idem_owner;
SELECT idem_grant('regress_idem_app');
SELECT idem_grant('regress_idem_admin', administer => true);
SELECT idem_configure('closed', owner => 'regress_idem_owner');
SELECT outcome FROM idem_claim('k', scope => 'closed', ttl => '1h', lease => '1min');
SET idempotency.test_clock = '2030-01-10 00:00:00+00';
SET ROLE regress_idem_app;
SELECT idem_purge();
CALL idem_purge_all();
-- What is closed expires all the same; the purge shows nothing of it.
SET ROLE regress_idem_admin;
SELECT idem_purge();
CALL idem_purge_all();
RESET ROLE;
SELECT count(*) FROM transaction_log;

SELECT idem_unconfigure(scope) FROM idempotency_scope ORDER BY scope;
SELECT idem_revoke('regress_idem_app');
SELECT idem_revoke('regress_idem_admin');
REVOKE ALL ON SCHEMA public FROM regress_idem_app, regress_idem_admin;
DROP ROLE regress_idem_app, regress_idem_admin, regress_idem_owner;
DELETE FROM idempotency_inbox;
DROP VIEW log;
DROP TABLE token;
