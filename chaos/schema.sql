-- What the chaos run works on.  No effect table has a unique constraint: that
-- nothing is there twice is the extension's work.
CREATE EXTENSION idempotency;
CREATE EXTENSION amcheck;

CREATE TABLE effect (
    request_id text, life bigint, token bigint, status text, body text,
    created_at timestamptz, expires_at timestamptz, mode text, client text);
CREATE TABLE step_effect (request_id text, life bigint, step text, token bigint);
CREATE TABLE message_effect (message_id text, client text);

CREATE FUNCTION chaos_handler(request jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    c record;
    answer jsonb := jsonb_build_object('run', gen_random_uuid());
BEGIN
    SELECT * INTO c FROM idem_current();
    PERFORM idem_finish(c.request_id, answer, token => c.token, scope => c.scope);
    INSERT INTO effect (request_id, life, token, status, body, created_at, expires_at, mode, client)
    SELECT request_id, life, token, status, response_body::text, created_at, expires_at, 'one', 'run'
      FROM transaction_log WHERE scope = c.scope AND request_id = c.request_id;
    RETURN answer;
END $$;

CREATE TABLE orders (id int PRIMARY KEY, state text, version bigint);
CREATE TABLE order_change (
    n bigint GENERATED ALWAYS AS IDENTITY, id int, old_state text, new_state text,
    old_version bigint, new_version bigint);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO order_change (id, old_state, new_state, old_version, new_version)
    VALUES (NEW.id, OLD.state, NEW.state, OLD.version, NEW.version);
    RETURN NULL;
END $$;
CREATE TRIGGER note_change AFTER UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION note_change();
SELECT idem_machine('order', '{created}', '{created->paid,paid->shipped,paid->cancelled,cancelled->created,shipped->created}');
SELECT idem_guard_state('orders', 'state', 'order');
SELECT idem_guard_version('orders');
INSERT INTO orders (id, state) SELECT i, 'created' FROM generate_series(1, 6) i;

-- Steps of idem_batch.
CREATE FUNCTION chaos_step_a(request jsonb) RETURNS jsonb LANGUAGE sql AS $$
    INSERT INTO step_effect
    SELECT l.request_id, l.life, 'chaos_step_a', c.token
      FROM idem_current() c JOIN transaction_log l USING (scope, request_id);
    SELECT to_jsonb(pg_sleep(0.05)::text);
$$;
CREATE FUNCTION chaos_step_b(request jsonb) RETURNS jsonb LANGUAGE sql AS $$
    INSERT INTO step_effect
    SELECT l.request_id, l.life, 'chaos_step_b', c.token
      FROM idem_current() c JOIN transaction_log l USING (scope, request_id);
    SELECT c.checkpoints FROM idem_current() c;
$$;
SELECT idem_configure('batch', lease => '1s', ttl => '10min');

-- The providers of stub.py, and their time-outs as calls.py knows them.
SELECT idem_provider('keyed', accepts_key => true, can_inquire => false, timeout => '1s');
SELECT idem_provider('askable', accepts_key => false, can_inquire => true, timeout => '1.2s');
SELECT idem_provider('mute', accepts_key => false, can_inquire => false, timeout => '1.2s');
