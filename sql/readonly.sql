-- Read-only transactions: a replay reads, a claim cannot be made.
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
SELECT idem_configure('ro/manual', on_lease_expiry => 'manual');
SELECT idem_finish('ro-done', '{"r": 1}', 200, token) FROM idem_claim('ro-done', '{"a": 1}');
SELECT idem_fail('ro-failed', '"e"', token => token, final => true) FROM idem_claim('ro-failed');
SELECT idem_fail('ro-backoff', '"e"', token => token, retry_after => '1h') FROM idem_claim('ro-backoff');
SELECT idem_fail('ro-retry', '"e"', token => token, retry_after => '0') FROM idem_claim('ro-retry');
SELECT token FROM idem_claim('ro-leased', '{"a": 1}', lease => '1h') \gset
SELECT outcome FROM idem_claim('ro-lapsed', lease => '1s');
SELECT outcome FROM idem_claim('ro-unknown', scope => 'ro/manual', lease => '1s');
SELECT idem_finish('ro-expired', '1', token => token) FROM idem_claim('ro-expired', ttl => '1s');
SET idempotency.test_clock = '2030-01-01 00:01:00';

-- answers that only read: no transaction id, no WAL
BEGIN READ ONLY;
SELECT outcome, response_body FROM idem_claim('ro-done', '{"a": 1}');
SELECT outcome, differs FROM idem_claim('ro-done', '{"a": 2}');
SELECT outcome, status FROM idem_claim('ro-failed');
SELECT outcome, status FROM idem_claim('ro-backoff');
SELECT outcome FROM idem_claim('ro-leased', '{"a": 1}');
SELECT outcome FROM idem_claim('ro-leased', '{"a": 2}');
SELECT outcome FROM idem_claim('ro-unknown', scope => 'ro/manual');
SELECT status FROM idem_lookup('ro-done');
SELECT request_id FROM idem_review;
SELECT count(*) > 0 AS any FROM idem_log;
SELECT idem_finish('ro-done', '{"r": 1}', 200, token) FROM transaction_log WHERE request_id = 'ro-done';
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
BEGIN;
SELECT outcome, response_body FROM idem_claim('ro-done', '{"a": 1}', ttl => '1h', lease => '1h', wait => '1h');
SELECT outcome FROM idem_claim('ro-leased', '{"a": 1}');
SELECT count(*) FROM generate_series(1, 100) CROSS JOIN LATERAL idem_claim('ro-done');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;
SELECT outcome FROM idem_claim('ro-done');
SELECT status FROM idem_lookup('ro-done');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;
SELECT outcome FROM idem_claim('ro-done');
COMMIT;

-- (a first look may tidy up the page, as with any query)
CREATE FUNCTION probe.wal_records(statement text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE statement;
    EXECUTE 'EXPLAIN (ANALYZE, WAL, FORMAT JSON) ' || statement INTO plan;
    RETURN plan->0->'Plan'->>'WAL Records';
END $$;
SELECT probe.wal_records('SELECT * FROM idem_claim(''ro-done'', ''{"a": 1}'')') AS replay,
       probe.wal_records('SELECT * FROM idem_claim(''ro-done'', ''{"a": 2}'')') AS mismatch,
       probe.wal_records('SELECT * FROM idem_claim(''ro-leased'', ''{"a": 1}'')') AS in_progress,
       probe.wal_records('SELECT * FROM idem_claim(''ro-leased'', ''{"a": 1}'', wait => ''2 ms'')') AS after_waiting,
       probe.wal_records('SELECT * FROM idem_lookup(''ro-done'')') AS lookup,
       probe.wal_records('SELECT * FROM idem_claim(''ro-'' || clock_timestamp())') > 0 AS counts_at_all;

-- what would have to be written: the server's own error, and nothing written
CREATE FUNCTION probe.read_only(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL transaction_read_only = on;
    RETURN QUERY SELECT probe.raises(statement);
END $$;
SELECT r FROM probe.read_only('SELECT idem_claim(''ro-new'')') r;
SELECT c, (SELECT string_agg(r, '') FROM probe.read_only(format('SELECT ' || c, :token)) r)
  FROM unnest(ARRAY['idem_claim(''ro-retry'')', 'idem_claim(''ro-lapsed'')', 'idem_claim(''ro-expired'')',
                    'idem_finish(''ro-leased'', token => %s)', 'idem_fail(''ro-leased'', token => %s)', 'idem_release(''ro-leased'', %s)', 'idem_extend(''ro-leased'', token => %s)',
                    'idem_resolve(''ro-leased'', ''failed'', force => true)', 'idem_resolve(''ro-unknown'', ''retry'', scope => ''ro/manual'')',
                    'idem_configure(''ro'', ttl => ''1h'')', 'idem_unconfigure(''ro/manual'')']) c;
-- bad input is bad input, and a closed fence is closed, all the same
SELECT r FROM probe.read_only('SELECT idem_claim('''')') r WHERE r ~ '^[0-9I]';
SELECT r FROM probe.read_only('SELECT idem_finish(''ro-leased'', token => 1)') r WHERE r ~ '^[0-9I]';
SELECT r FROM probe.read_only('SELECT idem_finish(''ro-absent'', token => 1)') r WHERE r ~ '^[0-9I]';
SELECT count(*) FROM idem_lookup('ro-new');
SELECT status, attempt FROM idem_lookup('ro-leased');
SET default_transaction_read_only = on;
\set VERBOSITY sqlstate
SELECT outcome FROM idem_claim('ro-new');
\set VERBOSITY default
SELECT outcome FROM idem_claim('ro-done');
RESET default_transaction_read_only;

SELECT idem_unconfigure('ro/manual');
DELETE FROM transaction_log WHERE request_id LIKE 'ro-%';
DROP SCHEMA probe CASCADE;
