/* idempotency--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION idempotency" to load this file. \quit

/*
 * Rules of this script: nothing here depends on search_path (functions of the
 * server that could be captured are written as pg_catalog.name, our own ones as
 * @extschema@.name); every object has a COMMENT; every table is registered for
 * dumps; PUBLIC gets nothing but the pure helpers.
 */

/* ---- the log ------------------------------------------------------------ */

/*
 * The columns that an end changes stand together, between those that never
 * change again: an update then logs little more than what is new.  Keys are
 * compared byte by byte, so that an upgrade of the operating system's
 * collations cannot break their uniqueness.  due_at is the only indexed column
 * beside the key, and ending a claim leaves it alone, so that ending a claim
 * is a HOT update.
 *
 * Rows come and go all the time: autovacuum is to come when a twentieth of
 * them has gone, so that their room is used again before the table grows.
 */
CREATE TABLE @extschema@.transaction_log (
    token bigint NOT NULL,
    life bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone NOT NULL,
    claimed_xact pg_catalog.xid8 NOT NULL,
    attempt integer NOT NULL,
    scope text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    claimed_by text NOT NULL,
    fingerprint bytea,
    ttl interval NOT NULL,
    lease interval NOT NULL,
    granted integer,
    steps integer,
    calls integer,
    open_calls integer,
    changes integer,
    proved_xact pg_catalog.xid8,
    prior_status text,
    prior_until timestamp with time zone,
    prior_ttl interval,
    prior_lease interval,
    prior_unnamed boolean,
    status text NOT NULL,
    locked_until timestamp with time zone,
    retry_at timestamp with time zone,
    expires_at timestamp with time zone,
    completed_at timestamp with time zone,
    response_code integer,
    response_headers jsonb,
    response_bytes bytea,
    response_body jsonb,
    error jsonb,
    reason text,
    request_body jsonb,
    CONSTRAINT transaction_log_pkey PRIMARY KEY (scope, request_id),
    CONSTRAINT transaction_log_status_check
        CHECK (status OPERATOR(pg_catalog.=) ANY (ARRAY['processing', 'completed', 'failed', 'unknown']))
) USING heap WITH (fillfactor = 70, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX transaction_log_due_at_idx ON @extschema@.transaction_log (due_at);

SELECT pg_catalog.pg_extension_config_dump('@extschema@.transaction_log', '');

COMMENT ON TABLE @extschema@.transaction_log IS 'Requests by idempotency key: who holds the claim, and the stored response';
COMMENT ON INDEX @extschema@.transaction_log_due_at_idx IS 'Finds rows that the purge has to look at';
COMMENT ON COLUMN @extschema@.transaction_log.token IS 'Fencing token of the present claim; grows over the whole history of a key';
COMMENT ON COLUMN @extschema@.transaction_log.life IS 'First token of this life of the key: checkpoints and calls belong to it';
COMMENT ON COLUMN @extschema@.transaction_log.created_at IS 'When this life of the key began';
COMMENT ON COLUMN @extschema@.transaction_log.due_at IS 'Not before this time does the purge look at the row; infinity while a person must decide';
COMMENT ON COLUMN @extschema@.transaction_log.claimed_xact IS 'Transaction that made the present claim; 0 where it was given back';
COMMENT ON COLUMN @extschema@.transaction_log.proved_xact IS 'Transaction that last proved itself with the token of the present claim; NULL where it is claimed_xact';
COMMENT ON COLUMN @extschema@.transaction_log.attempt IS 'Number of the present or last attempt, from 1';
COMMENT ON COLUMN @extschema@.transaction_log.granted IS 'Attempts allowed by a person beyond max_attempts: the highest such attempt; NULL for none';
COMMENT ON COLUMN @extschema@.transaction_log.steps IS 'Number of checkpoints of this life; NULL for none';
COMMENT ON COLUMN @extschema@.transaction_log.calls IS 'Number of external calls of this life; NULL for none';
COMMENT ON COLUMN @extschema@.transaction_log.open_calls IS 'Number of those without an answer; NULL for none';
COMMENT ON COLUMN @extschema@.transaction_log.changes IS 'Number of entries in the history of this life; NULL for none';
COMMENT ON COLUMN @extschema@.transaction_log.scope IS 'Namespace of the key';
COMMENT ON COLUMN @extschema@.transaction_log.request_id IS 'The idempotency key';
COMMENT ON COLUMN @extschema@.transaction_log.claimed_by IS 'Role that made the present claim';
COMMENT ON COLUMN @extschema@.transaction_log.ttl IS 'How long a finished request is replayed after it finished';
COMMENT ON COLUMN @extschema@.transaction_log.lease IS 'How long the claim is respected once it is committed';
COMMENT ON COLUMN @extschema@.transaction_log.fingerprint IS 'Hash of the request that the key was first used with';
COMMENT ON COLUMN @extschema@.transaction_log.prior_status IS 'Status before the present claim took over, for a release';
COMMENT ON COLUMN @extschema@.transaction_log.prior_until IS 'Lease or retry time before the present claim took over, for a release';
COMMENT ON COLUMN @extschema@.transaction_log.prior_ttl IS 'The ttl before the present claim took over, for a release';
COMMENT ON COLUMN @extschema@.transaction_log.prior_lease IS 'The length of the lease before the present claim took over, for a release';
COMMENT ON COLUMN @extschema@.transaction_log.prior_unnamed IS 'Whether there was no fingerprint before the present claim took over, for a release';
COMMENT ON COLUMN @extschema@.transaction_log.status IS 'processing, completed, failed or unknown';
COMMENT ON COLUMN @extschema@.transaction_log.locked_until IS 'End of the lease';
COMMENT ON COLUMN @extschema@.transaction_log.retry_at IS 'When a failed request may run again; NULL where the failure is final';
COMMENT ON COLUMN @extschema@.transaction_log.expires_at IS 'When the key is absent again; NULL means never';
COMMENT ON COLUMN @extschema@.transaction_log.completed_at IS 'When the request finished';
COMMENT ON COLUMN @extschema@.transaction_log.response_code IS 'Stored response: status code';
COMMENT ON COLUMN @extschema@.transaction_log.response_headers IS 'Stored response: headers, as an object or as an array of [name, value]';
COMMENT ON COLUMN @extschema@.transaction_log.response_bytes IS 'Stored response: exact bytes';
COMMENT ON COLUMN @extschema@.transaction_log.response_body IS 'Stored response: body';
COMMENT ON COLUMN @extschema@.transaction_log.error IS 'Error of the last failed attempt';
COMMENT ON COLUMN @extschema@.transaction_log.reason IS 'Why the outcome is unknown: lapsed, exhausted or call';
COMMENT ON COLUMN @extschema@.transaction_log.request_body IS 'Body of the request, where it is stored';

/* ---- what belongs to one life of a key ---------------------------------- */

/*
 * Checkpoints, calls and history belong to a life of a key, not to the key: a
 * key that is used again never sees those of an earlier life.
 */
CREATE TABLE @extschema@.idempotency_checkpoint (
    scope text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    life bigint NOT NULL,
    step text COLLATE "C" NOT NULL,
    ordinal integer NOT NULL,
    token bigint NOT NULL,
    completed_at timestamp with time zone NOT NULL,
    result jsonb,
    CONSTRAINT idempotency_checkpoint_pkey PRIMARY KEY (scope, request_id, life, step)
) USING heap WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.05);

SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_checkpoint', '');

COMMENT ON TABLE @extschema@.idempotency_checkpoint IS 'Finished steps of requests';
COMMENT ON COLUMN @extschema@.idempotency_checkpoint.scope IS 'Namespace of the key';
COMMENT ON COLUMN @extschema@.idempotency_checkpoint.request_id IS 'The idempotency key';
COMMENT ON COLUMN @extschema@.idempotency_checkpoint.life IS 'Life of the key that the step belongs to';
COMMENT ON COLUMN @extschema@.idempotency_checkpoint.step IS 'Name of the step';
COMMENT ON COLUMN @extschema@.idempotency_checkpoint.ordinal IS 'Order of completion, from 1';
COMMENT ON COLUMN @extschema@.idempotency_checkpoint.token IS 'Token under which the step was finished';
COMMENT ON COLUMN @extschema@.idempotency_checkpoint.completed_at IS 'When the step was finished';
COMMENT ON COLUMN @extschema@.idempotency_checkpoint.result IS 'Result of the step';

CREATE TABLE @extschema@.idempotency_history (
    scope text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    life bigint NOT NULL,
    ordinal integer NOT NULL,
    token bigint NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    changed_by text NOT NULL,
    from_status text,
    to_status text,
    attempt integer NOT NULL,
    error jsonb
) USING heap WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX idempotency_history_life_idx ON @extschema@.idempotency_history (scope, request_id, life);

SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_history', '');

COMMENT ON TABLE @extschema@.idempotency_history IS 'Changes of state of requests in scopes that keep them';
COMMENT ON INDEX @extschema@.idempotency_history_life_idx IS 'Finds the history of one life of a key';
COMMENT ON COLUMN @extschema@.idempotency_history.scope IS 'Namespace of the key';
COMMENT ON COLUMN @extschema@.idempotency_history.request_id IS 'The idempotency key';
COMMENT ON COLUMN @extschema@.idempotency_history.life IS 'Life of the key that the change belongs to';
COMMENT ON COLUMN @extschema@.idempotency_history.ordinal IS 'Number of the change in this life, from 1';
COMMENT ON COLUMN @extschema@.idempotency_history.token IS 'Token that was current after the change';
COMMENT ON COLUMN @extschema@.idempotency_history.changed_at IS 'When';
COMMENT ON COLUMN @extschema@.idempotency_history.changed_by IS 'By which role';
COMMENT ON COLUMN @extschema@.idempotency_history.from_status IS 'Status before; NULL for a new key';
COMMENT ON COLUMN @extschema@.idempotency_history.to_status IS 'Status after; NULL where the key is gone';
COMMENT ON COLUMN @extschema@.idempotency_history.attempt IS 'Number of the attempt';
COMMENT ON COLUMN @extschema@.idempotency_history.error IS 'Error of a failed attempt';

CREATE TABLE @extschema@.idempotency_provider (
    provider text COLLATE "C" NOT NULL,
    accepts_key boolean NOT NULL,
    can_inquire boolean NOT NULL,
    timeout interval,
    CONSTRAINT idempotency_provider_pkey PRIMARY KEY (provider)
) USING heap;

SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_provider', '');

COMMENT ON TABLE @extschema@.idempotency_provider IS 'What can be done about a call whose answer got lost, defined by idem_provider';
COMMENT ON COLUMN @extschema@.idempotency_provider.provider IS 'Name of the provider';
COMMENT ON COLUMN @extschema@.idempotency_provider.accepts_key IS 'Whether it takes an idempotency key, so that a call can be sent again';
COMMENT ON COLUMN @extschema@.idempotency_provider.can_inquire IS 'Whether it can be asked what became of a call';
COMMENT ON COLUMN @extschema@.idempotency_provider.timeout IS 'How long a sent call may still take effect; NULL is not at all';

CREATE TABLE @extschema@.idempotency_call (
    call_id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    life bigint NOT NULL,
    provider text COLLATE "C" NOT NULL,
    operation text COLLATE "C" NOT NULL,
    attempt integer NOT NULL,
    status text NOT NULL,
    sent_xact pg_catalog.xid8 NOT NULL,
    created_at timestamp with time zone NOT NULL,
    sent_at timestamp with time zone NOT NULL,
    answered_at timestamp with time zone,
    request_body jsonb,
    response_body jsonb,
    CONSTRAINT idempotency_call_pkey PRIMARY KEY (call_id),
    CONSTRAINT idempotency_call_operation_key UNIQUE (scope, request_id, life, provider, operation)
) USING heap WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.05);

SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_call', '');

COMMENT ON TABLE @extschema@.idempotency_call IS 'External calls of requests, recorded before they are sent';
COMMENT ON COLUMN @extschema@.idempotency_call.call_id IS 'Transaction id that is sent to the provider';
COMMENT ON COLUMN @extschema@.idempotency_call.scope IS 'Namespace of the key';
COMMENT ON COLUMN @extschema@.idempotency_call.request_id IS 'The idempotency key';
COMMENT ON COLUMN @extschema@.idempotency_call.life IS 'Life of the key that the call belongs to';
COMMENT ON COLUMN @extschema@.idempotency_call.provider IS 'Who is called';
COMMENT ON COLUMN @extschema@.idempotency_call.operation IS 'What for, where a request calls a provider more than once';
COMMENT ON COLUMN @extschema@.idempotency_call.attempt IS 'How often it was given out to be sent';
COMMENT ON COLUMN @extschema@.idempotency_call.status IS 'sent, succeeded, failed, not_found, not_sent, ambiguous or review';
COMMENT ON COLUMN @extschema@.idempotency_call.sent_xact IS 'Transaction that gave it out last';
COMMENT ON COLUMN @extschema@.idempotency_call.created_at IS 'When it was first recorded';
COMMENT ON COLUMN @extschema@.idempotency_call.sent_at IS 'When it was given out last';
COMMENT ON COLUMN @extschema@.idempotency_call.answered_at IS 'When the answer was recorded';
COMMENT ON COLUMN @extschema@.idempotency_call.request_body IS 'What to send, the same on every retry';
COMMENT ON COLUMN @extschema@.idempotency_call.response_body IS 'The answer';

/* ---- the inbox ---------------------------------------------------------- */

CREATE TABLE @extschema@.idempotency_inbox (
    received_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    scope text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    CONSTRAINT idempotency_inbox_pkey PRIMARY KEY (scope, message_id)
) USING heap WITH (vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX idempotency_inbox_expires_at_idx ON @extschema@.idempotency_inbox (expires_at);

SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_inbox', '');

COMMENT ON TABLE @extschema@.idempotency_inbox IS 'Messages that were handled, by idem_once';
COMMENT ON INDEX @extschema@.idempotency_inbox_expires_at_idx IS 'Finds what the purge has to remove';
COMMENT ON COLUMN @extschema@.idempotency_inbox.received_at IS 'When the message was handled';
COMMENT ON COLUMN @extschema@.idempotency_inbox.expires_at IS 'When it is forgotten';
COMMENT ON COLUMN @extschema@.idempotency_inbox.scope IS 'Namespace of message ids';
COMMENT ON COLUMN @extschema@.idempotency_inbox.message_id IS 'Id of the message';

/* ---- definitions of scopes ---------------------------------------------- */

/*
 * The owner is a role of this server, and on another one, that is after a
 * restore, the role of its name.  It is no regrole: where the role is missing,
 * the scope must be restored all the same, closed.
 */
CREATE TABLE @extschema@.idempotency_scope (
    scope text COLLATE "C" NOT NULL,
    ttl interval,
    lease interval,
    wait interval,
    on_lease_expiry text,
    max_attempts integer,
    backoff_base interval,
    backoff_cap interval,
    store_request boolean,
    history boolean,
    owner_name text COLLATE "C",
    owner_role oid,
    owner_system bigint,
    CONSTRAINT idempotency_scope_pkey PRIMARY KEY (scope)
) USING heap;

SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_scope', '');

COMMENT ON TABLE @extschema@.idempotency_scope IS 'Policies of scopes, defined by idem_configure';
COMMENT ON COLUMN @extschema@.idempotency_scope.scope IS 'Namespace of keys that the policy is for, and for those below it';
COMMENT ON COLUMN @extschema@.idempotency_scope.ttl IS 'How long a finished request is replayed';
COMMENT ON COLUMN @extschema@.idempotency_scope.lease IS 'How long a committed claim is respected';
COMMENT ON COLUMN @extschema@.idempotency_scope.wait IS 'How long a claim waits for a request in flight';
COMMENT ON COLUMN @extschema@.idempotency_scope.on_lease_expiry IS 'retry: another caller may take over; manual: a person decides';
COMMENT ON COLUMN @extschema@.idempotency_scope.max_attempts IS 'Number of attempts; NULL is unlimited';
COMMENT ON COLUMN @extschema@.idempotency_scope.backoff_base IS 'Backoff after the first failed attempt';
COMMENT ON COLUMN @extschema@.idempotency_scope.backoff_cap IS 'Longest backoff';
COMMENT ON COLUMN @extschema@.idempotency_scope.store_request IS 'Whether bodies of requests are stored';
COMMENT ON COLUMN @extschema@.idempotency_scope.history IS 'Whether changes of state are kept';
COMMENT ON COLUMN @extschema@.idempotency_scope.owner_name IS 'Role whose privileges a caller needs; closed to all but superusers where it does not exist';
COMMENT ON COLUMN @extschema@.idempotency_scope.owner_role IS 'That role on the server where the policy was defined, also when it is renamed';
COMMENT ON COLUMN @extschema@.idempotency_scope.owner_system IS 'System identifier of that server';

CREATE FUNCTION @extschema@.idem_definition_changed() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_definition_changed() IS 'Trigger of the definition tables: tells all sessions to read them again';
REVOKE ALL ON FUNCTION @extschema@.idem_definition_changed() FROM PUBLIC;

CREATE TRIGGER idem_definition_changed
    AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idempotency_scope
    FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_definition_changed();
CREATE TRIGGER idem_definition_truncated
    AFTER TRUNCATE ON @extschema@.idempotency_scope
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_definition_changed();
ALTER TABLE @extschema@.idempotency_scope ENABLE ALWAYS TRIGGER idem_definition_changed;
ALTER TABLE @extschema@.idempotency_scope ENABLE ALWAYS TRIGGER idem_definition_truncated;
COMMENT ON TRIGGER idem_definition_changed ON @extschema@.idempotency_scope IS 'Tells all sessions to read the policies again';
COMMENT ON TRIGGER idem_definition_truncated ON @extschema@.idempotency_scope IS 'Tells all sessions to read the policies again';

CREATE TRIGGER idem_definition_changed
    AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idempotency_provider
    FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_definition_changed();
CREATE TRIGGER idem_definition_truncated
    AFTER TRUNCATE ON @extschema@.idempotency_provider
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_definition_changed();
ALTER TABLE @extschema@.idempotency_provider ENABLE ALWAYS TRIGGER idem_definition_changed;
ALTER TABLE @extschema@.idempotency_provider ENABLE ALWAYS TRIGGER idem_definition_truncated;
COMMENT ON TRIGGER idem_definition_changed ON @extschema@.idempotency_provider IS 'Tells all sessions to read the definitions again';
COMMENT ON TRIGGER idem_definition_truncated ON @extschema@.idempotency_provider IS 'Tells all sessions to read the definitions again';

/* ---- pure helpers, for everybody ---------------------------------------- */

CREATE FUNCTION @extschema@.idem_fingerprint(body jsonb, exclude text[] DEFAULT '{}')
    RETURNS bytea
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_fingerprint(jsonb, text[]) IS 'Hash of a request that does not depend on how its JSON is written';

CREATE FUNCTION @extschema@.idem_backoff(attempt integer, base interval DEFAULT '1s', cap interval DEFAULT '5min', jitter text DEFAULT 'full')
    RETURNS interval
    LANGUAGE c VOLATILE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_backoff(integer, interval, interval, text) IS 'Pause after a failed attempt: exponential, capped, with jitter';

/* ---- claiming ----------------------------------------------------------- */

CREATE FUNCTION @extschema@.idem_claim(
    request_id text, request_body jsonb DEFAULT NULL, scope text DEFAULT '',
    ttl interval DEFAULT NULL, lease interval DEFAULT NULL, wait interval DEFAULT NULL,
    fingerprint bytea DEFAULT NULL)
    RETURNS TABLE (
        outcome text, token bigint, attempt integer, status text,
        response_code integer, response_headers jsonb, response_body jsonb, response_bytes bytea,
        checkpoints jsonb, retry_after interval, differs text[],
        created_at timestamp with time zone, expires_at timestamp with time zone)
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_claim(text, jsonb, text, interval, interval, interval, bytea) IS 'Claims the right to carry a request out, or tells what became of it';
REVOKE ALL ON FUNCTION @extschema@.idem_claim(text, jsonb, text, interval, interval, interval, bytea) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_lookup(request_id text, scope text DEFAULT '')
    RETURNS TABLE (
        scope text, request_id text, status text, attempt integer,
        response_code integer, response_headers jsonb, response_body jsonb, response_bytes bytea,
        error jsonb, retry_after interval,
        created_at timestamp with time zone, completed_at timestamp with time zone,
        expires_at timestamp with time zone)
    LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 1
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_lookup(text, text) IS 'Reads what is known of a request, without claiming it';
REVOKE ALL ON FUNCTION @extschema@.idem_lookup(text, text) FROM PUBLIC;

/* ---- ending a claim ----------------------------------------------------- */

CREATE FUNCTION @extschema@.idem_finish(
    request_id text, response_body jsonb DEFAULT NULL, response_code integer DEFAULT NULL,
    token bigint DEFAULT NULL, scope text DEFAULT '',
    response_headers jsonb DEFAULT NULL, response_bytes bytea DEFAULT NULL)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_finish(text, jsonb, integer, bigint, text, jsonb, bytea) IS 'Ends a claim with a result, which is replayed from then on';
REVOKE ALL ON FUNCTION @extschema@.idem_finish(text, jsonb, integer, bigint, text, jsonb, bytea) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_fail(
    request_id text, error jsonb DEFAULT NULL, response_code integer DEFAULT NULL,
    token bigint DEFAULT NULL, scope text DEFAULT '', final boolean DEFAULT false,
    retry_after interval DEFAULT NULL,
    response_headers jsonb DEFAULT NULL, response_bytes bytea DEFAULT NULL)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_fail(text, jsonb, integer, bigint, text, boolean, interval, jsonb, bytea) IS 'Ends a claim with a failure, for good or to be retried';
REVOKE ALL ON FUNCTION @extschema@.idem_fail(text, jsonb, integer, bigint, text, boolean, interval, jsonb, bytea) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_release(request_id text, token bigint DEFAULT NULL, scope text DEFAULT '')
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_release(text, bigint, text) IS 'Gives a claim back: nothing was done';
REVOKE ALL ON FUNCTION @extschema@.idem_release(text, bigint, text) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_extend(request_id text, lease interval DEFAULT NULL, token bigint DEFAULT NULL, scope text DEFAULT '')
    RETURNS timestamp with time zone
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_extend(text, interval, bigint, text) IS 'Renews the lease of a claim and tells when it ends';
REVOKE ALL ON FUNCTION @extschema@.idem_extend(text, interval, bigint, text) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_resolve(
    request_id text, verdict text, response_body jsonb DEFAULT NULL, response_code integer DEFAULT NULL,
    scope text DEFAULT '', force boolean DEFAULT false)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_resolve(text, text, jsonb, integer, text, boolean) IS 'Settles a request of unknown outcome by a person''s word';
REVOKE ALL ON FUNCTION @extschema@.idem_resolve(text, text, jsonb, integer, text, boolean) FROM PUBLIC;

/* ---- one trip, batches, inbox ------------------------------------------- */

CREATE FUNCTION @extschema@.idem_run(
    request_id text, request_body jsonb, handler text, scope text DEFAULT '',
    ttl interval DEFAULT NULL, wait interval DEFAULT NULL,
    on_error text DEFAULT 'rollback', fingerprint bytea DEFAULT NULL)
    RETURNS TABLE (
        outcome text, token bigint, attempt integer, status text,
        response_code integer, response_headers jsonb, response_body jsonb, response_bytes bytea,
        checkpoints jsonb, retry_after interval, differs text[],
        created_at timestamp with time zone, expires_at timestamp with time zone)
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_run(text, jsonb, text, text, interval, interval, text, bytea) IS 'Claims a request, carries it out by a function and stores its result, in one call';
REVOKE ALL ON FUNCTION @extschema@.idem_run(text, jsonb, text, text, interval, interval, text, bytea) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_current()
    RETURNS TABLE (scope text, request_id text, token bigint, attempt integer, checkpoints jsonb)
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_current() IS 'The claim whose handler or step runs; no row outside';
REVOKE ALL ON FUNCTION @extschema@.idem_current() FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_claim_many(
    request_ids text[], request_bodies jsonb[] DEFAULT NULL, scope text DEFAULT '',
    ttl interval DEFAULT NULL, lease interval DEFAULT NULL, fingerprints bytea[] DEFAULT NULL)
    RETURNS TABLE (
        ordinality integer, request_id text,
        outcome text, token bigint, attempt integer, status text,
        response_code integer, response_headers jsonb, response_body jsonb, response_bytes bytea,
        checkpoints jsonb, retry_after interval, differs text[],
        created_at timestamp with time zone, expires_at timestamp with time zone)
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_claim_many(text[], jsonb[], text, interval, interval, bytea[]) IS 'Claims many requests; answers each in the order of the array';
REVOKE ALL ON FUNCTION @extschema@.idem_claim_many(text[], jsonb[], text, interval, interval, bytea[]) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_finish_many(
    request_ids text[], response_bodies jsonb[] DEFAULT NULL, response_codes integer[] DEFAULT NULL,
    tokens bigint[] DEFAULT NULL, scope text DEFAULT '', strict boolean DEFAULT true)
    RETURNS TABLE (ordinality integer, request_id text, outcome text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_finish_many(text[], jsonb[], integer[], bigint[], text, boolean) IS 'Ends many claims with a result each';
REVOKE ALL ON FUNCTION @extschema@.idem_finish_many(text[], jsonb[], integer[], bigint[], text, boolean) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_fail_many(
    request_ids text[], errors jsonb[] DEFAULT NULL, tokens bigint[] DEFAULT NULL, scope text DEFAULT '',
    final boolean DEFAULT false, retry_after interval DEFAULT NULL, strict boolean DEFAULT true)
    RETURNS TABLE (ordinality integer, request_id text, outcome text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_fail_many(text[], jsonb[], bigint[], text, boolean, interval, boolean) IS 'Ends many claims with a failure each';
REVOKE ALL ON FUNCTION @extschema@.idem_fail_many(text[], jsonb[], bigint[], text, boolean, interval, boolean) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_extend_many(
    request_ids text[], tokens bigint[] DEFAULT NULL, lease interval DEFAULT NULL,
    scope text DEFAULT '', strict boolean DEFAULT true)
    RETURNS TABLE (ordinality integer, request_id text, outcome text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_extend_many(text[], bigint[], interval, text, boolean) IS 'Renews the leases of many claims';
REVOKE ALL ON FUNCTION @extschema@.idem_extend_many(text[], bigint[], interval, text, boolean) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_once(message_id text, scope text DEFAULT '', ttl interval DEFAULT NULL)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_once(text, text, interval) IS 'Records a message as handled: true exactly once';
REVOKE ALL ON FUNCTION @extschema@.idem_once(text, text, interval) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_once_many(message_ids text[], scope text DEFAULT '', ttl interval DEFAULT NULL)
    RETURNS SETOF text
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_once_many(text[], text, interval) IS 'Records many messages as handled; returns those that are new';
REVOKE ALL ON FUNCTION @extschema@.idem_once_many(text[], text, interval) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_once_undo(message_ids text[], scope text DEFAULT '')
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_once_undo(text[], text) IS 'Takes back messages that this transaction recorded';
REVOKE ALL ON FUNCTION @extschema@.idem_once_undo(text[], text) FROM PUBLIC;

/* ---- checkpoints -------------------------------------------------------- */

CREATE FUNCTION @extschema@.idem_checkpoint(
    request_id text, step text, result jsonb DEFAULT NULL, token bigint DEFAULT NULL, scope text DEFAULT '')
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_checkpoint(text, text, jsonb, bigint, text) IS 'Records a step as finished and renews the lease; false where it was there already';
REVOKE ALL ON FUNCTION @extschema@.idem_checkpoint(text, text, jsonb, bigint, text) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_checkpoints(request_id text, scope text DEFAULT '')
    RETURNS TABLE (step text, result jsonb, completed_at timestamp with time zone)
    LANGUAGE c VOLATILE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_checkpoints(text, text) IS 'Finished steps of a request, in the order of completion';
REVOKE ALL ON FUNCTION @extschema@.idem_checkpoints(text, text) FROM PUBLIC;

CREATE PROCEDURE @extschema@.idem_batch(request_id text, steps text[], request_body jsonb DEFAULT NULL, scope text DEFAULT '')
    LANGUAGE c
    AS 'MODULE_PATHNAME';
COMMENT ON PROCEDURE @extschema@.idem_batch(text, text[], jsonb, text) IS 'Runs functions in order, each in its own transaction, and skips those that are finished when it is called again';
REVOKE ALL ON PROCEDURE @extschema@.idem_batch(text, text[], jsonb, text) FROM PUBLIC;

/* ---- external calls ----------------------------------------------------- */

CREATE FUNCTION @extschema@.idem_provider(name text, accepts_key boolean, can_inquire boolean, timeout interval DEFAULT NULL)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_provider(text, boolean, boolean, interval) IS 'Defines what can be done about a call to a provider whose answer got lost';
REVOKE ALL ON FUNCTION @extschema@.idem_provider(text, boolean, boolean, interval) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_call(
    request_id text, provider text, operation text DEFAULT '', token bigint DEFAULT NULL,
    scope text DEFAULT '', request_body jsonb DEFAULT NULL)
    RETURNS TABLE (
        action text, call_id text, attempt integer, status text,
        request_body jsonb, response_body jsonb, retry_after interval)
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_call(text, text, text, bigint, text, jsonb) IS 'Records an external call before it is sent, or tells what to do about one that was';
REVOKE ALL ON FUNCTION @extschema@.idem_call(text, text, text, bigint, text, jsonb) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_call_finish(call_id text, status text, response_body jsonb DEFAULT NULL)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_call_finish(text, text, jsonb) IS 'Records what became of an external call and tells what to do next';
REVOKE ALL ON FUNCTION @extschema@.idem_call_finish(text, text, jsonb) FROM PUBLIC;

/* ---- policies and privileges -------------------------------------------- */

CREATE FUNCTION @extschema@.idem_configure(
    scope text, ttl interval DEFAULT NULL, lease interval DEFAULT NULL, wait interval DEFAULT NULL,
    on_lease_expiry text DEFAULT NULL, max_attempts integer DEFAULT NULL,
    backoff_base interval DEFAULT NULL, backoff_cap interval DEFAULT NULL,
    store_request boolean DEFAULT NULL, history boolean DEFAULT NULL, owner regrole DEFAULT NULL)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_configure(text, interval, interval, interval, text, integer, interval, interval, boolean, boolean, regrole) IS 'Defines the policy of a scope; NULL leaves a value as it is';
REVOKE ALL ON FUNCTION @extschema@.idem_configure(text, interval, interval, interval, text, integer, interval, interval, boolean, boolean, regrole) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_unconfigure(scope text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_unconfigure(text) IS 'Removes the policy of a scope; false where there was none';
REVOKE ALL ON FUNCTION @extschema@.idem_unconfigure(text) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_grant(role regrole, administer boolean DEFAULT false)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_grant(regrole, boolean) IS 'Lets a role use the extension, and administer it if so wanted';
REVOKE ALL ON FUNCTION @extschema@.idem_grant(regrole, boolean) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_revoke(role regrole)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_revoke(regrole) IS 'Takes back what idem_grant gave';
REVOKE ALL ON FUNCTION @extschema@.idem_revoke(regrole) FROM PUBLIC;

/* ---- views -------------------------------------------------------------- */

/*
 * Functions in a view are executed as its reader, so idem_grant gives these
 * along with the views.
 */
CREATE FUNCTION @extschema@.idem_clock()
    RETURNS timestamp with time zone
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_clock() IS 'The time that leases and expiry are judged by';
REVOKE ALL ON FUNCTION @extschema@.idem_clock() FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_scope_is_open(scope text)
    RETURNS boolean
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_scope_is_open(text) IS 'Whether a scope shows itself to the current user';
REVOKE ALL ON FUNCTION @extschema@.idem_scope_is_open(text) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_review_kind(
    scope text, status text, attempt integer, granted integer, open_calls integer,
    locked_until timestamp with time zone, retry_at timestamp with time zone,
    expires_at timestamp with time zone, reason text)
    RETURNS text
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_review_kind(text, text, integer, integer, integer, timestamp with time zone, timestamp with time zone, timestamp with time zone, text) IS 'Why a person must decide about a request: lapsed, exhausted, call or NULL';
REVOKE ALL ON FUNCTION @extschema@.idem_review_kind(text, text, integer, integer, integer, timestamp with time zone, timestamp with time zone, timestamp with time zone, text) FROM PUBLIC;

/*
 * A request that has become unknown is found by its due time: infinite once
 * the row was turned, and before that no later than the end of the lease.
 * It has one row, or one for each of its external calls without an answer.
 */
CREATE VIEW @extschema@.idem_review WITH (security_barrier) AS
    SELECT l.scope, l.request_id, k.kind, l.attempt, l.claimed_by,
           pg_catalog.date_trunc('second', l.locked_until) AS since,
           pg_catalog.format('SELECT %s(request_id => %L, scope => %L, verdict => %L)',
                             '@extschema@.idem_resolve', l.request_id, l.scope, 'completed | failed | retry') AS settle,
           c.call_id, c.provider, c.operation, c.status AS call_status, pg_catalog.date_trunc('second', c.sent_at) AS sent_at,
           CASE WHEN c.call_id IS NOT NULL THEN
           pg_catalog.format('SELECT %s(call_id => %L, status => %L)',
                             '@extschema@.idem_call_finish', c.call_id, 'succeeded | failed | not_found') END AS settle_call
      FROM @extschema@.transaction_log l
      LEFT JOIN @extschema@.idempotency_call c
        ON l.open_calls OPERATOR(pg_catalog.>) 0
       AND c.scope OPERATOR(pg_catalog.=) l.scope
       AND c.request_id OPERATOR(pg_catalog.=) l.request_id
       AND c.life OPERATOR(pg_catalog.=) l.life
       AND c.status OPERATOR(pg_catalog.=) ANY (ARRAY['sent', 'ambiguous', 'review'])
     CROSS JOIN LATERAL (
           SELECT @extschema@.idem_review_kind(l.scope, l.status, l.attempt, l.granted, l.open_calls,
                                               l.locked_until, l.retry_at, l.expires_at, l.reason) AS kind) k
     WHERE (l.due_at OPERATOR(pg_catalog.=) 'infinity' OR l.due_at OPERATOR(pg_catalog.<=) @extschema@.idem_clock())
       AND l.status OPERATOR(pg_catalog.<>) 'completed'
       AND k.kind IS NOT NULL
       AND @extschema@.idem_scope_is_open(l.scope);
COMMENT ON VIEW @extschema@.idem_review IS 'Requests of unknown outcome, which a person must settle, and how';
COMMENT ON COLUMN @extschema@.idem_review.scope IS 'Namespace of the key';
COMMENT ON COLUMN @extschema@.idem_review.request_id IS 'The idempotency key';
COMMENT ON COLUMN @extschema@.idem_review.kind IS 'lapsed: the lease ended in a scope that asks a person; exhausted: no attempt is left; call: an external call has no answer';
COMMENT ON COLUMN @extschema@.idem_review.attempt IS 'Number of the last attempt';
COMMENT ON COLUMN @extschema@.idem_review.claimed_by IS 'Role that made the last claim';
COMMENT ON COLUMN @extschema@.idem_review.since IS 'When its lease ended';
COMMENT ON COLUMN @extschema@.idem_review.settle IS 'What to call to settle the whole request, with one of the verdicts';
COMMENT ON COLUMN @extschema@.idem_review.call_id IS 'External call without an answer, a row for each; NULL where there is none';
COMMENT ON COLUMN @extschema@.idem_review.provider IS 'Who was called: ask there for call_id';
COMMENT ON COLUMN @extschema@.idem_review.operation IS 'What for';
COMMENT ON COLUMN @extschema@.idem_review.call_status IS 'sent, ambiguous or review';
COMMENT ON COLUMN @extschema@.idem_review.sent_at IS 'When the call was given out last, to the second';
COMMENT ON COLUMN @extschema@.idem_review.settle_call IS 'What to call to settle the call alone, with what was found out: the request can then be claimed again where the call was the reason';

/* The exact times of a live claim would tell its token. */
CREATE VIEW @extschema@.idem_log WITH (security_barrier) AS
    SELECT l.scope, l.request_id, l.status, l.attempt,
           CASE WHEN l.status OPERATOR(pg_catalog.<>) 'processing' THEN l.response_code END AS response_code, l.claimed_by,
           CASE WHEN l.status OPERATOR(pg_catalog.=) ANY (ARRAY['processing', 'unknown'])
                THEN pg_catalog.date_trunc('second', l.created_at) ELSE l.created_at END AS created_at,
           l.completed_at, pg_catalog.date_trunc('second', l.locked_until) AS locked_until, l.retry_at,
           CASE WHEN l.status OPERATOR(pg_catalog.=) 'processing'
                THEN pg_catalog.date_trunc('second', l.expires_at) ELSE l.expires_at END AS expires_at
      FROM @extschema@.transaction_log l
     WHERE @extschema@.idem_scope_is_open(l.scope);
COMMENT ON VIEW @extschema@.idem_log IS 'The log without bodies and tokens';
COMMENT ON COLUMN @extschema@.idem_log.scope IS 'Namespace of the key';
COMMENT ON COLUMN @extschema@.idem_log.request_id IS 'The idempotency key';
COMMENT ON COLUMN @extschema@.idem_log.status IS 'processing, completed, failed or unknown';
COMMENT ON COLUMN @extschema@.idem_log.attempt IS 'Number of the present or last attempt';
COMMENT ON COLUMN @extschema@.idem_log.response_code IS 'Stored status code';
COMMENT ON COLUMN @extschema@.idem_log.claimed_by IS 'Role that made the last claim';
COMMENT ON COLUMN @extschema@.idem_log.created_at IS 'When this life of the key began';
COMMENT ON COLUMN @extschema@.idem_log.completed_at IS 'When the request finished';
COMMENT ON COLUMN @extschema@.idem_log.locked_until IS 'End of the lease';
COMMENT ON COLUMN @extschema@.idem_log.retry_at IS 'When a failed request may run again';
COMMENT ON COLUMN @extschema@.idem_log.expires_at IS 'When the key is absent again';

/* When a claim was made would tell its token, so that is shown to the second. */
CREATE VIEW @extschema@.idem_history WITH (security_barrier) AS
    SELECT h.scope, h.request_id, h.ordinal,
           CASE WHEN h.to_status OPERATOR(pg_catalog.=) 'processing'
                THEN pg_catalog.date_trunc('second', h.changed_at) ELSE h.changed_at END AS changed_at,
           h.changed_by, h.from_status, h.to_status, h.attempt, h.error
      FROM @extschema@.idempotency_history h
     WHERE @extschema@.idem_scope_is_open(h.scope);
COMMENT ON VIEW @extschema@.idem_history IS 'Changes of state of requests in scopes that keep them, without tokens';
COMMENT ON COLUMN @extschema@.idem_history.scope IS 'Namespace of the key';
COMMENT ON COLUMN @extschema@.idem_history.request_id IS 'The idempotency key';
COMMENT ON COLUMN @extschema@.idem_history.ordinal IS 'Order of the changes of one key, from 1';
COMMENT ON COLUMN @extschema@.idem_history.changed_at IS 'When; that of a claim to the second';
COMMENT ON COLUMN @extschema@.idem_history.changed_by IS 'By which role';
COMMENT ON COLUMN @extschema@.idem_history.from_status IS 'Status before; NULL for a new key';
COMMENT ON COLUMN @extschema@.idem_history.to_status IS 'Status after';
COMMENT ON COLUMN @extschema@.idem_history.attempt IS 'Number of the attempt';
COMMENT ON COLUMN @extschema@.idem_history.error IS 'Error of a failed attempt';

/* To the second: exactly, the end of a lease would tell a token. */
CREATE VIEW @extschema@.idem_purge_lag WITH (security_barrier) AS
    SELECT 'requests' AS what,
           COALESCE(@extschema@.idem_clock() OPERATOR(pg_catalog.-) pg_catalog.date_trunc('second', pg_catalog.min(l.due_at)), '0') AS lag
      FROM @extschema@.transaction_log l
     WHERE l.due_at OPERATOR(pg_catalog.<=) @extschema@.idem_clock()
    UNION ALL
    SELECT 'messages',
           COALESCE(@extschema@.idem_clock() OPERATOR(pg_catalog.-) pg_catalog.date_trunc('second', pg_catalog.min(i.expires_at)), '0')
      FROM @extschema@.idempotency_inbox i
     WHERE i.expires_at OPERATOR(pg_catalog.<=) @extschema@.idem_clock();
COMMENT ON VIEW @extschema@.idem_purge_lag IS 'How long what the purge should have seen to has been waiting for it';
COMMENT ON COLUMN @extschema@.idem_purge_lag.what IS 'requests or messages';
COMMENT ON COLUMN @extschema@.idem_purge_lag.lag IS 'Age of the oldest that is due; 0 where nothing is';

CREATE FUNCTION @extschema@.idem_stat_counters()
    RETURNS TABLE (scope text, claimed bigint, taken_over bigint, replayed bigint, in_progress bigint, mismatched bigint, unknown bigint, completed bigint, failed bigint, released bigint, stale bigint, waits bigint, wait_us bigint, messages bigint, duplicate_messages bigint, purged bigint, purge_rounds bigint, purge_us bigint, stats_reset timestamp with time zone)
    LANGUAGE c VOLATILE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_stat_counters() IS 'Counters of this database, for the view idem_stat';
REVOKE ALL ON FUNCTION @extschema@.idem_stat_counters() FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_stat_reset()
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_stat_reset() IS 'Sets the counters of this database to zero';
REVOKE ALL ON FUNCTION @extschema@.idem_stat_reset() FROM PUBLIC;

/*
 * The functions behind this view and the next one are granted with them, so
 * they leave out what is closed to their caller by themselves.
 */
CREATE VIEW @extschema@.idem_stat WITH (security_barrier) AS
    SELECT c.scope, c.claimed, c.taken_over, c.replayed, c.in_progress, c.mismatched, c.unknown,
           c.completed, c.failed, c.released, c.stale,
           c.waits, c.wait_us::double precision OPERATOR(pg_catalog./) 1000 AS wait_ms,
           c.messages, c.duplicate_messages,
           c.purged, c.purge_rounds, c.purge_us::double precision OPERATOR(pg_catalog./) 1000 AS purge_ms,
           c.stats_reset
      FROM @extschema@.idem_stat_counters() c;
COMMENT ON VIEW @extschema@.idem_stat IS 'Counters per scope since the last reset; the row without a scope counts all scopes that have none of their own';
COMMENT ON COLUMN @extschema@.idem_stat.scope IS 'Namespace of keys; NULL for all that are not counted by themselves';
COMMENT ON COLUMN @extschema@.idem_stat.claimed IS 'Claims granted';
COMMENT ON COLUMN @extschema@.idem_stat.taken_over IS 'Of those, taken over after a lease ran out';
COMMENT ON COLUMN @extschema@.idem_stat.replayed IS 'Stored results given back';
COMMENT ON COLUMN @extschema@.idem_stat.in_progress IS 'Answers that somebody else is at it';
COMMENT ON COLUMN @extschema@.idem_stat.mismatched IS 'Keys refused for another request';
COMMENT ON COLUMN @extschema@.idem_stat.unknown IS 'Answers that a person must decide';
COMMENT ON COLUMN @extschema@.idem_stat.completed IS 'Results recorded';
COMMENT ON COLUMN @extschema@.idem_stat.failed IS 'Failures recorded';
COMMENT ON COLUMN @extschema@.idem_stat.released IS 'Claims given back';
COMMENT ON COLUMN @extschema@.idem_stat.stale IS 'Changes refused because the claim was lost';
COMMENT ON COLUMN @extschema@.idem_stat.waits IS 'Claims that waited';
COMMENT ON COLUMN @extschema@.idem_stat.wait_ms IS 'Milliseconds that they waited';
COMMENT ON COLUMN @extschema@.idem_stat.messages IS 'Messages recorded by the inbox';
COMMENT ON COLUMN @extschema@.idem_stat.duplicate_messages IS 'Messages that the inbox had already';
COMMENT ON COLUMN @extschema@.idem_stat.purged IS 'Keys and messages purged';
COMMENT ON COLUMN @extschema@.idem_stat.purge_rounds IS 'Rounds of the purge that removed something';
COMMENT ON COLUMN @extschema@.idem_stat.purge_ms IS 'Milliseconds that they took';
COMMENT ON COLUMN @extschema@.idem_stat.stats_reset IS 'When counting began';

CREATE FUNCTION @extschema@.idem_in_flight_claims()
    RETURNS TABLE (scope text, request_id text, state text, attempt integer, claimed_by text,
                   since timestamp with time zone, until timestamp with time zone, pid integer, waiting integer[])
    LANGUAGE c VOLATILE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_in_flight_claims() IS 'Requests that are not finished, uncommitted ones included, for the view idem_in_flight';
REVOKE ALL ON FUNCTION @extschema@.idem_in_flight_claims() FROM PUBLIC;

CREATE VIEW @extschema@.idem_in_flight WITH (security_barrier) AS
    SELECT c.scope, c.request_id, c.state, c.attempt, c.claimed_by, c.since, c.until, c.pid, c.waiting
      FROM @extschema@.idem_in_flight_claims() c;
COMMENT ON VIEW @extschema@.idem_in_flight IS 'Requests that are claimed and not finished, or backing off: who, since when, until when';
COMMENT ON COLUMN @extschema@.idem_in_flight.scope IS 'Namespace of the key';
COMMENT ON COLUMN @extschema@.idem_in_flight.request_id IS 'The idempotency key';
COMMENT ON COLUMN @extschema@.idem_in_flight.state IS 'uncommitted, leased, lapsed, backing off or retryable';
COMMENT ON COLUMN @extschema@.idem_in_flight.attempt IS 'Number of the attempt';
COMMENT ON COLUMN @extschema@.idem_in_flight.claimed_by IS 'Role that made the claim';
COMMENT ON COLUMN @extschema@.idem_in_flight.since IS 'When it was made, to the second';
COMMENT ON COLUMN @extschema@.idem_in_flight.until IS 'End of the lease or of the backoff';
COMMENT ON COLUMN @extschema@.idem_in_flight.pid IS 'Backend whose uncommitted transaction holds it';
COMMENT ON COLUMN @extschema@.idem_in_flight.waiting IS 'Backends that wait for it to end, or for that transaction';

/* ---- guards on the user's own tables ------------------------------------ */

CREATE TABLE @extschema@.idempotency_machine (
    machine text COLLATE "C" NOT NULL,
    initial text[] NOT NULL,
    transitions text[] NOT NULL,
    CONSTRAINT idempotency_machine_pkey PRIMARY KEY (machine)
) USING heap;

SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_machine', '');

COMMENT ON TABLE @extschema@.idempotency_machine IS 'State machines, defined by idem_machine';
COMMENT ON COLUMN @extschema@.idempotency_machine.machine IS 'Name of the machine';
COMMENT ON COLUMN @extschema@.idempotency_machine.initial IS 'States that a row may begin in';
COMMENT ON COLUMN @extschema@.idempotency_machine.transitions IS 'Steps, each as from->to';

CREATE TRIGGER idem_definition_changed
    AFTER INSERT OR UPDATE OR DELETE ON @extschema@.idempotency_machine
    FOR EACH ROW EXECUTE FUNCTION @extschema@.idem_definition_changed();
CREATE TRIGGER idem_definition_truncated
    AFTER TRUNCATE ON @extschema@.idempotency_machine
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_definition_changed();
ALTER TABLE @extschema@.idempotency_machine ENABLE ALWAYS TRIGGER idem_definition_changed;
ALTER TABLE @extschema@.idempotency_machine ENABLE ALWAYS TRIGGER idem_definition_truncated;
COMMENT ON TRIGGER idem_definition_changed ON @extschema@.idempotency_machine IS 'Tells all sessions to read the machines again';
COMMENT ON TRIGGER idem_definition_truncated ON @extschema@.idempotency_machine IS 'Tells all sessions to read the machines again';

/*
 * The table is named, not referenced: the history outlives the table, and an
 * OID would mean another table after a restore.
 */
CREATE TABLE @extschema@.idempotency_machine_history (
    target text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    changed_at timestamp with time zone NOT NULL,
    changed_by text,
    machine text COLLATE "C" NOT NULL,
    from_state text COLLATE "C",
    to_state text COLLATE "C",
    request_scope text COLLATE "C",
    request_id text COLLATE "C"
) USING heap;

CREATE INDEX idempotency_machine_history_row_idx
    ON @extschema@.idempotency_machine_history (target, key, changed_at);

SELECT pg_catalog.pg_extension_config_dump('@extschema@.idempotency_machine_history', '');

COMMENT ON TABLE @extschema@.idempotency_machine_history IS 'States of guarded rows over time, where idem_guard_state asked for it';
COMMENT ON INDEX @extschema@.idempotency_machine_history_row_idx IS 'Finds the history of a row in its order';
COMMENT ON COLUMN @extschema@.idempotency_machine_history.target IS 'Table, by the name it had at the time';
COMMENT ON COLUMN @extschema@.idempotency_machine_history.key IS 'Primary key as text; NULL where the table has none';
COMMENT ON COLUMN @extschema@.idempotency_machine_history.changed_at IS 'When the row changed; increases strictly for one row';
COMMENT ON COLUMN @extschema@.idempotency_machine_history.changed_by IS 'Role that changed the row';
COMMENT ON COLUMN @extschema@.idempotency_machine_history.machine IS 'Machine that allowed the step';
COMMENT ON COLUMN @extschema@.idempotency_machine_history.from_state IS 'State before; NULL where the row had none';
COMMENT ON COLUMN @extschema@.idempotency_machine_history.to_state IS 'State after';
COMMENT ON COLUMN @extschema@.idempotency_machine_history.request_scope IS 'Scope of the request claimed in the same transaction, if any';
COMMENT ON COLUMN @extschema@.idempotency_machine_history.request_id IS 'Key of the request claimed in the same transaction, if any';

CREATE FUNCTION @extschema@.idem_machine(machine text, initial text[], transitions text[]) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE CALLED ON NULL INPUT
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_machine(text, text[], text[]) IS 'Defines or redefines a state machine; transitions are written from->to';
REVOKE ALL ON FUNCTION @extschema@.idem_machine(text, text[], text[]) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_machine_diagram(machine text, format text DEFAULT 'mermaid') RETURNS text
    LANGUAGE c STABLE PARALLEL UNSAFE STRICT
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_machine_diagram(text, text) IS 'A state machine as a diagram for Mermaid or Graphviz (dot)';
REVOKE ALL ON FUNCTION @extschema@.idem_machine_diagram(text, text) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_guard_state_check() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_guard_state_check() IS 'Trigger of a state guard: refuses illegal steps and writes the history';
REVOKE ALL ON FUNCTION @extschema@.idem_guard_state_check() FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_guard_version_set() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_guard_version_set() IS 'Trigger of a version guard: sets the version';
REVOKE ALL ON FUNCTION @extschema@.idem_guard_version_set() FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_guard_version_check() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_guard_version_check() IS 'Trigger of a version guard: refuses a version that is not the next one';
REVOKE ALL ON FUNCTION @extschema@.idem_guard_version_check() FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_guard_state(target regclass, state_column name, machine text, history boolean DEFAULT false) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE CALLED ON NULL INPUT
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_guard_state(regclass, name, text, boolean) IS 'Lets only steps of a state machine pass in a column of a table';
REVOKE ALL ON FUNCTION @extschema@.idem_guard_state(regclass, name, text, boolean) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_guard_version(target regclass, version_column name DEFAULT 'version') RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE CALLED ON NULL INPUT
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_guard_version(regclass, name) IS 'Keeps a version number in a column of a table';
REVOKE ALL ON FUNCTION @extschema@.idem_guard_version(regclass, name) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_unguard(target regclass) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE CALLED ON NULL INPUT
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_unguard(regclass) IS 'Takes the guards off a table';
REVOKE ALL ON FUNCTION @extschema@.idem_unguard(regclass) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_transition(target regclass, key text, to_state text, from_state text DEFAULT NULL,
                                            expected_version bigint DEFAULT NULL, changes jsonb DEFAULT NULL)
    RETURNS TABLE (outcome text, state text, version bigint)
    LANGUAGE c VOLATILE PARALLEL UNSAFE CALLED ON NULL INPUT ROWS 1
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_transition(regclass, text, text, text, bigint, jsonb) IS 'Makes a step of a guarded row: applied, already, rejected, stale or not_found';
REVOKE ALL ON FUNCTION @extschema@.idem_transition(regclass, text, text, text, bigint, jsonb) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_update(target regclass, key text, expected_version bigint, changes jsonb)
    RETURNS TABLE (outcome text, version bigint)
    LANGUAGE c VOLATILE PARALLEL UNSAFE CALLED ON NULL INPUT ROWS 1
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_update(regclass, text, bigint, jsonb) IS 'Changes a row if it still has a version: applied, unchanged, stale or not_found';
REVOKE ALL ON FUNCTION @extschema@.idem_update(regclass, text, bigint, jsonb) FROM PUBLIC;

/* ---- conditional writes ------------------------------------------------- */

CREATE FUNCTION @extschema@.idem_insert(
    target pg_catalog.regclass,
    new_row jsonb,
    conflict_columns name[] DEFAULT NULL)
    RETURNS TABLE (outcome text, differs text[], stored jsonb)
    LANGUAGE c VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 1
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_insert(pg_catalog.regclass, jsonb, name[]) IS 'Inserts a row unless its key is there: inserted, exists (the same values) or differs';
REVOKE ALL ON FUNCTION @extschema@.idem_insert(pg_catalog.regclass, jsonb, name[]) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_upsert(
    target pg_catalog.regclass,
    new_row jsonb,
    update_columns name[] DEFAULT NULL,
    expected_version bigint DEFAULT NULL,
    conflict_columns name[] DEFAULT NULL)
    RETURNS TABLE (outcome text, version bigint, stored jsonb)
    LANGUAGE c VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE ROWS 1
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_upsert(pg_catalog.regclass, jsonb, name[], bigint, name[]) IS 'Inserts a row or updates named columns of the one with its key: inserted, updated, unchanged (nothing written) or stale';
REVOKE ALL ON FUNCTION @extschema@.idem_upsert(pg_catalog.regclass, jsonb, name[], bigint, name[]) FROM PUBLIC;

/* ---- purge -------------------------------------------------------------- */

CREATE FUNCTION @extschema@.idem_purge(max_rows bigint DEFAULT NULL)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_purge(bigint) IS 'Removes one batch of expired requests and messages, in the transaction of the caller';
REVOKE ALL ON FUNCTION @extschema@.idem_purge(bigint) FROM PUBLIC;

CREATE PROCEDURE @extschema@.idem_purge_all()
    LANGUAGE c
    AS 'MODULE_PATHNAME';
COMMENT ON PROCEDURE @extschema@.idem_purge_all() IS 'Removes all expired requests and messages, a transaction per batch';
REVOKE ALL ON PROCEDURE @extschema@.idem_purge_all() FROM PUBLIC;

/* ---- last: nobody gets anything by default ------------------------------ */

/* Needed for this script only: it is not part of what is installed. */
CREATE FUNCTION @extschema@.idem_secure()
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME';
SELECT @extschema@.idem_secure();
DROP FUNCTION @extschema@.idem_secure();
