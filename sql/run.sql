-- One trip: claim, handler and finish in one call.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
\getenv srcdir PG_ABS_SRCDIR
\set helpers :srcdir /sql/helpers.psql
\set ECHO none
\i :helpers
\set ECHO all
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id int GENERATED ALWAYS AS IDENTITY, item text);
CREATE FUNCTION shop.place(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    order_id int;
BEGIN
    INSERT INTO shop.orders (item) VALUES (body ->> 'item') RETURNING id INTO order_id;
    RETURN jsonb_build_object('order_id', order_id);
END $$;

-- carried out once, replayed ever after
SELECT outcome, token, attempt, status, response_code, response_headers, response_body, response_bytes, checkpoints, retry_after, differs,
       created_at <= clock_timestamp() AS created, expires_at > clock_timestamp() AS lasts
  FROM idem_run('run-1', '{"item": "tea"}', 'shop.place', scope => 'run') \gx
SELECT outcome, token, attempt, status, response_code, response_body, retry_after, created_at < expires_at AS lasts
  FROM idem_run('run-1', '{ "item" : "tea" }', 'shop.place(jsonb)', scope => 'run');
SELECT (idem_run('run-1', '{"item": "tea"}', 'shop.place', scope => 'run')).response_body;
SELECT count(*) FROM shop.orders;
SELECT status, attempt, response_body, expires_at - completed_at AS ttl FROM idem_lookup('run-1', 'run');
-- ttl and fingerprint are those of a claim
SELECT outcome FROM idem_run('run-2', '{"item": "tea"}', 'shop.place', scope => 'run', ttl => '1 hour', fingerprint => '\x01');
SELECT expires_at - completed_at AS ttl FROM idem_lookup('run-2', 'run');
SELECT outcome FROM idem_run('run-2', '{"item": "cup"}', 'shop.place', scope => 'run', fingerprint => '\x01');
-- what a claim began, by another way, is continued as its next attempt
SET idempotency.test_clock = '2030-01-01 12:00:00+00';
SELECT outcome FROM idem_claim('run-3', '{"item": "pot"}', scope => 'run');
SET idempotency.test_clock = '2030-01-01 12:02:00+00';
SELECT outcome, attempt FROM idem_run('run-3', '{"item": "pot"}', 'shop.place', scope => 'run');
RESET idempotency.test_clock;
-- a replay needs no transaction id and may be read-only; a new key may not
BEGIN READ ONLY;
SELECT outcome FROM idem_run('run-1', '{"item": "tea"}', 'shop.place', scope => 'run');
SELECT pg_current_xact_id_if_assigned() IS NULL AS wrote_nothing;
SELECT probe.sqlstate($$SELECT idem_run('run-new', '{}', 'shop.place', scope => 'run')$$);
COMMIT;

-- every kind of result comes back as it was
CREATE FUNCTION shop.echo(body jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT body';
SELECT b, r.outcome, r.response_body, r.response_body IS NULL AS is_null
  FROM unnest(ARRAY['0', 'false', '""', '[]', '{}', 'null', NULL]::jsonb[]) WITH ORDINALITY AS u (b, n),
       idem_run('echo-' || n, b, 'shop.echo', scope => 'run') r ORDER BY n;
SELECT b, r.outcome, r.response_body IS NOT DISTINCT FROM b AS same
  FROM unnest(ARRAY['0', 'false', '""', '[]', '{}', 'null', NULL]::jsonb[]) WITH ORDINALITY AS u (b, n),
       idem_run('echo-' || n, b, 'shop.echo', scope => 'run') r ORDER BY n;
-- STRICT is not called without a body
CREATE FUNCTION shop.strict(body jsonb) RETURNS jsonb LANGUAGE plpgsql STRICT AS $$ BEGIN RAISE 'called'; END $$;
SELECT outcome, status, response_body FROM idem_run('strict-1', NULL, 'shop.strict', scope => 'run');
SELECT probe.raises($$SELECT idem_run('strict-2', '{}', 'shop.strict', scope => 'run')$$);
-- a result as large as it likes, also one that is stored elsewhere
CREATE TABLE shop.large AS SELECT jsonb_agg(md5(g::text)) AS body FROM generate_series(1, 2000) g;
CREATE FUNCTION shop.fetch(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    result jsonb;
BEGIN
    SELECT l.body INTO result FROM shop.large l;
    RETURN result;
END $$;
SELECT r.response_body = l.body AS same FROM shop.large l, idem_run('large', NULL, 'shop.fetch', scope => 'run') r;
CREATE TEMP TABLE kept AS SELECT body FROM shop.large;
DROP TABLE shop.large;
SELECT r.outcome, r.response_body = l.body AS same FROM kept l, idem_run('large', NULL, 'shop.fetch', scope => 'run') r;

-- a handler that raises: nothing is left, the same key can run again
CREATE FUNCTION shop.fails(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO shop.orders (item) VALUES ('of a failure');
    RAISE EXCEPTION 'no % left', body ->> 'item' USING ERRCODE = 'P4040';
END $$;
SELECT probe.raises($$SELECT idem_run('fail-1', '{"item": "tea"}', 'shop.fails', scope => 'run')$$);
SELECT count(*) FROM idem_lookup('fail-1', 'run');
SELECT outcome, attempt FROM idem_run('fail-1', '{"item": "tea"}', 'shop.place', scope => 'run');
-- or its failure is the result
SELECT outcome, status, attempt, response_body, expires_at > created_at AS lasts
  FROM idem_run('fail-2', '{"item": "tea"}', 'shop.fails', scope => 'run', on_error => 'record');
SELECT outcome, status, response_body FROM idem_run('fail-2', '{"item": "tea"}', 'shop.fails', scope => 'run');
SELECT outcome, status, response_body FROM idem_claim('fail-2', scope => 'run');
SELECT count(*) AS of_failures FROM shop.orders WHERE item = 'of a failure';
SELECT outcome, response_body FROM idem_run('fail-3', '{"item": "jar"}', 'shop.place', scope => 'run', on_error => 'record');
SELECT count(*) AS of_successes FROM shop.orders WHERE item = 'jar';
SELECT probe.raises($$SELECT idem_run('fail-4', '{}', 'shop.place', scope => 'run', on_error => 'ignore')$$);
SELECT probe.raises($$SELECT idem_run('fail-4', '{}', 'shop.place', scope => 'run', on_error => NULL)$$);
-- errors that say nothing about the request are never its result
CREATE FUNCTION shop.raises(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'told to' USING ERRCODE = body ->> 0;
END $$;
CREATE FUNCTION shop.sqlstate(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN '00000';
EXCEPTION WHEN query_canceled OR OTHERS THEN
    RETURN SQLSTATE;
END $$;
SELECT code,
       shop.sqlstate(format('SELECT idem_run(%L, %L, ''shop.raises'', scope => ''run'', on_error => ''record'')',
                             'code-' || code, jsonb_build_array(code))) AS raised,
       (SELECT status FROM idem_lookup('code-' || code, 'run')) AS stored
  FROM unnest(ARRAY['40001', '40P01', '40003', '53000', '53100', '53200', '57000', '57014', '57P01', '58000', '58030', 'XX000', 'XX001',
                    '55P03', 'ID005', '55000', '23505', '22012', 'P0001', '25006']) code;
-- a real cancel, twice
CREATE FUNCTION shop.sleeps(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN '1'; END $$;
SET statement_timeout = '50ms';
\set VERBOSITY sqlstate
SELECT idem_run('slow', NULL, 'shop.sleeps', scope => 'run', on_error => 'record');
RESET statement_timeout;
CREATE FUNCTION shop.cancels(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(60); RETURN '1'; END $$;
SELECT idem_run('slow', NULL, 'shop.cancels', scope => 'run', on_error => 'record');
\set VERBOSITY default
SELECT count(*) AS none FROM idem_lookup('slow', 'run');
-- with record, the transaction goes on
BEGIN;
SELECT status FROM idem_run('fail-5', '{"item": "tea"}', 'shop.fails', scope => 'run', on_error => 'record');
INSERT INTO shop.orders (item) VALUES ('afterwards');
COMMIT;
SELECT count(*) FROM shop.orders WHERE item = 'afterwards';

-- a handler that ends the request itself wins
CREATE FUNCTION shop.finishes(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_finish(c.request_id, '{"mine": true}', 201, scope => c.scope, response_headers => '[["Location", "/orders/1"], ["A", "b"]]', response_bytes => '\x00ff')
       FROM idem_current() c;
    RETURN '{"mine": false}';
END $$;
SELECT outcome, status, response_code, response_headers, response_body, response_bytes FROM idem_run('own-1', NULL, 'shop.finishes', scope => 'run');
SELECT outcome, status, response_code, response_headers, response_body, response_bytes FROM idem_run('own-1', NULL, 'shop.finishes', scope => 'run');
SELECT outcome, response_code FROM idem_run('own-2', NULL, 'shop.finishes', scope => 'run', on_error => 'record');
-- with the token as well
CREATE FUNCTION shop.finishes_by_token(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_finish(c.request_id, '"by token"', token => c.token, scope => c.scope) FROM idem_current() c;
    RETURN NULL;
END $$;
SELECT outcome, response_body FROM idem_run('own-3', NULL, 'shop.finishes_by_token', scope => 'run');
-- so does one that fails it: for good, or to be retried
CREATE FUNCTION shop.gives_up(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_fail(c.request_id, '{"reason": "sold out"}', 409, scope => c.scope, final => (body ->> 'final')::boolean, retry_after => '1 hour')
       FROM idem_current() c;
    RETURN '{"mine": false}';
END $$;
SELECT outcome, status, response_code, response_body FROM idem_run('own-4', '{"final": true}', 'shop.gives_up', scope => 'run');
SELECT outcome, status, response_code, response_body FROM idem_run('own-4', '{"final": true}', 'shop.gives_up', scope => 'run');
SELECT outcome, status, response_code, response_body FROM idem_run('own-5', '{"final": false}', 'shop.gives_up', scope => 'run');
SELECT outcome, status, retry_after > '59 min' AS later FROM idem_claim('own-5', scope => 'run');
-- one that renews its lease or records a step still holds the claim
CREATE FUNCTION shop.extends(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_extend(c.request_id, '1 hour', scope => c.scope) FROM idem_current() c;
    PERFORM idem_checkpoint(c.request_id, 'one', '1', scope => c.scope) FROM idem_current() c;
    RETURN '"extended"';
END $$;
SELECT outcome, status, response_body FROM idem_run('own-6', NULL, 'shop.extends', scope => 'run');
-- one that ends it and then fails has not ended it
CREATE FUNCTION shop.ends_and_fails(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_finish(c.request_id, '"done"', scope => c.scope) FROM idem_current() c;
    RAISE 'after all not';
END $$;
SELECT outcome, status, response_body FROM idem_run('own-7', NULL, 'shop.ends_and_fails', scope => 'run', on_error => 'record');
-- one that gives the claim back has nothing to answer; its writes are undone
CREATE FUNCTION shop.releases(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO shop.orders (item) VALUES ('of a release');
    PERFORM idem_release(c.request_id, scope => c.scope) FROM idem_current() c;
    RETURN '1';
END $$;
SELECT probe.raises($$SELECT idem_run('own-8', NULL, 'shop.releases', scope => 'run')$$);
SELECT token FROM idem_claim('own-9', scope => 'run') \gset
SELECT idem_fail('own-9', '"first failure"', token => :token, scope => 'run', retry_after => '0');
SELECT probe.raises($$SELECT idem_run('own-9', NULL, 'shop.releases', scope => 'run')$$);
CREATE FUNCTION shop.claims_again(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_release(c.request_id, scope => c.scope), idem_claim(c.request_id, scope => c.scope) FROM idem_current() c;
    RETURN '1';
END $$;
SELECT probe.raises($$SELECT idem_run('own-8', NULL, 'shop.claims_again', scope => 'run')$$);
SELECT count(*) AS of_releases FROM shop.orders WHERE item = 'of a release';
-- one that undoes its own end in a savepoint still has to be ended
CREATE FUNCTION shop.undoes(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM idem_finish(c.request_id, '"undone"', scope => c.scope) FROM idem_current() c;
        RAISE 'undo';
    EXCEPTION WHEN raise_exception THEN
    END;
    RETURN '"counts"';
END $$;
SELECT outcome, response_body FROM idem_run('own-10', NULL, 'shop.undoes', scope => 'run');

-- other requests within a handler
CREATE FUNCTION shop.nests(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    seen text[];
    inner_row record;
BEGIN
    seen := seen || (SELECT request_id || ' ' || attempt FROM idem_current());
    SELECT * INTO inner_row FROM idem_run(body ->> 'key', body -> 'body', body ->> 'handler', scope => 'run');
    seen := seen || (SELECT request_id || ' ' || attempt FROM idem_current());
    RETURN jsonb_build_object('seen', seen, 'inner', inner_row.response_body);
EXCEPTION WHEN OTHERS THEN
    seen := seen || (SELECT request_id || ' ' || attempt FROM idem_current());
    RETURN jsonb_build_object('seen', seen, 'caught', SQLSTATE);
END $$;
SELECT outcome, response_body FROM idem_run('nest-1', '{"key": "nest-2", "handler": "shop.echo", "body": [1]}', 'shop.nests', scope => 'run');
SELECT outcome, response_body FROM idem_claim('nest-2', scope => 'run');
SELECT outcome, response_body FROM idem_run('nest-3', '{"key": "nest-4", "handler": "shop.fails", "body": {}}', 'shop.nests', scope => 'run');
SELECT count(*) AS none FROM idem_lookup('nest-4', 'run');
SELECT outcome, response_body
  FROM idem_run('nest-5', '{"key": "nest-6", "handler": "shop.nests", "body": {"key": "nest-7", "handler": "shop.fails", "body": {}}}', 'shop.nests', scope => 'run');
-- of the very same request: an error at once, caught here
SELECT outcome, response_body FROM idem_run('nest-8', '{"key": "nest-8", "handler": "shop.echo"}', 'shop.nests', scope => 'run');
CREATE FUNCTION shop.runs_itself(body jsonb) RETURNS jsonb LANGUAGE sql AS
$$ SELECT response_body FROM idem_run('self', NULL, 'shop.runs_itself', scope => 'run', wait => '1 hour') $$;
SELECT probe.raises($$SELECT idem_run('self', NULL, 'shop.runs_itself', scope => 'run')$$);
-- a claim of another key, left open, is the handler's own business
CREATE FUNCTION shop.claims(body jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(outcome) FROM idem_claim('claimed-inside', scope => 'run') $$;
SELECT outcome, response_body FROM idem_run('nest-9', NULL, 'shop.claims', scope => 'run');
SELECT outcome FROM idem_claim('claimed-inside', scope => 'run');
-- several in one statement
SELECT n, outcome, response_body FROM generate_series(1, 3) n, idem_run('n-' || n % 2, to_jsonb(n % 2), 'shop.echo', scope => 'run') ORDER BY n;

-- outside of a handler there is no current claim, also after errors
SELECT count(*) FROM idem_current();
SELECT probe.sqlstate($$SELECT idem_run('fail-9', '{}', 'shop.fails', scope => 'run')$$);
SELECT count(*) FROM idem_current();
SELECT status FROM idem_run('fail-10', '{}', 'shop.fails', scope => 'run', on_error => 'record');
SELECT count(*) FROM idem_current();
CREATE FUNCTION shop.current(body jsonb) RETURNS jsonb LANGUAGE sql AS
$$ SELECT to_jsonb(c) - 'token' || jsonb_build_object('has_token', token > 0) FROM idem_current() c $$;
SELECT response_body FROM idem_run('current', NULL, 'shop.current', scope => 'run');
-- checkpoints of earlier attempts are there
SET idempotency.test_clock = '2030-01-01 12:00:00+00';
BEGIN;
SELECT outcome FROM idem_claim('steps', scope => 'run');
SELECT idem_checkpoint('steps', 'paid', '{"ref": 1}', scope => 'run');
COMMIT;
SET idempotency.test_clock = '2030-01-01 13:00:00+00';
SELECT response_body FROM idem_run('steps', NULL, 'shop.current', scope => 'run');
RESET idempotency.test_clock;

-- a handler that is not VOLATILE sees what its own transaction wrote before
CREATE FUNCTION shop.counts(body jsonb) RETURNS jsonb LANGUAGE sql STABLE AS
$$ SELECT to_jsonb(count(*)) FROM shop.orders WHERE item = 'just now' $$;
CREATE FUNCTION shop.looks_up(body jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE AS
$$ BEGIN RETURN (SELECT to_jsonb(count(*)) FROM shop.orders WHERE item = 'just now'); END $$;
BEGIN;
INSERT INTO shop.orders (item) VALUES ('just now');
SELECT response_body FROM idem_run('stable-1', NULL, 'shop.counts', scope => 'run');
SELECT response_body FROM idem_run('stable-2', NULL, 'shop.looks_up', scope => 'run');
WITH i AS (INSERT INTO shop.orders (item) VALUES ('just now') RETURNING 1) SELECT count(*) FROM i;
SELECT response_body FROM idem_run('stable-3', NULL, 'shop.counts', scope => 'run');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM shop.orders WHERE item = 'just now';
INSERT INTO shop.orders (item) VALUES ('just now');
SELECT response_body FROM idem_run('stable-4', NULL, 'shop.counts', scope => 'run');
ROLLBACK;

-- no transaction control inside
CREATE FUNCTION shop.commits(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN COMMIT; RETURN '1'; END $$;
SELECT probe.sqlstate($$SELECT idem_run('commit', NULL, 'shop.commits', scope => 'run')$$);
SELECT status, response_body ->> 'sqlstate' AS sqlstate FROM idem_run('commit', NULL, 'shop.commits', scope => 'run', on_error => 'record');
-- nor DDL that takes the log away
CREATE FUNCTION shop.drops(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN DROP EXTENSION idempotency CASCADE; RETURN '1'; END $$;
SELECT probe.sqlstate($$SELECT idem_run('drop', NULL, 'shop.drops', scope => 'run')$$);

-- which functions can be handlers
CREATE PROCEDURE shop.procedure(body jsonb) LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION shop.set_of(body jsonb) RETURNS SETOF jsonb LANGUAGE sql AS 'SELECT body';
CREATE FUNCTION shop.of_text(body text) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
CREATE FUNCTION shop.to_text(body jsonb) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
CREATE FUNCTION shop.of_two(body jsonb, more int = 1) RETURNS jsonb LANGUAGE sql AS 'SELECT body';
CREATE FUNCTION shop.of_many(VARIADIC bodies jsonb[]) RETURNS jsonb LANGUAGE sql AS 'SELECT bodies[1]';
CREATE FUNCTION shop.out_of(body jsonb, OUT result jsonb) LANGUAGE sql AS 'SELECT body';
CREATE AGGREGATE shop.aggregate(jsonb) (SFUNC = jsonb_concat, STYPE = jsonb);
CREATE FUNCTION shop."odd (name; of %"(body jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT body';
SELECT name, probe.raises(format('SELECT idem_run(%L, NULL, %L, scope => ''run'')', 'named', name))
  FROM unnest(ARRAY['shop.procedure', 'shop.procedure(jsonb)', 'shop.set_of', 'shop.of_text', 'shop.of_text(text)', 'shop.to_text',
                    'shop.of_two', 'shop.of_two(jsonb,integer)', 'shop.of_many', 'shop.aggregate',
                    'shop.nothing', 'shop.nothing(jsonb)', 'nowhere.place', 'nowhere.place(jsonb)', 'place', NULL]) WITH ORDINALITY u (name, n) ORDER BY n;
-- what is no name at all; the server's words for it differ between versions
SELECT name, probe.sqlstate(format('SELECT idem_run(%L, NULL, %L, scope => ''run'')', 'named', name)) IN ('42602', '22P02', '42601', '42883', '42704') AS refused
  FROM unnest(ARRAY['', ' ', '(', ')', '(jsonb)', 'shop.place(', 'shop.place()', 'shop.place(jsonb', 'shop.place(jsonb) x', 'shop.place(no_type)',
                    'shop.', '.place', 'a.b.c.place', 'shop.place; DROP TABLE shop.orders', 'shop.place(''1'')', '"', '1', '1(']) WITH ORDINALITY u (name, n) ORDER BY n;
SELECT outcome FROM idem_run('odd-1', NULL, 'shop."odd (name; of %"', scope => 'run');
SELECT outcome FROM idem_run('odd-2', NULL, 'shop."odd (name; of %"(jsonb)', scope => 'run');
SELECT outcome FROM idem_run('odd-3', NULL, 'SHOP . Place ( JSONB )', scope => 'run');
SELECT outcome FROM idem_run('odd-4', NULL, 'shop.out_of', scope => 'run');
-- an overloaded name means the one with jsonb
CREATE FUNCTION shop.over(body text) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"text"'::jsonb $$;
CREATE FUNCTION shop.over(body json) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"json"'::jsonb $$;
CREATE FUNCTION shop.over(body anyelement) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"any"'::jsonb $$;
SELECT probe.sqlstate($$SELECT idem_run('over-0', '{}', 'shop.over', scope => 'run')$$);
CREATE FUNCTION shop.over(body jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"jsonb"'::jsonb $$;
SELECT response_body FROM idem_run('over-1', '{}', 'shop.over', scope => 'run');
SELECT probe.sqlstate($$SELECT idem_run('over-2', '{}', 'shop.over(text)', scope => 'run')$$);
SELECT count(*) AS orders_are_there FROM shop.orders WHERE item = 'jar';

-- a handler that is gone: what it did is replayed, nothing new is begun
SELECT response_body FROM idem_run('over-3', '[3]', 'shop.echo', scope => 'run');
ALTER FUNCTION shop.echo(jsonb) RENAME TO echo_2;
SELECT outcome, response_body FROM idem_run('over-3', '[3]', 'shop.echo', scope => 'run');
SELECT probe.raises($$SELECT idem_run('over-4', '[3]', 'shop.echo', scope => 'run')$$);
SELECT count(*) AS none FROM idem_lookup('over-4', 'run');
DROP FUNCTION shop.echo_2(jsonb);
CREATE FUNCTION shop.echo(body jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"new"'::jsonb $$;
SELECT outcome, response_body FROM idem_run('over-4', '[3]', 'shop.echo', scope => 'run');

-- search_path decides about unqualified names, and about nothing else
SET search_path = shop, public;
SELECT outcome FROM idem_run('path-1', '{"item": "x"}', 'place', scope => 'run');
CREATE FUNCTION pg_temp.place(body jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"temporary"'::jsonb $$;
CREATE TEMP TABLE transaction_log (n int);
SET search_path = pg_temp, shop, public;
SELECT response_body ? 'order_id' AS the_real_one FROM idem_run('path-2', '{"item": "x"}', 'place', scope => 'run');
SET search_path = '';
SELECT probe.sqlstate($$SELECT public.idem_run('path-3', '{"item": "x"}', 'place', scope => 'run')$$);
SELECT outcome FROM public.idem_run('path-3', '{"item": "x"}', 'shop.place', scope => 'run');
RESET search_path;
DROP TABLE pg_temp.transaction_log;

-- with the caller's rights
CREATE ROLE regress_run_clerk;
CREATE ROLE regress_run_owner;
SELECT idem_grant('regress_run_clerk');
GRANT USAGE ON SCHEMA shop TO regress_run_clerk, regress_run_owner;
CREATE TABLE shop.ledger (who text, owner text);
GRANT INSERT ON shop.ledger TO regress_run_owner;
CREATE FUNCTION shop.notes(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN INSERT INTO shop.ledger VALUES (session_user = current_user, current_user); RETURN to_jsonb(current_user); END $$;
CREATE FUNCTION shop.notes_as_owner(body jsonb) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ BEGIN INSERT INTO shop.ledger VALUES (session_user = current_user, current_user); RETURN to_jsonb(current_user) || (SELECT to_jsonb(request_id) FROM public.idem_current()); END $$;
SELECT idem_grant('regress_run_owner');
ALTER FUNCTION shop.notes_as_owner(jsonb) OWNER TO regress_run_owner;
SET ROLE regress_run_clerk;
SELECT probe.sqlstate($$SELECT idem_run('right-1', NULL, 'shop.notes', scope => 'run')$$);
SELECT outcome, response_body FROM idem_run('right-1', NULL, 'shop.notes_as_owner', scope => 'run');
RESET ROLE;
-- EXECUTE, also where only PUBLIC had it; a replay asks for it, too
REVOKE EXECUTE ON FUNCTION shop.notes_as_owner(jsonb) FROM PUBLIC;
SET ROLE regress_run_clerk;
SELECT probe.sqlstate($$SELECT idem_run('right-2', NULL, 'shop.notes_as_owner', scope => 'run')$$);
SELECT probe.sqlstate($$SELECT idem_run('right-1', NULL, 'shop.notes_as_owner(jsonb)', scope => 'run')$$);
RESET ROLE;
REVOKE USAGE ON SCHEMA shop FROM regress_run_clerk;
GRANT EXECUTE ON FUNCTION shop.notes_as_owner(jsonb) TO regress_run_clerk;
SET ROLE regress_run_clerk;
SELECT probe.sqlstate($$SELECT idem_run('right-2', NULL, 'shop.notes_as_owner', scope => 'run')$$);
SELECT probe.sqlstate($$SELECT idem_run('right-2', NULL, 'shop.notes_as_owner(jsonb)', scope => 'run')$$);
RESET ROLE;
GRANT USAGE ON SCHEMA shop TO regress_run_clerk;
-- judged anew on each call
CREATE PROCEDURE shop.alternate() LANGUAGE plpgsql AS $$
DECLARE
    state text;
    answers jsonb := '{}';
    answer text;
BEGIN
    FOR i IN 1 .. 100 LOOP
        EXECUTE format('SET ROLE %I', CASE WHEN i % 2 = 0 THEN 'regress_run_clerk' ELSE session_user END);
        BEGIN
            answer := (SELECT response_body #>> '{}' FROM public.idem_run('alternate-' || i, NULL, 'shop.notes', scope => 'run'));
        EXCEPTION WHEN insufficient_privilege THEN
            answer := 'refused';
        END;
        IF answer = session_user THEN
            answer := 'allowed';
        END IF;
        answer := answer || ' ' || i % 2;
        answers := answers || jsonb_build_object(answer, COALESCE((answers ->> answer)::int, 0) + 1);
    END LOOP;
    RESET ROLE;
    RAISE WARNING '%', answers;
END $$;
CALL shop.alternate();

-- refusals are errors, with all a client needs and no stored body
SELECT outcome FROM idem_claim('ref-1', '{"secret": "stored body"}', scope => 'run');
SELECT regexp_replace(r, '00:00:59\.\d+|00:01:00', 'about a minute') FROM probe.raises($$SELECT idem_run('ref-1', '{"secret": "stored body"}', 'shop.place', scope => 'run')$$) r;
SELECT probe.raises($$SELECT idem_run('ref-1', '{"secret": "another body"}', 'shop.place', scope => 'run')$$);
SELECT probe.raises($$SELECT idem_run('run-1', '{"item": "cup"}', 'shop.place', scope => 'run')$$);
SET idempotency.test_clock = '2030-01-01 12:00:00+00';
SELECT token FROM idem_claim('ref-2', scope => 'run') \gset
SELECT idem_fail('ref-2', '{"secret": "stored body"}', token => :token, scope => 'run', retry_after => '90 s');
SET intervalstyle = 'iso_8601';
SELECT probe.raises($$SELECT idem_run('ref-2', NULL, 'shop.place', scope => 'run')$$);
SET intervalstyle = 'postgres';
SELECT idem_configure('run-manual', on_lease_expiry => 'manual');
SELECT outcome FROM idem_claim('ref-3', '{"secret": "stored body"}', scope => 'run-manual');
SET idempotency.test_clock = '2030-01-01 12:02:00+00';
SELECT probe.raises($$SELECT idem_run('ref-3', '{"secret": "stored body"}', 'shop.place', scope => 'run-manual')$$);
RESET idempotency.test_clock;
-- bad arguments
SELECT probe.raises($$SELECT idem_run(NULL, NULL, 'shop.place')$$);
SELECT probe.raises($$SELECT idem_run('', NULL, 'shop.place')$$);
SELECT probe.sqlstate($$SELECT idem_run('x', NULL, 'shop.place', scope => NULL)$$);
SELECT probe.sqlstate($$SELECT idem_run('x', NULL, 'shop.place', ttl => '0')$$);
SELECT probe.sqlstate($$SELECT idem_run('x', NULL, 'shop.place', wait => '-1 s')$$);

-- a history shows both changes; a scope of its own counts
SELECT idem_configure('run-history', history => true);
SELECT outcome FROM idem_run('h', '{"item": "x"}', 'shop.place', scope => 'run-history');
SELECT from_status, to_status, attempt FROM idempotency_history WHERE scope = 'run-history' ORDER BY token, from_status NULLS FIRST;
-- nothing is left open: the setting for one-transaction applications agrees
SET idempotency.unfinished_at_commit = 'error';
SELECT outcome FROM idem_run('open-1', '{"item": "x"}', 'shop.place', scope => 'run');
SELECT outcome, status FROM idem_run('open-2', '{"item": "x"}', 'shop.fails', scope => 'run', on_error => 'record');
RESET idempotency.unfinished_at_commit;

-- clean up
SELECT idem_unconfigure('run-manual'), idem_unconfigure('run-history');
SELECT idem_revoke('regress_run_clerk'), idem_revoke('regress_run_owner');
DELETE FROM idempotency_history WHERE scope = 'run-history';
DELETE FROM idempotency_checkpoint WHERE scope = 'run';
-- a handler sees the steps that it has recorded itself
CREATE FUNCTION shop.looks(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_checkpoint(c.request_id, 'one', '1', scope => c.scope) FROM idem_current() c;
    RETURN (SELECT checkpoints FROM idem_current());
END $$;
SELECT response_body FROM idem_run('looks', NULL, 'shop.looks', scope => 'run');

DELETE FROM transaction_log WHERE scope LIKE 'run%';
DROP SCHEMA shop CASCADE;
DROP SCHEMA probe CASCADE;
REVOKE ALL ON SCHEMA public FROM regress_run_clerk, regress_run_owner;
DROP ROLE regress_run_clerk, regress_run_owner;
