-- peers.sql - what the peers of bench/race work on.
CREATE EXTENSION idempotency;

CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item text NOT NULL,
    quantity int NOT NULL
);

-- A table of keys as it is usually written.
CREATE TABLE keys (
    scope text NOT NULL DEFAULT '',
    id text NOT NULL,
    status text NOT NULL DEFAULT 'processing',
    recovery_point text,
    locked_at timestamptz,
    request jsonb,
    code int,
    response jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    completed_at timestamptz,
    PRIMARY KEY (scope, id)
) WITH (fillfactor = 70);
CREATE INDEX ON keys (created_at);

-- Responses that do not compress to nothing.
CREATE TABLE responses (size int PRIMARY KEY, body jsonb NOT NULL);
INSERT INTO responses
SELECT size, jsonb_build_object('text', (SELECT left(string_agg(md5(i::text), ''), size - 12) FROM generate_series(1, size / 32 + 1) i))
  FROM unnest(ARRAY[100, 10000, 1000000]) size;

-- A handler for each of them.
SELECT format('CREATE FUNCTION place_%s(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO orders (item, quantity) VALUES (body ->> ''item'', (body ->> ''quantity'')::int);
    RETURN (SELECT r.body FROM responses r WHERE r.size = %1$s);
END $$', size) FROM responses
\gexec

\ir plpgsql.sql

-- Makes n keys known to each peer, finished with a response of a size.
CREATE PROCEDURE know(n int, size int) LANGUAGE plpgsql AS $$
DECLARE
    plain jsonb := '{"item": "A-1", "quantity": 2}';
    answer jsonb := (SELECT r.body FROM responses r WHERE r.size = know.size);
BEGIN
    TRUNCATE transaction_log, keys, pl_log;
    FOR i IN 1..n LOOP
        PERFORM idem_claim(i::text, plain);
        PERFORM idem_finish(i::text, answer, 200);
        PERFORM pl_claim_insert_first(i::text, plain);
        PERFORM pl_finish(i::text, answer, 200);
        INSERT INTO keys (id, request) VALUES (i::text, plain);
        UPDATE keys k SET status = 'completed', code = 200, response = answer, completed_at = now() WHERE k.scope = '' AND k.id = i::text;
        COMMIT;
    END LOOP;
END $$;
