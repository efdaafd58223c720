"""Invariants of what is left when all is quiet; the later ones change what is stored."""

import time

import psycopg2

QUIET_WITHIN_S = 20
UNTIL_ALL_FINISHED_S = 30
# The room of a table with many updates, against that of its rows alone.
MOST_BLOAT = 5
FREE_ROOM = 8 * 1024 * 1024

OURS = '''SELECT %s FROM pg_class t
            JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = t.oid AND d.deptype = 'e'
            JOIN pg_extension x ON x.oid = d.refobjid AND x.extname = 'idempotency'
           %s'''


def tables(c):
    return [row[0] for row in c.sql(OURS % ('t.oid::regclass::text', "WHERE t.relkind = 'r'"))]


def until_empty(c, query):
    """Rows of the query that do not go away by themselves."""
    until = time.monotonic() + QUIET_WITHIN_S
    while True:
        rows = c.sql(query)
        if not rows or time.monotonic() > until:
            return rows
        time.sleep(0.1)


def nothing_is_left(c):
    c.expect('no prepared transaction, lock or snapshot is left', until_empty(c, '''
        SELECT 'prepared ' || gid FROM pg_prepared_xacts
         UNION ALL
        SELECT 'lock ' || locktype || ' ' || mode FROM pg_locks
         WHERE pid <> pg_backend_pid() AND locktype <> 'virtualxid'
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND pid NOT IN (SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'autovacuum%%')
         UNION ALL
        SELECT 'slot ' || slot_name FROM pg_replication_slots
         UNION ALL
        SELECT 'snapshot of ' || application_name || ' ' || backend_type FROM pg_stat_activity
         WHERE pid <> pg_backend_pid() AND backend_xmin IS NOT NULL AND backend_type NOT LIKE 'autovacuum%%'
         UNION ALL
        SELECT 'session of ' || application_name FROM pg_stat_activity
         WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' '''))


def dead_rows_are_bounded(c):
    """
    With no snapshot left VACUUM leaves no dead row, and the tables have not
    grown far beyond what their rows need.
    """
    names = tables(c)
    c.expect('no dead row is left after VACUUM', vacuum(c, names))
    before = room(c, names)
    for name in names:
        c.sql('VACUUM FULL ' + name)
    after = room(c, names)
    c.expect('tables have the room that their rows need',
             ['%s has %d bytes, %d would do' % (name, before[name], after[name]) for name in names
              if before[name] > MOST_BLOAT * after[name] + FREE_ROOM])
    print('room of the log: %d kB, and %d kB after VACUUM FULL'
          % (before['transaction_log'] // 1024, after['transaction_log'] // 1024))


def vacuum(c, names):
    until = time.monotonic() + QUIET_WITHIN_S
    while True:
        for name in names:
            c.sql('VACUUM ' + name)
        left = c.sql('SELECT relid::regclass::text, n_dead_tup FROM pg_stat_user_tables'
                     ' WHERE relid::regclass::text = ANY (%s) AND n_dead_tup > 0', names)
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.2)


def room(c, names):
    return dict(c.sql('SELECT t, pg_total_relation_size(t::regclass) FROM unnest(%s) t', names))


def indexes_are_whole(c):
    # A stopped REINDEX CONCURRENTLY leaves invalid ones behind, which is known.
    own = c.sql(OURS % ('i.indexrelid::regclass::text, i.indisvalid',
                        'JOIN pg_index i ON i.indrelid IN (t.oid, t.reltoastrelid)'))
    wrong = []
    for index, valid in own:
        try:
            if valid:
                c.sql('SELECT bt_index_check(%s::regclass, true)', index)
        except psycopg2.Error as error:
            wrong.append('%s: %s' % (index, error))
    c.expect('indexes agree with their tables', wrong)
    c.sql('SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off')
    c.expect('no key is stored twice', c.sql(
        'SELECT scope, request_id FROM transaction_log GROUP BY 1, 2 HAVING count(*) > 1'))
    c.sql('RESET ALL')


def all_keys_finish(c):
    """Whatever was left behind can be carried out now, with tokens that are greater still."""
    granted, small = {}, []
    for key, token, _ in c.grants:
        granted[key] = max(token, granted.get(key, 0))
    until = time.monotonic() + UNTIL_ALL_FINISHED_S
    while True:
        c.sql('BEGIN')
        rows = c.sql('''
            WITH keys AS MATERIALIZED (SELECT scope, request_id FROM transaction_log WHERE scope <> 'pay')
            SELECT scope, request_id, c.outcome, c.token FROM keys
             CROSS JOIN LATERAL idem_claim(request_id, jsonb_build_object('key', request_id), scope => scope) c
             WHERE c.outcome <> 'replay' ''')
        for scope, key, outcome, token in rows:
            if outcome == 'claimed':
                c.sql('SELECT idem_finish(%s, scope => %s)', key, scope)
                if token <= granted.get(key, 0):
                    small.append('%s: %d after %d' % (key, token, granted[key]))
        c.sql('COMMIT')
        if not rows or time.monotonic() > until:
            break
        time.sleep(0.1)
    c.expect('every key finishes', rows)
    c.expect('its token is greater than all before', small)


def all_is_purged(c):
    c.sql("SET idempotency.test_clock = '2100-01-01'")
    c.sql('CALL idem_purge_all()')
    c.expect('what is due is purged', c.sql('''
        SELECT 'request ' || request_id || ' ' || status FROM transaction_log
         UNION ALL SELECT 'step ' || request_id FROM idempotency_checkpoint
         UNION ALL SELECT 'call ' || request_id FROM idempotency_call
         UNION ALL SELECT 'message ' || message_id FROM idempotency_inbox'''))
    c.sql('RESET idempotency.test_clock')


INVARIANTS = (nothing_is_left, indexes_are_whole, all_keys_finish, dead_rows_are_bounded, all_is_purged)
