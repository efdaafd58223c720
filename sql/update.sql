-- idem_update: every outcome
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;

CREATE DOMAIN up_domain AS text NOT NULL DEFAULT 'd';
CREATE TYPE up_pair AS (a int, b text);
CREATE TABLE up (id int PRIMARY KEY, name text, amount numeric(10, 2), at timestamptz, j jsonb, js json, n int[], p up_pair,
    f float8, flag boolean, v varchar(3), d up_domain, g int GENERATED ALWAYS AS (id * 2) STORED, i int GENERATED ALWAYS AS IDENTITY, version int);
SELECT * FROM idem_update('up', '1', 1, '{"name": "x"}');
SELECT idem_guard_version('up');
INSERT INTO up (id) VALUES (1), (2);

SELECT * FROM idem_update('up', '1', 1, '{"name": "x"}');
SELECT * FROM idem_update('up', '1', 1, '{"name": "x"}');
SELECT * FROM idem_update('up', '1', 1, '{"name": "X"}');
SELECT * FROM idem_update('up', '1', 0, '{"name": "x"}');
SELECT * FROM idem_update('up', '1', 2, '{"name": "x"}');
SELECT * FROM idem_update('up', '1', 1, '{"name": "x"}');
SELECT * FROM idem_update('up', '1', 4, '{"name": "x"}');
SELECT * FROM idem_update('up', '9', 1, '{"name": "x"}');
SELECT * FROM idem_update('up', '1', 9223372036854775807, '{"name": "x"}');

-- values of all kinds, and the repeat knows them again
SELECT * FROM idem_update('up', '2', 1, '{"name": null, "amount": 1234567.891, "at": "2026-01-01T12:00:00Z", "j": {"a": [1, null]}, "js": [1, "x"], "n": [1, null, 3],
    "p": {"a": 1, "b": "y"}, "f": 1e300, "flag": true, "v": "abc", "d": "e"}');
SELECT id, name, amount, at = '2026-01-01 12:00+00' AS at, j, js, n, p, f, flag, v, d, g, version FROM up WHERE id = 2;
SELECT * FROM idem_update('up', '2', 1, '{"name": null, "amount": 1234567.890, "at": "2026-01-01T12:00:00Z", "j": {"a": [1.0, null]}, "js": [1, "x"], "n": [1, null, 3],
    "p": {"a": 1, "b": "y"}, "f": 1e300, "flag": true, "v": "abc", "d": "e"}');
SELECT * FROM idem_update('up', '2', 1, '{"name": ""}');
SELECT * FROM idem_update('up', '2', 1, '{"amount": 1234567.89}');
SELECT * FROM idem_update('up', '2', 1, '{"amount": 1234567.88}');
SELECT * FROM idem_update('up', '2', 1, '{"n": [1, null]}');
SELECT * FROM idem_update('up', '2', 1, '{"j": null}');
SELECT * FROM idem_update('up', '2', 2, '{"amount": 0.1, "f": 9007199254740993, "j": 12345678901234567890.5}');
SELECT amount, j FROM up WHERE id = 2;

-- what is refused, by whom
SELECT * FROM idem_update('up', '1', 3, '{"nope": 1}');
SELECT * FROM idem_update('up', '1', 3, '{"version": 1}');
SELECT * FROM idem_update('up', '1', 3, '{}');
SELECT * FROM idem_update('up', '1', 3, '"x"');
SELECT * FROM idem_update(NULL, '1', 3, '{"name": "x"}');
SELECT * FROM idem_update('up', NULL, 3, '{"name": "x"}');
SELECT * FROM idem_update('up', '1', NULL, '{"name": "x"}');
SELECT * FROM idem_update('up', '1', 3, NULL);
\set VERBOSITY sqlstate
SELECT * FROM idem_update('up', '1', 3, '{"g": 1}');
SELECT * FROM idem_update('up', '1', 3, '{"i": 1}');
SELECT * FROM idem_update('up', '1', 3, '{"d": null}');
SELECT * FROM idem_update('up', '1', 3, '{"v": "abcd"}');
SELECT * FROM idem_update('up', '1', 3, '{"amount": 1e20}');
SELECT * FROM idem_update('up', '1', 3, '{"n": {"a": 1}}');
SELECT * FROM idem_update('up', '1', 3, '{"flag": "perhaps"}');
SELECT * FROM idem_update('up', 'x', 3, '{"name": "x"}');
\set VERBOSITY default
CREATE VIEW up_view AS SELECT * FROM up;
SELECT * FROM idem_update('up_view', '1', 3, '{"name": "x"}');
DROP VIEW up_view;
SELECT version FROM up WHERE id = 1;

-- a key that changes
SELECT * FROM idem_update('up', '1', 3, '{"id": 10}');
SELECT * FROM idem_update('up', '1', 3, '{"id": 10}');
SELECT * FROM idem_update('up', '10', 3, '{"id": 10}');
-- a repeat writes nothing
BEGIN;
SELECT outcome FROM idem_update('up', '10', 3, '{"id": 10}');
SELECT outcome FROM idem_update('up', '10', 1, '{"name": "old"}');
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
COMMIT;
BEGIN READ ONLY;
SELECT outcome FROM idem_update('up', '10', 3, '{"id": 10}');
SELECT outcome FROM idem_update('up', '10', 1, '{"name": "old"}');
\set VERBOSITY sqlstate
SELECT outcome FROM idem_update('up', '10', 4, '{"name": "new"}');
\set VERBOSITY default
ROLLBACK;
-- rows older than the guard are at version 0
SET session_replication_role = replica;
INSERT INTO up (id, d) VALUES (20, 'x');
RESET session_replication_role;
SELECT * FROM idem_update('up', '20', 1, '{"name": "a"}');
SELECT * FROM idem_update('up', '20', 0, '{"name": "a"}');
SELECT * FROM idem_update('up', '20', 0, '{"name": "a"}');
-- a state guard has its say
SELECT idem_machine('up_order', ARRAY['a'], ARRAY['a->b', 'b->c']);
SELECT idem_guard_state('up', 'v', 'up_order');
INSERT INTO up (id, v) VALUES (30, 'a');
SELECT * FROM idem_update('up', '30', 1, '{"v": "c"}');
SELECT * FROM idem_update('up', '30', 1, '{"v": "b"}');
-- statements follow the table
ALTER TABLE up RENAME name TO title;
ALTER TABLE up RENAME version TO revision;
ALTER TABLE up RENAME TO up2;
SELECT * FROM idem_update('up2', '10', 4, '{"title": "renamed"}');
CREATE SCHEMA up_schema;
ALTER TABLE up2 SET SCHEMA up_schema;
SELECT * FROM idem_update('up_schema.up2', '10', 5, '{"title": "moved"}');
ALTER SCHEMA up_schema RENAME TO up_schema2;
CREATE SCHEMA up_schema;
CREATE TABLE up_schema.up2 (LIKE up_schema2.up2 INCLUDING ALL);
SELECT * FROM idem_update('up_schema2.up2', '10', 6, '{"title": "schema renamed"}');
DELETE FROM up_schema2.up2 WHERE id <> 10;
ALTER TABLE up_schema2.up2 DROP CONSTRAINT up_pkey, ADD PRIMARY KEY (title);
SELECT * FROM idem_update('up_schema2.up2', 'schema renamed', 7, '{"flag": false}');
SELECT title, flag, revision FROM up_schema2.up2 WHERE id = 10;
SELECT count(*) FROM up_schema.up2;

DROP SCHEMA up_schema, up_schema2 CASCADE;
DROP TYPE up_pair;
DROP DOMAIN up_domain;
DELETE FROM idempotency_machine WHERE machine ~ '^up_';
