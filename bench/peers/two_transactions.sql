SELECT outcome = 'claimed' AS claimed, token, response_body AS response FROM idem_claim(:key::text, '{"item": "A-1", "quantity": 2}') \gset
\if :claimed
BEGIN;
INSERT INTO orders (item, quantity) VALUES ('A-1', 2) RETURNING id \gset
SELECT idem_finish(:key::text, (SELECT body FROM responses WHERE size = :size), 200, :token);
COMMIT;
\endif
