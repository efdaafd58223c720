-- A role that sees what there is to watch and can do nothing else.  Run it as
-- the owner of the extension, with the extension's schema in search_path.
-- Scopes with an owner are shown to it only where it has that role's privileges.
CREATE ROLE idempotency_monitor LOGIN;
SELECT format('GRANT USAGE ON SCHEMA %I TO idempotency_monitor', n.nspname)
  FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
 WHERE e.extname = 'idempotency' \gexec
GRANT SELECT ON idem_stat, idem_in_flight, idem_review, idem_purge_lag
   TO idempotency_monitor;
GRANT EXECUTE ON FUNCTION idem_clock, idem_scope_is_open, idem_review_kind,
	idem_stat_counters, idem_in_flight_claims TO idempotency_monitor;
