-- Limits: long keys, big bodies, deep documents.
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
SELECT getdatabaseencoding() <> 'UTF8' AS skip \gset
\if :skip
\echo the characters of this test need UTF8
DROP SCHEMA probe CASCADE;
\quit
\endif

-- keys and scopes are counted in characters, up to four bytes each
CREATE TABLE probe.names (n int, name text);
INSERT INTO probe.names VALUES (1, repeat('ä', 255)), (2, repeat('漢', 255)), (3, repeat('😀', 255)), (4, repeat('😀', 254) || 'x'),
    (5, (SELECT string_agg(chr(65536 + i * 37), '') FROM generate_series(1, 255) i));
SELECT n, length(name), octet_length(name) FROM probe.names ORDER BY 1;
SELECT n, c.outcome, idem_finish(name, to_jsonb(name), scope => name) FROM probe.names CROSS JOIN LATERAL idem_claim(name, scope => name) c ORDER BY 1;
SELECT n, c.outcome, c.response_body = to_jsonb(name) AS same FROM probe.names CROSS JOIN LATERAL idem_claim(name, scope => name) c ORDER BY 1;
SELECT n, l.scope = name AND l.request_id = name AS found FROM probe.names CROSS JOIN LATERAL idem_lookup(name, name) l ORDER BY 1;
SELECT n, idem_configure(name, lease => '5s'), idem_unconfigure(name) FROM probe.names ORDER BY 1;
SELECT n, probe.sqlstate(format('SELECT idem_claim(%L)', name || 'x')) AS key, probe.sqlstate(format('SELECT idem_claim(%L, scope => %L)', 'k', name || 'x')) AS scope FROM probe.names ORDER BY 1;
-- canonically equal is not the same
SELECT outcome FROM idem_claim(U&'lim-\00e4');
SELECT outcome FROM idem_claim(U&'lim-a\0308');
-- escapes in a body are the characters they stand for
SELECT idem_fingerprint('"\u00e4\ud83d\ude00"') = idem_fingerprint('"ä😀"') AS same;
SELECT outcome FROM idem_claim('lim-1', '{"é": "\u00e9"}');
SELECT outcome FROM idem_claim('lim-1', '{"\u00e9": "é"}');
SELECT outcome, differs FROM idem_claim('lim-1', '{"\u00e9": "e"}');

-- a megabyte of what does not compress, in every column that may hold it
CREATE TABLE probe.big AS
    SELECT string_agg(md5(n::text), '') AS text, string_agg(sha256(n::text::bytea), '') AS bytes FROM generate_series(1, 32768) n;
SELECT length(text), length(bytes) FROM probe.big;
SELECT c.outcome, idem_finish('lim-big', to_jsonb(text), 200, response_headers => jsonb_build_object('h', text), response_bytes => bytes)
  FROM probe.big CROSS JOIN LATERAL idem_claim('lim-big', jsonb_build_object('b', text)) c;
CREATE FUNCTION probe.replays_as_stored() RETURNS TABLE (outcome text, body boolean, headers boolean, bytes boolean) LANGUAGE sql AS $$
    SELECT c.outcome, c.response_body IS NOT DISTINCT FROM to_jsonb(b.text), c.response_headers IS NOT DISTINCT FROM jsonb_build_object('h', b.text),
           c.response_bytes IS NOT DISTINCT FROM b.bytes
      FROM probe.big b CROSS JOIN LATERAL idem_claim('lim-big', jsonb_build_object('b', b.text)) c
$$;
SELECT * FROM probe.replays_as_stored();
SELECT l.response_body = to_jsonb(text) AND l.response_bytes = bytes AS looked_up FROM probe.big CROSS JOIN LATERAL idem_lookup('lim-big') l;
SELECT pg_relation_size(reltoastrelid) > 1000000 AS toasted FROM pg_class WHERE oid = 'transaction_log'::regclass;
SELECT c.outcome, c.differs FROM probe.big CROSS JOIN LATERAL idem_claim('lim-big', jsonb_build_object('b', text || 'x')) c;
-- a bare repeat of that
SELECT idem_finish('lim-big', to_jsonb(text), 200, l.token, response_headers => jsonb_build_object('h', text), response_bytes => bytes)
  FROM probe.big, transaction_log l WHERE l.request_id = 'lim-big';
-- through a cursor, beyond the call
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT md5(response_body::text) = (SELECT md5(to_jsonb(text)::text) FROM probe.big) AS same FROM idem_claim('lim-big');
COMMIT;
FETCH c;
CLOSE c;
-- moved by others
VACUUM FULL transaction_log;
SELECT * FROM probe.replays_as_stored();
REINDEX TABLE transaction_log;
SELECT * FROM probe.replays_as_stored();
CLUSTER transaction_log USING transaction_log_pkey;
SELECT * FROM probe.replays_as_stored();
VACUUM (FREEZE, ANALYZE) transaction_log;
SELECT * FROM probe.replays_as_stored();
-- big ones through later attempts: the old body stays with the key, the old error goes
SELECT idem_fail('lim-big2', to_jsonb(text), 500, token, retry_after => '0') FROM probe.big CROSS JOIN LATERAL idem_claim('lim-big2', jsonb_build_object('b', text));
SELECT c.outcome, c.attempt FROM probe.big CROSS JOIN LATERAL idem_claim('lim-big2', jsonb_build_object('b', text), lease => '1 us') c;
SELECT c.outcome, c.attempt, idem_release('lim-big2') FROM probe.big CROSS JOIN LATERAL idem_claim('lim-big2', jsonb_build_object('b', text)) c;
SELECT c.outcome, c.attempt, idem_extend('lim-big2') IS NOT NULL AS extended, idem_finish('lim-big2', to_jsonb(text)) FROM probe.big CROSS JOIN LATERAL idem_claim('lim-big2', jsonb_build_object('b', text)) c;
SELECT l.response_body = to_jsonb(text) AS response, l.error IS NULL AS no_error, t.request_body = jsonb_build_object('b', text) AS request
  FROM probe.big CROSS JOIN LATERAL idem_lookup('lim-big2') l JOIN transaction_log t ON t.request_id = 'lim-big2';
VACUUM FULL transaction_log;
SELECT c.response_body = to_jsonb(text) AS response FROM probe.big CROSS JOIN LATERAL idem_claim('lim-big2', jsonb_build_object('b', text)) c;

-- deep documents: they work, or are refused as too deep
CREATE FUNCTION probe.deep(depth int, op text, mid text, cl text) RETURNS text LANGUAGE sql AS $$ SELECT repeat(op, depth) || mid || repeat(cl, depth) $$;
CREATE FUNCTION probe.go_deep(key text, body text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c record;
BEGIN
    PERFORM idem_claim(key, body::jsonb);
    PERFORM idem_finish(key, body::jsonb);
    SELECT * INTO c FROM idem_claim(key, body::jsonb);
    ASSERT c.outcome = 'replay' AND c.response_body = body::jsonb;
    SELECT * INTO c FROM idem_claim(key, replace(body, '7', '8')::jsonb);
    ASSERT c.outcome = 'mismatch' AND cardinality(c.differs) = 1;
    RETURN 'works';
EXCEPTION WHEN statement_too_complex THEN
    RETURN 'too deep';
END $$;
SELECT probe.go_deep('lim-deep-1', probe.deep(100, '[', '7', ']')), probe.go_deep('lim-deep-2', probe.deep(100, '{"a":', '7', '}'));
SELECT bool_and(probe.go_deep('lim-deep-3-' || d, probe.deep(d, '[', '7', ']')) IN ('works', 'too deep')
            AND probe.go_deep('lim-deep-4-' || d, probe.deep(d, '{"a":', '7', '}')) IN ('works', 'too deep')) AS clean
  FROM unnest('{1000,3000,4000,5000,6000,6500,7000,8000,10000,20000}'::int[]) d;
SELECT probe.go_deep('lim-deep-5', probe.deep(1000000, '[', '7', ']'));
SELECT bool_and(probe.sqlstate(format('SELECT idem_fingerprint(%L, ARRAY[%L])', probe.deep(d, '{"a":', '7', '}'), repeat('a.', d - 1) || 'a')) IN ('00000', '54001')) AS clean
  FROM unnest('{1000,5000,7000}'::int[]) d;
SELECT idem_fingerprint(probe.deep(500, '{"a":', '7', '}')::jsonb, ARRAY[repeat('a.', 499) || 'a']) = idem_fingerprint(probe.deep(499, '{"a":', '{}', '}')::jsonb) AS left_out;

-- wide ones
SELECT probe.go_deep('lim-wide-1', (SELECT jsonb_agg(0) || '7' FROM generate_series(1, 100000))::text),
       probe.go_deep('lim-wide-2', (SELECT jsonb_object_agg('k' || translate(n::text, '78', 'ab'), 0) || '{"z": 7}' FROM generate_series(1, 20000) n)::text);
SELECT cardinality(c.differs) BETWEEN 1 AND 100 AS bounded
  FROM idem_claim('lim-wide-1', (SELECT jsonb_agg(1) FROM generate_series(1, 100000))) c;
-- long numbers are compared by their value
SELECT idem_fingerprint(('1' || repeat('0', 1000))::jsonb) = idem_fingerprint('1e1000') AS same,
       idem_fingerprint(('1' || repeat('0', 999) || '1')::jsonb) = idem_fingerprint('1e1000') AS other,
       idem_fingerprint('1e-1000') = idem_fingerprint(('0.' || repeat('0', 999) || '1')::jsonb) AS small,
       idem_fingerprint('1e131071') = idem_fingerprint('10e131070') AS largest;
-- many exclusions
SELECT idem_fingerprint('{"a": 1, "b": 2}', array_agg('x' || n) || '{b}'::text[]) = idem_fingerprint('{"a": 1}') AS same FROM generate_series(1, 10000) n;

-- many claims in one statement and in one transaction
SELECT c.outcome, f, count(*) FROM generate_series(1, 5000) n CROSS JOIN LATERAL idem_claim('lim-many-' || n, to_jsonb(n)) c
 CROSS JOIN LATERAL idem_finish('lim-many-' || n, to_jsonb(n)) f GROUP BY 1, 2;
SELECT c.outcome, bool_and(c.response_body = to_jsonb(n)) AS right_one, count(*) FROM generate_series(1, 5000) n CROSS JOIN LATERAL idem_claim('lim-many-' || n, to_jsonb(n)) c GROUP BY 1;

DELETE FROM transaction_log WHERE request_id LIKE 'lim-%' OR octet_length(request_id) > 400;
VACUUM transaction_log;
DROP SCHEMA probe CASCADE;
