-- CALL idem_batch: functions in order, each in its own transaction.
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
\set SHOW_CONTEXT never
CREATE SCHEMA etl;
CREATE TABLE etl.done (id int GENERATED ALWAYS AS IDENTITY, step text, arg jsonb, before jsonb, attempt int, by text, xid text DEFAULT pg_current_xact_id()::text);
CREATE TABLE etl.broken (step text);
-- A step tells what it saw, and raises if its name is in etl.broken.
CREATE FUNCTION etl.do_step(name text, arg jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO etl.done (step, arg, before, attempt, by)
    SELECT name, arg, checkpoints, attempt, current_user FROM public.idem_current();
    IF EXISTS (SELECT FROM etl.broken b WHERE b.step = name) THEN
        RAISE EXCEPTION 'step % is broken', name USING ERRCODE = 'P4242';
    END IF;
    RETURN to_jsonb(name || ' done');
END
$$;
CREATE FUNCTION etl.extract(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT etl.do_step('extract', $1) $$;
CREATE FUNCTION etl.transform(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT etl.do_step('transform', $1) $$;
CREATE FUNCTION etl.load(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT etl.do_step('load', $1) $$;
CREATE FUNCTION etl.nothing(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;

-- all steps, in order, each in its own transaction
CALL idem_batch('b1', ARRAY['etl.extract', 'etl.transform(jsonb)', 'etl.load'], '{"day": 1}', 'batch');
SELECT step, arg, before, attempt FROM etl.done ORDER BY id;
SELECT count(DISTINCT xid) FROM etl.done;
SELECT outcome, attempt, response_body FROM idem_claim('b1', '{"day": 1}', 'batch');
SELECT step, result FROM idem_checkpoints('b1', 'batch');
-- called again, nothing is done
CALL idem_batch('b1', ARRAY['etl.extract', 'etl.transform', 'etl.load'], '{"day": 1}', 'batch');
SELECT count(*) FROM etl.done;
-- for another request under the same key
CALL idem_batch('b1', ARRAY['etl.extract'], '{"day": 2}', 'batch');
SELECT count(*) FROM idem_current();

-- a step that raises leaves the steps before it; called again, the batch goes on there
TRUNCATE etl.done RESTART IDENTITY;
INSERT INTO etl.broken VALUES ('transform');
CALL idem_batch('b2', ARRAY['etl.extract', 'etl.transform', 'etl.load'], '2', 'batch');
\echo :LAST_ERROR_SQLSTATE
SELECT step FROM etl.done ORDER BY id;
SELECT status, attempt, retry_after, error FROM idem_lookup('b2', 'batch');
SELECT step, result FROM idem_checkpoints('b2', 'batch');
CALL idem_batch('b2', ARRAY['etl.extract', 'etl.transform', 'etl.load'], '2', 'batch');
SELECT step FROM etl.done ORDER BY id;
DELETE FROM etl.broken;
CALL idem_batch('b2', ARRAY['etl.extract', 'etl.transform', 'etl.load'], '2', 'batch');
SELECT step, before, attempt FROM etl.done ORDER BY id;
SELECT outcome, attempt, response_body FROM idem_claim('b2', '2', 'batch');
-- no body, no result, no step
CALL idem_batch('b3', ARRAY['etl.nothing', 'etl.load'], scope => 'batch');
SELECT arg IS NULL AS no_arg, before FROM etl.done WHERE step = 'load' AND before ? 'etl.nothing';
SELECT response_body FROM idem_lookup('b3', 'batch');
CALL idem_batch('b4', '{}', scope => 'batch');
SELECT status, response_body FROM idem_lookup('b4', 'batch');

-- steps are known by schema and name, whatever the search_path
TRUNCATE etl.done RESTART IDENTITY;
CREATE SCHEMA "Odd.""Schema";
CREATE FUNCTION "Odd.""Schema"."Odd Step"(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT etl.do_step('odd', $1) $$;
INSERT INTO etl.broken VALUES ('load');
SET search_path = etl, public;
CALL idem_batch('b5', ARRAY['extract', '"Odd.""Schema"."Odd Step"', 'load'], scope => 'batch');
SELECT step FROM idem_checkpoints('b5', 'batch');
SET search_path = public;
DELETE FROM etl.broken;
CALL idem_batch('b5', ARRAY['etl.extract', '"Odd.""Schema"."Odd Step"(jsonb)', 'etl.load'], scope => 'batch');
SELECT step FROM etl.done ORDER BY id;
SELECT jsonb_object_keys(response_body) FROM idem_lookup('b5', 'batch') ORDER BY 1;
-- another function of the same name, found first by now, is another step
CREATE SCHEMA other;
CREATE FUNCTION other.extract(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT etl.do_step('other extract', $1) $$;
INSERT INTO etl.broken VALUES ('load');
TRUNCATE etl.done RESTART IDENTITY;
SET search_path = etl, public;
CALL idem_batch('b6', ARRAY['extract', 'load'], scope => 'batch');
SET search_path = other, etl, public;
DELETE FROM etl.broken;
CALL idem_batch('b6', ARRAY['extract', 'load'], scope => 'batch');
SELECT step FROM etl.done ORDER BY id;
SELECT step FROM idem_checkpoints('b6', 'batch');
RESET search_path;
-- nor does it matter how a session quotes names
INSERT INTO etl.broken VALUES ('load');
CALL idem_batch('b6q', ARRAY['etl.extract', 'etl.load'], scope => 'batch');
DELETE FROM etl.broken;
SET quote_all_identifiers = on;
TRUNCATE etl.done RESTART IDENTITY;
CALL idem_batch('b6q', ARRAY['etl.extract', 'etl.load'], scope => 'batch');
RESET quote_all_identifiers;
SELECT step FROM etl.done ORDER BY id;
SELECT step FROM idem_checkpoints('b6q', 'batch');
-- a step that changes search_path, role or a setting for itself does not change them for the next
CREATE FUNCTION etl.rude(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(set_config('search_path', 'nowhere', true)) $$;
TRUNCATE etl.done RESTART IDENTITY;
CALL idem_batch('b7', ARRAY['etl.rude', 'etl.load'], scope => 'batch');
SELECT step FROM etl.done;
SHOW search_path;

-- what cannot be
CALL idem_batch('b8', ARRAY['etl.extract', 'etl.load', 'etl.extract'], scope => 'batch');
SET search_path = etl, public;
CALL idem_batch('b8', ARRAY['etl.extract', 'extract'], scope => 'batch');
RESET search_path;
CALL idem_batch('b8', ARRAY['etl.extract', 'etl.missing'], scope => 'batch');
CALL idem_batch('b8', ARRAY['etl.extract', NULL], scope => 'batch');
CALL idem_batch('b8', NULL, scope => 'batch');
CALL idem_batch('', ARRAY['etl.extract'], scope => 'batch');
CALL idem_batch(NULL, ARRAY['etl.extract'], scope => 'batch');
CALL idem_batch('b8', ARRAY['etl.extract; DROP TABLE etl.done'], scope => 'batch');
SELECT count(*) FROM idem_lookup('b8', 'batch');
-- inside a transaction, or a function
BEGIN;
CALL idem_batch('b8', ARRAY['etl.extract'], scope => 'batch');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
DO $$ BEGIN CALL public.idem_batch('b9', ARRAY['etl.extract'], scope => 'batch'); END $$;
SELECT status FROM idem_lookup('b9', 'batch');
CREATE FUNCTION etl.calls(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN CALL public.idem_batch('b8', ARRAY['etl.extract'], scope => 'batch'); RETURN NULL; END $$;
SELECT probe.sqlstate($$SELECT etl.calls(NULL)$$);
CREATE PROCEDURE etl.definer_calls() LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN CALL public.idem_batch('b8', ARRAY['etl.extract'], scope => 'batch'); END $$;
CALL etl.definer_calls();
CREATE PROCEDURE etl.invoker_calls() LANGUAGE plpgsql AS $$ BEGIN CALL public.idem_batch('b8', ARRAY['etl.extract'], scope => 'batch'); END $$;
CALL etl.invoker_calls();
SELECT status FROM idem_lookup('b8', 'batch');
-- a step that calls a batch, or its own
CALL idem_batch('b10', ARRAY['etl.calls'], scope => 'batch');
-- a step that ends its own claim
CREATE FUNCTION etl.ends(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(public.idem_finish(request_id, '"ended"', token => token, scope => scope)) FROM public.idem_current() $$;
CALL idem_batch('b11', ARRAY['etl.ends', 'etl.load'], scope => 'batch');
\echo :LAST_ERROR_SQLSTATE
-- a request that somebody else holds
SET idempotency.test_clock = '2030-01-01 00:00:00';
SELECT outcome FROM idem_claim('b12', scope => 'batch');
CALL idem_batch('b12', ARRAY['etl.extract'], scope => 'batch');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_resolve('b12', 'failed', scope => 'batch', force => true);
-- what failed for good must not look like success
CALL idem_batch('b12', ARRAY['etl.extract'], scope => 'batch');
\echo :LAST_ERROR_SQLSTATE
SELECT idem_configure('batch/twice', max_attempts => 2);
INSERT INTO etl.broken VALUES ('load');
CALL idem_batch('b12', ARRAY['etl.load'], scope => 'batch/twice');
CALL idem_batch('b12', ARRAY['etl.load'], scope => 'batch/twice');
CALL idem_batch('b12', ARRAY['etl.load'], scope => 'batch/twice');
SELECT status, attempt, error FROM idem_lookup('b12', 'batch/twice');
SELECT idem_unconfigure('batch/twice');
DELETE FROM etl.broken;
RESET idempotency.test_clock;

-- a step that is gone when the batch comes back
INSERT INTO etl.broken VALUES ('load');
CALL idem_batch('b13', ARRAY['etl.extract', 'etl.load'], scope => 'batch');
DELETE FROM etl.broken;
DROP FUNCTION etl.extract(jsonb);
CALL idem_batch('b13', ARRAY['etl.extract', 'etl.load'], scope => 'batch');
CALL idem_batch('b13', ARRAY['etl.load'], scope => 'batch');
SELECT outcome, response_body FROM idem_claim('b13', scope => 'batch');
-- a step that drops the next one
CREATE FUNCTION etl.doomed(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
CREATE FUNCTION etl.dropper(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN DROP FUNCTION etl.doomed(jsonb); RETURN '1'; END $$;
CALL idem_batch('b14', ARRAY['etl.dropper', 'etl.doomed'], scope => 'batch');
\echo :LAST_ERROR_SQLSTATE
SELECT step FROM idem_checkpoints('b14', 'batch');
CREATE FUNCTION etl.doomed(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '2'::jsonb $$;
CALL idem_batch('b14', ARRAY['etl.dropper', 'etl.doomed'], scope => 'batch');
SELECT response_body FROM idem_lookup('b14', 'batch');

-- rights: the caller's, or of the owner of a SECURITY DEFINER step
CREATE ROLE regress_idem_etl;
CREATE FUNCTION etl.secret(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT etl.do_step('secret', $1) $$;
REVOKE ALL ON FUNCTION etl.secret(jsonb) FROM PUBLIC;
CREATE FUNCTION etl.definer(jsonb) RETURNS jsonb LANGUAGE sql SECURITY DEFINER AS $$ SELECT to_jsonb(current_user = 'regress_idem_etl') $$;
CREATE FUNCTION etl.invoker(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(current_user::text) $$;
SELECT idem_grant('regress_idem_etl');
GRANT USAGE ON SCHEMA etl TO regress_idem_etl;
SET ROLE regress_idem_etl;
CALL idem_batch('b15', ARRAY['etl.invoker', 'etl.definer'], scope => 'batch');
SELECT response_body FROM idem_lookup('b15', 'batch');
SELECT current_user;
CALL idem_batch('b16', ARRAY['etl.invoker', 'etl.secret'], scope => 'batch');
SELECT count(*) FROM idem_lookup('b16', 'batch');
-- writes of a step need the caller's rights
CALL idem_batch('b17', ARRAY['etl.load'], scope => 'batch');
SELECT status FROM idem_lookup('b17', 'batch');
RESET ROLE;
SELECT idem_configure('batch/closed', owner => current_user::regrole);
SET ROLE regress_idem_etl;
CALL idem_batch('b18', ARRAY['etl.missing'], scope => 'batch/closed');
RESET ROLE;
SELECT idem_unconfigure('batch/closed');
REVOKE EXECUTE ON PROCEDURE idem_batch FROM regress_idem_etl;
SET ROLE regress_idem_etl;
CALL idem_batch('b18', ARRAY['etl.invoker'], scope => 'batch');
RESET ROLE;

-- a step whose commit fails, or that is interrupted: free at once, and no attempt is lost
CREATE TABLE etl.checked (id int PRIMARY KEY, parent int REFERENCES etl.checked DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION etl.orphan(jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO etl.checked VALUES (1, 2) RETURNING 'null'::jsonb $$;
CREATE FUNCTION etl.cancelled(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE query_canceled; END $$;
SELECT idem_configure('batch/once', max_attempts => 2);
CALL idem_batch('b21', ARRAY['etl.nothing', 'etl.orphan'], scope => 'batch/once');
SELECT status, attempt, error->>'sqlstate' AS sqlstate, retry_after FROM idem_lookup('b21', 'batch/once');
SELECT step FROM idem_checkpoints('b21', 'batch/once');
CALL idem_batch('b21', ARRAY['etl.nothing', 'etl.cancelled'], scope => 'batch/once');
SELECT status, attempt, error->>'sqlstate' AS sqlstate, retry_after FROM idem_lookup('b21', 'batch/once');
CALL idem_batch('b21', ARRAY['etl.nothing', 'etl.orphan'], scope => 'batch/once');
SELECT status, attempt, error->>'sqlstate' AS sqlstate, retry_after FROM idem_lookup('b21', 'batch/once');
SELECT count(*) FROM etl.checked;
SELECT idem_unconfigure('batch/once');

-- arguments outlive the commits, also large ones
SELECT jsonb_build_object('large', repeat('0123456789', 100000)) AS large \gset
CREATE FUNCTION etl.size(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(length($1->>'large')) $$;
CREATE FUNCTION etl.size2(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(length($1->>'large')) $$;
\set ECHO none
CALL idem_batch('b19', ARRAY['etl.size', 'etl.size2'], :'large', 'batch');
\set ECHO all
SELECT response_body FROM idem_lookup('b19', 'batch');

-- a key that comes again begins at its first step
SET idempotency.test_clock = '2030-01-01 00:00:00';
SELECT idem_configure('batch', ttl => '1 h');
TRUNCATE etl.done RESTART IDENTITY;
CALL idem_batch('b20', ARRAY['etl.transform', 'etl.load'], scope => 'batch');
SET idempotency.test_clock = '2030-01-01 01:00:00';
CALL idem_batch('b20', ARRAY['etl.transform', 'etl.load'], scope => 'batch');
SELECT step, before FROM etl.done ORDER BY id;

SELECT idem_unconfigure('batch');
DELETE FROM transaction_log WHERE scope LIKE 'batch%';
DELETE FROM idempotency_checkpoint WHERE scope LIKE 'batch%';
DROP SCHEMA probe, etl, other, "Odd.""Schema" CASCADE;
DROP OWNED BY regress_idem_etl;
DROP ROLE regress_idem_etl;
