BEGIN;
SELECT pg_advisory_xact_lock(hashtextextended(:key::text, 0));
SELECT count(*) = 0 AS claimed, max(response::text) AS response FROM keys WHERE scope = '' AND id = :key::text \gset
\if :claimed
INSERT INTO orders (item, quantity) VALUES ('A-1', 2) RETURNING id \gset
INSERT INTO keys (id, request, status, code, response, completed_at) VALUES (:key::text, '{"item": "A-1", "quantity": 2}', 'completed', 200, (SELECT body FROM responses WHERE size = :size), now());
\endif
COMMIT;
