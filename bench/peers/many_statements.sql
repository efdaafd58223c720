\set first random(1000000000, 4000000000000000000)
BEGIN;
WITH k AS (INSERT INTO keys (id, request) SELECT (:first::bigint + g)::text, '{"item": "A-1", "quantity": 2}' FROM generate_series(1, :batch::int) g ON CONFLICT DO NOTHING RETURNING 1) SELECT count(*) AS claimed FROM k \gset
INSERT INTO orders (item, quantity) SELECT 'A-1', 2 FROM generate_series(1, :batch::int);
UPDATE keys SET status = 'completed', code = 200, response = (SELECT body FROM responses WHERE size = :size), completed_at = now() WHERE scope = '' AND id = ANY (ARRAY(SELECT (:first::bigint + g)::text FROM generate_series(1, :batch::int) g));
COMMIT;
