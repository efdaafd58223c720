-- conditional writes: rights of the caller, row security, hostile names
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;
DROP ROLE IF EXISTS regress_cr_clerk, regress_cr_other;
RESET client_min_messages;
CREATE ROLE regress_cr_clerk;
CREATE ROLE regress_cr_other;
\set VERBOSITY terse

-- nobody has the functions unasked
CREATE TABLE cr_orders (id int PRIMARY KEY, owner text DEFAULT current_user, status text, secret text DEFAULT 'x');
SET ROLE regress_cr_clerk;
SELECT outcome FROM idem_insert('cr_orders', '{"id": 1}');
SELECT outcome FROM idem_upsert('cr_orders', '{"id": 1}');
RESET ROLE;
GRANT EXECUTE ON FUNCTION idem_insert, idem_upsert TO regress_cr_clerk, regress_cr_other;

-- rights on the table are the caller's
SET ROLE regress_cr_clerk;
SELECT outcome FROM idem_insert('cr_orders', '{"id": 1}');
RESET ROLE;
GRANT SELECT ON cr_orders TO regress_cr_clerk;
SET ROLE regress_cr_clerk;
SELECT outcome FROM idem_insert('cr_orders', '{"id": 1}');
RESET ROLE;
GRANT INSERT ON cr_orders TO regress_cr_clerk;
SET ROLE regress_cr_clerk;
SELECT outcome, stored FROM idem_insert('cr_orders', '{"id": 1, "status": "new"}');
SELECT outcome FROM idem_upsert('cr_orders', '{"id": 1, "status": "new"}');
SELECT outcome FROM idem_upsert('cr_orders', '{"id": 1, "status": "paid"}');
RESET ROLE;
-- a plan does not outlive the right, nor the role
GRANT UPDATE ON cr_orders TO regress_cr_clerk;
SET ROLE regress_cr_clerk;
SELECT outcome FROM idem_upsert('cr_orders', '{"id": 1, "status": "paid"}');
SET ROLE regress_cr_other;
SELECT outcome FROM idem_upsert('cr_orders', '{"id": 1, "status": "paid"}');
RESET ROLE;
REVOKE ALL ON cr_orders FROM regress_cr_clerk;
SET ROLE regress_cr_clerk;
SELECT outcome FROM idem_insert('cr_orders', '{"id": 1, "status": "new"}');
RESET ROLE;
-- rights by membership
GRANT SELECT, INSERT, UPDATE ON cr_orders TO regress_cr_other;
GRANT regress_cr_other TO regress_cr_clerk;
SET ROLE regress_cr_clerk;
SELECT outcome, stored FROM idem_insert('cr_orders', '{"id": 1, "status": "paid"}');
RESET ROLE;
REVOKE regress_cr_other FROM regress_cr_clerk;
SET ROLE regress_cr_clerk;
SELECT outcome FROM idem_insert('cr_orders', '{"id": 1, "status": "paid"}');
RESET ROLE;

-- rights on columns: the stored row has those that the caller may read
GRANT SELECT (id, status, owner), INSERT (id, status), UPDATE (status) ON cr_orders TO regress_cr_clerk;
SET ROLE regress_cr_clerk;
SELECT outcome, stored FROM idem_insert('cr_orders', '{"id": 2, "status": "new"}');
SELECT outcome, stored FROM idem_insert('cr_orders', '{"id": 2, "status": "new"}');
SELECT outcome, stored FROM idem_upsert('cr_orders', '{"id": 2, "status": "paid"}');
SELECT outcome, stored FROM idem_upsert('cr_orders', '{"id": 2, "status": "paid"}');
SELECT outcome FROM idem_insert('cr_orders', '{"id": 2, "secret": "guess"}');
SELECT outcome FROM idem_upsert('cr_orders', '{"id": 2, "status": "paid", "secret": "guess"}', '{status}');
SELECT outcome FROM idem_upsert('cr_orders', '{"id": 2, "owner": "me"}');
RESET ROLE;
GRANT SELECT (secret) ON cr_orders TO regress_cr_clerk;
SET ROLE regress_cr_clerk;
SELECT outcome, stored FROM idem_insert('cr_orders', '{"id": 2, "status": "paid"}');
RESET ROLE;

-- row security: reading, inserting, updating
CREATE TABLE cr_tenants (id int PRIMARY KEY, tenant text, v int);
ALTER TABLE cr_tenants ENABLE ROW LEVEL SECURITY;
CREATE POLICY cr_own ON cr_tenants USING (tenant = current_user) WITH CHECK (tenant = current_user);
GRANT SELECT, INSERT, UPDATE ON cr_tenants TO regress_cr_clerk, regress_cr_other;
SET ROLE regress_cr_clerk;
SELECT outcome FROM idem_insert('cr_tenants', '{"id": 1, "tenant": "regress_cr_clerk", "v": 1}');
SELECT outcome FROM idem_insert('cr_tenants', '{"id": 1, "tenant": "regress_cr_clerk", "v": 1}');
SELECT outcome FROM idem_insert('cr_tenants', '{"id": 2, "tenant": "regress_cr_other", "v": 1}');
SELECT outcome FROM idem_upsert('cr_tenants', '{"id": 1, "tenant": "regress_cr_clerk", "v": 2}');
SELECT outcome FROM idem_upsert('cr_tenants', '{"id": 1, "tenant": "regress_cr_other"}');
SET ROLE regress_cr_other;
-- a row that is hidden is neither shown nor taken for absent
SELECT outcome, stored FROM idem_insert('cr_tenants', '{"id": 1, "tenant": "regress_cr_other", "v": 1}');
SELECT outcome, stored FROM idem_upsert('cr_tenants', '{"id": 1, "tenant": "regress_cr_other", "v": 1}');
RESET ROLE;
TABLE cr_tenants;
-- visible but not to be updated
CREATE POLICY cr_read ON cr_tenants FOR SELECT USING (true);
SET ROLE regress_cr_other;
SELECT outcome, stored FROM idem_insert('cr_tenants', '{"id": 1, "tenant": "regress_cr_other", "v": 1}');
SELECT outcome, stored FROM idem_upsert('cr_tenants', '{"id": 1, "tenant": "regress_cr_other", "v": 1}');
RESET ROLE;
DROP POLICY cr_read ON cr_tenants;

-- roles in turn, a hundred times: each sees its own rows only
INSERT INTO cr_tenants VALUES (3, 'regress_cr_other', 3);
DO $$
DECLARE
    wrong int := 0;
    answer text;
BEGIN
    FOR i IN 1 .. 100 LOOP
        EXECUTE format('SET LOCAL ROLE %I', CASE i % 2 WHEN 0 THEN 'regress_cr_clerk' ELSE 'regress_cr_other' END);
        BEGIN
            SELECT outcome INTO answer FROM idem_insert('cr_tenants', jsonb_build_object('id', 3, 'tenant', current_user, 'v', 3));
        EXCEPTION WHEN insufficient_privilege THEN
            answer := 'hidden';
        END;
        IF (i % 2 = 0) <> (answer = 'hidden') OR (i % 2 = 1) <> (answer = 'exists') THEN
            wrong := wrong + 1;
        END IF;
    END LOOP;
    RESET ROLE;
    RAISE NOTICE 'wrong answers: %', wrong;
END $$;
-- inside a security definer function the caller is its owner
CREATE FUNCTION cr_definer(id int) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT outcome FROM idem_insert('public.cr_tenants', jsonb_build_object('id', id, 'tenant', 'regress_cr_clerk', 'v', 2));
$$;
SET ROLE regress_cr_other;
SELECT cr_definer(1);
SELECT outcome FROM idem_insert('cr_tenants', '{"id": 1, "tenant": "regress_cr_clerk", "v": 2}');
RESET ROLE;

-- names are data
CREATE SCHEMA "cr s"";DROP TABLE x;--";
CREATE TABLE "cr s"";DROP TABLE x;--"."t'); DROP TABLE x; --" (
    "t" int, "select" int, "a""b'c\" text, "$1" int, "excluded" int, "%s %I" int, "s" int,
    PRIMARY KEY ("t", "a""b'c\"));
SELECT * FROM idem_insert('"cr s"";DROP TABLE x;--"."t''); DROP TABLE x; --"', '{"t": 1, "select": 2, "a\"b''c\\": "x''); --", "$1": 4, "excluded": 5, "s": 6}');
SELECT * FROM idem_insert('"cr s"";DROP TABLE x;--"."t''); DROP TABLE x; --"', '{"t": 1, "select": 2, "a\"b''c\\": "x''); --", "$1": 5, "excluded": 5, "s": 7}');
SELECT * FROM idem_upsert('"cr s"";DROP TABLE x;--"."t''); DROP TABLE x; --"', '{"t": 1, "select": 3, "a\"b''c\\": "x''); --", "$1": 5, "excluded": 6, "s": 7}',
                          '{select,$1}', conflict_columns => ARRAY['a"b''c\', 't']::name[]);
SELECT * FROM idem_insert('"cr s"";DROP TABLE x;--"."t''); DROP TABLE x; --"', '{"t\"; DROP TABLE x; --": 1}');

-- renames reach the plans: of the column, the table, the schema
ALTER TABLE "cr s"";DROP TABLE x;--"."t'); DROP TABLE x; --" RENAME COLUMN "select" TO "from";
SELECT * FROM idem_insert('"cr s"";DROP TABLE x;--"."t''); DROP TABLE x; --"', '{"t": 1, "select": 2, "a\"b''c\\": "x''); --"}');
SELECT outcome, differs FROM idem_insert('"cr s"";DROP TABLE x;--"."t''); DROP TABLE x; --"', '{"t": 1, "from": 3, "a\"b''c\\": "x''); --"}');
ALTER SCHEMA "cr s"";DROP TABLE x;--" RENAME TO cr_schema;
SELECT outcome, differs FROM idem_insert('cr_schema."t''); DROP TABLE x; --"', '{"t": 1, "from": 3, "a\"b''c\\": "x''); --"}');
ALTER TABLE cr_schema."t'); DROP TABLE x; --" RENAME TO plain;
SELECT outcome, differs FROM idem_insert('cr_schema.plain', '{"t": 1, "from": 3, "a\"b''c\\": "x''); --"}');
-- so do a new column, a new type, a new key
ALTER TABLE cr_schema.plain ADD COLUMN added int DEFAULT 9, ALTER "from" TYPE text;
SELECT outcome, stored FROM idem_insert('cr_schema.plain', '{"t": 1, "from": 3, "a\"b''c\\": "x''); --"}');
ALTER TABLE cr_schema.plain DROP CONSTRAINT "t'); DROP TABLE x; --_pkey";
SELECT outcome FROM idem_insert('cr_schema.plain', '{"t": 1, "from": 3, "a\"b''c\\": "x''); --"}');
ALTER TABLE cr_schema.plain ADD UNIQUE ("from");
SELECT outcome FROM idem_insert('cr_schema.plain', '{"t": 1, "from": 3, "a\"b''c\\": "x''); --"}');

-- nothing hangs on search_path, nothing in it captures an operator
CREATE FUNCTION cr_schema.never(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR cr_schema.= (leftarg = int, rightarg = int, function = cr_schema.never);
CREATE FUNCTION cr_schema.to_jsonb(public.cr_orders) RETURNS jsonb LANGUAGE sql AS 'SELECT ''{}''::jsonb';
SET search_path = cr_schema, pg_catalog;
SELECT outcome, stored FROM public.idem_insert('public.cr_orders', '{"id": 1, "status": "paid"}');
SET search_path = '';
SELECT outcome, stored FROM public.idem_insert('public.cr_orders', '{"id": 1, "status": "paid"}');
RESET search_path;
-- a temporary table of the same name is another table
CREATE TEMPORARY TABLE cr_orders (id int PRIMARY KEY, status text);
SELECT outcome, stored FROM idem_insert('cr_orders', '{"id": 1, "status": "temp"}');
SELECT outcome, stored FROM idem_insert('public.cr_orders', '{"id": 1, "status": "paid"}');
DROP TABLE pg_temp.cr_orders;

-- more shapes than the session keeps plans for
CREATE TABLE cr_wide (k int PRIMARY KEY);
DO $$
BEGIN
    FOR i IN 1 .. 100 LOOP
        EXECUTE format('ALTER TABLE cr_wide ADD COLUMN c%s int', i);
    END LOOP;
END $$;
SELECT u.outcome, count(*) FROM generate_series(1, 3) AS r, generate_series(1, 100) AS i,
       LATERAL idem_upsert('cr_wide', jsonb_build_object('k', i, 'c' || i, i / r * r + i % r)) AS u
 GROUP BY u.outcome ORDER BY u.outcome;
SELECT count(*) <= 70 AS bounded FROM pg_backend_memory_contexts WHERE name = 'idempotency conditional write';
-- a trigger that writes to its own table the same way
CREATE FUNCTION cr_chain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF new.k < 1100 THEN
        PERFORM idem_insert('cr_wide', jsonb_build_object('k', new.k + 1, 'c1', 0));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER cr_chain AFTER INSERT ON cr_wide FOR EACH ROW EXECUTE FUNCTION cr_chain();
SELECT outcome FROM idem_insert('cr_wide', '{"k": 1001, "c1": 0}');
SELECT count(*) FROM cr_wide WHERE k > 1000;

DROP FUNCTION cr_definer;
DROP FUNCTION cr_schema.to_jsonb;
DROP TABLE cr_wide, cr_orders, cr_tenants;
DROP FUNCTION cr_chain;
SET client_min_messages = warning;
DROP SCHEMA cr_schema CASCADE;
REVOKE ALL ON FUNCTION idem_insert, idem_upsert FROM regress_cr_clerk, regress_cr_other;
DROP ROLE regress_cr_clerk, regress_cr_other;
