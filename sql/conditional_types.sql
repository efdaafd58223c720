-- conditional writes: values of all kinds of types
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
RESET client_min_messages;
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
SET bytea_output = 'hex';

CREATE TYPE cy_mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE cy_pair AS (n numeric(6,2), t text);
CREATE TYPE cy_odd AS (j json, p point);
CREATE DOMAIN cy_positive AS int NOT NULL CHECK (value > 0);
CREATE DOMAIN cy_moods AS cy_mood[];
CREATE TABLE cy_all (
    k int PRIMARY KEY,
    big bigint, num numeric, num2 numeric(10,2), flt float8,
    vc varchar(5), ch char(5), txt text, flag boolean,
    raw bytea, ts timestamptz(0), d date, span interval,
    id uuid, mood cy_mood, pos cy_positive DEFAULT 7, moods cy_moods,
    pair cy_pair, pairs cy_pair[], ints int[], grid int[][],
    rng int4range, mrng nummultirange, bits bit(3),
    jb jsonb, js json, jss json[], pt point, odd cy_odd, doc xid);

-- each column: the value, and the same said otherwise is a repeat
CREATE TABLE cy_cases (n serial, col text, first jsonb, again jsonb);
INSERT INTO cy_cases (col, first, again) VALUES
    ('big', '9223372036854775807', '"9223372036854775807"'),
    ('num', '123456789012345678901234567890.123456789012345678901234567890', '123456789012345678901234567890.1234567890123456789012345678900'),
    ('num', '1.0', '1.00'),
    ('num', '1e40', '"1E+40"'),
    ('num', '"NaN"', '"NaN"'),
    ('num2', '10.005', '10.01'),
    ('flt', '0.1', '0.10'),
    ('flt', '"NaN"', '"nan"'),
    ('flt', '"-0"', '0'),
    ('vc', '"abc  "', '"abc  "'),
    ('vc', '"abcde   "', '"abcde"'),
    ('ch', '"ab"', '"ab   "'),
    ('txt', '{"a": [1, 2]}', '{"a":[1,2]}'),
    ('txt', '"Quotes \" '' \\ $1 ; DROP TABLE cy_all"', '"\u0051uotes \" '' \\ $1 ; DROP TABLE cy_all"'),
    ('txt', '""', '""'),
    ('flag', 'true', '"yes"'),
    ('raw', '"\\x00ff10"', '"\\x00FF10"'),
    ('ts', '"2024-02-29 12:00:00.4+02"', '"2024-02-29T10:00:00Z"'),
    ('ts', '"infinity"', '"infinity"'),
    ('d', '"2024-02-29"', '"29 Feb 2024"'),
    ('span', '"1 day"', '"24 hours"'),
    ('id', '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"', '"{A0EEBC999C0B4EF8BB6D6BB9BD380A11}"'),
    ('mood', '"ok"', '"ok"'),
    ('pos', '3', '3'),
    ('moods', '["sad", "happy"]', '"{sad,happy}"'),
    ('pair', '{"n": 1.005, "t": "x"}', '"(1.01,x)"'),
    ('pair', '{"t": "x"}', '{"t": "x", "n": null, "other": 1}'),
    ('pairs', '[{"n": 1, "t": "x"}, {"n": 2}]', '["(1.0,x)", {"n": 2.00}]'),
    ('ints', '[1, null, 3]', '"{1,NULL,3}"'),
    ('ints', '[]', '"{}"'),
    ('grid', '[[1, 2], [3, 4]]', '"{{1,2},{3,4}}"'),
    ('rng', '"[1,5]"', '"[1,6)"'),
    ('mrng', '"{[1,2), [2,3)}"', '"{[1,3)}"'),
    ('bits', '"101"', '"101"'),
    ('jb', '{"b": 1.0, "a": [true, null]}', '{"a": [true, null], "b": 1}'),
    ('jb', '"text"', '"text"'),
    ('js', '{"b": 1.0, "a": 2}', '{"a": 2, "b": 1.00}'),
    ('jss', '[{"a": 1}]', '[{"a":1}]'),
    ('pt', '"(1,2)"', '"1,2"'),
    ('odd', '{"j": {"a": 1}, "p": "(1,2)"}', '{"j": {"a": 1}, "p": "1,2"}'),
    ('doc', '"7"', '7');
SELECT col, i.outcome AS first, e.outcome AS again, n.outcome || n.differs::text AS nulled, i.stored -> col AS stored
  FROM cy_cases AS c,
       LATERAL (SELECT * FROM idem_insert('cy_all', jsonb_build_object('k', c.n, c.col, c.first))) AS i,
       LATERAL (SELECT * FROM idem_insert('cy_all', jsonb_build_object('k', c.n, c.col, c.again))) AS e,
       LATERAL (SELECT * FROM idem_insert('cy_all', jsonb_build_object('k', c.n) ||
                    CASE WHEN c.col <> 'pos' THEN jsonb_build_object(c.col, NULL) ELSE '{"pos": 9}' END)) AS n
 ORDER BY c.n;

-- the same through an upsert: the repeat writes nothing
SELECT col, u.outcome AS same, v.outcome AS nulled, w.outcome AS back
  FROM cy_cases AS c,
       LATERAL (SELECT * FROM idem_upsert('cy_all', jsonb_build_object('k', c.n, c.col, c.again))) AS u,
       LATERAL (SELECT * FROM idem_upsert('cy_all', jsonb_build_object('k', c.n) ||
                    CASE WHEN c.col <> 'pos' THEN jsonb_build_object(c.col, NULL) ELSE '{"pos": 9}' END)) AS v,
       LATERAL (SELECT * FROM idem_upsert('cy_all', jsonb_build_object('k', c.n, c.col, c.first))) AS w
 WHERE (u.outcome, v.outcome, w.outcome) IS DISTINCT FROM ('unchanged', 'updated', 'updated');

-- a domain that forbids NULL does not mind being absent
SELECT outcome, stored -> 'pos' AS pos FROM idem_insert('cy_all', '{"k": 1000}');

-- what does not fit is the types' own error, and leaves the plan usable
\set VERBOSITY sqlstate
SELECT outcome FROM idem_insert('cy_all', '{"k": 1001, "pos": null}');
SELECT outcome FROM idem_insert('cy_all', '{"k": 1001, "pos": 0}');
SELECT outcome FROM idem_insert('cy_all', '{"k": 1001, "vc": "abcdef"}');
SELECT outcome FROM idem_insert('cy_all', '{"k": 1001, "mood": "furious"}');
SELECT outcome FROM idem_insert('cy_all', '{"k": 1001, "flt": 1e400}');
SELECT outcome FROM idem_insert('cy_all', '{"k": 1.5}');
SELECT outcome FROM idem_insert('cy_all', '{"k": 1001, "num2": 123456789}');
SELECT outcome FROM idem_insert('cy_all', '{"k": 1001, "bits": "10"}');
SELECT outcome FROM idem_insert('cy_all', '{"k": 1001, "ints": 5}');
\set VERBOSITY default
SELECT outcome FROM idem_insert('cy_all', '{"k": 1001, "pos": 1}');
SELECT outcome FROM idem_insert('cy_all', '{"k": 1002, "ints": [5]}');

-- keys of all kinds
CREATE TABLE cy_key_array (k int[] PRIMARY KEY, v int);
CREATE TABLE cy_key_enum (k cy_mood PRIMARY KEY, v int);
CREATE DOMAIN cy_mood_domain AS cy_mood;
CREATE TABLE cy_key_mood_domain (k cy_mood_domain PRIMARY KEY, v int);
CREATE DOMAIN cy_code_domain AS char(4);
CREATE TABLE cy_key_code_domain (k cy_code_domain PRIMARY KEY, v int);
CREATE TABLE cy_key_range (k int4range PRIMARY KEY, v int);
CREATE TABLE cy_key_pair (k cy_pair PRIMARY KEY, v int);
CREATE TABLE cy_key_domain (k cy_positive PRIMARY KEY, v int);
CREATE TABLE cy_key_moods (k cy_moods PRIMARY KEY, v int);
CREATE TABLE cy_key_char (k char(4) PRIMARY KEY, v int);
CREATE TABLE cy_key_name (k name PRIMARY KEY, v int);
CREATE TABLE cy_key_raw (k bytea PRIMARY KEY, v int);
CREATE TABLE cy_key_many (a int, b timestamptz, c uuid, d varchar(3), v int, PRIMARY KEY (d, b, a, c));
CREATE FUNCTION cy_twice(target regclass, new_row jsonb, again jsonb) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ',
        (SELECT outcome FROM idem_insert(target, new_row)),
        (SELECT outcome FROM idem_insert(target, again)),
        (SELECT outcome FROM idem_upsert(target, again || '{"v": 2}')),
        (SELECT outcome FROM idem_upsert(target, new_row || '{"v": 2}')))
$$;
SELECT cy_twice('cy_key_array', '{"k": [1, 2], "v": 1}', '{"k": "{1,2}", "v": 1}');
SELECT cy_twice('cy_key_enum', '{"k": "ok", "v": 1}', '{"k": "ok", "v": 1}');
SELECT cy_twice('cy_key_mood_domain', '{"k": "ok", "v": 1}', '{"k": "ok", "v": 1}');
SELECT idem_guard_version('cy_key_mood_domain', 'v');
SELECT * FROM idem_update('cy_key_mood_domain', 'ok', 1, '{"k": "ok"}');
INSERT INTO cy_key_code_domain VALUES ('ab', 1);
SELECT cy_twice('cy_key_code_domain', '{"k": "ac", "v": 1}', '{"k": "ac ", "v": 1}');
SELECT cy_twice('cy_key_range', '{"k": "[1,2]", "v": 1}', '{"k": "[1,3)", "v": 1}');
SELECT cy_twice('cy_key_pair', '{"k": {"n": 1, "t": "x"}, "v": 1}', '{"k": "(1.00,x)", "v": 1}');
SELECT cy_twice('cy_key_domain', '{"k": 1, "v": 1}', '{"k": "1", "v": 1}');
SELECT cy_twice('cy_key_moods', '{"k": ["ok"], "v": 1}', '{"k": "{ok}", "v": 1}');
SELECT cy_twice('cy_key_char', '{"k": "a", "v": 1}', '{"k": "a  ", "v": 1}');
SELECT cy_twice('cy_key_name', '{"k": "a", "v": 1}', '{"k": "a", "v": 1}');
SELECT cy_twice('cy_key_raw', '{"k": "\\x01", "v": 1}', '{"k": "\\001", "v": 1}');
SELECT cy_twice('cy_key_many', '{"a": 1, "b": "2024-01-01 00:00Z", "c": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "d": "x", "v": 1}',
                               '{"d": "x", "c": "a0eebc999c0b4ef8bb6d6bb9bd380a11", "b": "2024-01-01 01:00+01", "a": "1", "v": 1}');

-- big values, compared whole
CREATE TABLE cy_big (k int PRIMARY KEY, t text, j jsonb);
SELECT outcome FROM idem_insert('cy_big', jsonb_build_object('k', 1, 't', repeat('abcdefgh', 100000), 'j', (SELECT jsonb_agg(i) FROM generate_series(1, 20000) AS i)));
SELECT outcome FROM idem_insert('cy_big', jsonb_build_object('k', 1, 't', repeat('abcdefgh', 100000), 'j', (SELECT jsonb_agg(i) FROM generate_series(1, 20000) AS i)));
SELECT outcome, differs FROM idem_insert('cy_big', jsonb_build_object('k', 1, 't', repeat('abcdefgh', 100000) || 'x', 'j', (SELECT jsonb_agg(i) FROM generate_series(1, 20001) AS i)));

DROP FUNCTION cy_twice;
DROP TABLE cy_all, cy_cases, cy_key_array, cy_key_enum, cy_key_mood_domain, cy_key_code_domain, cy_key_range, cy_key_pair, cy_key_domain, cy_key_moods, cy_key_char, cy_key_name, cy_key_raw, cy_key_many, cy_big;
DROP DOMAIN cy_mood_domain, cy_code_domain;
DROP TYPE cy_moods, cy_mood, cy_pair, cy_odd, cy_positive;
