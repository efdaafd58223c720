-- growth.sql - what bench/growth runs.

-- Finished keys in both logs, as their engines leave them.
CREATE PROCEDURE grow(first int, last int) LANGUAGE plpgsql AS $$
DECLARE
    body jsonb := '{"item": "A-1", "quantity": 2}';
    response jsonb := to_jsonb(repeat('x', 90));
    model transaction_log;
    pl_model pl_log;
BEGIN
    PERFORM idem_claim('model', body), idem_finish('model', response, 200);
    PERFORM pl_claim_insert_first('model', body), pl_finish('model', response, 200);
    COMMIT;
    SELECT * INTO model FROM transaction_log WHERE request_id = 'model';
    SELECT * INTO pl_model FROM pl_log WHERE request_id = 'model';
    DELETE FROM transaction_log WHERE request_id = 'model';
    DELETE FROM pl_log WHERE request_id = 'model';
    INSERT INTO transaction_log
    SELECT (m).* FROM (SELECT jsonb_populate_record(model, jsonb_build_object('request_id', md5(i::text))) AS m
                         FROM generate_series(first, last) i OFFSET 0) s;
    INSERT INTO pl_log
    SELECT (m).* FROM (SELECT jsonb_populate_record(pl_model, jsonb_build_object('request_id', md5(i::text))) AS m
                         FROM generate_series(first, last) i OFFSET 0) s;
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
CREATE PROCEDURE measure(keys int, round int) LANGUAGE plpgsql AS $$
DECLARE
    new_keys text := 'SELECT count(r) FROM (SELECT %s AS r FROM (SELECT md5(''%s '' || $2 || '' '' || $3 || '' '' || i) AS k FROM generate_series(1, $1) i OFFSET 0) i) s';
    old_keys text := 'SELECT count(r) FROM (SELECT %s AS r FROM (SELECT md5((1 + (i * 7919 + $3 * 104729) %% $2)::text) AS k FROM generate_series(1, $1) i OFFSET 0) i) s';
    body text := quote_literal('{"item": "A-1", "quantity": 2}');
BEGIN
    CALL take(keys, 'claim new', 'ours', round, 2000, format(new_keys, format('idem_claim(k, %s)', body), 'new'));
    CALL take(keys, 'claim new', 'PL/pgSQL', round, 2000, format(new_keys, format('pl_claim_insert_first(k, %s)', body), 'new'));
    CALL take(keys, 'replay', 'ours', round, 4000, format(old_keys, format('idem_claim(k, %s)', body)));
    CALL take(keys, 'replay', 'PL/pgSQL', round, 4000, format(old_keys, format('pl_claim_select_first(k, %s)', body)));
END $$;

CREATE PROCEDURE claims(first int, last int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN first..last LOOP
        PERFORM idem_claim('memory ' || i), idem_finish('memory ' || i);
        COMMIT;
    END LOOP;
END $$;
