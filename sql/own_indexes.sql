-- The extension's tables keep up what their owner adds: indexes of any kind,
-- columns.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
BEGIN;
CREATE INDEX ON transaction_log ((response_code / 100)) WHERE status = 'completed';
CREATE INDEX ON idempotency_checkpoint (lower(step));
CREATE INDEX ON idempotency_call (upper(operation)) WHERE status = 'sent';
CREATE INDEX ON idempotency_history (lower(to_status));
CREATE INDEX ON idempotency_machine_history (lower(to_state));
CREATE INDEX ON idempotency_inbox (lower(message_id));
CREATE INDEX ON idempotency_provider (lower(provider));
CREATE INDEX ON idempotency_scope (lower(scope));
CREATE INDEX ON idempotency_machine (lower(machine));
ALTER TABLE transaction_log ADD note text;
ALTER TABLE idempotency_checkpoint ADD note text;
ALTER TABLE idempotency_call ADD note text;
ALTER TABLE idempotency_history ADD note text;
ALTER TABLE idempotency_machine_history ADD note text DEFAULT 'none';
ALTER TABLE idempotency_inbox ADD note text;
ALTER TABLE idempotency_provider ADD note text;
ALTER TABLE idempotency_scope ADD note text;
ALTER TABLE idempotency_machine ADD note text;

SELECT idem_configure('oi', history => true);
SELECT idem_provider('oi', accepts_key => false, can_inquire => true);
UPDATE idempotency_scope SET note = 'kept' WHERE scope = 'oi';
UPDATE idempotency_provider SET note = 'kept' WHERE provider = 'oi';
SELECT idem_configure('oi', max_attempts => 3);
SELECT idem_provider('oi', accepts_key => false, can_inquire => true, timeout => '0');
SELECT note, max_attempts FROM idempotency_scope WHERE scope = 'oi';
SELECT note, timeout = '0' AS timeout FROM idempotency_provider WHERE provider = 'oi';
SELECT outcome FROM idem_claim('oi-1', scope => 'oi');
SELECT idem_checkpoint('oi-1', 'First', '1', scope => 'oi');
SELECT idem_checkpoint('oi-1', 'Second', '2', scope => 'oi');
SELECT action FROM idem_call('oi-1', 'oi', 'Charge', scope => 'oi');
SELECT step, result FROM idem_checkpoints('oi-1', 'oi');
SELECT idem_finish('oi-1', '"done"', 201, scope => 'oi');
SELECT idem_once('OI-2', 'oi');
SELECT idem_machine('oi', '{a}', '{a->b}');
CREATE TABLE oi (id int PRIMARY KEY, state text);
SELECT idem_guard_state('oi', 'state', 'oi', history => true);
INSERT INTO oi VALUES (1, 'a');
SELECT outcome FROM idem_transition('oi', '1', 'b');

-- what an index finds is what is there
SET LOCAL enable_seqscan = off;
SELECT request_id FROM transaction_log WHERE response_code / 100 = 2 AND status = 'completed' AND scope = 'oi';
SELECT step, note FROM idempotency_checkpoint WHERE lower(step) IN ('first', 'second') AND scope = 'oi' ORDER BY 1;
SELECT operation, note FROM idempotency_call WHERE upper(operation) = 'CHARGE' AND status = 'sent' AND scope = 'oi';
SELECT count(*) FROM idempotency_history WHERE lower(to_status) = 'completed' AND scope = 'oi';
SELECT key, note FROM idempotency_machine_history WHERE lower(to_state) = 'b' AND target = 'public.oi';
SELECT message_id FROM idempotency_inbox WHERE lower(message_id) = 'oi-2';
SELECT scope FROM idempotency_scope WHERE lower(scope) = 'oi';
ROLLBACK;
