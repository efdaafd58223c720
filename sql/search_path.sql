-- Nothing depends on search_path, and nothing of an attacker's is run through it.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
CREATE ROLE regress_idem_attacker;
CREATE ROLE regress_idem_victim;
SELECT idem_grant('regress_idem_victim', administer => true);
CREATE SCHEMA evil AUTHORIZATION regress_idem_attacker;
GRANT USAGE ON SCHEMA evil TO PUBLIC;

-- everything that the extension or its callers could mean, under the same name
SET ROLE regress_idem_attacker;
CREATE TABLE evil.trapped (who name, what text);
GRANT INSERT, SELECT ON evil.trapped TO PUBLIC;
CREATE FUNCTION evil.trap(what pg_catalog.text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO evil.trapped VALUES (current_user, what);
END $$;
CREATE TABLE evil.transaction_log (scope pg_catalog.text, request_id pg_catalog.text, status pg_catalog.text, token pg_catalog.int8);
CREATE TABLE evil.idempotency_scope (scope pg_catalog.text PRIMARY KEY, owner_name pg_catalog.text);
INSERT INTO evil.idempotency_scope VALUES ('', 'regress_idem_attacker');
GRANT ALL ON evil.transaction_log, evil.idempotency_scope TO PUBLIC;
CREATE FUNCTION evil.writes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.trap('trigger ' || tg_table_name); RETURN NEW; END $$;
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON evil.transaction_log FOR EACH ROW EXECUTE FUNCTION evil.writes();
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON evil.idempotency_scope FOR EACH ROW EXECUTE FUNCTION evil.writes();
CREATE VIEW evil.idem_review AS SELECT 'evil'::pg_catalog.text AS request_id;
CREATE VIEW evil.idem_log AS SELECT 'evil'::pg_catalog.text AS request_id;
CREATE VIEW evil.pg_proc AS SELECT * FROM pg_catalog.pg_proc WHERE evil.trap('pg_proc') IS NOT NULL;
CREATE VIEW evil.pg_namespace AS SELECT * FROM pg_catalog.pg_namespace WHERE evil.trap('pg_namespace') IS NOT NULL;
CREATE VIEW evil.pg_extension AS SELECT * FROM pg_catalog.pg_extension WHERE evil.trap('pg_extension') IS NOT NULL;
CREATE VIEW evil.pg_depend AS SELECT * FROM pg_catalog.pg_depend WHERE evil.trap('pg_depend') IS NOT NULL;
GRANT SELECT ON ALL TABLES IN SCHEMA evil TO PUBLIC;
DO $do$
DECLARE
    f record;
BEGIN
    -- functions: the extension's own, and those of the server that scripts and views lean on
    FOR f IN SELECT * FROM (VALUES
        ('idem_clock', '', 'timestamptz'), ('idem_scope_is_open', 'text', 'bool'),
        ('idem_review_kind', 'text, text, int4, int4, int4, timestamptz, timestamptz, timestamptz, text', 'text'),
        ('idem_definition_changed', 'text', 'text'), ('idem_resolve', 'text, text', 'bool'),
        ('format', 'text, text', 'text'), ('format', 'text, text, text, text, text', 'text'), ('now', '', 'timestamptz'),
        ('clock_timestamp', '', 'timestamptz'), ('lower', 'text', 'text'), ('texteq', 'text, text', 'bool'),
        ('timestamptz_le', 'timestamptz, timestamptz', 'bool'), ('byteaeq', 'bytea, bytea', 'bool'), ('jsonb_eq', 'jsonb, jsonb', 'bool'),
        ('numeric_eq', 'numeric, numeric', 'bool'), ('interval_cmp', 'interval, interval', 'int4'),
        ('pg_get_function_identity_arguments', 'oid', 'text'), ('quote_ident', 'text', 'text')) v (name, args, result)
    LOOP
        EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS pg_catalog.%s LANGUAGE plpgsql AS $f$ BEGIN PERFORM evil.trap(%L); RETURN NULL; END $f$',
                       f.name, regexp_replace(f.args, '(\w+)', 'pg_catalog.\1', 'g'), f.result, 'function ' || f.name);
    END LOOP;
    -- operators
    FOR f IN SELECT * FROM (VALUES
        ('=', 'text', 'text'), ('<>', 'text', 'text'), ('=', 'oid', 'oid'), ('=', 'name', 'name'), ('=', 'char', 'char'), ('=', 'int4', 'int4'), ('=', 'int8', 'int8'),
        ('=', 'timestamptz', 'timestamptz'), ('<=', 'timestamptz', 'timestamptz'), ('<', 'timestamptz', 'timestamptz'), ('>', 'timestamptz', 'timestamptz'),
        ('=', 'jsonb', 'jsonb'), ('=', 'bytea', 'bytea'), ('=', 'interval', 'interval'), ('||', 'text', 'text')) v (name, l, r)
    LOOP
        EXECUTE format('CREATE FUNCTION evil.%I(pg_catalog.%I, pg_catalog.%I) RETURNS pg_catalog.bool LANGUAGE plpgsql AS $f$ BEGIN PERFORM evil.trap(%L); RETURN true; END $f$',
                       'op_' || f.name || '_' || f.l, f.l, f.r, 'operator ' || f.name || ' ' || f.l);
        EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = pg_catalog.%I, RIGHTARG = pg_catalog.%I, FUNCTION = evil.%I)',
                       f.name, f.l, f.r, 'op_' || f.name || '_' || f.l);
    END LOOP;
    -- types
    FOR f IN SELECT unnest('{text,jsonb,interval,timestamptz,bytea,int4,int8,regclass,regrole,oid,name,bool}'::text[]) AS name LOOP
        EXECUTE format('CREATE DOMAIN evil.%I AS pg_catalog.%I CHECK (evil.trap(%L) IS NOT NULL AND false)', f.name, f.name, 'type ' || f.name);
    END LOOP;
END $do$;
-- and in the schema of temporary objects of the session
RESET ROLE;
CREATE TEMP TABLE transaction_log (LIKE evil.transaction_log);
CREATE TEMP TABLE idempotency_scope (LIKE evil.idempotency_scope);
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON pg_temp.transaction_log FOR EACH ROW EXECUTE FUNCTION evil.writes();
CREATE TEMP VIEW pg_proc AS SELECT * FROM evil.pg_proc;
CREATE TEMP VIEW idem_log AS SELECT * FROM evil.idem_log;
GRANT ALL ON pg_temp.transaction_log, pg_temp.idempotency_scope, pg_temp.pg_proc, pg_temp.idem_log TO PUBLIC;
-- the traps work
SET search_path = pg_temp, evil, pg_catalog;
SELECT format('a', 'b'), 'a'::pg_catalog.text = 'b'::pg_catalog.text AS equal;
RESET search_path;
SELECT what FROM evil.trapped ORDER BY 1;
DELETE FROM evil.trapped;

-- whoever calls, with the worst of paths, gets the same answers
\set calls 'SELECT outcome, attempt FROM public.idem_claim(\'sp-1\', \'{"a": 1}\', \'sp\'); SELECT outcome FROM public.idem_claim(\'sp-1\', \'{"a": 1}\', \'sp\'); SELECT outcome, differs FROM public.idem_claim(\'sp-1\', \'{"a": 2}\', \'sp\');'
SET search_path = pg_temp, evil, pg_catalog;
SELECT public.idem_configure('sp', ttl => '1h', on_lease_expiry => 'manual', owner => 'regress_idem_victim');
SELECT public.idem_configure('sp', ttl => '1h', on_lease_expiry => 'manual', owner => 'regress_idem_victim');
SELECT public.idem_grant('regress_idem_victim', administer => true);
SET ROLE regress_idem_victim;
:calls
SELECT public.idem_finish('sp-1', '{"r": 1}', token => 1, scope => 'sp');
BEGIN;
SELECT outcome FROM public.idem_claim('sp-2', '{"a": 1}', 'sp', '1h', '1 min', '0');
SELECT public.idem_extend('sp-2', '2 min', scope => 'sp') IS NOT NULL AS extended;
SELECT public.idem_finish('sp-2', '{"r": 1}', 200, NULL, 'sp', '{}', '\x00');
SELECT public.idem_finish('sp-2', '{"r": 1}', 200, NULL, 'sp', '{}', '\x00');
COMMIT;
SELECT outcome, response_body, response_headers, response_bytes FROM public.idem_claim('sp-2', '{"a": 1.0}', 'sp');
BEGIN;
SELECT outcome FROM public.idem_claim('sp-3', scope => 'sp', wait => '1 ms');
SELECT public.idem_fail('sp-3', '{"e": 1}', scope => 'sp');
COMMIT;
BEGIN;
SELECT outcome FROM public.idem_claim('sp-4', scope => 'sp');
SELECT public.idem_release('sp-4', scope => 'sp');
COMMIT;
SELECT status FROM public.idem_lookup('sp-3', 'sp');
SELECT outcome FROM public.idem_claim('sp-5', scope => 'sp', lease => '1 us');
SELECT request_id, kind, settle FROM public.idem_review;
SELECT public.idem_resolve('sp-5', 'completed', '5', scope => 'sp');
SELECT request_id, status FROM public.idem_log WHERE scope OPERATOR(pg_catalog.=) 'sp' ORDER BY request_id USING OPERATOR(pg_catalog.<);
SELECT pg_catalog.encode(public.idem_fingerprint('{"b": 1, "t": 2}', '{t}'), 'hex');
SELECT public.idem_backoff(3, jitter => 'none');
SELECT public.idem_grant('regress_idem_attacker'), public.idem_revoke('regress_idem_attacker');
SELECT public.idem_configure('sp/below'), public.idem_unconfigure('sp/below');
RESET ROLE;
RESET search_path;
-- nothing was caught, and nothing written elsewhere
SELECT * FROM evil.trapped;
SELECT count(*) FROM evil.transaction_log;
SELECT count(*) FROM pg_temp.transaction_log;
SELECT scope, owner_name FROM evil.idempotency_scope;
SELECT request_id, status, claimed_by FROM public.transaction_log WHERE scope = 'sp' ORDER BY 1;

-- no path at all, and one with nothing in it
SET search_path = '';
SELECT outcome FROM public.idem_claim('sp-6');
SELECT public.idem_unconfigure('sp');
SET search_path = "no such schema";
SELECT outcome FROM public.idem_claim('sp-6');
SELECT pg_catalog.count(*) >= 0 AS readable FROM public.idem_log;
RESET search_path;

-- who may put objects into the extension's schema cannot come between either
GRANT CREATE ON SCHEMA public TO regress_idem_attacker;
SET ROLE regress_idem_attacker;
CREATE FUNCTION public.idem_clock(text) RETURNS timestamptz LANGUAGE sql AS $$ SELECT evil.trap('idem_clock'); SELECT now() $$;
CREATE FUNCTION public.idem_grant(oid, boolean) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.trap('idem_grant'); END $$;
CREATE FUNCTION public.idem_claim(text) RETURNS text LANGUAGE sql AS $$ SELECT evil.trap('idem_claim'); SELECT ''::text $$;
RESET ROLE;
SELECT idem_grant('regress_idem_victim'::regrole);
-- what is not the extension's is not granted along
SELECT has_function_privilege('regress_idem_victim', 'public.idem_claim(text)', 'EXECUTE') AS by_default;
SELECT count(*) FROM pg_catalog.pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
 WHERE p.oid = 'public.idem_claim(text)'::regprocedure AND a.grantee = 'regress_idem_victim'::regrole;
SELECT count(*) FROM public.idem_log WHERE request_id = 'sp-6';
SELECT * FROM evil.trapped;
DROP FUNCTION public.idem_clock(text), public.idem_grant(oid, boolean), public.idem_claim(text);
REVOKE CREATE ON SCHEMA public FROM regress_idem_attacker;

DROP VIEW pg_temp.pg_proc, pg_temp.idem_log;
DROP TABLE pg_temp.transaction_log, pg_temp.idempotency_scope;
DROP SCHEMA evil CASCADE;
DELETE FROM transaction_log WHERE request_id LIKE 'sp-%';
SELECT idem_revoke('regress_idem_victim');
DROP OWNED BY regress_idem_victim, regress_idem_attacker;
DROP ROLE regress_idem_victim, regress_idem_attacker;
