-- What guards cost, as ratios.
--
--	psql -X -q -f bench/guards.sql [-v calls=5000] [-v rounds=9]
--
-- Makes a schema of its own in a database that has the extension (in public or
-- wherever search_path finds it), and drops it in the end.  Every variant makes the same changes to rows of a small table
-- by statements prepared in PL/pgSQL, in one session; rounds of the variants
-- take turns, and what counts is the median round.  Nothing here waits for
-- the disk, so that the cost of the server's own work shows.

\set ON_ERROR_STOP on
\if :{?calls}
\else
\set calls 5000
\endif
\if :{?rounds}
\else
\set rounds 9
\endif
SET client_min_messages = warning;
SET synchronous_commit = off;
SET plan_cache_mode = force_generic_plan;
DROP SCHEMA IF EXISTS guards_bench CASCADE;
CREATE SCHEMA guards_bench;
SELECT set_config('search_path', 'guards_bench, ' || current_setting('search_path'), false) \g /dev/null

SELECT idem_machine('guards_bench', ARRAY['a'], ARRAY['a->b', 'b->c', 'c->a']) \g /dev/null

-- the tables: bare, guarded, and the same rule written in PL/pgSQL
CREATE TABLE bare (id int PRIMARY KEY, state text NOT NULL DEFAULT 'a', note int, version int DEFAULT 1) WITH (fillfactor = 30);
CREATE TABLE guarded (LIKE bare INCLUDING ALL) WITH (fillfactor = 30);
CREATE TABLE recorded (LIKE bare INCLUDING ALL) WITH (fillfactor = 30);
CREATE TABLE versioned (LIKE bare INCLUDING ALL) WITH (fillfactor = 30);
CREATE TABLE plpgsql_guarded (LIKE bare INCLUDING ALL) WITH (fillfactor = 30);
CREATE TABLE plpgsql_recorded (LIKE bare INCLUDING ALL) WITH (fillfactor = 30);
CREATE TABLE plpgsql_versioned (LIKE bare INCLUDING ALL) WITH (fillfactor = 30);

SELECT idem_guard_state('guarded', 'state', 'guards_bench'), idem_guard_state('recorded', 'state', 'guards_bench', true),
       idem_guard_version('versioned') \g /dev/null

CREATE TABLE step (from_state text, to_state text, PRIMARY KEY (from_state, to_state));
INSERT INTO step VALUES ('a', 'b'), ('b', 'c'), ('c', 'a');
CREATE TABLE history (target text, key text, changed_at timestamptz, changed_by text, machine text, from_state text, to_state text);
CREATE INDEX ON history (target, key, changed_at);
CREATE FUNCTION check_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM step WHERE from_state = OLD.state AND to_state = NEW.state) THEN
        RAISE EXCEPTION 'illegal step from % to %', OLD.state, NEW.state;
    END IF;
    IF TG_NARGS > 0 THEN
        INSERT INTO history VALUES (TG_TABLE_NAME, NEW.id::text, clock_timestamp(), current_user, 'guards_bench', OLD.state, NEW.state);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER t AFTER UPDATE ON plpgsql_guarded FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION check_step();
CREATE TRIGGER t AFTER UPDATE ON plpgsql_recorded FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION check_step('history');
CREATE FUNCTION next_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.version NOT IN (OLD.version, OLD.version + 1) THEN
        RAISE EXCEPTION 'stale version %', NEW.version;
    END IF;
    NEW.version := OLD.version + 1;
    RETURN NEW;
END $$;
CREATE TRIGGER t BEFORE UPDATE ON plpgsql_versioned FOR EACH ROW EXECUTE FUNCTION next_version();
-- like the guard, against BEFORE triggers that fire later
CREATE FUNCTION check_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'stale version %', NEW.version; END $$;
CREATE TRIGGER u AFTER UPDATE ON plpgsql_versioned FOR EACH ROW
    WHEN (NEW.version IS DISTINCT FROM OLD.version + 1) EXECUTE FUNCTION check_version();

CREATE TABLE variant (name text PRIMARY KEY, target text, body text);
INSERT INTO variant VALUES
    ('step, unguarded', 'bare', $$UPDATE bare SET state = nxt WHERE id = i$$),
    ('step, state guard', 'guarded', $$UPDATE guarded SET state = nxt WHERE id = i$$),
    ('step, PL/pgSQL rule', 'plpgsql_guarded', $$UPDATE plpgsql_guarded SET state = nxt WHERE id = i$$),
    ('step, state guard with history', 'recorded', $$UPDATE recorded SET state = nxt WHERE id = i$$),
    ('step, PL/pgSQL rule with history', 'plpgsql_recorded', $$UPDATE plpgsql_recorded SET state = nxt WHERE id = i$$),
    ('other column, unguarded', 'bare', $$UPDATE bare SET note = n WHERE id = i$$),
    ('other column, state guard', 'guarded', $$UPDATE guarded SET note = n WHERE id = i$$),
    ('other column, version guard', 'versioned', $$UPDATE versioned SET note = n WHERE id = i$$),
    ('other column, PL/pgSQL version', 'plpgsql_versioned', $$UPDATE plpgsql_versioned SET note = n WHERE id = i$$),
    ('conditional step by hand, state guard', 'guarded', $$UPDATE guarded SET state = nxt WHERE id = i AND state = cur RETURNING state INTO answer$$),
    ('idem_transition, state guard', 'guarded', $$SELECT outcome INTO answer FROM idem_transition('guarded', i::text, nxt)$$),
    ('repeat by hand: update, then read', 'guarded', $$UPDATE guarded SET state = 'a' WHERE id = i AND state = 'c'; SELECT state INTO answer FROM guarded WHERE id = i$$),
    ('idem_transition, a repeat', 'guarded', $$SELECT outcome INTO answer FROM idem_transition('guarded', i::text, 'a')$$),
    ('conditional update by hand, version guard', 'versioned', $$UPDATE versioned SET note = n WHERE id = i AND version = v RETURNING version INTO answer$$),
    ('idem_update, version guard', 'versioned', $$SELECT outcome INTO answer FROM idem_update('versioned', i::text, v, jsonb_build_object('note', n))$$);

DO $do$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT * FROM variant LOOP
        EXECUTE format($f$
            CREATE FUNCTION %I(calls int) RETURNS float8 LANGUAGE plpgsql AS $b$
            DECLARE
                i int; v int := 1; answer text; started timestamptz := clock_timestamp();
                states text[] := '{a,b,c}'; cur text; nxt text;
            BEGIN
                FOR n IN 0 .. calls - 1 LOOP
                    i := n %% 100 + 1;
                    v := n / 100 + 1;
                    cur := states[(n / 100) %% 3 + 1];
                    nxt := states[(n / 100 + 1) %% 3 + 1];
                    %s;
                END LOOP;
                RETURN extract(epoch FROM clock_timestamp() - started) * 1e6 / calls;
            END $b$ $f$, 'run ' || r.name, r.body);
    END LOOP;
END $do$;

CREATE TABLE measure (name text, us float8);
CREATE PROCEDURE run_all(calls int, rounds int) LANGUAGE plpgsql AS $$
DECLARE
    r record;
    us float8;
BEGIN
    FOR round IN 0 .. rounds LOOP
        FOR r IN SELECT * FROM variant LOOP
            -- every run begins with the same fresh rows
            EXECUTE format('TRUNCATE %I', r.target);
            EXECUTE format('INSERT INTO %I (id) SELECT generate_series(1, 100)', r.target);
            COMMIT;
            EXECUTE format('SELECT %I($1)', 'run ' || r.name) INTO us USING calls;
            COMMIT;
            -- the first round only warms up
            IF round > 0 THEN
                INSERT INTO measure VALUES (r.name, us);
            END IF;
        END LOOP;
    END LOOP;
END $$;
CALL run_all(:calls, :rounds);

WITH m AS (SELECT name, percentile_cont(0.5) WITHIN GROUP (ORDER BY us) AS us FROM measure GROUP BY name),
pair (n, what, base) AS (VALUES
    (1, 'step, state guard', 'step, unguarded'),
    (2, 'step, PL/pgSQL rule', 'step, unguarded'),
    (3, 'step, state guard with history', 'step, unguarded'),
    (4, 'step, PL/pgSQL rule with history', 'step, unguarded'),
    (5, 'other column, state guard', 'other column, unguarded'),
    (6, 'other column, version guard', 'other column, unguarded'),
    (7, 'other column, PL/pgSQL version', 'other column, unguarded'),
    (8, 'idem_transition, state guard', 'conditional step by hand, state guard'),
    (9, 'idem_transition, a repeat', 'repeat by hand: update, then read'),
    (10, 'idem_update, version guard', 'conditional update by hand, version guard'))
SELECT what, base AS "against", round((a.us / b.us)::numeric, 2) AS ratio, round(a.us::numeric, 1) AS us, round(b.us::numeric, 1) AS base_us
FROM pair JOIN m a ON a.name = what JOIN m b ON b.name = base ORDER BY n;

DROP SCHEMA guards_bench CASCADE;
DELETE FROM idempotency_machine WHERE machine = 'guards_bench';
DELETE FROM idempotency_machine_history WHERE machine = 'guards_bench';
