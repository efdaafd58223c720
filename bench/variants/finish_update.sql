TRUNCATE plain_log;
SELECT array_agg(gen_random_uuid()::text) AS ids, array_agg('{"order_id": 7}'::jsonb) AS bodies FROM generate_series(1, 20000) \gset
BEGIN;
INSERT INTO plain_log (token, life, created_at, due_at, claimed_xact, attempt, scope, request_id, claimed_by, ttl, lease, status, locked_until, expires_at)
SELECT 1796006064435289, 1796006064435289, now(), now() + '1 day', pg_current_xact_id(), 1, '', id, current_user, '1 day', '1 min', 'processing', now() + '1 min', now() + '1 day'
  FROM unnest(:'ids'::text[]) id ON CONFLICT DO NOTHING;
SELECT extract(epoch FROM clock_timestamp()) * 1000 AS started \gset
UPDATE plain_log l SET status = 'completed', completed_at = now(), expires_at = now() + ttl, locked_until = NULL, response_body = u.body
  FROM unnest(:'ids'::text[], :'bodies'::jsonb[]) u (id, body) WHERE l.scope = '' AND l.request_id = u.id;
SELECT extract(epoch FROM clock_timestamp()) * 1000 - :started;
ROLLBACK;
