-- Replays and claims in one session with counting on and off, by turns.
\set ON_ERROR_STOP 1
\set QUIET 1
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
SELECT count(*) >= 0 AS preloaded FROM idem_stat \gset
CREATE TEMP TABLE run (what text, track text, us double precision);

CREATE FUNCTION pg_temp.measure(keys int, run int, track text) RETURNS void
LANGUAGE plpgsql SET synchronous_commit = off AS $$
DECLARE
	began timestamptz;
BEGIN
	PERFORM set_config('idempotency.track', track, true);
	began := clock_timestamp();
	PERFORM count(*) FROM generate_series(1, keys) i,
		idem_claim(run || track || i, scope => 'track');
	INSERT INTO run VALUES ('claim', track,
		extract(epoch FROM clock_timestamp() - began) * 1e6 / keys);
	PERFORM count(*) FROM generate_series(1, keys) i,
		idem_finish(run || track || i, '{"ok": true}', scope => 'track');
	began := clock_timestamp();
	PERFORM count(*) FROM generate_series(1, keys) i,
		idem_claim(run || track || i, scope => 'track');
	INSERT INTO run VALUES ('replay', track,
		extract(epoch FROM clock_timestamp() - began) * 1e6 / keys);
END
$$;

-- Which one goes first changes with every turn; the first turn warms up.
SELECT format('SELECT pg_temp.measure(%s, %s, %L)', :keys, r,
		CASE WHEN (r + t) % 2 = 0 THEN 'on' ELSE 'off' END)
  FROM generate_series(0, :runs) r, generate_series(0, 1) t ORDER BY r, t
\o /dev/null
\gexec
\o
DELETE FROM run WHERE ctid = ANY (ARRAY(SELECT ctid FROM run ORDER BY ctid LIMIT 4));
SELECT what,
	round(percentile_cont(0.5) WITHIN GROUP (ORDER BY us) FILTER (WHERE track = 'on')::numeric, 2) AS on_us,
	round(percentile_cont(0.5) WITHIN GROUP (ORDER BY us) FILTER (WHERE track = 'off')::numeric, 2) AS off_us,
	round((max(us) FILTER (WHERE track = 'off') - min(us) FILTER (WHERE track = 'off'))::numeric, 2) AS spread_of_off_us,
	count(*) / 2 AS runs
  FROM run GROUP BY what ORDER BY what;
