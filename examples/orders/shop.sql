-- The shop: its tables, and the code that answers POST /orders.
--
-- Nothing but the idempotency key keeps an order from being placed twice: the
-- tables have no unique constraint that would do it instead.

CREATE EXTENSION idempotency;

-- Keys belong to a customer: two customers may use the same one.  Replayed for
-- a day; a claim without a sign of life is taken over after 30 seconds.
SELECT idem_configure('orders', ttl => '24 hours', lease => '30 seconds');

CREATE SCHEMA shop;

CREATE TABLE shop.item (item text PRIMARY KEY, price numeric(8,2) NOT NULL);
INSERT INTO shop.item VALUES
	('tea', 4.90), ('coffee', 7.50), ('cup', 12.00), ('kettle', 49.00),
	('spoon', 3.20), ('filter', 2.10), ('sugar', 1.80), ('tray', 18.50);

CREATE TABLE shop.orders (
	order_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	scope text NOT NULL,
	key text NOT NULL,
	item text NOT NULL REFERENCES shop.item,
	quantity int NOT NULL CHECK (quantity > 0),
	amount numeric(10,2) NOT NULL,
	charge_id bigint			-- at the card service; NULL: by invoice
);
CREATE TABLE shop.invoice (
	order_id bigint NOT NULL REFERENCES shop.orders,
	amount numeric(10,2) NOT NULL
);

-- What one request is answered with.
CREATE TYPE shop.reply AS (
	outcome text, http int, retry_after int, body jsonb, note text,
	token bigint				-- outcome "claimed" only: go on, then finish
);

CREATE FUNCTION shop.scope(body jsonb) RETURNS text LANGUAGE sql IMMUTABLE
	RETURN 'orders/' || (body->>'customer');

CREATE FUNCTION shop.amount(body jsonb) RETURNS numeric LANGUAGE sql STABLE
BEGIN ATOMIC
	SELECT i.price * (body->>'quantity')::int FROM shop.item i WHERE i.item = body->>'item';
END;

-- From the answer of idem_claim to that of HTTP; not for outcome "claimed".
CREATE FUNCTION shop.reply(c record) RETURNS shop.reply LANGUAGE plpgsql AS $$
DECLARE
	wait_s int := ceil(extract(epoch FROM c.retry_after));
BEGIN
	CASE c.outcome
		WHEN 'replay' THEN
			RETURN ROW(c.outcome, c.response_code, NULL, c.response_body, NULL, NULL)::shop.reply;
		WHEN 'mismatch' THEN
			RETURN ROW(c.outcome, 422, NULL, NULL,
					   'differs in ' || array_to_string(c.differs, ', '), NULL)::shop.reply;
		WHEN 'in_progress' THEN
			RETURN ROW(c.outcome, CASE c.status WHEN 'failed' THEN 503 ELSE 409 END,
					   coalesce(wait_s, 1), NULL, NULL, NULL)::shop.reply;
		WHEN 'unknown' THEN
			RETURN ROW(c.outcome, 409, NULL, NULL, NULL, NULL)::shop.reply;
	END CASE;
END
$$;

-- A request without a usable key is refused before anything else.
CREATE FUNCTION shop.is_bad_key(key text) RETURNS boolean LANGUAGE sql IMMUTABLE
	RETURN coalesce(key, '') = '' OR length(key) > 255;

-- ---- first way: one transaction --------------------------------------------
-- By invoice: all that happens is in this database.  Claim, order, invoice and
-- result are committed together or not at all.
CREATE FUNCTION shop.order_by_invoice(key text, body jsonb, wait interval DEFAULT '0')
RETURNS shop.reply LANGUAGE plpgsql AS $$
DECLARE
	scope text := shop.scope(body);
	c record;
	new_id bigint;
	response jsonb;
BEGIN
	IF shop.is_bad_key(key) THEN
		RETURN ROW('no key', 400, NULL, NULL, NULL, NULL)::shop.reply;
	END IF;

	SELECT * INTO c FROM idem_claim(key, body, scope => scope, wait => wait);
	IF c.outcome <> 'claimed' THEN
		RETURN shop.reply(c);
	END IF;

	INSERT INTO shop.orders (scope, key, item, quantity, amount)
		VALUES (scope, key, body->>'item', (body->>'quantity')::int, shop.amount(body))
		RETURNING order_id INTO new_id;
	INSERT INTO shop.invoice VALUES (new_id, shop.amount(body));

	response := jsonb_build_object('order_id', new_id);
	PERFORM idem_finish(key, response, 201, scope => scope);
	RETURN ROW('done', 201, NULL, response, NULL, NULL)::shop.reply;
END
$$;

-- ---- second way: two transactions ------------------------------------------
-- By card: the charge is made at a service outside, between the two.  First
-- transaction: the claim.  Its token goes along with the work.
CREATE FUNCTION shop.start_card_order(key text, body jsonb, wait interval DEFAULT '0')
RETURNS shop.reply LANGUAGE plpgsql AS $$
DECLARE
	c record;
BEGIN
	IF shop.is_bad_key(key) THEN
		RETURN ROW('no key', 400, NULL, NULL, NULL, NULL)::shop.reply;
	END IF;

	SELECT * INTO c FROM idem_claim(key, body, scope => shop.scope(body), wait => wait);
	IF c.outcome <> 'claimed' THEN
		RETURN shop.reply(c);
	END IF;
	RETURN ROW('claimed', NULL, NULL, NULL,
			   CASE WHEN c.attempt > 1 THEN 'attempt ' || c.attempt END, c.token)::shop.reply;
END
$$;

-- Second transaction: order and result.  Where the claim was taken over in the
-- meantime, idem_finish raises ID001 and the order is rolled back with it.
CREATE FUNCTION shop.finish_card_order(key text, body jsonb, token bigint, charge_id bigint)
RETURNS shop.reply LANGUAGE plpgsql AS $$
DECLARE
	scope text := shop.scope(body);
	new_id bigint;
	response jsonb;
BEGIN
	INSERT INTO shop.orders (scope, key, item, quantity, amount, charge_id)
		VALUES (scope, key, body->>'item', (body->>'quantity')::int, shop.amount(body), charge_id)
		RETURNING order_id INTO new_id;
	response := jsonb_build_object('order_id', new_id);
	PERFORM idem_finish(key, response, 201, token => token, scope => scope);
	RETURN ROW('done', 201, NULL, response, NULL, NULL)::shop.reply;
END
$$;

-- The card was declined: that is the result, and it is replayed.
CREATE FUNCTION shop.decline_card_order(key text, body jsonb, token bigint)
RETURNS shop.reply LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_fail(key, '{"error": "card declined"}', 402, token => token,
					  scope => shop.scope(body), final => true);
	RETURN ROW('failed', 402, NULL, NULL, 'card declined', NULL)::shop.reply;
END
$$;

-- The card service was certainly not reached: the next attempt may run in 30 s.
CREATE FUNCTION shop.postpone_card_order(key text, body jsonb, token bigint)
RETURNS shop.reply LANGUAGE plpgsql AS $$
BEGIN
	PERFORM idem_fail(key, '{"error": "card service is down"}', token => token,
					  scope => shop.scope(body), retry_after => '30 seconds');
	RETURN ROW('failed', 503, 30, NULL, 'card service is down', NULL)::shop.reply;
END
$$;

-- ---- the card service ------------------------------------------------------
-- Stands for somebody else's system: reached by a connection of its own, and
-- what it did is not undone by our rollback.  Like most such services it takes
-- a reference and charges once per reference.
CREATE SCHEMA card_service;
CREATE TABLE card_service.charge (
	charge_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	reference text NOT NULL UNIQUE,
	amount numeric(10,2) NOT NULL,
	asked int NOT NULL DEFAULT 1
);

-- NULL: declined.
CREATE FUNCTION card_service.charge(reference text, amount numeric, card text)
RETURNS bigint LANGUAGE sql AS $$
	INSERT INTO card_service.charge AS c (reference, amount)
	SELECT $1, $2 WHERE $3 IS DISTINCT FROM 'expired'
	ON CONFLICT (reference) DO UPDATE SET asked = c.asked + 1
	RETURNING charge_id
$$;

-- ---- the requests ----------------------------------------------------------
CREATE TABLE shop.request (
	line int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	request jsonb NOT NULL
);
CREATE VIEW shop.arrival AS
	SELECT r.line, a.n, a.at, a.worker, a.key, a.body, a.event
	  FROM shop.request r
	 CROSS JOIN LATERAL jsonb_to_record(r.request)
	 	   AS a(n int, at timestamptz, worker int, key text, body jsonb, event text);

-- ---- the accounts at the end -----------------------------------------------
CREATE VIEW shop.summary AS
WITH placed AS (
	SELECT o.order_id, o.amount,
		   coalesce((SELECT array_agg(i.amount) FROM shop.invoice i WHERE i.order_id = o.order_id), '{}')
		|| coalesce((SELECT array_agg(c.amount) FROM card_service.charge c WHERE c.reference = o.scope || ' ' || o.key), '{}')
		   AS charged
	  FROM shop.orders o
), wanted AS (
	SELECT shop.scope(a.body) AS scope, a.key, min(a.n) AS n
	  FROM shop.arrival a WHERE coalesce(a.key, '') <> '' GROUP BY 1, 2
)
SELECT what, number FROM (VALUES
	(1, 'requests', (SELECT count(DISTINCT n) FROM shop.arrival)),
	(2, 'of these without a key', (SELECT count(DISTINCT n) FROM shop.arrival WHERE coalesce(key, '') = '')),
	(3, 'distinct orders wanted (keys)', (SELECT count(*) FROM wanted)),
	(4, 'of these declined for good', (SELECT count(*) FROM idem_log WHERE status = 'failed')),
	(5, 'of these placed', (SELECT count(*) FROM idem_log WHERE status = 'completed')),
	(6, 'rows in orders', (SELECT count(*) FROM shop.orders)),
	(7, 'orders charged exactly once', (SELECT count(*) FROM placed WHERE charged = ARRAY[amount])),
	(8, 'orders charged otherwise', (SELECT count(*) FROM placed WHERE charged <> ARRAY[amount])),
	(9, 'card charges without an order', (SELECT count(*) FROM card_service.charge c
		WHERE NOT EXISTS (SELECT FROM shop.orders o WHERE o.charge_id = c.charge_id))),
	(10, 'charges that were asked for again', (SELECT count(*) FROM card_service.charge WHERE asked > 1))
) AS s(position, what, number)
ORDER BY position;
