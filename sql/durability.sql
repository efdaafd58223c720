-- What a transaction owes to the claims that it leaves behind.
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

-- left unfinished: warned about or refused, if so wanted
BEGIN;
SELECT outcome FROM idem_claim('dur-1');
COMMIT;
SHOW idempotency.unfinished_at_commit;
SET idempotency.unfinished_at_commit = 'warn';
BEGIN;
SELECT outcome FROM idem_claim('dur-2');
SELECT outcome FROM idem_claim('dur-3');
COMMIT;
SELECT outcome FROM idem_claim('dur-4');
SELECT status FROM idem_lookup('dur-2');
SET idempotency.unfinished_at_commit = 'error';
BEGIN;
SELECT outcome FROM idem_claim('dur-5');
CREATE TABLE probe.lost ();
COMMIT;
SELECT count(*) FROM idem_lookup('dur-5');
SELECT to_regclass('probe.lost') IS NULL AS rolled_back;
\set VERBOSITY sqlstate
-- a statement by itself
SELECT outcome FROM idem_claim('dur-5');
SELECT count(*) FROM idem_lookup('dur-5');
-- ended in any way: nothing to say
BEGIN;
SELECT outcome FROM idem_claim('dur-6');
SELECT idem_finish('dur-6');
SELECT outcome FROM idem_claim('dur-7');
SELECT idem_fail('dur-7', retry_after => '0');
SELECT outcome FROM idem_claim('dur-8');
SELECT idem_release('dur-8');
SELECT outcome FROM idem_claim('dur-9');
SELECT idem_resolve('dur-9', 'failed', force => true);
COMMIT;
WITH c AS MATERIALIZED (SELECT * FROM idem_claim('dur-10')) SELECT outcome, idem_finish('dur-10') FROM c;
SELECT request_id, status FROM idem_log WHERE request_id IN ('dur-6', 'dur-7', 'dur-8', 'dur-9', 'dur-10') ORDER BY 1;
-- one of two
BEGIN;
SELECT outcome FROM idem_claim('dur-11');
SELECT outcome FROM idem_claim('dur-12');
SELECT idem_finish('dur-11');
COMMIT;
SELECT count(*) FROM idem_lookup('dur-11');
-- failed, claimed again and left
BEGIN;
SELECT outcome FROM idem_claim('dur-13');
SELECT idem_fail('dur-13', retry_after => '0');
SELECT outcome FROM idem_claim('dur-13');
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('dur-13');
SELECT idem_fail('dur-13', retry_after => '0');
SELECT outcome FROM idem_claim('dur-13');
SELECT idem_release('dur-13');
COMMIT;
SELECT status, attempt FROM idem_lookup('dur-13');
-- a takeover is a claim that this transaction made
BEGIN;
SELECT outcome, attempt FROM idem_claim('dur-13');
COMMIT;
BEGIN;
SELECT outcome, attempt FROM idem_claim('dur-13');
SELECT idem_finish('dur-13');
COMMIT;
SELECT status, attempt FROM idem_lookup('dur-13');
-- a claim of an earlier transaction is not: it may be extended
SELECT token FROM transaction_log WHERE request_id = 'dur-1' \gset
BEGIN;
SELECT idem_extend('dur-1', token => :token) IS NOT NULL AS extended;
COMMIT;
-- refused claims and replays
BEGIN;
SELECT outcome FROM idem_claim('dur-1');
SELECT outcome FROM idem_claim('dur-6');
COMMIT;

-- savepoints: only what is kept counts
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_claim('dur-14');
ROLLBACK TO s;
COMMIT;
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_claim('dur-15');
RELEASE s;
COMMIT;
SELECT count(*) FROM idem_lookup('dur-15');
BEGIN;
SELECT outcome FROM idem_claim('dur-16');
SAVEPOINT s;
SELECT idem_finish('dur-16');
ROLLBACK TO s;
COMMIT;
SELECT count(*) FROM idem_lookup('dur-16');
BEGIN;
SELECT outcome FROM idem_claim('dur-17');
SAVEPOINT a;
SAVEPOINT b;
SELECT idem_finish('dur-17');
RELEASE b;
RELEASE a;
COMMIT;
SELECT status FROM idem_lookup('dur-17');
BEGIN;
SAVEPOINT a;
SELECT outcome FROM idem_claim('dur-18');
SAVEPOINT b;
SELECT idem_finish('dur-18');
SAVEPOINT c;
SELECT outcome FROM idem_claim('dur-19');
ROLLBACK TO c;
RELEASE a;
COMMIT;
SELECT status FROM idem_lookup('dur-18');
DO $$
BEGIN
    PERFORM idem_claim('dur-20');
    BEGIN
        PERFORM idem_finish('dur-20');
        RAISE EXCEPTION 'x';
    EXCEPTION WHEN raise_exception THEN
        NULL;
    END;
END $$;
SELECT count(*) FROM idem_lookup('dur-20');
-- a transaction after a refused one starts anew
BEGIN;
SELECT outcome FROM idem_claim('dur-21');
SELECT 1 / 0;
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('dur-22');
ROLLBACK;
BEGIN;
SELECT 1 AS nothing;
COMMIT;
-- a cursor that is held claims at the commit
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT outcome FROM idem_claim('dur-23');
COMMIT;
SELECT count(*) FROM idem_lookup('dur-23');
-- so does a deferred trigger
CREATE TABLE probe.late (key text);
CREATE FUNCTION probe.claim_late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM idem_claim(NEW.key); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON probe.late INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION probe.claim_late();
INSERT INTO probe.late VALUES ('dur-24');
SELECT count(*) FROM idem_lookup('dur-24');
-- off for a transaction whose work goes on outside
BEGIN;
SET LOCAL idempotency.unfinished_at_commit = 'allow';
SELECT outcome FROM idem_claim('dur-25');
COMMIT;
SELECT status FROM idem_lookup('dur-25');
RESET idempotency.unfinished_at_commit;
\set VERBOSITY default

-- durable although the caller does not wait: flushed when COMMIT returns
SET synchronous_commit = off;
CREATE PROCEDURE probe.flushed(what text, statement text, OUT flushed boolean) LANGUAGE plpgsql AS $$
DECLARE
    written pg_lsn;
BEGIN
    EXECUTE statement;
    written := pg_current_wal_insert_lsn();
    COMMIT;
    flushed := pg_current_wal_flush_lsn() >= written;
END $$;
CALL probe.flushed('a claim that is left', 'SELECT idem_claim(''dur-30'', lease => ''1h'')', NULL);
CALL probe.flushed('its extension', 'SELECT idem_extend(''dur-30'', token => token) FROM transaction_log WHERE request_id = ''dur-30''', NULL);
CALL probe.flushed('its end', 'SELECT idem_finish(''dur-30'', token => token) FROM transaction_log WHERE request_id = ''dur-30''', NULL);
SELECT outcome FROM idem_claim('dur-31', lease => '1 us');
CALL probe.flushed('a takeover', 'SELECT idem_claim(''dur-31'', lease => ''1 us'')', NULL);
CALL probe.flushed('its failure', 'SELECT idem_fail(''dur-31'', token => token, retry_after => ''0'') FROM transaction_log WHERE request_id = ''dur-31''', NULL);
CALL probe.flushed('a retry', 'SELECT idem_claim(''dur-31'', lease => ''1 us'')', NULL);
CALL probe.flushed('its release', 'SELECT idem_release(''dur-31'', token) FROM transaction_log WHERE request_id = ''dur-31''', NULL);
CALL probe.flushed('a verdict', 'SELECT idem_claim(''dur-32'')', NULL);
CALL probe.flushed('a verdict', 'SELECT idem_resolve(''dur-32'', ''failed'', force => true)', NULL);
-- one that claims and finishes the same request keeps its caller's choice
CREATE PROCEDURE probe.asynchronous(OUT ever boolean) LANGUAGE plpgsql AS $$
DECLARE
    written pg_lsn;
BEGIN
    ever := false;
    FOR i IN 1..50 LOOP
        PERFORM idem_claim('dur-40-' || i);
        PERFORM idem_finish('dur-40-' || i);
        written := pg_current_wal_insert_lsn();
        COMMIT;
        ever := ever OR pg_current_wal_flush_lsn() < written;
    END LOOP;
END $$;
CALL probe.asynchronous(NULL);
RESET synchronous_commit;

-- the procedure ends what it claims, if later: its own commits are no oversight
CREATE FUNCTION probe.step(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
SET idempotency.unfinished_at_commit = 'error';
CALL idem_batch('dur-50', '{probe.step}');
RESET idempotency.unfinished_at_commit;
SELECT status FROM idem_lookup('dur-50');

DELETE FROM transaction_log WHERE request_id LIKE 'dur-%';
DROP SCHEMA probe CASCADE;
