-- What only reads may be part of a parallel plan, also in a session that has
-- not read any policy yet.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
SELECT outcome FROM idem_claim('par-1', '{"n": 1}', scope => 'parallel');
SELECT idem_checkpoint('par-1', 'first', '1', scope => 'parallel',
    token => (SELECT token FROM transaction_log WHERE scope = 'parallel'));
CREATE TABLE many_keys AS SELECT 'par-' || i AS k FROM generate_series(1, 3000) i;
ALTER TABLE many_keys SET (parallel_workers = 2);

-- the setting has had another name before 16
\set be_parallel 'SELECT count(set_config(name, ''on'', false)) FROM pg_settings WHERE name IN (''force_parallel_mode'', ''debug_parallel_query'')'
\c -
:be_parallel;
SELECT request_id, status, attempt FROM idem_lookup('par-1', 'parallel');
\c -
:be_parallel;
SELECT step, result FROM idem_checkpoints('par-1', 'parallel');
\c -
:be_parallel;
SELECT request_id, status, attempt FROM idem_log WHERE scope = 'parallel';
\c -
:be_parallel;
SELECT request_id, state FROM idem_in_flight WHERE scope = 'parallel';
\c -
:be_parallel;
SELECT count(*) FROM idem_review WHERE scope = 'parallel';

-- a real one, without the setting
\c -
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
EXPLAIN (COSTS OFF) SELECT k, (SELECT l.status FROM idem_lookup(k, 'parallel') l) FROM many_keys WHERE k LIKE 'par-_';
SELECT k, (SELECT l.status FROM idem_lookup(k, 'parallel') l) FROM many_keys WHERE k LIKE 'par-_' ORDER BY k LIMIT 2;

DROP TABLE many_keys;
DELETE FROM idempotency_checkpoint WHERE scope = 'parallel';
DELETE FROM transaction_log WHERE scope = 'parallel';
