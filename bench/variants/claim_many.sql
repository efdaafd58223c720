TRUNCATE transaction_log;
SELECT array_agg(gen_random_uuid()::text) AS ids FROM generate_series(1, 20000) \gset
BEGIN;
SELECT extract(epoch FROM clock_timestamp()) * 1000 AS started \gset
SELECT count(*) FROM idem_claim_many(:'ids');
SELECT extract(epoch FROM clock_timestamp()) * 1000 - :started;
ROLLBACK;
