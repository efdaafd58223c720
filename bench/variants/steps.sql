\set key random(1, 9000000000000000000)
BEGIN;
INSERT INTO keys (id, request) VALUES (:key::text, '{"item": "tea", "quantity": 2}') ON CONFLICT DO NOTHING RETURNING 1;
INSERT INTO orders (item, quantity) VALUES ('tea', 2) RETURNING id AS order_id \gset
UPDATE keys SET status = 'completed', response = jsonb_build_object('order_id', :order_id::bigint), completed_at = now() WHERE scope = '' AND id = :key::text;
COMMIT;
