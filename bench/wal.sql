-- wal.sql - what bench/wal runs.
CREATE PROCEDURE claim_and_end(engine text, transactions text, tag text, n int) LANGUAGE plpgsql AS $$
DECLARE
    granted bigint;
    key text;
    plain jsonb := '{"item": "A-1", "quantity": 2}';
    answer jsonb := (SELECT body FROM responses WHERE size = 100);
BEGIN
    FOR i IN 1..n LOOP
        key := format('%s %s %s', tag, transactions, i);
        CASE engine
            WHEN 'ours' THEN SELECT token INTO granted FROM idem_claim(key, plain);
            WHEN 'plpgsql' THEN SELECT token INTO granted FROM pl_claim_insert_first(key, plain);
            ELSE INSERT INTO keys (id, request) VALUES (key, plain) ON CONFLICT DO NOTHING;
        END CASE;
        IF transactions = 'two' THEN
            COMMIT;
        END IF;
        CASE engine
            WHEN 'ours' THEN PERFORM idem_finish(key, answer, 200, granted);
            WHEN 'plpgsql' THEN PERFORM pl_finish(key, answer, 200, granted);
            ELSE UPDATE keys SET status = 'completed', code = 200, response = answer, completed_at = now() WHERE scope = '' AND id = key;
        END CASE;
        COMMIT;
    END LOOP;
END $$;
