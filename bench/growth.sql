-- growth.sql - what bench/growth runs.

-- Finished keys in both logs, as their engines leave them.
CREATE PROCEDURE grow(first int, last int) LANGUAGE plpgsql AS $$
DECLARE
    body jsonb := '{"item": "A-1", "quantity": 2}';
    response jsonb := to_jsonb(repeat('x', 90));
    model transaction_log;
    pl_model pl_log;
BEGIN
    PERFORM idem_claim('model', body);
    PERFORM idem_finish('model', response, 200);
    PERFORM pl_claim_insert_first('model', body);
    PERFORM pl_finish('model', response, 200);
    COMMIT;
    SELECT * INTO model FROM transaction_log WHERE request_id = 'model';
    SELECT * INTO pl_model FROM pl_log WHERE request_id = 'model';
    DELETE FROM transaction_log WHERE request_id = 'model';
    DELETE FROM pl_log WHERE request_id = 'model';
    -- full pages: none of these keys changes again
    ALTER TABLE transaction_log SET (fillfactor = 100);
    ALTER TABLE pl_log SET (fillfactor = 100);
    INSERT INTO transaction_log
    SELECT (m).* FROM (SELECT jsonb_populate_record(model, jsonb_build_object('request_id', md5(i::text))) AS m
                         FROM generate_series(first, last) i OFFSET 0) s;
    INSERT INTO pl_log
    SELECT (m).* FROM (SELECT jsonb_populate_record(pl_model, jsonb_build_object('request_id', md5(i::text))) AS m
                         FROM generate_series(first, last) i OFFSET 0) s;
    ALTER TABLE transaction_log SET (fillfactor = 70);
    ALTER TABLE pl_log SET (fillfactor = 70);
END $$;

CREATE UNLOGGED TABLE took (n int GENERATED ALWAYS AS IDENTITY, keys int, job text, engine text, round int, us numeric);

CREATE PROCEDURE take(keys int, job text, engine text, round int, calls int, statement text) LANGUAGE plpgsql AS $$
DECLARE
    started timestamptz := clock_timestamp();
BEGIN
    EXECUTE statement USING calls, keys, round;
    INSERT INTO took (keys, job, engine, round, us)
    VALUES (keys, job, engine, round, round(extract(epoch FROM clock_timestamp() - started) * 1000000 / calls, 3));
    COMMIT;
END $$;

-- New keys, which stay, and replays of keys all over the log.
CREATE PROCEDURE measure(keys int, engine text, round int) LANGUAGE plpgsql AS $$
DECLARE
    new_keys text := 'SELECT count(r) FROM (SELECT %s(k, %L) AS r FROM (SELECT md5(''new '' || $2 || '' '' || $3 || '' '' || i) AS k FROM generate_series(1, $1) i OFFSET 0) i) s';
    old_keys text := 'SELECT count(r) FROM (SELECT %s(k, %L) AS r FROM (SELECT md5((1 + (i * 7919 + $3 * 104729) %% $2)::text) AS k FROM generate_series(1, $1) i OFFSET 0) i) s';
    body text := '{"item": "A-1", "quantity": 2}';
    ours boolean := engine = 'ours';
BEGIN
    CALL take(keys, 'claim new', engine, round, 2000,
              format(new_keys, CASE WHEN ours THEN 'idem_claim' ELSE 'pl_claim_insert_first' END, body));
    CALL take(keys, 'replay', engine, round, 4000,
              format(old_keys, CASE WHEN ours THEN 'idem_claim' ELSE 'pl_claim_select_first' END, body));
END $$;

-- All rounds in one backend that has touched every page before; the engines
-- take turns in being first.
CREATE PROCEDURE measure_all(keys int, rounds int) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM sum(length(request_id)) FROM transaction_log;
    PERFORM sum(length(request_id)) FROM pl_log;
    SET LOCAL enable_seqscan = off;
    SET LOCAL enable_bitmapscan = off;
    PERFORM count(*) FROM transaction_log WHERE scope = '' AND request_id > '';
    PERFORM count(*) FROM pl_log WHERE scope = '' AND request_id > '';
    COMMIT;
    FOR round IN 0..rounds LOOP
        CALL measure(keys, CASE round % 2 WHEN 0 THEN 'ours' ELSE 'PL/pgSQL' END, round);
        CALL measure(keys, CASE round % 2 WHEN 0 THEN 'PL/pgSQL' ELSE 'ours' END, round);
    END LOOP;
END $$;

CREATE PROCEDURE claims(first int, last int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN first..last LOOP
        PERFORM idem_claim('memory ' || i);
        PERFORM idem_finish('memory ' || i);
        COMMIT;
    END LOOP;
END $$;
