TRUNCATE transaction_log;
SELECT array_agg(gen_random_uuid()::text) AS ids, array_agg('{"order_id": 7}'::jsonb) AS bodies FROM generate_series(1, 20000) \gset
BEGIN;
SELECT count(*) FROM idem_claim_many(:'ids');
SELECT extract(epoch FROM clock_timestamp()) * 1000 AS started \gset
SELECT count(*) FROM idem_finish_many(:'ids', :'bodies');
SELECT extract(epoch FROM clock_timestamp()) * 1000 - :started;
ROLLBACK;
