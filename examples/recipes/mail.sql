-- Sending mail once.  A mail cannot be rolled back, so it is not sent in the
-- transaction that decides on it: that one only writes the mail down, once, and
-- a sender takes it from there.
CREATE TABLE outbox (mail_id text PRIMARY KEY, recipient text, body text, sent_at timestamptz);

CREATE FUNCTION confirm_order(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    -- ... the business of the order ...
    INSERT INTO outbox SELECT 'confirm/' || request_id, body ->> 'mail', 'Thank you.' FROM idem_current();
    RETURN '{"confirmed": true}';
END $$;

SELECT outcome FROM idem_run('order-9', '{"mail": "ann@example.com"}', 'confirm_order', scope => 'shop');
SELECT outcome FROM idem_run('order-9', '{"mail": "ann@example.com"}', 'confirm_order', scope => 'shop');

-- The sender claims a mail, COMMITs, sends, and finishes.  Two senders never
-- send the same mail at the same time.
SELECT mail_id FROM outbox WHERE sent_at IS NULL \gset
SELECT outcome, token FROM idem_claim(:'mail_id', scope => 'mail', lease => '2 minutes') \gset
\echo :outcome
-- ... the mail is sent here ...
BEGIN;
UPDATE outbox SET sent_at = now() WHERE mail_id = :'mail_id';
SELECT idem_finish(:'mail_id', token => :token, scope => 'mail');
COMMIT;
SELECT outcome, status FROM idem_claim(:'mail_id', scope => 'mail');
SELECT count(*) AS unsent FROM outbox WHERE sent_at IS NULL;
