-- Who may do what: nobody anything that was not granted, and nothing in scopes of others.
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
CREATE ROLE regress_idem_app;
CREATE ROLE regress_idem_admin;
CREATE ROLE regress_idem_stranger;
CREATE ROLE regress_idem_tenant NOLOGIN;
CREATE ROLE regress_idem_member IN ROLE regress_idem_tenant;
CREATE ROLE regress_idem_noinherit NOINHERIT IN ROLE regress_idem_tenant;
GRANT USAGE ON SCHEMA public TO PUBLIC;

-- a stranger has the pure helpers alone
SET ROLE regress_idem_stranger;
SELECT length(idem_fingerprint('{}')), idem_backoff(1, jitter => 'none');
CREATE FUNCTION pg_temp.try(call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'SELECT ' || call;
    RETURN 'allowed';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
SELECT c, pg_temp.try(c)
  FROM unnest(ARRAY['idem_claim(''priv'')', 'idem_lookup(''priv'')', 'idem_finish(''priv'')', 'idem_fail(''priv'')', 'idem_release(''priv'')',
                    'idem_extend(''priv'')', 'idem_resolve(''priv'', ''failed'')', 'idem_configure(''priv'')', 'idem_unconfigure(''priv'')',
                    'idem_grant(''regress_idem_stranger'')', 'idem_revoke(''regress_idem_app'')', 'idem_clock()', 'idem_scope_is_open('''')',
                    'count(*) FROM idem_review', 'count(*) FROM idem_log', 'count(*) FROM transaction_log', 'count(*) FROM idempotency_scope']) c;
RESET ROLE;

-- an application
SELECT idem_grant('regress_idem_app');
SELECT idem_grant('regress_idem_app') AS again;
SET ROLE regress_idem_app;
SELECT c, probe.sqlstate('SELECT ' || c)
  FROM unnest(ARRAY['idem_claim(''priv-1'')', 'idem_lookup(''priv-1'')', 'idem_extend(''priv-1'')', 'idem_fail(''priv-1'', retry_after => ''0'')',
                    'idem_claim(''priv-1'')', 'idem_release(''priv-1'')', 'idem_claim(''priv-1'')', 'idem_finish(''priv-1'')', 'count(*) FROM idem_review',
                    'idem_resolve(''priv'', ''failed'')', 'idem_configure(''priv'')', 'idem_unconfigure(''priv'')',
                    'idem_grant(''regress_idem_stranger'')', 'idem_revoke(''regress_idem_app'')', 'count(*) FROM idem_log',
                    'count(*) FROM transaction_log', 'count(*) FROM idempotency_scope']) c;
SELECT token FROM idem_claim('priv-2') \gset
SELECT idem_finish('priv-2', '"by app"', token => :token);
SELECT outcome, response_body FROM idem_claim('priv-2');
RESET ROLE;
SELECT claimed_by FROM transaction_log WHERE request_id = 'priv-2';
\set VERBOSITY sqlstate
SET ROLE regress_idem_app;
UPDATE transaction_log SET status = 'completed';
DELETE FROM transaction_log;
INSERT INTO idempotency_scope (scope) VALUES ('priv');
TRUNCATE transaction_log;
BEGIN;
LOCK TABLE transaction_log IN ACCESS SHARE MODE;
ROLLBACK;
SELECT token FROM idem_log;
\set VERBOSITY default
RESET ROLE;

-- of the extension's functions it may call all but those that define, decide or list
CREATE VIEW probe.extension_functions AS
    SELECT p.oid, p.proname, p.prorettype = 'trigger'::regtype AS is_trigger,
           p.proname = ANY ('{idem_configure,idem_unconfigure,idem_provider,idem_machine,idem_guard_state,idem_guard_version,idem_unguard,
                              idem_purge,idem_purge_all,idem_resolve,idem_grant,idem_revoke,idem_stat_reset}') AS for_administrators
      FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'idempotency'
      JOIN pg_proc p ON p.oid = d.objid AND d.classid = 'pg_proc'::regclass
     WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND p.proname ~ '^idem_';
SELECT proname FROM probe.extension_functions WHERE NOT is_trigger AND has_function_privilege('regress_idem_app', oid, 'EXECUTE') = for_administrators;
SELECT proname FROM probe.extension_functions WHERE is_trigger AND has_function_privilege('regress_idem_app', oid, 'EXECUTE');

-- an administering role
SELECT idem_grant('regress_idem_admin', administer => true);
SET ROLE regress_idem_admin;
SELECT c, probe.sqlstate('SELECT ' || c)
  FROM unnest(ARRAY['idem_claim(''priv-3'')', 'idem_resolve(''priv-3'', ''failed'', force => true)', 'idem_configure(''priv'')', 'idem_unconfigure(''priv'')',
                    'idem_grant(''regress_idem_stranger'')', 'idem_revoke(''regress_idem_stranger'')', 'count(*) FROM idem_log', 'count(*) FROM idem_review',
                    'count(*) FROM transaction_log', 'count(*) FROM idempotency_scope']) c;
SELECT scope, request_id, status, attempt, response_code, claimed_by FROM idem_log WHERE request_id LIKE 'priv-%' ORDER BY request_id;
RESET ROLE;
SELECT proname FROM probe.extension_functions WHERE NOT is_trigger AND NOT has_function_privilege('regress_idem_admin', oid, 'EXECUTE');
SELECT a.attname AS shown FROM pg_attribute a WHERE a.attrelid = 'idem_log'::regclass AND a.attnum > 0
   AND a.attname ~ 'token|life|body|headers|bytes|error|fingerprint';
SELECT has_function_privilege('regress_idem_stranger', 'idem_release(text,bigint,text)', 'EXECUTE') AS stranger_has_nothing_left;
-- granted by an administrator, taken back by the owner, and the other way round
SET ROLE regress_idem_admin;
SELECT idem_grant('regress_idem_stranger');
RESET ROLE;
SELECT idem_revoke('regress_idem_stranger');
SELECT idem_grant('regress_idem_stranger', true);
SET ROLE regress_idem_admin;
SELECT idem_revoke('regress_idem_stranger');
RESET ROLE;
SELECT p.proname, a.grantee::regrole FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a WHERE a.grantee = 'regress_idem_stranger'::regrole
UNION ALL
SELECT c.relname, a.grantee::regrole FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a WHERE a.grantee = 'regress_idem_stranger'::regrole;
-- the tables were given to nobody all the while
SELECT c.relname FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
 WHERE c.relname IN ('transaction_log', 'idempotency_scope') AND a.grantee <> c.relowner;

CREATE FUNCTION probe.as_role(role text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role);
    result := probe.sqlstate(statement);
    RESET ROLE;
    RETURN result;
END $$;

-- a scope with an owner
SELECT idem_configure('priv/t', owner => 'regress_idem_tenant', on_lease_expiry => 'manual');
SELECT idem_grant(r::regrole) FROM unnest('{regress_idem_member,regress_idem_noinherit,regress_idem_tenant}'::text[]) r;
SET ROLE regress_idem_member;
SELECT outcome FROM idem_claim('priv-there', '{"a": 1}', 'priv/t', lease => '1 min');
SELECT outcome FROM idem_claim('priv-there', '{"a": 1}', 'priv/t/below', lease => '1 min');
SELECT outcome FROM idem_claim('priv-done', '{"a": 1}', 'priv/t');
RESET ROLE;
SET ROLE regress_idem_tenant;
SELECT outcome FROM idem_claim('priv-there', '{"a": 1}', 'priv/t');
RESET ROLE;
SELECT outcome AS for_superuser FROM idem_claim('priv-there', '{"a": 1}', 'priv/t');
SET idempotency.test_clock = '2030-01-01 00:02:00';

-- closed to others with one and the same message, whether the key exists or not
CREATE TABLE probe.closed (n int GENERATED ALWAYS AS IDENTITY, call text);
INSERT INTO probe.closed (call) VALUES
    ('idem_claim(%L, scope => %L)'), ('idem_claim(%L, ''{"a": 2}'', %L)'), ('idem_claim(%L, scope => %L, wait => ''1h'')'),
    ('idem_lookup(%L, %L)'), ('idem_finish(%L, scope => %L)'), ('idem_finish(%L, token => 1, scope => %L)'),
    ('idem_fail(%L, scope => %L)'), ('idem_release(%L, scope => %L)'), ('idem_release(%L, 1, %L)'),
    ('idem_extend(%L, scope => %L)'), ('idem_extend(%L, token => 1, scope => %L)'),
    ('idem_resolve(%L, ''failed'', scope => %L)'), ('idem_resolve(%L, ''retry'', scope => %L, force => true)');
GRANT SELECT ON probe.closed TO PUBLIC;
CREATE FUNCTION probe.all_of(statement text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(r, E'\n') FROM probe.raises(statement) r $$;
CREATE VIEW probe.answers AS
    SELECT k.key, s.scope, c.call, replace(probe.all_of(format('SELECT ' || c.call, k.key, s.scope)), s.scope, '*') AS answer
      FROM probe.closed c, (VALUES ('priv-there'), ('priv-done'), ('priv-absent')) k (key), (VALUES ('priv/t'), ('priv/t/below')) s (scope);
GRANT SELECT ON probe.answers TO PUBLIC;
-- (the functions inside a view run as its reader)
SET ROLE regress_idem_app;
SELECT probe.raises('SELECT idem_lookup(''priv-there'', ''priv/t'')');
SELECT answer, count(*) FROM probe.answers WHERE call !~ 'resolve' GROUP BY 1;
SELECT count(*) FROM idem_review WHERE scope ~ '^priv/t';
RESET ROLE;
SET ROLE regress_idem_admin;
SELECT answer, count(*) FROM probe.answers GROUP BY 1;
SELECT count(*) FROM idem_review WHERE scope ~ '^priv/t';
SELECT count(*) FROM idem_log WHERE scope ~ '^priv/t';
SELECT probe.raises('SELECT idem_configure(''priv/t'', owner => ''regress_idem_admin'')');
SELECT probe.raises('SELECT idem_configure(''priv/t/below'', owner => ''regress_idem_admin'')');
SELECT probe.raises('SELECT idem_unconfigure(''priv/t'')');
SELECT probe.raises('SELECT idem_unconfigure(''priv/t/below'')');
-- nor does any other call tell how the scope is defined
SELECT idem_review_kind('priv/t', 'processing', 1, 0, 0, '-infinity', NULL, NULL, NULL);
SELECT idem_scope_is_open('priv/t'), idem_scope_is_open('priv');
-- a function that looks on in the views sees nothing of it
CREATE FUNCTION pg_temp.peek(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$
BEGIN
    IF $1 IN ('priv-there', 'priv-done') THEN
        RAISE WARNING 'seen: %', $1;
    END IF;
    RETURN true;
END $$;
SELECT count(*) FROM idem_log WHERE pg_temp.peek(request_id) AND request_id LIKE 'priv-t%';
SELECT count(*) FROM idem_review WHERE pg_temp.peek(request_id);
RESET ROLE;
-- the owner's members see it
SET ROLE regress_idem_member;
SELECT scope, request_id, kind FROM idem_review ORDER BY 1, 2;
SELECT status FROM idem_lookup('priv-there', 'priv/t/below');
RESET ROLE;
-- a member without inheritance has not the privileges
SET ROLE regress_idem_noinherit;
SELECT probe.sqlstate('SELECT idem_lookup(''priv-there'', ''priv/t'')');
RESET ROLE;

-- judged by the role at the call, in turns, also in one prepared statement
PREPARE look AS SELECT status FROM idem_lookup('priv-done', 'priv/t');
CREATE TABLE probe.seen (role name, answer text);
GRANT INSERT, SELECT ON probe.seen TO PUBLIC;
DO $$
BEGIN
    FOR i IN 1..50 LOOP
        SET LOCAL ROLE regress_idem_member;
        INSERT INTO probe.seen SELECT current_user, probe.sqlstate('SELECT idem_lookup(''priv-done'', ''priv/t'')');
        SET LOCAL ROLE regress_idem_app;
        INSERT INTO probe.seen SELECT current_user, probe.sqlstate('SELECT idem_lookup(''priv-done'', ''priv/t'')');
    END LOOP;
END $$;
SELECT role, answer, count(*) FROM probe.seen GROUP BY 1, 2 ORDER BY 1;
SET ROLE regress_idem_member;
EXECUTE look;
RESET ROLE;
SET ROLE regress_idem_app;
\set VERBOSITY sqlstate
EXECUTE look;
\set VERBOSITY default
RESET ROLE;
DEALLOCATE look;
-- in a function with its owner's rights it is the owner who calls
CREATE FUNCTION probe.as_owner() RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
    AS $$ SELECT status FROM idem_lookup('priv-done', 'priv/t') $$;
ALTER FUNCTION probe.as_owner() OWNER TO regress_idem_tenant;
SET ROLE regress_idem_app;
SELECT probe.as_owner();
RESET ROLE;
-- membership that is taken away ends it at once
REVOKE regress_idem_tenant FROM regress_idem_member;
SET ROLE regress_idem_member;
SELECT probe.sqlstate('SELECT idem_lookup(''priv-there'', ''priv/t'')');
RESET ROLE;

-- a child that names an owner of its own; a child's policy opens no door
SELECT idem_configure('priv/t/own', owner => 'regress_idem_app'), idem_configure('priv/t/policy', lease => '5s');
SET ROLE regress_idem_app;
SELECT outcome FROM idem_claim('priv-4', scope => 'priv/t/own');
SELECT probe.sqlstate('SELECT idem_claim(''priv-4'', scope => ''priv/t/policy'')');
RESET ROLE;
SET ROLE regress_idem_tenant;
SELECT probe.sqlstate('SELECT idem_claim(''priv-4'', scope => ''priv/t/own'')');
SELECT outcome FROM idem_claim('priv-4', scope => 'priv/t/policy');
RESET ROLE;
-- an owner of '' owns all that nobody else does
SELECT idem_configure('', owner => 'regress_idem_tenant');
SET ROLE regress_idem_app;
SELECT probe.sqlstate('SELECT idem_claim(''priv-5'')'), probe.sqlstate('SELECT idem_claim(''priv-5'', scope => ''any/where'')'),
       probe.sqlstate('SELECT idem_claim(''priv-5'', scope => ''priv/t/own/x'')');
RESET ROLE;
SELECT idem_unconfigure('');

-- a renamed owner is still the owner, and a new role of the old name is not;
-- on another server, after a restore, it is the name that counts
GRANT regress_idem_tenant TO regress_idem_member;
ALTER ROLE regress_idem_tenant RENAME TO regress_idem_renamed;
CREATE ROLE regress_idem_tenant IN ROLE regress_idem_app;
SELECT probe.as_role('regress_idem_member', 'SELECT idem_lookup(''priv-there'', ''priv/t'')') AS member,
       probe.as_role('regress_idem_tenant', 'SELECT idem_lookup(''priv-there'', ''priv/t'')') AS namesake;
UPDATE idempotency_scope SET owner_system = owner_system + 1 WHERE scope = 'priv/t';
SELECT probe.as_role('regress_idem_member', 'SELECT idem_lookup(''priv-there'', ''priv/t'')') AS member,
       probe.as_role('regress_idem_tenant', 'SELECT idem_lookup(''priv-there'', ''priv/t'')') AS namesake;
UPDATE idempotency_scope SET owner_system = owner_system - 1 WHERE scope = 'priv/t';
DROP ROLE regress_idem_tenant;
ALTER ROLE regress_idem_renamed RENAME TO regress_idem_tenant;

-- the owner's role is gone: closed to all but superusers
REASSIGN OWNED BY regress_idem_tenant TO CURRENT_USER;
SELECT idem_revoke('regress_idem_tenant');
SELECT idem_revoke('regress_idem_noinherit'), idem_revoke('regress_idem_member');
DROP OWNED BY regress_idem_tenant;
DROP ROLE regress_idem_tenant;
SELECT idem_grant('regress_idem_member');
SET ROLE regress_idem_member;
SELECT answer, count(*) FROM probe.answers WHERE call !~ 'resolve' GROUP BY 1;
RESET ROLE;
SET ROLE regress_idem_admin;
SELECT answer, count(*) FROM probe.answers GROUP BY 1;
SELECT count(*) FROM idem_review WHERE scope ~ '^priv/t';
SELECT count(*) FROM idem_log WHERE scope ~ '^priv/t' AND scope <> 'priv/t/own';
RESET ROLE;
SELECT status FROM idem_lookup('priv-there', 'priv/t');
SELECT idem_configure('priv/t', owner => 'regress_idem_member');
SET ROLE regress_idem_member;
SELECT status FROM idem_lookup('priv-there', 'priv/t');
RESET ROLE;

-- roles with odd names
CREATE ROLE "regress idem ""odd"" ; DROP";
SELECT idem_grant('"regress idem ""odd"" ; DROP"', true);
SELECT has_function_privilege('regress idem "odd" ; DROP', 'idem_claim(text,jsonb,text,interval,interval,interval,bytea)', 'EXECUTE');
SELECT idem_revoke('"regress idem ""odd"" ; DROP"');
SELECT has_function_privilege('regress idem "odd" ; DROP', 'idem_claim(text,jsonb,text,interval,interval,interval,bytea)', 'EXECUTE');
DROP ROLE "regress idem ""odd"" ; DROP";
-- settings that decide for others are for superusers
SET ROLE regress_idem_admin;
SELECT s, probe.sqlstate(format('SET idempotency.%s', s))
  FROM unnest(ARRAY['require_scope = off', 'test_clock = ''2030-01-01''', 'track = off', 'purge_batch_size = 1', 'default_ttl = ''1h''',
                    'default_lease = ''1s''', 'default_wait = 0', 'store_request = off', 'unfinished_at_commit = warn']) s;
RESET ROLE;

-- the owner's own rights are not to be revoked
SELECT idem_revoke(extowner::regrole) FROM pg_extension WHERE extname = 'idempotency';
SELECT count(*) FROM pg_proc p, pg_extension x WHERE p.proname = 'idem_claim' AND extname = 'idempotency'
   AND EXISTS (SELECT FROM aclexplode(p.proacl) WHERE grantee = extowner AND privilege_type = 'EXECUTE');

SELECT bool_and(idem_unconfigure(s)) FROM unnest('{priv/t,priv/t/own,priv/t/policy}'::text[]) s;
SELECT idem_revoke('regress_idem_app'), idem_revoke('regress_idem_admin'), idem_revoke('regress_idem_member');
RESET ALL;
SET client_min_messages = warning;
DELETE FROM transaction_log WHERE request_id LIKE 'priv%';
DROP SCHEMA probe CASCADE;
DROP OWNED BY regress_idem_app, regress_idem_admin, regress_idem_stranger, regress_idem_member, regress_idem_noinherit;
DROP ROLE regress_idem_app, regress_idem_admin, regress_idem_stranger, regress_idem_member, regress_idem_noinherit;
