-- Definitions of state machines
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS idempotency;

-- what a definition looks like when it is stored: in order, blanks trimmed
SELECT idem_machine('m_order', ARRAY['created'], ARRAY['created->confirmed', ' confirmed -> shipped ', 'shipped->delivered', 'created->cancelled', 'confirmed->cancelled']);
SELECT * FROM idempotency_machine WHERE machine = 'm_order';

-- the same again changes nothing, not even the row version
BEGIN;
SELECT ctid, xmin AS before FROM idempotency_machine WHERE machine = 'm_order' \gset
SELECT idem_machine('m_order', ARRAY['created'], ARRAY['created->confirmed', 'confirmed->shipped', 'shipped->delivered', 'created->cancelled', 'confirmed->cancelled']);
SELECT ctid = :'ctid' AND xmin = :'before' AS untouched FROM idempotency_machine WHERE machine = 'm_order';
COMMIT;

-- diagrams
SELECT idem_machine_diagram('m_order');
SELECT idem_machine_diagram('m_order', 'dot');
SELECT idem_machine('m_one', ARRAY['only'], '{}');
SELECT idem_machine_diagram('m_one');
SELECT idem_machine('m "odd"', ARRAY['a b', 'end'], ARRAY['a b->s1', 'end->q"uote\', 's1->s1', 's1->été']);
SELECT idem_machine_diagram('m "odd"');
SELECT idem_machine_diagram('m "odd"', 'dot');
SELECT idem_machine_diagram('m_order', 'png');
SELECT idem_machine_diagram('m_none');
SELECT idem_machine_diagram(NULL) IS NULL AS nothing;

-- bad definitions show what is wrong
SELECT idem_machine('m_bad', ARRAY['a'], ARRAY['a=>b']);
SELECT idem_machine('m_bad', ARRAY['a'], ARRAY['a-->b']);
SELECT idem_machine('m_bad', ARRAY['a'], ARRAY['a->>b']);
SELECT idem_machine('m_bad', ARRAY['a'], ARRAY['a<->b']);
SELECT idem_machine('m_bad', ARRAY['a'], ARRAY['a->b->c']);
SELECT idem_machine('m_bad', ARRAY['a'], ARRAY['a']);
SELECT idem_machine('m_bad', ARRAY['a'], ARRAY['']);
SELECT idem_machine('m_bad', ARRAY['a'], ARRAY['a->']);
SELECT idem_machine('m_bad', ARRAY['a'], ARRAY[' ->b']);
SELECT idem_machine('m_bad', ARRAY['a'], ARRAY['a->b', 'a->c', 'a -> b']);
SELECT idem_machine('m_bad', ARRAY['a', 'a'], '{}');
SELECT idem_machine('m_bad', ARRAY['a', ''], '{}');
SELECT idem_machine('m_bad', '{}', ARRAY['a->b']);
SELECT idem_machine('m_bad', ARRAY['a', NULL], '{}');
SELECT idem_machine('m_bad', ARRAY['a'], ARRAY['a->b', NULL]);
SELECT idem_machine('m_bad', ARRAY[['a'], ['b']], '{}');
SELECT idem_machine('m_bad', ARRAY[E'a\nb'], '{}');
SELECT idem_machine('m_bad', ARRAY[repeat('x', 256)], '{}');
SELECT idem_machine('', ARRAY['a'], '{}');
SELECT idem_machine(repeat('x', 256), ARRAY['a'], '{}');
SELECT idem_machine(NULL, ARRAY['a'], '{}');
SELECT idem_machine('m_bad', NULL, '{}');
SELECT idem_machine('m_bad', ARRAY['a'], NULL);
SELECT count(*) FROM idempotency_machine WHERE machine = 'm_bad';

-- refused in a read-only transaction
BEGIN READ ONLY;
SELECT idem_machine('m_bad', ARRAY['a'], '{}');
ROLLBACK;

-- shapes: what counts as a repeat follows from the paths
CREATE TABLE shape (id int PRIMARY KEY, state text);
CREATE FUNCTION ask(machine text, present text, target text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    PERFORM idem_unguard('shape');
    DELETE FROM shape;
    INSERT INTO shape VALUES (1, present);
    PERFORM idem_guard_state('shape', 'state', machine);
    SELECT outcome || ' ' || state INTO answer FROM idem_transition('shape', '1', target);
    RETURN answer;
END $$;
-- states that nothing leads to: retired ones, or mistyped
SET client_min_messages = notice;
SELECT idem_machine('m_retired', ARRAY['a'], ARRAY['a->b', 'old->b', 'old->older']);
SELECT idem_machine('m_retired', ARRAY['a'], ARRAY['a->b', 'old->b', 'old->older']);
SET client_min_messages = warning;
CREATE TABLE m_rows (id int PRIMARY KEY, state text);
INSERT INTO m_rows VALUES (1, 'old');
SELECT idem_guard_state('m_rows', 'state', 'm_retired');
SELECT outcome FROM idem_transition('m_rows', '1', 'a');
SELECT outcome, state FROM idem_transition('m_rows', '1', 'b');
DROP TABLE m_rows;

-- a diamond: neither side is on every path, the ends are
SELECT idem_machine('m_diamond', ARRAY['a'], ARRAY['a->b', 'a->c', 'b->d', 'c->d', 'd->e']);
SELECT present, target, ask('m_diamond', present, target)
FROM unnest(ARRAY['a', 'b', 'c', 'd', 'e']) present, unnest(ARRAY['a', 'b', 'c', 'd', 'e']) target;
-- a cycle: retried work; and a state that leads to itself
SELECT idem_machine('m_cycle', ARRAY['new'], ARRAY['new->run', 'run->wait', 'wait->run', 'run->run', 'run->done']);
SELECT present, target, ask('m_cycle', present, target)
FROM unnest(ARRAY['new', 'run', 'wait', 'done']) present, unnest(ARRAY['new', 'run', 'wait', 'done']) target;
-- two initial states: only what both lead through is certain
SELECT idem_machine('m_two', ARRAY['x', 'y'], ARRAY['x->z', 'y->z', 'z->w']);
SELECT present, target, ask('m_two', present, target)
FROM unnest(ARRAY['x', 'z', 'w']) present, unnest(ARRAY['x', 'y', 'z']) target;
-- one state
SELECT ask('m_one', 'only', 'only'), ask('m_one', 'only', 'other');

-- 200 states in a row, with a step back from each to the first
SELECT idem_machine('m_long', ARRAY['s0'],
    ARRAY(SELECT format('s%s->s%s', i, i + 1) FROM generate_series(0, 198) i)
    || ARRAY(SELECT format('s%s->s0', i) FROM generate_series(1, 199) i));
SELECT ask('m_long', 's198', 's199'), ask('m_long', 's198', 's100'), ask('m_long', 's100', 's102'), ask('m_long', 's199', 's0');
SELECT length(idem_machine_diagram('m_long')) > 2000 AS drawn;

-- a change is in force at once, and gone with a rollback
BEGIN;
SELECT ask('m_two', 'z', 'q');
SELECT idem_machine('m_two', ARRAY['x', 'y'], ARRAY['x->z', 'y->z', 'z->w', 'z->q']);
SELECT ask('m_two', 'z', 'q');
ROLLBACK;
SELECT ask('m_two', 'z', 'q');
-- also when it comes past the function
UPDATE idempotency_machine SET transitions = transitions || '{z->q}' WHERE machine = 'm_two';
SELECT ask('m_two', 'z', 'q');
DELETE FROM idempotency_machine WHERE machine = 'm_two';
SELECT * FROM idem_transition('shape', '1', 'w');
UPDATE shape SET state = 'w';

DROP TABLE shape;
DROP FUNCTION ask;
DELETE FROM idempotency_machine WHERE machine ~ '^m[_ ]';
