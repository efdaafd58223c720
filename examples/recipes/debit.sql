-- A relative change ("take 30 off") is not idempotent: done twice, it takes 60.
-- With a key it becomes an absolute one ("this debit has been made").
CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL CHECK (balance >= 0));
CREATE TABLE entry (request_id text, account int, amount int, balance int);
INSERT INTO account VALUES (1, 100);

CREATE FUNCTION debit(body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    rest int;
BEGIN
    UPDATE account SET balance = balance - (body ->> 'amount')::int
     WHERE id = (body ->> 'account')::int RETURNING balance INTO STRICT rest;
    INSERT INTO entry SELECT request_id, (body ->> 'account')::int, (body ->> 'amount')::int, rest FROM idem_current();
    RETURN jsonb_build_object('balance', rest);
END $$;

SELECT outcome, response_body FROM idem_run('debit-1', '{"account": 1, "amount": 30}', 'debit', scope => 'bank');
-- The client did not hear the answer and asks again.
SELECT outcome, response_body FROM idem_run('debit-1', '{"account": 1, "amount": 30}', 'debit', scope => 'bank');
-- The same key for another amount is a mistake, and nothing happens.
SELECT outcome FROM idem_run('debit-1', '{"account": 1, "amount": 40}', 'debit', scope => 'bank');
-- Not enough money: as a result, so that a repeat is told the same.
SELECT outcome, status, response_body ->> 'sqlstate' AS sqlstate
  FROM idem_run('debit-2', '{"account": 1, "amount": 400}', 'debit', scope => 'bank', on_error => 'record');
UPDATE account SET balance = 1000;
SELECT outcome, status, response_body ->> 'sqlstate' AS sqlstate
  FROM idem_run('debit-2', '{"account": 1, "amount": 400}', 'debit', scope => 'bank', on_error => 'record');
SELECT * FROM entry;
