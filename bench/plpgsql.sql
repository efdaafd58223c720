-- plpgsql.sql - the claim engine's job as one would write it in PL/pgSQL: the
-- peer of bench/engine, bench/instructions and bench/race.

CREATE TABLE pl_log (
    token bigint NOT NULL,
    created_at timestamptz NOT NULL,
    due_at timestamptz NOT NULL,
    attempt integer NOT NULL,
    scope text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    claimed_by text NOT NULL,
    ttl interval NOT NULL,
    lease interval NOT NULL,
    fingerprint bytea,
    status text NOT NULL,
    locked_until timestamptz,
    retry_at timestamptz,
    expires_at timestamptz,
    completed_at timestamptz,
    response_code integer,
    response_headers jsonb,
    response_bytes bytea,
    response_body jsonb,
    error jsonb,
    request_body jsonb,
    PRIMARY KEY (scope, request_id)
) WITH (fillfactor = 70, vacuum_truncate = off);
CREATE INDEX ON pl_log (due_at);

CREATE TYPE pl_answer AS (
    outcome text, token bigint, attempt integer, status text,
    response_code integer, response_headers jsonb, response_body jsonb, response_bytes bytea,
    retry_after interval, created_at timestamptz, expires_at timestamptz);

-- Decides by a row that is there.
CREATE FUNCTION pl_decide(r pl_log, a_body jsonb, a_fingerprint bytea, a_ttl interval, a_lease interval)
    RETURNS pl_answer LANGUAGE plpgsql AS $$
DECLARE
    answer pl_answer;
    now_at timestamptz := clock_timestamp();
    new_token bigint;
BEGIN
    answer.created_at := r.created_at;
    answer.status := r.status;
    IF r.expires_at > now_at AND r.fingerprint <> a_fingerprint THEN
        answer.outcome := 'mismatch';
        RETURN answer;
    END IF;
    IF r.expires_at > now_at AND (r.status = 'completed' OR (r.status = 'failed' AND r.retry_at IS NULL)) THEN
        answer.outcome := 'replay';
        answer.attempt := r.attempt;
        answer.response_code := r.response_code;
        answer.response_headers := r.response_headers;
        answer.response_body := CASE r.status WHEN 'failed' THEN r.error ELSE r.response_body END;
        answer.response_bytes := r.response_bytes;
        answer.expires_at := r.expires_at;
        RETURN answer;
    END IF;
    IF (r.status = 'processing' AND r.locked_until > now_at) OR r.retry_at > now_at THEN
        answer.outcome := 'in_progress';
        answer.attempt := r.attempt;
        answer.retry_after := coalesce(r.retry_at, r.locked_until) - now_at;
        RETURN answer;
    END IF;
    new_token := greatest((extract(epoch FROM now_at) * 1000000)::bigint, r.token + 1);
    UPDATE pl_log l
       SET token = new_token, attempt = l.attempt + 1, status = 'processing', claimed_by = current_user,
           locked_until = now_at + a_lease, retry_at = NULL, expires_at = now_at + a_lease + a_ttl
     WHERE l.scope = r.scope AND l.request_id = r.request_id AND l.token = r.token;
    answer.outcome := CASE WHEN FOUND THEN 'claimed' ELSE 'in_progress' END;
    answer.token := new_token;
    answer.attempt := r.attempt + 1;
    RETURN answer;
END $$;

CREATE FUNCTION pl_claim_insert_first(
    a_request_id text, a_body jsonb DEFAULT NULL, a_scope text DEFAULT '',
    a_ttl interval DEFAULT '24 hours', a_lease interval DEFAULT '60 s')
    RETURNS pl_answer LANGUAGE plpgsql AS $$
DECLARE
    answer pl_answer;
    r pl_log;
    now_at timestamptz := clock_timestamp();
    new_token bigint := (extract(epoch FROM now_at) * 1000000)::bigint;
    a_fingerprint bytea := sha256(convert_to(a_body::text, 'UTF8'));
BEGIN
    IF a_request_id IS NULL OR a_request_id = '' OR length(a_request_id) > 255 OR length(a_scope) > 255 THEN
        RAISE EXCEPTION 'bad key' USING ERRCODE = '22023';
    END IF;
    LOOP
        INSERT INTO pl_log (token, created_at, due_at, attempt, scope, request_id, claimed_by, ttl, lease,
                            fingerprint, status, locked_until, expires_at, request_body)
        VALUES (new_token, now_at, now_at + a_lease + a_ttl, 1, a_scope, a_request_id, current_user, a_ttl, a_lease,
                a_fingerprint, 'processing', now_at + a_lease, now_at + a_lease + a_ttl, a_body)
            ON CONFLICT DO NOTHING;
        IF FOUND THEN
            answer.outcome := 'claimed';
            answer.token := new_token;
            answer.attempt := 1;
            answer.status := 'processing';
            answer.created_at := now_at;
            RETURN answer;
        END IF;
        SELECT * INTO r FROM pl_log l WHERE l.scope = a_scope AND l.request_id = a_request_id;
        IF FOUND THEN
            RETURN pl_decide(r, a_body, a_fingerprint, a_ttl, a_lease);
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION pl_claim_select_first(
    a_request_id text, a_body jsonb DEFAULT NULL, a_scope text DEFAULT '',
    a_ttl interval DEFAULT '24 hours', a_lease interval DEFAULT '60 s')
    RETURNS pl_answer LANGUAGE plpgsql AS $$
DECLARE
    r pl_log;
BEGIN
    IF a_request_id IS NULL OR a_request_id = '' OR length(a_request_id) > 255 OR length(a_scope) > 255 THEN
        RAISE EXCEPTION 'bad key' USING ERRCODE = '22023';
    END IF;
    SELECT * INTO r FROM pl_log l WHERE l.scope = a_scope AND l.request_id = a_request_id;
    IF FOUND THEN
        RETURN pl_decide(r, a_body, sha256(convert_to(a_body::text, 'UTF8')), a_ttl, a_lease);
    END IF;
    RETURN pl_claim_insert_first(a_request_id, a_body, a_scope, a_ttl, a_lease);
END $$;

-- Without a token the row must be this transaction's own.
CREATE FUNCTION pl_finish(
    a_request_id text, a_body jsonb DEFAULT NULL, a_code integer DEFAULT NULL,
    a_token bigint DEFAULT NULL, a_scope text DEFAULT '')
    RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    now_at timestamptz := clock_timestamp();
    r pl_log;
BEGIN
    UPDATE pl_log l
       SET status = 'completed', response_body = a_body, response_code = a_code, completed_at = now_at,
           locked_until = NULL, expires_at = now_at + l.ttl
     WHERE l.scope = a_scope AND l.request_id = a_request_id AND l.status = 'processing'
       AND (l.token = a_token OR (a_token IS NULL AND l.xmin = pg_current_xact_id()::xid));
    IF FOUND THEN
        RETURN true;
    END IF;
    SELECT * INTO r FROM pl_log l WHERE l.scope = a_scope AND l.request_id = a_request_id;
    IF FOUND AND r.token = a_token AND r.status = 'completed' AND r.response_body IS NOT DISTINCT FROM a_body
       AND r.response_code IS NOT DISTINCT FROM a_code THEN
        RETURN false;
    END IF;
    RAISE EXCEPTION 'claim is stale' USING ERRCODE = 'ID001';
END $$;
