-- External calls that only a person can settle, and who may do what.
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
CREATE ROLE regress_idem_pay;
CREATE ROLE regress_idem_desk;
CREATE ROLE regress_idem_other;
SELECT idem_grant('regress_idem_pay'), idem_grant('regress_idem_desk', true), idem_grant('regress_idem_other');
SELECT idem_provider('mute', false, false, '1 min'), idem_provider('keyed', true, false), idem_provider('askable', false, true);
SELECT idem_configure('review', history => true);
SELECT idem_configure('review/manual', on_lease_expiry => 'manual');
SELECT idem_configure('review/once', max_attempts => 1);
SELECT idem_configure('review/own', owner => 'regress_idem_pay');

CREATE FUNCTION probe.pass(span interval) RETURNS void
LANGUAGE sql AS $$
    SELECT set_config('idempotency.test_clock', (current_setting('idempotency.test_clock')::timestamptz + span)::text, false)
$$;
-- Brings a request to the point where a person is asked, in one transaction:
-- the call is made to look as if an earlier one had recorded it.
CREATE FUNCTION probe.to_review(key text, scope text = 'review', OUT token bigint, OUT call_id text)
LANGUAGE plpgsql AS $$
DECLARE
    action text;
BEGIN
    SELECT c.token INTO token FROM idem_claim(key, '{"pay": 1}', scope, lease => '1 h') c;
    SELECT c.call_id INTO call_id FROM idem_call(key, 'mute', token => token, scope => scope) c;
    UPDATE idempotency_call c SET sent_xact = '1' WHERE c.call_id = to_review.call_id;
    PERFORM probe.pass('1 min');
    SELECT c.action INTO action FROM idem_call(key, 'mute', token => token, scope => scope) c;
    IF action <> 'review' THEN
        RAISE 'not in review: %', action;
    END IF;
END
$$;
CREATE FUNCTION probe.state(key text, OUT request text, OUT reason text, OUT open_calls int, OUT calls text)
LANGUAGE sql AS $$
    SELECT l.status, l.reason, coalesce(l.open_calls, 0), string_agg(c.provider || ' ' || c.status, ', ' ORDER BY c.provider)
      FROM transaction_log l LEFT JOIN idempotency_call c USING (scope, request_id, life)
     WHERE l.request_id = key GROUP BY 1, 2, 3
$$;

-- succeeded: the request can be claimed again, and the call is done
SELECT token AS t, call_id AS id FROM probe.to_review('r1') \gset
SELECT * FROM probe.state('r1');
SELECT expires_at IS NULL AS never, due_at, token = :t AS same_token FROM transaction_log WHERE request_id = 'r1';
SELECT idem_call_finish(:'id', 'ambiguous');
SELECT idem_call_finish(:'id', 'succeeded', '{"receipt": 1}');
SELECT * FROM probe.state('r1');
SELECT count(*) FROM idem_review WHERE request_id = 'r1';
SELECT probe.sqlstate(format($$SELECT idem_finish('r1', token => %s, scope => 'review')$$, :t));
SELECT outcome, attempt, token AS t FROM idem_claim('r1', '{"pay": 1}', 'review') \gset
SELECT :'outcome', :'attempt', action, call_id = :'id' AS same, status, response_body FROM idem_call('r1', 'mute', token => :t, scope => 'review');
SELECT idem_finish('r1', '"paid"', token => :t, scope => 'review');
SELECT from_status, to_status, attempt FROM idempotency_history WHERE request_id = 'r1' ORDER BY token, to_status <> 'processing';
-- failed
SELECT token AS t, call_id AS id FROM probe.to_review('r2') \gset
SELECT idem_call_finish(:'id', 'failed', '"declined"');
SELECT outcome, token AS t FROM idem_claim('r2', scope => 'review') \gset
SELECT :'outcome', action, status, response_body FROM idem_call('r2', 'mute', token => :t, scope => 'review');
-- not_found, not_sent: sent again under the same id
SELECT token AS t, call_id AS id FROM probe.to_review('r3') \gset
SELECT idem_call_finish(:'id', 'not_found');
SELECT * FROM probe.state('r3');
SELECT token AS t FROM idem_claim('r3', scope => 'review') \gset
SELECT action, call_id = :'id' AS same, attempt, request_body FROM idem_call('r3', 'mute', token => :t, scope => 'review');
SELECT token AS t, call_id AS id FROM probe.to_review('r4') \gset
SELECT idem_call_finish(:'id', 'not_sent');
SELECT token AS t FROM idem_claim('r4', scope => 'review') \gset
SELECT action, call_id = :'id' AS same, attempt FROM idem_call('r4', 'mute', token => :t, scope => 'review');

-- by idem_resolve: the calls are settled with the request
SELECT call_id AS id FROM probe.to_review('r5') \gset
SELECT idem_resolve('r5', 'completed', '"by hand"', 201, 'review');
SELECT * FROM probe.state('r5');
SELECT outcome, response_code, response_body FROM idem_claim('r5', scope => 'review');
SELECT probe.sqlstate(format($$SELECT idem_call_finish(%L, 'failed')$$, :'id'));
SELECT call_id AS id FROM probe.to_review('r6') \gset
SELECT idem_resolve('r6', 'failed', '"no"', scope => 'review');
SELECT * FROM probe.state('r6');
SELECT call_id AS id FROM probe.to_review('r7') \gset
SELECT idem_resolve('r7', 'retry', scope => 'review');
SELECT * FROM probe.state('r7');
SELECT outcome, attempt, token AS t FROM idem_claim('r7', scope => 'review') \gset
SELECT :'outcome', :'attempt', action, call_id = :'id' AS same, attempt FROM idem_call('r7', 'mute', token => :t, scope => 'review');
-- answered calls stay as they are
SELECT token AS t FROM idem_claim('r8', scope => 'review', lease => '1 h') \gset
SELECT call_id AS id FROM idem_call('r8', 'keyed', token => :t, scope => 'review') \gset
SELECT idem_call_finish(:'id', 'succeeded', '1');
SELECT call_id AS id FROM idem_call('r8', 'mute', token => :t, scope => 'review') \gset
SELECT idem_resolve('r8', 'failed', scope => 'review', force => true);
SELECT * FROM probe.state('r8');

-- the holder may still end it himself
SELECT token AS t, call_id AS id FROM probe.to_review('r9') \gset
SELECT idem_finish('r9', '"seen in the books"', token => :t, scope => 'review');
SELECT * FROM probe.state('r9');
SELECT count(*) FROM idem_review WHERE request_id = 'r9';
SELECT idem_call_finish(:'id', 'succeeded');
SELECT * FROM probe.state('r9');
-- and if he only fails it, the next one meets the person's question again
SELECT token AS t, call_id AS id FROM probe.to_review('r10') \gset
SELECT idem_fail('r10', token => :t, scope => 'review', retry_after => '0');
SELECT outcome, token AS t FROM idem_claim('r10', scope => 'review') \gset
SELECT :'outcome', action FROM idem_call('r10', 'mute', token => :t, scope => 'review');
SELECT * FROM probe.state('r10');

-- two calls: the last one that only a person can settle sets the request free
SELECT token AS t FROM idem_claim('r11', scope => 'review', lease => '1 h') \gset
SELECT call_id AS a FROM idem_call('r11', 'mute', 'a', :t, 'review') \gset
SELECT call_id AS b FROM idem_call('r11', 'mute', 'b', :t, 'review') \gset
SELECT probe.pass('1 min');
SELECT idem_call_finish(:'a', 'ambiguous'), idem_call_finish(:'b', 'ambiguous');
SELECT request_id, kind, operation, call_status FROM idem_review WHERE request_id = 'r11' ORDER BY operation;
SELECT idem_call_finish(:'b', 'succeeded');
SELECT * FROM probe.state('r11');
SELECT idem_call_finish(:'a', 'failed');
SELECT * FROM probe.state('r11');
-- an open call that needs no person does not keep it
SELECT token AS t FROM idem_claim('r12', scope => 'review', lease => '1 h') \gset
SELECT call_id AS a FROM idem_call('r12', 'mute', token => :t, scope => 'review') \gset
SELECT call_id AS b FROM idem_call('r12', 'keyed', token => :t, scope => 'review') \gset
SELECT probe.pass('1 min');
SELECT idem_call_finish(:'a', 'ambiguous');
SELECT idem_call_finish(:'a', 'succeeded');
SELECT * FROM probe.state('r12');
SELECT outcome, token AS t FROM idem_claim('r12', scope => 'review') \gset
SELECT action FROM idem_call('r12', 'mute', token => :t, scope => 'review');
SELECT action, attempt FROM idem_call('r12', 'keyed', token => :t, scope => 'review');

-- what a person was asked for another reason stays with him
SELECT token AS t FROM idem_claim('m1', scope => 'review/manual', lease => '1 min') \gset
SELECT call_id AS id FROM idem_call('m1', 'mute', token => :t, scope => 'review/manual') \gset
SELECT probe.pass('1 min');
SELECT kind, call_status FROM idem_review WHERE request_id = 'm1';
SELECT idem_call_finish(:'id', 'ambiguous');
SELECT * FROM probe.state('m1');
SELECT idem_call_finish(:'id', 'succeeded');
SELECT * FROM probe.state('m1');
SELECT kind, call_status, settle_call FROM idem_review WHERE request_id = 'm1';
SELECT idem_resolve('m1', 'completed', scope => 'review/manual');
-- a review grants the attempt that it takes to go on
SELECT token AS t, call_id AS id FROM probe.to_review('o1', 'review/once') \gset
SELECT idem_call_finish(:'id', 'succeeded');
SELECT outcome, attempt FROM idem_claim('o1', scope => 'review/once');

-- who may
SET ROLE regress_idem_pay;
SELECT probe.sqlstate($$SELECT idem_provider('x', true, true)$$);
SELECT token AS t FROM idem_claim('p1', scope => 'review/own', lease => '1 h') \gset
SELECT action, call_id AS id FROM idem_call('p1', 'mute', token => :t, scope => 'review/own') \gset
-- that a provider which cannot be asked does not know a call, only a person can say
SELECT r FROM probe.raises(format($$SELECT idem_call_finish(%L, 'not_found')$$, :'id')) r;
SELECT idem_call_finish(:'id', 'not_sent');
SELECT action, call_id = :'id' AS same FROM idem_call('p1', 'mute', token => :t, scope => 'review/own');
RESET ROLE;
SELECT probe.pass('1 min');
SET ROLE regress_idem_pay;
SELECT action FROM idem_call('p1', 'mute', token => :t, scope => 'review/own');
SELECT count(*) FROM idem_review WHERE request_id = 'p1';
SELECT r FROM probe.raises(format($$SELECT idem_call_finish(%L, 'succeeded')$$, :'id')) r;
SELECT probe.sqlstate(format($$SELECT idem_call_finish(%L, 'not_sent')$$, :'id'));
SELECT idem_call_finish(:'id', 'ambiguous');
-- a closed scope and an unknown id are refused alike
SET ROLE regress_idem_other;
SELECT r FROM probe.raises(format($$SELECT idem_call_finish(%L, 'succeeded')$$, :'id')) r;
SELECT r FROM probe.raises($$SELECT idem_call_finish('01ARZ3NDEKTSV4RRFFQ69G5FAV', 'succeeded')$$) r;
SELECT probe.sqlstate(format($$SELECT idem_call('p1', 'mute', token => %s, scope => 'review/own')$$, :t));
SELECT probe.sqlstate($$SELECT idem_call('p1', 'nobody', token => 1, scope => 'review/own')$$);
SELECT count(*) FROM idem_review WHERE request_id = 'p1';
SET ROLE regress_idem_desk;
SELECT probe.sqlstate(format($$SELECT idem_call_finish(%L, 'succeeded')$$, :'id'));
RESET ROLE;
GRANT regress_idem_pay TO regress_idem_desk;
SET ROLE regress_idem_desk;
SELECT idem_call_finish(:'id', 'succeeded');
RESET ROLE;
SELECT * FROM probe.state('p1');
-- the tables are nobody's
SET ROLE regress_idem_desk;
SELECT probe.sqlstate($$SELECT count(*) FROM idempotency_call$$), probe.sqlstate($$SELECT count(*) FROM idempotency_provider$$);
RESET ROLE;

SELECT idem_unconfigure('review'), idem_unconfigure('review/manual'), idem_unconfigure('review/once'), idem_unconfigure('review/own');
DELETE FROM transaction_log WHERE scope LIKE 'review%';
DELETE FROM idempotency_call WHERE scope LIKE 'review%';
DELETE FROM idempotency_history WHERE scope LIKE 'review%';
DELETE FROM idempotency_provider WHERE provider IN ('keyed', 'askable', 'mute');
DROP SCHEMA probe CASCADE;
DROP OWNED BY regress_idem_pay, regress_idem_desk, regress_idem_other;
DROP ROLE regress_idem_pay, regress_idem_desk, regress_idem_other;
