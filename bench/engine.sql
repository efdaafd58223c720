-- What bench/engine runs; needs the psql variables keys and runs.
\pset footer off
\set body '{"order": 4711, "items": [{"sku": "A-1", "n": 2}, {"sku": "B-2", "n": 1}], "currency": "EUR"}'
\set response '{"order": 4711, "state": "accepted", "total": "129.90", "links": {"self": "/orders/4711"}}'

SET client_min_messages = warning;
SET jit = off;
SET max_parallel_workers_per_gather = 0;
CREATE EXTENSION idempotency;

\ir plpgsql.sql

-- ---- measuring ------------------------------------------------------------

CREATE UNLOGGED TABLE result (job text, engine text, us double precision);
CREATE UNLOGGED TABLE granted (engine text, request_id text, token bigint);
CREATE INDEX ON granted (engine);

CREATE PROCEDURE measure(a_job text, a_engine text, calls integer, statement text)
    LANGUAGE plpgsql AS $$
DECLARE
    started timestamptz := clock_timestamp();
BEGIN
    EXECUTE statement;
    INSERT INTO result
    VALUES (a_job, a_engine, extract(epoch FROM clock_timestamp() - started) * 1000000 / calls);
END $$;

-- One run of all jobs; claims of run n are finished and replayed in it.
CREATE PROCEDURE run(n integer, keys integer, body text, response text)
    LANGUAGE plpgsql AS $$
DECLARE
    calls text := 'SELECT count(%s) FROM generate_series(1, ' || keys || ') g';
    rows text := 'SELECT count(r) FROM (SELECT %s AS r FROM generate_series(1, ' || keys || ') g) s';
    in_a_loop text := 'DO $do$ BEGIN FOR g IN 1..' || keys || ' LOOP PERFORM %s; PERFORM %s; END LOOP; END $do$';
    key text := format('''run %s key '' || g', n);
    both_key text := format('''run %s both '' || g', n);
    finish text := 'SELECT count(%s(request_id, %L, 200, token)) FROM granted WHERE engine = %L';
BEGIN
    CALL measure('nothing', 'C', keys, format(calls, key));
    CALL measure('claim', 'C', keys, format(rows, format('idem_claim(%s, %L)', key, body)));
    COMMIT;
    CALL measure('claim', 'PL/pgSQL', keys, format(calls, format('pl_claim_insert_first(%s, %L)', key, body)));
    COMMIT;
    DELETE FROM granted;
    INSERT INTO granted SELECT 'C', l.request_id, l.token FROM transaction_log l WHERE l.request_id LIKE format('run %s key %%', n);
    INSERT INTO granted SELECT 'PL/pgSQL', l.request_id, l.token FROM pl_log l WHERE l.request_id LIKE format('run %s key %%', n);
    COMMIT;
    CALL measure('finish', 'C', keys, format(finish, 'idem_finish', response, 'C'));
    COMMIT;
    CALL measure('finish', 'PL/pgSQL', keys, format(finish, 'pl_finish', response, 'PL/pgSQL'));
    COMMIT;
    CALL measure('replay', 'C', keys, format(rows, format('idem_claim(%s, %L)', key, body)));
    CALL measure('replay', 'PL/pgSQL', keys, format(calls, format('pl_claim_select_first(%s, %L)', key, body)));
    COMMIT;
    CALL measure('replay, insert first', 'C', keys, format(rows, format('idem_claim(%s, %L)', key, body)));
    CALL measure('replay, insert first', 'PL/pgSQL', keys, format(calls, format('pl_claim_insert_first(%s, %L)', key, body)));
    COMMIT;
    CALL measure('claim + finish', 'C', keys,
                 format(in_a_loop, format('idem_claim(%s, %L)', both_key, body), format('idem_finish(%s, %L, 200)', both_key, response)));
    COMMIT;
    CALL measure('claim + finish', 'PL/pgSQL', keys,
                 format(in_a_loop, format('pl_claim_insert_first(%s, %L)', both_key, body), format('pl_finish(%s, %L, 200)', both_key, response)));
    COMMIT;
END $$;

-- claim, COMMIT, finish, COMMIT for each key
CREATE PROCEDURE two_transactions(n text, a_engine text, keys integer, body jsonb, response jsonb)
    LANGUAGE plpgsql AS $$
DECLARE
    granted bigint;
BEGIN
    FOR g IN 1..keys LOOP
        IF a_engine = 'C' THEN
            SELECT c.token INTO granted FROM idem_claim(n || g, body) c;
        ELSE
            SELECT c.token INTO granted FROM pl_claim_insert_first(n || g, body) c;
        END IF;
        COMMIT;
        IF a_engine = 'C' THEN
            PERFORM idem_finish(n || g, response, 200, granted);
        ELSE
            PERFORM pl_finish(n || g, response, 200, granted);
        END IF;
        COMMIT;
    END LOOP;
END $$;

CREATE UNLOGGED TABLE footprint (engine text, wal_bytes bigint, heap_bytes bigint);
CREATE PROCEDURE measure_footprint(n text, a_engine text, a_table regclass, keys integer, body jsonb, response jsonb)
    LANGUAGE plpgsql AS $$
DECLARE
    wal pg_lsn := pg_current_wal_insert_lsn();
    heap bigint := pg_relation_size(a_table);
BEGIN
    CALL two_transactions(n, a_engine, keys, body, response);
    INSERT INTO footprint SELECT a_engine, pg_current_wal_insert_lsn() - wal, pg_relation_size(a_table) - heap;
    PERFORM pg_stat_force_next_flush();
    COMMIT;
END $$;

\echo Per call, within the server, in microseconds (medians of :runs runs of :keys calls)
SELECT format('CALL run(%s, %s, %L, %L)', n, :keys, :'body', :'response')
  FROM generate_series(0, :runs) n
\gexec
-- The first run filled the caches.
DELETE FROM result
 WHERE ctid IN (SELECT ctid FROM (SELECT ctid, row_number() OVER (PARTITION BY job, engine ORDER BY ctid) AS n FROM result) s
                 WHERE n = 1);
WITH medians AS (
    SELECT job, engine, percentile_cont(0.5) WITHIN GROUP (ORDER BY us) AS us, min(us) AS best
      FROM result GROUP BY job, engine)
SELECT c.job, round(c.us::numeric, 2) AS "C", round(p.us::numeric, 2) AS "PL/pgSQL", round((p.us / c.us)::numeric, 2) AS ratio,
       round(c.best::numeric, 2) AS "best C", round(p.best::numeric, 2) AS "best PL/pgSQL", round((p.best / c.best)::numeric, 2) AS "ratio of best"
  FROM medians c LEFT JOIN medians p ON p.job = c.job AND p.engine = 'PL/pgSQL'
 WHERE c.engine = 'C'
 ORDER BY array_position(ARRAY['nothing', 'claim', 'replay', 'replay, insert first', 'finish', 'claim + finish'], c.job);

\echo Footprint of claim, COMMIT, finish, COMMIT (after a first run that touches the pages)
SET synchronous_commit = off;
CALL two_transactions('warm ', 'C', :keys, :'body', :'response');
CALL two_transactions('warm ', 'PL/pgSQL', :keys, :'body', :'response');
-- What is pending goes out with the end of a statement, so reset in the next one.
SELECT pg_stat_force_next_flush() \g /dev/null
SELECT pg_stat_reset_single_table_counters('transaction_log'::regclass),
       pg_stat_reset_single_table_counters('pl_log'::regclass) \g /dev/null
CALL measure_footprint('foot ', 'C', 'transaction_log', :keys, :'body', :'response');
CALL measure_footprint('foot ', 'PL/pgSQL', 'pl_log', :keys, :'body', :'response');
SELECT pg_stat_force_next_flush() \g /dev/null
SELECT f.engine, round(f.wal_bytes::numeric / :keys) AS "WAL bytes per key",
       round(s.n_tup_hot_upd::numeric / nullif(s.n_tup_upd, 0), 3) AS "HOT share",
       round(f.heap_bytes::numeric / :keys) AS "heap bytes per key"
  FROM footprint f JOIN pg_stat_user_tables s
    ON s.relname = CASE f.engine WHEN 'C' THEN 'transaction_log' ELSE 'pl_log' END;
