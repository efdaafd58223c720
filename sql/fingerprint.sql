-- Fingerprints: what is the same request, however it is written.
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

CREATE FUNCTION probe.same(a text, b text) RETURNS boolean LANGUAGE sql AS
    $$ SELECT idem_fingerprint(a::jsonb) = idem_fingerprint(b::jsonb) $$;

-- a version and 32 bytes, the same for ever: stored ones must match after an upgrade
SELECT length(idem_fingerprint('{}')), get_byte(idem_fingerprint('{}'), 0) AS version;
SELECT encode(idem_fingerprint('{"a": 1, "b": [true, null, "x"], "c": {"d": 1.50}}'), 'hex');
SELECT encode(idem_fingerprint('null'), 'hex');
SELECT idem_fingerprint(NULL) IS NULL AS none;

-- the same
SELECT a, b, probe.same(a, b)
  FROM (VALUES (1, '{"a": 1, "b": 2}', '{"b": 2, "a": 1}'),
               (2, '{"a":{"x":1,"y":[{"p":1,"q":2}]}}', '{ "a" : { "y" : [ { "q" : 2 , "p" : 1 } ] , "x" : 1 } }'),
               (3, '{"a": 0, "a": 1}', '{"a": 1}'),
               (4, '"\u0061\/b"', '"a/b"'),
               (5, '{"\u0061": 1}', '{"a": 1}'),
               (6, '1', '1.0'),
               (7, '1', '1e0'),
               (8, '100', '1e2'),
               (9, '1.50', '1.5'),
               (10, '0', '-0'),
               (11, '0', '0.000'),
               (12, '[1.0, {"n": 2.00}]', '[1, {"n": 2}]'),
               (13, '1000000000000000000000000000000', '1e30'),
               (14, '0.1', '1e-1'),
               (15, '-12.340', '-1234e-2')) v (n, a, b) ORDER BY n;
-- not the same
SELECT a, b, probe.same(a, b)
  FROM (VALUES (1, '1', '"1"'),
               (2, 'null', '"null"'),
               (3, 'true', '"true"'),
               (4, 'true', 'false'),
               (5, 'null', 'false'),
               (6, '{}', '[]'),
               (7, '[]', '[[]]'),
               (8, '[1, 2]', '[2, 1]'),
               (9, '[1, 2]', '[12]'),
               (10, '["a", "b"]', '["ab"]'),
               (11, '["a,b"]', '["a", "b"]'),
               (12, '{"a": null}', '{}'),
               (13, '{"a": {"b": 1}}', '{"a.b": 1}'),
               (14, '{"a": 1}', '{"A": 1}'),
               (15, '{"a": "x"}', '{"a": "x "}'),
               (16, '{"a": 1, "b": 2}', '{"a": 2, "b": 1}'),
               (17, '["a", 1]', '{"a": 1}'),
               (18, '[["a"], "b"]', '["a", ["b"]]'),
               (19, '1', '[1]'),
               (20, '""', 'null'),
               (21, '0.1', '0.10000000000000000000000000000000000001'),
               (22, '9007199254740993', '9007199254740992'),
               (23, '1', '-1'),
               (24, '{"a": [{}]}', '{"a": {}}'),
               (25, '["s\u0001"]', '["s"]')) v (n, a, b) ORDER BY n;

-- excluded: top-level keys and paths of keys
CREATE FUNCTION probe.left_out(a text, b text, VARIADIC exclude text[]) RETURNS boolean LANGUAGE sql AS
    $$ SELECT idem_fingerprint(a::jsonb, exclude) = idem_fingerprint(b::jsonb) $$;
SELECT probe.left_out('{"a": 1, "t": 2}', '{"a": 1}', 't') AS key,
       probe.left_out('{"a": 1, "t": {"deep": [1]}}', '{"a": 1}', 't') AS whole_value,
       probe.left_out('{"a": 1, "t": 2, "u": 3}', '{"a": 1}', 't', 'u') AS two,
       probe.left_out('{"a": 1, "t": 2}', '{"a": 1}', 't', 't', 'none') AS repeated,
       probe.left_out('{"a": {"b": 1, "t": 2}}', '{"a": {"b": 1}}', 'a.t') AS path,
       probe.left_out('{"a": {"b": {"c": {"t": 2}}}}', '{"a": {"b": {"c": {}}}}', 'a.b.c.t') AS deep,
       probe.left_out('{"a": {"t": 1}}', '{"a": {}}', 'a.t') AS last_one,
       probe.left_out('{"a": {"t": 1}, "t": 2}', '{"a": {"t": 1}}', 't') AS only_at_top,
       probe.left_out('{"a": 1}', '{}', 'a') AS all_of_it;
-- and nothing else
SELECT probe.left_out('{"a": {"t": 1}}', '{"a": {}}', 't') AS nested,
       probe.left_out('{"ab": 1}', '{}', 'a') AS prefix,
       probe.left_out('{"a": 1}', '{}', 'ab') AS longer,
       probe.left_out('{"a": {"b": 1}}', '{"a": {}}', 'a.b.c') AS below,
       probe.left_out('{"a": {"b": 1}}', '{"a": {}}', 'b') AS inner_name,
       probe.left_out('{"A": 1}', '{}', 'a') AS in_other_case,
       probe.left_out('["t", {"t": 1}]', '["t", {}]', 't') AS in_array,
       probe.left_out('{"": {"t": 1}}', '{"": {}}', 't') AS below_empty_name,
       probe.left_out('"t"', '""', 't') AS scalar;
-- excluding nothing changes nothing
SELECT idem_fingerprint('{"a": {"b": 1}}', '{}') = idem_fingerprint('{"a": {"b": 1}}') AS empty,
       idem_fingerprint('{"a": {"b": 1}}', NULL) = idem_fingerprint('{"a": {"b": 1}}') AS null,
       idem_fingerprint('{"a": {"b": 1}}', '{NULL}') = idem_fingerprint('{"a": {"b": 1}}') AS null_element,
       idem_fingerprint('{"a": {"b": 1}}', '{x,y.z}') = idem_fingerprint('{"a": {"b": 1}}') AS absent,
       idem_fingerprint('{"a": {"b": 1}}', '{{x,y},{z,w}}') = idem_fingerprint('{"a": {"b": 1}}') AS two_dimensions;

-- that is what a claim compares with
SELECT idem_finish('fp-1', '1', token => token) FROM idem_claim('fp-1', '{"n": 1.0, "a": [1, 2]}');
SELECT outcome FROM idem_claim('fp-1', '{"a": [1e0, 2.0], "n": 1}');
SELECT outcome, differs FROM idem_claim('fp-1', '{"a": [2, 1], "n": 1}');
SELECT outcome FROM idem_claim('fp-1', fingerprint => idem_fingerprint('{"n": 1, "a": [1, 2]}'));
SELECT idem_finish('fp-2', '2', token => token) FROM idem_claim('fp-2', 'null');
SELECT outcome, differs FROM idem_claim('fp-2', 'null');
SELECT outcome, differs FROM idem_claim('fp-2', '{}');

-- immutable: may stand in an index
CREATE TABLE probe.bodies (body jsonb);
CREATE INDEX ON probe.bodies (idem_fingerprint(body));
INSERT INTO probe.bodies SELECT jsonb_build_object('n', n) FROM generate_series(1, 100) n;
SELECT count(DISTINCT idem_fingerprint(body)) FROM probe.bodies;

DELETE FROM transaction_log WHERE request_id LIKE 'fp-%';
-- many exclusions are found without looking at each
WITH d AS (SELECT jsonb_object_agg('k' || i, i) AS body, array_agg('k' || i) AS keys FROM generate_series(1, 20000) i)
SELECT idem_fingerprint(body, keys) = idem_fingerprint('{}') AS nothing_left,
       idem_fingerprint(body, keys[2:]) = idem_fingerprint('{"k1": 1}') AS one_left FROM d;

DROP SCHEMA probe CASCADE;
