-- Policies of scopes, and the settings below them.
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
CREATE FUNCTION probe.claimed(key text, s text, OUT lease interval, OUT ttl interval) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_claim(key, scope => s);
    SELECT l.locked_until - l.created_at, l.ttl INTO lease, ttl FROM transaction_log l WHERE l.scope = s AND l.request_id = key;
END $$;

-- nothing configured: the settings
SELECT * FROM probe.claimed('pol-1', 'pol');
SET idempotency.default_lease = '7s';
SET idempotency.default_ttl = '3h';
SELECT * FROM probe.claimed('pol-2', 'pol');
RESET idempotency.default_lease;
RESET idempotency.default_ttl;
-- the scope beats the setting, NULL leaves a value as it is
SELECT idem_configure('pol', ttl => '2h');
SELECT * FROM probe.claimed('pol-3', 'pol');
SELECT idem_configure('pol', lease => '5s');
SELECT * FROM probe.claimed('pol-4', 'pol');
SELECT idem_configure('pol', ttl => NULL, lease => '6s');
SELECT * FROM probe.claimed('pol-5', 'pol');
SELECT ttl, lease, wait, on_lease_expiry, max_attempts, backoff_base, backoff_cap, store_request, history, owner_name FROM idempotency_scope WHERE scope = 'pol';
-- the call beats the scope
SELECT outcome FROM idem_claim('pol-6', scope => 'pol', ttl => '1 min', lease => '1s');
SELECT locked_until - created_at AS lease, ttl FROM transaction_log WHERE request_id = 'pol-6';

-- the nearest parent by '/'; a parent's values are not mixed with a child's
SELECT * FROM probe.claimed('pol-7', 'pol/a');
SELECT * FROM probe.claimed('pol-7', 'pol/a/b/c');
SELECT idem_configure('pol/a', lease => '1s');
SELECT * FROM probe.claimed('pol-8', 'pol/a');
SELECT * FROM probe.claimed('pol-8', 'pol/a/b/c');
SELECT * FROM probe.claimed('pol-8', 'pol/ab');
SELECT * FROM probe.claimed('pol-8', 'pola');
SELECT * FROM probe.claimed('pol-8', 'pol/');
SELECT * FROM probe.claimed('pol-8', '/pol');
SELECT * FROM probe.claimed('pol-8', 'pol//a');
SELECT * FROM probe.claimed('pol-8', 'POL/a');
-- '' is the parent of all
SELECT idem_configure('', lease => '11s');
SELECT * FROM probe.claimed('pol-9', '');
SELECT * FROM probe.claimed('pol-9', 'other');
SELECT * FROM probe.claimed('pol-9', 'other/x');
SELECT * FROM probe.claimed('pol-9', '/');
SELECT * FROM probe.claimed('pol-9', 'pol/a/b');

-- unconfigured: the parent's again
SELECT idem_unconfigure('pol/a');
SELECT idem_unconfigure('pol/a') AS again;
SELECT idem_unconfigure('pol/nothing') AS nothing;
SELECT * FROM probe.claimed('pol-10', 'pol/a/b/c');
SELECT idem_unconfigure('pol'), idem_unconfigure('');
SELECT * FROM probe.claimed('pol-11', 'pol/a');
-- a configuration that is rolled back
BEGIN;
SELECT idem_configure('pol', lease => '99s');
SELECT * FROM probe.claimed('pol-12', 'pol');
ROLLBACK;
SELECT * FROM probe.claimed('pol-12', 'pol');
BEGIN;
SAVEPOINT s;
SELECT idem_configure('pol', lease => '99s');
SELECT * FROM probe.claimed('pol-13', 'pol');
ROLLBACK TO s;
SELECT * FROM probe.claimed('pol-14', 'pol');
COMMIT;

-- definitions are idempotent: the same again writes no new version
SELECT idem_configure('pol', '1h', '2s', '3s', 'manual', 4, '5s', '6s', false, true, current_user::regrole);
SELECT ctid AS version, xmin AS writer FROM idempotency_scope WHERE scope = 'pol' \gset
SELECT idem_configure('pol', '1h', '2s', '3s', 'manual', 4, '5s', '6s', false, true, current_user::regrole);
SELECT idem_configure('pol');
SELECT idem_configure('pol', max_attempts => 4);
SELECT ctid = :'version' AND xmin = :'writer' AS untouched FROM idempotency_scope WHERE scope = 'pol';
SELECT idem_configure('pol', max_attempts => 5);
SELECT ctid = :'version' AS untouched, max_attempts, ttl, on_lease_expiry FROM idempotency_scope WHERE scope = 'pol';
-- a definition of nothing is one: it ends the search
SELECT idem_configure('pol/none');
SELECT * FROM probe.claimed('pol-15', 'pol/none');
SELECT idem_unconfigure('pol/none'), idem_unconfigure('pol');

-- store_request: the scope beats the setting
SELECT idem_configure('pol/off', store_request => false), idem_configure('pol/on', store_request => true);
SELECT outcome FROM idem_claim('pol-16', '1', 'pol/off');
SELECT outcome FROM idem_claim('pol-16', '1', 'pol/on');
SELECT outcome FROM idem_claim('pol-16', '1', 'pol/default');
SET idempotency.store_request = off;
SELECT outcome FROM idem_claim('pol-17', '1', 'pol/off');
SELECT outcome FROM idem_claim('pol-17', '1', 'pol/on');
SELECT outcome FROM idem_claim('pol-17', '1', 'pol/default');
RESET idempotency.store_request;
SELECT scope, request_id, request_body, fingerprint IS NOT NULL AS fingerprint FROM transaction_log WHERE request_id IN ('pol-16', 'pol-17') ORDER BY 2, 1;
SELECT outcome, differs FROM idem_claim('pol-16', '2', 'pol/off');

-- require_scope
SET idempotency.require_scope = 'named';
SELECT probe.raises('SELECT idem_claim(''pol-18'')');
SELECT probe.sqlstate('SELECT idem_claim(''pol-18'', scope => ''pol'')');
SET idempotency.require_scope = 'configured';
SELECT r AS error FROM probe.raises('SELECT idem_claim(''pol-19'', scope => ''pol'')') r;
SELECT probe.sqlstate('SELECT idem_claim(''pol-19'')');
SELECT probe.sqlstate('SELECT idem_claim(''pol-19'', scope => ''pol/on'')');
SELECT probe.sqlstate('SELECT idem_claim(''pol-19'', scope => ''pol/on/below'')');
SELECT probe.sqlstate('SELECT idem_claim(''pol-19'', scope => ''pol/one'')');
SELECT count(*) AS nothing_written FROM transaction_log WHERE request_id = 'pol-18' AND scope = '' OR request_id = 'pol-19' AND scope IN ('', 'pol', 'pol/one');
-- what was claimed before can still be ended
SELECT idem_finish('pol-1', token => token, scope => 'pol') FROM transaction_log WHERE request_id = 'pol-1';
RESET idempotency.require_scope;

-- max_attempts: the limit of the scope at the call
SELECT idem_configure('pol/max', max_attempts => 1);
SELECT idem_fail('pol-20', '"e"', token => token, scope => 'pol/max') FROM idem_claim('pol-20', scope => 'pol/max');
SELECT outcome, status FROM idem_claim('pol-20', scope => 'pol/max');
SELECT outcome FROM idem_claim('pol-21', scope => 'pol/max', lease => '1s');
SET idempotency.test_clock = '2030-01-01 00:01:00';
SELECT outcome FROM idem_claim('pol-21', scope => 'pol/max');
SELECT idem_configure('pol/max', max_attempts => 3);
SELECT outcome, attempt FROM idem_claim('pol-21', scope => 'pol/max', lease => '1s');

-- many scopes in one session
SELECT idem_configure('pol/many/' || n, lease => make_interval(secs => n)) IS NOT NULL AS configured FROM generate_series(1, 2000) n GROUP BY 1;
SELECT c.outcome, count(*) FROM generate_series(1, 2000) n CROSS JOIN LATERAL idem_claim('pol-22', scope => 'pol/many/' || n || '/x') c GROUP BY 1;
SELECT count(*) FROM transaction_log WHERE request_id = 'pol-22' AND locked_until - created_at = make_interval(secs => split_part(scope, '/', 3)::int);
SELECT count(*) FILTER (WHERE removed) FROM (SELECT idem_unconfigure('pol/many/' || n) AS removed FROM generate_series(1, 2000) n) s;

-- odd names
SELECT idem_configure(s, lease => '33s') FROM (VALUES ('pol ''"\$%'), (' pol'), (repeat('/', 255))) v (s);
SELECT lease FROM (VALUES ('pol ''"\$%'), ('pol ''"\$%/x'), (' pol'), (repeat('/', 255)), (repeat('/', 254))) v (s) CROSS JOIN LATERAL probe.claimed('pol-23', s);
SELECT idem_unconfigure(s) FROM (VALUES ('pol ''"\$%'), (' pol'), (repeat('/', 255))) v (s);

-- bad values
SELECT r AS error FROM probe.raises('SELECT idem_configure(''pol'', on_lease_expiry => ''ask'')') r;
SELECT r AS error FROM probe.raises('SELECT idem_configure(''pol'', max_attempts => 0)') r;
SELECT c, probe.sqlstate('SELECT ' || c)
  FROM unnest(ARRAY['idem_configure(NULL)', 'idem_configure(repeat(''x'', 256))', 'idem_configure(''pol'', ttl => ''0'')',
                    'idem_configure(''pol'', ttl => ''-1s'')', 'idem_configure(''pol'', lease => ''0'')', 'idem_configure(''pol'', wait => ''-1s'')',
                    'idem_configure(''pol'', wait => ''0'')', 'idem_configure(''pol'', max_attempts => -1)', 'idem_configure(''pol'', backoff_base => ''0'')',
                    'idem_configure(''pol'', backoff_cap => ''-1s'')', 'idem_configure(''pol'', owner => ''regress_idem_nobody'')', 'idem_configure(''pol'', owner => 1)',
                    'idem_configure(''pol'', on_lease_expiry => '''')',
                    'idem_unconfigure(NULL)', 'idem_unconfigure(repeat(''x'', 256))']) c;
SELECT idem_unconfigure('pol') AS only_the_good_one, idem_unconfigure('pol') AS no_more;

SELECT bool_and(idem_unconfigure(s)) FROM unnest('{pol/off,pol/on,pol/max}'::text[]) s;
SELECT count(*) FROM idempotency_scope WHERE scope ~ 'pol' OR scope = '';
DELETE FROM transaction_log WHERE request_id LIKE 'pol-%';
DROP SCHEMA probe CASCADE;
