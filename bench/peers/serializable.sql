BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) = 0 AS claimed, max(response::text) AS response FROM keys WHERE scope = '' AND id = :key::text \gset
\if :claimed
INSERT INTO keys (id, request, recovery_point, locked_at) VALUES (:key::text, '{"item": "A-1", "quantity": 2}', 'started', now());
\endif
COMMIT;
\if :claimed
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO orders (item, quantity) VALUES ('A-1', 2) RETURNING id \gset
UPDATE keys SET status = 'completed', recovery_point = 'finished', locked_at = NULL, code = 200, response = (SELECT body FROM responses WHERE size = :size), completed_at = now() WHERE scope = '' AND id = :key::text;
COMMIT;
\endif
