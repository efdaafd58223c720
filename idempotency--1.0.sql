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
 */
CREATE TABLE @extschema@.transaction_log (
    token bigint NOT NULL,
    life bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone NOT NULL,
    claimed_xact pg_catalog.xid8 NOT NULL,
    attempt integer NOT NULL,
    granted integer NOT NULL DEFAULT 0,
    steps integer NOT NULL DEFAULT 0,
    calls integer NOT NULL DEFAULT 0,
    open_calls integer NOT NULL DEFAULT 0,
    scope text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    claimed_by text NOT NULL,
    ttl interval NOT NULL,
    lease interval NOT NULL,
    fingerprint bytea,
    prior_status text,
    prior_until timestamp with time zone,
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
) WITH (fillfactor = 70, vacuum_truncate = off);

CREATE INDEX transaction_log_due_at_idx ON @extschema@.transaction_log (due_at);

SELECT pg_catalog.pg_extension_config_dump('@extschema@.transaction_log', '');

COMMENT ON TABLE @extschema@.transaction_log IS 'Requests by idempotency key: who holds the claim, and the stored response';
COMMENT ON INDEX @extschema@.transaction_log_due_at_idx IS 'Finds rows that the purge has to look at';
COMMENT ON COLUMN @extschema@.transaction_log.token IS 'Fencing token of the present claim; grows over the whole history of a key';
COMMENT ON COLUMN @extschema@.transaction_log.life IS 'First token of this life of the key: checkpoints and calls belong to it';
COMMENT ON COLUMN @extschema@.transaction_log.created_at IS 'When this life of the key began';
COMMENT ON COLUMN @extschema@.transaction_log.due_at IS 'Not before this time does the purge look at the row; infinity while a person must decide';
COMMENT ON COLUMN @extschema@.transaction_log.claimed_xact IS 'Transaction that made the present claim';
COMMENT ON COLUMN @extschema@.transaction_log.attempt IS 'Number of the present or last attempt, from 1';
COMMENT ON COLUMN @extschema@.transaction_log.granted IS 'Attempts allowed by a person beyond max_attempts: the highest such attempt, or 0';
COMMENT ON COLUMN @extschema@.transaction_log.steps IS 'Number of checkpoints of this life';
COMMENT ON COLUMN @extschema@.transaction_log.calls IS 'Number of external calls of this life';
COMMENT ON COLUMN @extschema@.transaction_log.open_calls IS 'Number of those without an answer';
COMMENT ON COLUMN @extschema@.transaction_log.scope IS 'Namespace of the key';
COMMENT ON COLUMN @extschema@.transaction_log.request_id IS 'The idempotency key';
COMMENT ON COLUMN @extschema@.transaction_log.claimed_by IS 'Role that made the present claim';
COMMENT ON COLUMN @extschema@.transaction_log.ttl IS 'How long a finished request is replayed after it finished';
COMMENT ON COLUMN @extschema@.transaction_log.lease IS 'How long the claim is respected once it is committed';
COMMENT ON COLUMN @extschema@.transaction_log.fingerprint IS 'Hash of the request that the key was first used with';
COMMENT ON COLUMN @extschema@.transaction_log.prior_status IS 'Status before the present claim took over, for a release';
COMMENT ON COLUMN @extschema@.transaction_log.prior_until IS 'Lease or retry time before the present claim took over, for a release';
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

/* ---- definitions of scopes ---------------------------------------------- */

/*
 * The owner is kept by name: it must mean the same role after a restore, and
 * where that role is missing the scope must be restored all the same, closed.
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
    CONSTRAINT idempotency_scope_pkey PRIMARY KEY (scope)
);

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

CREATE FUNCTION @extschema@.idem_definition_changed() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION @extschema@.idem_definition_changed() IS 'Trigger of the definition tables: tells all sessions to read them again';
REVOKE ALL ON FUNCTION @extschema@.idem_definition_changed() FROM PUBLIC;

CREATE TRIGGER idem_definition_changed
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON @extschema@.idempotency_scope
    FOR EACH STATEMENT EXECUTE FUNCTION @extschema@.idem_definition_changed();
COMMENT ON TRIGGER idem_definition_changed ON @extschema@.idempotency_scope IS 'Tells all sessions to read the policies again';

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
