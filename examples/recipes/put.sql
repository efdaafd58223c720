-- PUT replaces a resource: to repeat it is harmless, as long as nobody else has
-- replaced it in between.  With a key a late repeat does not undo what came
-- after it, and gets the answer of the first time.
CREATE TABLE document (path text PRIMARY KEY, body jsonb NOT NULL);

CREATE FUNCTION put(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    is_new boolean;
BEGIN
    INSERT INTO document VALUES (body ->> 'path', body -> 'content')
    ON CONFLICT (path) DO UPDATE SET body = excluded.body
    RETURNING xmax = 0 INTO is_new;
    -- The handler chooses the code itself, and so wins over what it returns.
    PERFORM idem_finish(c.request_id, body -> 'content', CASE WHEN is_new THEN 201 ELSE 200 END, scope => c.scope)
       FROM idem_current() c;
    RETURN NULL;
END $$;

SELECT outcome, response_code, response_body FROM idem_run('put-1', '{"path": "/a", "content": {"v": 1}}', 'put', scope => 'documents');
SELECT outcome, response_code, response_body FROM idem_run('put-2', '{"path": "/a", "content": {"v": 2}}', 'put', scope => 'documents');
-- The first one again, late: a plain PUT would bring version 1 back.
SELECT outcome, response_code, response_body FROM idem_run('put-1', '{"path": "/a", "content": {"v": 1}}', 'put', scope => 'documents');
SELECT * FROM document;
