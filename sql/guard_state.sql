-- State guards hold whatever way a row is written
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
SELECT idem_machine('gs_order', ARRAY['created'], ARRAY['created->confirmed', 'confirmed->shipped', 'shipped->delivered', 'created->cancelled', 'confirmed->cancelled']);

CREATE TABLE gs (id int PRIMARY KEY, note text, state text DEFAULT 'created');
SELECT idem_guard_state('gs', 'state', 'gs_order', history => true);

-- INSERT
INSERT INTO gs (id) VALUES (1), (2), (3), (4);
INSERT INTO gs VALUES (9, '', 'shipped');
INSERT INTO gs VALUES (9, '', 'no such state');
INSERT INTO gs VALUES (9, '', NULL);
INSERT INTO gs VALUES (9, '', 'Created');
-- UPDATE
UPDATE gs SET state = 'confirmed' WHERE id = 1;
UPDATE gs SET state = 'delivered' WHERE id = 1;
UPDATE gs SET state = NULL WHERE id = 1;
UPDATE gs SET state = state, note = 'unchanged states pass' WHERE id = 1;
UPDATE gs SET state = 'cancelled' WHERE id = 2;
UPDATE gs SET state = 'confirmed' WHERE id = 2;
-- many rows at once: all or nothing
UPDATE gs SET state = 'shipped' WHERE id IN (1, 3);
UPDATE gs SET state = 'confirmed' WHERE id IN (3, 4);
-- INSERT ... ON CONFLICT: the proposed row is not a row
INSERT INTO gs VALUES (3, '', 'shipped') ON CONFLICT (id) DO UPDATE SET state = excluded.state;
INSERT INTO gs VALUES (3, '', 'created') ON CONFLICT (id) DO UPDATE SET state = excluded.state;
INSERT INTO gs VALUES (3, '', 'created') ON CONFLICT DO NOTHING;
-- MERGE
MERGE INTO gs USING (VALUES (4, 'shipped'), (5, 'created')) s (id, state) ON gs.id = s.id
    WHEN MATCHED THEN UPDATE SET state = s.state WHEN NOT MATCHED THEN INSERT (id, state) VALUES (s.id, s.state);
MERGE INTO gs USING (VALUES (4, 'created')) s (id, state) ON gs.id = s.id WHEN MATCHED THEN UPDATE SET state = s.state;
MERGE INTO gs USING (VALUES (6, 'shipped')) s (id, state) ON gs.id = s.id WHEN NOT MATCHED THEN INSERT (id, state) VALUES (s.id, s.state);
-- COPY
COPY gs FROM stdin;
7	copied	created
\.
COPY gs FROM stdin;
8	copied	created
9	copied	shipped
\.
SELECT * FROM gs ORDER BY id;

-- the history: who, from, to, in the order of time
SELECT key, from_state, to_state, changed_by = current_user AS me, machine, target, request_id
FROM idempotency_machine_history WHERE target = 'public.gs' ORDER BY changed_at;
SELECT count(*) = count(DISTINCT changed_at) AS distinct_times FROM idempotency_machine_history;

-- a BEFORE trigger that changes the state, sorting before or after: the row as written counts
CREATE FUNCTION gs_meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.state := TG_ARGV[0]; RETURN NEW; END $$;
CREATE TRIGGER aaa BEFORE UPDATE ON gs FOR EACH ROW EXECUTE FUNCTION gs_meddle('created');
UPDATE gs SET note = 'x' WHERE id = 3;
DROP TRIGGER aaa ON gs;
CREATE TRIGGER zzzzz BEFORE INSERT OR UPDATE ON gs FOR EACH ROW EXECUTE FUNCTION gs_meddle('delivered');
UPDATE gs SET note = 'x' WHERE id = 7;
INSERT INTO gs VALUES (10);
UPDATE gs SET state = 'delivered' WHERE id = 3;
DROP TRIGGER zzzzz ON gs;
-- an AFTER trigger that goes one step further: the history keeps the order
CREATE FUNCTION gs_next() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE gs SET state = 'shipped' WHERE id = NEW.id; RETURN NULL; END $$;
CREATE TRIGGER aaa AFTER UPDATE ON gs FOR EACH ROW WHEN (NEW.state = 'confirmed') EXECUTE FUNCTION gs_next();
UPDATE gs SET state = 'confirmed' WHERE id = 7;
SELECT from_state, to_state FROM idempotency_machine_history WHERE target = 'public.gs' AND key = '7' ORDER BY changed_at;
DROP TRIGGER aaa ON gs;
DROP FUNCTION gs_next, gs_meddle;

-- foreign keys: ON UPDATE CASCADE, ON DELETE SET DEFAULT
CREATE TABLE gs_kind (state text PRIMARY KEY);
INSERT INTO gs_kind VALUES ('created'), ('confirmed'), ('cancelled');
CREATE TABLE gs_child (id int PRIMARY KEY, state text DEFAULT 'cancelled' REFERENCES gs_kind ON UPDATE CASCADE ON DELETE SET DEFAULT);
SELECT idem_guard_state('gs_child', 'state', 'gs_order');
INSERT INTO gs_child VALUES (1, 'created');
UPDATE gs_kind SET state = 'shipped' WHERE state = 'created';
DELETE FROM gs_kind WHERE state = 'created';
SELECT * FROM gs_child;
UPDATE gs_kind SET state = 'delivered' WHERE state = 'cancelled';
DROP TABLE gs_child, gs_kind;

-- a row without a state has not begun: an initial state is its next one
CREATE TABLE gs_null (id int PRIMARY KEY, state text);
INSERT INTO gs_null VALUES (1, NULL), (2, NULL), (3, 'forgotten');
SELECT idem_guard_state('gs_null', 'state', 'gs_order');
UPDATE gs_null SET id = 10 WHERE id = 1;
UPDATE gs_null SET state = 'shipped' WHERE id = 10;
UPDATE gs_null SET state = 'created' WHERE id = 10;
SELECT * FROM idem_transition('gs_null', '2', 'confirmed');
SELECT * FROM idem_transition('gs_null', '2', 'created', from_state => 'confirmed');
SELECT * FROM idem_transition('gs_null', '2', 'created');
-- a state that the machine does not know leads nowhere
UPDATE gs_null SET state = 'created' WHERE id = 3;
SELECT * FROM idem_transition('gs_null', '3', 'created');
SELECT * FROM idem_transition('gs_null', '3', 'forgotten');
DROP TABLE gs_null;

-- types of the column
CREATE TYPE gs_enum AS ENUM ('delivered', 'created', 'confirmed', 'shipped');
CREATE DOMAIN gs_enum_domain AS gs_enum CHECK (VALUE <> 'shipped');
CREATE DOMAIN gs_domain AS varchar(9) CHECK (VALUE <> 'shipped');
CREATE TABLE gs_types (id int PRIMARY KEY, e gs_enum, f gs_enum_domain, v varchar(9), d gs_domain, b char(12), i int, n name, c text);
SELECT idem_machine('gs_int', ARRAY['1'], ARRAY['1->2']);
CREATE FUNCTION gs_try(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN EXECUTE statement; RETURN 'ok'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE || ' ' || SQLERRM; END $$;
CREATE FUNCTION gs_type(col name, machine text, a text, b text, c text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gs_types;
    PERFORM idem_guard_state('gs_types', col, machine);
    RETURN NEXT gs_try(format('INSERT INTO gs_types (id, %I) VALUES (1, %L)', col, b));
    RETURN NEXT gs_try(format('INSERT INTO gs_types (id, %I) VALUES (1, %L)', col, a));
    RETURN NEXT gs_try(format('UPDATE gs_types SET %I = %L', col, c));
    RETURN NEXT gs_try(format('UPDATE gs_types SET %I = %L', col, b));
    RETURN NEXT (SELECT t::text FROM idem_transition('gs_types', '1', b) t);
    RETURN NEXT (SELECT t::text FROM idem_transition('gs_types', '1', a) t);
    PERFORM idem_unguard('gs_types');
END $$;
SELECT col, gs_type(col, 'gs_order', 'created', 'confirmed', 'delivered') FROM unnest('{e,f,v,d,b,n,c}'::name[]) col;
SELECT gs_type('i', 'gs_int', '1', '2', '3');
-- through idem_transition the type's own rules apply
SELECT idem_guard_state('gs_types', 'd', 'gs_order');
DELETE FROM gs_types;
INSERT INTO gs_types (id, d) VALUES (1, 'created');
SELECT outcome FROM idem_transition('gs_types', '1', 'confirmed');
SELECT outcome FROM idem_transition('gs_types', '1', 'shipped');
DROP TABLE gs_types;
DROP FUNCTION gs_type, gs_try;
DROP DOMAIN gs_domain, gs_enum_domain;
DROP TYPE gs_enum;

-- attaching: what is refused, what changes nothing, what replaces
SELECT idem_guard_state('gs', 'nope', 'gs_order');
SELECT idem_guard_state('gs', 'ctid', 'gs_order');
SELECT idem_guard_state('gs', 'state', 'nope');
SELECT idem_guard_state(NULL, 'state', 'gs_order');
SELECT idem_guard_state('gs', NULL, 'gs_order');
SELECT idem_guard_state('gs', 'state', NULL);
CREATE VIEW gs_view AS SELECT * FROM gs;
SELECT idem_guard_state('gs_view', 'state', 'gs_order');
SELECT idem_guard_state('gs_pkey', 'state', 'gs_order');
DROP VIEW gs_view;
SELECT idem_guard_state('transaction_log', 'status', 'gs_order');
CREATE TABLE gs_generated (id int PRIMARY KEY, a text, state text GENERATED ALWAYS AS (a) STORED);
SELECT idem_guard_state('gs_generated', 'state', 'gs_order');
DROP TABLE gs_generated;
SELECT oid AS before FROM pg_trigger WHERE tgrelid = 'gs'::regclass AND tgname = '_idem_state_update' \gset
SELECT idem_guard_state('gs', 'state', 'gs_order', true);
SELECT oid = :before AS untouched FROM pg_trigger WHERE tgrelid = 'gs'::regclass AND tgname = '_idem_state_update';
SELECT idem_guard_state('gs', 'state', 'gs_order');
-- one that was switched off is on again
ALTER TABLE gs DISABLE TRIGGER ALL;
SELECT idem_guard_state('gs', 'state', 'gs_order');
SELECT DISTINCT tgenabled FROM pg_trigger WHERE tgrelid = 'gs'::regclass AND tgname LIKE '%idem%';
SELECT idem_guard_state('gs', 'note', 'gs_order');
SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'gs'::regclass ORDER BY 1;
SELECT idem_unguard('gs');
SELECT idem_unguard('gs');
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'gs'::regclass;
UPDATE gs SET state = 'anything' WHERE id = 1;

-- a trigger made by hand is not a guard
CREATE TRIGGER t AFTER UPDATE ON gs FOR EACH ROW EXECUTE FUNCTION idem_guard_state_check();
UPDATE gs SET state = 'else' WHERE id = 1;
DROP TRIGGER t ON gs;
CREATE TRIGGER t BEFORE UPDATE ON gs FOR EACH ROW EXECUTE FUNCTION idem_guard_state_check();
UPDATE gs SET state = 'else' WHERE id = 1;
DROP TRIGGER t ON gs;
CREATE TRIGGER t AFTER UPDATE ON gs EXECUTE FUNCTION idem_guard_state_check();
UPDATE gs SET state = 'else' WHERE id = 1;

-- session_replication_role = replica skips guards, as a subscriber does
DROP TRIGGER t ON gs;
UPDATE gs SET state = 'created';
SELECT idem_guard_state('gs', 'state', 'gs_order');
SET session_replication_role = replica;
UPDATE gs SET state = 'delivered' WHERE id = 2;
RESET session_replication_role;
SELECT state FROM gs WHERE id = 2;

-- inheritance, unlogged and temporary tables
SET client_min_messages = notice;
CREATE TABLE gs_parent (id int PRIMARY KEY, state text);
CREATE TABLE gs_heir (PRIMARY KEY (id)) INHERITS (gs_parent);
SELECT idem_guard_state('gs_parent', 'state', 'gs_order');
SELECT idem_guard_state('gs_heir', 'state', 'gs_order');
INSERT INTO gs_heir VALUES (1, 'shipped');
INSERT INTO gs_heir VALUES (1, 'created');
UPDATE gs_parent SET state = 'shipped';
SELECT * FROM idem_transition('gs_parent', '1', 'confirmed');
INSERT INTO gs_parent VALUES (1, 'created');
SELECT * FROM idem_transition('gs_parent', '1', 'cancelled');
SELECT * FROM idem_transition('gs_heir', '1', 'cancelled');
SELECT tableoid::regclass, * FROM gs_parent ORDER BY 1;
DROP TABLE gs_parent, gs_heir;
CREATE UNLOGGED TABLE gs_unlogged (id int PRIMARY KEY, state text);
SELECT idem_guard_state('gs_unlogged', 'state', 'gs_order');
INSERT INTO gs_unlogged VALUES (1, 'created');
SELECT outcome FROM idem_transition('gs_unlogged', '1', 'confirmed');
UPDATE gs_unlogged SET state = 'delivered';
CREATE TEMP TABLE gs_temp (id int PRIMARY KEY, state text);
SELECT idem_guard_state('gs_temp', 'state', 'gs_order', true);
INSERT INTO gs_temp VALUES (1, 'created');
SELECT outcome FROM idem_transition('gs_temp', '1', 'confirmed');
UPDATE gs_temp SET state = 'delivered';
-- dropped and made again under its name
DROP TABLE gs_temp;
CREATE TEMP TABLE gs_temp (state text, id int PRIMARY KEY);
SELECT outcome FROM idem_transition('gs_temp', '1', 'confirmed');
SELECT idem_guard_state('gs_temp', 'state', 'gs_order', true);
INSERT INTO gs_temp VALUES ('created', 1);
SELECT outcome FROM idem_transition('gs_temp', '1', 'confirmed');
DROP TABLE gs_temp, gs_unlogged, gs;

-- a key of several columns, and none, in the history
CREATE TABLE gs_pair (a text, b int, state text, PRIMARY KEY (b, a));
SELECT idem_guard_state('gs_pair', 'state', 'gs_order', true);
INSERT INTO gs_pair VALUES ('x, "y"', 1, 'created');
CREATE TABLE gs_bare (state text);
SELECT idem_guard_state('gs_bare', 'state', 'gs_order', true);
INSERT INTO gs_bare VALUES ('created');
SELECT target, key FROM idempotency_machine_history WHERE target IN ('public.gs_pair', 'public.gs_bare') ORDER BY changed_at;
SELECT h.key, t.* FROM idempotency_machine_history h, idem_transition('gs_pair', h.key, 'confirmed') t WHERE target = 'public.gs_pair';
DROP TABLE gs_pair, gs_bare;

DELETE FROM idempotency_machine_history;
DELETE FROM idempotency_machine WHERE machine ~ '^gs_';
