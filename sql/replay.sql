-- Replay: what was stored comes back as it was.
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

-- every value that some caller would take for nothing
CREATE TABLE probe.answers (id text PRIMARY KEY, body jsonb, code int, headers jsonb, bytes bytea);
INSERT INTO probe.answers VALUES
    ('zero', '0', 0, NULL, NULL),
    ('false', 'false', 200, '{}', NULL),
    ('true', 'true', 200, '{}', NULL),
    ('empty string', '""', 200, '[]', ''),
    ('empty array', '[]', 204, NULL, '\x00'),
    ('empty object', '{}', -1, 'null', '\x00ff00'),
    ('json null', 'null', 2147483647, NULL, NULL),
    ('sql null', NULL, NULL, NULL, NULL),
    ('only bytes', NULL, 200, '{"content-type": "image/png"}', '\x89504e470d0a1a0a00'),
    ('headers object', '{"a": 1}', 200, '{"Set-Cookie": "a=1", "X-Empty": ""}', NULL),
    ('headers array', '1', 200, '[["Set-Cookie", "b=2"], ["Set-Cookie", "a=1"], ["Set-Cookie", "b=2"]]', NULL),
    ('numbers', '[1.0, 1.10, 1e3, -0.0, 123456789012345678901234567890.123456789]', 200, NULL, NULL),
    ('unicode', '"\u0041\u007f\\n"', 200, NULL, NULL),
    ('nested', '{"a": [{"b": [[], {}, null]}]}', 200, NULL, NULL),
    ('string of null', '"null"', 200, NULL, NULL);

CREATE FUNCTION probe.differences(run text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT a.id
      FROM probe.answers a CROSS JOIN LATERAL idem_claim('replay-' || run || a.id) r
     WHERE r.outcome <> 'replay' OR r.status <> 'completed'
        OR r.response_body IS DISTINCT FROM a.body
        OR r.response_body::text IS DISTINCT FROM a.body::text
        OR r.response_code IS DISTINCT FROM a.code
        OR r.response_headers::text IS DISTINCT FROM a.headers::text
        OR r.response_bytes IS DISTINCT FROM a.bytes
        OR r.expires_at IS NULL OR r.token IS NOT NULL OR r.retry_after IS NOT NULL OR r.differs IS NOT NULL
$$;

-- in one transaction
SELECT c.outcome, f.recorded, count(*)
  FROM probe.answers a
 CROSS JOIN LATERAL idem_claim('replay-one ' || a.id) c
 CROSS JOIN LATERAL idem_finish('replay-one ' || a.id, a.body, a.code, scope => '',
                                response_headers => a.headers, response_bytes => a.bytes) f (recorded)
 GROUP BY 1, 2;
SELECT probe.differences('one ');
-- in two
CREATE TABLE probe.claims AS SELECT a.id, c.token FROM probe.answers a CROSS JOIN LATERAL idem_claim('replay-two ' || a.id) c;
SELECT f.recorded, count(*)
  FROM probe.answers a JOIN probe.claims c USING (id)
 CROSS JOIN LATERAL idem_finish('replay-two ' || a.id, a.body, a.code, c.token,
                                response_headers => a.headers, response_bytes => a.bytes) f (recorded)
 GROUP BY 1;
SELECT probe.differences('two ');
-- a lookup sees the same
SELECT a.id
  FROM probe.answers a CROSS JOIN LATERAL idem_lookup('replay-two ' || a.id) l
 WHERE l.response_body IS DISTINCT FROM a.body OR l.response_code IS DISTINCT FROM a.code
    OR l.response_headers IS DISTINCT FROM a.headers OR l.response_bytes IS DISTINCT FROM a.bytes
    OR l.status <> 'completed' OR l.error IS NOT NULL OR l.completed_at IS NULL;
-- the bare repeat of a finish is no error, whatever the values
SELECT f.recorded, count(*)
  FROM probe.answers a JOIN probe.claims c USING (id)
 CROSS JOIN LATERAL idem_finish('replay-two ' || a.id, a.body, a.code, c.token,
                                response_headers => a.headers, response_bytes => a.bytes) f (recorded)
 GROUP BY 1;
-- values that look alike are not the same result
SELECT token AS sql_null FROM probe.claims WHERE id = 'sql null' \gset
SELECT token AS json_null FROM probe.claims WHERE id = 'json null' \gset
SELECT probe.sqlstate(format('SELECT idem_finish(%L, %L, token => %s)', 'replay-two sql null', 'null', :sql_null));
SELECT probe.sqlstate(format('SELECT idem_finish(%L, NULL, 2147483647, token => %s)', 'replay-two json null', :json_null));
SELECT token AS empty_array FROM probe.claims WHERE id = 'empty array' \gset
SELECT probe.sqlstate(format('SELECT idem_finish(%L, %L, 204, token => %s, response_bytes => %L)', 'replay-two empty array', '{}', :empty_array, '\x00'));
SELECT probe.sqlstate(format('SELECT idem_finish(%L, %L, 204, token => %s, response_bytes => %L)', 'replay-two empty array', '[]', :empty_array, ''));
SELECT probe.sqlstate(format('SELECT idem_finish(%L, %L, 204, token => %s)', 'replay-two empty array', '[]', :empty_array));

-- a replay of a failure: its error is the body
SELECT idem_fail('replay-failed', '{"why": "no stock"}', 409, token, final => true,
                 response_headers => '{"h": 1}', response_bytes => '\x00')
  FROM idem_claim('replay-failed');
SELECT outcome, status, response_code, response_body, response_headers, response_bytes, expires_at > now() AS expires
  FROM idem_claim('replay-failed');
SELECT status, response_code, response_body, error FROM idem_lookup('replay-failed');
SELECT idem_fail('replay-failed-null', token => token, final => true) FROM idem_claim('replay-failed-null');
SELECT outcome, status, response_body IS NULL AS sql_null FROM idem_claim('replay-failed-null');
SELECT idem_fail('replay-failed-null2', 'null', token => token, final => true) FROM idem_claim('replay-failed-null2');
SELECT outcome, status, response_body FROM idem_claim('replay-failed-null2');

-- a replay changes nothing, and says the same every time
SELECT ctid AS version, xmin AS writer FROM transaction_log WHERE request_id = 'replay-one nested' \gset
SELECT outcome, attempt, response_body FROM idem_claim('replay-one nested', lease => '1s', ttl => '1s') , generate_series(1, 3);
SELECT ctid = :'version' AND xmin = :'writer' AS untouched FROM transaction_log WHERE request_id = 'replay-one nested';

-- a lookup of nothing is no row
SELECT * FROM idem_lookup('replay-nothing');
SELECT (idem_lookup('replay-nothing')).status;
SELECT n, l.status FROM generate_series(1, 2) n LEFT JOIN LATERAL idem_lookup('replay-one ' || CASE n WHEN 1 THEN 'zero' END) l ON true WHERE n = 1;
-- neither a lookup nor a view has a token
SELECT proargnames @> '{token}' AS shows_token FROM pg_proc WHERE proname = 'idem_lookup';
SELECT c.relname, a.attname AS shows_token
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relkind = 'v' AND c.relname ~ '^idem_' AND a.attname ~ 'token|life';

DELETE FROM transaction_log WHERE request_id LIKE 'replay-%';
DROP SCHEMA probe CASCADE;
