-- Guards of partitioned tables: a move between partitions is an update
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
SELECT idem_machine('gp_order', ARRAY['created'], ARRAY['created->confirmed', 'confirmed->shipped', 'shipped->delivered', 'created->cancelled', 'confirmed->cancelled']);

-- partitions whose columns stand elsewhere, one below another, one added later
CREATE TABLE gp (id int, region int, state text DEFAULT 'created', version int, note text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE gp1 PARTITION OF gp FOR VALUES IN (1);
CREATE TABLE gp2 (junk int, version int, note text, region int NOT NULL, id int NOT NULL, state text);
ALTER TABLE gp2 DROP COLUMN junk;
ALTER TABLE gp ATTACH PARTITION gp2 FOR VALUES IN (2);
SELECT idem_guard_state('gp', 'state', 'gp_order', true);
SELECT idem_guard_version('gp');
CREATE TABLE gp3 PARTITION OF gp FOR VALUES IN (3, 4) PARTITION BY LIST (region);
CREATE TABLE gp33 PARTITION OF gp3 FOR VALUES IN (3);
CREATE TABLE gp34 PARTITION OF gp3 FOR VALUES IN (4);

INSERT INTO gp VALUES (1, 1), (3, 3), (4, 4);
INSERT INTO gp VALUES (2, 2, 'created', 9);
INSERT INTO gp VALUES (5, 2, 'shipped');
INSERT INTO gp33 VALUES (5, 3, 'shipped');
UPDATE gp SET state = 'shipped' WHERE id = 2;
UPDATE gp2 SET state = 'shipped' WHERE id = 2;
SELECT tableoid::regclass, * FROM gp ORDER BY id;

-- move all at once; move with a step; refuse a move with an illegal step or version
UPDATE gp SET region = region % 4 + 1;
SELECT tableoid::regclass, * FROM gp ORDER BY id;
UPDATE gp SET region = 4, state = 'confirmed' WHERE id = 1;
UPDATE gp SET region = 1, state = 'created' WHERE id = 1;
UPDATE gp SET region = 1, state = 'nonsense' WHERE id = 1;
UPDATE gp SET region = 1, state = NULL WHERE id = 1;
UPDATE gp SET region = 1, version = 1 WHERE id = 1;
UPDATE gp SET region = 1, version = 9 WHERE id = 1;
UPDATE gp SET region = 1, version = 4 WHERE id = 1;
SELECT tableoid::regclass, * FROM gp ORDER BY id;
-- MERGE
MERGE INTO gp USING (VALUES (1)) s (id) ON gp.id = s.id WHEN MATCHED THEN UPDATE SET region = 2, state = 'shipped';
-- by the functions
SELECT * FROM idem_transition('gp', '(1,2)', 'delivered', expected_version => 5, changes => '{"region": 3}');
SELECT * FROM idem_transition('gp', '(1,2)', 'delivered');
SELECT * FROM idem_transition('gp', '(1,3)', 'delivered', expected_version => 5);
SELECT * FROM idem_update('gp', '(1,3)', 6, '{"region": 1, "note": "moved"}');
SELECT * FROM idem_update('gp', '(1,1)', 6, '{"region": 1, "note": "moved"}');
SELECT * FROM idem_transition('gp2', '(9,2)', 'confirmed');
SELECT tableoid::regclass, * FROM gp ORDER BY id;
-- a row deleted and inserted by hand is a new row
WITH gone AS (DELETE FROM gp WHERE id = 1 RETURNING *)
INSERT INTO gp SELECT id, 2, state, version FROM gone;
WITH gone AS (DELETE FROM gp WHERE id = 2 RETURNING *)
INSERT INTO gp SELECT id, 2, state, version FROM gone RETURNING *;
-- in the same command as a move
WITH moved AS (UPDATE gp SET region = 4 WHERE id = 1 RETURNING *)
INSERT INTO gp SELECT 10, 1, state, version FROM moved;
WITH moved AS (UPDATE gp SET region = 4 WHERE id = 1 RETURNING *)
INSERT INTO gp SELECT 10, 1, 'created', version FROM moved RETURNING id, version;
SELECT id, region, state, version FROM gp WHERE id IN (1, 10) ORDER BY id;

-- triggers that move and insert rows themselves while a row is on its way
CREATE FUNCTION gp_meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() = 1 THEN
        INSERT INTO gp VALUES (20 + TG_ARGV[0]::int, 1);
        UPDATE gp SET region = 5 - region WHERE id = 10;
    END IF;
    RETURN coalesce(NEW, OLD);
END $$;
CREATE TRIGGER a1 BEFORE UPDATE ON gp FOR EACH ROW EXECUTE FUNCTION gp_meddle(1);
CREATE TRIGGER a2 BEFORE DELETE ON gp FOR EACH ROW EXECUTE FUNCTION gp_meddle(2);
CREATE TRIGGER a3 BEFORE INSERT ON gp FOR EACH ROW EXECUTE FUNCTION gp_meddle(3);
CREATE TRIGGER a4 AFTER DELETE ON gp FOR EACH ROW EXECUTE FUNCTION gp_meddle(4);
CREATE TRIGGER a5 AFTER INSERT ON gp FOR EACH ROW EXECUTE FUNCTION gp_meddle(5);
CREATE TRIGGER "A4" AFTER DELETE ON gp FOR EACH ROW EXECUTE FUNCTION gp_meddle(6);
CREATE TRIGGER "A5" AFTER INSERT ON gp FOR EACH ROW EXECUTE FUNCTION gp_meddle(7);
UPDATE gp SET region = 3 WHERE id = 1;
SELECT id, region, state, version FROM gp WHERE id = 1 OR id >= 10 ORDER BY id;
DROP TRIGGER a1 ON gp; DROP TRIGGER a2 ON gp; DROP TRIGGER a3 ON gp; DROP TRIGGER a4 ON gp; DROP TRIGGER a5 ON gp;
DROP TRIGGER "A4" ON gp; DROP TRIGGER "A5" ON gp;
DROP FUNCTION gp_meddle;
-- an insertion that a trigger suppresses leaves nothing behind
CREATE FUNCTION gp_skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER a BEFORE INSERT ON gp34 FOR EACH ROW EXECUTE FUNCTION gp_skip();
BEGIN;
UPDATE gp SET region = 4 WHERE id = 1;
INSERT INTO gp VALUES (30, 1, 'created', 50) RETURNING version;
INSERT INTO gp VALUES (31, 1, 'delivered');
ROLLBACK;
DROP TRIGGER a ON gp34;
DROP FUNCTION gp_skip;
-- in savepoints
BEGIN;
SAVEPOINT a;
UPDATE gp SET region = 4 WHERE id = 1;
ROLLBACK TO a;
UPDATE gp SET region = 4 WHERE id = 1 RETURNING version;
INSERT INTO gp VALUES (30, 1, 'created', 50) RETURNING version;
SAVEPOINT b;
UPDATE gp SET region = 1 WHERE id IN (1, 30) RETURNING id, version;
ROLLBACK;
-- a table that is referenced
CREATE TABLE gp_ref (id int, region int, FOREIGN KEY (id, region) REFERENCES gp ON UPDATE CASCADE);
INSERT INTO gp_ref VALUES (1, 3);
UPDATE gp SET region = 4 WHERE id = 1 RETURNING version;
SELECT * FROM gp_ref;
DROP TABLE gp_ref;

-- one step each, one row per step, by the name of the whole table
SELECT target, key, from_state, to_state FROM idempotency_machine_history WHERE target = 'public.gp' AND key ~ '^.1,' ORDER BY changed_at;

-- guards are for the whole table
SELECT idem_guard_state('gp1', 'state', 'gp_order');
SELECT idem_guard_version('gp3');
SELECT idem_unguard('gp1');
SELECT idem_guard_state('gp', 'state', 'gp_order', true);
ALTER TABLE gp DETACH PARTITION gp1;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'gp1'::regclass;
SELECT idem_unguard('gp');
SELECT count(*) FROM pg_trigger WHERE tgrelid IN (SELECT relid FROM pg_partition_tree('gp'));
UPDATE gp SET region = 3, state = 'x' WHERE id = 1;
-- a table that was guarded before it became a partition keeps its guard, and can lose it
CREATE TABLE gp9 (LIKE gp INCLUDING ALL);
SELECT idem_guard_state('gp9', 'state', 'gp_order'), idem_guard_version('gp9');
ALTER TABLE gp ATTACH PARTITION gp9 FOR VALUES IN (9);
UPDATE gp SET region = 9 WHERE id = 1;
INSERT INTO gp VALUES (9, 9);
UPDATE gp SET region = 3 WHERE id = 9 RETURNING state, version;
SELECT idem_guard_version('gp9');
SELECT idem_guard_state('gp', 'state', 'gp_order');
SELECT idem_unguard('gp9');
UPDATE gp SET region = 9 WHERE id = 1;
DROP TABLE gp, gp1;
DELETE FROM idempotency_machine_history;
DELETE FROM idempotency_machine WHERE machine ~ '^gp_';
