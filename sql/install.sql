-- What CREATE EXTENSION leaves behind, and what it may not.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS idempotency;
CREATE EXTENSION idempotency;

-- every object has a comment
SELECT pg_describe_object(d.classid, d.objid, 0) AS object_without_comment
  FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
   AND e.extname = 'idempotency'
   AND obj_description(d.objid, d.classid::regclass::text) IS NULL
   AND NOT (d.classid = 'pg_type'::regclass)
 ORDER BY 1;
SELECT c.relname, a.attname AS column_without_comment
  FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
  JOIN pg_class c ON c.oid = d.objid AND d.classid = 'pg_class'::regclass
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
   AND e.extname = 'idempotency' AND c.relkind IN ('r', 'v', 'p', 'f')
   AND col_description(c.oid, a.attnum) IS NULL
 ORDER BY 1, a.attnum;
SELECT c.relname, t.tgname AS trigger_without_comment
  FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
  JOIN pg_class c ON c.oid = d.objid AND d.classid = 'pg_class'::regclass
  JOIN pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal
 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
   AND e.extname = 'idempotency'
   AND obj_description(t.oid, 'pg_trigger') IS NULL
 ORDER BY 1, 2;

-- every table and sequence is dumped with its rows
SELECT c.relname AS not_in_dumps
  FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
  JOIN pg_class c ON c.oid = d.objid AND d.classid = 'pg_class'::regclass
 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
   AND e.extname = 'idempotency' AND c.relkind IN ('r', 'p', 'S')
   AND c.oid <> ALL (e.extconfig)
 ORDER BY 1;

-- tables carry the extension's prefix, and are nobody's but the owner's
SELECT c.relname AS misnamed_table
  FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
  JOIN pg_class c ON c.oid = d.objid AND d.classid = 'pg_class'::regclass
 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
   AND e.extname = 'idempotency' AND c.relkind IN ('r', 'p')
   AND c.relname <> 'transaction_log' AND c.relname !~ '^idempotency_'
 ORDER BY 1;
SELECT c.relname AS granted, a.grantee::regrole, a.privilege_type
  FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
  JOIN pg_class c ON c.oid = d.objid AND d.classid = 'pg_class'::regclass
  CROSS JOIN LATERAL aclexplode(c.relacl) a
 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
   AND e.extname = 'idempotency' AND a.grantee <> c.relowner
 ORDER BY 1, 2, 3;

-- PUBLIC has the pure helpers and nothing else
SELECT p.proname AS for_everybody
  FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
  JOIN pg_proc p ON p.oid = d.objid AND d.classid = 'pg_proc'::regclass
 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
   AND e.extname = 'idempotency'
   AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                WHERE a.grantee = 0)
 ORDER BY 1;

-- a function with its owner's rights pins its search_path
SELECT p.proname AS definer_without_path
  FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
  JOIN pg_proc p ON p.oid = d.objid AND d.classid = 'pg_proc'::regclass
 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
   AND e.extname = 'idempotency' AND p.prosecdef
   AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)
 ORDER BY 1;

-- signatures
SELECT p.proname, pg_get_function_arguments(p.oid) AS arguments
  FROM pg_proc p
 WHERE p.proname IN ('idem_claim', 'idem_lookup', 'idem_finish', 'idem_fail',
                     'idem_release', 'idem_extend', 'idem_resolve',
                     'idem_fingerprint', 'idem_configure', 'idem_unconfigure',
                     'idem_backoff', 'idem_grant', 'idem_revoke')
 ORDER BY p.proname COLLATE "C" \gx
SELECT p.proname, pg_get_function_result(p.oid) AS result
  FROM pg_proc p
 WHERE p.proname IN ('idem_claim', 'idem_lookup', 'idem_finish', 'idem_fail',
                     'idem_release', 'idem_extend', 'idem_resolve',
                     'idem_fingerprint', 'idem_configure', 'idem_unconfigure',
                     'idem_backoff', 'idem_grant', 'idem_revoke')
 ORDER BY p.proname COLLATE "C" \gx

-- labels: whatever writes is volatile and unsafe in parallel workers
SELECT p.proname, p.provolatile AS volatility, p.proparallel AS parallel,
       p.proisstrict AS strict, p.proretset AS set, p.prorows AS rows, p.prosecdef AS definer
  FROM pg_proc p
 WHERE p.proname IN ('idem_claim', 'idem_lookup', 'idem_finish', 'idem_fail',
                     'idem_release', 'idem_extend', 'idem_resolve',
                     'idem_fingerprint', 'idem_configure', 'idem_unconfigure',
                     'idem_backoff', 'idem_grant', 'idem_revoke')
 ORDER BY p.proname COLLATE "C";

-- the log: columns that users of the pattern know
SELECT attname, format_type(atttypid, atttypmod) AS type, attnotnull AS required
  FROM pg_attribute
 WHERE attrelid = 'transaction_log'::regclass
   AND attname IN ('scope', 'request_id', 'status', 'request_body', 'response_body',
                   'created_at', 'completed_at', 'fingerprint', 'response_code',
                   'response_headers', 'response_bytes', 'attempt', 'token',
                   'locked_until', 'retry_at', 'expires_at', 'claimed_by', 'ttl', 'error')
 ORDER BY attname COLLATE "C";
SELECT a.attname, c.collname
  FROM pg_index i
  CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indcollation::oid[]) WITH ORDINALITY k (attnum, coll, n)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
  JOIN pg_collation c ON c.oid = k.coll
 WHERE i.indrelid = 'transaction_log'::regclass AND i.indisprimary
 ORDER BY k.n;
SELECT DISTINCT a.attname AS key_not_in_c
  FROM pg_attribute a
 WHERE a.attrelid = 'transaction_log'::regclass AND a.attname IN ('scope', 'request_id')
   AND a.attcollation <> 'pg_catalog."C"'::regcollation;
SELECT a.attname AS not_timestamptz
  FROM pg_attribute a
 WHERE a.attrelid = 'transaction_log'::regclass AND a.attnum > 0
   AND a.atttypid IN ('timestamp'::regtype, 'date'::regtype, 'time'::regtype, 'timetz'::regtype);
SELECT 'vacuum_truncate=off' = ANY (reloptions) OR 'vacuum_truncate=false' = ANY (reloptions) AS no_truncate_lock
  FROM pg_class WHERE oid = 'transaction_log'::regclass;
\set VERBOSITY terse
INSERT INTO transaction_log (token, life, created_at, due_at, claimed_xact, attempt, scope, request_id, claimed_by, ttl, lease, status)
VALUES (1, 1, now(), now(), '1', 1, '', 'install-1', 'x', '1h', '1h', 'done');
\set VERBOSITY default

-- settings
SELECT name, setting, unit, context FROM pg_settings
 WHERE name IN ('idempotency.default_ttl', 'idempotency.default_lease', 'idempotency.default_wait',
                'idempotency.default_once_ttl', 'idempotency.store_request', 'idempotency.require_scope',
                'idempotency.unfinished_at_commit', 'idempotency.purge_interval',
                'idempotency.databases', 'idempotency.track', 'idempotency.test_clock')
 ORDER BY name COLLATE "C";
SELECT name FROM pg_settings WHERE name IN ('idempotency.purge_batch_size', 'idempotency.purge_delay') ORDER BY 1;
SHOW idempotency.default_ttl;
SHOW idempotency.default_lease;
SHOW idempotency.default_once_ttl;
SHOW idempotency.purge_interval;
-- a misspelt one is refused
\set VERBOSITY sqlstate
SET idempotency.defualt_ttl = '1h';
SET idempotency.default_ttl = 0;
SET idempotency.default_lease = 0;
SET idempotency.default_wait = -1;
SET idempotency.require_scope = 'perhaps';
SET idempotency.unfinished_at_commit = 'perhaps';
SET idempotency.test_clock = 'infinity';
SET idempotency.test_clock = 'soon';
\set VERBOSITY default

-- not relocatable, and what is dropped comes back whole
SELECT extrelocatable FROM pg_extension WHERE extname = 'idempotency';
\set VERBOSITY sqlstate
ALTER EXTENSION idempotency SET SCHEMA information_schema;
\set VERBOSITY default
SELECT outcome FROM idem_claim('install-2');
BEGIN;
DROP EXTENSION idempotency;
ROLLBACK;
SELECT status FROM idem_lookup('install-2');
DROP EXTENSION idempotency;
CREATE EXTENSION idempotency;
SELECT count(*) FROM idem_lookup('install-2');
SELECT outcome, attempt FROM idem_claim('install-2');
DELETE FROM transaction_log WHERE request_id LIKE 'install-%';
