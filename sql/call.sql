-- External calls: the decision table, for the three kinds of providers.
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
SET idempotency.test_clock = '2030-01-01 00:00:00';

-- what is in the log of a key: the request's status and counters, its calls
CREATE VIEW probe.stored AS
    SELECT l.request_id, l.status, l.reason, coalesce(l.calls, 0) AS calls, coalesce(l.open_calls, 0) AS open_calls,
           c.operation, c.status AS call, c.attempt, c.answered_at IS NOT NULL AS answered
      FROM transaction_log l LEFT JOIN idempotency_call c USING (scope, request_id, life)
     WHERE l.scope = 'call';

-- definitions of providers are idempotent
SELECT idem_provider('keyed', true, false, '10 min');
SELECT idem_provider('keyed', true, false, '10 min');
SELECT idem_provider('askable', true, true);
SELECT idem_provider('askable', false, true, '10 min');
SELECT idem_provider('mute', accepts_key => false, can_inquire => false, timeout => '10 min');
SELECT idem_provider('both', true, true, '10 min');
SELECT idem_provider('prompt', false, true);
SELECT * FROM idempotency_provider ORDER BY provider;
SELECT probe.raises($$SELECT idem_provider(NULL, true, true)$$);
SELECT probe.raises($$SELECT idem_provider('', true, true)$$);
SELECT probe.sqlstate($$SELECT idem_provider(repeat('x', 256), true, true)$$);
SELECT probe.raises($$SELECT idem_provider('x', NULL, true)$$);
SELECT probe.sqlstate($$SELECT idem_provider('x', true, NULL)$$);
SELECT probe.raises($$SELECT idem_provider('x', true, true, '-1 s')$$);
BEGIN READ ONLY;
SELECT idem_provider('x', true, true);
ROLLBACK;

-- the first time: send, for every kind
SELECT token AS t FROM idem_claim('keyed', '{"amount": 10}', scope => 'call') \gset k_
SELECT token AS t FROM idem_claim('askable', '{"amount": 10}', scope => 'call') \gset a_
SELECT token AS t FROM idem_claim('mute', '{"amount": 10}', scope => 'call') \gset m_
SELECT action, call_id ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$' AS id, attempt, status, request_body, response_body, retry_after FROM idem_call('keyed', 'keyed', token => :k_t, scope => 'call');
SELECT action, call_id AS id, attempt, status, request_body, response_body, retry_after FROM idem_call('askable', 'askable', token => :a_t, scope => 'call') \gset a_
SELECT action, call_id AS id, attempt, status, request_body, response_body, retry_after FROM idem_call('mute', 'mute', token => :m_t, scope => 'call') \gset m_
SELECT :'a_action', :'a_attempt', :'m_action', :'m_attempt', :'a_id' <> :'m_id' AS different;
SELECT * FROM probe.stored ORDER BY 1;
SELECT call_id AS id FROM idempotency_call WHERE provider = 'keyed' \gset k_

-- sent, no answer, and it may still take effect
SELECT action, call_id = :'k_id' AS same, attempt, status, request_body, retry_after FROM idem_call('keyed', 'keyed', token => :k_t, scope => 'call', request_body => '{"amount": 11}');
SELECT action, call_id = :'a_id' AS same, attempt, status, request_body, retry_after FROM idem_call('askable', 'askable', token => :a_t, scope => 'call');
SELECT action, call_id = :'m_id' AS same, attempt, status, request_body, retry_after FROM idem_call('mute', 'mute', token => :m_t, scope => 'call');
-- the same after the word "ambiguous"
SELECT idem_call_finish(:'k_id', 'ambiguous', '"timeout"'), idem_call_finish(:'a_id', 'ambiguous', '"timeout"'), idem_call_finish(:'m_id', 'ambiguous');
SELECT * FROM probe.stored ORDER BY 1;
SELECT action, call_id = :'k_id' AS same, attempt, status, request_body, response_body FROM idem_call('keyed', 'keyed', token => :k_t, scope => 'call');
SELECT action, attempt, status, response_body, retry_after FROM idem_call('askable', 'askable', token => :a_t, scope => 'call');
SELECT action, attempt, status, retry_after FROM idem_call('mute', 'mute', token => :m_t, scope => 'call');
-- just before the end of the time-out, and at its end
SET idempotency.test_clock = '2030-01-01 00:09:59.999999';
SELECT action, retry_after FROM idem_call('askable', 'askable', token => :a_t, scope => 'call');
SELECT action, retry_after FROM idem_call('mute', 'mute', token => :m_t, scope => 'call');
SET idempotency.test_clock = '2030-01-01 00:10:00';
SELECT action, call_id = :'k_id' AS same, attempt, status, retry_after FROM idem_call('keyed', 'keyed', token => :k_t, scope => 'call');
SELECT action, call_id = :'a_id' AS same, attempt, status, retry_after FROM idem_call('askable', 'askable', token => :a_t, scope => 'call');
SELECT action, call_id = :'m_id' AS same, attempt, status, retry_after FROM idem_call('mute', 'mute', token => :m_t, scope => 'call');
SELECT * FROM probe.stored ORDER BY 1;
-- review stays review, and the claim answers unknown
SELECT action FROM idem_call('mute', 'mute', token => :m_t, scope => 'call');
SELECT outcome, token, retry_after FROM idem_claim('mute', '{"amount": 10}', scope => 'call');
SELECT request_id, kind, attempt, provider, operation, call_status, sent_at, call_id = :'m_id' AS same_call, replace(settle_call, call_id, 'ID') AS settle_call, settle FROM idem_review WHERE scope = 'call';
-- the holder cannot go on with it, but may still tell how it ended
SELECT probe.raises(format($$SELECT idem_extend('mute', token => %s, scope => 'call')$$, :m_t));
SELECT probe.sqlstate(format($$SELECT idem_call('mute', 'mute', 'refund', %s, 'call')$$, :m_t));
SELECT probe.sqlstate(format($$SELECT idem_release('mute', %s, 'call')$$, :m_t));

-- an inquiry said not_found: send, under the same id
SELECT idem_call_finish(:'k_id', 'not_found'), idem_call_finish(:'a_id', 'not_found');
SELECT * FROM probe.stored WHERE request_id <> 'mute' ORDER BY 1;
SELECT action, call_id = :'k_id' AS same, attempt FROM idem_call('keyed', 'keyed', token => :k_t, scope => 'call');
SELECT action, call_id = :'a_id' AS same, attempt, request_body FROM idem_call('askable', 'askable', token => :a_t, scope => 'call');
-- one that was asked too early proves nothing: the call is under way again
SELECT idem_call_finish(:'a_id', 'not_found');
SELECT action, retry_after FROM idem_call('askable', 'askable', token => :a_t, scope => 'call');
SET idempotency.test_clock = '2030-01-01 00:21:00';
SELECT action FROM idem_call('askable', 'askable', token => :a_t, scope => 'call');
-- not_sent: send
SELECT idem_call_finish(:'k_id', 'not_sent'), idem_call_finish(:'a_id', 'not_sent'), idem_call_finish(:'a_id', 'not_sent');
SELECT * FROM probe.stored WHERE request_id <> 'mute' ORDER BY 1;
SELECT action, call_id = :'k_id' AS same, attempt FROM idem_call('keyed', 'keyed', token => :k_t, scope => 'call');
SELECT action, call_id = :'a_id' AS same, attempt FROM idem_call('askable', 'askable', token => :a_t, scope => 'call');
-- answered: done, with the stored answer
SELECT idem_call_finish(:'k_id', 'succeeded', '{"receipt": 0}'), idem_call_finish(:'a_id', 'failed', 'null');
SELECT action, call_id = :'k_id' AS same, attempt, status, request_body, response_body, retry_after FROM idem_call('keyed', 'keyed', token => :k_t, scope => 'call');
SELECT action, call_id = :'a_id' AS same, attempt, status, request_body, response_body, response_body IS NULL AS "null", retry_after FROM idem_call('askable', 'askable', token => :a_t, scope => 'call');
SELECT * FROM probe.stored WHERE request_id <> 'mute' ORDER BY 1;
-- the first definite answer stays
SELECT idem_call_finish(:'k_id', 'succeeded', '{"receipt": 0.0}'), idem_call_finish(:'k_id', 'ambiguous');
SELECT replace(r, :'k_id', 'ID') FROM probe.raises(format($$SELECT idem_call_finish(%L, 'succeeded', '{"receipt": 1}')$$, :'k_id')) r;
SELECT probe.sqlstate(format($$SELECT idem_call_finish(%L, 'succeeded')$$, :'k_id'));
SELECT probe.sqlstate(format($$SELECT idem_call_finish(%L, 'failed', '{"receipt": 0}')$$, :'k_id'));
SELECT probe.sqlstate(format($$SELECT idem_call_finish(%L, 'not_found')$$, :'k_id'));
SELECT probe.sqlstate(format($$SELECT idem_call_finish(%L, 'not_sent')$$, :'k_id'));
SELECT probe.sqlstate(format($$SELECT idem_call_finish(%L, 'failed')$$, :'a_id'));
SELECT * FROM probe.stored WHERE request_id <> 'mute' ORDER BY 1;
-- whoever can be asked, but takes a key, is sent to again
SELECT token AS t FROM idem_claim('both', scope => 'call') \gset
SELECT action FROM idem_call('both', 'both', token => :t, scope => 'call');
SET idempotency.test_clock = '2030-01-01 01:00:00';
SELECT action, attempt, request_body FROM idem_call('both', 'both', token => :t, scope => 'call');
-- without a time-out an inquiry counts at once
SELECT token AS t FROM idem_claim('prompt', scope => 'call') \gset
SELECT action, call_id AS id FROM idem_call('prompt', 'prompt', token => :t, scope => 'call') \gset
SELECT :'action', i.action FROM idem_call('prompt', 'prompt', token => :t, scope => 'call') i;
SELECT idem_call_finish(:'id', 'ambiguous');
SELECT idem_call_finish(:'id', 'not_found');
SELECT action, call_id = :'id' AS same, attempt FROM idem_call('prompt', 'prompt', token => :t, scope => 'call');

-- several operations, and several providers, in one request
SELECT token AS t FROM idem_claim('many', scope => 'call') \gset
SELECT action, attempt, request_body FROM idem_call('many', 'keyed', 'authorize', :t, 'call', '{"n": 1}');
SELECT action, attempt, request_body FROM idem_call('many', 'keyed', 'capture', :t, 'call', '{"n": 2}');
SELECT action, attempt, request_body FROM idem_call('many', 'keyed', token => :t, scope => 'call');
SELECT action, attempt, request_body FROM idem_call('many', 'both', 'capture', :t, 'call', '[]');
SELECT action, attempt, request_body FROM idem_call('many', 'keyed', 'capture', :t, 'call', '{"n": 3}');
SELECT count(*), count(DISTINCT call_id) FROM idempotency_call WHERE request_id = 'many';
SELECT coalesce(calls, 0) AS calls, coalesce(open_calls, 0) AS open_calls FROM transaction_log WHERE request_id = 'many';

-- in the transaction that recorded it: the same again, nothing written; an answer is refused
BEGIN;
SELECT outcome FROM idem_claim('own', '{"a": 1}', scope => 'call');
SELECT action, call_id AS id, attempt FROM idem_call('own', 'mute', scope => 'call') \gset
SELECT action, call_id = :'id' AS same, attempt, request_body FROM idem_call('own', 'mute', scope => 'call', request_body => '2');
SAVEPOINT s;
SELECT replace(r, :'id', 'ID') FROM probe.raises(format($$SELECT idem_call_finish(%L, 'succeeded')$$, :'id')) r;
ROLLBACK TO s;
SET LOCAL idempotency.test_clock = '2030-01-02 00:00:00';
SELECT action, call_id = :'id' AS same, attempt FROM idem_call('own', 'mute', scope => 'call');
COMMIT;
SELECT coalesce(calls, 0) AS calls, coalesce(open_calls, 0) AS open_calls FROM transaction_log WHERE request_id = 'own';
-- a savepoint that is rolled back takes the call along
SELECT token AS t FROM idem_claim('own-2', scope => 'call') \gset
BEGIN;
SAVEPOINT s;
SELECT call_id AS id FROM idem_call('own-2', 'mute', token => :t, scope => 'call') \gset
ROLLBACK TO s;
SELECT action, call_id <> :'id' AS another, attempt FROM idem_call('own-2', 'mute', token => :t, scope => 'call');
COMMIT;
SELECT coalesce(calls, 0) AS calls, coalesce(open_calls, 0) AS open_calls FROM transaction_log WHERE request_id = 'own-2';
-- without a token only where this transaction wrote the row
SELECT probe.raises($$SELECT idem_call('own-2', 'mute', scope => 'call')$$);
BEGIN;
SELECT idem_extend('own-2', token => :t, scope => 'call') IS NOT NULL AS extended;
SELECT action FROM idem_call('own-2', 'mute', 'other', scope => 'call');
COMMIT;

-- a call renews the lease, and the next holder finds what this one left
SET idempotency.test_clock = '2030-02-01 00:00:00';
SELECT token AS t FROM idem_claim('lease', '7', scope => 'call', lease => '1 min') \gset
SET idempotency.test_clock = '2030-02-01 00:00:50';
SELECT action, call_id AS id FROM idem_call('lease', 'askable', token => :t, scope => 'call') \gset
SET idempotency.test_clock = '2030-02-01 00:01:49';
SELECT outcome, retry_after FROM idem_claim('lease', '7', scope => 'call');
SET idempotency.test_clock = '2030-02-01 00:01:50';
SELECT outcome, attempt, token AS t2 FROM idem_claim('lease', '7', scope => 'call', lease => '1 min') \gset
SELECT :'outcome', :'attempt';
SELECT action, call_id = :'id' AS same, attempt, request_body, retry_after FROM idem_call('lease', 'askable', token => :t2, scope => 'call');
-- the one before is fenced off, with what it wrote
CREATE TABLE probe.writes (n int);
BEGIN;
INSERT INTO probe.writes VALUES (1);
SELECT action FROM idem_call('lease', 'askable', token => :t, scope => 'call');
COMMIT;
SELECT count(*) FROM probe.writes;
SELECT probe.raises(format($$SELECT idem_call('lease', 'askable', token => %s, scope => 'call')$$, :t));
-- but its answer counts
SELECT idem_call_finish(:'id', 'succeeded', '"receipt"');
SELECT action, status, response_body FROM idem_call('lease', 'askable', token => :t2, scope => 'call');
SELECT idem_finish('lease', '"ok"', token => :t2, scope => 'call');
SELECT probe.sqlstate(format($$SELECT idem_call('lease', 'askable', token => %s, scope => 'call')$$, :t2));
SELECT probe.sqlstate(format($$SELECT idem_call('lease', 'askable', token => %s, scope => 'call')$$, :t));

-- an answer that comes after the request has finished is recorded all the same
SELECT token AS t FROM idem_claim('late', scope => 'call') \gset
SELECT call_id AS id FROM idem_call('late', 'mute', token => :t, scope => 'call') \gset
SELECT idem_fail('late', '"gave up"', token => :t, scope => 'call', final => true);
SELECT idem_call_finish(:'id', 'succeeded', '1');
SELECT * FROM probe.stored WHERE request_id = 'late';
SELECT outcome, status, response_body FROM idem_claim('late', scope => 'call');
SELECT token AS t FROM idem_claim('late-2', scope => 'call') \gset
SELECT call_id AS id FROM idem_call('late-2', 'mute', token => :t, scope => 'call') \gset
SELECT idem_finish('late-2', '2', token => :t, scope => 'call');
SET idempotency.test_clock = '2030-02-01 01:00:00';
-- a finished request does not turn
SELECT idem_call_finish(:'id', 'ambiguous');
SELECT * FROM probe.stored WHERE request_id = 'late-2';
-- a failed one that would run again does
SELECT token AS t FROM idem_claim('late-3', scope => 'call') \gset
SELECT call_id AS id FROM idem_call('late-3', 'mute', token => :t, scope => 'call') \gset
SELECT idem_fail('late-3', token => :t, scope => 'call', retry_after => '0');
SET idempotency.test_clock = '2030-02-01 02:00:00';
SELECT idem_call_finish(:'id', 'ambiguous'), idem_call_finish(:'id', 'ambiguous');
SELECT * FROM probe.stored WHERE request_id = 'late-3';
SELECT outcome FROM idem_claim('late-3', scope => 'call');

-- bad input
SELECT token AS t FROM idem_claim('bad', scope => 'call') \gset
SELECT probe.raises(format($$SELECT idem_call('bad', 'nobody', token => %s, scope => 'call')$$, :t));
SELECT probe.raises(format($$SELECT idem_call('bad', NULL, token => %s, scope => 'call')$$, :t));
SELECT probe.raises(format($$SELECT idem_call('bad', 'keyed', NULL, token => %s, scope => 'call')$$, :t));
SELECT probe.sqlstate(format($$SELECT idem_call('bad', 'keyed', repeat('x', 256), %s, 'call')$$, :t));
SELECT probe.sqlstate($$SELECT idem_call('', 'keyed')$$);
SELECT probe.sqlstate($$SELECT idem_call(NULL, 'keyed')$$);
SELECT probe.raises($$SELECT idem_call('absent', 'keyed', token => 1, scope => 'call')$$);
SELECT probe.raises($$SELECT idem_call_finish(NULL, 'succeeded')$$);
SELECT probe.raises($$SELECT idem_call_finish('x', NULL)$$);
SELECT probe.raises($$SELECT idem_call_finish('x', 'ok')$$);
SELECT probe.sqlstate($$SELECT idem_call_finish('x', 'review')$$), probe.sqlstate($$SELECT idem_call_finish('x', 'sent')$$);
SELECT probe.raises($$SELECT idem_call_finish('x', 'succeeded')$$);
BEGIN READ ONLY;
SELECT action FROM idem_call('bad', 'keyed', token => :t, scope => 'call');
ROLLBACK;
SELECT coalesce(calls, 0) AS calls FROM transaction_log WHERE request_id = 'bad';

-- one row, however it is called
SELECT (idem_call('bad', 'keyed', token => :t, scope => 'call')).action;
SELECT count(*) FROM idempotency_call WHERE request_id = 'bad';
SELECT c.action FROM generate_series(1, 3) n, idem_call('bad', 'keyed', 'op' || n % 2, :t, 'call') c;

-- a key that comes again sees no call of its earlier life
SELECT token AS t FROM idem_claim('again', scope => 'call', ttl => '1 h') \gset
SELECT call_id AS id FROM idem_call('again', 'keyed', token => :t, scope => 'call') \gset
SELECT idem_call_finish(:'id', 'succeeded', '"old"');
SELECT idem_finish('again', token => :t, scope => 'call');
SET idempotency.test_clock = '2030-02-01 03:00:00';
SELECT probe.raises(format($$SELECT idem_call_finish(%L, 'succeeded', '"old"')$$, :'id'));
SELECT outcome, attempt, token AS t FROM idem_claim('again', scope => 'call', ttl => '1 h') \gset
SELECT probe.sqlstate(format($$SELECT idem_call_finish(%L, 'succeeded', '"old"')$$, :'id'));
SELECT action, call_id <> :'id' AS another, attempt, response_body FROM idem_call('again', 'keyed', token => :t, scope => 'call');
SELECT count(*) FROM idempotency_call WHERE request_id = 'again';
-- released: only where no call is open
SELECT call_id AS id FROM idempotency_call WHERE request_id = 'again' \gset
SELECT probe.raises(format($$SELECT idem_release('again', %s, 'call')$$, :t));
SELECT idem_call_finish(:'id', 'failed', '"declined"');
SELECT idem_release('again', :t, 'call');
SELECT count(*) FROM idempotency_call WHERE request_id = 'again';
SELECT probe.sqlstate(format($$SELECT idem_call_finish(%L, 'succeeded')$$, :'id'));
SELECT token AS t FROM idem_claim('again', scope => 'call') \gset
SELECT action, call_id <> :'id' AS another, attempt FROM idem_call('again', 'keyed', token => :t, scope => 'call');
-- nor where one has succeeded and would be forgotten
SELECT call_id AS id FROM idempotency_call WHERE request_id = 'again' \gset
SELECT idem_call_finish(:'id', 'succeeded');
SELECT probe.sqlstate(format($$SELECT idem_release('again', %s, 'call')$$, :t));
SELECT idem_fail('again', token => :t, scope => 'call', retry_after => '0');
SELECT token AS t FROM idem_claim('again', scope => 'call') \gset
SELECT action FROM idem_call('again', 'keyed', token => :t, scope => 'call');
SELECT idem_release('again', :t, 'call');
SELECT token AS t FROM idem_claim('again', scope => 'call') \gset
SELECT action FROM idem_call('again', 'keyed', token => :t, scope => 'call');

-- a request with a call without an answer never expires: it becomes unknown
SELECT token AS t FROM idem_claim('never', scope => 'call', ttl => '1 h', lease => '1 min') \gset
SELECT call_id AS id FROM idem_call('never', 'keyed', token => :t, scope => 'call') \gset
SET idempotency.test_clock = '2031-01-01 00:00:00';
SELECT outcome FROM idem_claim('never', scope => 'call');
SELECT kind, provider, call_status, call_id = :'id' AS same FROM idem_review WHERE request_id = 'never';
-- its answer sets it free
SELECT idem_call_finish(:'id', 'succeeded', '"at last"');
SELECT count(*) FROM idem_review WHERE request_id = 'never';
SELECT outcome, attempt, token AS t FROM idem_claim('never', scope => 'call') \gset
SELECT :'outcome', :'attempt', action, call_id = :'id' AS same, response_body FROM idem_call('never', 'keyed', token => :t, scope => 'call');

DELETE FROM transaction_log WHERE scope = 'call';
DELETE FROM idempotency_call WHERE scope = 'call';
DELETE FROM idempotency_provider WHERE provider IN ('keyed', 'askable', 'mute', 'both', 'prompt');
DROP SCHEMA probe CASCADE;
