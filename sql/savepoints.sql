-- Savepoints and subtransactions: a claim lives and dies with its own.
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

-- ROLLBACK TO undoes the claim
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_claim('save-1');
ROLLBACK TO s;
SELECT count(*) FROM idem_lookup('save-1');
SELECT probe.sqlstate('SELECT idem_finish(''save-1'')');
SELECT outcome, attempt FROM idem_claim('save-1');
SELECT idem_finish('save-1', '"second"');
COMMIT;
SELECT outcome, attempt, response_body FROM idem_claim('save-1');

-- released into its parent: the parent's claim
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_claim('save-2');
RELEASE s;
SELECT outcome, token IS NOT NULL AS own FROM idem_claim('save-2');
SELECT idem_finish('save-2', '2');
COMMIT;
SELECT outcome, response_body FROM idem_claim('save-2');

-- a claim of the parent, ended in a savepoint
BEGIN;
SELECT outcome FROM idem_claim('save-3');
SAVEPOINT s;
SELECT idem_finish('save-3', '"undone"');
SELECT outcome, response_body FROM idem_claim('save-3');
ROLLBACK TO s;
SELECT outcome, token IS NOT NULL AS own FROM idem_claim('save-3');
SAVEPOINT s2;
SELECT idem_finish('save-3', '"kept"');
RELEASE s2;
COMMIT;
SELECT outcome, response_body FROM idem_claim('save-3');

-- deeper, with a failure in between
BEGIN;
SAVEPOINT a;
SELECT outcome FROM idem_claim('save-4');
SAVEPOINT b;
SELECT idem_fail('save-4', '"e"', retry_after => '0');
SAVEPOINT c;
SELECT outcome, attempt FROM idem_claim('save-4');
ROLLBACK TO c;
SELECT status, attempt FROM idem_lookup('save-4');
ROLLBACK TO b;
SELECT status, attempt FROM idem_lookup('save-4');
SELECT idem_finish('save-4', '4');
ROLLBACK TO a;
SELECT count(*) FROM idem_lookup('save-4');
COMMIT;

-- a takeover that is undone: the first holder's again
SELECT token FROM idem_claim('save-5', lease => '1 us') \gset
BEGIN;
SAVEPOINT s;
SELECT outcome, attempt FROM idem_claim('save-5');
ROLLBACK TO s;
SELECT idem_finish('save-5', '"first"', token => :token);
COMMIT;
SELECT outcome, attempt, response_body FROM idem_claim('save-5');

-- an error in a savepoint, the claim before it stands
BEGIN;
SELECT outcome FROM idem_claim('save-6');
SAVEPOINT s;
\set VERBOSITY sqlstate
SELECT 1 / 0;
ROLLBACK TO s;
SELECT idem_finish('save-6', token => 1);
ROLLBACK TO s;
\set VERBOSITY default
SELECT idem_finish('save-6', '6');
COMMIT;
SELECT outcome, response_body FROM idem_claim('save-6');

-- exception blocks
CREATE FUNCTION probe.try_in_block(key text, broken boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c record;
BEGIN
    BEGIN
        SELECT * INTO c FROM idem_claim(key);
        IF broken THEN
            RAISE EXCEPTION 'broken';
        END IF;
    EXCEPTION WHEN raise_exception THEN
        RETURN 'undone: ' || (SELECT count(*) FROM idem_lookup(key));
    END;
    PERFORM idem_finish(key, '"block"');
    RETURN 'done';
END $$;
SELECT probe.try_in_block('save-7', true);
SELECT probe.try_in_block('save-7', false);
SELECT outcome, attempt, response_body FROM idem_claim('save-7');
-- business error: the failure is kept, the writes are not
CREATE TABLE probe.orders (n int CHECK (n > 0));
CREATE FUNCTION probe.place(key text, n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c record;
BEGIN
    SELECT * INTO c FROM idem_claim(key, to_jsonb(n));
    IF c.outcome <> 'claimed' THEN
        RETURN format('%s %s %s', c.outcome, c.status, c.response_body);
    END IF;
    BEGIN
        INSERT INTO probe.orders VALUES (100);
        INSERT INTO probe.orders VALUES (n);
        PERFORM idem_finish(key, '"placed"');
    EXCEPTION WHEN check_violation THEN
        PERFORM idem_fail(key, to_jsonb(SQLSTATE), final => true);
    END;
    RETURN 'ran';
END $$;
SELECT probe.place('save-8', 1), probe.place('save-9', -1);
SELECT probe.place('save-8', 1), probe.place('save-9', -1);
SELECT n FROM probe.orders ORDER BY n;

-- many subtransactions, each with its claim
DO $$
BEGIN
    FOR i IN 1..200 LOOP
        BEGIN
            PERFORM idem_claim('save-10-' || i);
            IF i % 2 = 0 THEN
                RAISE EXCEPTION 'no';
            END IF;
            PERFORM idem_finish('save-10-' || i, to_jsonb(i));
        EXCEPTION WHEN raise_exception THEN
            NULL;
        END;
    END LOOP;
END $$;
SELECT status, count(*) FROM idem_log WHERE request_id LIKE 'save-10-%' GROUP BY 1;

-- a claim in a rolled back savepoint is free at once for the same transaction under another body
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_claim('save-11', '{"a": 1}');
ROLLBACK TO s;
SELECT outcome FROM idem_claim('save-11', '{"a": 2}');
ROLLBACK;

-- an inner subtransaction that only looks takes no transaction id
SELECT outcome FROM idem_claim('save-12', lease => '1h');
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_claim('save-12', wait => '5 ms');
SELECT outcome FROM idem_claim('save-8', '1');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;

-- tokens prove themselves per version, also across levels
SELECT token FROM idem_claim('save-13') \gset
BEGIN;
SAVEPOINT s;
SELECT idem_extend('save-13', token => :token) IS NOT NULL AS extended;
RELEASE s;
SELECT idem_finish('save-13', '13');
COMMIT;
SELECT outcome, response_body FROM idem_claim('save-13');

DELETE FROM transaction_log WHERE request_id LIKE 'save-%';
DROP SCHEMA probe CASCADE;
