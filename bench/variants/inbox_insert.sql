TRUNCATE plain_inbox;
SELECT array_agg(gen_random_uuid()::text) AS ids FROM generate_series(1, 20000) \gset
BEGIN;
SELECT extract(epoch FROM clock_timestamp()) * 1000 AS started \gset
INSERT INTO plain_inbox SELECT now(), now() + '15 days', '', id FROM unnest(:'ids'::text[]) id ON CONFLICT DO NOTHING;
SELECT extract(epoch FROM clock_timestamp()) * 1000 - :started;
ROLLBACK;
