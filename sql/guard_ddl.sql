-- Guards through changes of the table, and who may do what
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
SELECT idem_machine('gd_order', ARRAY['created'], ARRAY['created->confirmed', 'confirmed->shipped', 'created->cancelled']);

-- renames
CREATE TABLE gd (id int PRIMARY KEY, state text DEFAULT 'created', version int, note text);
SELECT idem_guard_state('gd', 'state', 'gd_order', true);
SELECT idem_guard_version('gd');
INSERT INTO gd VALUES (1);
ALTER TABLE gd RENAME state TO "Order State";
ALTER TABLE gd RENAME version TO revision;
ALTER TABLE gd RENAME id TO key;
ALTER TABLE gd RENAME TO "Gd";
UPDATE "Gd" SET "Order State" = 'shipped';
UPDATE "Gd" SET revision = 9;
UPDATE "Gd" SET "Order State" = 'confirmed' RETURNING revision;
SELECT * FROM idem_transition('"Gd"', '1', 'shipped', expected_version => 2);
-- another column takes the old name
ALTER TABLE "Gd" ADD state text DEFAULT 'x', ADD version int DEFAULT 50;
UPDATE "Gd" SET state = 'y', version = 60 RETURNING revision, version;
SELECT target, key, to_state FROM idempotency_machine_history WHERE target ~* 'gd' ORDER BY changed_at;
-- columns come and go
ALTER TABLE "Gd" DROP note, ADD note2 text;
UPDATE "Gd" SET "Order State" = 'created';
SELECT revision FROM "Gd";
-- the guarded columns stay as they are
\set VERBOSITY sqlstate
ALTER TABLE "Gd" DROP "Order State";
ALTER TABLE "Gd" DROP revision;
ALTER TABLE "Gd" ALTER "Order State" TYPE varchar(20);
\set VERBOSITY default
-- the definitions are complete: run again elsewhere they make the same guard
SELECT string_agg(replace(pg_get_triggerdef(oid), 'public."Gd"', 'gd_copy'), '; ' ORDER BY tgname) AS triggers FROM pg_trigger WHERE tgrelid = '"Gd"'::regclass \gset
CREATE TABLE gd_copy (LIKE "Gd" INCLUDING ALL);
:triggers;
INSERT INTO gd_copy VALUES (1, 'created', 7);
UPDATE gd_copy SET "Order State" = 'shipped';
SELECT * FROM idem_transition('gd_copy', '1', 'confirmed', expected_version => 1);
SELECT oid AS before FROM pg_trigger WHERE tgrelid = 'gd_copy'::regclass AND tgname = '_idem_state_update' \gset
SELECT idem_guard_state('gd_copy', 'Order State', 'gd_order', true);
SELECT oid = :before AS untouched FROM pg_trigger WHERE tgrelid = 'gd_copy'::regclass AND tgname = '_idem_state_update';
DROP TABLE gd_copy;
-- with CASCADE the guard goes and the table works
ALTER TABLE "Gd" DROP "Order State" CASCADE;
ALTER TABLE "Gd" DROP revision CASCADE;
SELECT tgname FROM pg_trigger WHERE tgrelid = '"Gd"'::regclass;
UPDATE "Gd" SET note2 = 'works';
DROP TABLE "Gd";

-- a guard that is rolled back is gone
CREATE TABLE gd (id int PRIMARY KEY, state text DEFAULT 'created', version int, secret text);
INSERT INTO gd VALUES (1), (2), (3);
BEGIN;
SELECT idem_guard_state('gd', 'state', 'gd_order');
SAVEPOINT a;
UPDATE gd SET state = 'shipped';
ROLLBACK TO a;
ROLLBACK;
SELECT * FROM idem_transition('gd', '1', 'confirmed');
UPDATE gd SET state = 'cancelled' WHERE id = 3;
-- not by a statement that writes the table
SELECT idem_guard_state('gd', 'state', 'gd_order', true);
CREATE FUNCTION gd_unguard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM idem_unguard('gd'); RETURN NEW; END $$;
CREATE TRIGGER t BEFORE UPDATE ON gd FOR EACH ROW EXECUTE FUNCTION gd_unguard();
\set VERBOSITY sqlstate
UPDATE gd SET state = 'shipped' WHERE id = 1;
\set VERBOSITY default
DROP TRIGGER t ON gd;
DROP FUNCTION gd_unguard;

-- roles: an owner with the administering functions, an application, a stranger
CREATE ROLE gd_owner;
CREATE ROLE gd_app;
CREATE ROLE gd_stranger;
GRANT CREATE ON SCHEMA public TO gd_owner;
SELECT p.proname, coalesce(p.proacl::text ~ '[{,]=X', true) AS public FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e'
WHERE p.proname ~ '^idem_(machine|guard|unguard|transition|update|definition)' ORDER BY 1;
GRANT EXECUTE ON FUNCTION idem_guard_state, idem_guard_version, idem_unguard, idem_machine TO gd_owner, gd_app;
GRANT EXECUTE ON FUNCTION idem_transition, idem_update, idem_machine_diagram TO gd_app, gd_stranger;
ALTER TABLE gd OWNER TO gd_owner;
SELECT idem_unguard('gd');
SET ROLE gd_stranger;
SELECT idem_guard_state('gd', 'state', 'gd_order');
SELECT idem_machine('gd_mine', ARRAY['a'], '{}');
SELECT * FROM idem_transition('gd', '1', 'confirmed');
SELECT count(*) FROM idempotency_machine_history;
SELECT length(idem_machine_diagram('gd_order')) > 0 AS may;
RESET ROLE;
SET ROLE gd_app;
SELECT idem_guard_state('gd', 'state', 'gd_order');
SELECT idem_guard_version('gd');
SELECT idem_unguard('gd');
SELECT idem_guard_state('pg_class', 'relname', 'gd_order');
RESET ROLE;
-- the owner needs no right on the trigger functions beforehand
SET ROLE gd_owner;
SELECT idem_guard_state('gd', 'state', 'gd_order', true);
SELECT idem_guard_version('gd');
RESET ROLE;
-- and may create partitions afterwards, also where a superuser made the guard
CREATE TABLE gd_part (id int PRIMARY KEY, state text DEFAULT 'created', version int) PARTITION BY RANGE (id);
ALTER TABLE gd_part OWNER TO gd_owner;
SELECT idem_guard_state('gd_part', 'state', 'gd_order', true);
SELECT idem_guard_version('gd_part');
SET ROLE gd_owner;
CREATE TABLE gd_part1 PARTITION OF gd_part FOR VALUES FROM (1) TO (100);
INSERT INTO gd_part VALUES (1);
UPDATE gd_part SET state = 'shipped';
RESET ROLE;

-- a new owner is granted the same when the guard is attached again
GRANT CREATE ON SCHEMA public TO gd_app;
ALTER TABLE gd_part OWNER TO gd_app;
SET ROLE gd_app;
\set VERBOSITY sqlstate
CREATE TABLE gd_part2 PARTITION OF gd_part FOR VALUES FROM (100) TO (200);
\set VERBOSITY default
RESET ROLE;
SELECT idem_guard_state('gd_part', 'state', 'gd_order', true), idem_guard_version('gd_part');
SET ROLE gd_app;
CREATE TABLE gd_part2 PARTITION OF gd_part FOR VALUES FROM (100) TO (200);
RESET ROLE;
-- privileges of the caller, judged by the server
SET ROLE gd_app;
SELECT * FROM idem_transition('gd', '1', 'confirmed');
RESET ROLE;
GRANT SELECT (id, state, version), UPDATE (state) ON gd TO gd_app;
SET ROLE gd_app;
SELECT * FROM idem_transition('gd', '1', 'confirmed');
SELECT * FROM idem_transition('gd', '1', 'shipped', changes => '{"secret": "x"}');
SELECT * FROM idem_update('gd', '1', 1, '{"secret": "x"}');
UPDATE gd SET state = 'created' WHERE id = 1;
RESET ROLE;
-- a role after another: no plan serves two
SET ROLE gd_stranger;
SELECT * FROM idem_transition('gd', '1', 'shipped');
SET ROLE gd_app;
SELECT * FROM idem_transition('gd', '1', 'shipped');
RESET ROLE;
SELECT key, from_state, to_state, NULLIF(changed_by, current_user) AS changed_by FROM idempotency_machine_history WHERE target = 'public.gd' ORDER BY changed_at;

-- row security: what is hidden is not found, what may not be written is not
GRANT UPDATE ON gd TO gd_app;
GRANT SELECT ON gd TO gd_app;
ALTER TABLE gd ENABLE ROW LEVEL SECURITY;
CREATE POLICY see ON gd FOR SELECT USING (id < 3);
CREATE POLICY change ON gd FOR UPDATE USING (id < 2) WITH CHECK (secret IS NULL);
SET ROLE gd_app;
SELECT * FROM idem_transition('gd', '3', 'created');
SELECT * FROM idem_transition('gd', '2', 'confirmed');
SELECT * FROM idem_transition('gd', '2', 'created');
SELECT * FROM idem_update('gd', '2', 0, '{"secret": "x"}');
SELECT * FROM idem_update('gd', '3', 0, '{"secret": "x"}');
SELECT * FROM idem_update('gd', '1', 2, '{"secret": "x"}');
SELECT * FROM idem_update('gd', '1', 2, '{"secret": null}');
RESET ROLE;
SELECT * FROM gd ORDER BY id;

-- roles that take turns in one session each see their own rows only
CREATE TABLE gd_turn (id int PRIMARY KEY, state text DEFAULT 'created', version int, owner name);
SELECT idem_guard_state('gd_turn', 'state', 'gd_order'), idem_guard_version('gd_turn');
INSERT INTO gd_turn (id, owner) VALUES (1, 'gd_app'), (2, 'gd_stranger');
ALTER TABLE gd_turn ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON gd_turn USING (owner = current_user);
GRANT SELECT, UPDATE ON gd_turn TO gd_app, gd_stranger;
GRANT EXECUTE ON FUNCTION idem_update TO gd_stranger;
CREATE TABLE gd_answer (role text, id int, kind text, outcome text);
DO $$
DECLARE
    role text;
    t text;
    u text;
BEGIN
    FOR n IN 1 .. 100 LOOP
        role := CASE n % 2 WHEN 0 THEN 'gd_app' ELSE 'gd_stranger' END;
        FOR i IN 1 .. 2 LOOP
            EXECUTE format('SET LOCAL ROLE %I', role);
            SELECT outcome INTO t FROM idem_transition('gd_turn', i::text, 'created');
            SELECT outcome INTO u FROM idem_update('gd_turn', i::text, 99, '{"owner": "gd_app"}');
            RESET ROLE;
            INSERT INTO gd_answer VALUES (role, i, 'transition', t), (role, i, 'update', u);
        END LOOP;
    END LOOP;
END $$;
SELECT role, id, kind, outcome, count(*) FROM gd_answer GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3;
DROP TABLE gd_turn, gd_answer;

-- dropping the extension says what is in the way, and leaves nothing broken behind
BEGIN;
\set VERBOSITY sqlstate
SAVEPOINT a;
DROP EXTENSION idempotency;
ROLLBACK TO a;
\set VERBOSITY default
DROP EXTENSION idempotency CASCADE;
SELECT tgname FROM pg_trigger WHERE tgrelid = 'gd'::regclass;
UPDATE gd SET state = 'free', version = 99 WHERE id = 1 RETURNING state, version;
CREATE EXTENSION idempotency;
SELECT idem_machine('gd_order', ARRAY['free'], ARRAY['free->bound']);
SELECT idem_guard_state('gd', 'state', 'gd_order');
SELECT * FROM idem_transition('gd', '1', 'bound');
UPDATE gd SET state = 'free' WHERE id = 1;
ROLLBACK;
SELECT * FROM idem_transition('gd', '1', 'confirmed');

DROP TABLE gd, gd_part;
DROP OWNED BY gd_owner, gd_app, gd_stranger;
DROP ROLE gd_owner, gd_app, gd_stranger;
DELETE FROM idempotency_machine_history;
DELETE FROM idempotency_machine WHERE machine ~ '^gd_';
