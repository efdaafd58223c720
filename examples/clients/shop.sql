-- Tables of the shop of the examples, and its rules.
CREATE EXTENSION IF NOT EXISTS idempotency;
CREATE TABLE tenants (
	name text PRIMARY KEY CHECK (name ~ '^[a-z]+$'),	-- a part of scopes
	api_key_hash bytea NOT NULL UNIQUE
);
CREATE TABLE orders (
	id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	tenant text NOT NULL DEFAULT 'counter',
	item text NOT NULL,
	quantity int NOT NULL
);
CREATE TABLE labels (
	id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	content bytea NOT NULL
);
CREATE TABLE payments (
	id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	amount numeric NOT NULL,
	charge text NOT NULL
);
INSERT INTO tenants
SELECT name, sha256(convert_to(name || '-key', 'UTF8'))
  FROM unnest(ARRAY['acme', 'globex']) AS name;
SELECT idem_configure('shop', ttl => '2 days', lease => '1 minute');

-- The application's role: no table of the extension, no superuser.
CREATE ROLE shop_app LOGIN;
SELECT idem_grant('shop_app');
GRANT SELECT ON tenants TO shop_app;
GRANT SELECT, INSERT ON orders, labels, payments TO shop_app;
