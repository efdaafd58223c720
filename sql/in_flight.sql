-- Requests in flight; counters where the library is not preloaded.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
SELECT idem_configure('fly', lease => '1 minute'), idem_configure('fly/asked', on_lease_expiry => 'manual');
CREATE VIEW flying AS
    SELECT f.scope, f.request_id, f.state, f.attempt, f.claimed_by = current_user AS by_us, f.until AT TIME ZONE 'UTC' AS until,
           f.pid = pg_backend_pid() AS by_this_backend, f.waiting
      FROM idem_in_flight f WHERE f.scope ~ '^fly' ORDER BY 1, 2;

SET idempotency.test_clock = '2030-01-01 00:00:00+00';
SELECT outcome FROM idem_claim('lapsed', scope => 'fly');
SELECT outcome FROM idem_claim('asked', scope => 'fly/asked', lease => '1 minute');
SET idempotency.test_clock = '2030-01-01 00:01:00+00';
SELECT outcome FROM idem_claim('leased', '{"secret": 1}', scope => 'fly');
SELECT token FROM idem_claim('backoff', scope => 'fly') \gset
SELECT idem_fail('backoff', '"secret"', token => :token, scope => 'fly', retry_after => '1 hour');
SELECT token FROM idem_claim('retry', scope => 'fly') \gset
SELECT idem_fail('retry', token => :token, scope => 'fly', retry_after => '0');
SELECT token FROM idem_claim('failed', scope => 'fly') \gset
SELECT idem_fail('failed', token => :token, scope => 'fly', final => true);
SELECT token FROM idem_claim('done', scope => 'fly') \gset
SELECT idem_finish('done', token => :token, scope => 'fly');
SELECT outcome FROM idem_claim('expired', scope => 'fly', ttl => '1 s', lease => '1 s');
SET idempotency.test_clock = '2030-01-01 00:01:30+00';
SELECT * FROM flying;

-- uncommitted: claimed, ended, given back
BEGIN;
SELECT outcome FROM idem_claim('own', scope => 'fly');
SELECT outcome FROM idem_claim('own-done', scope => 'fly');
SELECT idem_finish('own-done', scope => 'fly');
SAVEPOINT a;
SELECT outcome FROM idem_claim('own-undone', scope => 'fly');
ROLLBACK TO a;
SELECT outcome FROM idem_claim('own-given', scope => 'fly');
SELECT idem_release('own-given', scope => 'fly');
SELECT * FROM flying WHERE request_id ~ '^own';
ROLLBACK;
SELECT count(*) FROM flying WHERE request_id ~ '^own';

-- times to the second, nothing of what is stored
RESET idempotency.test_clock;
SELECT outcome FROM idem_claim('real', scope => 'fly');
SELECT outcome FROM idem_claim('real-2', scope => 'fly', lease => '3.0005 s');
SELECT count(*) FROM idem_in_flight WHERE request_id ~ '^real';
SELECT count(*) AS exact_times FROM idem_in_flight
 WHERE request_id ~ '^real' AND since <> date_trunc('second', since) OR request_id ~ '^real' AND until <> date_trunc('second', until);
SELECT count(*) FROM idem_in_flight f WHERE f::text ~ 'secret';
SELECT count(*) FROM idem_in_flight f JOIN transaction_log l USING (scope, request_id)
 WHERE strpos(f::text, l.token::text) > 0;

-- closed scopes are left out, whichever way one asks
CREATE ROLE regress_idem_fly_app;
CREATE ROLE regress_idem_fly_owner;
SELECT idem_grant('regress_idem_fly_app'), idem_grant('regress_idem_fly_owner');
SELECT idem_configure('fly', owner => 'regress_idem_fly_owner');
SET ROLE regress_idem_fly_app;
SELECT (SELECT count(*) FROM idem_in_flight WHERE scope ~ '^fly') AS by_view,
       (SELECT count(*) FROM idem_in_flight_claims() WHERE scope ~ '^fly') AS by_function;
SET ROLE regress_idem_fly_owner;
SELECT (SELECT count(*) FROM idem_in_flight WHERE scope ~ '^fly') AS by_view,
       (SELECT count(*) FROM idem_in_flight_claims() WHERE scope ~ '^fly') AS by_function;
RESET ROLE;

-- counters: there, or an error that says what to do
DO $$
DECLARE
    hint text;
BEGIN
    PERFORM count(*) FROM idem_stat;
    PERFORM idem_stat_reset();
    IF current_setting('shared_preload_libraries') !~ 'idempotency' THEN
        RAISE EXCEPTION 'no error without the library in shared_preload_libraries';
    END IF;
EXCEPTION WHEN object_not_in_prerequisite_state THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    IF current_setting('shared_preload_libraries') ~ 'idempotency' OR hint !~ '"shared_preload_libraries"' THEN
        RAISE;
    END IF;
END
$$;

RESET idempotency.test_clock;
SELECT idem_revoke('regress_idem_fly_app'), idem_revoke('regress_idem_fly_owner');
SELECT idem_unconfigure('fly'), idem_unconfigure('fly/asked');
DROP OWNED BY regress_idem_fly_app, regress_idem_fly_owner;
DROP ROLE regress_idem_fly_app, regress_idem_fly_owner;
DROP VIEW flying;
DELETE FROM transaction_log WHERE scope ~ '^fly';
