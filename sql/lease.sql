-- Leases: respected, lapsed, extended, taken over.
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

-- the call's lease, else the scope's, else the setting
SELECT idem_configure('lease/ten', lease => '10 min');
SELECT outcome FROM idem_claim('lease-1', lease => '5 min');
SELECT outcome FROM idem_claim('lease-1', scope => 'lease/ten');
SELECT outcome FROM idem_claim('lease-1', scope => 'lease/ten/below', lease => '1 ms');
SET idempotency.default_lease = '90s';
SELECT outcome FROM idem_claim('lease-1', scope => 'lease/none');
RESET idempotency.default_lease;
SELECT scope, locked_until FROM transaction_log WHERE request_id = 'lease-1' ORDER BY scope;
SELECT retry_after FROM idem_claim('lease-1');
SELECT retry_after FROM idem_claim('lease-1', scope => 'lease/ten');

-- respected to the last moment, and not longer
SELECT token AS first FROM idem_claim('lease-2', lease => '1 min') \gset
SET idempotency.test_clock = '2030-01-01 00:00:59.999999';
SELECT outcome, retry_after FROM idem_claim('lease-2');
SELECT status, attempt, retry_after, expires_at FROM idem_lookup('lease-2');
SET idempotency.test_clock = '2030-01-01 00:01:00';
SELECT status, attempt, retry_after, expires_at FROM idem_lookup('lease-2');
-- lapsed, and nobody took it over: still the holder's
BEGIN;
SELECT idem_extend('lease-2', token => :first);
ROLLBACK;
-- taken over: a new attempt with a greater token, under this caller's lease
SELECT outcome, attempt, token > :first AS grows, status, created_at FROM idem_claim('lease-2', lease => '2 min');
SELECT retry_after FROM idem_claim('lease-2');
SELECT r AS error FROM probe.raises(format('SELECT idem_finish(%L, %L, token => %s)', 'lease-2', '"secret-body"', :first)) r;
SELECT probe.sqlstate(format('SELECT idem_fail(%L, token => %s)', 'lease-2', :first));
SELECT probe.sqlstate(format('SELECT idem_release(%L, %s)', 'lease-2', :first));
SELECT r AS error FROM probe.raises(format('SELECT idem_extend(%L, token => %s)', 'lease-2', :first)) r;
SELECT status, attempt FROM idem_lookup('lease-2');

-- extended: by its own lease, by another one, never back
SELECT token FROM idem_claim('lease-3', lease => '1 min', ttl => '1h') \gset
SET idempotency.test_clock = '2030-01-01 00:01:30';
SELECT idem_extend('lease-3', token => :token);
SELECT idem_extend('lease-3', '10 min', :token);
SELECT idem_extend('lease-3', '1s', :token);
SELECT idem_extend('lease-3', token => :token);
SET idempotency.test_clock = '2030-01-01 00:05:00';
SELECT outcome, retry_after FROM idem_claim('lease-3');
SELECT expires_at FROM transaction_log WHERE request_id = 'lease-3';
-- another lease is for once: the claim keeps its own
SET idempotency.test_clock = '2030-01-01 00:11:30';
SELECT idem_extend('lease-3', token => :token);
-- the old token after an extension is the token still
SELECT idem_finish('lease-3', '"ok"', token => :token);
SELECT probe.raises(format('SELECT idem_extend(%L, token => %s)', 'lease-3', :token)) AS error;
SELECT outcome, response_body FROM idem_claim('lease-3');

-- an extension of a lapsed claim brings it back
SELECT token FROM idem_claim('lease-4', lease => '1s') \gset
SET idempotency.test_clock = '2030-01-01 00:12:00';
SELECT idem_extend('lease-4', '1 min', :token);
SELECT outcome, retry_after FROM idem_claim('lease-4');

-- in the transaction that claimed, without the token
BEGIN;
SELECT outcome FROM idem_claim('lease-5', lease => '1 min');
SELECT idem_extend('lease-5', '5 min');
COMMIT;
SELECT outcome, retry_after FROM idem_claim('lease-5');
-- not the holder's
SELECT r AS error FROM probe.raises('SELECT idem_extend(''lease-5'')') r;
SELECT r AS error FROM probe.raises('SELECT idem_extend(''lease-6'', token => 1)') r;
-- no claim any more
SELECT idem_fail('lease-7', token => token, retry_after => '1 min') FROM idem_claim('lease-7');
SELECT probe.sqlstate(format('SELECT idem_extend(%L, token => %s)', 'lease-7', token)) FROM transaction_log WHERE request_id = 'lease-7';
SELECT status FROM idem_lookup('lease-7');
-- an extension that is undone
SELECT token FROM idem_claim('lease-8', lease => '1 min') \gset
BEGIN;
SELECT idem_extend('lease-8', '1h', :token);
ROLLBACK;
SELECT outcome, retry_after FROM idem_claim('lease-8');

-- a lease may be endless
SELECT token FROM idem_claim('lease-9', lease => '200000 years') \gset
SELECT outcome, retry_after > '100000 years' AS long FROM idem_claim('lease-9');
SELECT idem_finish('lease-9', token => :token);

-- a claim waits for a lease only so long
RESET idempotency.test_clock;
SELECT outcome FROM idem_claim('lease-10', lease => '1h');
SELECT outcome, retry_after > '59 min' AS rest FROM idem_claim('lease-10', wait => '20ms');
-- and takes over what lapses meanwhile
SELECT outcome FROM idem_claim('lease-11', lease => '50ms');
SELECT outcome, attempt FROM idem_claim('lease-11', wait => '1h');
-- waiting writes nothing of its own
BEGIN;
SELECT outcome FROM idem_claim('lease-10', wait => '20ms');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
-- default of a scope and of the setting
SELECT idem_configure('lease/wait', wait => '1h');
SELECT outcome FROM idem_claim('lease-12', scope => 'lease/wait', lease => '50ms');
SELECT outcome, attempt FROM idem_claim('lease-12', scope => 'lease/wait');
SET idempotency.default_wait = '1h';
SELECT outcome FROM idem_claim('lease-13', lease => '50ms');
SELECT outcome, attempt FROM idem_claim('lease-13');
-- the call's own wait beats both
SELECT outcome FROM idem_claim('lease-13', wait => '0');
SELECT outcome FROM idem_claim('lease-12', scope => 'lease/wait', wait => '0');
RESET idempotency.default_wait;
-- statement_timeout goes on while it waits; lock_timeout does not cut it short
\set VERBOSITY sqlstate
SET statement_timeout = '50ms';
SELECT outcome FROM idem_claim('lease-10', wait => '1h');
RESET statement_timeout;
\set VERBOSITY default
SELECT outcome FROM idem_claim('lease-14', lease => '80ms');
SET lock_timeout = '10ms';
SELECT outcome, attempt FROM idem_claim('lease-14', wait => '1h');
RESET lock_timeout;

SELECT idem_unconfigure('lease/ten'), idem_unconfigure('lease/wait');
DELETE FROM transaction_log WHERE request_id LIKE 'lease-%';
DROP SCHEMA probe CASCADE;
