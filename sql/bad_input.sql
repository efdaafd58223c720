-- Bad arguments: an error, and nothing written.
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

CREATE TABLE probe.calls (n int GENERATED ALWAYS AS IDENTITY, call text);
INSERT INTO probe.calls (call) VALUES
    ('idem_claim(NULL)'), ('idem_claim('''')'), ('idem_claim(repeat(''k'', 256))'),
    ('idem_claim(''bad'', scope => NULL)'), ('idem_claim(''bad'', scope => repeat(''s'', 256))'),
    ('idem_claim(''bad'', ttl => ''0'')'), ('idem_claim(''bad'', ttl => ''-1s'')'),
    ('idem_claim(''bad'', ttl => ''1 month -31 days'')'), ('idem_claim(''bad'', ttl => ''-1 month'')'),
    ('idem_claim(''bad'', lease => ''0'')'), ('idem_claim(''bad'', lease => ''-1 day'')'),
    ('idem_claim(''bad'', wait => ''-1 ms'')'), ('idem_claim(''bad'', wait => ''-1 day'')'),
    ('idem_lookup(NULL)'), ('idem_lookup('''')'), ('idem_lookup(repeat(''k'', 256))'),
    ('idem_lookup(''bad'', NULL)'), ('idem_lookup(''bad'', repeat(''s'', 256))'),
    ('idem_finish(NULL)'), ('idem_finish('''')'), ('idem_finish(repeat(''k'', 256))'), ('idem_finish(''bad'', scope => NULL)'), ('idem_finish(''bad'', scope => repeat(''s'', 256))'),
    ('idem_fail(NULL)'), ('idem_fail('''')'), ('idem_fail(repeat(''k'', 256))'), ('idem_fail(''bad'', scope => NULL)'),
    ('idem_fail(''bad'', retry_after => ''-1s'')'),
    ('idem_release(NULL)'), ('idem_release('''')'), ('idem_release(repeat(''k'', 256))'), ('idem_release(''bad'', scope => NULL)'),
    ('idem_extend(NULL)'), ('idem_extend('''')'), ('idem_extend(repeat(''k'', 256))'), ('idem_extend(''bad'', scope => NULL)'),
    ('idem_extend(''bad'', ''0'')'), ('idem_extend(''bad'', ''-1s'')'),
    ('idem_resolve(NULL, ''failed'')'), ('idem_resolve('''', ''failed'')'), ('idem_resolve(repeat(''k'', 256), ''failed'')'),
    ('idem_resolve(''bad'', ''failed'', scope => NULL)'), ('idem_resolve(''bad'', NULL)'), ('idem_resolve(''bad'', '''')'),
    ('idem_grant(NULL)'), ('idem_revoke(NULL)'),
    ('idem_backoff(0)'), ('idem_backoff(-1)'), ('idem_backoff(1, ''0'')'), ('idem_backoff(1, ''-1s'')'),
    ('idem_backoff(1, ''1s'', ''0'')'), ('idem_backoff(1, ''1s'', ''1s'', ''some'')');
SELECT c.call, r.lines[1] AS error, r.lines[2] ~ '^  hint: .+\.$' AS has_hint
  FROM probe.calls c CROSS JOIN LATERAL (SELECT array_agg(l) FROM probe.raises('SELECT ' || c.call) l) r (lines)
 ORDER BY c.n;
SELECT count(*) AS nothing_written FROM transaction_log WHERE request_id IN ('', 'bad') OR length(request_id) > 255;

-- the same for a transaction that already claimed
BEGIN;
SELECT outcome FROM idem_claim('bad-1');
SAVEPOINT s;
SELECT probe.sqlstate('SELECT idem_extend(''bad-1'', ''0'')');
SELECT probe.sqlstate('SELECT idem_fail(''bad-1'', retry_after => ''-1s'')');
SELECT idem_finish('bad-1');
COMMIT;
SELECT status FROM idem_lookup('bad-1');

-- what just fits
SELECT outcome FROM idem_claim(repeat('k', 255), scope => repeat('s', 255));
SELECT outcome FROM idem_claim(repeat('k', 255), scope => repeat('s', 255));
SELECT idem_finish(request_id, '1', token => token, scope => scope) FROM transaction_log WHERE request_id = repeat('k', 255);
SELECT outcome, response_body FROM idem_claim(repeat('k', 255), scope => repeat('s', 255));
SELECT outcome FROM idem_claim('bad- ');
SELECT outcome FROM idem_claim(' ');
SELECT outcome FROM idem_claim(E'bad-\n\t');
SELECT outcome FROM idem_claim('bad-''"\%_;--');
SELECT status FROM idem_lookup('bad-''"\%_;--');
SELECT outcome FROM idem_claim('bad-2', ttl => '1 us', lease => '1 us', wait => '0');
SELECT outcome FROM idem_claim('bad-3', ttl => '1 month -29 days', lease => '1 month -29 days');
-- intervals that leave the range of time: the server's own error, or for ever
SELECT probe.sqlstate('SELECT idem_claim(''bad-4'', lease => ''178000000 years'')') AS never_over;
SELECT probe.sqlstate('SELECT idem_claim(''bad-5'', ttl => ''178000000 years'')') AS never_over;
SELECT probe.sqlstate('SELECT idem_claim(''bad-6'', ttl => ''2562047788 hours'', lease => ''2562047788 hours'')') AS never_over;
SELECT outcome FROM idem_claim('bad-7', wait => '178000000 years');

DELETE FROM transaction_log WHERE request_id LIKE 'bad-%' OR request_id IN (' ', repeat('k', 255));
DROP SCHEMA probe CASCADE;
