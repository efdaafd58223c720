BEGIN;
SELECT outcome = 'claimed' AS claimed, response_body AS response FROM pl_claim_insert_first(:key::text, '{"item": "A-1", "quantity": 2}') \gset
\if :claimed
INSERT INTO orders (item, quantity) VALUES ('A-1', 2) RETURNING id \gset
SELECT pl_finish(:key::text, (SELECT body FROM responses WHERE size = :size), 200);
\endif
COMMIT;
