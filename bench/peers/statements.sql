\set claimed 0
BEGIN;
WITH k AS (INSERT INTO keys (id, request) VALUES (:key::text, '{"item": "A-1", "quantity": 2}') ON CONFLICT DO NOTHING RETURNING 1) SELECT count(*) AS claimed FROM k \gset
\if :claimed
INSERT INTO orders (item, quantity) VALUES ('A-1', 2) RETURNING id \gset
UPDATE keys SET status = 'completed', code = 200, response = (SELECT body FROM responses WHERE size = :size), completed_at = now() WHERE scope = '' AND id = :key::text;
\else
SELECT status, request, response FROM keys WHERE scope = '' AND id = :key::text \gset
\endif
COMMIT;
