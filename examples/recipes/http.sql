-- An HTTP endpoint in PL/pgSQL: one function that takes the Idempotency-Key and
-- the body of a POST, and answers with status, headers and body.
CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY, item text NOT NULL);

CREATE FUNCTION seconds(i interval) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT greatest(ceil(extract(epoch FROM i)), 1)::int::text $$;

CREATE FUNCTION post_order(tenant text, key text, body jsonb, OUT code int, OUT headers jsonb, OUT response jsonb)
LANGUAGE plpgsql AS $$
DECLARE
    claim record;
    order_id int;
BEGIN
    headers := '{}';
    IF COALESCE(key, '') = '' OR length(key) > 255 THEN
        code := 400;
        response := '{"error": "a header Idempotency-Key of 1 to 255 characters is required"}';
        RETURN;
    END IF;

    SELECT * INTO claim FROM idem_claim(key, body, scope => tenant || '/orders');
    CASE claim.outcome
        WHEN 'claimed' THEN
            -- A client's mistake is not a result: the same key may be corrected.
            IF body ->> 'item' IS NULL THEN
                PERFORM idem_release(key, scope => tenant || '/orders');
                code := 400;
                response := '{"error": "item is missing"}';
                RETURN;
            END IF;
            INSERT INTO orders (item) VALUES (body ->> 'item') RETURNING id INTO order_id;
            code := 201;
            headers := jsonb_build_object('Location', '/orders/' || order_id);
            response := jsonb_build_object('order_id', order_id);
            PERFORM idem_finish(key, response, code, scope => tenant || '/orders', response_headers => headers);
        WHEN 'replay' THEN
            code := claim.response_code;
            headers := claim.response_headers || '{"Idempotency-Replayed": "true"}';
            response := claim.response_body;
        WHEN 'in_progress' THEN
            code := CASE WHEN claim.status = 'failed' THEN 503 ELSE 409 END;
            headers := jsonb_build_object('Retry-After', seconds(COALESCE(claim.retry_after, '1 second')));
            response := '{"error": "the request is in progress"}';
        WHEN 'mismatch' THEN
            code := 422;
            response := jsonb_build_object('error', 'the key was used for another request', 'differs', claim.differs);
        WHEN 'unknown' THEN
            code := 409;
            response := '{"error": "the outcome is unknown, a person has been asked"}';
    END CASE;
END $$;

SELECT * FROM post_order('acme', 'k-1', '{"item": "tea"}');
SELECT * FROM post_order('acme', 'k-1', '{"item": "tea"}');
SELECT * FROM post_order('acme', 'k-1', '{"item": "cup"}');
SELECT * FROM post_order('acme', NULL, '{"item": "tea"}');
SELECT * FROM post_order('acme', 'k-2', '{"itme": "tea"}');
SELECT * FROM post_order('acme', 'k-2', '{"item": "tea"}');
-- Another tenant's key of the same name is another key.
SELECT * FROM post_order('other', 'k-1', '{"item": "pot"}');
-- Somebody is at it; or it failed, and its retry time is still ahead.
SELECT outcome FROM idem_claim('k-3', scope => 'acme/orders', lease => '30 seconds');
SELECT code, (headers ->> 'Retry-After')::int BETWEEN 1 AND 30 AS come_back, response FROM post_order('acme', 'k-3', '{"item": "tea"}');
SELECT token FROM idem_claim('k-4', scope => 'acme/orders') \gset
SELECT idem_fail('k-4', token => :token, scope => 'acme/orders', retry_after => '1 minute');
SELECT code, (headers ->> 'Retry-After')::int BETWEEN 50 AND 60 AS come_back, response FROM post_order('acme', 'k-4', '{"item": "tea"}');
SELECT * FROM orders ORDER BY id;
