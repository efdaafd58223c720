-- Version guards
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;

CREATE TABLE gv (id int PRIMARY KEY, note text, version bigint);
INSERT INTO gv VALUES (100, 'older than the guard', NULL), (101, 'older than the guard', 41);
SELECT idem_guard_version('gv');
SELECT oid AS before FROM pg_trigger WHERE tgrelid = 'gv'::regclass AND tgname = 'zzz_idem_version_set' \gset
SELECT idem_guard_version('gv', 'version');
SELECT oid = :before AS untouched FROM pg_trigger WHERE tgrelid = 'gv'::regclass AND tgname = 'zzz_idem_version_set';

-- 1 on insert, whatever is given
INSERT INTO gv VALUES (1, 'a', NULL), (2, 'b', 0), (3, 'c', 17);
COPY gv FROM stdin;
4	d	9
\.
SELECT * FROM gv ORDER BY id;
-- one more on every update, also one that changes nothing
UPDATE gv SET note = note;
UPDATE gv SET version = version WHERE id = 1;
UPDATE gv SET version = version + 1 WHERE id = 2;
UPDATE gv SET version = 3 WHERE id = 3;
SELECT * FROM gv ORDER BY id;
-- not back, not further, not away
UPDATE gv SET version = 2 WHERE id = 1;
UPDATE gv SET version = version + 2 WHERE id = 1;
UPDATE gv SET version = NULL WHERE id = 1;
UPDATE gv SET version = -1 WHERE id = 1;
\set VERBOSITY sqlstate
UPDATE gv SET version = 0;
\set VERBOSITY default
-- ON CONFLICT and MERGE
INSERT INTO gv VALUES (1, 'conflict') ON CONFLICT (id) DO UPDATE SET note = excluded.note RETURNING version;
INSERT INTO gv VALUES (1, 'conflict', 4) ON CONFLICT (id) DO UPDATE SET version = excluded.version;
MERGE INTO gv USING (VALUES (1), (5)) s (id) ON gv.id = s.id
    WHEN MATCHED THEN UPDATE SET note = 'merged' WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'merged', 5);
SELECT * FROM gv WHERE id IN (1, 5) ORDER BY id;
-- the optimistic lock that people write by hand
UPDATE gv SET note = 'mine', version = 6 WHERE id = 1 AND version = 5 RETURNING version;
UPDATE gv SET note = 'mine', version = 6 WHERE id = 1 AND version = 5 RETURNING version;

-- other triggers cannot get round it
CREATE FUNCTION gv_meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.version := TG_ARGV[0]; RETURN NEW; END $$;
CREATE TRIGGER aaa BEFORE UPDATE ON gv FOR EACH ROW EXECUTE FUNCTION gv_meddle('1');
UPDATE gv SET note = 'x' WHERE id = 1;
DROP TRIGGER aaa ON gv;
CREATE TRIGGER zzzz BEFORE INSERT OR UPDATE ON gv FOR EACH ROW EXECUTE FUNCTION gv_meddle('77');
UPDATE gv SET note = 'x' WHERE id = 1;
INSERT INTO gv VALUES (6);
DROP TRIGGER zzzz ON gv;
DROP FUNCTION gv_meddle;

-- foreign key actions count as updates
CREATE TABLE gv_up (id int PRIMARY KEY);
INSERT INTO gv_up VALUES (1);
CREATE TABLE gv_down (id int PRIMARY KEY, up int REFERENCES gv_up ON UPDATE CASCADE ON DELETE SET NULL, version int);
SELECT idem_guard_version('gv_down');
INSERT INTO gv_down VALUES (1, 1);
UPDATE gv_up SET id = 2;
DELETE FROM gv_up;
SELECT * FROM gv_down;
DROP TABLE gv_down, gv_up;

-- types of the column
CREATE DOMAIN gv_domain AS int NOT NULL;
CREATE TABLE gv_types (id int PRIMARY KEY, v2 smallint, v4 gv_domain DEFAULT 0, t text, g bigint GENERATED ALWAYS AS (id + 1) STORED);
SELECT idem_guard_version('gv_types', 'v2');
INSERT INTO gv_types VALUES (1);
UPDATE gv_types SET t = '';
SET session_replication_role = replica;
UPDATE gv_types SET v2 = 32767;
RESET session_replication_role;
UPDATE gv_types SET t = '';
-- another column replaces the first
SELECT idem_guard_version('gv_types', 'v4');
UPDATE gv_types SET t = '';
SELECT id, v2, v4 FROM gv_types;
SELECT tgname FROM pg_trigger WHERE tgrelid = 'gv_types'::regclass ORDER BY 1;
SELECT idem_guard_version('gv_types', 't');
\set VERBOSITY sqlstate
SELECT idem_guard_version('gv_types', 'g');
\set VERBOSITY default
SELECT idem_guard_version('gv_types', 'nope');
SELECT idem_guard_version('gv_types');
SELECT idem_guard_version('gv_types', NULL);
SELECT idem_guard_version(NULL);
SELECT idem_guard_version('pg_class', 'reltuples');
SELECT idem_unguard('gv_types');
INSERT INTO gv_types VALUES (2, 9);
SELECT id, v2, v4 FROM gv_types ORDER BY id;
DROP TABLE gv_types, gv;
DROP DOMAIN gv_domain;
