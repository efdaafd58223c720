-- idem_upsert with an expected version: a repeat and a rival told apart
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
RESET client_min_messages;

CREATE TABLE cv_orders (id int PRIMARY KEY, status text, amount numeric, version bigint);
SELECT idem_guard_version('cv_orders');

-- version 0 is no row
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "created", "amount": 10}', '{status}', 0);
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "created", "amount": 10}', '{status}', 0);
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "other", "amount": 10}', '{status}', 0);
-- the guard keeps the version, nobody else
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "paid", "version": 2}', '{status,version}');
-- the step from 1 to 2, its repeat, a rival
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "paid", "amount": 10}', '{status}', 1);
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "paid", "amount": 10}', '{status}', 1);
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "cancelled", "amount": 10}', '{status}', 1);
-- the same values at the expected version, at a later one
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "paid"}', NULL, 2);
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "sent"}', NULL, 2);
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "sent"}', NULL, 1);
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "sent"}', NULL, 9);
-- a row that is gone is not made again by one who expects a version
SELECT * FROM idem_upsert('cv_orders', '{"id": 2, "status": "sent"}', NULL, 3);
-- without an expected version the present one is told
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "sent"}');
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "back"}');
-- the version in the row is not updated by default
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "back", "version": 2}');
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "again", "version": 4}', expected_version => 4);
SELECT * FROM idem_upsert('cv_orders', '{"id": 1, "status": "far"}', NULL, 9223372036854775807);

-- a version from before the guard: NULL counts as 0
CREATE TABLE cv_old (id int PRIMARY KEY, n int, version int);
INSERT INTO cv_old VALUES (1, 1, NULL);
SELECT idem_guard_version('cv_old');
SELECT outcome, version FROM idem_upsert('cv_old', '{"id": 1, "n": 2}', expected_version => 1);
SELECT outcome, version FROM idem_upsert('cv_old', '{"id": 1, "n": 2}', expected_version => 0);
SELECT outcome, version FROM idem_upsert('cv_old', '{"id": 1, "n": 2}', expected_version => 0);
DROP TABLE cv_old;

-- the guard is found after a rename, and missed when it is gone
ALTER TABLE cv_orders RENAME TO cv_renamed;
SELECT * FROM idem_upsert('cv_renamed', '{"id": 1, "status": "renamed"}', NULL, 5);
SELECT idem_unguard('cv_renamed');
SELECT * FROM idem_upsert('cv_renamed', '{"id": 1, "status": "late"}', NULL, 6);
SELECT * FROM idem_upsert('cv_renamed', '{"id": 1, "status": "late"}');

DROP TABLE cv_renamed;
