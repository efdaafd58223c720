-- size.sql - what a key costs on disk: heap, indexes, WAL.
--
--	psql -v keys=1000000 [-v step=20000] -f bench/size.sql	(in an empty database)
--
-- Every key is claimed and finished in a transaction of its own, as
-- applications do it, with a request and a response of about 100 bytes each,
-- keys of 36 and scopes of 6 characters.
\set ON_ERROR_STOP 1
\set QUIET 1
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
SET synchronous_commit = off;

CREATE PROCEDURE fill(first int, last int) LANGUAGE plpgsql AS $$
DECLARE
	filler text := repeat('x', 60);
BEGIN
	FOR i IN first..last LOOP
		PERFORM idem_claim(md5(i::text) || '-' || (100 + i % 900),
			jsonb_build_object('item', i, 'note', filler), scope => 'orders');
		PERFORM idem_finish(md5(i::text) || '-' || (100 + i % 900),
			jsonb_build_object('order_id', i, 'note', filler), 201, scope => 'orders');
		COMMIT;
	END LOOP;
END
$$;

SELECT pg_current_wal_insert_lsn() AS before \gset
\if :{?step}
\else
\set step :keys
\endif
-- Autovacuum comes now and then, here after every :step keys.
SELECT format('CALL fill(%s, %s)', i, least(i + :step - 1, :keys)), 'VACUUM transaction_log'
  FROM generate_series(1, :keys, :step) i
\gexec
SELECT :keys AS keys,
	pg_table_size('transaction_log') / :keys AS heap_bytes_per_key,
	pg_relation_size('transaction_log_pkey') / :keys AS key_index_bytes_per_key,
	pg_relation_size('transaction_log_due_at_idx') / :keys AS due_index_bytes_per_key,
	pg_total_relation_size('transaction_log') / :keys AS bytes_per_key,
	pg_size_pretty(pg_total_relation_size('transaction_log')) AS in_all,
	round(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), :'before') / :keys) AS wal_bytes_per_key;
DROP PROCEDURE fill;
