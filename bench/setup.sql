-- What the variants work on.
CREATE EXTENSION idempotency;

-- The business, and its handler.
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL, quantity int NOT NULL);

CREATE FUNCTION place(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    order_id bigint;
BEGIN
    INSERT INTO orders (item, quantity) VALUES (body ->> 'item', (body ->> 'quantity')::int)
    RETURNING id INTO order_id;
    RETURN jsonb_build_object('order_id', order_id);
END $$;

-- The same by hand: a table of keys as it is usually written.
CREATE TABLE keys (
    scope text NOT NULL DEFAULT '',
    id text NOT NULL,
    status text NOT NULL DEFAULT 'processing',
    request jsonb,
    response jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    completed_at timestamptz,
    PRIMARY KEY (scope, id)
) WITH (fillfactor = 70);
CREATE INDEX ON keys (created_at);

CREATE FUNCTION place_once(key text, body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    order_id bigint;
    result jsonb;
BEGIN
    INSERT INTO keys (id, request) VALUES (key, body) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        SELECT response INTO result FROM keys WHERE scope = '' AND id = key;
        RETURN result;
    END IF;
    INSERT INTO orders (item, quantity) VALUES (body ->> 'item', (body ->> 'quantity')::int)
    RETURNING id INTO order_id;
    result := jsonb_build_object('order_id', order_id);
    UPDATE keys SET status = 'completed', response = result, completed_at = now()
     WHERE scope = '' AND id = key;
    RETURN result;
END $$;

-- For the batches: tables of the same form as the extension's.
CREATE TABLE plain_log (LIKE transaction_log INCLUDING ALL) WITH (fillfactor = 70);
CREATE TABLE plain_inbox (LIKE idempotency_inbox INCLUDING ALL);
