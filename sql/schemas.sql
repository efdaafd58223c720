-- The extension lives in any schema, whatever its name, and is found there.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS idempotency;
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE SCHEMA "Odd Schema; DROP";
CREATE EXTENSION idempotency SCHEMA "Odd Schema; DROP";
SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'idempotency';
-- all of it is there and nowhere else
SELECT n.nspname, count(*) > 0 AS objects
  FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'idempotency'
  LEFT JOIN pg_class c ON c.oid = d.objid AND d.classid = 'pg_class'::regclass
  LEFT JOIN pg_proc p ON p.oid = d.objid AND d.classid = 'pg_proc'::regclass
  LEFT JOIN pg_namespace n ON n.oid = coalesce(c.relnamespace, p.pronamespace)
 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND (c.oid IS NOT NULL OR p.oid IS NOT NULL)
 GROUP BY 1;

SELECT outcome, attempt FROM "Odd Schema; DROP".idem_claim('sch-1', '{"a": 1}');
SELECT outcome, differs FROM "Odd Schema; DROP".idem_claim('sch-1', '{"a": 2}');
SELECT "Odd Schema; DROP".idem_finish('sch-1', '1', token => token) FROM "Odd Schema; DROP".transaction_log;
SELECT outcome, response_body FROM "Odd Schema; DROP".idem_claim('sch-1');
SELECT "Odd Schema; DROP".idem_configure('s', on_lease_expiry => 'manual');
BEGIN;
SET LOCAL idempotency.test_clock = '2030-01-01 00:00:00';
SELECT outcome FROM "Odd Schema; DROP".idem_claim('sch-2', scope => 's', lease => '1 min');
COMMIT;
SET idempotency.test_clock = '2030-01-01 01:00:00';
SELECT request_id, kind, settle FROM "Odd Schema; DROP".idem_review;
SELECT replace(settle, 'completed | failed | retry', 'failed') AS call FROM "Odd Schema; DROP".idem_review \gset
:call;
SELECT request_id, status FROM "Odd Schema; DROP".idem_log ORDER BY 1;
RESET idempotency.test_clock;

-- a granted role may look into the schema and call; a revoked one may not call
CREATE ROLE regress_idem_sch;
SELECT "Odd Schema; DROP".idem_grant('regress_idem_sch', true);
SELECT has_schema_privilege('regress_idem_sch', 'Odd Schema; DROP', 'USAGE') AS usage,
       has_schema_privilege('regress_idem_sch', 'Odd Schema; DROP', 'CREATE') AS create;
SET ROLE regress_idem_sch;
SET search_path = "Odd Schema; DROP";
SELECT outcome FROM idem_claim('sch-3');
SELECT count(*) FROM idem_log;
SELECT idem_unconfigure('s');
RESET search_path;
RESET ROLE;
SELECT "Odd Schema; DROP".idem_revoke('regress_idem_sch');
SELECT has_function_privilege('regress_idem_sch', '"Odd Schema; DROP".idem_unconfigure(text)', 'EXECUTE') AS revoked;
DROP OWNED BY regress_idem_sch;
DROP ROLE regress_idem_sch;

-- it stays where it is; the schema may be renamed
\set VERBOSITY sqlstate
ALTER EXTENSION idempotency SET SCHEMA public;
\set VERBOSITY default
ALTER SCHEMA "Odd Schema; DROP" RENAME TO odd;
SELECT outcome FROM odd.idem_claim('sch-1');
SELECT outcome FROM odd.idem_claim('sch-4');
SELECT count(*) FROM odd.idem_log;

-- dropped and created elsewhere in the same session: found anew
DROP EXTENSION idempotency;
CREATE EXTENSION idempotency SCHEMA public;
SELECT outcome FROM idem_claim('sch-1');
DROP EXTENSION idempotency;
CREATE SCHEMA other;
CREATE EXTENSION idempotency SCHEMA other;
SELECT outcome FROM other.idem_claim('sch-1');
SELECT outcome FROM other.idem_claim('sch-1');
-- also where that is rolled back
BEGIN;
DROP EXTENSION idempotency;
CREATE EXTENSION idempotency SCHEMA odd;
SELECT outcome FROM odd.idem_claim('sch-1');
SELECT odd.idem_finish('sch-1', '"odd"');
ROLLBACK;
SELECT outcome FROM other.idem_claim('sch-1');
-- a savepoint
BEGIN;
SELECT outcome FROM other.idem_claim('sch-5');
SAVEPOINT s;
DROP EXTENSION idempotency;
ROLLBACK TO s;
SELECT other.idem_finish('sch-5', '5');
COMMIT;
SELECT outcome, response_body FROM other.idem_claim('sch-5');
DROP EXTENSION idempotency;

-- objects that somebody put there before are not taken for the extension's
CREATE FUNCTION other.idem_claim(request_id text, request_body jsonb, scope text, ttl interval, lease interval, wait interval, fingerprint bytea)
    RETURNS text LANGUAGE sql AS $$ SELECT 'captured'::text $$;
\set VERBOSITY sqlstate
CREATE EXTENSION idempotency SCHEMA other;
DROP FUNCTION other.idem_claim;
CREATE TABLE other.transaction_log (scope text);
CREATE EXTENSION idempotency SCHEMA other;
DROP TABLE other.transaction_log;
CREATE VIEW other.idem_review AS SELECT 1;
CREATE EXTENSION idempotency SCHEMA other;
DROP VIEW other.idem_review;
\set VERBOSITY default
-- operators and types in the target schema, made before, are not used
CREATE FUNCTION other.no(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$;
CREATE OPERATOR other.= (LEFTARG = text, RIGHTARG = text, FUNCTION = other.no);
CREATE OPERATOR other.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = other.no);
CREATE DOMAIN other.text AS integer;
CREATE EXTENSION idempotency SCHEMA other;
SELECT outcome FROM other.idem_claim('sch-6');
SELECT outcome FROM other.idem_claim('sch-6');
SELECT request_id, status FROM other.idem_log;
SELECT DISTINCT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'other.transaction_log'::regclass AND attname IN ('scope', 'status');
DROP EXTENSION idempotency;

DROP SCHEMA odd, other CASCADE;
CREATE EXTENSION idempotency;
