"""Kinds of work that call a provider outside: payments, and the person who settles them.

A client crashes between record, send and answer at times.  What it says of a
call that only holds for the moment ("not sent", "not found") it says in one
transaction with idem_extend, so that nobody says it who was taken over.
"""

import json
import time

import stub
from client import REFUSED_END, Refused

SCOPE = 'pay'
# name: how long a call may still take effect, as schema.sql tells the database
TIMEOUTS_S = {'keyed': 1.0, 'askable': 1.2, 'mute': 1.2}
MARGIN_S = 0.05             # for clocks that do not run alike
LEASES_S = (0.5, 1.0, 2.0)
TURNS = 5
TOGETHER_SHARE = 0.3        # claims that are recorded with their call in one transaction
LIES_SHARE = 0.1
SETTLE_LOCK = 1             # one person at a time
REFUSED_CALL = REFUSED_END | {'ID006'}
REFUSED_WORD = {'ID001', 'ID002', 'ID003', '42501'}
UNTIL_FINISHED_S = 60
FINISH_PAUSE_S = 0.1


class Payment:
    """One claim of a key, on its way through its call."""

    def __init__(self, c, key, provider, lease, token):
        self.c = c
        self.key = key
        self.provider = provider
        self.lease = lease
        self.token = token
        self.deadline = None
        self.life = None

    # ---- the database ------------------------------------------------------

    def next_action(self, own_claim=False):
        """What to do about the call: [action, call_id, attempt, status, body, seconds, life]."""
        c = self.c
        began = time.monotonic()

        def action():
            return c.sql('SELECT action, call_id, attempt, status, response_body::text,'
                         ' extract(epoch FROM retry_after)::float,'
                         ' (SELECT life FROM transaction_log WHERE scope = %s AND request_id = %s)'
                         ' FROM idem_call(%s, %s, token => %s, scope => %s)',
                         SCOPE, self.key, self.key, self.provider, None if own_claim else self.token, SCOPE)[0]
        row = c.step('call', action, REFUSED_CALL, key=self.key, token=self.token, provider=self.provider)
        self.deadline = began + TIMEOUTS_S[self.provider] - MARGIN_S
        if row[6] is not None:
            self.life = row[6]
        return row

    def say(self, call_id, word, body=None):
        """Records what became of the call."""
        c = self.c
        only_now = word in ('not_sent', 'not_found')

        def action():
            if only_now:
                c.begin()
                c.sql('SELECT idem_extend(%s, token => %s, scope => %s)', self.key, self.token, SCOPE)
            what_next = c.one('SELECT idem_call_finish(%s, %s, %s)', call_id, word, body)
            if only_now:
                c.commit()
            return what_next
        return c.step('call_finish', action, REFUSED_WORD, key=self.key, token=self.token, call_id=call_id,
                      provider=self.provider, word=word, body=body)

    # ---- the provider --------------------------------------------------------

    def ask_provider(self, op, call_id):
        return stub.ask(self.c.directory, {
            'op': op, 'provider': self.provider, 'key': self.key, 'life': self.life, 'token': self.token,
            'call_id': call_id, 'client': self.c.name, 'deadline': self.deadline})

    def send(self, call_id):
        """Sends or asks again; False where somebody else has come since."""
        c = self.c
        c.crash_at_times('recorded')
        c.work(self.lease / 2)
        answer = self.ask_provider('charge', call_id)
        c.crash_at_times('sent')
        return self.take(call_id, answer)

    def inquire(self, call_id):
        self.c.crash_at_times('before inquiry')
        answer = self.ask_provider('ask', call_id)
        self.c.crash_at_times('asked')
        return answer != stub.NOT_SENT and self.take(call_id, answer)

    def take(self, call_id, answer):
        c = self.c
        if answer == stub.NOT_SENT:
            self.say(call_id, 'not_sent')
        elif answer == stub.NO_ANSWER or answer['status'] == 'late':
            if c.random.random() < 0.3:
                return False            # tells nobody
            self.say(call_id, 'ambiguous')
        elif answer['status'] == 'stale':
            return False
        elif answer['status'] == 'not_found':
            self.say(call_id, 'not_found')
        else:
            self.say(call_id, answer['status'], json.dumps(answer['body']))
        return True

    def lie(self, call_id, status):
        """The first definite answer stays, whoever brings another."""
        other = 'failed' if status == 'succeeded' else 'succeeded'
        self.c.step('lie', lambda: self.c.one('SELECT idem_call_finish(%s, %s, %s)', call_id, other, '"lie"'),
                    REFUSED_WORD, call_id=call_id)

    def wait(self, left_s):
        time.sleep(min(left_s or 0, 0.4) + 0.01)
        return self.c.calm or self.c.random.random() < 0.7

    # ---- all of it -------------------------------------------------------------

    def carry_out(self, row=None):
        """True where the request has ended, or waits for a person."""
        c = self.c
        for _ in range(TURNS):
            c.connect()
            if row is None:
                row = self.next_action()
            action, call_id, _, status, body, left_s, _ = row
            row = None
            if action == 'done':
                return self.end(call_id, status, body)
            if action == 'review':
                return True
            if action == 'in_progress':
                return False
            go_on = {'send': self.send, 'inquire': self.inquire}.get(action)
            if not (go_on(call_id) if go_on else self.wait(left_s)):
                return False
        return False

    def end(self, call_id, status, body):
        c = self.c
        c.crash_at_times('answered')
        if c.chance(LIES_SHARE):
            try:
                self.lie(call_id, status)
            except Refused:
                c.connect()
        if c.chance(0.1):
            return False                # forgets it
        c.end(self.key, self.token, 'two', status == 'failed', SCOPE, body)
        return True


def pay_key(c, key, ttl, provider):
    lease = c.random.choice(LEASES_S)
    together = c.random.random() < TOGETHER_SHARE
    if together:
        c.begin()
    claimed = c.claim(key, ttl, lease, scope=SCOPE)
    if claimed[0] != 'claimed':
        if together:
            c.sql('ROLLBACK')
        if claimed[0] == 'unknown':
            settle(c)
        return claimed[0] == 'replay'
    payment = Payment(c, key, provider, lease, claimed[1])
    row = None
    if together:
        row = payment.next_action(own_claim=True)
        c.step('commit', c.commit, key=key, token=claimed[1])
    c.note('held', key=key, token=claimed[1], lease=lease)
    return payment.carry_out(row)


def pay(c):
    provider = c.random.choice(sorted(TIMEOUTS_S))
    key, ttl = c.key('pay-%s-' % provider)
    return pay_key(c, key, ttl, provider)


def settle(c):
    """
    A person looks into the provider's books, and says what is there.  Nobody
    else does so meanwhile, nor does the call change that waits for a person.
    """
    def action():
        c.begin()
        if not c.one('SELECT pg_try_advisory_xact_lock(%s)', SETTLE_LOCK):
            return None
        # Before the time-out is over, that it is not in the books proves nothing.
        found = c.sql('SELECT r.request_id, r.call_id FROM idem_review r JOIN idempotency_call k USING (call_id)'
                      ' JOIN idempotency_provider p ON p.provider = k.provider'
                      ' WHERE r.scope = %s AND k.sent_at + p.timeout < clock_timestamp()', SCOPE)
        if not found:
            return None
        key, call_id = c.random.choice(found)
        answer = stub.ask(c.directory, {'op': 'books', 'call_id': call_id})
        if isinstance(answer, str):
            return None             # nobody answers
        body = json.dumps(answer['body']) if 'body' in answer else None
        c.note('settling', call_id=call_id, word=answer['status'])
        c.sql('SELECT idem_call_finish(%s, %s, %s)', call_id, answer['status'], body)
        c.commit()
        return [key, call_id, answer['status']]
    c.step('settle', action, REFUSED_WORD)


def unfinished(c):
    return c.sql("SELECT request_id FROM transaction_log l WHERE scope = %s AND"
                 " (SELECT status FROM idem_lookup(l.request_id, l.scope)) IN ('processing', 'unknown')", SCOPE)


def finish_calls(c):
    """With no more faults, everything comes to its end: 0 where it does."""
    c.calm = True
    c.slow = False
    c.note('start', slow=False)
    until = time.monotonic() + UNTIL_FINISHED_S
    while time.monotonic() < until:
        left = c.once(unfinished)
        if left == []:
            return 0
        c.once(settle)
        for (key,) in left or ():
            c.once(lambda c, key=key: pay_key(c, key, 600, key.split('-')[1]))
        time.sleep(FINISH_PAUSE_S)
    return 1


# How often each is chosen.
KINDS = {
    'pay': (pay, 6),
    'settle': (settle, 1),
}
