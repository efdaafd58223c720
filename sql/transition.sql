-- idem_transition: every outcome, and what it is judged by
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
SELECT idem_machine('tr_order', ARRAY['created'], ARRAY['created->confirmed', 'confirmed->shipped', 'shipped->delivered', 'created->cancelled', 'confirmed->cancelled']);

CREATE TABLE tr (id int PRIMARY KEY, state text NOT NULL DEFAULT 'created', version bigint, amount numeric, tags text[], note text);
SELECT * FROM idem_transition('tr', '1', 'confirmed');
SELECT idem_guard_state('tr', 'state', 'tr_order');
INSERT INTO tr (id) SELECT generate_series(1, 5);

-- the order life cycle
SELECT * FROM idem_transition('tr', '1', 'confirmed');
SELECT * FROM idem_transition('tr', '1', 'confirmed');
SELECT * FROM idem_transition('tr', '1', 'shipped');
SELECT * FROM idem_transition('tr', '1', 'confirmed');
SELECT * FROM idem_transition('tr', '1', 'delivered');
SELECT * FROM idem_transition('tr', '1', 'cancelled');
SELECT * FROM idem_transition('tr', '1', 'created');
SELECT * FROM idem_transition('tr', '2', 'cancelled');
SELECT * FROM idem_transition('tr', '2', 'confirmed');
SELECT * FROM idem_transition('tr', '2', 'unheard of');
SELECT * FROM idem_transition('tr', '3', 'shipped');
SELECT * FROM idem_transition('tr', '99', 'shipped');
-- from_state
SELECT * FROM idem_transition('tr', '3', 'cancelled', from_state => 'confirmed');
SELECT * FROM idem_transition('tr', '3', 'confirmed', from_state => 'created');
SELECT * FROM idem_transition('tr', '3', 'confirmed', from_state => 'created');
SELECT * FROM idem_transition('tr', '3', 'shipped', from_state => 'confirmed');
SELECT * FROM idem_transition('tr', '3', 'confirmed', from_state => 'created');
SELECT * FROM idem_transition('tr', '3', 'cancelled', from_state => 'created');
SELECT * FROM idem_transition('tr', '3', 'cancelled', from_state => 'shipped');
SELECT * FROM idem_transition('tr', '3', 'delivered', from_state => 'unheard of');
-- expected_version needs a version guard
SELECT * FROM idem_transition('tr', '4', 'confirmed', expected_version => 1);
SELECT idem_guard_version('tr');
SELECT * FROM idem_transition('tr', '4', 'confirmed', expected_version => 1);
SELECT * FROM idem_transition('tr', '4', 'confirmed', expected_version => 0);
SELECT * FROM idem_transition('tr', '4', 'confirmed', expected_version => 1);
SELECT * FROM idem_transition('tr', '4', 'confirmed', expected_version => 2);
SELECT * FROM idem_transition('tr', '4', 'shipped', expected_version => 2);
SELECT * FROM idem_transition('tr', '4', 'shipped', expected_version => 1);
SELECT * FROM idem_transition('tr', '4', 'shipped', expected_version => 2);
SELECT * FROM idem_transition('tr', '4', 'shipped', expected_version => 3);
SELECT * FROM idem_transition('tr', '4', 'shipped', expected_version => 0);
SELECT * FROM idem_transition('tr', '4', 'confirmed', expected_version => 0);
SELECT * FROM idem_transition('tr', '4', 'cancelled', expected_version => 2);
SELECT * FROM idem_transition('tr', '4', 'confirmed', from_state => 'created', expected_version => 2);
SELECT * FROM idem_transition('tr', '4', 'shipped', expected_version => -9223372036854775808);

-- changes: other columns, in the same update
SELECT * FROM idem_transition('tr', '5', 'confirmed', changes => '{"amount": 12345678901234567890.123456789, "tags": ["a", "b \"c\""], "note": "it''s"}');
SELECT * FROM tr WHERE id = 5;
SELECT * FROM idem_transition('tr', '5', 'shipped', changes => '{"amount": null, "tags": null, "note": ""}');
SELECT id, amount IS NULL AS amount, tags IS NULL AS tags, note FROM tr WHERE id = 5;
SELECT * FROM idem_transition('tr', '5', 'delivered', changes => '{}');
-- a refused step changes nothing
SELECT * FROM idem_transition('tr', '5', 'cancelled', changes => '{"note": "refused"}');
SELECT * FROM idem_transition('tr', '5', 'delivered', changes => '{"note": "repeated"}');
SELECT note, version FROM tr WHERE id = 5;
SELECT * FROM idem_transition('tr', '5', 'delivered', changes => '{"nope": 1}');
SELECT * FROM idem_transition('tr', '5', 'delivered', changes => '{"ctid": 1}');
SELECT * FROM idem_transition('tr', '5', 'delivered', changes => '{"state": "created"}');
SELECT * FROM idem_transition('tr', '5', 'delivered', changes => '{"version": 1}');
SELECT * FROM idem_transition('tr', '5', 'delivered', changes => '[1]');
SELECT * FROM idem_transition('tr', '5', 'delivered', changes => 'null');
-- NULL arguments
SELECT * FROM idem_transition(NULL, '5', 'delivered');
SELECT * FROM idem_transition('tr', NULL, 'delivered');
SELECT * FROM idem_transition('tr', '5', NULL);
\set VERBOSITY sqlstate
SELECT * FROM idem_transition('tr', 'five', 'delivered');
SELECT * FROM idem_transition('tr', '', 'delivered');
INSERT INTO tr (id) VALUES (6);
SELECT * FROM idem_transition('tr', '6', 'confirmed', changes => '{"amount": "ten"}');
\set VERBOSITY default
-- one call for (…).*; any number of rows by a join
SELECT (idem_transition('tr', '6', 'confirmed')).*;
INSERT INTO tr (id) VALUES (7), (8);
SELECT tr.id, t.outcome, t.version FROM tr, idem_transition('tr', tr.id::text, 'cancelled') t WHERE tr.id BETWEEN 6 AND 9 ORDER BY 1;
SELECT id, state, version FROM tr WHERE id BETWEEN 6 AND 9 ORDER BY 1;
-- a repeat writes nothing: no transaction id
BEGIN;
SELECT outcome FROM idem_transition('tr', '1', 'delivered');
SELECT outcome FROM idem_transition('tr', '1', 'confirmed');
SELECT outcome FROM idem_transition('tr', '2', 'confirmed');
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
COMMIT;
-- a read-only transaction gets its answer, if that is not to write
BEGIN READ ONLY;
SELECT outcome FROM idem_transition('tr', '1', 'confirmed');
SELECT outcome FROM idem_transition('tr', '2', 'confirmed');
SELECT outcome FROM idem_transition('tr', '9', 'confirmed');
ROLLBACK;
INSERT INTO tr (id) VALUES (9);
BEGIN READ ONLY;
\set VERBOSITY sqlstate
SELECT outcome FROM idem_transition('tr', '9', 'confirmed');
\set VERBOSITY default
ROLLBACK;
-- in a savepoint that is rolled back
BEGIN;
INSERT INTO tr (id) VALUES (10);
SAVEPOINT a;
SELECT outcome FROM idem_transition('tr', '10', 'confirmed');
ROLLBACK TO a;
SELECT outcome, version FROM idem_transition('tr', '10', 'confirmed');
SELECT outcome, version FROM idem_transition('tr', '10', 'shipped');
ROLLBACK;

-- what is no table, and a table without a key
CREATE VIEW tr_view AS SELECT * FROM tr;
SELECT * FROM idem_transition('tr_view', '1', 'confirmed');
SELECT * FROM idem_transition('tr_pkey', '1', 'confirmed');
CREATE TABLE tr_bare (state text);
SELECT idem_guard_state('tr_bare', 'state', 'tr_order');
SELECT * FROM idem_transition('tr_bare', '1', 'confirmed');
DROP VIEW tr_view;
DROP TABLE tr_bare;

-- triggers of the user: one that suppresses, one that changes the state, one that comes back here
CREATE FUNCTION tr_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_ARGV[0] = 'skip' THEN RETURN NULL; END IF;
    IF TG_ARGV[0] = 'turn' THEN NEW.state := 'cancelled'; END IF;
    IF TG_ARGV[0] = 'again' AND NEW.state = 'confirmed' THEN
        PERFORM idem_transition('tr', NEW.id::text, 'shipped');
        PERFORM idem_unguard('tr_other');
    END IF;
    RETURN NEW;
END $$;
CREATE TABLE tr_other (id int PRIMARY KEY);
INSERT INTO tr (id) VALUES (20), (21), (22);
CREATE TRIGGER t BEFORE UPDATE ON tr FOR EACH ROW EXECUTE FUNCTION tr_trigger('skip');
SELECT * FROM idem_transition('tr', '20', 'confirmed');
DROP TRIGGER t ON tr;
CREATE TRIGGER t BEFORE UPDATE ON tr FOR EACH ROW EXECUTE FUNCTION tr_trigger('turn');
SELECT * FROM idem_transition('tr', '20', 'confirmed');
DROP TRIGGER t ON tr;
CREATE TRIGGER t AFTER UPDATE ON tr FOR EACH ROW EXECUTE FUNCTION tr_trigger('again');
SELECT * FROM idem_transition('tr', '21', 'confirmed');
SELECT * FROM idem_transition('tr', '22', 'confirmed');
SELECT id, state, version FROM tr WHERE id BETWEEN 20 AND 22 ORDER BY id;
DROP TABLE tr_other, tr;
DROP FUNCTION tr_trigger;

-- keys of all kinds
CREATE DOMAIN tr_code AS varchar(5);
CREATE FUNCTION tr_key(keytype text, stored text, variadic asked text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    k text;
BEGIN
    EXECUTE format('CREATE TABLE tr_key (state text, id %s PRIMARY KEY)', keytype);
    PERFORM idem_guard_state('tr_key', 'state', 'tr_order');
    EXECUTE format('INSERT INTO tr_key VALUES (''created'', %L)', stored);
    FOREACH k IN ARRAY asked LOOP
        RETURN NEXT (SELECT outcome FROM idem_transition('tr_key', k, 'confirmed'));
    END LOOP;
    DROP TABLE tr_key;
END $$;
SELECT tr_key('uuid', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12');
SELECT tr_key('text', 'a''b"c', 'a''b"c', 'a''b"C', '');
SELECT tr_key('varchar(3)', 'abc', 'abcd', 'abc');
SELECT tr_key('char(5)', 'abc', 'abc', 'abcde');
CREATE DOMAIN tr_char_domain AS char(4);
SELECT tr_key('tr_char_domain', 'abc', 'ab', 'abc ');
SELECT tr_key('tr_code', 'abc', 'abcdef', 'abc');
SELECT tr_key('numeric(6,2)', '1.10', '1.104', '1.1');
SELECT tr_key('bigint GENERATED BY DEFAULT AS IDENTITY', '9223372036854775807', '9223372036854775807', '1');
SELECT tr_key('timestamptz', '2026-01-01 12:00+00', '2026-01-01 14:00+02', '2026-01-01 12:00:01+00');
SELECT tr_key('int[]', '{1,2}', '{1,2}', '{2,1}');
SELECT tr_key('jsonb', '{"a": 1}', '{"a":1}', '{}');
SELECT tr_key('bytea', '\x00ff', '\x00ff', '\x00');
DROP FUNCTION tr_key;
DROP DOMAIN tr_code, tr_char_domain;
CREATE TABLE tr_pair (b text, state text DEFAULT 'created', a int, PRIMARY KEY (a, b) INCLUDE (state));
SELECT idem_guard_state('tr_pair', 'state', 'tr_order');
INSERT INTO tr_pair (a, b) VALUES (1, 'x'), (1, 'x,(y)"'), (2, '');
SELECT outcome FROM idem_transition('tr_pair', '(1,x)', 'confirmed');
SELECT outcome FROM idem_transition('tr_pair', '(1,"x,(y)""")', 'confirmed');
SELECT outcome FROM idem_transition('tr_pair', '(2,"")', 'confirmed');
SELECT outcome FROM idem_transition('tr_pair', '(2,)', 'confirmed');
SELECT outcome FROM idem_transition('tr_pair', '(3,x)', 'confirmed');
\set VERBOSITY sqlstate
SELECT outcome FROM idem_transition('tr_pair', '1', 'confirmed');
SELECT outcome FROM idem_transition('tr_pair', '(1)', 'confirmed');
SELECT outcome FROM idem_transition('tr_pair', '(1,x,y)', 'confirmed');
\set VERBOSITY default
DROP TABLE tr_pair;

-- names that want to be SQL
CREATE SCHEMA "tr ""Söme; --";
CREATE TABLE "tr ""Söme; --"."t'x""; DROP TABLE x; -- äöü 0123456789 0123456789 0123456789 0" (
    "Id ""1""" int PRIMARY KEY, "select" text, "t" bigint, "r" int, "$1" text, "Größe 0123456789 0123456789 0123456789 0123456789 0123456789" text);
SELECT c.oid::regclass AS target FROM pg_class c WHERE relname ~ 'DROP TABLE x' AND relkind = 'r' \gset
SELECT idem_guard_state(:'target', 'select', 'tr_order', true);
SELECT idem_guard_version(:'target', 't');
INSERT INTO :target VALUES (1, 'created');
SELECT * FROM idem_transition(:'target', '1', 'confirmed', expected_version => 1,
    changes => '{"r": 7, "$1": "\"; DROP TABLE x", "Größe 0123456789 0123456789 0123456789 0123456789 0123456789": "ü"}');
SELECT * FROM idem_update(:'target', '1', 2, '{"r": 8}');
SELECT * FROM idem_update(:'target', '1', 2, '{"r": 8}');
SELECT * FROM :target;
UPDATE :target SET "select" = 'created';
SELECT key, from_state, to_state FROM idempotency_machine_history WHERE target = :'target' ORDER BY changed_at;
DROP SCHEMA "tr ""Söme; --" CASCADE;

-- the history has one key for a row, whatever the session's settings are
CREATE TABLE tr (at timestamptz, n interval, state text, PRIMARY KEY (at, n));
SELECT idem_guard_state('tr', 'state', 'tr_order', true);
SET timezone = 'UTC';
INSERT INTO tr VALUES ('2026-01-01 12:00+00', '1 hour', 'created');
SET timezone = 'Asia/Tokyo';
SET datestyle = 'SQL, DMY';
SET intervalstyle = 'iso_8601';
SELECT outcome FROM idem_transition('tr', '("2026-01-01 12:00+00","1 hour")', 'confirmed');
SHOW timezone;
SELECT key, to_state FROM idempotency_machine_history WHERE target = 'public.tr' ORDER BY changed_at;
RESET timezone;
RESET datestyle;
RESET intervalstyle;
DROP TABLE tr;

-- a primary key WITHOUT OVERLAPS (since 18) does not name one row
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        EXECUTE 'CREATE TABLE tr (a int4range, during daterange, state text, PRIMARY KEY (a, during WITHOUT OVERLAPS))';
        PERFORM idem_guard_state('tr', 'state', 'tr_order');
        BEGIN
            PERFORM idem_transition('tr', '("[1,2)","[2026-01-01,2026-01-02)")', 'confirmed');
            RAISE EXCEPTION 'such a key is refused';
        EXCEPTION WHEN feature_not_supported THEN
            DROP TABLE tr;
        END;
    END IF;
END $$;

-- a trigger that sends the row elsewhere, or keeps it where it was
CREATE TABLE tr (id int PRIMARY KEY, state text);
SELECT idem_guard_state('tr', 'state', 'tr_order');
CREATE FUNCTION tr_keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$;
CREATE TRIGGER keep BEFORE UPDATE ON tr FOR EACH ROW EXECUTE FUNCTION tr_keep();
INSERT INTO tr VALUES (1, 'created');
SELECT * FROM idem_transition('tr', '1', 'confirmed');
SELECT * FROM tr;
DROP TABLE tr;
DROP FUNCTION tr_keep;

-- nothing depends on the search_path
CREATE SCHEMA tr_evil;
CREATE FUNCTION tr_evil.yes(text, text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE EXCEPTION 'captured'; END $$;
CREATE OPERATOR tr_evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = tr_evil.yes);
CREATE FUNCTION tr_evil.yes4(bigint, bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE EXCEPTION 'captured'; END $$;
CREATE OPERATOR tr_evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = tr_evil.yes4);
CREATE FUNCTION tr_evil.jsonb_to_record(jsonb) RETURNS record LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'captured'; END $$;
CREATE TABLE public.tr (id bigint PRIMARY KEY, state text, version bigint, note text);
CREATE TABLE tr_evil.idempotency_machine (machine text PRIMARY KEY, initial text[], transitions text[]);
SET search_path = tr_evil, public, pg_catalog;
SELECT public.idem_guard_state('public.tr', 'state', 'tr_order', true);
SELECT public.idem_guard_version('public.tr');
INSERT INTO public.tr VALUES (1, 'created');
SELECT * FROM public.idem_transition('public.tr', '1', 'confirmed', expected_version => 1, changes => '{"note": "a"}');
SELECT * FROM public.idem_update('public.tr', '1', 2, '{"note": "b"}');
SET search_path = '';
SELECT * FROM public.idem_transition('public.tr', '1', 'shipped', from_state => 'confirmed');
RESET search_path;
DROP SCHEMA tr_evil CASCADE;
DROP TABLE tr;
DELETE FROM idempotency_machine_history;
DELETE FROM idempotency_machine WHERE machine ~ '^tr_';
