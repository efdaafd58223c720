\set first random(1000000000, 4000000000000000000)
BEGIN;
SELECT count(*) AS claimed FROM idem_claim_many(ARRAY(SELECT (:first::bigint + g)::text FROM generate_series(1, :batch::int) g), array_fill('{"item": "A-1", "quantity": 2}'::jsonb, ARRAY[:batch::int])) WHERE outcome = 'claimed' \gset
INSERT INTO orders (item, quantity) SELECT 'A-1', 2 FROM generate_series(1, :batch::int);
SELECT count(*) AS recorded FROM idem_finish_many(ARRAY(SELECT (:first::bigint + g)::text FROM generate_series(1, :batch::int) g), array_fill((SELECT body FROM responses WHERE size = :size), ARRAY[:batch::int])) \gset
COMMIT;
