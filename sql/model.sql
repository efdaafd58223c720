-- Random calls, compared one by one with a model of the contract.
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

-- What the model knows of a key.
CREATE TYPE probe.key_state AS (
    status text,             -- processing, completed, failed, retry; NULL: no row
    attempt int, granted int, token bigint, max_token bigint,
    -- (token -1: one that nobody holds)
    lease_end timestamptz, lease interval, ttl interval, retry_at timestamptz, done_at timestamptz,
    body int, response int,
    prior_status text, prior_until timestamptz, prior_ttl interval, prior_lease interval, prior_body int, prior_response int);
CREATE TABLE probe.model (scope text, key text, s probe.key_state, PRIMARY KEY (scope, key));
CREATE TABLE probe.tally (call text, answer text, n int, PRIMARY KEY (call, answer));

CREATE FUNCTION probe.used_up(scope text, s probe.key_state) RETURNS boolean LANGUAGE sql AS
    $$ SELECT scope = 'model/max' AND s.attempt >= greatest(2, s.granted) $$;

-- What the key amounts to, as section 3 of the reference has it.
CREATE FUNCTION probe.judge(scope text, s probe.key_state, t timestamptz) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF s.status IS NULL THEN
        RETURN 'absent';
    ELSIF s.status = 'processing' THEN
        IF s.lease_end > t THEN RETURN 'leased'; END IF;
        IF scope = 'model/manual' OR probe.used_up(scope, s) THEN RETURN 'unknown'; END IF;
        IF s.lease_end + s.ttl <= t THEN RETURN 'absent'; END IF;
        RETURN 'lapsed';
    ELSIF s.status = 'retry' THEN
        IF s.retry_at > t THEN RETURN 'backoff'; END IF;
        IF s.retry_at + s.ttl <= t THEN RETURN 'absent'; END IF;
        RETURN 'retryable';
    END IF;
    IF s.done_at + s.ttl <= t THEN RETURN 'absent'; END IF;
    RETURN 'finished';
END $$;

-- The error for one who does not hold a claim to end; NULL where he does.
CREATE FUNCTION probe.fence(scope text, s probe.key_state, t timestamptz, token bigint) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN probe.judge(scope, s, t) = 'absent' THEN 'ID002'
                WHEN token IS NULL THEN 'ID002'
                WHEN token <> s.token OR s.token = -1 THEN 'ID001' END
$$;

-- One call: what the model expects, and the key as it is afterwards.
CREATE FUNCTION probe.expect(call text, scope text, INOUT s probe.key_state, t timestamptz, token bigint, body int,
                             v_ttl interval, v_lease interval, pause interval, response int, flag boolean, verdict text, OUT answer text) LANGUAGE plpgsql AS $$
DECLARE
    state text := probe.judge(scope, s, t);
    refused text := probe.fence(scope, s, t, token);
    ended boolean := s.status IS DISTINCT FROM 'processing';
BEGIN
    IF call = 'claim' THEN
        IF state <> 'absent' AND body <> s.body THEN
            answer := 'mismatch';
        ELSIF state = 'finished' THEN
            answer := format('replay %s %s %s', s.status, s.attempt, s.response);
        ELSIF state = 'leased' THEN
            answer := format('in_progress processing %s', s.lease_end - t);
        ELSIF state = 'backoff' THEN
            answer := format('in_progress failed %s', s.retry_at - t);
        ELSIF state = 'unknown' THEN
            answer := 'unknown';
        ELSE
            IF state = 'absent' THEN
                s.attempt := 0; s.granted := 0; s.body := body; s.response := NULL;
                s.prior_status := NULL;
            ELSE
                s.prior_status := s.status; s.prior_ttl := s.ttl; s.prior_lease := s.lease; s.prior_body := s.body; s.prior_response := s.response;
                s.prior_until := CASE state WHEN 'lapsed' THEN s.lease_end ELSE s.retry_at END;
                s.body := coalesce(s.body, body);
            END IF;
            s.status := 'processing'; s.attempt := s.attempt + 1;
            s.ttl := v_ttl; s.lease := v_lease; s.lease_end := t + v_lease;
            answer := format('claimed %s', s.attempt);
        END IF;
    ELSIF call IN ('finish', 'fail') THEN
        IF refused IS NOT NULL THEN
            answer := refused;
        ELSIF ended THEN
            answer := CASE WHEN s.response IS NOT DISTINCT FROM response AND (s.status = 'completed') = (call = 'finish')
                            AND NOT (call = 'fail' AND flag AND s.status = 'retry') THEN 'false' ELSE 'ID003' END;
        ELSE
            s.response := response;
            IF call = 'finish' THEN
                s.status := 'completed'; s.done_at := t;
            ELSIF flag OR probe.used_up(scope, s) THEN
                s.status := 'failed'; s.done_at := t;
            ELSE
                s.status := 'retry'; s.retry_at := t + pause;
            END IF;
            answer := 'true';
        END IF;
    ELSIF call = 'release' THEN
        IF refused IS NOT NULL OR ended THEN
            answer := coalesce(refused, 'ID003');
        ELSE
            IF s.prior_status IS NULL THEN
                s.status := NULL;
            ELSE
                s.status := s.prior_status; s.attempt := s.attempt - 1; s.ttl := s.prior_ttl; s.lease := s.prior_lease; s.body := s.prior_body; s.response := s.prior_response;
                IF s.status = 'processing' THEN s.lease_end := s.prior_until; ELSE s.retry_at := s.prior_until; END IF;
                s.prior_status := NULL;
            END IF;
            s.token := -1;
            answer := 'true';
        END IF;
    ELSIF call = 'extend' THEN
        IF refused IS NOT NULL OR ended THEN
            answer := coalesce(refused, 'ID003');
        ELSE
            s.lease_end := greatest(s.lease_end, t + coalesce(v_lease, s.lease));
            answer := s.lease_end::text;
        END IF;
    ELSIF call = 'resolve' THEN
        IF state = 'absent' THEN
            answer := 'ID002';
        ELSIF state = 'finished' THEN
            answer := CASE WHEN verdict = s.status AND s.response IS NOT DISTINCT FROM response THEN 'false' ELSE 'ID003' END;
        ELSIF state = 'retryable' AND verdict = 'retry' THEN
            answer := 'false';
        ELSIF state <> 'unknown' AND NOT flag THEN
            answer := 'ID005';
        ELSE
            IF verdict = 'retry' THEN
                s.status := 'retry'; s.retry_at := t; s.granted := s.attempt + 1;
            ELSE
                s.status := verdict; s.done_at := t; s.response := response;
            END IF;
            s.token := -1; s.prior_status := NULL;
            answer := 'true';
        END IF;
    ELSE
        answer := CASE state WHEN 'absent' THEN 'nothing' WHEN 'finished' THEN format('%s %s %s', s.status, s.attempt, s.response)
                             WHEN 'unknown' THEN format('unknown %s', s.attempt)
                             WHEN 'leased' THEN format('processing %s %s', s.attempt, s.lease_end - t)
                             WHEN 'backoff' THEN format('failed %s %s', s.attempt, s.retry_at - t)
                             WHEN 'lapsed' THEN format('processing %s', s.attempt) ELSE format('failed %s', s.attempt) END;
    END IF;
END $$;

-- The same call to the extension, in the same words; token is what a claim got.
CREATE FUNCTION probe.call(call text, p_scope text, p_key text, p_token bigint, body int, v_ttl interval, v_lease interval, pause interval,
                           response int, flag boolean, verdict text, OUT answer text, OUT new_token bigint) LANGUAGE plpgsql AS $$
DECLARE
    c record;
BEGIN
    IF call = 'claim' THEN
        SELECT * INTO STRICT c FROM idem_claim(p_key, to_jsonb(body), p_scope, v_ttl, v_lease);
        new_token := c.token;
        answer := CASE c.outcome WHEN 'replay' THEN format('replay %s %s %s', c.status, c.attempt, c.response_body)
                                 WHEN 'in_progress' THEN format('in_progress %s %s', c.status, c.retry_after)
                                 WHEN 'claimed' THEN format('claimed %s', c.attempt) ELSE c.outcome END;
    ELSIF call = 'finish' THEN
        answer := idem_finish(p_key, to_jsonb(response), token => p_token, scope => p_scope);
    ELSIF call = 'fail' THEN
        answer := idem_fail(p_key, to_jsonb(response), token => p_token, scope => p_scope, final => flag, retry_after => pause);
    ELSIF call = 'release' THEN
        answer := idem_release(p_key, p_token, p_scope);
    ELSIF call = 'extend' THEN
        answer := idem_extend(p_key, v_lease, p_token, p_scope);
    ELSIF call = 'resolve' THEN
        answer := idem_resolve(p_key, verdict, to_jsonb(response), scope => p_scope, force => flag);
    ELSE
        SELECT l.status || ' ' || l.attempt || CASE WHEN l.retry_after IS NOT NULL THEN ' ' || l.retry_after WHEN l.completed_at IS NOT NULL THEN
                   ' ' || CASE WHEN l.status = 'failed' THEN coalesce(l.error::text, '') ELSE coalesce(l.response_body::text, '') END ELSE '' END
          INTO answer FROM idem_lookup(p_key, p_scope) l;
        answer := coalesce(answer, 'nothing');
    END IF;
    IF answer IN ('t', 'f') THEN
        answer := answer::boolean::text;
    END IF;
EXCEPTION WHEN OTHERS THEN
    IF SQLSTATE !~ '^ID' THEN
        RAISE;
    END IF;
    answer := SQLSTATE;
END $$;

CREATE FUNCTION probe.pick(VARIADIC choices text[]) RETURNS text LANGUAGE sql VOLATILE AS
    $$ SELECT choices[1 + floor(random() * cardinality(choices))::int] $$;

CREATE PROCEDURE probe.run(calls int) LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := '2030-01-01 00:00:00';
    call text; v_scope text; v_key text; token bigint; body int; v_ttl interval; v_lease interval; pause interval; response int; flag boolean; verdict text;
    old probe.key_state; expected record; got record;
BEGIN
    FOR i IN 1..calls LOOP
        v_scope := probe.pick('model', 'model/manual', 'model/max');
        v_key := 'model-' || probe.pick('1', '2');
        call := probe.pick('claim', 'claim', 'claim', 'claim', 'finish', 'fail', 'fail', 'release', 'release', 'extend', 'resolve', 'lookup');
        t := t + probe.pick('0', '0', '0', '1 us', '1s', '1s', '5s', '5s', '10s', '1 min', '10 min')::interval;
        SELECT (m.s).* INTO old FROM probe.model m WHERE m.scope = v_scope AND m.key = v_key;
        token := CASE probe.pick('own', 'own', 'own', 'own', 'none', 'old') WHEN 'own' THEN coalesce(old.token, 1) WHEN 'old' THEN coalesce(old.max_token, 1) - 1 END;
        body := probe.pick('1', '1', '1', '2', NULL)::int;
        v_ttl := probe.pick('30s', '5 min', '1h')::interval;
        v_lease := probe.pick('1s', '10s', '1 min')::interval;
        IF call = 'extend' AND random() < 0.5 THEN
            v_lease := NULL;  -- the claim's own
        END IF;
        pause := probe.pick('0', '5s', '2 min')::interval;
        response := probe.pick('1', '2', NULL)::int;
        flag := probe.pick('t', 'f', 'f')::boolean;
        verdict := probe.pick('completed', 'failed', 'retry');
        -- whether a lapsed claim that waits for a person may still be extended or released is left open
        CONTINUE WHEN call IN ('extend', 'release') AND probe.judge(v_scope, old, t) = 'unknown';

        PERFORM set_config('idempotency.test_clock', t::text, false);
        SELECT * INTO expected FROM probe.expect(call, v_scope, old, t, token, body, v_ttl, v_lease, pause, response, flag, verdict);
        SELECT * INTO got FROM probe.call(call, v_scope, v_key, token, body, v_ttl, v_lease, pause, response, flag, verdict);
        IF btrim(got.answer) IS DISTINCT FROM btrim(expected.answer) THEN
            RAISE EXCEPTION 'call %: % of %/% (token %, body %, response %, flag %, verdict %) at %: expected %, got %',
                i, call, v_scope, v_key, token, body, response, flag, verdict, t, expected.answer, got.answer USING DETAIL = old::text;
        END IF;
        IF got.new_token IS NOT NULL THEN
            ASSERT got.new_token > coalesce((expected.s).max_token, 0), 'tokens do not grow';
            expected.s.token := got.new_token;
            expected.s.max_token := got.new_token;
        END IF;
        INSERT INTO probe.model VALUES (v_scope, v_key, expected.s) ON CONFLICT (scope, key) DO UPDATE SET s = EXCLUDED.s;
        INSERT INTO probe.tally AS y VALUES (call, split_part(got.answer, ' ', 1), 1) ON CONFLICT ON CONSTRAINT tally_pkey DO UPDATE SET n = y.n + 1;
        COMMIT;
    END LOOP;
END $$;

SELECT idem_configure('model/manual', on_lease_expiry => 'manual'), idem_configure('model/max', max_attempts => 2);
SELECT setseed(0.5);
CALL probe.run(3000);
-- every kind of answer was met, apart from those that a call has by the dozen
SELECT call, string_agg(answer, ' ' ORDER BY answer COLLATE "C") AS answers FROM probe.tally WHERE call <> 'extend' OR answer LIKE 'ID%' GROUP BY 1 ORDER BY 1;
RESET idempotency.test_clock;
SELECT idem_unconfigure('model/manual'), idem_unconfigure('model/max');
DELETE FROM transaction_log WHERE scope LIKE 'model%';
DROP SCHEMA probe CASCADE;
