-- Mismatch: one key for two requests is refused in every state.
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
SET idempotency.test_clock = '2030-01-01 12:00:00';

-- leased
SELECT token FROM idem_claim('mm-1', '{"a": 1}', lease => '1 min') \gset
SELECT * FROM idem_claim('mm-1', '{"a": 2}') \gx
-- it is told at once, also by a call that would wait
SELECT outcome FROM idem_claim('mm-1', '{"a": 2}', wait => '1h');
-- lapsed: not taken over
SET idempotency.test_clock = '2030-01-01 12:02:00';
SELECT outcome, status, differs FROM idem_claim('mm-1', '{"a": 2}');
SELECT outcome, attempt FROM idem_claim('mm-1', '{"a": 1}');
SELECT probe.sqlstate(format('SELECT idem_finish(%L, token => %s)', 'mm-1', :token)) AS old_token;
-- finished: no response is shown
SELECT idem_finish('mm-2', '{"secret": true}', 200, token, response_headers => '{"h": 1}', response_bytes => '\x01')
  FROM idem_claim('mm-2', '{"a": 1}', ttl => '1h');
SELECT * FROM idem_claim('mm-2', '{"a": 2}') \gx
SELECT outcome, response_body FROM idem_claim('mm-2', '{"a": 1}');
-- failed, for good or not
SELECT idem_fail('mm-3', '"e"', token => token, final => true) FROM idem_claim('mm-3', '{"a": 1}');
SELECT outcome, status, response_body, differs FROM idem_claim('mm-3', '{"a": 2}');
SELECT idem_fail('mm-4', '"e"', token => token, retry_after => '1 min') FROM idem_claim('mm-4', '{"a": 1}');
SELECT outcome, status, retry_after, differs FROM idem_claim('mm-4', '{"a": 2}');
SET idempotency.test_clock = '2030-01-01 12:04:00';
SELECT outcome, status, differs FROM idem_claim('mm-4', '{"a": 2}');
SELECT outcome, attempt FROM idem_claim('mm-4', '{"a": 1}');
-- unknown
SELECT idem_configure('mm-manual', on_lease_expiry => 'manual');
SELECT outcome FROM idem_claim('mm-5', '{"a": 1}', scope => 'mm-manual', lease => '1 min');
SET idempotency.test_clock = '2030-01-01 12:06:00';
SELECT outcome, differs FROM idem_claim('mm-5', '{"a": 1}', scope => 'mm-manual');
SELECT outcome, differs FROM idem_claim('mm-5', '{"a": 2}', scope => 'mm-manual');
-- expired: absent, so anything goes
SET idempotency.test_clock = '2030-01-01 14:00:00';
SELECT outcome, attempt, checkpoints FROM idem_claim('mm-2', '{"a": 2}');
SELECT outcome, differs FROM idem_claim('mm-2', '{"a": 1}');

-- released: nothing was done, and nothing is remembered of its body
SELECT idem_release('mm-6', token) FROM idem_claim('mm-6', '{"a": 1}');
SELECT outcome FROM idem_claim('mm-6', '{"a": 2}');
SELECT idem_fail('mm-7', '"e"', token => token, retry_after => '0') FROM idem_claim('mm-7');
SELECT idem_release('mm-7', token) FROM idem_claim('mm-7', '{"a": 1}');
SELECT outcome, attempt FROM idem_claim('mm-7', '{"a": 2}');

-- the fingerprint that is given counts, not the body
SELECT idem_finish('mm-8', '"r"', token => token) FROM idem_claim('mm-8', '{"a": 1}', fingerprint => '\x01');
SELECT outcome, differs FROM idem_claim('mm-8', '{"a": 2}', fingerprint => '\x01');
SELECT outcome, differs FROM idem_claim('mm-8', '{"a": 1}', fingerprint => '\x02');
SELECT outcome, differs FROM idem_claim('mm-8', '{"a": 1}', fingerprint => '\x0100');
SELECT outcome, differs FROM idem_claim('mm-8', '{"a": 1}', fingerprint => '');
SELECT outcome, differs FROM idem_claim('mm-8', NULL, fingerprint => '\x02');
SELECT outcome, differs FROM idem_claim('mm-8', '{"a": 1}');
SELECT outcome, differs FROM idem_claim('mm-8');
-- the same body through the helper, without what may differ
SELECT idem_finish('mm-9', token => token)
  FROM idem_claim('mm-9', '{"a": 1, "sent": 1}', fingerprint => idem_fingerprint('{"a": 1, "sent": 1}', '{sent}'));
SELECT outcome FROM idem_claim('mm-9', '{"a": 1, "sent": 2}', fingerprint => idem_fingerprint('{"a": 1, "sent": 2}', '{sent}'));
SELECT outcome, differs FROM idem_claim('mm-9', '{"a": 2, "sent": 2}', fingerprint => idem_fingerprint('{"a": 2, "sent": 2}', '{sent}'));
-- not stored: nothing to compare with, and refused all the same
SET idempotency.store_request = off;
SELECT outcome FROM idem_claim('mm-10', '{"a": 1}');
RESET idempotency.store_request;
SELECT outcome, differs FROM idem_claim('mm-10', '{"a": 2}');
SELECT request_body IS NULL AS not_stored FROM transaction_log WHERE request_id = 'mm-10';

-- paths
CREATE FUNCTION probe.differs(a jsonb, b jsonb) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    c record;
    key text := 'mm-paths-' || nextval('probe.n');
BEGIN
    PERFORM idem_claim(key, a);
    PERFORM idem_finish(key);
    SELECT * INTO STRICT c FROM idem_claim(key, b, fingerprint => '\x00');
    ASSERT c.outcome = 'mismatch';
    RETURN c.differs;
END $$;
CREATE SEQUENCE probe.n;
SELECT a, b, probe.differs(a, b)
  FROM (VALUES (1, '{"a": 1}'::jsonb, '{"a": 2}'::jsonb),
               (2, '{"a": 1}', '{"a": "1"}'),
               (3, '{"a": 1}', '{"b": 1}'),
               (4, '{"a": null}', '{}'),
               (5, '{"a": {"b": [1, {"c": 2}]}}', '{"a": {"b": [1, {"c": 3}]}}'),
               (6, '{"a": [1, 2, 3]}', '{"a": [1, 2]}'),
               (7, '{"a": [1, 2]}', '{"a": {"0": 1}}'),
               (8, '{"a": {}}', '{"a": []}'),
               (9, '{"a b": 1, "a-b": 1, "1x": 1, "": 1, "q\"q": 1}', '{"a b": 2, "a-b": 2, "1x": 2, "": 2, "q\"q": 2}'),
               (10, '1', '2'),
               (11, '"x"', '{"x": 1}'),
               (12, '[]', '{}'),
               (13, '[1]', '1'),
               (14, 'null', 'false'),
               (15, '{"a": 1.0}', '{"a": 1}'),
               (16, '{"bb": 1, "a": 2, "ccc": 3}', '{"a": 3, "ccc": 4, "bb": 2}'),
               (17, '{"a": true}', '{"a": 1}')) v (n, a, b)
 ORDER BY n;
-- bounded
SELECT cardinality(probe.differs((SELECT jsonb_object_agg(n, 1) FROM generate_series(1, 1000) n), '{}')) <= 100 AS bounded;
-- each path finds its value
SELECT p, jsonb_path_query('{"a b": 2, "a-b": 3, "1x": 4, "": 5, "q\"q": 6, "l": [7, {"d": 8}]}', p::jsonpath)
  FROM unnest(probe.differs('{"l": [0, {}]}', '{"a b": 2, "a-b": 3, "1x": 4, "": 5, "q\"q": 6, "l": [7, {"d": 8}]}')) p;

-- in a transaction of its own nothing differs from an uncommitted claim: it is in progress
BEGIN;
SELECT outcome FROM idem_claim('mm-11', '{"a": 1}');
SELECT outcome, differs FROM idem_claim('mm-11', '{"a": 2}');
SELECT idem_fail('mm-11', retry_after => '0');
SELECT outcome, differs FROM idem_claim('mm-11', '{"a": 2}');
ROLLBACK;

-- what a first claim without a body did not say, the next attempt says
SELECT idem_fail('mm-12', token => token, retry_after => '0') FROM idem_claim('mm-12');
SELECT outcome, attempt FROM idem_claim('mm-12', '{"a": 1}', lease => '1s');
SELECT outcome FROM idem_claim('mm-12', '{"a": 2}');

SELECT idem_unconfigure('mm-manual');
DELETE FROM transaction_log WHERE request_id LIKE 'mm-%';
DROP SCHEMA probe CASCADE;
