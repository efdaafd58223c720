-- The inbox: a message is new exactly once.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
\getenv srcdir PG_ABS_SRCDIR
\set helpers :srcdir /sql/helpers.psql
\set ECHO none
\i :helpers
\set ECHO all
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';

SELECT idem_once('m-1', 'once');
SELECT idem_once('m-1', 'once');
SELECT idem_once('m-1', 'once/other');
SELECT idem_once('m-1', scope => 'once', ttl => '1 hour');
-- message ids and request ids are separate
SELECT outcome FROM idem_claim('m-1', scope => 'once');
-- in one transaction, also in one statement
BEGIN;
SELECT idem_once('m-2', 'once'), idem_once('m-2', 'once');
SELECT idem_once('m-2', 'once');
COMMIT;
SELECT g, idem_once('m-' || g % 2, 'once/mod') FROM generate_series(1, 4) g ORDER BY g;
-- how long: the call, the scope, the setting
SELECT idem_once('ttl-1', 'once');
SELECT idem_once('ttl-2', 'once', '1 hour');
SELECT idem_configure('once/short', ttl => '2 hours');
SELECT idem_once('ttl-3', 'once/short');
SET idempotency.default_once_ttl = '3h';
SELECT idem_once('ttl-4', 'once');
RESET idempotency.default_once_ttl;
SELECT message_id, expires_at - received_at AS ttl FROM idempotency_inbox WHERE message_id LIKE 'ttl-%' ORDER BY 1;

-- rolled back is not recorded: whole, in a savepoint, by an error
BEGIN;
SELECT idem_once('r-1', 'once');
ROLLBACK;
SELECT idem_once('r-1', 'once');
BEGIN;
SAVEPOINT s;
SELECT idem_once('r-2', 'once');
ROLLBACK TO s;
SELECT idem_once('r-2', 'once');
SAVEPOINT s;
SELECT idem_once('r-2', 'once');
RELEASE s;
COMMIT;
SELECT idem_once('r-2', 'once');

-- expired messages are new again
SET idempotency.test_clock = '2030-01-01 12:00:00+00';
SELECT idem_once('e-1', 'once', '1 hour');
SELECT * FROM idem_once_many('{e-2,e-3}', 'once', '1 hour');
SET idempotency.test_clock = '2030-01-01 12:59:59+00';
SELECT idem_once('e-1', 'once');
SET idempotency.test_clock = '2030-01-01 13:00:00+00';
BEGIN;
SELECT idem_once('e-1', 'once');
ROLLBACK;
SELECT idem_once('e-1', 'once', '1 hour');
SELECT idem_once('e-1', 'once');
SELECT * FROM idem_once_many('{e-1,e-2,e-2,e-3,e-4}', 'once', '1 hour');
SELECT * FROM idem_once_many('{e-1,e-2,e-3,e-4}', 'once', '1 hour');
SELECT message_id, received_at, expires_at FROM idempotency_inbox WHERE message_id LIKE 'e-%' ORDER BY 1;
-- within one transaction, too
BEGIN;
SELECT idem_once('e-5', 'once', '1 hour');
SET idempotency.test_clock = '2030-01-01 15:00:00+00';
SELECT idem_once('e-5', 'once', '1 hour');
SELECT idem_once('e-5', 'once', '1 hour');
COMMIT;
RESET idempotency.test_clock;
-- so short that it is over within the call
SELECT count(*) >= 1 AS at_least_one FROM idem_once_many(array_fill('brief'::text, '{50}'), 'once', '1 microsecond');
SELECT count(*) FROM idempotency_inbox WHERE message_id = 'brief';

-- many: those that are new, in the order of the array
SELECT * FROM idem_once_many('{z,m-1,a,z,k,a}', 'once');
SELECT * FROM idem_once_many('{z,b,a,k}', 'once');
SELECT count(*) FROM idem_once_many('{}', 'once');
SELECT idem_once_many('{z,c,d}', 'once');
-- joined to the messages themselves
CREATE TEMP TABLE handled (id text, body text);
INSERT INTO handled SELECT m.id, m.body
  FROM (VALUES ('j-1', 'one'), ('a', 'old'), ('j-2', 'two')) m (id, body)
  JOIN idem_once_many('{j-1,a,j-2}', 'once') AS n (id) USING (id);
SELECT * FROM handled ORDER BY 1;

-- taking back what this transaction recorded
BEGIN;
SELECT * FROM idem_once_many('{u-1,u-2,u-3}', 'once');
SELECT idem_once_undo('{u-2,u-2,a,nobody}', 'once');
SELECT * FROM idem_once_many('{u-1,u-2}', 'once');
SELECT idem_once_undo('{u-2}', 'once');
COMMIT;
SELECT * FROM idem_once_many('{u-1,u-2,u-3}', 'once');
-- not what another one did
SELECT idem_once_undo('{u-1,u-2,u-3}', 'once');
SELECT idem_once('u-1', 'once');
-- a message that fails in a savepoint
BEGIN;
SELECT * FROM idem_once_many('{s-1,s-2}', 'once');
SAVEPOINT s;
INSERT INTO handled VALUES ('s-1', 'failed');
ROLLBACK TO s;
SELECT idem_once_undo('{s-1}', 'once');
SAVEPOINT s;
INSERT INTO handled VALUES ('s-2', 'done');
RELEASE s;
COMMIT;
SELECT id, body FROM handled WHERE id LIKE 's-%';
SELECT * FROM idem_once_many('{s-1,s-2}', 'once');
-- undone in a savepoint that is rolled back itself
BEGIN;
SELECT idem_once('s-3', 'once');
SAVEPOINT s;
SELECT idem_once_undo('{s-3}', 'once');
ROLLBACK TO s;
COMMIT;
SELECT idem_once('s-3', 'once');
-- what was expired before is not brought back by an undo
SET idempotency.test_clock = '2030-01-02 12:00:00+00';
BEGIN;
SELECT idem_once('e-1', 'once', '1 hour');
SELECT idem_once_undo('{e-1}', 'once');
COMMIT;
SELECT idem_once('e-1', 'once', '1 hour');
RESET idempotency.test_clock;

-- read-only transactions learn what is known
BEGIN READ ONLY;
SELECT idem_once('m-1', 'once');
SELECT * FROM idem_once_many('{m-1,a}', 'once');
SELECT pg_current_xact_id_if_assigned() IS NULL AS wrote_nothing;
SELECT probe.sqlstate($$SELECT idem_once('new', 'once')$$);
SELECT probe.sqlstate($$SELECT idem_once_many('{m-1,new}', 'once')$$);
COMMIT;
BEGIN;
SELECT idem_once('ro-1', 'once');
SET TRANSACTION READ ONLY;
SELECT probe.sqlstate($$SELECT idem_once_undo('{ro-1}', 'once')$$);
SELECT idem_once_undo('{nobody}', 'once');
COMMIT;
-- a snapshot of its own: as INSERT ... ON CONFLICT does
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT idem_once('m-1', 'once'), idem_once('rr-1', 'once'), idem_once('rr-1', 'once');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT idem_once('m-1', 'once'), idem_once('rr-2', 'once'), idem_once('rr-2', 'once');
COMMIT;

-- bad arguments
SELECT n, probe.raises(format('SELECT %s', call)) FROM unnest(ARRAY[
    $$idem_once(NULL)$$, $$idem_once('')$$, $$idem_once(repeat('x', 256))$$, $$idem_once('x', NULL)$$, $$idem_once('x', ttl => '0')$$,
    $$idem_once_many(NULL)$$, $$idem_once_many('{a,NULL}')$$, $$idem_once_many('{{a,b}}')$$, $$idem_once_many('{a}', NULL)$$, $$idem_once_many('{a}', ttl => '-1 s')$$,
    $$idem_once_undo(NULL)$$, $$idem_once_undo('{NULL}')$$]) WITH ORDINALITY u (call, n) ORDER BY n;
SELECT count(*) AS none FROM idempotency_inbox WHERE scope = '' AND message_id = 'a';

-- 100,000 messages, half of them known
SELECT count(*) FROM idem_once_many((SELECT array_agg('big-' || g) FROM generate_series(1, 100000, 2) g), 'once/big');
SELECT count(*), min(m), max(m) FROM idem_once_many((SELECT array_agg('big-' || g) FROM generate_series(1, 100000) g), 'once/big') m;
SELECT count(*) FROM idempotency_inbox WHERE scope = 'once/big';

-- clean up
SELECT idem_unconfigure('once/short');
DELETE FROM idempotency_inbox WHERE scope LIKE 'once%';
DELETE FROM transaction_log WHERE scope = 'once';
DROP SCHEMA probe CASCADE;
