"""Kinds of work of a client that stay inside the database."""

import json
import time

from client import KEYS, LASTING_KEYS, REFUSED_END, SHORT_TTL_S, WINDOW_S, seconds

LEASES_S = (0.3, 0.5, 0.8)
RENEWALS = 4
RUSH_S = 0.12           # moments at which clients meet
RUSH_KEYS = 20
FLUSHED_SHARE = 0.05    # of one-transaction work, with synchronous_commit = on
REFUSED_RUN = {'ID005', 'ID006'}
BATCH_SCOPE = 'batch'


def one_transaction(c):
    key, ttl = c.key()
    c.begin()
    c.flushed = c.random.random() < FLUSHED_SHARE
    c.sql('SET LOCAL synchronous_commit = %s', 'on' if c.flushed else 'off')
    row = c.claim(key, ttl, 0.5, c.random.choice((0, 0, 0, 0.3)))
    if row[0] != 'claimed':
        c.sql('ROLLBACK')
        return
    c.work(0.1)
    if c.random.random() < 0.1:
        c.sql('ROLLBACK')
        return
    c.end(key, row[1], 'one', c.random.random() < 0.1)


def claim_committed(c):
    """A claim in a transaction of its own, with its acknowledgement."""
    key, ttl = c.key()
    lease = c.random.choice(LEASES_S)
    if c.random.random() < 0.5:
        row = c.claim(key, ttl, lease, c.random.choice((0, 0, 0.3)))
    else:
        c.begin()
        row = c.claim(key, ttl, lease)
        c.step('commit', c.commit, key=key, token=row[1])
    if row[0] != 'claimed':
        return None
    c.note('held', key=key, token=row[1], lease=lease)
    c.connect()
    return key, row[1], lease


def two_transactions(c):
    held = claim_committed(c)
    if held is None:
        return
    key, token, lease = held
    c.work(lease)
    dice = c.random.random()
    if dice < 0.1:
        c.step('release', lambda: c.one('SELECT idem_release(%s, %s)', key, token),
               REFUSED_END, key=key, token=token)
        return
    if dice < 0.2:
        c.step('fail', lambda: c.one('SELECT idem_fail(%s, %s, token => %s, retry_after => %s)',
                                     key, '"again"', token, '50 ms'),
               REFUSED_END, key=key, token=token)
        return
    if dice < 0.25:
        return                      # forgets it
    if dice < 0.5:
        c.step('extend', lambda: str(c.one('SELECT idem_extend(%s, token => %s)', key, token)),
               REFUSED_END, key=key, token=token)
        c.work(lease)
    c.end(key, token, 'two', c.random.random() < 0.1)
    if c.random.random() < 0.2:     # the answer was lost, says the client
        c.connect()
        c.step('again', lambda: c.one('SELECT idem_finish(%s, %s, token => %s)', key, '"other"', token),
               REFUSED_END, key=key, token=token)


def outlast(c):
    """
    Renews a short lease so often that the end comes later than whoever set the
    alarm of the row (see src/due.c) could know; the key expires soon.
    """
    key, lease = 'lasting-%d' % c.random.randrange(LASTING_KEYS), min(LEASES_S)
    row = c.claim(key, SHORT_TTL_S, lease)
    if row[0] != 'claimed':
        return
    c.note('held', key=key, token=row[1], lease=lease)
    for _ in range(RENEWALS):
        time.sleep(c.random.random() * lease)
        c.step('extend', lambda: str(c.one('SELECT idem_extend(%s, token => %s)', key, row[1])),
               REFUSED_END, key=key, token=row[1])
    c.end(key, row[1], 'two')


def steps(c):
    held = claim_committed(c)
    if held is None:
        return
    key, token, lease = held
    for name in ('a', 'b', 'c'):
        def action(name=name):
            c.begin()
            first = c.one('SELECT idem_checkpoint(%s, %s, %s, %s)', key, name, '1', token)
            if first:
                c.sql('INSERT INTO step_effect SELECT request_id, life, %s, %s FROM transaction_log'
                      ' WHERE scope = %s AND request_id = %s', name, token, '', key)
            c.commit()
            return first
        c.connect()
        c.step('checkpoint', action, REFUSED_END, key=key, token=token, step=name)
        c.work(lease / 2)
    c.connect()
    c.end(key, token, 'two')


def run(c):
    key, ttl = c.key()

    def action():
        return c.sql('SELECT outcome, response_body::text, expires_at::text FROM idem_run(%s, %s, %s, ttl => %s)',
                     key, c.body(key), 'chaos_handler', seconds(ttl))[0]
    c.step('run', action, REFUSED_RUN, key=key)


def procedure(c):
    """idem_batch: each step with its checkpoint, in a transaction of its own."""
    key = c.key('batch-')[0]

    def action():
        c.sql('CALL idem_batch(%s, %s, %s, scope => %s)', key, ['chaos_step_a', 'chaos_step_b'],
              c.body(key), BATCH_SCOPE)
        return True
    # Taken over between two steps, where a client is stopped, it is stale.
    c.step('procedure', action, REFUSED_RUN | REFUSED_END, key=key)


def batch(c):
    keys = list({c.key()[0] for _ in range(4)})
    c.random.shuffle(keys)
    work_in_one(c, keys)


def rush(c):
    """The same new keys as others at the same moment, neck and neck."""
    moment = int(time.time() / RUSH_S) + 1
    time.sleep(max(0, moment * RUSH_S - time.time()))
    work_in_one(c, ['rush%d-%d' % (moment, i) for i in range(RUSH_KEYS)])


def work_in_one(c, keys):
    c.begin()

    def claim():
        return c.sql('SELECT request_id, outcome, token, response_body::text, expires_at::text'
                     ' FROM idem_claim_many(%s, ttl => %s) ORDER BY ordinality',
                     keys, seconds(SHORT_TTL_S))
    rows = c.step('claim_many', claim, keys=keys)
    mine = [row for row in rows if row[1] == 'claimed']
    if not mine:
        c.sql('ROLLBACK')
        return
    answers = [json.dumps(c.answer()) for _ in mine]

    def finish():
        c.sql('SELECT * FROM idem_finish_many(%s, %s::jsonb[])', [row[0] for row in mine], answers)
        for row in mine:
            c.record_effect(row[0], 'one')
        c.commit()
        return True
    c.step('finish_many', finish, REFUSED_END, answers=answers, flushed=False,
           tokens=[[row[0], row[2]] for row in mine])


def once(c):
    message = 'm%d-%d' % (int(time.time() / WINDOW_S), c.random.randrange(KEYS))

    def action():
        c.begin()
        first = c.one('SELECT idem_once(%s)', message)
        if first:
            c.sql('INSERT INTO message_effect VALUES (%s, %s)', message, c.name)
        c.work(0.1)
        c.commit()
        return first
    c.step('once', action, message=message)


def transition(c):
    order = str(c.random.randrange(1, 7))
    to_state = c.random.choice(('created', 'paid', 'shipped', 'cancelled'))

    def action():
        c.begin()
        version = None
        if c.random.random() < 0.5:
            version = c.one('SELECT version FROM orders WHERE id = %s', order)
        row = c.sql('SELECT outcome, state, version FROM idem_transition(%s, %s, %s, expected_version => %s)',
                    'orders', order, to_state, version)[0]
        c.commit()
        return row
    c.step('transition', action, order=order, to=to_state)


# How often each is chosen.
KINDS = {
    'one_transaction': (one_transaction, 4),
    'two_transactions': (two_transactions, 7),
    'outlast': (outlast, 1),
    'steps': (steps, 2),
    'run': (run, 3),
    'procedure': (procedure, 1),
    'batch': (batch, 2),
    'rush': (rush, 3),
    'once': (once, 2),
    'transition': (transition, 2),
}
