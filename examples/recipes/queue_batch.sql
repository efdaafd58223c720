-- Many messages in one transaction, where one of them may fail: it must neither
-- hold up the others nor be lost.
CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL CHECK (balance >= 0));
CREATE TABLE dead_letter (message_id text, reason text);
INSERT INTO account VALUES (1, 100);

-- One call tells the new messages from the known ones.  Each is handled in a
-- block of its own, which is a savepoint.  What fails is undone there and taken
-- out of the inbox again: its redelivery will be new.
CREATE FUNCTION consume_batch(ids text[], amounts int[])
RETURNS TABLE (message_id text, result text) LANGUAGE plpgsql AS $$
BEGIN
    FOR message_id IN SELECT * FROM idem_once_many(ids, 'payments') LOOP
        BEGIN
            UPDATE account SET balance = balance - amounts[array_position(ids, message_id)] WHERE id = 1;
            result := 'handled';
        EXCEPTION WHEN check_violation THEN
            PERFORM idem_once_undo(ARRAY[message_id], 'payments');
            result := 'failed, to be redelivered';
        END;
        RETURN NEXT;
    END LOOP;
END $$;

SELECT * FROM consume_batch('{m-1,m-2,m-3,m-1}', '{30,500,20,30}');
SELECT balance FROM account;
-- Money comes in, the queue redelivers everything it has no acknowledgement for.
UPDATE account SET balance = balance + 1000;
SELECT * FROM consume_batch('{m-1,m-2,m-3}', '{30,500,20}');
SELECT balance FROM account;
