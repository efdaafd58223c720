-- What bench/engine runs; needs the psql variables keys and runs.
\pset footer off
\set body '{"order": 4711, "items": [{"sku": "A-1", "n": 2}, {"sku": "B-2", "n": 1}], "currency": "EUR"}'
\set response '{"order": 4711, "state": "accepted", "total": "129.90", "links": {"self": "/orders/4711"}}'

SET client_min_messages = warning;
SET jit = off;
SET max_parallel_workers_per_gather = 0;
CREATE EXTENSION idempotency;

-- ---- the same job in PL/pgSQL ---------------------------------------------

CREATE TABLE pl_log (
    token bigint NOT NULL,
    created_at timestamptz NOT NULL,
    due_at timestamptz NOT NULL,
    attempt integer NOT NULL,
    scope text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    claimed_by text NOT NULL,
    ttl interval NOT NULL,
    lease interval NOT NULL,
    fingerprint bytea,
    status text NOT NULL,
    locked_until timestamptz,
    retry_at timestamptz,
    expires_at timestamptz,
    completed_at timestamptz,
    response_code integer,
    response_headers jsonb,
    response_bytes bytea,
    response_body jsonb,
    error jsonb,
    request_body jsonb,
    PRIMARY KEY (scope, request_id)
) WITH (fillfactor = 70, vacuum_truncate = off);
CREATE INDEX ON pl_log (due_at);

CREATE TYPE pl_answer AS (
    outcome text, token bigint, attempt integer, status text,
    response_code integer, response_headers jsonb, response_body jsonb, response_bytes bytea,
    retry_after interval, created_at timestamptz, expires_at timestamptz);

-- Decides by a row that is there.
CREATE FUNCTION pl_decide(r pl_log, a_body jsonb, a_fingerprint bytea, a_ttl interval, a_lease interval)
    RETURNS pl_answer LANGUAGE plpgsql AS $$
DECLARE
    answer pl_answer;
    now_at timestamptz := clock_timestamp();
    new_token bigint;
BEGIN
    answer.created_at := r.created_at;
    answer.status := r.status;
    IF r.expires_at > now_at AND r.fingerprint <> a_fingerprint THEN
        answer.outcome := 'mismatch';
        RETURN answer;
    END IF;
    IF r.expires_at > now_at AND (r.status = 'completed' OR (r.status = 'failed' AND r.retry_at IS NULL)) THEN
        answer.outcome := 'replay';
        answer.attempt := r.attempt;
        answer.response_code := r.response_code;
        answer.response_headers := r.response_headers;
        answer.response_body := CASE r.status WHEN 'failed' THEN r.error ELSE r.response_body END;
        answer.response_bytes := r.response_bytes;
        answer.expires_at := r.expires_at;
        RETURN answer;
    END IF;
    IF (r.status = 'processing' AND r.locked_until > now_at) OR r.retry_at > now_at THEN
        answer.outcome := 'in_progress';
        answer.attempt := r.attempt;
        answer.retry_after := coalesce(r.retry_at, r.locked_until) - now_at;
        RETURN answer;
    END IF;
    new_token := greatest((extract(epoch FROM now_at) * 1000000)::bigint, r.token + 1);
    UPDATE pl_log l
       SET token = new_token, attempt = l.attempt + 1, status = 'processing', claimed_by = current_user,
           locked_until = now_at + a_lease, retry_at = NULL, expires_at = now_at + a_lease + a_ttl
     WHERE l.scope = r.scope AND l.request_id = r.request_id AND l.token = r.token;
    answer.outcome := CASE WHEN FOUND THEN 'claimed' ELSE 'in_progress' END;
    answer.token := new_token;
    answer.attempt := r.attempt + 1;
    RETURN answer;
END $$;

CREATE FUNCTION pl_claim_insert_first(
    a_request_id text, a_body jsonb DEFAULT NULL, a_scope text DEFAULT '',
    a_ttl interval DEFAULT '24 hours', a_lease interval DEFAULT '60 s')
    RETURNS pl_answer LANGUAGE plpgsql AS $$
DECLARE
    answer pl_answer;
    r pl_log;
    now_at timestamptz := clock_timestamp();
    new_token bigint := (extract(epoch FROM now_at) * 1000000)::bigint;
    a_fingerprint bytea := sha256(convert_to(a_body::text, 'UTF8'));
BEGIN
    IF a_request_id IS NULL OR a_request_id = '' OR length(a_request_id) > 255 OR length(a_scope) > 255 THEN
        RAISE EXCEPTION 'bad key' USING ERRCODE = '22023';
    END IF;
    LOOP
        INSERT INTO pl_log (token, created_at, due_at, attempt, scope, request_id, claimed_by, ttl, lease,
                            fingerprint, status, locked_until, expires_at, request_body)
        VALUES (new_token, now_at, now_at + a_lease + a_ttl, 1, a_scope, a_request_id, current_user, a_ttl, a_lease,
                a_fingerprint, 'processing', now_at + a_lease, now_at + a_lease + a_ttl, a_body)
            ON CONFLICT DO NOTHING;
        IF FOUND THEN
            answer.outcome := 'claimed';
            answer.token := new_token;
            answer.attempt := 1;
            answer.status := 'processing';
            answer.created_at := now_at;
            RETURN answer;
        END IF;
        SELECT * INTO r FROM pl_log l WHERE l.scope = a_scope AND l.request_id = a_request_id;
        IF FOUND THEN
            RETURN pl_decide(r, a_body, a_fingerprint, a_ttl, a_lease);
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION pl_claim_select_first(
    a_request_id text, a_body jsonb DEFAULT NULL, a_scope text DEFAULT '',
    a_ttl interval DEFAULT '24 hours', a_lease interval DEFAULT '60 s')
    RETURNS pl_answer LANGUAGE plpgsql AS $$
DECLARE
    r pl_log;
BEGIN
    IF a_request_id IS NULL OR a_request_id = '' OR length(a_request_id) > 255 OR length(a_scope) > 255 THEN
        RAISE EXCEPTION 'bad key' USING ERRCODE = '22023';
    END IF;
    SELECT * INTO r FROM pl_log l WHERE l.scope = a_scope AND l.request_id = a_request_id;
    IF FOUND THEN
        RETURN pl_decide(r, a_body, sha256(convert_to(a_body::text, 'UTF8')), a_ttl, a_lease);
    END IF;
    RETURN pl_claim_insert_first(a_request_id, a_body, a_scope, a_ttl, a_lease);
END $$;

-- Without a token the row must be this transaction's own.
CREATE FUNCTION pl_finish(
    a_request_id text, a_body jsonb DEFAULT NULL, a_code integer DEFAULT NULL,
    a_token bigint DEFAULT NULL, a_scope text DEFAULT '')
    RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    now_at timestamptz := clock_timestamp();
    r pl_log;
BEGIN
    UPDATE pl_log l
       SET status = 'completed', response_body = a_body, response_code = a_code, completed_at = now_at,
           locked_until = NULL, expires_at = now_at + l.ttl
     WHERE l.scope = a_scope AND l.request_id = a_request_id AND l.status = 'processing'
       AND (l.token = a_token OR (a_token IS NULL AND l.xmin = pg_current_xact_id()::xid));
    IF FOUND THEN
        RETURN true;
    END IF;
    SELECT * INTO r FROM pl_log l WHERE l.scope = a_scope AND l.request_id = a_request_id;
    IF FOUND AND r.token = a_token AND r.status = 'completed' AND r.response_body IS NOT DISTINCT FROM a_body
       AND r.response_code IS NOT DISTINCT FROM a_code THEN
        RETURN false;
    END IF;
    RAISE EXCEPTION 'claim is stale' USING ERRCODE = 'ID001';
END $$;

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
SELECT pg_stat_force_next_flush(), pg_stat_reset_single_table_counters('transaction_log'::regclass),
       pg_stat_reset_single_table_counters('pl_log'::regclass) \g /dev/null
CALL measure_footprint('foot ', 'C', 'transaction_log', :keys, :'body', :'response');
CALL measure_footprint('foot ', 'PL/pgSQL', 'pl_log', :keys, :'body', :'response');
SELECT pg_stat_force_next_flush() \g /dev/null
SELECT f.engine, round(f.wal_bytes::numeric / :keys) AS "WAL bytes per key",
       round(s.n_tup_hot_upd::numeric / nullif(s.n_tup_upd, 0), 3) AS "HOT share",
       round(f.heap_bytes::numeric / :keys) AS "heap bytes per key"
  FROM footprint f JOIN pg_stat_user_tables s
    ON s.relname = CASE f.engine WHEN 'C' THEN 'transaction_log' ELSE 'pl_log' END;
