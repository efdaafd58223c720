-- Arguments that nobody passes on purpose: names beyond their length, tables
-- that are gone, states that do not exist
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
\set VERBOSITY terse

SELECT idem_scope_is_open(repeat('s', 255));
SELECT idem_scope_is_open(repeat('s', 256));
SELECT idem_scope_is_open(repeat('s', 100000));
SELECT idem_review_kind(repeat('s', 100000), 'processing', 1, 0, 0, NULL, NULL, NULL, NULL);
SELECT idem_review_kind('', 'no such status', 1, 0, 0, NULL, NULL, NULL, NULL);

SELECT idem_update(0, '1', 1, '{}');
SELECT idem_insert(0, '{}');
SELECT idem_upsert(0, '{}');
SELECT idem_transition(0, '1', 'done');
SELECT idem_guard_version(0);
SELECT idem_unguard(0);
