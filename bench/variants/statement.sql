\set key random(1, 9000000000000000000)
WITH c AS (INSERT INTO keys (id, request) VALUES (:key::text, '{"item": "tea", "quantity": 2}') ON CONFLICT DO NOTHING RETURNING 1) INSERT INTO orders (item, quantity) SELECT 'tea', 2 FROM c RETURNING id;
