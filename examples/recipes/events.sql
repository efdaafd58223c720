-- An event store: every event has an id that its producer made, and the state
-- is derived from the events.  An event that comes twice changes it once.
CREATE TABLE event (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id text NOT NULL,
    stream text NOT NULL,
    kind text NOT NULL,
    body jsonb NOT NULL
);
CREATE TABLE cart (stream text, item text, quantity int NOT NULL, PRIMARY KEY (stream, item));

CREATE FUNCTION append(id text, stream text, kind text, body jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT idem_once(id, 'events/' || stream, ttl => '1 year') THEN
        RETURN false;
    END IF;
    INSERT INTO event (event_id, stream, kind, body) VALUES (id, append.stream, append.kind, append.body);
    INSERT INTO cart VALUES (append.stream, body ->> 'item', CASE append.kind WHEN 'added' THEN 1 ELSE -1 END)
    ON CONFLICT ON CONSTRAINT cart_pkey DO UPDATE SET quantity = cart.quantity + excluded.quantity;
    RETURN true;
END $$;

SELECT append('e-1', 'cart-7', 'added', '{"item": "tea"}');
SELECT append('e-2', 'cart-7', 'added', '{"item": "tea"}');
-- Sent again, after an answer that got lost.
SELECT append('e-2', 'cart-7', 'added', '{"item": "tea"}');
SELECT append('e-3', 'cart-7', 'removed', '{"item": "tea"}');
SELECT * FROM cart;

-- What is derived can be derived anew, since the events are exact.
SELECT stream, body ->> 'item' AS item, sum(CASE kind WHEN 'added' THEN 1 ELSE -1 END) AS quantity
  FROM event GROUP BY 1, 2;
