-- Checkpoints: finished steps that need not be done again.
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
SET idempotency.test_clock = '2030-01-01 00:00:00';
CREATE TABLE probe.writes (n int);

-- steps of one attempt are given to the next
SELECT outcome, checkpoints, token AS t FROM idem_claim('c1', scope => 'cp', lease => '1 min') \gset
SELECT :'outcome', :'checkpoints';
SELECT idem_checkpoint('c1', 'reserve', '{"seat": 7}', :t, 'cp');
SELECT idem_checkpoint('c1', 'announce', token => :t, scope => 'cp');
SELECT idem_checkpoint('c1', 'a null', 'null', :t, 'cp'), idem_checkpoint('c1', 'zero', '0', :t, 'cp'), idem_checkpoint('c1', 'empty', '[]', :t, 'cp');
SELECT step, result, result IS NULL AS is_null, completed_at FROM idem_checkpoints('c1', 'cp');
SET idempotency.test_clock = '2030-01-01 00:10:00';
SELECT outcome, attempt, checkpoints, token AS t2 FROM idem_claim('c1', scope => 'cp', lease => '1 min') \gset
SELECT :'outcome', :'attempt', :'checkpoints';
-- in order of completion, also over attempts
SELECT idem_checkpoint('c1', 'B', '1', :t2, 'cp'), idem_checkpoint('c1', 'A', '2', :t2, 'cp');
SELECT step, completed_at FROM idem_checkpoints('c1', 'cp');

-- fenced by the token: the stale one's writes are undone
BEGIN;
INSERT INTO probe.writes VALUES (1);
SELECT idem_checkpoint('c1', 'late', '1', :t, 'cp');
COMMIT;
SELECT count(*) FROM probe.writes;
SELECT probe.raises(format($$SELECT idem_checkpoint('c1', 'late', '1', %s, 'cp')$$, :t));
-- also where the step is there already
SELECT probe.sqlstate(format($$SELECT idem_checkpoint('c1', 'reserve', '{"seat": 7}', %s, 'cp')$$, :t));
-- without a token only where this transaction wrote the row
SELECT probe.raises($$SELECT idem_checkpoint('c1', 'late', scope => 'cp')$$);
SELECT probe.raises($$SELECT idem_checkpoint('absent', 'late', token => 1, scope => 'cp')$$);

-- the first result stays; a repetition that has written nothing is harmless
SELECT idem_checkpoint('c1', 'reserve', '{"seat": 8}', :t2, 'cp');
SELECT checkpoints -> 'reserve' AS reserve FROM (SELECT jsonb_object_agg(step, result) AS checkpoints FROM idem_checkpoints('c1', 'cp')) s;
-- one that has is undone
BEGIN;
INSERT INTO probe.writes VALUES (2);
SELECT idem_checkpoint('c1', 'reserve', '{"seat": 7}', :t2, 'cp');
COMMIT;
SELECT count(*) FROM probe.writes;
SELECT probe.raises(format($$INSERT INTO probe.writes VALUES (3); SELECT idem_checkpoint('c1', 'reserve', NULL, %s, 'cp')$$, :t2));
-- in the transaction that recorded the step, writing is no harm
BEGIN;
SELECT idem_checkpoint('c1', 'once', '1', :t2, 'cp');
INSERT INTO probe.writes VALUES (4);
SELECT idem_checkpoint('c1', 'once', '2', :t2, 'cp');
COMMIT;
SELECT n FROM probe.writes;
-- a savepoint takes its checkpoint back
BEGIN;
SELECT idem_checkpoint('c1', 'kept', token => :t2, scope => 'cp');
SAVEPOINT s;
SELECT idem_checkpoint('c1', 'undone', scope => 'cp');
ROLLBACK TO s;
SELECT idem_checkpoint('c1', 'after', scope => 'cp');
COMMIT;
SELECT step FROM idem_checkpoints('c1', 'cp') OFFSET 7;

-- a checkpoint renews the lease
SET idempotency.test_clock = '2030-01-01 00:20:00';
SELECT token AS t FROM idem_claim('c2', scope => 'cp', lease => '1 min') \gset
SET idempotency.test_clock = '2030-01-01 00:20:50';
SELECT idem_checkpoint('c2', 's', '1', :t, 'cp');
SET idempotency.test_clock = '2030-01-01 00:21:49';
SELECT outcome, retry_after FROM idem_claim('c2', scope => 'cp');
-- and never moves its end back
SELECT idem_extend('c2', '1 h', :t, 'cp');
SELECT idem_checkpoint('c2', 's2', '1', :t, 'cp');
SELECT outcome, retry_after FROM idem_claim('c2', scope => 'cp');

-- after the end: what was recorded is known, nothing is added
SELECT idem_finish('c2', '"ok"', token => :t, scope => 'cp');
SELECT idem_checkpoint('c2', 's', '1', :t, 'cp');
SELECT probe.sqlstate(format($$SELECT idem_checkpoint('c2', 's3', '1', %s, 'cp')$$, :t));
SELECT step FROM idem_checkpoints('c2', 'cp');
SELECT outcome, checkpoints IS NULL AS none FROM idem_claim('c2', scope => 'cp');

-- a failure keeps them for the next attempt
SELECT token AS t FROM idem_claim('c3', scope => 'cp') \gset
SELECT idem_checkpoint('c3', 's', '3', :t, 'cp');
SELECT idem_fail('c3', token => :t, scope => 'cp', retry_after => '0');
SELECT attempt, checkpoints, token AS t FROM idem_claim('c3', scope => 'cp') \gset
SELECT :'attempt', :'checkpoints';
-- a release of a later attempt does, too
SELECT idem_release('c3', :t, 'cp');
SELECT attempt, checkpoints, token AS t FROM idem_claim('c3', scope => 'cp') \gset
SELECT :'attempt', :'checkpoints';
-- and so does a person who grants a retry
SELECT idem_resolve('c3', 'retry', scope => 'cp', force => true);
SELECT attempt, checkpoints FROM idem_claim('c3', scope => 'cp');

-- a key that comes again sees none of an earlier life: expired
SELECT token AS t FROM idem_claim('life', scope => 'cp', ttl => '1 h') \gset
SELECT idem_checkpoint('life', 's', '"old"', :t, 'cp');
SELECT idem_finish('life', token => :t, scope => 'cp');
SET idempotency.test_clock = '2030-01-01 02:00:00';
SELECT count(*) FROM idem_checkpoints('life', 'cp');
SELECT outcome, attempt, checkpoints, token AS t FROM idem_claim('life', scope => 'cp', ttl => '1 h') \gset
SELECT :'outcome', :'attempt', :'checkpoints';
SELECT count(*) FROM idem_checkpoints('life', 'cp');
SELECT idem_checkpoint('life', 's', '"new"', :t, 'cp');
SELECT step, result FROM idem_checkpoints('life', 'cp');
SELECT count(*) FROM idempotency_checkpoint WHERE request_id = 'life';
-- released
SELECT idem_release('life', :t, 'cp');
SELECT count(*) FROM idempotency_checkpoint WHERE request_id = 'life';
SELECT outcome, checkpoints FROM idem_claim('life', scope => 'cp', ttl => '1 h', lease => '1 min');
-- abandoned, and expired a ttl after its lease
SELECT outcome, token AS t FROM idem_claim('life-2', scope => 'cp', ttl => '1 h', lease => '1 min') \gset
SELECT idem_checkpoint('life-2', 's', '"old"', :t, 'cp');
SET idempotency.test_clock = '2030-01-01 03:01:00';
SELECT outcome, attempt, checkpoints FROM idem_claim('life-2', scope => 'cp', ttl => '1 h', lease => '1 min');
-- settled by a person, and expired
SELECT outcome, token AS t FROM idem_claim('life-3', scope => 'cp', ttl => '1 h') \gset
SELECT idem_checkpoint('life-3', 's', '"old"', :t, 'cp');
SELECT idem_resolve('life-3', 'completed', scope => 'cp', force => true);
SELECT probe.sqlstate(format($$SELECT idem_checkpoint('life-3', 's2', '1', %s, 'cp')$$, :t));
SET idempotency.test_clock = '2030-01-01 05:00:00';
SELECT outcome, attempt, checkpoints FROM idem_claim('life-3', scope => 'cp', ttl => '1 h');
-- the same key in another scope is another one
SELECT token AS t FROM idem_claim('c4', scope => 'cp') \gset
SELECT idem_checkpoint('c4', 's', '1', :t, 'cp');
SELECT outcome, checkpoints FROM idem_claim('c4', scope => 'cp/below');
SELECT count(*) FROM idem_checkpoints('c4', 'cp/below');

-- many steps, names of any kind
SELECT token AS t FROM idem_claim('c5', scope => 'cp') \gset
SELECT count(*) FROM generate_series(1, 200) n WHERE idem_checkpoint('c5', 'step ' || n, to_jsonb(n), :t, 'cp');
SELECT count(*), bool_and(result = to_jsonb(ordinality)) AS in_order FROM idem_checkpoints('c5', 'cp') WITH ORDINALITY;
SELECT idem_checkpoint('c5', E'a "b" ''c'' \\ {}\n', '1', :t, 'cp');
SELECT step FROM idem_checkpoints('c5', 'cp') OFFSET 200;

-- bad input
SELECT probe.raises(format($$SELECT idem_checkpoint('c5', NULL, '1', %s, 'cp')$$, :t));
SELECT probe.raises(format($$SELECT idem_checkpoint('c5', '', '1', %s, 'cp')$$, :t));
SELECT probe.sqlstate(format($$SELECT idem_checkpoint('c5', repeat('x', 256), '1', %s, 'cp')$$, :t));
SELECT probe.sqlstate($$SELECT idem_checkpoint(NULL, 's')$$), probe.sqlstate($$SELECT idem_checkpoint('', 's')$$), probe.sqlstate($$SELECT idem_checkpoint('c5', 's', scope => NULL)$$);
SELECT probe.sqlstate($$SELECT idem_checkpoints(NULL)$$);
BEGIN READ ONLY;
SELECT count(*) FROM idem_checkpoints('c5', 'cp');
SELECT idem_checkpoint('c5', 'ro', '1', :t, 'cp');
ROLLBACK;
-- a closed scope shows nothing
CREATE ROLE regress_idem_cp;
SELECT idem_grant('regress_idem_cp'), idem_configure('cp/own', owner => current_user::regrole);
SELECT outcome FROM idem_claim('c6', scope => 'cp/own');
SET ROLE regress_idem_cp;
SELECT probe.sqlstate($$SELECT idem_checkpoints('c6', 'cp/own')$$), probe.sqlstate($$SELECT idem_checkpoints('c7', 'cp/own')$$), probe.sqlstate($$SELECT idem_checkpoint('c6', 's', '1', 1, 'cp/own')$$);
SELECT probe.sqlstate($$SELECT count(*) FROM idempotency_checkpoint$$);
RESET ROLE;

SELECT idem_unconfigure('cp/own');
DELETE FROM transaction_log WHERE scope LIKE 'cp%';
DELETE FROM idempotency_checkpoint WHERE scope LIKE 'cp%';
DROP SCHEMA probe CASCADE;
DROP OWNED BY regress_idem_cp;
DROP ROLE regress_idem_cp;
