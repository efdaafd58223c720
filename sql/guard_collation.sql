-- Guards of columns whose collation holds different strings to be equal
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
SELECT count(*) = 0 AS skip FROM pg_collation WHERE collname = 'und-x-icu' \gset
\if :skip
\quit
\endif
CREATE COLLATION gc_ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
SELECT idem_machine('gc_order', ARRAY['created'], ARRAY['created->confirmed', 'confirmed->shipped']);
CREATE TABLE gc (id text COLLATE gc_ci PRIMARY KEY, state text COLLATE gc_ci, note text COLLATE gc_ci, version int);
SELECT idem_guard_state('gc', 'state', 'gc_order');
SELECT idem_guard_version('gc');
INSERT INTO gc VALUES ('A', 'Created');
INSERT INTO gc VALUES ('A', 'created', 'n');
-- equal, yet another state
UPDATE gc SET state = 'CREATED';
UPDATE gc SET state = 'Confirmed';
SELECT * FROM idem_transition('gc', 'A', 'CREATED');
-- keys are equal as the primary key holds them to be
SELECT * FROM idem_transition('gc', 'a', 'confirmed');
SELECT * FROM idem_transition('gc', 'A', 'confirmed', from_state => 'created');
-- equal, yet another value
SELECT * FROM idem_update('gc', 'A', 2, '{"note": "abc"}');
SELECT * FROM idem_update('gc', 'A', 2, '{"note": "ABC"}');
SELECT * FROM idem_update('gc', 'A', 2, '{"note": "abc"}');
SELECT * FROM gc;
DROP TABLE gc;
DROP COLLATION gc_ci;
DELETE FROM idempotency_machine WHERE machine = 'gc_order';
