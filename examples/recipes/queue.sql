-- A consumer of a queue that delivers at least once.  Here the queue is a table
-- of deliveries; in yours it is whatever hands you a message with an id.
CREATE TABLE delivery (n int GENERATED ALWAYS AS IDENTITY, message_id text, amount int);
CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL CHECK (balance >= 0));
INSERT INTO account VALUES (1, 100);
-- The producer repeats what it is not sure about.
INSERT INTO delivery (message_id, amount) VALUES ('m-1', 30), ('m-2', 20), ('m-1', 30);

-- One message, one transaction: record it, do the work, COMMIT, acknowledge.
-- A crash before the COMMIT undoes both; the redelivery is new again.
CREATE FUNCTION consume(message_id text, amount int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF NOT idem_once(message_id, 'payments') THEN
        RETURN 'seen';
    END IF;
    UPDATE account SET balance = balance - amount WHERE id = 1;
    RETURN 'handled';
END $$;

SELECT n, message_id, consume(message_id, amount) FROM delivery ORDER BY n;
SELECT balance FROM account;
-- A day later, the queue redelivers all of it.
SELECT n, message_id, consume(message_id, amount) FROM delivery ORDER BY n;
SELECT balance FROM account;
