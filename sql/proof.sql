-- Whoever writes a claim's row for other reasons does not come to hold it.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
\getenv srcdir PG_ABS_SRCDIR
\set helpers :srcdir /sql/helpers.psql
\set ECHO none
\i :helpers
\set ECHO all
SELECT outcome FROM idem_claim('pr-1', scope => 'proof', lease => '1 hour');

-- a change of policy writes the row, to have it looked at in time
BEGIN;
SELECT idem_configure('proof', on_lease_expiry => 'manual');
SELECT outcome, token IS NULL AS no_token, retry_after > '59 min' AS leased FROM idem_claim('pr-1', scope => 'proof');
SELECT probe.raises('SELECT idem_finish(''pr-1'', ''"not mine"'', scope => ''proof'')');
SELECT probe.raises('SELECT idem_extend(''pr-1'', scope => ''proof'')');
SELECT probe.raises('SELECT idem_release(''pr-1'', scope => ''proof'')');
COMMIT;

-- so does a purge that sets the alarm again
SELECT idem_extend('pr-1', lease => '10 days', scope => 'proof', token => (SELECT token FROM transaction_log WHERE scope = 'proof')) IS NOT NULL AS extended;
SELECT set_config('idempotency.test_clock', (clock_timestamp() + '9 days')::text, false) IS NOT NULL AS later;
BEGIN;
SELECT idem_purge();
SELECT xmin::text::bigint = pg_current_xact_id_if_assigned()::text::bigint AS written FROM transaction_log WHERE scope = 'proof';
SELECT outcome, token IS NULL AS no_token FROM idem_claim('pr-1', scope => 'proof');
SELECT probe.raises('SELECT idem_finish(''pr-1'', ''"not mine"'', scope => ''proof'')');
-- who proves himself with the token needs it no more
SELECT idem_extend('pr-1', scope => 'proof', token => (SELECT token FROM transaction_log WHERE scope = 'proof')) IS NOT NULL AS extended;
SELECT outcome, token IS NOT NULL AS token FROM idem_claim('pr-1', scope => 'proof');
SELECT idem_finish('pr-1', '"mine"', scope => 'proof');
COMMIT;

-- the holder himself stays it
RESET idempotency.test_clock;
BEGIN;
SELECT outcome FROM idem_claim('pr-2', scope => 'proof/retry');
SELECT idem_configure('proof/retry', max_attempts => 3);
SELECT idem_finish('pr-2', scope => 'proof/retry');
COMMIT;

-- what says nothing new is not stored, in most rows of most logs
SELECT request_id, proved_xact IS NULL AS not_proved,
       num_nulls(granted, steps, calls, open_calls, changes) AS not_counted
  FROM transaction_log WHERE scope LIKE 'proof%' ORDER BY request_id;

SELECT idem_unconfigure('proof'), idem_unconfigure('proof/retry');
DELETE FROM transaction_log WHERE scope LIKE 'proof%';
DROP SCHEMA probe CASCADE;
